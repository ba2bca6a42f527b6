"""`%svc models`: the known models, their limits, and the room left."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from svc_notebook.endpoints import facts_of
from svc_notebook.errors import SvcError
from svc_notebook.service.catalogue import Limit
from svc_notebook.session import Session

from .column_list import indexed_frame, listed

if TYPE_CHECKING:
    import pandas as pd


LIST_WAIT_S = 3.0  # for the list of an endpoint that has one
MODEL_LIST = (
    *listed(
        "string",
        model="its id",
        size="of the model, such as 8B; missing if unknown",
        released="the day it was released; missing if unknown",
    ),
    *listed(
        "Int64",
        per_second="most requests within a second; missing without a limit",
        left_second="requests that this limit lets through now",
        per_minute="most requests within a minute; missing without a limit",
        left_minute="requests that this limit lets through now",
        in_flight="most requests at a time; missing without a limit",
        context_tokens="most tokens of prompt and reply together",
    ),
    *listed("boolean", in_use="whether it is asked where no model is named"),
)


def models_df(session: Session, *, has_room: bool = True) -> "pd.DataFrame":
    """List the endpoint's models (doc: Model ids, Rate limits per model, Versioning).

    `has_room` adds how many requests each window lets through now.
    """
    from .summary_table import listing  # noqa: PLC0415 - pandas

    rows: list[tuple[Any, ...]] = []
    endpoint = session.settings.endpoint
    for listed_model in session.models(wait_s=LIST_WAIT_S):
        model = endpoint.model(listed_model.id)
        limit = endpoint.limit_of(listed_model.id)
        room = None
        if has_room and limit:
            with suppress(SvcError):  # no service is chosen yet
                room = session.client.room(model.id)
        second, minute = (limit and limit.per_second), (limit and limit.per_minute)
        seconds = second, room.in_second if room and second else None
        minutes = minute, room.in_minute if room and minute else None
        in_use = model.id == session.settings.model
        rows.append(
            (
                *(model.id, model.size, model.released_on, *seconds, *minutes),
                *(limit and limit.in_flight, model.context_tokens, in_use),
            )
        )
    left_out = [] if has_room else ["left_second", "left_minute"]
    frame = indexed_frame(MODEL_LIST, rows).drop(columns=left_out)
    shown = [
        (
            *(str(value or "") for value in row[:3]),
            " ".join(filter(None, (_limit(row[3], row[5]), _at_once(row[7])))),
            _limit(row[4], row[6]),
            str(row[8] or ""),
            "in use" if row[9] else "",
        )
        for row in rows
    ]
    whose = endpoint.name if endpoint.lists_models else "The service's document"
    n_models = f"{len(rows)} model{'s'[: len(rows) != 1]}"
    problem = facts_of(endpoint.base_url or "").problem if endpoint.lists_models else ""
    why = f" Its list of models could not be read: {problem}." if problem else ""
    sentence = f"{whose} names {n_models}; others can be asked.{why}"
    if problem and not rows:
        sentence = f"{whose}:{why} Any model can be asked by its id."
    elif problem:
        sentence = f"{whose}: {n_models} known; others can be asked.{why}"
    return listing(frame, sentence, _MODEL_HEADS, shown)


_MODEL_HEADS = ("model", "size", "released", "limits", "left now", "context", "")


def _limit(second: int | None, minute: int | None) -> str:
    limit = Limit(per_second=second, per_minute=minute)
    return "" if second is minute is None else str(limit)


def _at_once(in_flight: int | None) -> str:
    return "" if in_flight is None else f"{in_flight} at once"

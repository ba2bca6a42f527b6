"""`%svc models`: the known models, their limits, and the requests left."""

from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from svc_notebook.display.number_words import count_in_words
from svc_notebook.endpoints import Endpoint, facts_of
from svc_notebook.errors import SvcError
from svc_notebook.service.catalogue import Limit
from svc_notebook.session import Session

from .column_list import columns_of, indexed_frame

if TYPE_CHECKING:
    import pandas as pd


LIST_WAIT_S = 3.0  # longest wait for the endpoint's list of models
MODEL_LIST = (
    *columns_of(
        "string",
        model="its id",
        size="of the model, such as 8B; missing if unknown",
        released="the day it was released; missing if unknown",
    ),
    *columns_of(
        "Int64",
        per_second="most requests within a second; missing without a limit",
        left_second="requests that this limit lets through now",
        per_minute="most requests within a minute; missing without a limit",
        left_minute="requests that this limit lets through now",
        in_flight="most requests at a time; missing without a limit",
        context_tokens="most tokens of prompt and reply together",
    ),
    *columns_of("boolean", in_use="whether it is the model in use"),
)


class _ModelRow(NamedTuple):
    """One model; the fields are the columns of `MODEL_LIST`."""

    model: str
    size: str | None
    released: date | None
    per_second: int | None
    left_second: int | None
    per_minute: int | None
    left_minute: int | None
    in_flight: int | None
    context_tokens: int | None
    in_use: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the texts of the columns `_MODEL_HEADS`."""
        at_once = "" if self.in_flight is None else f"{self.in_flight} at once"
        limits = (_limit_text(self.per_second, self.per_minute), at_once)
        return (
            *(str(value or "") for value in (self.model, self.size, self.released)),
            " ".join(filter(None, limits)),
            _limit_text(self.left_second, self.left_minute),
            str(self.context_tokens or ""),
            "in use" if self.in_use else "",
        )


_MODEL_HEADS = ("model", "size", "released", "limits", "left now", "context", "")


def _limit_text(second: int | None, minute: int | None) -> str:
    limit = Limit(per_second=second, per_minute=minute)
    return "" if second is minute is None else str(limit)


def models_df(session: Session, *, has_room: bool = True) -> "pd.DataFrame":
    """List the endpoint's models (doc: Model ids, Rate limits per model, Versioning).

    `has_room` adds how many requests each window lets through now.
    """
    from .summary_table import listing  # noqa: PLC0415 - pandas

    known_models = session.models(wait_s=LIST_WAIT_S)
    rows = [_to_row(session, known.id, has_room=has_room) for known in known_models]
    left_out = [] if has_room else ["left_second", "left_minute"]
    frame = indexed_frame(MODEL_LIST, rows).drop(columns=left_out)
    sentence = _summary(session.settings.endpoint, len(rows))
    return listing(frame, sentence, _MODEL_HEADS, [row.cells for row in rows])


def _to_row(session: Session, model_id: str, *, has_room: bool) -> _ModelRow:
    endpoint = session.settings.endpoint
    model, limit, room = endpoint.model(model_id), endpoint.limit_of(model_id), None
    if has_room and limit:
        with suppress(SvcError):  # no service is chosen yet
            room = session.client.room(model.id)
    per_second = limit.per_second if limit else None
    per_minute = limit.per_minute if limit else None
    return _ModelRow(
        model=model.id,
        size=model.size,
        released=model.released_on,
        per_second=per_second,
        left_second=room.in_second if room and per_second else None,
        per_minute=per_minute,
        left_minute=room.in_minute if room and per_minute else None,
        in_flight=limit.in_flight if limit else None,
        context_tokens=model.context_tokens,
        in_use=model.id == session.settings.model,
    )


def _summary(endpoint: Endpoint, n_models: int) -> str:
    """Return how many models are known, and why the list could not be read."""
    source = endpoint.name if endpoint.lists_models else "The service's document"
    problem = facts_of(endpoint.base_url or "").problem if endpoint.lists_models else ""
    reason = f" Its list of models could not be read: {problem}." if problem else ""
    if problem and not n_models:
        return f"{source}:{reason} Any model can be asked by its id."
    if problem:
        return f"{source}: {n_models:,} known; others can be asked.{reason}"
    models = count_in_words(n_models, "models")
    return f"{source} names {models}; others can be asked."

"""The frames that `%svc` shows: models, what was asked, conversations, settings.

Rules: each is a reading of the session, the service's tables or the ledger, with
stated dtypes, also for no rows; nothing in them is a key; pandas loads at the first.
"""

import os
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from svc_notebook.client.limits import Room
from svc_notebook.errors import MissingKeyError, SvcError
from svc_notebook.service.catalogue import MODELS
from svc_notebook.session import Session
from svc_notebook.settings import ENV_NAMES, read_env

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd

_USAGE_COLUMNS = (
    "n_requests",
    "n_failed",
    "n_cut",
    "prompt_tokens",
    "completion_tokens",
    "estimated_prompt_tokens",
    "estimated_completion_tokens",
    "estimated_low_tokens",
    "estimated_high_tokens",
)
_COSTS = ("cost", "estimated_cost", "cost_source")
_REPLY_COLUMNS = (
    "door",
    "conversation",
    "model",
    "temperature",
    "prompt",
    "text",
    "finish_reason",
    "is_cut",
    "status",
    "error_type",
    "latency_s",
)
_LIMITS = {
    "per_second": "Int64",
    "left_second": "Int64",
    "per_minute": "Int64",
    "left_minute": "Int64",
}


def usage_df(session: Session) -> "pd.DataFrame":
    """Sum up what this kernel asked, one row a model; the emulator's rows apart.

    Returns:
        The columns of `svc.usage_df` that fit a screen; costs where there is a price
        table, and how many re-used replies are left out where there are any.

    Raises:
        LedgerError: The ledger cannot be read.
        SettingsError: The price table cannot be used.
    """
    from svc_notebook.ledger.reading import usage_df as frame  # noqa: PLC0415 - pandas

    prices = session.prices
    groups = ["model", "is_emulated"]
    usage = frame(session.ledger, by=groups, include_emulated=True, prices=prices)
    usage.loc[usage["is_emulated"], list(_COSTS)] = None  # nothing was paid for these
    shown = [*_USAGE_COLUMNS, *(_COSTS if prices else ())]
    if usage["n_left_out"].any():
        shown.append("n_left_out")
    return usage.set_index(groups)[shown]


def replies_df(session: Session) -> "pd.DataFrame":
    """List what this kernel asked and was answered, one row a choice, oldest first.

    Returns:
        The columns of `svc.replies_df()` that fit a screen; it has all.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    from svc_notebook.ledger.reading import replies_df as frame  # noqa: PLC0415 - pandas

    return frame(session.ledger)[list(_REPLY_COLUMNS)]


def models_df(session: Session, *, has_room: bool = True) -> "pd.DataFrame":
    """List the documented models (doc: Model ids, Rate limits per model, Versioning).

    Args:
        session: Whose limits and model.
        has_room: Whether to say how many requests each window lets through now.

    Returns:
        One row a model, in the document's order, indexed by `model`; `<NA>` is what
        the document does not show, or no room where no service is chosen yet.
    """
    import pandas as pd  # noqa: PLC0415 - loads when a frame is asked for

    rooms = [_room(session, model.id) if has_room else None for model in MODELS]
    frame = pd.DataFrame(
        {
            "model": [model.id for model in MODELS],
            "size": [model.size for model in MODELS],
            "released": [model.released_on for model in MODELS],
            "per_second": [model.limit and model.limit.per_second for model in MODELS],
            "left_second": [room and room.in_second for room in rooms],
            "per_minute": [model.limit and model.limit.per_minute for model in MODELS],
            "left_minute": [room and room.in_minute for room in rooms],
            "in_use": [model.id == session.settings.model for model in MODELS],
        }
    ).astype(
        {
            "model": "string",
            "size": "string",
            "released": "string",
            **_LIMITS,
            "in_use": "boolean",
        }
    )
    left_out = [] if has_room else ["left_second", "left_minute"]
    return frame.drop(columns=left_out).set_index("model")


def _room(session: Session, model: str) -> Room | None:
    try:
        return session.client.room(model)
    except SvcError:
        return None


def conversations_df(session: Session) -> "pd.DataFrame":
    """List the conversations of this kernel.

    Returns:
        One row a conversation, in the order in which they were begun.
    """
    import pandas as pd  # noqa: PLC0415 - loads when a frame is asked for

    known = list(session.conversations)
    frame = pd.DataFrame(
        {
            "conversation": [each.name for each in known],
            "n_turns": [len(each.turns) for each in known],
            "est_tokens": [each.est_tokens for each in known],
            "system": [each.system for each in known],
        }
    )
    return frame.astype(
        {
            "conversation": "string",
            "n_turns": "Int64",
            "est_tokens": "Int64",
            "system": "string",
        }
    ).set_index("conversation")


def settings_df(
    session: Session, magic: Iterable[tuple[str, object, str]]
) -> "pd.DataFrame":
    """List what applies where nothing else is said, and who said it.

    Args:
        session: Its settings; of the key only where it was found.
        magic: Name, value and source of the magic's own defaults.

    Returns:
        One row a value, indexed by `setting`; `<NA>` is not set, so that a parameter
        is not sent.
    """
    import pandas as pd  # noqa: PLC0415 - loads when a frame is asked for

    rows = [*_settings(session), ("key", *_key(session)), *magic]
    texts = [
        (name, pd.NA if value is None else str(value), source)
        for name, value, source in rows
    ]
    frame = pd.DataFrame(texts, columns=["setting", "value", "source"], dtype="string")
    return frame.set_index("setting")


def _settings(session: Session) -> list[tuple[str, object, str]]:
    settings, unusable = session.settings, read_env(os.environ)[1]
    timeouts = {each.name for each in fields(settings.timeouts)}
    rows = []
    for name, env in ENV_NAMES.items():
        source = settings.sources.get(name, "default")
        if env in unusable:
            source = f"{source}; {env} cannot be used"
        if name == "timeouts":
            waits = settings.timeouts
            rows += [(each, getattr(waits, each), source) for each in sorted(timeouts)]
        else:
            rows.append((name, getattr(settings, name), source))
    return rows


def _key(session: Session) -> tuple[object, str]:
    try:
        return "found, never shown", session.key().source
    except MissingKeyError:
        return None, "default"

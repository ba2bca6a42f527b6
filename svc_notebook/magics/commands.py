"""What the subcommands of `%svc` do (`words` says which there are).

Rules: each is a thin reading of the session or of the service's tables; what
they print holds no key.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from svc_notebook.errors import MissingKeyError, ParameterError
from svc_notebook.exchange import Door
from svc_notebook.service.catalogue import MODELS
from svc_notebook.session import Session

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
_DOORS: tuple[Door, ...] = ("magic", "panel", "python")
EMULATOR_NOTE = (
    "Replies now come from the emulator on this machine: they are made up, cost\n"
    "nothing, and are marked “emulator” wherever they show."
)


def use(session: Session, words: Sequence[str]) -> str:
    """Choose the endpoint or the model; say what is in use.

    Raises:
        ConfigError: The service's key or address is missing.
    """
    if not words:
        return describe(session)
    if words[0] == "emulator":
        session.use_emulator()
        return EMULATOR_NOTE
    if words[0] == "service":
        session.use_service()
        return f"Replies now come from {session.settings.base_url}."
    _refuse_near_miss(words[0])
    session.use_model(words[0], source="%svc use")
    listed = any(model.id == words[0] for model in MODELS)
    note = "" if listed else " (not in the service document; it is sent as it is)"
    return f"The model is now {words[0]}{note}."


def _refuse_near_miss(word: str) -> None:
    """Take a misspelt `emulator` for no model: the service would be asked on."""
    if word.startswith("svc"):
        return
    near = get_close_matches(word.lower(), ("emulator", "service"), n=1, cutoff=0.75)
    if near:
        raise ParameterError(
            f"{word!r} was not taken for a model's id; did you mean "
            f"`%svc use {near[0]}`? Nothing has changed.",
            param="model",
        )


def describe(session: Session) -> str:
    """Say what is in use, and where each value came from."""
    settings = session.settings
    where = settings.base_url or "no address yet: set SVC_BASE_URL"
    if settings.is_emulated:
        where = f"the emulator on this machine, {settings.base_url}"
    try:
        key = f"from {session.key().source}"
    except MissingKeyError:
        key = "none yet: set SVC_API_KEY, or `%svc use emulator`"
    lines = [f"service  {where}", f"key      {key}"]
    for name in ("model", "ledger", "prices", "answers"):
        value, source = getattr(settings, name), settings.sources.get(name, "default")
        if value is not None:
            lines.append(f"{name:<8} {value} ({source})")
    return "\n".join(lines)


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


def models_df(session: Session) -> "pd.DataFrame":
    """List the documented models (doc: Model ids, Rate limits per model, Versioning).

    Returns:
        One row a model, in the document's order, indexed by `model`; `<NA>` is what
        the document does not show.
    """
    import pandas as pd  # noqa: PLC0415 - loads when a frame is asked for

    frame = pd.DataFrame(
        {
            "model": [model.id for model in MODELS],
            "size": [model.size for model in MODELS],
            "released": [model.released_on for model in MODELS],
            "per_second": [model.limit and model.limit.per_second for model in MODELS],
            "per_minute": [model.limit and model.limit.per_minute for model in MODELS],
            "in_use": [model.id == session.settings.model for model in MODELS],
        }
    )
    return frame.astype(
        {
            "model": "string",
            "size": "string",
            "released": "string",
            "per_second": "Int64",
            "per_minute": "Int64",
            "in_use": "boolean",
        }
    ).set_index("model")


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


def reset(session: Session, name: str) -> str:
    """Forget the turns of a conversation.

    Raises:
        ParameterError: There is no such conversation.
    """
    session.conversations.known(name).reset()
    return f"The conversation {name} begins anew; the ledger keeps what was said."


def mark(session: Session, words: Sequence[str], kind: str) -> str:
    """Pin or hide a turn, or undo that.

    Raises:
        ParameterError: There is no such conversation or turn.
    """
    conversation = session.conversations.known(words[0])
    number = _count(words[1])
    if kind == "pin":
        is_so = conversation.toggle_pin(number)
        return f"Turn {number} is {'pinned' if is_so else 'no longer pinned'}."
    is_so = conversation.toggle_hidden(number)
    return f"Turn {number} is {'hidden' if is_so else 'sent again'}."


def choose(session: Session, words: Sequence[str]) -> str:
    """Choose the version of a turn that feeds later turns.

    Raises:
        ParameterError: There is no such conversation, turn or version.
    """
    name, turn, version = words
    session.conversations.known(name).choose(_count(turn), _count(version))
    return f"Version {version} of turn {turn} now feeds later turns of {name}."


def restore(session: Session, words: Sequence[str]) -> str:
    """Rebuild conversations from the ledger, those that have no turns here.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    exchanges = session.ledger.read(
        scope="all", conversation=words[0] if words else None, door=_DOORS
    )
    restored = session.conversations.restore(exchanges)
    if not restored:
        return (
            f"Nothing to restore: the ledger {session.settings.ledger} holds no turns."
        )
    names = (f"{each.name} ({len(each.turns)} turns)" for each in restored)
    return f"Restored: {', '.join(names)}."


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise ParameterError(
        f"{text!r} is not the number of a turn or version; they count from 1, as "
        "`%svc history NAME` shows.",
        param="line",
    )

"""What the subcommands of `%svc` do (`words` says which there are; `lists` lists).

Rules: each is a thin reading of the session or of the service's tables; what
they print holds no key.
"""

from collections.abc import Sequence

from svc_notebook.errors import MissingKeyError, ParameterError
from svc_notebook.exchange import Door
from svc_notebook.service.catalogue import MODELS
from svc_notebook.session import Session
from svc_notebook.settings import refuse_near_endpoint

_DOORS: tuple[Door, ...] = ("magic", "panel", "python")
EMULATOR_NOTE = (
    "Replies now come from the emulator on this machine: they are\n"
    "made up, cost nothing, and are marked “emulator” where they show."
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
    refuse_near_endpoint(words[0])
    session.use_model(words[0], source="%svc use")
    listed = any(model.id == words[0] for model in MODELS)
    note = "" if listed else " (not in the service document; it is sent as it is)"
    return f"The model is now {words[0]}{note}."


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
        if words and session.conversations.named(words[0]).turns:
            return f"{words[0]} has its turns; nothing was restored."
        of = f" of {words[0]}" if words else " that are not here"
        return f"The ledger {session.settings.ledger} holds no turns{of}."
    counts = ((each.name, len(each.turns)) for each in restored)
    names = (f"{name} ({n} turn{'s'[: n != 1]})" for name, n in counts)
    return f"Restored: {', '.join(names)}."


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise ParameterError(
        f"{text!r} is not the number of a turn or version; they count from 1, as "
        "`%svc history NAME` shows.",
        param="line",
    )

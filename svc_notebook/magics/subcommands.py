"""The words of `%svc`: a command with its arguments, or a question.

Rules: pure; a line that begins with a command's name and goes on otherwise is
never sent by guess: both spellings are shown; `%svc ask …` always asks.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from getpass import getpass
from typing import TYPE_CHECKING

from svc_notebook.client.rate_limit import Room
from svc_notebook.credentials import KEYRING_NAME, Key, remember
from svc_notebook.errors import ConfigError, MissingKeyError, ParameterError, SvcError
from svc_notebook.exchange import OriginKind
from svc_notebook.service.catalogue import MODELS
from svc_notebook.session import Session
from svc_notebook.settings import ENV_NAMES, WAYS_ON, read_env, refuse_near_endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand of `%svc`.

    Attributes:
        name: Its word.
        arguments: What may follow, for the help.
        n_arguments: How many words may follow, at least and at most.
        doc: What it does.
    """

    name: str
    arguments: str = ""
    n_arguments: tuple[int, int] = (0, 0)
    doc: str

    @property
    def usage(self) -> str:
        """Its spelling."""
        return f"%svc {self.name} {self.arguments}".strip()


ASK = "ask"
COMMANDS = (
    Command(
        name="use",
        arguments="[emulator|service|MODEL]",
        n_arguments=(0, 1),
        doc="say what is in use, or choose where requests go, or the model",
    ),
    Command(name="login", doc="type the API key; it is neither shown nor recorded"),
    Command(
        name="tools",
        arguments="[[add|remove|ask] NAME]",
        n_arguments=(0, 2),
        doc="list, show one as sent, offer in every cell, ask again",
    ),
    Command(
        name="models",
        doc="the documented models, their limits, and the room left",
    ),
    Command(name="usage", doc="requests and tokens of this kernel"),
    Command(name="replies", doc="what this kernel asked, and the replies"),
    Command(name="last", doc="the newest reply, a partial one too"),
    Command(name="settings", doc="every setting, and where it came from"),
    Command(name="conversations", doc="the conversations of this kernel"),
    Command(
        name="history",
        arguments="NAME",
        n_arguments=(1, 1),
        doc="the turns of a conversation",
    ),
    Command(
        name="reset",
        arguments="NAME",
        n_arguments=(1, 1),
        doc="forget the turns of a conversation; the ledger keeps them",
    ),
    Command(
        name="pin",
        arguments="NAME TURN",
        n_arguments=(2, 2),
        doc="always send a turn, or no longer",
    ),
    Command(
        name="hide",
        arguments="NAME TURN",
        n_arguments=(2, 2),
        doc="never send a turn, or send it again",
    ),
    Command(
        name="version",
        arguments="NAME TURN VERSION",
        n_arguments=(3, 3),
        doc="let this answer to a turn feed later turns",
    ),
    Command(
        name="panel",
        arguments="NAME",
        n_arguments=(0, 1),
        doc="open a chat panel on a conversation",
    ),
    Command(
        name="restore",
        arguments="[NAME]",
        n_arguments=(0, 1),
        doc="rebuild conversations from the ledger, after a restart",
    ),
    Command(name="help", doc="this page"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


@dataclass(frozen=True, slots=True)
class Said:
    """What a line says: a command with its arguments, or a question.

    Attributes:
        command: Its name; `ask` for a question.
        arguments: The words behind it.
        text: The question, as typed.
    """

    command: str
    arguments: tuple[str, ...] = ()
    text: str = ""


def parse_words(text: str) -> Said:
    """Read what stands behind the options of a `%svc` line.

    Raises:
        ParameterError: It may be a command or a question; both spellings are shown.
    """
    words = text.split()
    if not words:
        return Said("help")
    first, *rest = words
    if first == ASK:
        return _question(text.removeprefix(ASK).strip())
    command = _BY_NAME.get(first)
    if command and command.n_arguments[0] <= len(rest) <= command.n_arguments[1]:
        return Said(first, tuple(rest))
    if len(words) == 1 and first.endswith("?") and first.rstrip("?") in _BY_NAME:
        return Said("help")
    near = (
        get_close_matches(first, _BY_NAME, n=1, cutoff=0.8) if len(words) == 1 else []
    )
    meant = command or (_BY_NAME[near[0]] if near else None)
    if meant is None:
        return _question(text)
    raise ParameterError(
        f"%svc {text}: a command or a question? Nothing was sent. The command is "
        f"`{meant.usage}` ({meant.doc}); to ask, write `%svc ask {text}`.",
        param="line",
    )


def _question(text: str) -> Said:
    if text:
        return Said(ASK, text=text)
    raise ParameterError(
        "%svc ask needs a question, as in `%svc ask what is a monad?`.", param="line"
    )


_ORIGINS: tuple[OriginKind, ...] = ("magic", "panel", "python")
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
        scope="all", conversation=words[0] if words else None, origin=_ORIGINS
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
    "origin",
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
    from svc_notebook.ledger.groups import usage_df as frame  # noqa: PLC0415 - pandas

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
    from svc_notebook.ledger.frames import replies_df as frame  # noqa: PLC0415 - pandas

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


Ask = Callable[[str], str]
_PROMPT = "API key (is not shown): "


def login(ask: Ask | None = None) -> str:
    """Ask for the key and use it in this kernel.

    Args:
        ask: Shows a prompt and returns what was typed; the kernel's own if None.

    Returns:
        Where the key is kept, in words.

    Raises:
        MissingKeyError: What was typed cannot be sent.
        ConfigError: Nobody can type here, or it would show.
    """
    found = _typed(ask or getpass)
    if isinstance(found, ConfigError):
        raise found
    name = remember(found)
    if name is None:
        return "The key is kept in this kernel's memory, until the kernel ends."
    return (
        f"The key is kept in the keyring {name}, for later kernels too; "
        f"`keyring del {KEYRING_NAME} SVC_API_KEY` in a terminal takes it out."
    )


def _typed(ask: Ask) -> Key | ConfigError:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # getpass warns before it echoes
            value = ask(_PROMPT)
    except Exception:  # noqa: BLE001 - each front end refuses in its own way
        return ConfigError(
            f"No key can be typed here without being shown or waited for. {WAYS_ON}"
        )
    try:
        return Key(value, source="a prompt")
    except MissingKeyError as problem:
        return problem.with_traceback(None)

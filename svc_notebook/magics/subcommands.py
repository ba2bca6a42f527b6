"""The subcommands of `%svc`: their table, their parser and what they do.

A line that begins with a command's name but goes on otherwise is never sent by guess:
both spellings are shown; `%svc ask ...` always asks.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from getpass import getpass
from typing import TYPE_CHECKING

from svc_notebook.client.rate_windows import Room
from svc_notebook.credentials import KEYRING_NAME, Key, remember
from svc_notebook.errors import ConfigError, MissingKeyError, ParameterError, SvcError
from svc_notebook.exchange import OriginKind
from svc_notebook.panels.panel import panel
from svc_notebook.service.catalogue import MODELS
from svc_notebook.session import Session
from svc_notebook.settings import ENV_NAMES, WAYS_ON, read_env

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand of `%svc`.

    Attributes:
        name: Its word.
        doc: What it does.
        arguments: What may follow, for the help.
        n_arguments: How many words may follow, at least and at most.
        run: Runs it; None where the magic itself does.
    """

    name: str
    doc: str
    arguments: str = ""
    n_arguments: tuple[int, int] = (0, 0)
    run: Callable[[Session, Sequence[str]], object] | None = None

    @property
    def usage(self) -> str:
        """Its spelling."""
        return f"%svc {self.name} {self.arguments}".strip()


ASK = "ask"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A line that was read: a command with its arguments, or a question.

    Attributes:
        name: Of the command; `ask` for a question.
        arguments: The words that follow it.
        text: The question, as typed.
    """

    name: str
    arguments: tuple[str, ...] = ()
    text: str = ""


def parse_command(text: str) -> CommandLine:
    """Read what follows the options of a `%svc` line."""
    words = text.split()
    if not words:
        return CommandLine("help")
    first, *rest = words
    if first == ASK:
        return _question(text.removeprefix(ASK).strip())
    command = BY_NAME.get(first)
    if command and command.n_arguments[0] <= len(rest) <= command.n_arguments[1]:
        return CommandLine(first, tuple(rest))
    if len(words) == 1 and first.endswith("?") and first.rstrip("?") in BY_NAME:
        return CommandLine("help")
    near = get_close_matches(first, BY_NAME, n=1, cutoff=0.8) if len(words) == 1 else []
    meant = command or (BY_NAME[near[0]] if near else None)
    if meant is None:
        return _question(text)
    raise ParameterError(
        f"%svc {text}: a command or a question? Nothing was sent. The command is "
        f"`{meant.usage}` ({meant.doc}); to ask, write `%svc ask {text}`.",
        param="line",
    )


def _question(text: str) -> CommandLine:
    if text:
        return CommandLine(ASK, text=text)
    raise ParameterError(
        "%svc ask needs a question, as in `%svc ask what is a monad?`.", param="line"
    )


_ORIGINS: tuple[OriginKind, ...] = ("magic", "panel", "python")
EMULATOR_NOTE = (
    "Replies now come from the emulator on this machine: they are\n"
    "made up, cost nothing, and are marked “emulator” where they show."
)


def use(session: Session, words: Sequence[str]) -> str:
    """Choose the endpoint, else the model; say what is in use."""
    if not words:
        return describe(session)
    if words[0] == "emulator":
        session.use_emulator()
        return EMULATOR_NOTE
    if words[0] == "service":
        session.use_service()
        return f"Replies now come from {session.settings.base_url}."
    _refuse_near_endpoint(words[0])
    session.use_model(words[0], source="%svc use")
    listed = any(model.id == words[0] for model in MODELS)
    note = "" if listed else " (not in the service document; it is sent as it is)"
    return f"The model is now {words[0]}{note}."


def _refuse_near_endpoint(word: str) -> None:
    """Refuse a misspelt `emulator` or `service`: requests would go elsewhere."""
    if word.startswith("svc"):
        return
    near = get_close_matches(word.lower(), ("emulator", "service"), n=1, cutoff=0.75)
    if near:
        raise ParameterError(
            f"{word!r} is not used as a model id; did you mean `{near[0]}`? "
            "Nothing has changed.",
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


def reset(session: Session, words: Sequence[str]) -> str:
    """Forget the turns of a conversation."""
    session.conversations.known(words[0]).reset()
    return f"The conversation {words[0]} is empty now; the ledger keeps its turns."


def pin(session: Session, words: Sequence[str]) -> str:
    """Pin a turn, or undo that."""
    number = _count(words[1])
    is_pinned = session.conversations.known(words[0]).toggle_pin(number)
    return f"Turn {number} is {'pinned' if is_pinned else 'no longer pinned'}."


def hide(session: Session, words: Sequence[str]) -> str:
    """Hide a turn, or undo that."""
    number = _count(words[1])
    is_hidden = session.conversations.known(words[0]).toggle_hidden(number)
    return f"Turn {number} is {'hidden' if is_hidden else 'sent again'}."


def choose(session: Session, words: Sequence[str]) -> str:
    """Choose the version of a turn that feeds later turns."""
    name, turn, version = words
    session.conversations.known(name).choose(_count(turn), _count(version))
    return f"Version {version} of turn {turn} now feeds later turns of {name}."


def restore(session: Session, words: Sequence[str]) -> str:
    """Rebuild those conversations from the ledger that have no turns here."""
    exchanges = session.ledger.read(
        scope="all", conversation=words[0] if words else None, origin=_ORIGINS
    )
    restored = session.conversations.restore(exchanges)
    if not restored:
        if words and session.conversations.named(words[0]).turns:
            return f"{words[0]} has turns already; nothing was restored."
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
        ConfigError: Nothing can be typed here, or it would be shown.
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
        return ConfigError(f"A key cannot be typed here without being shown. {WAYS_ON}")
    try:
        return Key(value, source="a prompt")
    except MissingKeyError as problem:
        return problem.with_traceback(None)


def _history(session: Session, words: Sequence[str]) -> object:
    return session.conversations.known(words[0])


def _last(session: Session, _: Sequence[str]) -> object:
    return session.last or "This kernel has no reply yet."


_USE = "say what is in use, or choose where requests go, or the model"
_LOGIN = "type the API key; it is neither shown nor recorded"
_TOOLS = "list, show one as sent, offer in every cell, ask again"
_USAGE = "requests and tokens of this kernel"
_KNOWN = "the conversations of this kernel"
_REPLIES = "what this kernel asked, and the replies"
_RESET = "forget the turns of a conversation; the ledger keeps them"
_HIDE = "never send a turn, or send it again"
_VERSION = "let this answer to a turn feed later turns"
_PANEL = "open a chat panel on a conversation"
_RESTORE = "rebuild conversations from the ledger, after a restart"
COMMANDS = (
    Command("use", _USE, "[emulator|service|MODEL]", (0, 1), use),
    Command("login", _LOGIN, run=lambda *_: login()),
    Command("tools", _TOOLS, "[[add|remove|ask] NAME]", (0, 2)),
    Command("models", "the documented models, their limits, and the room left"),
    Command(
        "usage",
        "requests and tokens of this kernel",
        run=lambda session, _: usage_df(session),
    ),
    Command("replies", _REPLIES, run=lambda session, _: replies_df(session)),
    Command("last", "the newest reply, a partial one too", run=_last),
    Command("settings", "every setting, and where it came from"),
    Command(
        "conversations",
        "the conversations of this kernel",
        run=lambda session, _: conversations_df(session),
    ),
    Command("history", "the turns of a conversation", "NAME", (1, 1), _history),
    Command("reset", _RESET, "NAME", (1, 1), reset),
    Command("pin", "always send a turn, or no longer", "NAME TURN", (2, 2), pin),
    Command("hide", _HIDE, "NAME TURN", (2, 2), hide),
    Command("version", _VERSION, "NAME TURN VERSION", (3, 3), choose),
    Command("panel", _PANEL, "NAME", (0, 1), lambda _, words: panel(*words)),
    Command("restore", _RESTORE, "[NAME]", (0, 1), restore),
    Command("help", "this page"),
)
BY_NAME = {command.name: command for command in COMMANDS}

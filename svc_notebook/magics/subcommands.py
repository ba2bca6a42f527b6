"""The subcommands of `%svc`: their table, their parser and what they do.

A line that begins with a command's name but goes on otherwise is never sent by guess.
"""

import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from svc_notebook.client.model_list import WITHIN_S
from svc_notebook.client.rate_windows import Room
from svc_notebook.conversations.saved_turns import (
    SavedTurns,
    n_turns,
    pick_saved,
    read_saved,
)
from svc_notebook.endpoints import facts_of
from svc_notebook.errors import MissingKeyError, ParameterError, SvcError
from svc_notebook.ledger.columns import Column, Dtype
from svc_notebook.service.catalogue import MODELS, Limit
from svc_notebook.service.checks import did_you_mean, near_names
from svc_notebook.service.params import PARAM_NAMES
from svc_notebook.session import Session
from svc_notebook.settings import ENV_NAMES, IN_FILE, read_env

from .endpoint import login, use

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand of `%svc`."""

    name: str
    doc: str
    arguments: str = ""  # what may follow, as the help shows it
    n_arguments: tuple[int, int] = (0, 0)  # at least and at most
    # Called with the session and the words that follow; None where the magic acts.
    run: Callable[..., object] | None = None

    @property
    def usage(self) -> str:
        """Its spelling."""
        return f"%svc {self.name} {self.arguments}".strip()


ASK, FIX, EXPLAIN, CONTINUE = "ask", "fix", "explain", "continue"
ASKING = (ASK, FIX, EXPLAIN, CONTINUE)  # options may follow these


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A line that was read: a command with its arguments, or a question."""

    name: str  # `ask` for a question
    arguments: tuple[str, ...] = ()
    text: str = ""  # the question, as typed


_OPTIONS = "Options go first, as in `%svc -t 0.2 QUESTION`"
# Commands of other tools: how many words may follow, and what does it here.
_OTHER_COMMANDS = {
    **dict.fromkeys(
        ("retry", "redo", "again"), (0, "To ask again, run the cell again")
    ),
    **dict.fromkeys(
        ("stop", "quit", "exit"), (0, "To stop a reply, interrupt the kernel")
    ),
    **dict.fromkeys(
        ("clear", "restart"), (1, "To forget turns, write `%svc reset NAME`")
    ),
    "model": (1, "To choose a model, write `%svc use MODEL`"),
    "set": (2, _OPTIONS),
    **dict.fromkeys(
        ("forget", "new", "undo"),
        (
            0,
            "To forget turns, write `%svc reset NAME`; `%svc hide NAME TURN` skips one",
        ),
    ),
    "list": (0, "To list conversations, write `%svc conversations`"),
    "save": (1, "The ledger keeps every reply; `svc.export` writes a file"),
    "load": (1, "To bring turns back, write `%svc restore NAME`"),
    **dict.fromkeys(("cost", "costs", "tokens"), (0, "The command is `%svc usage`")),
    "fixes": (0, "The command is `%svc fix`"),
}
_LEAST_ASKED = 3  # words between a command's name and "?" that make a question
_VALUE = re.compile(r"[=:]?\s*(-?[\d.]+|true|false|on|off|none)", re.IGNORECASE)


def parse_command(text: str) -> CommandLine:
    """Read what follows the options of a `%svc` line."""
    words = text.split()
    if not words:
        return CommandLine("help")
    first, *rest = words
    if first == ASK:
        return _question(text.removeprefix(ASK).strip())
    command = BY_NAME.get(first)
    if command and len(rest) >= _LEAST_ASKED and text.endswith("?"):
        return _question(text)
    if command and _takes(command, rest):
        return CommandLine(first, tuple(rest))
    if len(words) == 1 and first.endswith("?") and first.rstrip("?") in BY_NAME:
        return CommandLine("help", (first,))
    meant = _usage(command) if command else _meant(first, rest)
    if meant is None:
        return _question(text)
    raise _both_spellings(text, meant)


def command_or_question(text: str, name: str) -> ParameterError:
    """Show both spellings of a line that may be a command or a question."""
    return _both_spellings(text, _usage(BY_NAME[name]))


def _both_spellings(text: str, meant: str) -> ParameterError:
    return ParameterError(
        f"%svc {text}: a command or a question? {meant}; to ask, "
        f"write `%svc ask {text}`.",
        param="line",
    )


def _meant(first: str, rest: Sequence[str]) -> str | None:
    """Say what does here what a line seems to mean; None if it seems a question."""
    if rest and rest[-1].endswith("?"):
        return None
    word = first.lower().strip("/?!.:")  # chats spell their commands /retry
    name, _, value = word.partition("=")
    is_value = _VALUE.fullmatch(" ".join([value, *rest]).strip())
    if is_value and name.replace("-", "_") in PARAM_NAMES:
        return _OPTIONS
    most, way = _OTHER_COMMANDS.get(word, (-1, ""))
    if len(rest) <= most:
        return way
    if word in BY_NAME and word != first.lower():
        return _usage(BY_NAME[word])  # such as `fix: my code`
    # `%svc hi` is a question, though `history` begins so
    near = near_names(word, BY_NAME, n=1, cutoff=0.75, least_chars=4)
    command = BY_NAME[near[0]] if near else None
    is_meant = command and (not rest or _takes(command, rest))
    return _usage(command) if command and is_meant else None


def _takes(command: Command, words: Sequence[str]) -> bool:
    least, most = command.n_arguments
    return least <= len(words) <= most


def _usage(command: Command) -> str:
    return f"The command is `{command.usage}` ({command.doc})"


def _question(text: str) -> CommandLine:
    if text:
        return CommandLine(ASK, text=text)
    raise ParameterError(
        "%svc ask needs a question, as in `%svc ask what is a monad?`.", param="line"
    )


def reset(session: Session, name: str) -> str:
    """Forget the turns of a conversation."""
    session.conversations.known(name).reset()
    return f"The conversation {name} is empty now; the ledger keeps its turns."


def pin(session: Session, name: str, turn: str) -> str:
    """Pin a turn, or undo that."""
    is_pinned = session.conversations.known(name).toggle_pin(_count(turn))
    return f"Turn {turn} is {'pinned' if is_pinned else 'no longer pinned'}."


def hide(session: Session, name: str, turn: str) -> str:
    """Hide a turn, or undo that."""
    is_hidden = session.conversations.known(name).toggle_hidden(_count(turn))
    return f"Turn {turn} is {'hidden' if is_hidden else 'sent again'}."


def choose(session: Session, name: str, turn: str, version: str) -> str:
    """Choose the version of a turn that feeds later turns."""
    session.conversations.known(name).choose(_count(turn), _count(version))
    return f"Version {version} of turn {turn} now feeds later turns of {name}."


def restore(
    session: Session, name: str | None = None, number: str | None = None
) -> str:
    """Bring turns back from the ledger: of one conversation, or of all without turns.

    A conversation that has turns is changed only if a number says which ones to add.
    """
    found = read_saved(session.ledger, name)
    if name is not None and name not in found:
        near = did_you_mean(name, read_saved(session.ledger))
        return f"The ledger {session.settings.ledger} holds no turns of {name}.{near}"
    if name is not None and number is not None:
        which = int(number) if number.isdecimal() else number
        picked = pick_saved(found[name], name, which)
        conversation = session.conversations.named(name)
        if picked.is_in(conversation.history):
            return f"{name} has these turns already; nothing was restored."
        n_before = len(conversation.turns)
        conversation.add(picked)
        n_now = len(conversation.turns)
        added = n_turns(n_now - n_before)
        return f"Restored: {added} of {name}, which has {n_turns(n_now)} now."
    lines = [_restore(session, each, found[each]) for each in found]
    if not lines:
        return f"The ledger {session.settings.ledger} holds no turns of conversations."
    return "\n".join(lines)


def _restore(session: Session, name: str, saved: tuple[SavedTurns, ...]) -> str:
    """Restore the newest series of a conversation without turns; say what is left."""
    conversation = session.conversations.named(name)
    has_turns = bool(conversation.turns)
    if not has_turns:
        conversation.add(pick_saved(saved, name, None))
    others = [each for each in saved if not each.is_in(conversation.history)]
    n_here = n_turns(len(conversation.turns))
    said = f"Restored: {name} ({n_here})."
    if has_turns:
        said = f"{name} has turns already ({n_here}); nothing was restored."
    if not others:
        return said
    rest = [f"  {each}" for each in others]
    way = f"`%svc restore {name} NUMBER` adds those of a line."
    return "\n".join((f"{said} The ledger also has:", *rest, f"  {way}"))


def _count(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise ParameterError(
        f"{text!r} is not the number of a turn or version; they count from 1, as "
        "`%svc history NAME` shows.",
        param="line",
    )


_USAGE_COLUMNS = (
    *("n_requests", "n_exchanges", "n_failed", "n_cut"),
    *("prompt_tokens", "completion_tokens"),
    *("estimated_prompt_tokens", "estimated_completion_tokens"),
    *("estimated_low_tokens", "estimated_high_tokens"),
)
_COSTS = ("cost", "estimated_cost", "cost_source")
_REPLY_COLUMNS = (
    *("origin", "conversation", "model", "temperature", "prompt", "text"),
    *("finish_reason", "is_cut", "status", "error_type", "latency_s"),
)


def usage_df(session: Session, word: str = "") -> "pd.DataFrame":
    """Sum up what this kernel asked: one row per model; the emulator has its own rows.

    The emulator's answers are counted with the word `emulated` only.
    """
    from svc_notebook.ledger.groups import say_left_out  # noqa: PLC0415 - pandas
    from svc_notebook.ledger.groups import usage_df as frame  # noqa: PLC0415 - pandas

    from .listing import listing  # noqa: PLC0415 - pandas

    if word not in {"", "emulated"}:
        raise ParameterError(
            f"%svc usage {word}: write `%svc usage`, or `%svc usage emulated` to count "
            "the emulator's answers too.",
            param="line",
        )
    usage = frame(
        session.ledger,
        by=("model", "is_emulated"),
        include_emulated=bool(word),
        prices=session.prices,
    )
    hint = "" if word else "; `%svc usage emulated` counts the emulator's"
    notes = StringIO()
    usage = say_left_out(usage, hint=hint, file=notes)
    if session.prices and usage["is_emulated"].any():
        notes.write("The emulator costs nothing; costs are as if it were paid.\n")
    shown = [*_USAGE_COLUMNS, *(_COSTS if session.prices else ())]
    if not session.prices:
        usage = usage.drop(columns=list(_COSTS))
    rows = [_usage_row(row) for row in usage.fillna(0).to_dict("records")]
    n_requests = int(usage["n_requests"].sum())
    return listing(
        usage.set_index(["model", "is_emulated"])[shown],
        f"This kernel sent {n_requests} request{'s'[: n_requests != 1]}."
        + " Prompt and reply are tokens; ~ is an estimate." * bool(rows),
        _USAGE_HEADS,
        rows,
        note=notes.getvalue().strip(),
    )


_USAGE_HEADS = (*("model", "requests", "failed", "cut", "prompt", "reply", "cost"),)


def _usage_row(row: Mapping[Hashable, Any]) -> list[str]:
    """Write a row of the usage in words, reported and estimated figures in one."""

    def total(name: str, places: str = "") -> str:
        estimated = row.get(f"estimated_{name}", 0)
        about = "~" if estimated else ""
        return f"{about}{row.get(name, 0) + estimated:,{places}}"

    return [
        f"{row['model']}{' (emulator)' if row['is_emulated'] else ''}",
        *(f"{row[name]:,}" for name in ("n_requests", "n_failed", "n_cut")),
        total("prompt_tokens"),
        total("completion_tokens"),
        total("cost", ".4g") if "cost" in row else "",
    ]


def replies_df(session: Session) -> "pd.DataFrame":
    """List this kernel's replies: the columns of `svc.replies_df` that fit a screen."""
    from svc_notebook.ledger.frames import replies_df as frame  # noqa: PLC0415 - pandas

    return frame(session.ledger)[list(_REPLY_COLUMNS)]


def indexed_frame(
    columns: Sequence[Column], rows: Iterable[Sequence[object]]
) -> "pd.DataFrame":
    """Make a small frame of rows, indexed by its first column."""
    import pandas as pd  # noqa: PLC0415 - loads when a frame is asked for

    dtypes: dict[str, Any] = {column.name: column.dtype for column in columns}
    frame = pd.DataFrame(list(rows), columns=list(dtypes), dtype=object)
    return frame.astype(dtypes).set_index(columns[0].name)


def listed(dtype: Dtype, **docs: str) -> tuple[Column, ...]:
    """Return columns of one dtype, whose values are given in their order."""
    return tuple(Column(name, dtype, name, doc) for name, doc in docs.items())


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
CONVERSATION_LIST = (
    *listed("string", conversation="its name"),
    *listed(
        "Int64",
        n_turns="its turns",
        est_tokens="estimated tokens of its turns, without hidden ones",
    ),
    *listed("string", system="its system message; missing without one"),
)
SETTING_LIST = listed(
    "string",
    setting="its name",
    value="in force; missing if there is none; of a key only whether it was found",
    source="where it was set",
)


def models_df(session: Session, *, has_room: bool = True) -> "pd.DataFrame":
    """List the endpoint's models (doc: Model ids, Rate limits per model, Versioning).

    `has_room` adds how many requests each window lets through now.
    """
    from .listing import listing  # noqa: PLC0415 - pandas

    rows: list[tuple[Any, ...]] = []
    endpoint = session.settings.endpoint
    for each in session.models(wait_s=WITHIN_S):
        model = endpoint.model(each.id)
        limit = endpoint.limit_of(each.id)
        room = _room(session, model.id) if has_room and limit else None
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
            *(str(each or "") for each in row[:3]),
            " ".join(filter(None, (_limit(row[3], row[5]), _at_once(row[7])))),
            _limit(row[4], row[6]),
            str(row[8] or ""),
            "in use" if row[9] else "",
        )
        for row in rows
    ]
    whose = "The service's document" if endpoint.models == MODELS else endpoint.name
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


def _room(session: Session, model: str) -> Room | None:
    try:
        return session.client.room(model)
    except SvcError:
        return None


def conversations_df(session: Session) -> "pd.DataFrame":
    """List the conversations of this kernel, oldest first."""
    rows = (
        (each.name, len(each.turns), each.est_tokens, each.system)
        for each in session.conversations
    )
    return indexed_frame(CONVERSATION_LIST, rows)


def settings_df(
    session: Session, magic: Iterable[tuple[str, object, str]]
) -> "pd.DataFrame":
    """List every setting in force, those of the magic too, and where it came from."""
    rows = [
        (name, None if value is None else str(value), source)
        for name, value, source in (*_settings(session), _key(session), *magic)
    ]
    return indexed_frame(SETTING_LIST, rows)


def _settings(session: Session) -> list[tuple[str, object, str]]:
    settings, unusable = session.settings, read_env(os.environ)[1]
    rows = []
    for name, env in ENV_NAMES.items():
        source = settings.sources.get(name, "default")
        for each in (env, f"{env}{IN_FILE}"):
            if each in unusable:
                source = f"{source}; {each} cannot be used"
        if name == "timeouts":
            waits = sorted(asdict(settings.timeouts).items())
            rows += [(each, seconds, source) for each, seconds in waits]
        else:
            rows.append((name, getattr(settings, name), source))
    return rows


def _key(session: Session) -> tuple[str, object, str]:
    try:
        return "key", "found, never shown", session.key().source
    except MissingKeyError:
        return "key", None, "default"


def _history(session: Session, name: str) -> object:
    return session.conversations.known(name)


def _open_panel(_: Session, *names: str) -> object:
    from svc_notebook.panels.open_panel import panel  # noqa: PLC0415 - ipywidgets only then

    return panel(*names)


def _last(session: Session) -> object:
    return session.last or "This kernel has no reply yet."


_USE = "choose the model, or where requests go; say what is in use"
_CONTINUE = "ask for the rest of a reply that was cut or interrupted"
_LOGIN = "type the API key; it is neither shown nor recorded"
_TOOLS = "list tools, show one as sent, offer in every cell, ask again"
_USAGE = "requests and tokens of this kernel"
_KNOWN = "the conversations of this kernel"
_REPLIES = "what this kernel asked, and the replies"
_RESET = "forget the turns of a conversation; the ledger keeps them"
_HIDE = "never send a turn, or send it again"
_VERSION = "let this answer to a turn feed later turns"
_PANEL = "open a chat panel on a conversation"
_INSERT = "put a code block of the last reply into the next cell; nothing is run"
_FIX = "correct your last error; the first time it shows what it would send"
_RESTORE = "rebuild conversations from the ledger, after a restart"
_HELP = "examples, every option and command, or one of them"
COMMANDS = (
    Command("use", _USE, "[MODEL|NAME|ADDRESS [no-key]]", (0, 2), use),
    Command("login", _LOGIN, "[ADDRESS]", (0, 1), login),
    Command("tools", _TOOLS, "[[add|remove|ask] NAME]", (0, 2)),
    Command("models", "the known models, their limits, and the room left"),
    Command("usage", _USAGE, "[emulated]", (0, 1), usage_df),
    Command("replies", _REPLIES, run=replies_df),
    Command(CONTINUE, _CONTINUE),
    Command("last", "the newest reply, a partial one too", run=_last),
    Command("insert", _INSERT, "[NUMBER]", (0, 1)),
    Command(FIX, _FIX, "[--send]"),
    Command(EXPLAIN, "explain your last error, with the rules of fix", "[--send]"),
    Command("settings", "every setting, and where it came from"),
    Command("conversations", _KNOWN, run=conversations_df),
    Command("history", "the turns of a conversation", "NAME", (1, 1), _history),
    Command("reset", _RESET, "NAME", (1, 1), reset),
    Command("pin", "always send a turn, or no longer", "NAME TURN", (2, 2), pin),
    Command("hide", _HIDE, "NAME TURN", (2, 2), hide),
    Command("version", _VERSION, "NAME TURN VERSION", (3, 3), choose),
    Command("panel", _PANEL, "NAME", (0, 1), _open_panel),
    Command("restore", _RESTORE, "[NAME [NUMBER]]", (0, 2), restore),
    Command("help", _HELP, "[all|OPTION|COMMAND]", (0, 1)),
)
BY_NAME = {command.name: command for command in COMMANDS}

"""The subcommands of `%svc`: their table with its help, and their parser.

A line is refused if it begins with a command's name but does not fit the command:
sending it as a question would be a guess. A single word is refused too, as it is more
often a command of another tool than a question.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from svc_notebook.credentials import refuse_key_form
from svc_notebook.display.reply_display import Mode
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import PARAM_NAMES, near_names
from svc_notebook.session import Session

from .cell_context import CellContext
from .continue_command import continue_reply
from .conversation_commands import (
    choose,
    conversations_df,
    hide,
    pin,
    reset,
    restore,
    unhide,
    unpin,
)
from .fix_command import ask_about_error
from .help import HelpPage, help_on
from .models_command import models_df
from .next_cell import insert
from .options import ASK, CONTINUE, EXPLAIN, FIX
from .settings_command import settings_df
from .tools_command import fits as fits_tools
from .tools_command import tools_command
from .usage_command import USAGE_WORDS, fits_usage, replies_df, usage_df
from .use_and_login import login, use


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand of `%svc`.

    `run` is called with the cell's context and the words after the command; for
    `COMMANDS_WITH_OPTIONS` the options are between them. If it returns a text, the text
    is printed.
    """

    name: str
    doc: str
    run: Callable[..., object]
    arguments: str = ""  # what may follow, as the help shows it
    n_arguments: tuple[int, int] = (0, 0)  # fewest and most
    # whether words can be the arguments; if not, the line may be a question
    fits: Callable[[Sequence[str]], bool] = lambda _: True

    @property
    def usage(self) -> str:
        """The command and its arguments, as the help shows them."""
        return f"%svc {self.name} {self.arguments}".strip()

    @property
    def takes_name(self) -> bool:
        """Whether its first argument is the name of a conversation."""
        return self.arguments.strip("[]").split(maxsplit=1)[:1] == ["NAME"]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A line that was read: a command with its arguments, or a question."""

    name: str  # `ask` for a question
    arguments: tuple[str, ...] = ()
    text: str = ""  # the question, as typed


_OPTIONS = "Options go first, as in `%svc -t 0.2 QUESTION`"
_FORGET = (
    "To forget turns, write `%svc reset NAME`, or `%svc hide NAME TURN` for one; in a "
    "terminal, `svc-notebook ledger forget` deletes what the ledger keeps of them"
)
# Commands of other tools: how many words may follow, and what to write here instead.
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
        ("forget", "delete", "remove", "erase"),
        (1, _FORGET),
    ),
    **dict.fromkeys(
        ("new", "undo"),
        (
            0,
            "To forget turns, write `%svc reset NAME`; `%svc hide NAME TURN` skips one",
        ),
    ),
    **dict.fromkeys(
        ("list", "chats"), (0, "To list conversations, write `%svc conversations`")
    ),
    **dict.fromkeys(
        ("config", "configuration", "configure", "setting", "options", "env"),
        (0, "The command is `%svc settings`; `%config SvcMagics` sets defaults"),
    ),
    **dict.fromkeys(
        ("status", "info", "whoami", "endpoint", "endpoints", "address", "url"),
        (1, "To see what is in use, write `%svc use`; `%svc settings` lists the rest"),
    ),
    **dict.fromkeys(
        ("key", "keys", "apikey", "api-key", "api_key", "auth", "signin", "logout"),
        (1, "To type a key, write `%svc login`; nobody sees it"),
    ),
    "api": (1, "To type a key, write `%svc login`; nobody sees it"),
    **dict.fromkeys(("limits", "limit"), (0, "The command is `%svc models`")),
    **dict.fromkeys(("tool", "functions"), (0, "The command is `%svc tools`")),
    **dict.fromkeys(("chat", "open", "ui"), (1, "The command is `%svc panel NAME`")),
    **dict.fromkeys(("reply", "answer"), (0, "The command is `%svc last`")),
    **dict.fromkeys(("error", "debug"), (0, "The command is `%svc explain`")),
    **dict.fromkeys(("more", "resume"), (0, "The command is `%svc continue`")),
    **dict.fromkeys(("commands", "man", "about"), (0, "The command is `%svc help`")),
    "save": (1, "The ledger keeps every reply; `svc.export` writes a file"),
    "load": (1, "To bring turns back, write `%svc restore NAME`"),
    **dict.fromkeys(
        ("cost", "costs", "tokens", "price", "prices", "spending", "budget", "quota"),
        (0, "The command is `%svc usage`"),
    ),
    "fixes": (0, "The command is `%svc fix`"),
}
# What may be put before a command's name, as in `%svc list models`.
_VERBS = {"list", "ls", "show", "see", "get", "print", "display", "set", "view"}
_BARE = re.compile(
    r"[A-Za-z][\w./:@+-]*[!.]*", re.ASCII
)  # ASCII: a Thai sentence has no blanks
# With so many words between a command's name and "?", a line is a question.
_MIN_QUESTION_WORDS = 3
_MOST_ARGUMENTS = 3
_VALUE = re.compile(r"[=:]?\s*(-?[\d.]+|true|false|on|off|none)", re.IGNORECASE)


def parse_command(
    text: str,
    *,
    has_more: bool = False,
    is_name: Callable[[str], bool] = lambda _: False,
    conversation: str | None = None,
) -> CommandLine:
    """Read what follows the options of a `%svc` line, or the line without options.

    `is_name` says whether a text is the name of a conversation; one of several words
    needs no quotes. `conversation` is the name that the options give, which a command
    need not repeat.
    """
    words = _with_whole_name(_split_words(text), is_name)
    words = _with_name_of_options(words, conversation)
    if not words:
        return _without_words(has_more=has_more)
    first, *rest = words
    if first == ASK:
        return _question(text.removeprefix(ASK).strip())
    command = BY_NAME.get(first)
    if command and len(rest) >= _MIN_QUESTION_WORDS and text.endswith("?"):
        return _question(text)
    if command and _fits_number(command, rest) and command.fits(rest):
        return CommandLine(first, tuple(rest))
    if len(words) == 1 and first.endswith("?") and first.rstrip("?") in BY_NAME:
        return CommandLine("help", (first,))
    hint = _usage_hint(command) if command else _hint_at_command(first, rest)
    hint = hint or _hint_at_conversation(rest, is_name)
    is_bare = not (has_more or rest) and _BARE.fullmatch(first)
    if hint is None and not is_bare:
        return _question(text)
    refuse_key_form(text, param="line")
    if hint is None:
        raise ParameterError(
            f"%svc {text}: a single word is not sent as a question. `%svc help` lists "
            f"the commands; to ask, write `%svc ask {text}`.",
            param="line",
        )
    raise _ambiguous(text, hint)


def _without_words(*, has_more: bool) -> CommandLine:
    """Read a line without words: it asks for help, if nothing is around it."""
    if has_more:
        raise ParameterError(
            "There is no prompt on this line. For a prompt in the lines below, begin "
            "with two percent signs: `%%svc`.",
            param="line",
        )
    return CommandLine("help")


def _split_words(text: str) -> list[str]:
    """Split a line into words; after the command, quotes keep a name together."""
    words = text.split()
    if len(words) > 1 and words[1][0] in "'\"":
        with suppress(ValueError):  # an open quote: it is a question
            return shlex.split(text)
    return words


def _with_whole_name(words: list[str], is_name: Callable[[str], bool]) -> list[str]:
    """Join words after a command if together they are the name of a conversation."""
    command = BY_NAME.get(words[0]) if words else None
    if command is None or not command.takes_name:
        return words
    first, *rest = words
    for n_words in range(len(rest), 1, -1):
        joined = [" ".join(rest[:n_words]), *rest[n_words:]]
        if _fits_number(command, joined) and is_name(joined[0]):
            return [first, *joined]
    return words


def _with_name_of_options(words: list[str], name: str | None) -> list[str]:
    """Put the name that the options give behind a command that needs one."""
    command = BY_NAME.get(words[0]) if words else None
    if name and command and command.takes_name:
        named = [name, *words[1:]]
        if _fits_number(command, named):
            return [command.name, *named]
    return words


def _ambiguous(text: str, hint: str) -> ParameterError:
    return ParameterError(
        f"%svc {text}: a command or a question? {hint}; to ask, "
        f"write `%svc ask {text}`.",
        param="line",
    )


def _hint_at_conversation(
    rest: Sequence[str], is_name: Callable[[str], bool]
) -> str | None:
    """Return a hint for a line such as `undo NAME`; None if it names none."""
    if not 1 <= len(rest) <= _MOST_ARGUMENTS or not is_name(rest[0]):
        return None
    return (
        "`%svc help` lists the commands for conversations; Python has more, such as "
        f"`svc.conversation({rest[0]!r}).undo()` and `rename`"
    )


def _hint_at_command(first: str, rest: Sequence[str]) -> str | None:
    """Return a hint at the command that a line seems to mean; None for a question."""
    if rest and rest[-1].endswith("?"):
        return None
    word = first.lower().strip("/?!.:")  # chat programs write commands as /retry
    if word in _VERBS and len(rest) == 1:
        return _hint_after_verb(rest[0].lower())
    most, hint = _OTHER_COMMANDS.get(word, (-1, ""))
    if len(rest) <= most:
        return hint
    if _is_param(word, rest):
        return _OPTIONS
    if word in BY_NAME and word != first.lower():
        return _usage_hint(BY_NAME[word])  # such as `fix: my code`
    return _hint_at_similar(word, rest)


def _hint_at_similar(word: str, rest: Sequence[str]) -> str | None:
    """Return a hint at a command whose name, or name in other tools, is misspelt."""
    # `hi there` is a question, though `history` begins with `hi`
    near = near_names(word, BY_NAME, n=1, cutoff=0.75, least_chars=4)
    command = BY_NAME[near[0]] if near else None
    if command and (not rest or _fits_number(command, rest)):
        return _usage_hint(command)
    near_others = near_names(word, _OTHER_COMMANDS, n=1, cutoff=0.8, least_chars=None)
    return _OTHER_COMMANDS[near_others[0]][1] if near_others and not rest else None


def _is_param(word: str, rest: Sequence[str]) -> bool:
    """Whether a line is a parameter's name, alone or with a value."""
    name, _, value = word.partition("=")
    text = " ".join([value, *rest]).strip()
    return name.replace("-", "_") in PARAM_NAMES and (
        not text or _VALUE.fullmatch(text) is not None
    )


def _hint_after_verb(word: str) -> str | None:
    """Return a hint at the command after a verb, as in `%svc list models`."""
    near = near_names(word, BY_NAME, n=1, cutoff=0.75, least_chars=4)
    name = word if word in BY_NAME else next(iter(near), "")
    return (
        _usage_hint(BY_NAME[name]) if name else _OTHER_COMMANDS.get(word, (0, None))[1]
    )


def _fits_number(command: Command, words: Sequence[str]) -> bool:
    least, most = command.n_arguments
    return least <= len(words) <= most


def _usage_hint(command: Command) -> str:
    return f"The command is `{command.usage}` ({command.doc})"


def _question(text: str) -> CommandLine:
    if text:
        return CommandLine(ASK, text=text)
    raise ParameterError(
        "%svc ask needs a question, as in `%svc ask what is a monad?`.", param="line"
    )


def _are_numbers(words: Sequence[str]) -> bool:
    return all(word.isdecimal() for word in words)


def _in_session(run: Callable[..., object]) -> Callable[..., object]:
    """Adapt a function of the session and words to the context and words."""
    return lambda context, *words: run(context.session, *words)


def show_help(context: CellContext, topic: str = "") -> None:
    """Show the help on a topic."""
    page = help_page(context, topic)
    context.say(str(page), page.html())


def help_page(context: CellContext, topic: str = "") -> HelpPage:
    """Return the help on a topic, with the defaults in force."""
    traits = context.traits
    tools, reuse = traits.tools or None, traits.reuse or None
    other = {"tools": tools, "confirm_tools": traits.confirm_tools, "reuse": reuse}
    defaults = {"model": traits.model, **traits.defaults(), **other}
    return help_on(topic, defaults, USAGES)


def _models(context: CellContext) -> object:
    # settled outputs must be equal in each run: leave out the requests left
    return models_df(context.session, has_room=context.mode is not Mode.SETTLED)


def _settings(context: CellContext) -> object:
    return settings_df(context.session, context.traits.own_settings())


def _history(session: Session, name: str) -> object:
    return session.conversations.known(name)


def _open_panel(_: Session, *names: str) -> object:
    from svc_notebook import panel  # noqa: PLC0415 - ipywidgets only then

    return panel(*names)


def _last(session: Session) -> object:
    return session.context().last() or "This kernel has no reply yet."


COMMANDS = (
    Command(
        "use",
        "choose the model or the endpoint, or show what is in use",
        _in_session(use),
        "[MODEL|NAME|ADDRESS [no-key]]",
        (0, 2),
    ),
    Command(
        "login",
        "type the API key; it is neither shown nor recorded",
        _in_session(login),
        "[ADDRESS]",
        (0, 1),
    ),
    Command(
        "tools",
        "list tools, show one as sent, offer it in every cell, ask again",
        tools_command,
        "[[add|remove|ask] NAME]",
        (0, 2),
        fits_tools,
    ),
    Command("models", "the known models, their limits, and the requests left", _models),
    Command(
        "usage",
        "requests, tokens and cost: of this kernel, or of all kernels, ever or since "
        "a time",
        _in_session(usage_df),
        USAGE_WORDS,
        (0, 2),
        fits_usage,
    ),
    Command(
        "replies",
        "the requests of this kernel, and their replies",
        _in_session(replies_df),
    ),
    Command(
        CONTINUE,
        "ask for the rest of a reply that was cut or interrupted",
        continue_reply,
        "[TURN]",
        (0, 1),
        _are_numbers,
    ),
    Command("last", "the newest reply, also if it is partial", _in_session(_last)),
    Command(
        "insert",
        "put a code block of the last reply into the next cell; nothing is run",
        insert,
        "[NUMBER]",
        (0, 1),
        _are_numbers,
    ),
    Command(
        FIX,
        "correct your last error; the first time it shows what it would send",
        partial(ask_about_error, task=FIX),
        "[--send]",
    ),
    Command(
        EXPLAIN,
        "explain your last error; the first time it shows what it would send",
        partial(ask_about_error, task=EXPLAIN),
        "[--send]",
    ),
    Command("settings", "every setting, and where it came from", _settings),
    Command(
        "conversations",
        "the conversations of this kernel",
        _in_session(conversations_df),
    ),
    Command(
        "history",
        "the turns of a conversation",
        _in_session(_history),
        "NAME",
        (1, 1),
    ),
    Command(
        "reset",
        "forget the turns of a conversation; the ledger keeps them",
        _in_session(reset),
        "NAME",
        (1, 1),
    ),
    Command(
        "pin",
        "always send a turn, even when older ones are left out",
        _in_session(pin),
        "NAME TURN",
        (2, 2),
    ),
    Command("unpin", "undo pin", _in_session(unpin), "NAME TURN", (2, 2)),
    Command(
        "hide",
        "do not send a turn any more",
        _in_session(hide),
        "NAME TURN",
        (2, 2),
    ),
    Command(
        "unhide",
        "undo hide: send the turn again",
        _in_session(unhide),
        "NAME TURN",
        (2, 2),
    ),
    Command(
        "version",
        "let this answer to a turn feed later turns",
        _in_session(choose),
        "NAME TURN VERSION",
        (3, 3),
    ),
    Command(
        "panel",
        "open a chat panel on a conversation",
        _in_session(_open_panel),
        "NAME",
        (0, 1),
    ),
    Command(
        "restore",
        "bring turns back from the ledger: the newest, or one series",
        _in_session(restore),
        "[NAME [NUMBER]]",
        (0, 2),
    ),
    Command(
        "help",
        "examples, every option and command, or one of them",
        show_help,
        "[all|OPTION|COMMAND]",
        (0, 1),
    ),
)
BY_NAME = {command.name: command for command in COMMANDS}
USAGES = {command.name: (command.usage, command.doc) for command in COMMANDS}

"""The words of `%svc`: a command with its arguments, or a question.

Rules: pure; a line that begins with a command's name and goes on otherwise is
never sent by guess: both spellings are shown; `%svc ask …` always asks.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from svc_notebook.errors import ParameterError


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

"""The help of the magic, written from the one table of options.

Rules: pure; what it says of an option stands in `options.OPTIONS`.
"""

from collections.abc import Mapping
from itertools import groupby
from textwrap import fill

from .options import OPTIONS, Option
from .subcommands import COMMANDS, Command

_OPENING = """\
%%svc [options]
prompt

Ask the service and stream its reply into the cell. {{name}} puts a variable in.
`%svc [options] question` asks in one line; `%svc ask ...` always asks."""
_EXAMPLES = """\
Examples
  %%svc -t 0.2 -o answer
  Explain server-sent events in two sentences.

  %%svc --model svc-v2-70b-instruct --system "Answer in Thai."
  Summarise for a child: {{article}}

  %%svc -n 3 --stop "\\n\\n" --max-tokens 60
  A name for a tea shop"""
_INDENT = 26
_WIDTH = 78  # a terminal's 80, and what a notebook shows beside an open side bar


def help_text(defaults: Mapping[str, object]) -> str:
    """Return the help page.

    Args:
        defaults: What applies where a line does not say, by option name.
    """
    groups = groupby(OPTIONS, key=lambda option: option.group)
    sections = [
        "\n".join([group, *(_line(option, defaults) for option in options)])
        for group, options in groups
    ]
    commands = "\n".join(["Commands", *map(_command, COMMANDS)])
    return "\n\n".join([_OPENING, *sections, commands, _EXAMPLES])


def _command(command: Command) -> str:
    return _entry(command.usage, command.doc)


def _line(option: Option, defaults: Mapping[str, object]) -> str:
    flags = ", ".join(option.flags) + (f" {option.value}" if option.value else "")
    now = defaults.get(option.flags[-1].lstrip("-").replace("-", "_"))
    # A blank that a line break respects, so that the value stays beside its word.
    text = option.doc + (f" [now:\N{NO-BREAK SPACE}{now}]" if now is not None else "")
    return _entry(flags, text)


def _entry(name: str, text: str) -> str:
    """Set a text beside its name, or below it where the name is long."""
    gap = " " * _INDENT
    has_room = len(name) <= _INDENT - 4
    head = f"  {name}".ljust(_INDENT) if has_room else gap
    filled = fill(text, _WIDTH, initial_indent=head, subsequent_indent=gap)
    filled = filled.replace("\N{NO-BREAK SPACE}", " ")
    return filled if has_room else f"  {name}\n{filled}"

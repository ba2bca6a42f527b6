"""`%svc help`: the help page, made from the tables of options and subcommands."""

from collections.abc import Mapping
from itertools import groupby
from textwrap import fill

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import did_you_mean

from .options import BY_FLAG, OPTIONS, Option

Usages = Mapping[str, tuple[str, str]]  # of each command: its usage and its doc

_SHORT = """\
%%svc -t 0.2 -o answer              options; the prompt goes below
Explain {{name}} in two sentences.  {{name}} puts a variable in
%svc what is a monad?               a question in one line
%%svc --with df,Err                 with a table, the last error
%%svc -c plan                       in a conversation
%%svc -m MODEL,MODEL -t 0,1         several replies, side by side
"""
_MORE = "More: `%svc help all`, `%svc help -t`, `%svc help usage`."
_INDENT = 26  # the column where the texts begin
_WIDTH = 66  # fits a notebook with an open side bar, in a window of 1000 pixels


def help_text(defaults: Mapping[str, object], commands: Usages) -> str:
    """Return the whole help page; it shows the `defaults` of options."""
    groups = groupby(OPTIONS, key=lambda option: option.group)
    sections = [
        "\n".join([group, *(_option_entry(option, defaults) for option in options)])
        for group, options in groups
    ]
    listed = "\n".join(["Commands", *(_entry(*usage) for usage in commands.values())])
    return "\n\n".join([_SHORT.rstrip(), *sections, listed])


def help_on(topic: str, defaults: Mapping[str, object], commands: Usages) -> str:
    """Return help on an option or command, on `all`, or a short page of examples."""
    if topic == "all":
        return help_text(defaults, commands)
    if not topic:
        names = " ".join(option.flags[0] for option in OPTIONS)
        command_names = " ".join(commands)
        filled = (
            fill(row, _WIDTH, break_on_hyphens=False)
            for row in (f"Options: {names}", f"Commands: {command_names}")
        )
        return "\n".join([_SHORT, *filled, _MORE])
    word = topic.rstrip("?").lstrip("-%").replace("_", "-")
    entries = [
        _option_entry(option, defaults)
        for option in OPTIONS
        if word in [flag.lstrip("-") for flag in option.flags]
    ]
    if word in commands:
        entries.append(_entry(*commands[word]))
    if entries:
        return "\n".join(entries)
    hint = did_you_mean(topic, [*BY_FLAG, *commands])
    raise ParameterError(
        f"There is no option or command {topic!r}.{hint} `%svc help all` lists them "
        f"all; to ask the service, write `%svc ask help {topic}`.",
        param="line",
    )


def _option_entry(option: Option, defaults: Mapping[str, object]) -> str:
    default = defaults.get(option.flags[-1].lstrip("-").replace("-", "_"))
    # a no-break space keeps the value on the line of its word
    text = option.doc + (
        f" [now:\N{NO-BREAK SPACE}{default}]" if default is not None else ""
    )
    return _entry(option.usage, text)


def _entry(name: str, text: str) -> str:
    """Put a text next to its name, or below it if the name is long."""
    gap = " " * _INDENT
    has_room = len(name) <= _INDENT - 4
    head = f"  {name}".ljust(_INDENT) if has_room else gap
    filled = fill(text, _WIDTH, initial_indent=head, subsequent_indent=gap)
    filled = filled.replace("\N{NO-BREAK SPACE}", " ")
    return filled if has_room else f"  {name}\n{filled}"

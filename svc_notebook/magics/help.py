"""`%svc help`: the help page, made from the tables of options and subcommands."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from textwrap import fill

from svc_notebook.display.escape import to_text
from svc_notebook.display.html_styles import message_html, verbatim_html
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import did_you_mean

from .options import BY_FLAG, OPTIONS, Option

Usages = Mapping[str, tuple[str, str]]  # of each command: its usage and its doc

_EXAMPLES = (
    ("%%svc -t 0.2 -o answer", "options; the prompt goes below"),
    ("Explain {{name}} in two sentences.", "{{name}} puts a variable in"),
    ("%svc what is a monad?", "a question in one line"),
    ("%%svc --with df,Err", "with a table, the last error"),
    ("%%svc -c plan", "in a conversation"),
    ("%%svc -m MODEL,MODEL -t 0,1", "several replies, side by side"),
)
_MORE = "More: `%svc help all`, `%svc help -t`, `%svc help usage`."
_INDENT = 26  # the column where the texts begin
_EXAMPLE_INDENT = 36
_WIDTH = 66  # fits a notebook with an open side bar, in a window of 1000 pixels


# An option, which a browser would break at a hyphen.
_UNBROKEN = re.compile(r"(?<!\S)-[\w-]+")
_LEAST_CH = 20  # a narrower text goes below its name


@dataclass(frozen=True, slots=True)
class HelpRow:
    """What to type and what it does; without the first, a line of its own."""

    name: str
    text: str
    indent: int = _INDENT

    def __str__(self) -> str:
        gap = " " * self.indent
        head = self.name.ljust(self.indent) if self._has_room else gap
        if not self.name:
            head = gap = ""
        filled = fill(
            self.text,
            _WIDTH,
            initial_indent=head,
            subsequent_indent=gap,
            break_on_hyphens=bool(self.name),
        ).replace("\N{NO-BREAK SPACE}", " ")
        return filled if self._has_room else f"{self.name}\n{filled}"

    def html(self) -> str:
        """Return the row for any width: a text without room goes below its name."""
        nowrap = r"<span style=white-space:nowrap>\g<0></span>"
        text = _UNBROKEN.sub(nowrap, message_html(self.text))
        if not self.name:
            return f"<div>{text or '&nbsp;'}</div>"
        # below its name, the text is two columns further in
        pad = len(self.name) - len(self.name.lstrip()) + 2
        column = f"flex:0 0 auto;max-width:100%;min-width:{self.indent - pad}ch"
        if self._has_room:
            gap = min(pad, self.indent - len(self.name))
            beside = f"flex:1 1 {_LEAST_CH}ch;padding-left:{gap}ch"
        else:
            beside = (
                f"flex:1 1 100%;padding-left:clamp({pad}ch,100% - {2 * _LEAST_CH}ch,"
                f"{self.indent}ch)"
            )
        return (
            f'<div style="display:flex;flex-wrap:wrap"><span style="{column}">'
            f'{to_text(self.name)}</span>  <span style="{beside}">{text}</span></div>'
        )

    @property
    def _has_room(self) -> bool:
        return len(self.name) <= self.indent - 2


@dataclass(frozen=True, slots=True)
class HelpPage:
    """Help: as text in columns, and as HTML that fits any width."""

    rows: tuple[HelpRow, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))

    def html(self) -> str:
        """Return the page for a notebook."""
        return verbatim_html("".join(row.html() for row in self.rows))


_BLANK = HelpRow("", "")


def _examples() -> list[HelpRow]:
    return [HelpRow(*example, _EXAMPLE_INDENT) for example in _EXAMPLES]


def _whole_page(defaults: Mapping[str, object], commands: Usages) -> HelpPage:
    rows = _examples()
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        rows += [_BLANK, HelpRow("", group)]
        rows += [_option_row(option, defaults) for option in options]
    rows += [_BLANK, HelpRow("", "Commands")]
    return HelpPage((*rows, *(_row(*usage) for usage in commands.values())))


def help_on(topic: str, defaults: Mapping[str, object], commands: Usages) -> HelpPage:
    """Return help on an option or command, on `all`, or a short page of examples.

    It shows the `defaults` of options.
    """
    if topic == "all":
        return _whole_page(defaults, commands)
    if not topic:
        names = " ".join(option.flags[0] for option in OPTIONS)
        lines = (f"Options: {names}", f"Commands: {' '.join(commands)}", _MORE)
        below = (HelpRow("", line) for line in lines)
        return HelpPage((*_examples(), _BLANK, *below))
    word = topic.rstrip("?").lstrip("-%").replace("_", "-")
    rows = [
        _option_row(option, defaults)
        for option in OPTIONS
        if word in [flag.lstrip("-") for flag in option.flags]
    ]
    if word in commands:
        rows.append(_row(*commands[word]))
    if rows:
        return HelpPage(tuple(rows))
    hint = did_you_mean(topic, [*BY_FLAG, *commands])
    raise ParameterError(
        f"There is no option or command {topic!r}.{hint} `%svc help all` lists them "
        f"all; to ask the service, write `%svc ask help {topic}`.",
        param="line",
    )


def _option_row(option: Option, defaults: Mapping[str, object]) -> HelpRow:
    default = defaults.get(option.flags[-1].lstrip("-").replace("-", "_"))
    # a no-break space keeps the value on the line of its word
    text = option.doc + (
        f" [now:\N{NO-BREAK SPACE}{default}]" if default is not None else ""
    )
    return _row(option.usage, text)


def _row(name: str, text: str) -> HelpRow:
    return HelpRow(f"  {name}", text)

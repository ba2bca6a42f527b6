"""Pieces of HTML that all outputs share: quiet lines, cards, grids and folds.

Styles are inline and use no variables: as soon as a widget is shown, VS Code and Colab
set JupyterLab's variables to those of a light theme, whatever their own theme is.
"""

import re
from collections.abc import Iterable
from html import escape

from .escape import to_text

# Paler than the host's text, but legible in every theme that is legible itself.
_QUIET = "color-mix(in srgb,currentcolor 75%,transparent)"
_BORDER = "rgba(127,127,127,.4)"
# In an untrusted notebook a host drops the mix; then the plain value before it counts.
QUIET_LINE = f"color:#767676;color:{_QUIET};font-size:.85em;line-height:1.6"
_WARNING = (
    "white-space:pre-wrap;overflow-wrap:break-word;"
    "border-left:3px solid #e69138;padding-left:.6em;margin:.2em 0"
)
_GRID = "display:grid;gap:.75em;margin-bottom:.5em;grid-template-columns:"
_GAP_EM, _COLUMN_EM = 0.75, 14
_CARD = (
    "min-width:0;overflow-wrap:break-word;padding:.5em .9em .3em;"
    f"border:1px solid #bdbdbd;border:1px solid {_BORDER};border-radius:4px"
)
BODY = "<div style=overflow-wrap:break-word>"  # a long word stays within the width
PLAIN_CODE = "<code style=background:none>"  # VS Code gives code a background
# where all letters have one width
_CODE_ON_GREY = "<code style='background:rgba(127,127,127,.2);border-radius:3px'>"
# A single backtick on each side, in one line; others stay as they are.
_IN_BACKTICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal"
# Slides have a margin around <pre>, and half the size of letters in it.
TYPED = f"{WRAPPED};margin:0;font-size:inherit"


def quiet_html(html: str, *, hint: str = "") -> str:
    """Put HTML into a small grey line; the hint shows when the mouse rests on it."""
    title = f' title="{escape(hint)}"' if hint else ""
    return f'<div style="{QUIET_LINE}"{title}>{html}</div>'


def message_html(text: str, *, code: str = PLAIN_CODE) -> str:
    """Escape a message of this package; what is in backticks is shown as code."""
    return _IN_BACKTICKS.sub(rf"{code}\1</code>", to_text(text))


def verbatim_message_html(text: str) -> str:
    """Show a message of this package with its lines, in letters of one width."""
    return verbatim_html(message_html(text, code=_CODE_ON_GREY))


def warning_html(text: str) -> str:
    """Put a text beside a coloured edge; it breaks between words."""
    return f'<div style="{_WARNING}">{message_html(text)}</div>'


def sentences_html(lines: Iterable[str], notes: Iterable[str] = ()) -> str:
    """Draw sentences above quiet notes; a cell breaks plain text within words."""
    says = "".join(f"<div>{message_html(line)}</div>" for line in lines)
    quiet = "".join(quiet_html(message_html(note)) for note in notes)
    return f"{BODY}{says}{quiet}</div>"


def verbatim_html(html: str) -> str:
    """Show escaped text as written, with its lines and spaces."""
    return f'<pre style="{TYPED}">{PLAIN_CODE}{html}</code></pre>'


def card_html(heading: str, body: str, closing: str = "") -> str:
    """Put HTML into a card, below a heading."""
    # "svc-v2.1-12b" has no place to break: browsers allow none between "-" and a digit
    name = to_text(heading).replace("-", "-<wbr>")
    head = quiet_html(f"<strong>{name}</strong>") if heading else ""
    return f'<div style="{_CARD}">{head}{body}{closing}</div>'


def grid_html(cards: Iterable[str]) -> str:
    """Put cards side by side in one row if they fit, else in two equal rows."""
    drawn = tuple(cards)
    return f'<div style="{_GRID}{_columns(len(drawn))}">{"".join(drawn)}</div>'


def _columns(n_cards: int) -> str:
    """Return the value of `grid-template-columns`.

    If all cards fit into a row, each has at least `_COLUMN_EM`. Otherwise each is so
    wide that half of the cards fill a row, unless that is too narrow.
    """
    all_em = n_cards * (_COLUMN_EM + _GAP_EM)
    n_half = -(-n_cards // 2)
    most = f"{100 // (n_half + 1) + 1}%"  # so wide that one more than half does not fit
    # times 999: the middle value is very large as soon as the cards do not fit
    least = f"clamp({_COLUMN_EM}em,({all_em:g}em - 100%)*999,{most})"
    return f"repeat(auto-fit,minmax(min(100%,{least}),1fr))"


FOLDED_TEXT = f"{WRAPPED};margin:.2em 0 .5em 1.2em"
_SUMMARY = "cursor:pointer;overflow-wrap:anywhere"


def details_html(title: str, body: str) -> str:
    """Fold HTML below a line that opens it."""
    return (
        f'<details><summary style="{_SUMMARY}">{to_text(title)}</summary>'
        f"{body}</details>"
    )


def rest_html(title: str, body: str) -> str:
    """Fold the rest of a text; where the host supports it, its line is below.

    What is copied from the text does not contain the line.
    """
    below = "display:flex;flex-direction:column-reverse"
    style = f"{_SUMMARY};{QUIET_LINE};user-select:none"
    return (
        f'<details style="{below}"><summary style="{style}">{to_text(title)}</summary>'
        f"{body}</details>"
    )


def folded_html(titled: tuple[str, str]) -> str:
    """Fold a text below its title."""
    title, text = titled
    return details_html(
        title, f'<pre style="{FOLDED_TEXT}">{PLAIN_CODE}{to_text(text)}</code></pre>'
    )

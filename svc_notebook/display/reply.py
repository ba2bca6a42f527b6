"""A reply in its final form, and an error in a box: HTML and plain text.

What it is not: it shows nothing; `stream` and the notebook do.

Rules for this file: styles are inline and take colours only from the host's
variables, each with a fallback that is legible on white and on black, so that
the same output is right in JupyterLab, in an exported page and on GitHub;
plain text holds nothing that a terminal obeys.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from .markup import to_html, to_terminal, to_text
from .tool_calls import Step, trail_html, trail_text

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="'
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
    '"><meta name="color-scheme" content="light">'
)
# A policy does not hold back hints to connect, nor Chromium from connecting for a
# frame that it then refuses; a base makes others of the addresses that a reader sees.
# Under other names they are no elements of HTML.
_ACTING = re.compile(
    r"<(?=(?:link|meta|base|i?frame|frameset|fencedframe|object|embed|portal)[\s/>])",
    re.IGNORECASE,
)
_FRAME = (
    "display:block;width:100%;height:22em;box-sizing:border-box;resize:vertical;"
    "overflow:auto;border:1px solid #bdbdbd;border-radius:4px;background:#fff;"
    "color-scheme:light"
)
_SOURCE = "white-space:pre-wrap;overflow-wrap:anywhere"


def page_html(source: str) -> str:
    """Draw a page in a sandboxed frame, its source folded below.

    Args:
        source: HTML of unknown origin, a whole page or a piece of one.

    Returns:
        HTML; hosts that allow no frames show the folded source alone.
    """
    inside = "<!doctype html>" + _POLICY + _ACTING.sub("<x-", source)
    return (
        f'<iframe sandbox="" referrerpolicy="no-referrer" title="HTML of the reply" '
        f'srcdoc="{escape(inside)}" style="{_FRAME}"></iframe>'
        f"<details><summary>HTML source</summary>"
        f'<pre style="{_SOURCE}">{to_text(source)}</pre></details>'
    )


_QUIET = "var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#767676))"
_BORDER = "var(--jp-border-color2,rgba(127,127,127,.4))"
_ERROR = "var(--jp-error-color1,#d32f2f)"
# A host that does not trust a notebook drops var(); the plain value stays then.
QUIET_LINE = f"color:#767676;color:{_QUIET};font-size:.85em;line-height:1.6"
_BADGE = "border:1px solid;border-radius:3px;padding:0 .4em;margin-right:.6em"
_GRID = (
    "display:grid;gap:.75em;margin-bottom:.5em;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,14em),1fr))"
)
_CARD = (
    "min-width:0;overflow-wrap:anywhere;padding:.5em .9em 0;"
    f"border:1px solid #bdbdbd;border:1px solid {_BORDER};border-radius:4px"
)
_BOX = (
    f"border-left:3px solid #d32f2f;border-left:3px solid {_ERROR};"
    "padding:.3em .8em;margin:.3em 0;"
    "overflow-wrap:anywhere;white-space:pre-wrap"
)
_VERBATIM = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 .5em"
LINE_CHARS = 70
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """What stays in the cell when a reply has ended, however it ended.

    Attributes:
        texts: The Markdown of each choice, in order; empty if nothing came.
        footer: One quiet line: model, tokens, seconds.
        marks: What must not be overlooked, such as "cut" or "interrupted".
        is_verbatim: Whether the texts are shown as they are, not as Markdown.
        is_page: Whether they are HTML, to be shown in sandboxed frames.
        tool_runs: Tool calls that were answered for it, shown folded above the texts.
    """

    texts: tuple[str, ...]
    footer: str = ""
    marks: tuple[str, ...] = ()
    is_verbatim: bool = False
    is_page: bool = False
    tool_runs: tuple[Step, ...] = ()

    @property
    def closing_line(self) -> str:
        """Marks and footer as one line of plain text."""
        line = " ".join((*(f"[{mark}]" for mark in self.marks), self.footer))
        return to_terminal(line.strip().replace("\n", " "))

    def bundle(self) -> dict[str, str]:
        """Draw it: `text/html`, and `text/plain` with the Markdown source."""
        return {"text/html": self._html(), "text/plain": self._plain()}

    def _html(self) -> str:
        if len(self.texts) > 1:
            body = f'<div style="{_GRID}">{self._cards()}</div>'
        else:
            body = "".join(map(self._body, self.texts))
        body = trail_html(self.tool_runs) + body
        marks = "".join(
            f'<span style="{_BADGE}">{to_text(mark)}</span>' for mark in self.marks
        )
        if not (marks or self.footer):
            return f"<div>{body}</div>"
        line = f'<div style="{QUIET_LINE}">{marks}{to_text(self.footer)}</div>'
        return f"<div>{body}{line}</div>"

    def _cards(self) -> str:
        n_texts = len(self.texts)
        return "".join(
            f'<div style="{_CARD}"><div style="{QUIET_LINE}">'
            f"{number} of {n_texts}</div>{self._body(text)}</div>"
            for number, text in enumerate(self.texts, start=1)
        )

    def _body(self, text: str) -> str:
        if self.is_page:
            return page_html(text)
        if self.is_verbatim:
            return f'<pre style="{_VERBATIM}">{to_text(text)}</pre>'
        return to_html(text)

    def _plain(self) -> str:
        parts = [plain_choice(self.texts, index) for index in range(len(self.texts))]
        tool_runs = [trail_text(self.tool_runs)] if self.tool_runs else []
        shown = (part for part in (*tool_runs, *parts, self.closing_line) if part)
        return "\n\n".join(shown).strip("\n")


def plain_choice(texts: Sequence[str], index: int) -> str:
    """Give one choice as plain text, under its number if there are several.

    Args:
        texts: The Markdown of each choice.
        index: Which one, from 0.

    Returns:
        Text that is safe to print.
    """
    return choice_head(index, len(texts)) + to_terminal(texts[index])


def choice_head(index: int, n_texts: int) -> str:
    """Give the line above one of several choices; empty for the only one."""
    return f"[{index + 1} of {n_texts}]\n" if n_texts > 1 else ""


def bundle(
    texts: Sequence[str], *, footer: str = "", marks: Sequence[str] = ()
) -> dict[str, str]:
    """Draw a reply in its final form; several choices stand side by side.

    Args:
        texts: The Markdown of each choice, in order.
        footer: One quiet line below.
        marks: What must not be overlooked, shown as badges before the footer.

    Returns:
        A MIME bundle of `text/html` and `text/plain`.
    """
    return Final(texts=tuple(texts), footer=footer, marks=tuple(marks)).bundle()


def error_box(title: str, lines: Sequence[str]) -> dict[str, str]:
    """Draw an expected failure in a short box.

    Args:
        title: What happened, in a few words.
        lines: What is allowed and what to do next; plain text.

    Returns:
        A MIME bundle of `text/html` and `text/plain`.
    """
    body = "\n".join(map(to_text, lines))
    html = (
        f'<div style="{_BOX}"><strong style="color:{_ERROR}">{to_text(title)}</strong>'
        f"\n{body}</div>"
    )
    plain = "\n".join(error_lines(title, lines, is_coloured=False))
    return {"text/html": html, "text/plain": plain}


def error_lines(
    title: str,
    lines: Sequence[str],
    *,
    is_coloured: bool = True,
    n_chars: int = LINE_CHARS,
) -> list[str]:
    """Give the same as lines, for `_render_traceback_`.

    Args:
        title: What happened, in a few words.
        lines: What is allowed and what to do next; plain text.
        is_coloured: Whether the title is bold, unless NO_COLOR is set.
        n_chars: Where lines are broken, at blanks.

    Returns:
        Lines without line ends; nothing in them but the colour of the title
        is obeyed by a terminal.
    """
    plain = [
        part
        for line in lines
        for paragraph in line.split("\n")
        # hosts break a long line anywhere, in the middle of a word
        for part in wrap(to_terminal(paragraph), n_chars) or [""]
    ]
    head = to_terminal(title.replace("\n", " "))
    if is_coloured and not _is_colour_refused(os.environ):
        head = f"{_BOLD}{head}{_RESET}"
    return [head, *(f"  {line}" for line in plain)]


def _is_colour_refused(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("NO_COLOR"))

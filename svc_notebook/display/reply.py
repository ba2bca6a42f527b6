"""Replies as static HTML and plain text: final form, footer, tool calls, transcript.

Styles are inline. A colour that the host sets has a fallback that is legible on white
and on black. Only `markup` turns a text into HTML; plain text is safe in a terminal.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import Protocol

from svc_notebook.service.checks import shorten
from svc_notebook.service.chunk import Usage
from svc_notebook.service.request import CompletionRequest

from .markup import to_html, to_terminal, to_text, without_blank_lines

_QUIET = "var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#767676))"
_BORDER = "var(--jp-border-color2,rgba(127,127,127,.4))"
# A host that does not trust a notebook drops var(); the plain value stays then.
QUIET_LINE = f"color:#767676;color:{_QUIET};font-size:.85em;line-height:1.6"
_BADGE = "border:1px solid;border-radius:3px;padding:0 .4em;margin-right:.6em"
# Seen only where a host drops styles: badges would run into the words after them.
_BETWEEN = "<span style=font-size:0> · </span>"
_GRID = (
    "display:grid;gap:.75em;margin-bottom:.5em;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,14em),1fr))"
)
_CARD = (
    "min-width:0;overflow-wrap:anywhere;padding:.5em .9em .3em;"
    f"border:1px solid #bdbdbd;border:1px solid {_BORDER};border-radius:4px"
)
BODY = "<div style=overflow-wrap:break-word>"  # a long word stays within the width
_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal"
_VERBATIM = f"{_WRAPPED};margin:0"


def quiet_html(html: str, *, hint: str = "") -> str:
    """Put HTML into a line of small, quiet letters; the hint is for the mouse."""
    title = f' title="{escape(hint)}"' if hint else ""
    return f'<div style="{QUIET_LINE}"{title}>{html}</div>'


def verbatim_html(html: str) -> str:
    """Show escaped text as it is written, with its lines and blanks."""
    return f'<pre style="{_VERBATIM}"><code>{html}</code></pre>'


def card_html(heading: str, body: str, closing: str = "") -> str:
    """Put HTML into a card, below a heading."""
    head = quiet_html(f"<strong>{to_text(heading)}</strong>") if heading else ""
    return f'<div style="{_CARD}">{head}{body}{closing}</div>'


def grid_html(cards: Iterable[str]) -> str:
    """Put cards side by side, as many as there is room for."""
    return f'<div style="{_GRID}">{"".join(cards)}</div>'


# The dot moves by itself, so waiting costs no messages.
_DOT = (
    "<style>@media(prefers-reduced-motion:no-preference){.svc-dot{animation:"
    "svc-dot 1s infinite alternate}}@keyframes svc-dot{from{opacity:.2}}</style>"
    "<span class=svc-dot aria-hidden=true>\N{BLACK CIRCLE}</span> "
)
UNFINISHED = "still being written"  # also what a save in mid-stream keeps
WAITING = "waiting for the first words"
REASONING = "reasoning"


def live_html(status: str, *, is_waiting: bool) -> str:
    """Draw the line below what is still being written."""
    line = " · ".join(filter(None, (status, UNFINISHED)))
    return quiet_html(_DOT * is_waiting + to_text(line))


_REWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)")  # of a line, such as a progress bar
CALL_CHARS = 60
SHOWN_CHARS = 4000
CONSENT = {None: "", True: "approved · ", False: "denied · "}
MAX_OPEN = 6
_PRE = f"{_WRAPPED};margin:.2em 0 .5em 1.2em"
_SUMMARY = "cursor:pointer;overflow-wrap:anywhere"


class Step(Protocol):
    """A tool call that was answered, as it is drawn; a `ToolRun` is one."""

    @property
    def call_id(self) -> str:
        """The id that the model gave the call."""

    @property
    def name(self) -> str:
        """The tool, as the model wrote it."""

    @property
    def arguments(self) -> str:
        """As the model wrote them."""

    @property
    def result(self) -> str:
        """What was sent back to the model."""

    @property
    def error(self) -> str | None:
        """Why it has no result, in words; None if it has one."""

    @property
    def traceback(self) -> str | None:
        """Where a tool failed; None if it did not."""

    @property
    def printed(self) -> str:
        """What the tool printed, where that is shown with its call."""

    @property
    def seconds_s(self) -> float:
        """From the call of the function to its end."""

    @property
    def is_approved(self) -> bool | None:
        """The user's decision; None if the user was not asked."""


def call_line(name: str, arguments: str) -> str:
    """Write a call on one line, cut where it is long."""
    inner = " ".join(arguments.split())
    inner = "" if inner == "{}" else shorten(inner, CALL_CHARS)
    return f"{shorten(name, CALL_CHARS)}({inner})"


def result_line(step: Step) -> str:
    """Write the result of a call on one line, with its seconds."""
    text = shorten(" ".join(step.result.split()), CALL_CHARS) or "(an empty text)"
    took = f" · {step.seconds_s:.1f}\N{NO-BREAK SPACE}s" if step.seconds_s else ""
    return f"{CONSENT[step.is_approved]}{text}{took}"


def tool_runs_html(steps: Sequence[Step]) -> str:
    """Draw answered calls as `details`; many are folded behind one line together."""
    if not steps:
        return ""
    lines = "".join(map(tool_run_html, steps))
    if len(steps) > MAX_OPEN:
        title = f"{len(steps)} tool calls"
        lines = details_html(title, f'<div style="margin-left:1.2em">{lines}</div>')
    return quiet_html(lines)


def tool_run_html(step: Step) -> str:
    """Draw one call: a line, and folded below it the arguments and the result."""
    body = "".join(
        f'<div>{title}</div><pre style="{_PRE}"><code>{html}</code></pre>'
        for title, html in run_parts(step)
    )
    return details_html(_run_line(step), body)


def run_parts(step: Step) -> list[tuple[str, str]]:
    """Return the titles and the escaped, shortened texts of an answered call."""
    texts = {"arguments": step.arguments, "result": step.result}
    if step.printed:
        texts["printed"] = _REWRITTEN.sub("", step.printed)
    if step.traceback:
        texts["traceback (the model has not seen it)"] = step.traceback
    return [(title, shortened_html(text)) for title, text in texts.items()]


def shortened_html(text: str) -> str:
    """Escape a text of which only the beginning is shown."""
    if len(text) > SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}\n[... of {len(text)} characters]"
    return to_text(text)


def tool_runs_text(steps: Sequence[Step]) -> str:
    """Write answered calls for a terminal, one line each; safe to print."""
    return to_terminal("\n".join(map(_run_line, steps)))


def _run_line(step: Step) -> str:
    mark = "\N{MULTIPLICATION X}" if step.error is not None else "\N{RIGHTWARDS ARROW}"
    return f"{call_line(step.name, step.arguments)} {mark} {result_line(step)}"


def details_html(title: str, body: str) -> str:
    """Fold HTML behind a line."""
    return (
        f'<details><summary style="{_SUMMARY}">{to_text(title)}</summary>'
        f"{body}</details>"
    )


def folded_html(titled: tuple[str, str]) -> str:
    """Fold a text behind its title."""
    title, text = titled
    return details_html(
        title, f'<pre style="{_PRE}"><code>{to_text(text)}</code></pre>'
    )


_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="'
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
    '"><meta name="color-scheme" content="light">'
)
# A policy does not stop hints to connect, nor Chromium from connecting for a frame that
# it then refuses; a base changes the addresses that a reader sees. Renamed, they do
# nothing.
_ACTING = re.compile(
    r"<(?=(?:link|meta|base|i?frame|frameset|fencedframe|object|embed|portal)[\s/>])",
    re.IGNORECASE,
)
_FRAME = (
    "display:block;width:100%;height:22em;max-height:60em;box-sizing:border-box;resize:vertical;"
    "overflow:auto;border:1px solid #bdbdbd;border-radius:4px;background:#fff;"
    "color-scheme:light"
)


# As high as its content, with the border. Only a frame of the same origin can be
# measured; the sandbox lets nothing in it run, and no link is followed: it would be
# opened with the reader's cookies.
_MEASURE = (
    "let d=this.contentDocument,n=d.documentElement.offsetHeight;"
    "if(n)this.style.height=n+2+'px';"
    "d.addEventListener('click',e=>e.preventDefault(),true)"
)


def page_html(source: str) -> str:
    """Draw HTML of unknown origin in a sandboxed frame, its source folded below.

    Hosts that allow no frames show the folded source alone.
    """
    inside = "<!doctype html>" + _POLICY + _ACTING.sub("<x-", source)
    return (
        f"<iframe sandbox=allow-same-origin referrerpolicy=no-referrer "
        f'title="HTML of the reply" onload="{_MEASURE}" '
        f'srcdoc="{without_blank_lines(escape(inside))}" style="{_FRAME}"></iframe>'
        f"<details><summary>HTML source</summary>"
        f'<pre style="{_WRAPPED}"><code>{to_text(source)}</code></pre></details>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """What stays in the cell after a reply has ended, even by an error."""

    texts: tuple[str, ...]  # the Markdown of each choice; empty if nothing arrived
    reasonings: tuple[str, ...] = ()  # next to each text; shown folded below them
    footer: str = ""  # one quiet line: model, tokens, seconds
    hint: str = ""  # what the footer says when the mouse rests on it
    marks: tuple[str, ...] = ()  # what must not be overlooked, such as "cut"
    is_verbatim: bool = False  # the texts are shown as they are, not as Markdown
    is_page: bool = False  # they are HTML, to be shown in sandboxed frames
    tool_runs: tuple[Step, ...] = ()  # shown folded above the texts

    def with_notes(self, *notes: str) -> "Final":
        """Return the same with notes at the end of its footer, without empty ones."""
        return replace(self, footer=" · ".join(filter(None, (self.footer, *notes))))

    @property
    def closing_line(self) -> str:
        """Marks, footer and the size of reasoning as one line of plain text."""
        titles = (title for title, _ in titled_reasonings(self.reasonings))
        footer = " · ".join(filter(None, (self.footer, *titles)))
        return to_terminal(marks_text(self.marks, footer).replace("\n", " "))

    @property
    def closing_html(self) -> str:
        """Reasoning, folded, then marks and footer as a quiet line."""
        folds = "".join(map(folded_html, titled_reasonings(self.reasonings)))
        line = marks_html(self.marks, self.footer)
        above = quiet_html(folds) if folds else ""
        return above + (quiet_html(line, hint=self.hint) if line else "")

    def bundle(self) -> dict[str, str]:
        """Draw it: `text/html`, and `text/plain` with the Markdown source."""
        return {"text/html": self._html(), "text/plain": self._plain()}

    def _html(self) -> str:
        bodies = [self._body(text) for text in self.texts]
        if len(bodies) > 1:
            bodies = [
                grid_html(
                    card_html(f"{number} of {len(bodies)}", body)
                    for number, body in enumerate(bodies, start=1)
                )
            ]
        calls = tool_runs_html(self.tool_runs)
        return f"{BODY}{calls}{''.join(bodies)}{self.closing_html}</div>"

    def _body(self, text: str) -> str:
        if self.is_page:
            return page_html(text)
        if self.is_verbatim:
            return verbatim_html(to_text(text))
        return reply_html(text)

    def _plain(self) -> str:
        parts = [plain_choice(self.texts, index) for index in range(len(self.texts))]
        tool_runs = [tool_runs_text(self.tool_runs)] if self.tool_runs else []
        shown = filter(None, (*tool_runs, *parts, self.closing_line))
        return "\n\n".join(shown).strip("\n")


class Measured(Protocol):
    """What a footer says of a reply; an `Exchange` is one."""

    @property
    def request(self) -> CompletionRequest:
        """What was sent."""

    @property
    def usage(self) -> Usage:
        """Tokens, reported or else estimated."""

    @property
    def usage_source(self) -> str:
        """Whether they are reported, estimated or missing."""

    @property
    def latency_s(self) -> float | None:
        """From sending the request to the end of the reply."""

    @property
    def est_prompt_tokens(self) -> int:
        """An estimate of the prompt."""

    @property
    def est_completion_tokens(self) -> int:
        """An estimate of the reply."""

    @property
    def est_low_tokens(self) -> int | None:
        """The fewest tokens that both together may have; None if unknown."""

    @property
    def est_high_tokens(self) -> int | None:
        """The most tokens that both together may have; None if unknown."""


def footer(exchange: Measured, *, has_model: bool = True) -> str:
    """Return the footer: model, tokens of prompt and reply, seconds."""
    parts = [exchange.request.model if has_model else "", _tokens(exchange)]
    if exchange.latency_s is not None:
        parts.append(f"{exchange.latency_s:.1f}\N{NO-BREAK SPACE}s")
    return " · ".join(part for part in parts if part)


def _tokens(exchange: Measured) -> str:
    usage, source = exchange.usage, exchange.usage_source
    if source == "missing":
        return "no usage"
    about = "~" if source == "estimated" else ""
    return f"{usage.prompt_tokens} → {about}{usage.completion_tokens} tokens"


def estimate_hint(exchange: Measured) -> str:
    """Return the details of the footer's estimate; "" where tokens were reported."""
    if exchange.usage_source != "estimated":
        return ""
    parts = f"{exchange.est_prompt_tokens} + {exchange.est_completion_tokens}"
    low, high = exchange.est_low_tokens, exchange.est_high_tokens
    both = "" if low is None or high is None else f", together {low:,} to {high:,}"
    return f"estimated: {parts} tokens{both}"


def titled_reasonings(reasonings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the reasoning next to each choice, if any, with a title that has its size.

    A terminal shows the title alone.
    """
    titled = (
        (f"reasoning{f' of {at}' * (len(reasonings) > 1)}: {len(text):,}", text)
        for at, text in enumerate(reasonings, start=1)
    )
    return tuple((f"{title} characters", text) for title, text in titled if text)


def marks_html(marks: Sequence[str], footer: str = "") -> str:
    """Draw marks as badges, then a footer."""
    badges = (f'<span style="{_BADGE}">{to_text(mark)}</span>' for mark in marks)
    return _BETWEEN.join((*badges, *([to_text(footer)] if footer else [])))


def marks_text(marks: Sequence[str], footer: str = "") -> str:
    """Return marks in brackets, then a footer."""
    return " ".join((*(f"[{mark}]" for mark in marks), footer)).strip()


def plain_choice(texts: Sequence[str], index: int) -> str:
    """Return one choice as text that is safe to print, under its number."""
    return choice_head(index, len(texts)) + to_terminal(texts[index])


def choice_head(index: int, n_texts: int) -> str:
    """Return the line above one of several choices; empty for the only one."""
    return f"[{index + 1} of {n_texts}]\n" if n_texts > 1 else ""


_ENTRY = "margin:.2em 0 .8em"
_TYPED = f"{_WRAPPED};border-left:3px solid #8886;padding-left:.7em"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message."""

    heading: str  # who wrote it, and what to know about it
    text: str
    is_markdown: bool = False  # else the text is shown as typed
    footer: str = ""  # a quiet line below
    notes: tuple[str, ...] = ()  # quiet lines above the text, such as tool calls
    typed: str | None = None  # the text without its end, which is folded
    folded: tuple[tuple[str, str], ...] = ()  # titles and texts of that end


def transcript(title: str, entries: Sequence[Entry]) -> dict[str, str]:
    """Draw messages below a title, as `text/html` and `text/plain`."""
    head = quiet_html(f"<strong>{to_text(title)}</strong>")
    plain = [_entry_text(each) for each in entries] or ["(no turns yet)"]
    body = "".join(map(_entry_html, entries)) or quiet_html("no turns yet")
    return {
        "text/html": f"<div>{head}{body}</div>",
        "text/plain": to_terminal("\n\n".join([title, *plain])),
    }


@lru_cache(maxsize=1024)
def reply_html(text: str) -> str:
    """Render a reply; a growing transcript renders each reply only once."""
    return to_html(text)


def _entry_text(entry: Entry) -> str:
    parts = (entry.heading, *entry.notes, entry.text, entry.footer)
    return "\n".join(filter(None, parts))


def _entry_html(entry: Entry) -> str:
    typed = entry.text if entry.typed is None else entry.typed
    text = (
        reply_html(entry.text)
        if entry.is_markdown
        else f'<pre style="{_TYPED}"><code>{to_text(typed)}</code></pre>'
    )
    text += quiet_html("".join(map(folded_html, entry.folded))) if entry.folded else ""
    notes = "".join(map(_quiet, entry.notes))
    footer = _quiet(entry.footer) if entry.footer else ""
    heading = _quiet(entry.heading)
    return f'<div style="{_ENTRY}">{heading}{notes}{text}{footer}</div>'


def _quiet(line: str) -> str:
    return f'<div style="{QUIET_LINE};overflow-wrap:anywhere">{to_text(line)}</div>'

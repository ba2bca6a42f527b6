"""The final form of a reply, and of a list of messages: static HTML and plain text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .escape import to_terminal, to_text
from .footer import marks_html, marks_text, titled_reasonings
from .html_styles import (
    BODY,
    QUIET_LINE,
    WRAPPED,
    card_html,
    folded_html,
    grid_html,
    quiet_html,
    verbatim_html,
)
from .markdown import reply_html
from .sandboxed_frame import page_html
from .tool_runs import Step, tool_runs_html, tool_runs_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """What stays in the cell after a reply has ended, even by an error."""

    texts: tuple[str, ...]  # the Markdown of each choice; empty if nothing arrived
    reasonings: tuple[str, ...] = ()  # next to each text; shown folded below them
    footer: str = ""  # one quiet line: model, tokens, seconds
    hint: str = ""  # shown when the mouse rests on the footer
    marks: tuple[str, ...] = ()  # warnings, such as "cut"
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


def plain_choice(texts: Sequence[str], index: int) -> str:
    """Return one choice as text that is safe to print, under its number."""
    return choice_head(index, len(texts)) + to_terminal(texts[index])


def choice_head(index: int, n_texts: int) -> str:
    """Return the line above one of several choices; empty for the only one."""
    return f"[{index + 1} of {n_texts}]\n" if n_texts > 1 else ""


_ENTRY = "margin:.2em 0 .8em"
_TYPED = f"{WRAPPED};border-left:3px solid #8886;padding-left:.7em"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEntry:
    """One message."""

    heading: str  # who wrote it, and what to know about it
    text: str
    is_markdown: bool = False  # else the text is shown as typed
    footer: str = ""  # a quiet line below
    notes: tuple[str, ...] = ()  # quiet lines above the text, such as tool calls
    typed: str | None = None  # the text without its end, which is folded
    folded: tuple[tuple[str, str], ...] = ()  # titles and texts of that end


def transcript(title: str, entries: Sequence[MessageEntry]) -> dict[str, str]:
    """Draw messages below a title, as `text/html` and `text/plain`."""
    head = quiet_html(f"<strong>{to_text(title)}</strong>")
    plain = [_entry_text(entry) for entry in entries] or ["(no turns yet)"]
    body = "".join(map(_entry_html, entries)) or quiet_html("no turns yet")
    return {
        "text/html": f"<div>{head}{body}</div>",
        "text/plain": to_terminal("\n\n".join([title, *plain])),
    }


def _entry_text(entry: MessageEntry) -> str:
    parts = (entry.heading, *entry.notes, entry.text, entry.footer)
    return "\n".join(filter(None, parts))


def _entry_html(entry: MessageEntry) -> str:
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

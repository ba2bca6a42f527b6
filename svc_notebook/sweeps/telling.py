"""A run told in a cell or a terminal: its plan, what became of it, and the next step.

What it is not: the words of each line (see `words`, `reasons`). Rules: pure; the
text and the HTML say the same; nothing in it is obeyed by a terminal or a page.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from svc_notebook.display.markup import to_terminal
from svc_notebook.display.reply import Final

from .grid import Grid
from .size import Size
from .words import Line, headline, plan_lines

_LINE_CHARS = 88
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#])")  # of Markdown, in a name
_LEAST_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A run in words.

    Attributes:
        name: Of the run, if it has one.
        head: Where it stands, in one line.
        lines: Facts, each with its label.
        footer: What can be done next.
    """

    name: str | None
    head: str
    lines: Sequence[Line] = ()
    footer: str = ""

    @property
    def text(self) -> str:
        """Plain text, labels in a column of their own."""
        title = f"Run {self.name}: " if self.name else "Run: "
        width = max((len(label) for label, _ in self.lines), default=0) + 2
        body = [
            line for label, text in self.lines for line in _wrapped(label, text, width)
        ]
        parts = [title + self.head, *body, *([self.footer] if self.footer else [])]
        return to_terminal("\n".join(parts))

    def bundle(self) -> dict[str, str]:
        """Draw it: `text/html` and `text/plain`."""
        name = _SIGNS.sub(r"\\\1", self.name or "")
        title = f"**Run {name}** · " if name else "**Run** · "
        facts = "\n".join(f"- {label}: {text}" for label, text in self.lines)
        final = Final(texts=(f"{title}{self.head}\n\n{facts}",), footer=self.footer)
        return {**final.bundle(), "text/plain": self.text}


def tell(  # noqa: PLR0913 - one part each
    grid: Grid,
    counts: Mapping[str, int],
    *,
    name: str | None,
    size: Size,
    is_begun: bool,
    n_left: Mapping[str, int],
    reasons: Sequence[str] = (),
    is_running: bool = False,
    steps: Sequence[str] = (),
) -> Told:
    """Tell a run.

    Args:
        grid: What was planned.
        counts: How many cells of each mark there are.
        name: Of the run.
        size: Of the plan.
        is_begun: Whether anything was asked yet.
        n_left: How many requests of each model are missing.
        reasons: Why requests failed.
        is_running: Whether it is being asked, so that only its outlook is told.
        steps: What can be done next.
    """
    failed = [("failed", reason) for reason in reasons]
    lines = plan_lines(grid, size=size, n_left=n_left)
    return Told(
        name=name,
        head=headline(grid, counts, is_begun=is_begun),
        lines=[
            *failed,
            *(line for line in lines if line[0] == "time" or not is_running),
        ],
        footer=" · ".join(steps),
    )


def _wrapped(label: str, text: str, width: int) -> list[str]:
    n_chars = max(_LINE_CHARS - width, _LEAST_CHARS)
    first, *rest = wrap(text, n_chars, break_on_hyphens=False) or [""]
    return [
        f"  {label:<{width}}{first}",
        *(f"  {'':<{width}}{line}" for line in rest),
    ]

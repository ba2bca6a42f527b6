"""Text that grows, in the mode the place calls for.

What it is not: it fetches nothing and starts no thread. Whoever pumps the
stream calls `add` for text, `note` for waits, `flush` at least every 50 ms
also when nothing came, and `settle` once.

`live` updates outputs of a notebook while text comes; `settled` draws once at
the end, so that a notebook's outputs are the same whenever it is run; `plain`
prints, for terminals.

Rules for this file: all calls come from one thread; after `settle` they do
nothing, since a late status line is no reason to disturb a finished cell.
"""

import re
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, Self
from uuid import uuid4

from .live import LiveCell, LiveDisplay, Screen
from .markup import to_terminal
from .reply import QUIET_LINE, Final, choice_head, plain_choice
from .tool_calls import Step, step_html, trail_text

_VERBATIM_FENCE = "`" * 12 + "\n"  # while it grows; the final form needs none
_FIGURES = re.compile(r"[\d.,:]+")


class Mode(StrEnum):
    """How a growing reply is shown."""

    LIVE = "live"
    SETTLED = "settled"
    PLAIN = "plain"


class _View(Protocol):
    def add(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def hurry(self) -> None: ...
    def step(self, html: str, plain: str) -> None: ...
    def flush(self, now_s: float) -> None: ...
    def settle(self, final: Final | None) -> None: ...


class _Settled:
    """Nothing until the end, then one output."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def add(self, text: str) -> None:
        """Leave it to the end."""

    def note(self, text: str) -> None:
        """Leave it out: waits differ from run to run."""

    def hurry(self) -> None:
        """There is nothing to hurry."""

    def step(self, html: str, plain: str) -> None:
        """Leave it to the end: the final form has it."""

    def flush(self, now_s: float) -> None:
        """Leave it to the end."""

    def settle(self, final: Final | None) -> None:
        if final:
            self._screen.publish(final.bundle(), None)


class _Plain:
    """Printed text; what was printed is not printed again."""

    def __init__(self, screen: Screen, n_texts: int, *, is_late: bool) -> None:
        self._screen = screen
        self._head = choice_head(0, n_texts)
        self._is_late = is_late
        self._text = ""
        self._waiting = ""
        self._noted = ""
        self._is_at_line_start = True

    def add(self, text: str) -> None:
        if not self._is_late:
            self._waiting += text
        self._noted = ""

    def note(self, text: str) -> None:
        # A countdown is one note: printed lines cannot be taken back.
        kind = _FIGURES.sub("", text)
        if text and kind != self._noted:
            self.flush(0.0)
            self._print(f"{self._line_break()}{text}\n")
        self._noted = kind

    def hurry(self) -> None:
        """Everything is printed at once."""

    def step(self, html: str, plain: str) -> None:
        del html
        self.flush(0.0)
        self._noted = ""
        self._print(f"{self._line_break()}{plain}\n")

    def flush(self, now_s: float) -> None:
        del now_s
        if self._waiting:
            head = "" if self._text else self._head
            self._text += self._waiting
            self._print(head + self._waiting)
            self._waiting = ""

    def settle(self, final: Final | None) -> None:
        self.flush(0.0)
        texts = final.texts if final else ()
        is_printed = bool(texts and self._text == texts[0])
        rest = [plain_choice(texts, i) for i in range(is_printed, len(texts))]
        closing = final.closing_line if final else ""
        gap = "\n" if len(texts) > 1 else ""  # choices stand apart
        parts = [gap + part for part in rest if part] + [closing] * bool(closing)
        lines = self._line_break() + "".join(f"{part}\n" for part in parts)
        if lines:
            self._print(lines)

    def _line_break(self) -> str:
        return "" if self._is_at_line_start else "\n"

    def _print(self, text: str) -> None:
        self._is_at_line_start = text.endswith("\n")
        self._screen.write(to_terminal(text))


class Growing:
    """One reply on its way: add to it, then settle it."""

    def __init__(self, view: _View, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self._is_settled = False

    @classmethod
    def open(  # noqa: PLR0913 - one argument a trait of what grows
        cls,
        mode: Mode | str,
        *,
        own_output: bool = True,
        is_verbatim: bool = False,
        is_late: bool = False,
        n_texts: int = 1,
        screen: Screen | None = None,
        clock: Callable[[], float] = time.monotonic,
        display_id: str | None = None,
    ) -> Self:
        """Begin to show a reply.

        Args:
            mode: How; one of `Mode`.
            own_output: Whether the cell's output is the reply's alone and may
                be cleared; else one display is made now and updated.
            is_verbatim: Whether the text is no Markdown and is shown as it is.
            is_late: Whether a place where nothing can be taken back waits for the
                final form, which differs from what grows.
            n_texts: How many choices there will be; the first one grows.
            screen: Where; IPython's display and standard output if None.
            clock: Seconds that only grow.
            display_id: A name no other output has; a new one if None.

        Returns:
            The growing reply; nothing of it is shown before `flush`, but in
            `live` mode without own output its place is taken at once.

        Raises:
            ValueError: `mode` is not a `Mode`.
        """
        place = screen or Screen()
        name = display_id or f"svc-{uuid4().hex[:12]}"
        view: _View
        match Mode(mode):
            case Mode.LIVE if own_output:
                view = LiveCell(place, name)
            case Mode.LIVE:
                view = LiveDisplay(place, name)
            case Mode.SETTLED:
                view = _Settled(place)
            case Mode.PLAIN:
                view = _Plain(place, n_texts, is_late=is_late)
        if is_verbatim and mode == Mode.LIVE:
            view.add(_VERBATIM_FENCE)
        return cls(view, clock)

    def add(self, text: str) -> None:
        """Add a piece of the reply, and show it if it is time.

        Args:
            text: Markdown source, cut off anywhere; takes the note away.
        """
        if text and not self._is_settled:
            self._view.add(text)
            self._view.flush(self._clock())

    def note(self, text: str, *, is_now: bool = False) -> None:
        """Show a status line in place of the one before.

        Args:
            text: Such as "waiting 12 s for the minute limit"; "" takes it away.
            is_now: Whether to show it at once, since no flush comes for a while.
        """
        if not self._is_settled:
            self._view.note(text)
            if is_now:
                self._view.hurry()
            self._view.flush(self._clock())

    def step(self, step: Step) -> None:
        """Show a tool call that was answered, below the text so far.

        Args:
            step: The call.
        """
        if not self._is_settled:
            html = f'<div style="{QUIET_LINE}">{step_html(step)}</div>'
            self._view.step(html, trail_text((step,)))
            self._view.hurry()
            self._view.flush(self._clock())

    def flush(self) -> None:
        """Show what is not shown yet, if it is time; call at least every 50 ms."""
        if not self._is_settled:
            self._view.flush(self._clock())

    def settle(self, final: Final | None) -> None:
        """Show the final form in place of what grew.

        Args:
            final: The reply as it ended, also when it was cut off; None takes
                away what was shown, as far as the place allows.
        """
        if not self._is_settled:
            self._is_settled = True
            self._view.settle(final)

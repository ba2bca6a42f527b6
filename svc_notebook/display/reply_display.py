"""One reply while it streams: followed to its end, or until it is interrupted.

It is shown live in a notebook, settled, or printed.
"""

import re
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, Self, TypeVar
from uuid import uuid4

from svc_notebook.errors import Interrupted, SvcError
from svc_notebook.service.chunk import Delta

from .cell_output import Output, Shown
from .escape import to_terminal
from .final_reply import Final, choice_head, plain_choice
from .streaming_reply import LiveChoices, LiveText
from .tool_runs import Step, tool_runs_text

POLL_S = 0.05  # the longest wait for news: an interrupt is noticed within it
Whole_co = TypeVar("Whole_co", covariant=True)


class Wait(Protocol):
    """How long a request waits, as far as is known, and why."""

    @property
    def wait_s(self) -> float: ...  # noqa: D102 - as the class says
    @property
    def reason(self) -> str: ...  # noqa: D102 - as the class says


class Stream(Protocol[Whole_co]):
    """A reply that streams in, such as a `CompletionStream`."""

    @property
    def is_done(self) -> bool:
        """Whether everything was returned by `poll`."""

    @property
    def completion(self) -> Whole_co:
        """The whole reply; raises the error that ended it."""

    def poll(self, timeout_s: float) -> Sequence[Delta | Wait]:
        """Return what arrived since the last call; if nothing did, wait for it."""

    def cancel(self) -> Whole_co | None:
        """Stop the request and return what arrived."""


class View(Protocol):
    """Shows a stream; raising KeyboardInterrupt in it stops the stream."""

    def show(self, delta: Delta) -> None:
        """Take new content."""

    def wait(self, wait: Wait) -> None:
        """Take a wait; the next content ends it."""

    def flush(self) -> float | None:
        """Show what is new, if it is time; else return the seconds until then.

        It is called then, and at least every 50 ms.
        """

    def end(self, completion: object | None) -> None:
        """Take the reply: whole, what arrived before it failed, or None."""


def follow(stream: Stream[Whole_co], view: View) -> Whole_co:
    """Show a stream in a view to its end, and return the whole reply.

    The view's `end` is called once, however the stream ends.

    Raises:
        Interrupted: The user stopped it; `partial` is what arrived.
        SvcError: It failed; `partial` is what arrived.
    """
    wait_s = POLL_S
    try:
        while not stream.is_done:
            for item in stream.poll(wait_s):
                if isinstance(item, Delta):
                    view.show(item)
                else:
                    view.wait(item)
            wait_s = min(view.flush() or POLL_S, POLL_S)
        completion = stream.completion
    except KeyboardInterrupt:
        partial = stream.cancel()
        view.end(partial)
        raise Interrupted(partial) from None
    except SvcError as error:
        view.end(error.partial)
        raise
    view.end(completion)
    return completion


class Mode(StrEnum):
    """How a reply is shown while it streams.

    `live` updates the notebook; `settled` draws once at the end, so that the outputs
    are the same whenever the notebook is run; `plain` prints, for terminals.
    """

    LIVE = "live"
    SETTLED = "settled"
    PLAIN = "plain"


_FIGURES = re.compile(r"[\d.,:]+")


class _Settled(Shown):
    """Shows one output at the end."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def finish(self, final: Final | None) -> None:
        if final:
            self._output.publish(final.bundle(), None)


class _Plain(_Settled):
    """Printed text; what was printed is not printed again."""

    def __init__(self, output: Output, n_texts: int, *, is_late: bool) -> None:
        super().__init__(output)
        self._head = choice_head(0, n_texts)
        self._is_late = is_late
        self._text = ""
        self._pending = ""
        self._status = ""
        self._is_at_line_start = True

    def add(self, text: str, choice: int = 0) -> None:
        if choice == 0:
            self._pending += "" if self._is_late else text
            self._status = ""

    def status(self, text: str) -> None:
        # A countdown is one status: printed lines cannot be taken back.
        kind = _FIGURES.sub("", text)
        if text and kind != self._status:
            self.flush(0.0)
            self._print(f"{self._line_break()}{text}\n")
        self._status = kind

    def tool_run(self, step: Step) -> None:
        self.flush(0.0)
        self._status = ""
        self._print(f"{self._line_break()}{tool_runs_text((step,))}\n")

    def flush(self, now_s: float) -> None:
        del now_s
        if self._pending:
            head = "" if self._text else self._head
            self._text += self._pending
            self._print(head + self._pending)
            self._pending = ""

    def finish(self, final: Final | None) -> None:
        self.flush(0.0)
        texts = final.texts if final else ()
        is_printed = bool(texts and self._text == texts[0])
        rest = [plain_choice(texts, i) for i in range(is_printed, len(texts))]
        closing = final.closing_line if final else ""
        gap = "\n" if len(texts) > 1 else ""  # a blank line between choices
        parts = [gap + part for part in rest if part] + [closing] * bool(closing)
        lines = self._line_break() + "".join(f"{part}\n" for part in parts)
        if lines:
            self._print(lines)

    def reopen(self, so_far: str) -> bool:
        self._text = so_far  # is printed, in another cell
        return True

    def _line_break(self) -> str:
        return "" if self._is_at_line_start else "\n"

    def _print(self, text: str) -> None:
        self._is_at_line_start = text.endswith("\n")
        self._output.write(to_terminal(text))


class ReplyDisplay:
    """One reply while it streams: add to it, then finish it.

    All calls come from one thread; after `finish` they do nothing.
    """

    def __init__(self, shown: Shown, clock: Callable[[], float]) -> None:
        self._shown = self._ended = shown
        self._clock = clock

    @classmethod
    def open(  # noqa: PLR0913 - one argument for each property of the display
        cls,
        mode: Mode | str,
        *,
        own_output: bool = True,
        is_verbatim: bool = False,
        is_late: bool = False,
        n_texts: int = 1,
        output: Output | None = None,
        clock: Callable[[], float] = time.monotonic,
        display_id: str | None = None,
    ) -> Self:
        """Begin to show a reply.

        An output that is not its own is not cleared: one display is made now and
        updated. Verbatim is not Markdown. A late one is printed in its final form only,
        since that differs from the text that streams.
        """
        output = output or Output()
        name = display_id or f"svc-{uuid4().hex[:12]}"
        shown: Shown
        match Mode(mode):
            case Mode.LIVE if n_texts > 1:
                shown = LiveChoices(
                    output,
                    name,
                    own_output=own_output,
                    is_verbatim=is_verbatim,
                    n_texts=n_texts,
                )
            case Mode.LIVE:
                shown = LiveText(
                    output, name, own_output=own_output, is_verbatim=is_verbatim
                )
            case Mode.SETTLED:
                shown = _Settled(output)
            case Mode.PLAIN:
                shown = _Plain(output, n_texts, is_late=is_late)
        return cls(shown, clock)

    def add(self, text: str, choice: int = 0) -> None:
        """Add a piece of a choice, cut off anywhere; it ends the status line."""
        if text:
            self._shown.add(text, choice)
            self.flush()

    def wait(self, wait: Wait) -> None:
        """Show how long the request waits, and why, while there are seconds left."""
        is_over = round(wait.wait_s) < 1
        self.status("" if is_over else f"waiting {wait.wait_s:.0f} s: {wait.reason}")

    def status(self, text: str, *, is_now: bool = False) -> None:
        """Show a status line in place of the one before; "" removes it.

        Set `is_now` if no flush will follow soon.
        """
        self._shown.status(text)
        if is_now:
            self._shown.hurry()
        self.flush()

    def tool_run(self, step: Step) -> None:
        """Show a tool call that was answered, below the text so far."""
        self._shown.tool_run(step)
        self._shown.hurry()
        self.flush()

    def flush(self) -> float | None:
        """Show what is not shown yet, if it is time; call at least every 50 ms.

        If it is not time, return the seconds until then.
        """
        return self._shown.flush(self._clock())

    def finish(self, final: Final | None) -> None:
        """Show the final form in place of what streamed; None removes that."""
        shown, self._shown = self._shown, Shown()
        shown.finish(final)

    def reopen(self, so_far: str) -> bool:
        """Go on with a finished reply in its own outputs; False where it cannot be.

        `so_far` is its text, to which more is added.
        """
        if not self._ended.reopen(so_far):
            return False
        self._shown = self._ended
        return True

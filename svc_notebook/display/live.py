"""A reply shown while it streams: live in a notebook, settled, or printed.

`follow` shows any stream in any view; `ReplyDisplay` shows one reply.
"""

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self, TypeAlias, TypeVar
from uuid import uuid4

from svc_notebook.errors import Interrupted, SvcError
from svc_notebook.service.chunk import Delta

from .markdown import Block, Blocks
from .markup import to_html, to_terminal, to_text
from .reply import (
    Final,
    Step,
    choice_head,
    plain_choice,
    quiet_html,
    tool_run_html,
    tool_runs_text,
)

POLL_S = 0.05
Bundle: TypeAlias = Mapping[str, str]
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

    def flush(self) -> None:
        """Show what is new, if it is time; called at least every 50 ms."""

    def end(self, completion: object | None) -> None:
        """Take the reply: whole, what arrived before it failed, or None."""


def follow(stream: Stream[Whole_co], view: View) -> Whole_co:
    """Show a stream in a view to its end, and return the whole reply.

    The view's `end` is called once, however the stream ends.

    Raises:
        Interrupted: The user stopped it; `partial` is what arrived.
        SvcError: It failed; `partial` is what arrived.
    """
    try:
        while not stream.is_done:
            for item in stream.poll(POLL_S):
                if isinstance(item, Delta):
                    view.show(item)
                else:
                    view.wait(item)
            view.flush()
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


def _publish(bundle: Bundle, display_id: str | None) -> None:
    from IPython.display import display  # noqa: PLC0415 - optional at import

    display(dict(bundle), raw=True, display_id=display_id)


def _update(bundle: Bundle, display_id: str) -> None:
    from IPython.display import update_display  # noqa: PLC0415 - optional at import

    update_display(dict(bundle), display_id=display_id, raw=True)


def _clear(*, wait: bool) -> None:
    from IPython.display import clear_output  # noqa: PLC0415 - optional at import

    clear_output(wait=wait)


def _write(text: str) -> None:
    # A terminal that cannot show a letter shows its number instead of failing.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The output of a cell, or of a terminal.

    Attributes:
        publish: Add an output to the cell; a display id makes it updatable.
        update: Replace the output of that display id, wherever it is.
        clear: Empty the cell when its next output comes.
        erase: Empty the cell now.
        write: Print text that is safe for a terminal.
    """

    publish: Callable[[Bundle, str | None], None] = _publish
    update: Callable[[Bundle, str], None] = _update
    clear: Callable[[], None] = lambda: _clear(wait=True)
    erase: Callable[[], None] = lambda: _clear(wait=False)
    write: Callable[[str], None] = _write


class Screen(StrEnum):
    """Where widgets or bars can be seen."""

    NOTEBOOK = "notebook"
    TERMINAL = "terminal"
    NONE = "none"


def is_terminal() -> bool:
    """Whether the standard error is a terminal; without a console there may be none."""
    return sys.stderr is not None and sys.stderr.isatty()


def find_screen(display: str = "auto") -> Screen:
    """Find out where this cell or program can show more than text, by this setting."""
    if display == "settled":
        return Screen.NONE
    terminal = Screen.TERMINAL if is_terminal() else Screen.NONE
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None or display == "plain":
        return terminal
    content = (shell.get_parent() or {}).get("content", {})
    is_live = display == "live" or content.get("allow_stdin", True)
    return Screen.NOTEBOOK if is_live else Screen.NONE


class Mode(StrEnum):
    """How a reply is shown while it streams.

    `live` updates the notebook; `settled` draws once at the end, so that the outputs
    are the same whenever the notebook is run; `plain` prints, for terminals.
    """

    LIVE = "live"
    SETTLED = "settled"
    PLAIN = "plain"


GAP_S = 0.05  # at most one message to the notebook in this time, on average
MAX_GAP_S = 0.25
# What a table's tags add must not crowd out the reply itself.
MAX_BYTES_PER_S = 30_000
_GAP_S_PER_CHAR = 0.025 / 1000
_FIGURES = re.compile(r"[\d.,:]+")


def _status_html(status: str) -> str:
    return quiet_html(to_text(status)) if status else ""


def block_html(block: Block, *, is_coloured: bool = True) -> str:
    """Draw a finished block; whole code blocks get colours if they are wanted."""
    # Colours need the whole code: a part of it would be read as something else.
    is_whole = not block.is_cut and block.markdown == block.source
    html = to_html(block.markdown, highlight=is_whole and is_coloured)
    # A negative margin cancels the gap below a block that goes on.
    return f"<div style=margin-bottom:-1em>{html}</div>" if block.is_cut else html


class _Shown:
    """What a mode of display can do; this one shows nothing."""

    def add(self, text: str) -> None:
        """Take a piece of the reply."""

    def status(self, text: str) -> None:
        """Set the status line."""

    def hurry(self) -> None:
        """Let the next flush show what is new without waiting its turn."""

    def tool_run(self, step: Step) -> None:
        """Show an answered call below the text so far; text goes on below it."""

    def flush(self, now_s: float) -> None:
        """Show what is new, if it is time."""

    def finish(self, final: Final | None) -> None:
        """Replace everything by the final form, or by nothing."""


class _Settled(_Shown):
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

    def add(self, text: str) -> None:
        if not self._is_late:
            self._pending += text
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

    def _line_break(self) -> str:
        return "" if self._is_at_line_start else "\n"

    def _print(self, text: str) -> None:
        self._is_at_line_start = text.endswith("\n")
        self._output.write(to_terminal(text))


class _Live(_Settled):
    """Updates the notebook at a limited pace."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._blocks = Blocks()
        self._status = ""
        self._is_stale = False
        self._due_at = 0.0

    def add(self, text: str) -> None:
        self._blocks.feed(text)
        self._status = ""
        self._is_stale = True

    def status(self, text: str) -> None:
        self._is_stale |= text != self._status
        self._status = text

    def flush(self, now_s: float) -> None:
        if self._is_stale and now_s >= self._due_at:
            self._is_stale = False
            self._due_at = now_s + self._draw()

    def hurry(self) -> None:
        self._due_at = 0.0

    def _draw(self) -> float:
        """Show what is new; return the seconds until the next time."""
        raise NotImplementedError

    def _tail_html(self) -> str:
        # The tail has no colours: they would change with every piece.
        tail = self._blocks.tail
        return to_html(tail.markdown, highlight=False) if tail.source.strip() else ""


class _LiveCell(_Live):
    """A reply that has the output of its cell to itself.

    It shows finished blocks once and updates only the open tail, so that the bytes
    sent grow with the reply and not with its square. Each output has a number, which
    is added to the display id.
    """

    def __init__(self, output: Output, display_id: str) -> None:
        super().__init__(output)
        self._prefix = display_id
        self._n_outputs = 0
        self._is_open = False  # whether the last output is the tail's

    def tool_run(self, step: Step) -> None:
        self._blocks.feed("\n\n")
        self._status = ""
        self._draw()
        self._show(quiet_html(tool_run_html(step)), tool_runs_text((step,)))
        self._is_open = False

    def finish(self, final: Final | None) -> None:
        if final is None:
            self._output.erase()
            return
        if self._n_outputs:
            self._output.clear()
        self._output.publish(final.bundle(), None)

    def _draw(self) -> float:
        blocks = self._blocks.take()
        n_bytes = 0
        if blocks:
            html = "".join(map(block_html, blocks))
            n_bytes += self._show(html, "".join(b.source for b in blocks))
            self._is_open = False
        html = self._tail_html() + _status_html(self._status)
        if html or self._is_open:
            n_bytes += self._show(html)
            self._is_open = True
        n_messages = bool(blocks) + self._is_open
        return max(GAP_S * n_messages, n_bytes / MAX_BYTES_PER_S)

    def _show(self, html: str, plain: str = "") -> int:
        bundle = {"text/html": f"<div>{html}</div>"}
        if plain:
            bundle["text/plain"] = to_terminal(plain)
        if self._is_open:
            self._output.update(bundle, f"{self._prefix}-{self._n_outputs}")
        else:
            self._n_outputs += 1
            self._output.publish(bundle, f"{self._prefix}-{self._n_outputs}")
        return len(html.encode())


class _LiveDisplay(_Live):
    """A reply in one display among other output.

    It sends the whole text each time, less and less often, and clears nothing.
    """

    def __init__(self, output: Output, display_id: str) -> None:
        super().__init__(output)
        self._display_id = display_id
        self._finished = ""  # HTML; each finished block is rendered once
        self._n_chars = 0
        output.publish({"text/plain": ""}, display_id)

    def add(self, text: str) -> None:
        super().add(text)
        self._n_chars += len(text)

    def tool_run(self, step: Step) -> None:
        self._blocks.feed("\n\n")
        self._take_blocks()
        self._finished += quiet_html(tool_run_html(step))
        self._status = ""
        self._is_stale = True

    def finish(self, final: Final | None) -> None:
        bundle = final.bundle() if final else {"text/plain": ""}
        self._output.update(bundle, self._display_id)

    def _draw(self) -> float:
        self._take_blocks()
        html = self._finished + self._tail_html() + _status_html(self._status)
        self._output.update({"text/html": f"<div>{html}</div>"}, self._display_id)
        return min(GAP_S + _GAP_S_PER_CHAR * self._n_chars, MAX_GAP_S)

    def _take_blocks(self) -> None:
        for block in self._blocks.take():
            self._finished += block_html(block, is_coloured=False)


_VERBATIM_FENCE = "`" * 12 + "\n"  # while it streams; the final form needs none


class ReplyDisplay:
    """One reply while it streams: add to it, then finish it.

    All calls come from one thread; after `finish` they do nothing.
    """

    def __init__(self, shown: _Shown, clock: Callable[[], float]) -> None:
        self._shown = shown
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

        Args:
            mode: How; one of `Mode`.
            own_output: Whether the cell's output belongs to the reply alone and may
                be cleared; else one display is made now and updated.
            is_verbatim: Whether the text is shown as it is, not as Markdown.
            is_late: Whether a terminal waits for the final form, because it differs
                from the text that streams.
            n_texts: How many choices there will be; the first one is streamed.
            output: Where; IPython's display and standard output if None.
            clock: Seconds that only grow.
            display_id: A name no other output has; a new one if None.

        Raises:
            ValueError: `mode` is not a `Mode`.
        """
        output = output or Output()
        name = display_id or f"svc-{uuid4().hex[:12]}"
        shown: _Shown
        match Mode(mode):
            case Mode.LIVE if own_output:
                shown = _LiveCell(output, name)
            case Mode.LIVE:
                shown = _LiveDisplay(output, name)
            case Mode.SETTLED:
                shown = _Settled(output)
            case Mode.PLAIN:
                shown = _Plain(output, n_texts, is_late=is_late)
        if is_verbatim and mode == Mode.LIVE:
            shown.add(_VERBATIM_FENCE)
        return cls(shown, clock)

    def add(self, text: str) -> None:
        """Add a piece of the reply, cut off anywhere; it ends the status line."""
        if text:
            self._shown.add(text)
            self.flush()

    def wait(self, wait: Wait) -> None:
        """Show how long the request waits, and why."""
        self.status(f"waiting {wait.wait_s:.0f} s: {wait.reason}")

    def status(self, text: str, *, is_now: bool = False) -> None:
        """Show a status line in place of the one before.

        Args:
            text: Such as "running weather ..."; "" removes it.
            is_now: Whether to show it at once, because no flush comes for a while.
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

    def flush(self) -> None:
        """Show what is not shown yet, if it is time; call at least every 50 ms."""
        self._shown.flush(self._clock())

    def finish(self, final: Final | None) -> None:
        """Show the final form in place of what was streamed.

        Args:
            final: The reply as it ended, also when it was cut; None removes what was
                shown, as far as the mode allows.
        """
        shown, self._shown = self._shown, _Shown()
        shown.finish(final)

"""Text that grows in a notebook: what is sent, and when.

What it is not: it neither reads a clock nor waits; `stream` passes the time in.

`LiveCell` owns the output of its cell. It shows finished blocks once and
updates only the open tail, so that bytes grow with the reply and not with its
square; at the end the cell is cleared and drawn once. `LiveDisplay` owns one
display among other output: it sends the whole text each time, more and more
rarely, and clears nothing; each finished block is rendered once.

Rules for this file: at most one message in 50 ms on average; the tail is HTML
without colours; whatever is shown comes from `markup` or `reply`.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .blocks import Block, Blocks
from .markup import to_html, to_terminal, to_text
from .reply import QUIET_LINE, Final

Bundle: TypeAlias = Mapping[str, str]


def _publish(bundle: Bundle, display_id: str | None) -> None:
    from IPython.display import display  # noqa: PLC0415 - optional at import

    display(dict(bundle), raw=True, display_id=display_id)


def _update(bundle: Bundle, display_id: str) -> None:
    from IPython.display import update_display  # noqa: PLC0415 - optional at import

    update_display(dict(bundle), display_id=display_id, raw=True)


def _clear() -> None:
    from IPython.display import clear_output  # noqa: PLC0415 - optional at import

    clear_output(wait=True)


def _erase() -> None:
    from IPython.display import clear_output  # noqa: PLC0415 - optional at import

    clear_output()


def _write(text: str) -> None:
    # A terminal that cannot show a letter shows its number instead of failing.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Where text is shown.

    Attributes:
        publish: Add an output to the cell; a display id makes it updatable.
        update: Replace the output of that display id, wherever it is.
        clear: Empty the cell when its next output comes.
        erase: Empty the cell now.
        write: Print text that is safe for a terminal.
    """

    publish: Callable[[Bundle, str | None], None] = _publish
    update: Callable[[Bundle, str], None] = _update
    clear: Callable[[], None] = _clear
    erase: Callable[[], None] = _erase
    write: Callable[[str], None] = _write


GAP_S = 0.05
MAX_GAP_S = 0.25
# What a table's tags add must not crowd out the reply itself.
MAX_BYTES_PER_S = 30_000
_GAP_S_PER_CHAR = 0.025 / 1000


def note_html(note: str) -> str:
    """Draw a status line.

    Args:
        note: What is being waited for; "" for nothing.

    Returns:
        HTML; empty for no note.
    """
    return f'<div style="{QUIET_LINE}">{to_text(note)}</div>' if note else ""


def block_html(block: Block, *, is_coloured: bool = True) -> str:
    """Draw a finished block.

    Args:
        block: As `Blocks` gave it.
        is_coloured: Whether whole code blocks get colours.
    """
    # Colours need the whole code: a part of it would be read as something else.
    is_whole = not block.is_cut and block.markdown == block.source
    html = to_html(block.markdown, highlight=is_whole and is_coloured)
    # A negative margin cancels the gap below a block that goes on.
    return f"<div style=margin-bottom:-1em>{html}</div>" if block.is_cut else html


class LiveCell:
    """A reply that grows in a cell of its own.

    Args:
        screen: Where to show it.
        display_id: A name no other output has; a number is added to it.
    """

    def __init__(self, screen: Screen, display_id: str) -> None:
        self._screen = screen
        self._prefix = display_id
        self._n_outputs = 0
        self._is_open = False  # whether the last output is the tail's
        self._blocks = Blocks()
        self._note = ""
        self._is_stale = False
        self._due_at = 0.0

    def add(self, text: str) -> None:
        """Take a piece of the reply."""
        self._blocks.feed(text)
        self._note = ""
        self._is_stale = True

    def note(self, text: str) -> None:
        """Set the status line."""
        self._is_stale |= text != self._note
        self._note = text

    def flush(self, now_s: float) -> None:
        """Show what is new, if it is time."""
        if not self._is_stale or now_s < self._due_at:
            return
        self._is_stale = False
        n_messages, n_bytes = self._draw()
        self._due_at = now_s + max(GAP_S * n_messages, n_bytes / MAX_BYTES_PER_S)

    def hurry(self) -> None:
        """Let the next flush show what is new without waiting its turn."""
        self._due_at = 0.0

    def step(self, html: str, plain: str) -> None:
        """Show what stays below the text so far; text goes on below it."""
        self._blocks.feed("\n\n")
        self._note = ""
        self._draw()
        self._show(html, plain)
        self._is_open = False

    def settle(self, final: Final | None) -> None:
        """Replace everything by the final form, or by nothing."""
        if final is None:
            self._screen.erase()
            return
        if self._n_outputs:
            self._screen.clear()
        self._screen.publish(final.bundle(), None)

    def _draw(self) -> tuple[int, int]:
        """Send at most two messages; return how many, and their bytes of HTML."""
        blocks = self._blocks.take()
        n_bytes = 0
        if blocks:
            n_bytes += self._show(
                "".join(map(block_html, blocks)), "".join(b.source for b in blocks)
            )
            self._is_open = False
        tail = self._blocks.tail
        html = to_html(tail.markdown, highlight=False) if tail.source.strip() else ""
        html += note_html(self._note)
        if html or self._is_open:
            n_bytes += self._show(html)
            self._is_open = True
        return bool(blocks) + self._is_open, n_bytes

    def _show(self, html: str, plain: str = "") -> int:
        bundle = {"text/html": f"<div>{html}</div>"}
        if plain:
            bundle["text/plain"] = to_terminal(plain)
        if self._is_open:
            self._screen.update(bundle, f"{self._prefix}-{self._n_outputs}")
        else:
            self._n_outputs += 1
            self._screen.publish(bundle, f"{self._prefix}-{self._n_outputs}")
        return len(html.encode())


class LiveDisplay:
    """A reply that grows in one display among other output.

    Args:
        screen: Where to show it; an empty display is made at once.
        display_id: A name no other output has.
    """

    def __init__(self, screen: Screen, display_id: str) -> None:
        self._screen = screen
        self._display_id = display_id
        self._blocks = Blocks()
        self._finished = ""  # HTML
        self._n_chars = 0
        self._note = ""
        self._is_stale = False
        self._due_at = 0.0
        screen.publish({"text/plain": ""}, display_id)

    def add(self, text: str) -> None:
        """Take a piece of the reply."""
        self._blocks.feed(text)
        self._n_chars += len(text)
        self._note = ""
        self._is_stale = True

    def note(self, text: str) -> None:
        """Set the status line."""
        self._is_stale |= text != self._note
        self._note = text

    def flush(self, now_s: float) -> None:
        """Show the whole text, if it is time."""
        if not self._is_stale or now_s < self._due_at:
            return
        self._is_stale = False
        for block in self._blocks.take():
            self._finished += block_html(block, is_coloured=False)
        tail = to_html(self._blocks.tail.markdown, highlight=False)
        html = self._finished + tail + note_html(self._note)
        self._screen.update({"text/html": f"<div>{html}</div>"}, self._display_id)
        gap_s = GAP_S + _GAP_S_PER_CHAR * self._n_chars
        self._due_at = now_s + min(gap_s, MAX_GAP_S)

    def hurry(self) -> None:
        """Let the next flush show what is new without waiting its turn."""
        self._due_at = 0.0

    def step(self, html: str, plain: str) -> None:
        """Show what stays below the text so far; text goes on below it."""
        del plain
        self._blocks.feed("\n\n")
        self._finished += "".join(
            block_html(block, is_coloured=False) for block in self._blocks.take()
        )
        self._finished += html
        self._note = ""
        self._is_stale = True

    def settle(self, final: Final | None) -> None:
        """Put the final form, or nothing, in the same place."""
        bundle = final.bundle() if final else {"text/plain": ""}
        self._screen.update(bundle, self._display_id)

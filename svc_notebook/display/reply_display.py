"""Show one reply in a cell, while it streams and in its final form.

A reply is followed until it ends or is interrupted. It is shown live in a notebook,
settled (once, at its end), or printed in a terminal.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, Self, TypeVar
from uuid import uuid4

from svc_notebook.errors import Interrupted, SvcError
from svc_notebook.service.chunk import Delta

from .escape import to_terminal, to_text
from .front_end import Bundle, Output, as_streamed, fitted_to_terminal
from .growing_markdown import Block, Blocks, block_html, tail_html
from .html_styles import (
    BODY,
    card_html,
    folded_html,
    grid_html,
    quiet_html,
    verbatim_html,
)
from .markdown import link_addresses, load_parser, reply_html, with_line_feeds
from .reply_footer import WAITING, live_html, marks_html, marks_text, titled_reasonings
from .sandboxed_frame import page_html
from .terminal_width import WordWrap
from .tool_runs import (
    Step,
    tool_run_html,
    tool_runs_html,
    tool_runs_text,
)

POLL_S = 0.05  # the longest wait for new text, so that interrupts are noticed soon
Whole_co = TypeVar("Whole_co", covariant=True)


class Wait(Protocol):
    """How long a request is expected to wait, and why."""

    @property
    def wait_s(self) -> float: ...  # noqa: D102 - as the class says
    @property
    def reason(self) -> str: ...  # noqa: D102 - as the class says


class Stream(Protocol[Whole_co]):
    """A reply that streams in, such as a `CompletionStream`."""

    @property
    def is_done(self) -> bool:
        """Whether `poll` has returned everything."""

    @property
    def completion(self) -> Whole_co:
        """The whole reply; raises the error if the stream ended by one."""

    def poll(self, timeout_s: float) -> Sequence[Delta | Wait]:
        """Return the items since the last call; if there are none, wait for some."""

    def cancel(self) -> Whole_co | None:
        """Stop the request and return the part of the reply that arrived."""


class View(Protocol):
    """Shows a stream; raising KeyboardInterrupt in it stops the stream."""

    def show(self, delta: Delta) -> None:
        """Accept new content."""

    def wait(self, wait: Wait) -> None:
        """Accept a wait; the next content ends it."""

    def flush(self) -> float | None:
        """Show new content if it is time; otherwise return the seconds until then.

        It is called again then, and at least every 50 ms.
        """

    def end(self, completion: object | None) -> None:
        """Accept the reply: the whole, the part that arrived, or None."""


def follow(stream: Stream[Whole_co], *views: View) -> Whole_co:
    """Show a stream in views to its end, and return the whole reply.

    The `end` of each view is called once, however the stream ends.

    Raises:
        Interrupted: The user stopped it; `partial` is the part that arrived, or the
            whole reply if it had ended.
        SvcError: The request failed; `partial` is the part that arrived.
    """
    wait_s = POLL_S
    try:
        while not stream.is_done:
            for item in stream.poll(wait_s):
                for view in views:
                    view.show(item) if isinstance(item, Delta) else view.wait(item)
            wait_s = min([view.flush() or POLL_S for view in views] + [POLL_S])
        completion = stream.completion
    except KeyboardInterrupt:
        partial = stream.cancel()
        _end(views, partial)
        raise Interrupted(partial) from None
    except SvcError as error:
        _end(views, error.partial)
        raise
    try:
        _end(views, completion)
    except KeyboardInterrupt:  # the view has shown the end nevertheless
        raise Interrupted(completion) from None
    return completion


def _end(views: Sequence[View], completion: object | None) -> None:
    for view in views:
        view.end(completion)


class Mode(StrEnum):
    """How a reply is shown while it streams.

    `live` updates the notebook; `settled` draws once at the end, so that the outputs
    are the same whenever the notebook is run; `plain` prints, for terminals.
    """

    LIVE = "live"
    SETTLED = "settled"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The final form of a reply in the cell, even if it ended by an error."""

    texts: tuple[str, ...]  # the Markdown of each choice; empty if nothing arrived
    reasonings: tuple[str, ...] = ()  # one for each text; shown folded below them
    footer: str = ""  # one quiet line: model, tokens, seconds
    hint: str = ""  # shown when the mouse rests on the footer
    marks: tuple[str, ...] = ()  # warnings, such as "cut"
    is_verbatim: bool = False  # the texts are shown as they are, not as Markdown
    is_page: bool = False  # the texts are HTML, to be shown in sandboxed frames
    tool_runs: tuple[Step, ...] = ()  # shown folded above the texts

    def with_notes(self, *notes: str) -> "Final":
        """Return a copy with notes at the end of its footer, without empty ones."""
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
        """Return it as `text/html`, and as `text/plain` with the Markdown source."""
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
        parts = [_plain_choice(self.texts, index) for index in range(len(self.texts))]
        if not self.is_verbatim:
            parts = list(map(as_streamed, parts))
        tool_runs = as_streamed(tool_runs_text(self.tool_runs))
        closing = fitted_to_terminal(self.closing_line)
        shown = filter(None, (tool_runs, *parts, closing))
        return "\n\n".join(shown).strip("\n")


def _plain_choice(texts: Sequence[str], index: int) -> str:
    """Return one choice as text that is safe to print, under its number."""
    return _choice_head(index, len(texts)) + to_terminal(texts[index])


def _choice_head(index: int, n_texts: int) -> str:
    """Return the line above one of several choices; empty for the only one."""
    return f"[{index + 1} of {n_texts}]\n" if n_texts > 1 else ""


class _ModeDisplay:
    """The interface of each mode of display; this class itself shows nothing.

    `is_torn` says that an interrupt or an error came in the middle of a call. Then it
    is not known what was shown, only what the service sent.
    """

    is_torn = False

    def add(self, text: str, choice: int = 0) -> None:
        """Take a piece of a choice."""

    def status(self, text: str) -> None:
        """Set the status line."""

    def hurry(self) -> None:
        """Make the next flush show new content, even if it is not time yet."""

    def tool_run(self, step: Step) -> None:
        """Show an answered call below the text so far; further text follows below."""

    def go_below(self) -> None:
        """Show what follows below the outputs that others have added to the cell."""

    def flush(self, now_s: float) -> float | None:
        """Show new content if it is time; otherwise return the seconds until then."""

    def finish(self, final: Final | None) -> None:
        """Replace everything shown by the final form; None removes it."""

    def reopen(self, so_far: str) -> bool:  # noqa: ARG002 - this class shows nothing
        """Continue after the end of a reply, if its outputs can be updated."""
        return False


_NUMBERS = re.compile(r"[\d.,:]+")


class _Settled(_ModeDisplay):
    """Shows one output at the end."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def finish(self, final: Final | None) -> None:
        if final:
            self._output.publish(final.bundle(), None)


class _Plain(_Settled):
    """Prints text; text that was printed is not printed again."""

    def __init__(
        self, output: Output, n_texts: int, *, is_late: bool, is_verbatim: bool
    ) -> None:
        super().__init__(output)
        self._wrap = WordWrap()
        self._is_verbatim = is_verbatim
        self._head = _choice_head(0, n_texts)
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
        # A countdown is printed only once, since printed lines cannot be replaced.
        kind = _NUMBERS.sub("", text)
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
        self._is_verbatim |= bool(final and final.is_verbatim)
        if texts and self._text and texts[0].startswith(self._text):
            # an interrupt may have kept the rest from being printed
            self._pending = texts[0].removeprefix(self._text)
            self.flush(0.0)
        is_printed = bool(texts and self._text == texts[0])
        rest = [_plain_choice(texts, i) for i in range(is_printed, len(texts))]
        closing = fitted_to_terminal(final.closing_line) if final else ""
        gap = "\n" if len(texts) > 1 else ""  # a blank line between choices
        parts = [gap + part for part in rest if part]
        lines = self._line_break() + "".join(f"{part}\n" for part in parts)
        if lines:
            self._print(lines)
        if closing:  # its lines are broken already: a dot stays with its word
            self._output.write(f"{closing}\n")

    def reopen(self, so_far: str) -> bool:
        self._text = so_far  # it was printed in another cell
        self._wrap = WordWrap()
        return True

    def _line_break(self) -> str:
        return "" if self._is_at_line_start else "\n"

    def _print(self, text: str) -> None:
        self._is_at_line_start = text.endswith("\n")
        safe, n_columns = to_terminal(text), self._output.columns()
        if n_columns and not self._is_verbatim:
            safe = self._wrap.add(safe, n_columns)
        self._output.write(safe)


GAP_S = 0.05  # at most one message to the notebook in this time, on average
MAX_GAP_S = 4.0  # even for a long text, so that a reader sees that it continues
ENVELOPE_BYTES = 700  # the size of a message without its content
# Long texts are updated less often, so that a slow connection to the notebook keeps up.
MAX_BYTES_PER_S, MAX_TEXT_BYTES_PER_S = 21_500, 15_000
_SHORT_BYTES, _QUICKER = 4_000, 1.3  # most replies are short, and may update faster
# A reply that comes slowly is shown in larger steps: an update waits until there is one
# byte of new text for each BYTES_PER_TEXT_BYTE bytes of the last update, but at most
# SLOW_GAP_S, or SLOW_GAPS gaps if that is longer. Text beyond that counts for the next
# update, since text arrives in lumps. The final form comes on top of that, with up to
# 12 bytes for each byte of a table.
BYTES_PER_TEXT_BYTE, SLOW_GAP_S, SLOW_GAPS = 29, 0.25, 2
MAX_OUTPUTS = 10  # of one reply, since JupyterLab draws only 50 outputs of a cell
# The characters in the first output; each further output may have more by this factor.
_PART_CHARS, _PART_GROWTH = 1_500, 1.25
_OPEN_CHARS = 400  # more finished text than this moves out of the open output


class _OutputPart:
    """The part of a reply in one output of the cell: blocks and answered tool calls."""

    def __init__(self, *, is_verbatim: bool) -> None:
        self._is_verbatim = is_verbatim
        self.items: list[Block | Step] = []
        self.text_html = ""
        self.plain = ""

    def add(self, item: Block | Step) -> None:
        """Add a finished block, or an answered call."""
        self.items.append(item)
        self.text_html += self._drawn(item, {})
        self.plain += (
            item.source if isinstance(item, Block) else f"{tool_runs_text((item,))}\n\n"
        )

    def join(self, other: "_OutputPart") -> None:
        """Add the content of another part."""
        self.items += other.items
        self.text_html += other.text_html
        self.plain += other.plain

    @property
    def source(self) -> str:
        """The text of its blocks, as it is in the reply."""
        return "".join(item.source for item in self.items if isinstance(item, Block))

    def draw_again(self, links: Mapping[str, object]) -> None:
        """Draw it again, with link addresses that are defined further down."""
        self.text_html = "".join(self._drawn(item, links) for item in self.items)

    def html(self, tail: str = "") -> str:
        """Return its HTML, with the unfinished text below."""
        return self._framed(self.text_html + tail)

    def live_html(self, tail: str, line: str, name: str) -> str:
        """Return its HTML, then the unfinished text and a line.

        The finished part has the class `name`, the rest has `name` with "t", so that
        another output can hide either.
        """
        tag = "span" if self._is_verbatim else "div"
        text = f"<{tag} class={name}>{self.text_html}</{tag}>" * bool(self.text_html)
        if not self._is_verbatim:
            return f"{text}<div class={name}t>{tail}{line}</div>"
        text += f"<span class={name}t>{tail}</span>" * bool(tail)
        return f"{self._framed(text)}<div class={name}t>{line}</div>"

    def _framed(self, text: str) -> str:
        return verbatim_html(text) if self._is_verbatim and text else text

    def _drawn(self, item: Block | Step, links: Mapping[str, object]) -> str:
        if not isinstance(item, Block):
            return quiet_html(tool_run_html(item))
        if self._is_verbatim:
            return to_text(item.source)
        return block_html(item, links=links)


class _LiveOutputs(_ModeDisplay):
    """Updates outputs at a limited pace, by the display id and their number."""

    def __init__(
        self,
        output: Output,
        display_id: str,
        *,
        own_output: bool,
        is_verbatim: bool,
        n_texts: int,
    ) -> None:
        self._pieces: list[list[str]] = [[] for _ in range(n_texts)]
        self._output = output
        self._prefix = display_id
        self._own_output = own_output
        self._is_verbatim = is_verbatim
        self._bytes_per_s = MAX_TEXT_BYTES_PER_S if is_verbatim else MAX_BYTES_PER_S
        self._n_outputs = 0
        # True after an interrupt: then it is not known whether an output was published
        self._is_publishing = False
        self._bundles: dict[int, Bundle] = {}  # the last content of each output
        self._n_messages = self._n_bytes = 0
        self._status = WAITING
        self._is_waiting = self._is_stale = True
        self._due_at, self._slow_gap_s = 0.0, SLOW_GAP_S
        # bytes of text that no update used yet, and how many a slow reply waits for
        self._n_new_bytes = self._n_due_bytes = 0.0
        if not own_output:
            self._show_bundle(1, {"text/plain": ""})

    def add(self, text: str, choice: int = 0) -> None:
        """Take a piece of a choice."""
        if choice < len(self._pieces):  # further choices are shown only at the end
            self._pieces[choice].append(text)
            self._n_new_bytes += len(text.encode(errors="replace"))
            self._mark_stale(is_waiting=False)

    def status(self, text: str) -> None:
        """Set the line below the text."""
        self._is_stale |= text != self._status
        self._status = text
        self._is_waiting |= bool(text)

    def hurry(self) -> None:
        """Make the next flush show new content, even if it is not time yet."""
        self._due_at = self._n_due_bytes = 0.0

    def flush(self, now_s: float) -> float | None:
        """Show new content if it is time; otherwise return the seconds until then."""
        if not self._is_stale:
            return None
        is_slow = self._n_new_bytes < self._n_due_bytes
        due_at = self._due_at + self._slow_gap_s * is_slow
        if now_s < due_at:
            return due_at - now_s
        self._is_stale = False
        self._n_messages = self._n_bytes = 0
        self._draw(live_html(self._status, is_waiting=self._is_waiting))
        load_parser()  # the first time, the request is sent, and the service works
        is_short = self._n_bytes <= _SHORT_BYTES
        bytes_per_s = self._bytes_per_s * (_QUICKER if is_short else 1)
        sending_s = self._n_bytes / bytes_per_s
        gap_s = min(max(GAP_S * self._n_messages, sending_s), MAX_GAP_S)
        self._due_at = now_s + gap_s
        self._slow_gap_s = max(SLOW_GAP_S, min(SLOW_GAPS * gap_s, MAX_GAP_S))
        has_text = any(self._pieces)  # the first words are shown at once
        n_extra_bytes = max(self._n_new_bytes - self._n_due_bytes, 0)
        self._n_due_bytes = has_text * self._n_bytes / BYTES_PER_TEXT_BYTE
        self._n_new_bytes = min(n_extra_bytes, self._n_due_bytes)
        return None

    def _draw(self, line: str) -> None:
        """Show new content, and a line of HTML below it."""
        raise NotImplementedError

    def _mark_stale(self, *, is_waiting: bool) -> None:
        self._status = ""
        self._is_waiting = is_waiting
        self._is_stale = True

    def _show_bundle(self, number: int, bundle: Bundle) -> None:
        """Publish an output, or update it; they are numbered from 1."""
        name = f"{self._prefix}-{number}"
        self._n_messages += 1
        self._n_bytes += ENVELOPE_BYTES + sum(len(t.encode()) for t in bundle.values())
        if number > self._n_outputs:
            self._is_publishing = True
            self._output.publish(bundle, name)
            self._n_outputs, self._is_publishing = number, False
        else:
            self._output.update(bundle, name)
        self._bundles[number] = bundle

    def finish(self, final: Final | None) -> None:
        """Show the final form in place, or remove everything shown."""
        if self._is_publishing and self._own_output:
            # The interrupted output may exist: to publish it again could show it twice.
            self._forget_outputs()
        if not self._n_outputs:
            if final:
                self._show_bundle(1, final.bundle())
            elif self._is_publishing:
                self._output.erase()
        elif final is not None:
            self._end(final)
        elif self._own_output:
            self._output.erase()
        else:
            for number in range(1, self._n_outputs + 1):
                self._show_bundle(number, {"text/plain": ""})

    def _end(self, final: Final) -> None:
        """Show the final form in place."""
        self._show_bundle(1, final.bundle())

    def _replace(self, final: Final) -> None:
        """Show the final form in place of several outputs; it cannot be reopened."""
        self._forget_outputs()
        self._show_bundle(1, final.bundle())
        self._n_outputs = 0

    def _forget_outputs(self) -> None:
        """Make the next output replace all outputs of the cell."""
        self._output.clear()
        self._n_outputs = 0
        self._bundles.clear()


class _LiveChoices(_LiveOutputs):
    """Several choices side by side in one output, as in the final form."""

    def _draw(self, line: str) -> None:
        texts = tuple(map("".join, self._pieces)) if any(self._pieces) else ()
        shown = Final(texts=texts, is_verbatim=self._is_verbatim)
        self._show_bundle(1, {"text/html": shown.bundle()["text/html"] + line})


def _hiding(name: str) -> str:
    """Return a style that hides a class in another output, until that is updated.

    Text moves from one output to another in two messages, and the page may be painted
    between them. So the first message hides the text at its old place.
    """
    return f"<style>.{name}{{display:none}}</style>"


class _LiveText(_LiveOutputs):
    """One reply in a few outputs.

    The last output is the open one. It shows the unfinished block, and finished blocks
    until there are enough of them to move to the output above. So the number of bytes
    sent is proportional to the reply and not to its square, and text that was drawn
    does not move on the page.
    """

    def __init__(
        self, output: Output, display_id: str, *, own_output: bool, is_verbatim: bool
    ) -> None:
        super().__init__(
            output,
            display_id,
            own_output=own_output,
            is_verbatim=is_verbatim,
            n_texts=1,
        )
        self._max_outputs = MAX_OUTPUTS if own_output else 1
        self._blocks = Blocks(is_verbatim=is_verbatim)
        self._above: list[_OutputPart] = []
        self._open = _OutputPart(is_verbatim=is_verbatim)
        self._shown_calls: list[str] = []
        self._n_moves = 0
        self._n_fixed = 0  # outputs above those of others: nothing moves up to them

    def add(self, text: str, choice: int = 0) -> None:
        """Take a piece of the only choice."""
        super().add(text, choice)
        if choice == 0:
            self._blocks.feed(text)

    def tool_run(self, step: Step) -> None:
        """Show an answered call below the text so far."""
        self._blocks.feed("\n\n")
        self._take_blocks()
        self._open.add(step)
        self._shown_calls.append(step.call_id)
        self._mark_stale(is_waiting=True)

    def go_below(self) -> None:
        """Leave what is shown in its output, and open another one below."""
        if len(self._above) + 1 >= MAX_OUTPUTS:
            return
        self._blocks.feed("\n\n")
        self._take_blocks()
        self._above.append(self._open)
        self._n_fixed = len(self._above)
        self._max_outputs = max(self._max_outputs, self._n_fixed + 1)
        self._open = _OutputPart(is_verbatim=self._is_verbatim)
        self._n_moves += 1
        self._show_part(self._n_fixed)
        self._mark_stale(is_waiting=True)

    def _draw(self, line: str) -> None:
        old_name = self._name
        # Only blocks that the last message showed move up, so that no text disappears.
        moved = self._move_up() if len(self._open.plain) > _OPEN_CHARS else None
        self._take_blocks()
        tail = self._blocks.tail
        text = to_text(tail.source) if self._is_verbatim else tail_html(tail)
        html = (
            self._open.html(text) + line
            if self._max_outputs == 1
            else self._open.live_html(text, line, self._name)
        )
        number = len(self._above) + 1
        if moved is None:
            self._show(number, html)
        elif moved == self._n_outputs:
            self._show(number, _hiding(f"{old_name}t") + html)
            for part_number in range(max(moved - 1, 1), moved + 1):
                self._show_part(part_number)
        else:
            self._show_part(moved, _hiding(old_name))
            self._show(number, html)

    @property
    def _name(self) -> str:
        """The CSS class of the open output's content, until something moves up."""
        return f"svc-{self._prefix[-6:]}-{self._n_moves}"

    def _take_blocks(self) -> None:
        for block in self._blocks.take():
            self._open.add(block)

    def _move_up(self) -> int | None:
        """Move the finished blocks of the open output up; return their output's number.

        They join the output above. If that one is full, they keep the open output, and
        another output is opened.
        """
        n_above = len(self._above)
        above = self._above[-1] if n_above > self._n_fixed else None
        n_chars = len(self._open.plain) + (len(above.plain) if above else 0)
        is_full = above is None or n_chars > _PART_CHARS * _PART_GROWTH**n_above
        if is_full and n_above + 1 < self._max_outputs:
            self._above.append(self._open)
        elif above is None:
            return None
        else:
            above.join(self._open)
        self._open = _OutputPart(is_verbatim=self._is_verbatim)
        self._n_moves += 1
        return len(self._above)

    def _show_part(self, number: int, style: str = "") -> None:
        part = self._above[number - 1]
        self._show(number, style + part.html(), part.plain)

    def _show(self, number: int, html: str, plain: str = "") -> None:
        bundle = {"text/html": f"{BODY}{html}</div>"}
        if plain:
            bundle["text/plain"] = to_terminal(plain)
        if bundle != self._bundles.get(number):
            self._show_bundle(number, bundle)

    def reopen(self, so_far: str) -> bool:
        """Continue after the end in the present outputs; see `_ModeDisplay`."""
        is_shown = 0 < self._n_outputs == len(self._above) + 1
        if not is_shown or self.is_torn or "".join(self._pieces[0]) != so_far:
            return False
        self._own_output, self._max_outputs = False, self._n_outputs
        self._mark_stale(is_waiting=True)
        self.hurry()
        return True

    def _end(self, final: Final) -> None:
        is_whole = self._is_drawn(final) or self._draw_from(final)
        if not is_whole and self._n_fixed:
            self._show_below(final)
        elif not is_whole and self._n_outputs > 1:
            self._replace(final)
        elif is_whole and (self._above or self._shown_calls):
            self._close(final)
        else:
            super()._end(final)

    def _show_below(self, final: Final) -> None:
        """Show the final form in the last output, and leave the others empty."""
        for number in range(1, self._n_outputs):
            self._show_bundle(number, {"text/plain": ""})
        self._show_bundle(self._n_outputs, final.bundle())
        self._n_outputs = 0  # it cannot be reopened

    def _draw_from(self, final: Final) -> bool:
        """Draw the final text in the present outputs; return False if that fails.

        An interrupt can lose text, or leave it in two outputs. Outputs with the right
        text are kept, and the rest is drawn below.
        """
        if not self._is_in_form(final) or self._shown_calls:
            return False
        text, at_char = with_line_feeds("".join(final.texts)), 0
        above: list[_OutputPart] = []
        for part in self._above:
            if not (part.source and text.startswith(part.source, at_char)):
                break
            above.append(_OutputPart(is_verbatim=self._is_verbatim))
            for item in part.items:
                above[-1].add(item)
            at_char += len(part.source)
        if self._n_outputs > len(above) + 1:
            return False
        self._above, self._pieces = above, [["".join(final.texts)]]
        self._open = _OutputPart(is_verbatim=self._is_verbatim)
        self._blocks = Blocks(is_verbatim=self._is_verbatim)
        self._blocks.feed(text[at_char:])
        self.is_torn = False
        return True

    def _is_drawn(self, final: Final) -> bool:
        """Whether the text that streamed is the final text, in the final form."""
        if self.is_torn or not self._is_in_form(final):
            return False
        return "".join(self._pieces[0]).split() == " ".join(final.texts).split()

    def _is_in_form(self, final: Final) -> bool:
        return not final.is_page and final.is_verbatim == self._is_verbatim

    def _close(self, final: Final) -> None:
        """Add footer and other tool calls to the open output; draw links in all."""
        self._take_blocks()
        links = {} if self._is_verbatim else link_addresses("".join(self._pieces[0]))
        for number, part in enumerate(self._above, start=1):
            if links:
                part.draw_again(links)
            self._show_part(number)
        last, tail = _OutputPart(is_verbatim=self._is_verbatim), self._blocks.tail
        last.join(self._open)
        last.add(Block(tail.source, tail.markdown))
        for step in final.tool_runs:
            if step.call_id not in self._shown_calls:
                last.add(step)
        if links:
            last.draw_again(links)
        html = last.html() + final.closing_html
        plain = f"{last.plain.rstrip()}\n\n{final.closing_line}"
        self._show(len(self._above) + 1, html, plain.strip("\n"))


class ReplyDisplay:
    """Shows one reply while it streams: call `add` for each piece, then `finish`.

    All calls must come from one thread; after `finish` they do nothing.
    """

    def __init__(self, shown: _ModeDisplay, clock: Callable[[], float]) -> None:
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

        Args:
            mode: How the reply is shown while it streams.
            own_output: Whether the cell shows nothing else, so that its output may be
                cleared. If not, one display is created now, and updated.
            is_verbatim: Whether the text is shown as written, not as Markdown.
            is_late: Whether a terminal prints only the final form, since it differs
                from the text that streams.
            n_texts: How many choices the reply has.
            output: Where the reply is shown; None is the running cell or the terminal.
            clock: Returns the time in seconds.
            display_id: The beginning of the ids of its outputs; None makes a new one.
        """
        output = output or Output()
        name = display_id or f"svc-{uuid4().hex[:12]}"
        shown: _ModeDisplay
        match Mode(mode):
            case Mode.LIVE if n_texts > 1:
                shown = _LiveChoices(
                    output,
                    name,
                    own_output=own_output,
                    is_verbatim=is_verbatim,
                    n_texts=n_texts,
                )
            case Mode.LIVE:
                shown = _LiveText(
                    output, name, own_output=own_output, is_verbatim=is_verbatim
                )
            case Mode.SETTLED:
                shown = _Settled(output)
            case Mode.PLAIN:
                shown = _Plain(
                    output, n_texts, is_late=is_late, is_verbatim=is_verbatim
                )
        return cls(shown, clock)

    def add(self, text: str, choice: int = 0) -> None:
        """Add a piece of a choice, of any length; it removes the status line."""
        if text:
            with self._noting_interrupts():
                self._shown.add(text, choice)
            self.flush()

    def wait(self, wait: Wait) -> None:
        """Show how long the request still waits, and why."""
        is_over = round(wait.wait_s) < 1
        self.status("" if is_over else f"waiting {wait.wait_s:.0f} s: {wait.reason}")

    def status(self, text: str, *, is_now: bool = False) -> None:
        """Show a status line in place of the one before; "" removes it.

        Set `is_now` if no flush will follow soon.
        """
        with self._noting_interrupts():
            self._shown.status(text)
        if is_now:
            self._shown.hurry()
        self.flush()

    def tool_run(self, step: Step) -> None:
        """Show a tool call that was answered, below the text so far."""
        with self._noting_interrupts():
            self._shown.tool_run(step)
        self._shown.hurry()
        self.flush()

    def go_below(self) -> None:
        """Show what follows below what others have shown, such as a question."""
        with self._noting_interrupts():
            self._shown.go_below()

    def flush(self) -> float | None:
        """Show new content if it is time; otherwise return the seconds until then.

        Call it at least every 50 ms.
        """
        with self._noting_interrupts():
            return self._shown.flush(self._clock())

    def finish(self, final: Final | None) -> None:
        """Show the final form in place of the streamed text; None removes the text.

        An interrupt is raised only after the final form is shown.
        """
        shown, self._shown = self._shown, _ModeDisplay()
        try:
            shown.finish(final)
        except KeyboardInterrupt:
            shown.is_torn = True
            shown.finish(final)
            raise

    @contextmanager
    def _noting_interrupts(self) -> Iterator[None]:
        """Set `is_torn` if the call inside is interrupted or fails."""
        try:
            yield
        except BaseException:
            self._shown.is_torn = True
            raise

    def reopen(self, so_far: str) -> bool:
        """Continue a finished reply in its outputs; return False if that fails.

        Args:
            so_far: The text of the reply, to which more will be added.
        """
        if not self._ended.reopen(so_far):
            return False
        self._shown = self._ended
        return True

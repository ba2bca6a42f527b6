"""A reply that streams into the outputs of a notebook cell: its pace, its outputs."""

from collections.abc import Mapping

from .cell_output import Bundle, Output, Shown
from .escape import to_terminal, to_text
from .final_reply import Final
from .footer import WAITING, live_html
from .html_styles import BODY, quiet_html, verbatim_html
from .markdown import Block, Blocks, block_html, link_addresses, tail_html
from .tool_runs import Step, tool_run_html, tool_runs_text

GAP_S = 0.05  # at most one message to the notebook in this time, on average
MAX_GAP_S = 4.0  # however long the text, a reader sees that it goes on
ENVELOPE_BYTES = 700  # of each message, besides its content
# The pace falls for long texts, so that a slow connection to the notebook keeps up.
MAX_BYTES_PER_S, MAX_TEXT_BYTES_PER_S = 22_000, 15_000
_SHORT_BYTES, _QUICKER = 4_000, 1.3  # most replies are short, and then move smoothly
MAX_OUTPUTS = 10  # of one reply: JupyterLab draws 50 outputs of a cell
# So many characters are in an output; each next one may have more, without end.
_PART_CHARS, _PART_GROWTH = 1_500, 1.25
_OPEN_CHARS = 400  # finished text in the open output; more moves up


class OutputPart:
    """What one output of the cell shows of a reply: blocks and answered tool calls."""

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

    def join(self, other: "OutputPart") -> None:
        """Add what another part has."""
        self.items += other.items
        self.text_html += other.text_html
        self.plain += other.plain

    def draw_again(self, links: Mapping[str, object]) -> None:
        """Draw it with the addresses of links that were written further down."""
        self.text_html = "".join(self._drawn(item, links) for item in self.items)

    def html(self, tail: str = "") -> str:
        """Return its HTML, with the unfinished text below."""
        text = self.text_html + tail
        return verbatim_html(text) if self._is_verbatim and text else text

    def _drawn(self, item: Block | Step, links: Mapping[str, object]) -> str:
        if not isinstance(item, Block):
            return quiet_html(tool_run_html(item))
        if self._is_verbatim:
            return to_text(item.source)
        return block_html(item, links=links)


class LiveOutputs(Shown):
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
        self._n_messages = self._n_bytes = 0
        self._status = WAITING
        self._is_waiting = self._is_stale = True
        self._due_at = 0.0
        if not own_output:
            self._show_bundle(1, {"text/plain": ""})

    def add(self, text: str, choice: int = 0) -> None:
        """Take a piece of a choice."""
        if choice < len(self._pieces):  # else it shows at the end
            self._pieces[choice].append(text)
            self._news(is_waiting=False)

    def status(self, text: str) -> None:
        """Set the line below the text."""
        self._is_stale |= text != self._status
        self._status = text
        self._is_waiting |= bool(text)

    def hurry(self) -> None:
        """Let the next flush show what is new at once."""
        self._due_at = 0.0

    def flush(self, now_s: float) -> float | None:
        """Show what is new, if it is time; else return the seconds until then."""
        if not self._is_stale:
            return None
        if now_s < self._due_at:
            return self._due_at - now_s
        self._is_stale = False
        self._n_messages = self._n_bytes = 0
        self._draw(live_html(self._status, is_waiting=self._is_waiting))
        is_short = self._n_bytes <= _SHORT_BYTES
        bytes_per_s = self._bytes_per_s * (_QUICKER if is_short else 1)
        sending_s = self._n_bytes / bytes_per_s
        gap_s = max(GAP_S * self._n_messages, sending_s)
        self._due_at = now_s + min(gap_s, MAX_GAP_S)
        return None

    def _draw(self, line: str) -> None:
        """Show what is new, and a line of HTML below it."""
        raise NotImplementedError

    def _news(self, *, is_waiting: bool) -> None:
        self._status = ""
        self._is_waiting = is_waiting
        self._is_stale = True

    def _show_bundle(self, number: int, bundle: Bundle) -> None:
        """Publish an output, or update it; they are numbered from 1."""
        name = f"{self._prefix}-{number}"
        self._n_messages += 1
        self._n_bytes += ENVELOPE_BYTES + sum(len(t.encode()) for t in bundle.values())
        if number > self._n_outputs:
            self._n_outputs = number
            self._output.publish(bundle, name)
        else:
            self._output.update(bundle, name)

    def finish(self, final: Final | None) -> None:
        """Show the final form in place, or remove what was shown."""
        if not self._n_outputs:
            if final:
                self._show_bundle(1, final.bundle())
        elif final is not None:
            self._end(final)
        elif self._own_output:
            self._output.erase()
        else:
            self._show_bundle(1, {"text/plain": ""})

    def _end(self, final: Final) -> None:
        """Show the final form in place."""
        self._show_bundle(1, final.bundle())

    def _replace(self, final: Final) -> None:
        """Show the final form in place of several outputs; it cannot be updated."""
        self._output.clear()
        self._output.publish(final.bundle(), None)
        self._n_outputs = 0


class LiveChoices(LiveOutputs):
    """Several choices side by side in one output, as in the final form."""

    def _draw(self, line: str) -> None:
        texts = tuple(map("".join, self._pieces)) if any(self._pieces) else ()
        shown = Final(texts=texts, is_verbatim=self._is_verbatim)
        self._show_bundle(1, {"text/html": shown.bundle()["text/html"] + line})


class LiveText(LiveOutputs):
    """One reply in a few outputs.

    The last output is the open one. It shows the unfinished block, and finished blocks
    until there are enough of them to join the output above. So the bytes sent grow with
    the reply and not with its square, and what was drawn stays where it is.
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
        self._above: list[OutputPart] = []
        self._open = OutputPart(is_verbatim=is_verbatim)
        self._shown_calls: list[str] = []

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
        self._news(is_waiting=True)

    def _draw(self, line: str) -> None:
        self._take_blocks()
        moved = self._move_up() if len(self._open.plain) > _OPEN_CHARS else None
        tail = self._blocks.tail
        text = to_text(tail.source) if self._is_verbatim else tail_html(tail)
        html = self._open.html(text) + line
        # In this order nothing that is read disappears in between.
        is_new_below = moved == self._n_outputs
        if moved and not is_new_below:
            self._show_part(moved)
        self._show(len(self._above) + 1, html)
        if moved and is_new_below:
            self._show_part(moved)

    def _take_blocks(self) -> None:
        for block in self._blocks.take():
            self._open.add(block)

    def _move_up(self) -> int | None:
        """Move the finished blocks of the open output up; return that output's number.

        They join the output above, or, where that one is full, the open output becomes
        theirs and another one opens.
        """
        n_above = len(self._above)
        above = self._above[-1] if self._above else None
        n_chars = len(self._open.plain) + (len(above.plain) if above else 0)
        is_full = above is None or n_chars > _PART_CHARS * _PART_GROWTH**n_above
        if is_full and n_above + 1 < self._max_outputs:
            self._above.append(self._open)
        elif above is None:
            return None
        else:
            above.join(self._open)
        self._open = OutputPart(is_verbatim=self._is_verbatim)
        return len(self._above)

    def _show_part(self, number: int) -> None:
        part = self._above[number - 1]
        self._show(number, part.html(), part.plain)

    def _show(self, number: int, html: str, plain: str = "") -> None:
        bundle = {"text/html": f"{BODY}{html}</div>"}
        if plain:
            bundle["text/plain"] = to_terminal(plain)
        self._show_bundle(number, bundle)

    def reopen(self, so_far: str) -> bool:
        """Go on after the end, in the outputs that there are; see `Shown`."""
        if not self._n_outputs or "".join(self._pieces[0]) != so_far:
            return False
        self._own_output, self._max_outputs = False, self._n_outputs
        self._news(is_waiting=True)
        self.hurry()
        return True

    def _end(self, final: Final) -> None:
        if not self._is_drawn(final) and self._n_outputs > 1:
            self._replace(final)
        elif self._is_drawn(final) and (self._above or self._shown_calls):
            self._close(final)
        else:
            super()._end(final)

    def _is_drawn(self, final: Final) -> bool:
        """Whether what streamed is the final text, in the final form."""
        if final.is_page or final.is_verbatim != self._is_verbatim:
            return False
        return "".join(self._pieces[0]).split() == " ".join(final.texts).split()

    def _close(self, final: Final) -> None:
        """Add to the open output what the final form has more."""
        self._take_blocks()
        links = {} if self._is_verbatim else link_addresses("".join(self._pieces[0]))
        if links:
            for number, part in enumerate(self._above, start=1):
                part.draw_again(links)
                self._show_part(number)
        last, tail = OutputPart(is_verbatim=self._is_verbatim), self._blocks.tail
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

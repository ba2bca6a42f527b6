"""A reply on its way, in finished blocks and tails, and when to send them.

What it is not: it reads no clock and sends nothing. Rules: pure but for what it holds;
a finished block is given once; at most 20 messages a second, and bytes that grow with
the reply and not with its square.
"""

from typing import Any

from svc_notebook.display.blocks import Blocks
from svc_notebook.display.live import GAP_S, block_html
from svc_notebook.display.markup import to_html

MAX_TAIL_BYTES = 448
MAX_BYTES_PER_S = 12_000
ENVELOPE_BYTES = 600  # what a message costs besides what it says


class Growth:
    """One choice that grows.

    Args:
        so_far: Text that stood there before.
    """

    def __init__(self, so_far: str = "") -> None:
        self._blocks = Blocks(max_tail_bytes=MAX_TAIL_BYTES)
        self._blocks.feed(so_far)
        self._finished: list[str] = []
        self._tail = ""
        self._is_new = bool(so_far)

    @property
    def is_new(self) -> bool:
        """Whether there is something that was not taken yet."""
        return self._is_new

    def feed(self, text: str) -> None:
        """Add a piece of the reply."""
        self._blocks.feed(text)
        self._is_new |= bool(text)

    def take(self) -> tuple[str, str]:
        """Return the HTML of blocks that became finished, and that of the tail."""
        self._is_new = False
        html = "".join(map(block_html, self._blocks.take()))
        if html:
            self._finished.append(html)
        tail = self._blocks.tail
        self._tail = (
            to_html(tail.markdown, highlight=False) if tail.source.strip() else ""
        )
        return html, self._tail

    @property
    def drawn(self) -> dict[str, str]:
        """What was taken so far, as a whole."""
        return {"html": "".join(self._finished), "tail": self._tail}


class Growths:
    """The choices of a reply, and the pace at which they are sent.

    Args:
        so_far: Text of the first choice that stood there before.
    """

    def __init__(self, so_far: str = "") -> None:
        self._by_choice: dict[int, Growth] = {0: Growth(so_far)}
        self._due_at_s = 0.0

    def feed(self, choice: int, text: str) -> None:
        """Add a piece of a choice."""
        self._by_choice.setdefault(choice, Growth()).feed(text)

    def take(self, now_s: float, *, is_last: bool = False) -> list[dict[str, Any]]:
        """Return the messages to send now, if it is time.

        Args:
            now_s: Seconds that only grow.
            is_last: Whether to take everything, whatever the time.
        """
        if now_s < self._due_at_s and not is_last:
            return []
        messages: list[dict[str, Any]] = []
        for choice, growth in sorted(self._by_choice.items()):
            if growth.is_new:
                html, tail = growth.take()
                messages.append(
                    {"t": "delta", "choice": choice, "html": html, "tail": tail}
                )
        n_bytes = sum(
            ENVELOPE_BYTES + len(each["html"].encode()) + len(each["tail"].encode())
            for each in messages
        )
        self._due_at_s = now_s + max(GAP_S * len(messages), n_bytes / MAX_BYTES_PER_S)
        return messages

    @property
    def drawn(self) -> list[dict[str, str]]:
        """All choices as sent so far, in order."""
        n_choices = max(self._by_choice) + 1
        empty = {"html": "", "tail": ""}
        return [
            self._by_choice[at].drawn if at in self._by_choice else empty
            for at in range(n_choices)
        ]

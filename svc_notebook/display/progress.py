"""Progress of work that has several parts, one bar each.

What it is not: it measures nothing; it is told. In a notebook bars are widgets, in a
terminal text, and where nobody watches there are none, so that a notebook's outputs
are the same whenever it is run. Rules: drawing never stops the work: what fails to
draw is not drawn; at most some updates a second.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .markup import to_terminal

GAP_S = 0.25
_FORMAT = "{desc} {n_fmt}/{total_fmt} |{bar}| {unit}"  # tqdm's postfix has a comma


class Watched(StrEnum):
    """Who watches."""

    NOTEBOOK = "notebook"
    TERMINAL = "terminal"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How far one part of the work is.

    Attributes:
        name: Of the part.
        n_done: How many are done, of n_total.
        n_total: How many there are.
        note: What else is to be known, in a few words.
        is_bad: Whether something went wrong.
    """

    name: str
    n_done: int
    n_total: int
    note: str = ""
    is_bad: bool = False


def watched(display: str = "auto") -> Watched:
    """Find out who watches this cell or program.

    Args:
        display: auto; or live, settled or plain, as the user said.
    """
    if display == "settled":
        return Watched.NOBODY
    terminal = Watched.TERMINAL if sys.stderr.isatty() else Watched.NOBODY
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None or display == "plain":
        return terminal
    content = (shell.get_parent() or {}).get("content", {})
    is_live = display == "live" or content.get("allow_stdin", True)
    return Watched.NOTEBOOK if is_live else Watched.NOBODY


class Bars:
    """Bars, one a part, in the order in which the parts are first told.

    Args:
        where: Who watches.
        clock: Seconds that only grow.
    """

    def __init__(
        self, where: Watched, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._where = where
        self._clock = clock
        self._drawn_s = float("-inf")
        self._is_over = False
        self._bars: dict[str, Any] = {}

    def show(self, parts: Sequence[Part], *, is_last: bool = False) -> None:
        """Show how far the parts are, if it is time.

        Args:
            parts: All of them.
            is_last: Whether nothing will change any more: shown in any case, and
                then the bars are left as they are, whatever comes after.
        """
        now_s = self._clock()
        is_early = now_s - self._drawn_s < GAP_S and not is_last
        if self._where is Watched.NOBODY or self._is_over or is_early:
            return
        self._drawn_s = now_s
        self._is_over = is_last
        try:
            for at, part in enumerate(parts):
                self._draw(part, at)
            if is_last:
                self.close()
        except Exception:  # noqa: BLE001 - a bar is no reason to stop paid work
            self._where = Watched.NOBODY

    def close(self) -> None:
        """Leave the bars as they are."""
        bars, self._bars = self._bars, {}
        for bar in bars.values():
            with suppress(Exception):
                bar.close()

    def _draw(self, part: Part, at: int) -> None:
        bar = self._bars.get(part.name)
        if bar is None:
            bar = self._bars[part.name] = self._made(part, at)
        bar.n = part.n_done
        bar.total = part.n_total
        bar.unit = to_terminal(part.note)
        if self._where is Watched.NOTEBOOK and part.is_bad:
            bar.colour = "orange"
        bar.refresh()

    def _made(self, part: Part, at: int) -> Any:  # noqa: ANN401 - tqdm's two kinds
        # tqdm is heavy with widgets: it is loaded when there is something to draw
        make: Callable[..., Any]
        if self._where is Watched.NOTEBOOK:
            from tqdm.notebook import tqdm_notebook  # noqa: PLC0415

            make = tqdm_notebook
        else:
            from tqdm.std import tqdm  # noqa: PLC0415

            make = tqdm
        bar: Any = make(
            initial=part.n_done,
            total=part.n_total,
            desc=to_terminal(part.name),
            position=at,
            bar_format=_FORMAT,
            unit="",
            leave=True,
        )
        if self._where is Watched.NOTEBOOK:
            for text in bar.container.children[::2]:
                text.layout.flex = "0 0 auto"  # it is the bar that gives way
        return bar

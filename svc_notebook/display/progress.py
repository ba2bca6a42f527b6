"""Progress bars: widgets in a notebook, text in a terminal, none elsewhere.

An error while drawing only ends the drawing, never the work.
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


class Screen(StrEnum):
    """Where progress is visible."""

    NOTEBOOK = "notebook"
    TERMINAL = "terminal"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The progress of one part of the work, with a few words at the end of the line."""

    name: str
    n_done: int
    n_total: int
    note: str = ""
    is_bad: bool = False


def find_screen(display: str = "auto") -> Screen:
    """Find out where this cell or program can show progress, by this setting."""
    if display == "settled":
        return Screen.NONE
    terminal = Screen.TERMINAL if sys.stderr.isatty() else Screen.NONE
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module else None
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None or display == "plain":
        return terminal
    content = (shell.get_parent() or {}).get("content", {})
    is_live = display == "live" or content.get("allow_stdin", True)
    return Screen.NOTEBOOK if is_live else Screen.NONE


class Bars:
    """One bar for each part, in the order in which they first appear."""

    def __init__(
        self, where: Screen, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._where = where
        self._clock = clock
        self._drawn_s = float("-inf")
        self._is_over = False
        self._bars: dict[str, Any] = {}

    def show(self, parts: Sequence[Part], *, is_last: bool = False) -> None:
        """Draw all parts, a few times a second at most; the last ones in any case."""
        now_s = self._clock()
        is_early = now_s - self._drawn_s < GAP_S and not is_last
        if self._where is Screen.NONE or self._is_over or is_early:
            return
        self._drawn_s = now_s
        self._is_over = is_last
        try:
            for at, part in enumerate(parts):
                self._draw(part, at)
            if is_last:
                self.close()
        except Exception:  # noqa: BLE001 - a bar must not stop paid work
            self._where = Screen.NONE

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
        if self._where is Screen.NOTEBOOK and part.is_bad:
            bar.colour = "orange"
        bar.refresh()

    def _made(self, part: Part, at: int) -> Any:  # noqa: ANN401 - tqdm's two kinds
        # tqdm loads its widgets, which takes time: only when there is something to draw
        make: Callable[..., Any]
        if self._where is Screen.NOTEBOOK:
            from tqdm.notebook import tqdm_notebook as make  # noqa: PLC0415
        else:
            from tqdm.std import tqdm as make  # noqa: PLC0415
        bar: Any = make(
            initial=part.n_done,
            total=part.n_total,
            desc=to_terminal(part.name),
            position=at,
            bar_format=_FORMAT,
            unit="",
            leave=True,
        )
        if self._where is Screen.NOTEBOOK:
            for text in bar.container.children[::2]:
                text.layout.flex = "0 0 auto"  # it is the bar that gives way
        return bar

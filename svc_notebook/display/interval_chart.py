"""Charts of values with their intervals on one axis, in HTML or in characters.

Names and numbers are text in both, so that they remain readable where a host drops
drawings, as it does in untrusted notebooks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, isnan, log10, nan

from .escape import to_terminal, to_text, visible
from .html_styles import QUIET_LINE, quiet_html
from .terminal_width import fitted, padded, width

_LINE_COLUMNS = 79  # of a terminal
_CHART_COLUMNS = 29
_GAPS = 6  # columns between name, chart and numbers
_PAD = 0.06  # the margin at both ends of the axis, as a share of its length
_MOST_TICKS = 4
_CELL = "border:0;padding:.15em 0;text-align:left;vertical-align:middle"
_NAME = f"{_CELL};padding-right:1em;overflow-wrap:anywhere;min-width:7em;max-width:22em"
_CHART = f"{_CELL};padding:0;width:22em;min-width:7em;position:relative"
_NUMBERS = f"{_CELL};padding-left:1.2em"
# as high as its row, so that the lines of all rows join
_SVG = "position:absolute;inset:0;width:100%;height:100%;overflow:visible"
_TABLE = "border-collapse:collapse;margin:.2em 0 .5em;font-size:inherit"
# these have enough contrast on white and on black
_COLOUR = "#3b82c4"
_BAND = "#d96c23"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its interval; NaN where a number is not known."""

    name: str
    value: float
    low: float = nan
    high: float = nan
    numbers: str = ""  # the numbers as text, shown next to the drawing
    is_clear: bool = True  # drawn as a filled point, else as a hollow one
    title: str = ""  # written once, above all intervals with the same title


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """Values on one axis.

    Attributes:
        intervals: The values with their intervals, from top to bottom.
        origin: Where a line is drawn, such as 0 for no difference; None for no line.
        band: The ends of a coloured band, such as those of a margin.
        limits: The ends of the axis; None fits the axis to the values.
        scale: The factor from values to the numbers of the axis: 100 for percent.
        unit: The unit of the numbers of the axis.
    """

    intervals: Sequence[Interval]
    origin: float | None = None
    band: tuple[float, float] | None = None
    limits: tuple[float, float] | None = None
    scale: float = 1.0
    unit: str = ""

    def html(self) -> str:
        """Return the chart as an HTML table, with a drawing in each row."""
        axis = self.axis()
        rows: list[str] = []
        title = ""
        for interval in self.intervals:
            if interval.title != title:
                title = interval.title
                rows.append(_title_row(title))
            rows.append(self._row(interval, axis))
        if axis is not None:
            rows.append(self._tick_row(axis))
        return (
            f'<div style=overflow-x:auto><table style="{_TABLE}"><tbody>'
            f"{''.join(rows)}</tbody></table></div>"
        )

    def text(self) -> str:
        """Return the chart in characters, in lines of at most 80 columns."""
        axis = self.axis()
        names = [to_terminal(_in_a_line(row.name)) for row in self.intervals]
        numbers = [to_terminal(_in_a_line(row.numbers)) for row in self.intervals]
        n_columns = max(map(width, names), default=0)
        widest = n_columns + _CHART_COLUMNS + max(map(width, numbers), default=0)
        is_narrow = widest + _GAPS <= _LINE_COLUMNS  # else names get separate lines
        n_columns = n_columns if is_narrow else 2
        lines = []
        title = ""
        for interval, name, text in zip(self.intervals, names, numbers, strict=True):
            if interval.title != title:
                title = interval.title
                lines.append(fitted(to_terminal(_in_a_line(title)), _LINE_COLUMNS))
            if not is_narrow:
                lines.append(f"  {fitted(name, _LINE_COLUMNS - 2)}")
            drawn = self._characters(interval, axis)
            first = padded(name, n_columns) if is_narrow else " " * n_columns
            lines.append(f"  {first}  {drawn}  {text}".rstrip())
        if axis is not None:
            lines.append(f"  {' ' * n_columns}  {self._tick_line(axis)}".rstrip())
        return "\n".join(lines)

    def axis(self) -> tuple[float, float] | None:
        """Return the ends of the axis; None if there is nothing to draw."""
        if self.limits is not None:
            return self.limits
        if not any(isfinite(interval.value) for interval in self.intervals):
            return None
        ends = [end for row in self.intervals for end in (row.value, row.low, row.high)]
        ends += [] if self.origin is None else [self.origin]
        drawn = [end for end in (*ends, *(self.band or ())) if isfinite(end)]
        low, high = min(drawn), max(drawn)
        pad = _PAD * (high - low) or abs(high) or 1.0
        return low - pad, high + pad

    def _row(self, interval: Interval, axis: tuple[float, float] | None) -> str:
        drawn = self._svg(interval, axis) if axis else ""
        return (
            f'<tr style=background:none><td style="{_NAME}">'
            f'{to_text(interval.name)}</td><td style="{_CHART}">{drawn}</td>'
            f'<td style="{_NUMBERS}">{_numbers_html(interval.numbers)}</td></tr>'
        )

    def _svg(self, interval: Interval, axis: tuple[float, float]) -> str:
        def at(number: float) -> str:
            return f"{100 * _share(number, axis):.4g}%"

        shapes = []
        if self.band is not None:
            low, high = (_share(end, axis) for end in self.band)
            shapes.append(
                f'<rect x="{100 * low:.4g}%" width="{100 * (high - low):.4g}%" y=0 '
                f'height="100%" fill="{_BAND}" fill-opacity=".22"/>'
            )
        if self.origin is not None:
            x = at(self.origin)
            shapes.append(
                f'<line x1="{x}" x2="{x}" y1=0 y2="100%" stroke=currentColor '
                'stroke-opacity=".55"/>'
            )
        if not isnan(interval.low):
            first, last = at(interval.low), at(interval.high)
            shapes.append(
                f'<line x1="{first}" x2="{last}" y1="50%" y2="50%" '
                f'stroke="{_COLOUR}" stroke-width=2 />'
            )
        if isfinite(interval.value):
            fill = _COLOUR if interval.is_clear else "none"
            radius = 4.5 if interval.is_clear else 4
            shapes.append(
                f'<circle cx="{at(interval.value)}" cy="50%" r={radius} '
                f'fill="{fill}" stroke="{_COLOUR}" stroke-width=2 />'
            )
        label = escape(visible(f"{interval.name}: {interval.numbers}"))
        return (
            f'<svg role=img aria-label="{label}" style="{_SVG}">{"".join(shapes)}</svg>'
        )

    def _tick_row(self, axis: tuple[float, float]) -> str:
        ticks = " ".join(
            f'<span style="position:absolute;left:{100 * _share(number, axis):.4g}%;'
            f'transform:translateX(-50%);white-space:nowrap">{to_text(text)}</span>'
            for number, text in self._ticks(axis)
        )
        return (
            f'<tr style=background:none aria-hidden=true><td style="{_CELL}"></td>'
            f'<td style="{_CHART}"><div style="{QUIET_LINE};position:relative;'
            f'height:1.6em">{ticks}</div></td><td style="{_NUMBERS}">'
            f"{quiet_html(to_text(self.unit))}</td></tr>"
        )

    def _ticks(self, axis: tuple[float, float]) -> list[tuple[float, str]]:
        low, high = (self.scale * end for end in axis)
        return [
            (number / self.scale, f"{number:,.12g}")
            for number in _round_numbers(low, high)
        ]

    def _characters(self, interval: Interval, axis: tuple[float, float] | None) -> str:
        signs = [" "] * _CHART_COLUMNS
        if axis is None:
            return "".join(signs)

        def at(number: float) -> int:
            return round(_share(number, axis) * (_CHART_COLUMNS - 1))

        if self.band is not None:
            first, last = map(at, self.band)
            signs[first : last + 1] = "░" * (last + 1 - first)
        if self.origin is not None:
            signs[at(self.origin)] = "│"
        if not isnan(interval.low):
            first, last = at(interval.low), at(interval.high)
            for place in range(first, last + 1):
                signs[place] = "┼" if signs[place] == "│" else "─"
            signs[first], signs[last] = "├", "┤"
        if isfinite(interval.value):
            signs[at(interval.value)] = "●" if interval.is_clear else "○"
        return "".join(signs)

    def _tick_line(self, axis: tuple[float, float]) -> str:
        line = ""
        for number, text in self._ticks(axis):
            middle = round(_share(number, axis) * (_CHART_COLUMNS - 1))
            start = max(middle - width(text) // 2, 0)
            if not line or start > width(line):
                line = padded(line, start) + text
        return f"{padded(line, _CHART_COLUMNS)}  {self.unit}".rstrip()


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def _numbers_html(numbers: str) -> str:
    """Escape numbers; where there is little room, an interval has its own line."""
    parts = to_text(numbers).split(" (")
    return " ".join(
        f'<span style="white-space:nowrap">{"(" * (n > 0)}{part}</span>'
        for n, part in enumerate(parts)
    )


def _title_row(title: str) -> str:
    return (
        f'<tr style=background:none><th colspan=3 scope=rowgroup style="{_CELL};'
        f'font-weight:normal;padding-top:.4em"><strong>{to_text(title)}</strong>'
        "</th></tr>"
    )


def _share(number: float, axis: tuple[float, float]) -> float:
    """Return the position of a number on the axis: 0 at its low end, 1 at its high."""
    low, high = axis
    return min(max((number - low) / (high - low), 0.0), 1.0)


def _round_numbers(low: float, high: float) -> Iterable[float]:
    """Return a few round numbers from `low` to `high`, with 0 if it lies between."""
    rough = (high - low) / _MOST_TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
    first, last = ceil(low / step), floor(high / step)
    return [round(number * step, 12) for number in range(first, last + 1)]

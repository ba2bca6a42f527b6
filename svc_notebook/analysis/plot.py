"""Charts of scores: points with intervals, curves, or a score against its cost.

Sums, such as those of `usage_df`, are bars.

Texts of models and users are only ever values in the chart's data. Fields and
expressions have fixed names, so that no text can be run as an expression.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from itertools import groupby
from pathlib import Path
from struct import unpack
from textwrap import fill, wrap
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.display.escape import to_terminal, visible
from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError, import_extra
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.service.params import check_int, shorten

from .compare import numbered, plain
from .missing import Missing, missing_lines
from .reply_factors import (
    LABEL,
    OF_REQUESTS,
    SENT,
    attributes,
    check_replies,
    column_of,
    counted,
    factors,
    in_words,
    is_rate,
    measure,
    named,
)
from .rounding import number, number_with_interval, percent_with_interval
from .statistics import Weight
from .summary import Groups, ReplySample, estimated, say, without_values

MAX_GROUPS = 60
MAX_DOTS = 400
_WIDTH = 480  # fits a narrow cell; a chart as wide as its cell hangs JupyterLab 4.6
_REPLY_CHARS = 300
_LABEL_CHARS, _LINE_CHARS = 60, 20
# JupyterLab 4.6 and Notebook 7 draw Vega-Lite 5 by themselves, and not 6.
_MIME = "application/vnd.vegalite.v5+json"
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_SPLIT = r"split(datum.label, '\n')"
# these have enough contrast on white and on black
_COLOURS = (
    *("#3b82c4", "#d96c23", "#3f9e5a", "#c0504d"),
    *("#8e6bbf", "#9c7a5b", "#c95fa3", "#7f8c8d"),
)
_GRID = "#88888855"

Group = dict[str, Any]
_POINT = {"type": "point", "size": 90, "filled": True, "opacity": 1}
_LEGEND = {"orient": "bottom", "columns": 1, "labelLimit": 300, "symbolOpacity": 1}
_SERIES: Group = {"field": "series", "type": "nominal", "sort": None, "title": None}
_SERIES |= {"legend": _LEGEND}
_GOLDEN = 0.618  # multiples of the golden ratio, modulo 1, are spread evenly


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart that displays itself in a cell.

    Attributes:
        chart: The Altair chart, to change it further.
        text: The numbers as text.
    """

    chart: Any
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - IPython's
        # The colour of the host's text, in its light and in its dark theme.
        spec = _with_colours(self.chart, "currentColor", "transparent").to_dict()
        options = {"renderer": "svg", "actions": False}
        shown = {_MIME: {**spec, "$schema": _SCHEMA}, "text/plain": self.text}
        metadata: dict[str, Any] = {_MIME: {"embed_options": options}}
        if find_spec("vl_convert"):  # for pages without Vega-Lite, such as code hosts
            picture = BytesIO()
            _black_on_white(self.chart).save(picture, format="png", scale_factor=2)
            png = picture.getvalue()
            shown["image/png"] = b64encode(png).decode()
            # the size in the PNG header, at two pixels a point
            width, height = unpack(">II", png[16:24])
            metadata["image/png"] = {"width": width // 2, "height": height // 2}
        return shown, metadata

    def save(self, path: str | Path) -> Path:
        """Write a picture, black on white.

        Args:
            path: Ends with .svg or .png; an old file is replaced.

        Returns:
            The path of the file.

        Raises:
            ConfigError: A package is missing; the message names the command.
            ParameterError: The name has another suffix, or the file cannot be written.
        """
        file = Path(path)
        if file.suffix not in {".svg", ".png"}:
            raise ParameterError(
                f"The name of a picture must end with .svg or .png; got {file.name!r}.",
                param="path",
            )
        import_extra(
            "vl_convert", "Pictures of plots need", install="vl-convert-python"
        )
        try:
            _black_on_white(self.chart).save(str(file), scale_factor=2)
        except OSError as problem:
            raise ParameterError(
                f"{str(file)!r} cannot be written: {problem.strerror}.", param="path"
            ) from None
        return file


def plot(  # noqa: PLR0913 - those of the public verb
    df: pd.DataFrame,
    on: str,
    *,
    by: str | Sequence[str] | None = None,
    x: str | None = None,
    against: str | None = None,
    unit: str | Sequence[str] | None = None,
    weight: Weight = "prompts",
    missing: Missing = "drop",
    width: int = _WIDTH,
) -> Plot:
    """Draw a score of replies by group: see `svc.plot`."""
    altair = import_extra("altair", "Plots need")
    check_int("width", width, minimum=100)
    df = to_pandas(df)
    if "n_requests" in getattr(df, "columns", ()):
        spec, lines = _bars(df, on, by)
        chart = altair.Chart.from_dict({"$schema": _SCHEMA, **spec, **_fitted(width)})
        return Plot(chart, to_terminal("\n".join(lines)))
    df = check_replies(df)
    sample = ReplySample.of(df, unit=unit, weight=weight, missing=missing)
    names = _names(df, by, x, against)
    codes = numbered(df, names)
    measured = _Measured(df, on, codes, sample, counted(df, unit))
    groups = _groups(measured, names)
    if x is not None:
        spec = _curves(df, on, names[0], groups, codes)
    elif against is not None:
        other = replace(measured, on=against)
        if column_of(df, against) in OF_REQUESTS:  # these are neither wrong nor right
            other = replace(other, sample=replace(sample, missing="drop"))
        spec = _against(other, on, groups)
    else:
        spec = _by_group(df, on, groups, codes)
    lines = [f"{column_of(df, on)} by {', '.join(names)}"]
    lines += [f"  {group['said']}" for group in groups]
    caveats = missing_lines(df, on=on, by=names, missing=missing)
    say(caveats)
    spec |= _fitted(width) | _caption(caveats, width)
    chart = altair.Chart.from_dict({"$schema": _SCHEMA, **spec})
    return Plot(chart, to_terminal("\n".join(lines)))


def plot_intervals(charts: Sequence[IntervalChart], *, width: int) -> Plot:
    """Draw charts of intervals one below another, with a panel for each title."""
    altair = import_extra("altair", "Plots need")
    check_int("width", width, minimum=100)
    panels = [
        _panel(chart, title, list(rows), width)
        for chart in charts
        for title, rows in groupby(chart.intervals, key=lambda row: row.title)
    ]
    spec = {"vconcat": panels} if len(panels) > 1 else panels[0] | _fitted(width)
    lines = [
        f"{row.title}: {row.name}: {row.numbers}"
        for chart in charts
        for row in chart.intervals
    ]
    chart = altair.Chart.from_dict({"$schema": _SCHEMA, **spec})
    return Plot(chart, to_terminal("\n".join(lines)))


def _panel(
    chart: IntervalChart, title: str, intervals: Sequence[Interval], width: int
) -> dict[str, Any]:
    """Draw points with their intervals, in front of a band and a line."""
    rows: list[Group] = [
        {
            "group": fill(visible(row.name), _LINE_CHARS),
            "said": visible(f"{row.name}: {row.numbers}"),
            "clear": row.is_clear,
            **{
                name: _known(chart.scale * number)
                for name, number in zip(
                    ("value", "low", "high"),
                    (row.value, row.low, row.high),
                    strict=True,
                )
            },
        }
        for row in intervals
    ]
    known = [row for row in rows if row["value"] is not None]
    axis_title = f"{title}{f', in {chart.unit}' if chart.unit else ''}"
    ends = [_known(chart.scale * end) for end in chart.axis() or (-1, 1)]
    x: Group = {"field": "value", "type": "quantitative", "scale": {"domain": ends}}
    x |= {"title": visible(shorten(axis_title, _LABEL_CHARS))}
    x |= {"axis": {"tickCount": 5}}
    filled: Group = {"condition": {"test": "datum.clear", "value": _COLOURS[0]}}
    points: Group = {"y": _group_axis(), "x": x, "tooltip": [_tip("said")]}
    points |= {"fill": {**filled, "value": "transparent"}}
    spans = {"y": _group_axis(), "x": {**x, "field": "low"}, "x2": {"field": "high"}}
    rule = {"mark": {"type": "rule", "size": 2, "color": _COLOURS[0]}}
    n_lines = sum(row["group"].count("\n") + 1 for row in rows)
    return {
        "width": width,
        "height": 13 * n_lines + 14 * len(rows),
        "data": {"values": rows},
        "layer": [
            *_behind(chart, x),
            *_with_ends(rule | {"encoding": spans}, known),
            {
                "mark": {"type": "point", "size": 70, "stroke": _COLOURS[0]}
                | {"opacity": 1},
                "encoding": points,
                "data": {"values": known},
            },
        ],
    }


def _behind(chart: IntervalChart, x: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the band and the line of a chart as layers."""
    layers: list[Group] = []
    if chart.band is not None:
        low, high = (chart.scale * end for end in chart.band)
        ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}}
        band: Group = {"mark": {"type": "rect", "color": _COLOURS[1], "opacity": 0.2}}
        band |= {"data": {"values": [{"low": low, "high": high}]}, "encoding": ends}
        layers.append(band)
    if chart.origin is not None:
        value = chart.scale * chart.origin
        line: Group = {
            "mark": {"type": "rule", "color": "#888888"},
            "encoding": {"x": x},
        }
        layers.append(line | {"data": {"values": [{"value": value}]}})
    return layers


def _names(
    df: pd.DataFrame,
    by: str | Sequence[str] | None,
    x: str | None,
    against: str | None,
) -> list[str]:
    """Return the columns to group by; the first is `x` if there is one."""
    if x is None:
        names = named(df, by if by is not None else factors(df) or ["model"])
        if not names:
            raise ParameterError(
                "by must name at least one column. Leave it out to group by the "
                f"columns that vary: {', '.join(factors(df)) or 'none'}.",
                param="by",
            )
        return names
    if against is not None:
        raise ParameterError(
            "x and against cannot be combined: x draws a curve along a column, against "
            "draws one score against another. Leave one of them out.",
            param="against",
        )
    [along] = named(df, x, param="x")
    if not pd.api.types.is_numeric_dtype(df[along].dtype):
        raise ParameterError(
            f"x must be a column of numbers, such as temperature, but {along} is not. "
            f"To draw a point for each of its values, give by={along!r}.",
            param="x",
        )
    others = named(df, by) if by is not None else factors(df)
    return [along, *(name for name in others if name != along)]


def _caption(caveats: Sequence[str], width: int) -> dict[str, Any]:
    """Return a caption below the chart that says which replies are missing."""
    if not caveats:
        return {}
    lines = [part for line in caveats for part in wrap(visible(line), width // 6)]
    style = {"fontSize": 11, "fontWeight": "normal", "anchor": "start"}
    return {"title": {"text": lines, "orient": "bottom", **style}}


def _fitted(width: int) -> dict[str, Any]:
    return {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}


def _bars(
    df: pd.DataFrame, on: str, by: str | Sequence[str] | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the chart with one bar for each row of a frame of sums, and its text."""
    names = named(df, "model" if by is None else by)
    values = measure(df, on).to_numpy()
    labels = [_labels(name, plain(df[name])) for name in names]
    bars = []
    for row_labels, value in zip(zip(*labels, strict=True), values, strict=True):
        name, amount = ", ".join(row_labels), _known(value)
        said = f"{name}: {'no value' if amount is None else number(amount)}"
        bars.append({"group": fill(name, _LINE_CHARS), "value": amount, "said": said})
    x = {**_axis(df, on), "scale": {"zero": True}}
    spec = {
        "height": 40 * len(bars),
        "data": {"values": bars},
        "mark": {"type": "bar", "size": 18},
        "encoding": {"y": _group_axis(), "x": x, "color": _colour([""])}
        | {"tooltip": [_tip("said")]},
    }
    lines = [f"{column_of(df, on)} by {', '.join(names)}"]
    return spec, lines + [f"  {bar['said']}" for bar in bars]


def _group_axis() -> dict[str, Any]:
    """Return the vertical axis, with the names of groups."""
    label = {"labelExpr": _SPLIT, "labelLimit": 170, "ticks": False, "domain": False}
    axis = {"axis": {**label, "labelPadding": 8}}
    return {"field": "group", "type": "nominal", "sort": None, "title": None} | axis


@dataclass(frozen=True, slots=True)
class _Measured:
    """A measure of the replies of a frame, by group.

    Attributes:
        codes: The number of each reply's group.
        unit_noun: The plural of the units that intervals are over, such as "rows".
    """

    df: pd.DataFrame
    on: str
    codes: Any
    sample: ReplySample
    unit_noun: str

    def means(self, n_groups: int) -> list[Group]:
        """Return each group's mean: `value`, `low`, `high`, and `number` as text."""
        is_known = measure(self.df, self.on).notna()
        if not is_known.any():
            raise ParameterError(
                f"{self.on} is missing in every reply.{_why_missing(self.df, self.on)}",
                param="on",
            )
        groups = Groups(self.codes, pd.DataFrame(index=range(n_groups)))
        estimates = estimated(self.df, self.on, groups, self.sample)
        show = number_with_interval
        if is_rate(self.df, self.on):
            show = percent_with_interval
        means = []
        missing = without_values(self.df, groups)
        counted_values = estimates.n_units, groups.count(is_known)
        for value, low, high, n_units, n, why in zip(
            *estimates[:3], *counted_values, missing, strict=True
        ):
            said = why if np.isnan(value) else show(value, low, high)
            counts = [count_in_words(n_units, self.unit_noun)] if n else []
            counts += [count_in_words(n, "replies")] if n != n_units else []
            ends = {"value": _known(value), "low": _known(low), "high": _known(high)}
            means.append({**ends, "number": ", ".join([said, *counts])})
        return means


def _why_missing(df: pd.DataFrame, on: str) -> str:
    if on != "cost":
        return ""
    if "is_emulated" in df and df["is_emulated"].fillna(value=False).all():
        return (
            " Replies of the emulator cost nothing; "
            "run.plot(..., include_emulated=True) counts them as if they were paid."
        )
    return " Costs need a price table: see SVC_PRICES."


def _groups(measured: _Measured, names: Sequence[str]) -> list[Group]:
    """Return each group with its labels, its mean and its text."""
    df, codes = measured.df, measured.codes
    _, firsts = np.unique(codes, return_index=True)
    if len(firsts) > MAX_GROUPS:
        raise ParameterError(
            f"by={', '.join(names)} makes {len(firsts):,} groups; at most {MAX_GROUPS} "
            "can be drawn. Name fewer columns in by, or draw a part of the frame.",
            param="by",
        )
    labels = [_labels(name, plain(df[name].iloc[firsts])) for name in names]
    groups = []
    for values, group_labels in zip(
        measured.means(len(firsts)), zip(*labels, strict=True), strict=True
    ):
        group = {"of": ", ".join(group_labels), "group": group_labels[0], **values}
        group["said"] = f"{group['of']}: {group.pop('number')}"
        groups.append({**group, "series": ", ".join(group_labels[1:])})
    return groups


def _labels(name: str, values: Sequence[Any]) -> list[str]:
    """Return a short label for each value of a column, a different one for each."""
    label_of: dict[str, str] = {}
    for value in dict.fromkeys(in_words(name, row_value) for row_value in values):
        is_plain = name == "model" or name.endswith(LABEL)
        text = " ".join((value if is_plain else f"{name} {value}").split())
        label = visible(shorten(text, _LABEL_CHARS))
        n_alike = sum(taken.startswith(label) for taken in label_of.values())
        label_of[value] = (
            f"{label} ({n_alike + 1})" if label in label_of.values() else label
        )
    return [label_of[in_words(name, row_value)] for row_value in values]


def _known(number: float) -> float | None:
    # the last digits depend on the versions of NumPy and SciPy; saved outputs must not
    return None if np.isnan(number) else float(f"{number:.8g}")


def _by_group(
    df: pd.DataFrame, on: str, groups: list[Group], codes: "np.ndarray"
) -> dict[str, Any]:
    """Draw means with intervals, in front of dots for single replies."""
    if len({group["series"] for group in groups}) > len(_COLOURS):
        for group in groups:
            group |= {"group": f"{group['group']}, {group['series']}", "series": ""}
    series = list(dict.fromkeys(group["series"] for group in groups))
    for group in groups:
        group["group"] = fill(group["group"], _LINE_CHARS)
        # from -1 to 1 within the row of the group
        middle = series.index(group["series"]) + 0.5
        group["offset"] = round(2 * middle / len(series) - 1, 4)
    labels = {group["group"] for group in groups}
    n_lines = max(label.count("\n") for label in labels) + 1
    shared = {
        "y": _group_axis(),
        "yOffset": {"field": "offset", "type": "quantitative"}
        | {"scale": {"domain": [-1, 1]}},
        "color": _colour(series),
    }
    x = _axis(df, on)
    dots = {"mark": {"type": "circle", "size": 30, "opacity": 0.3}}
    dots |= {"data": {"values": _dots(df, on, groups, codes, 0.8 / len(series))}}
    dots["encoding"] = {**shared, "x": x, "tooltip": [_tip("of"), _tip("reply")]}
    ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}}
    means = {"x": x, "tooltip": [_tip("said")], "shape": _shape(series)}
    known = [group for group in groups if group["value"] is not None]
    rule = {"mark": {"type": "rule", "size": 2}, "encoding": {**shared, **ends}}
    return {
        "height": len(labels) * max(13 * n_lines + 12, 26 * len(series) + 6),
        "data": {"values": known},
        "layer": [
            dots,
            *_with_ends(rule, known),
            {"mark": _POINT, "encoding": {**shared, **means}},
        ],
    }


def _against(measured: _Measured, on: str, groups: list[Group]) -> dict[str, Any]:
    """Draw the mean of a score against that of another column, with the Pareto front.

    A setting has no front: less temperature is not better.
    """
    df, against = measured.df, measured.on
    for group, other in zip(groups, measured.means(len(groups)), strict=True):
        group["other"] = other["value"]
        group["series"] = group["of"]
        group["said"] += f"; {visible(column_of(df, against))} {other['number']}"
    known = [x for x in groups if x["value"] is not None and x["other"] is not None]
    series = list(dict.fromkeys(group["series"] for group in known))
    if len(series) > len(_COLOURS):
        series = [""]
    for group in known:
        group["series"] = group["series"] if group["series"] in series else ""
    is_setting = against in {*SENT, *factors(df), *attributes(df)}
    front = [] if is_setting else pareto(known)
    for group in front:
        group["said"] += "; no other is better in both"
    x = {**_axis(df, against), "field": "other"}
    y = _axis(df, on)
    step = {"type": "line", "interpolate": "step-after", "strokeDash": [4, 3]}
    line = {"data": {"values": front}, "mark": {**step, "color": "#888888"}}
    line["encoding"] = {"x": x, "y": y}
    shared = {"x": x, "color": _colour(series)}
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    means = {"y": y, "shape": _shape(series), "tooltip": [_tip("said")]}
    rule = {"mark": {"type": "rule", "size": 2}, "encoding": {**shared, **ends}}
    return {
        "height": 240,
        "data": {"values": known},
        "layer": [
            *([line] if front else []),
            *_with_ends(rule, known),
            {"mark": _POINT, "encoding": {**shared, **means}},
        ],
    }


def _curves(
    df: pd.DataFrame, on: str, x: str, groups: list[Group], codes: "np.ndarray"
) -> dict[str, Any]:
    """Draw means along a column of numbers, with bands between their ends."""
    series = list(dict.fromkeys(group["series"] for group in groups))
    if len(series) > len(_COLOURS):
        raise ParameterError(
            f"There would be {len(series)} curves; at most {len(_COLOURS)} can be "
            "drawn. Name fewer columns in by, or draw a part of the frame.",
            param="by",
        )
    _, firsts = np.unique(codes, return_index=True)
    positions = df[x].iloc[firsts].to_numpy(dtype="float64", na_value=np.nan)
    for group, position in zip(groups, positions, strict=True):
        group["at"] = _known(position)
    known = [group for group in groups if None not in (group["value"], group["at"])]
    title = visible(shorten(x, _LABEL_CHARS))
    across: Group = {"field": "at", "type": "quantitative", "title": title}
    across |= {"axis": {"tickCount": 5}, "scale": {"zero": False}}
    y = _axis(df, on)
    shared = {"x": across, "color": _colour(series)}
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    band = {"mark": {"type": "area", "opacity": 0.2}, "encoding": {**shared, **ends}}
    means = {"y": y, "shape": _shape(series), "tooltip": [_tip("said")]}
    return {
        "height": 240,
        "data": {"values": known},
        "layer": [
            *_with_ends(band, known),
            {"mark": {"type": "line"}, "encoding": {**shared, "y": y}},
            {"mark": _POINT, "encoding": {**shared, **means}},
        ],
    }


def _with_ends(rule: dict[str, Any], groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the layer of intervals, for the groups that have one."""
    known = [group for group in groups if group.get("low") is not None]
    return [{**rule, "data": {"values": known}}] if known else []


def pareto(groups: Sequence[Group]) -> list[Group]:
    """Return the groups that no other beats with more `value` for less `other`."""
    front: list[Group] = []
    for group in sorted(groups, key=lambda group: (group["other"], -group["value"])):
        if not front or group["value"] > front[-1]["value"]:
            front.append(group)
    return front


def _dots(
    df: pd.DataFrame,
    on: str,
    groups: Sequence[Group],
    codes: "np.ndarray",
    spread: float,
) -> list[dict[str, Any]]:
    """Return single replies as dots; of too many, some that are evenly spaced."""
    values = measure(df, on).to_numpy()
    (known,) = np.nonzero(~np.isnan(values))
    chosen = known[:: -(-len(known) // MAX_DOTS)]  # the step is rounded up
    texts = df["text"].iloc[chosen] if "text" in df.columns else [None] * len(chosen)
    return [
        {
            **{name: groups[codes[row]][name] for name in ("group", "series")},
            "value": float(values[row]),
            "offset": groups[codes[row]]["offset"] + spread * (n * _GOLDEN % 1 - 0.5),
            "of": groups[codes[row]]["of"],
            "reply": _shortened(text),
        }
        for n, (row, text) in enumerate(zip(chosen, texts, strict=True))
    ]


def _shortened(text: object) -> str:
    if not isinstance(text, str):
        return "(no text)"
    return visible(shorten(" ".join(text.split()), _REPLY_CHARS)) or "(an empty text)"


def _axis(df: pd.DataFrame, on: str) -> dict[str, Any]:
    title = visible(shorten(column_of(df, on), _LABEL_CHARS))
    axis: dict[str, Any] = {"tickCount": 5, "labelFlush": False}
    scale: dict[str, Any] = {"zero": False}
    if is_rate(df, on):
        axis["format"] = ".0%"
        scale = {"domain": [0, 1]}
    field = {"field": "value", "type": "quantitative"}
    return {**field, "title": title, "axis": axis, "scale": scale}


def _colour(series: Sequence[str]) -> dict[str, Any]:
    if len(series) == 1:
        return {"value": _COLOURS[0]}
    return {**_SERIES, "scale": {"range": list(_COLOURS)}}


def _shape(series: Sequence[str]) -> dict[str, Any]:
    return {"value": "circle"} if len(series) == 1 else {**_SERIES, "legend": None}


def _tip(field: str) -> dict[str, str]:
    return {"field": field, "type": "nominal", "title": field}


def _with_colours(chart: Any, ink: str, paper: str) -> Any:  # noqa: ANN401 - Altair's
    return chart.configure(
        background=paper,
        font="sans-serif",
        view={"stroke": None},
        axis={
            "labelColor": ink,
            "titleColor": ink,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "gridColor": _GRID,
            "domainColor": _GRID,
            "tickColor": _GRID,
        },
        legend={"labelColor": ink, "labelFontSize": 12},
        title={"color": ink},
    )


def _black_on_white(chart: Any) -> Any:  # noqa: ANN401 - Altair's
    return _with_colours(chart, "#1f2328", "white")

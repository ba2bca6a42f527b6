"""Building a grid: what was given is read and checked, whole, before anything is sent.

Rules: pure; every value of every list is checked with the others' first ones, and
the error names it; templates are checked against the columns, and all rows for gaps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.service.request import check_extra

from .axis import Axis, axis_of, has_many, prompts_of
from .cell import cell_id_of
from .dimension import (
    ASKED,
    Dimension,
    Tied,
    cells_of,
    check_names,
    tie,
)
from .filling import check_columns, check_rows, columns_in
from .grid import Grid, Where, keep
from .names import check_label, check_params, marks_of
from .source import Source, source_of


def build_grid(  # noqa: PLR0913 - what a grid is made of
    prompt: object = None,
    *,
    varied: Mapping[str, object],
    rows: object = None,
    cells: object = None,
    tied: Tied = (),
    where: Where | None = None,
    extra: Mapping[str, Any] | None = None,
    repeats: int = 1,
    is_raw: bool = False,
) -> Grid:
    r"""Make a grid and check all of it.

    Args:
        prompt: A text, or messages; or a list of such prompts. `{{name}}` is a column
            of the rows, `\{{name}}` the plain text. None if `cells` has prompts.
        varied: `model`, `system` and parameters by the document's names, each one
            value or a list of values, in the order in which they vary: the last one
            fastest. A list of texts is one value of `stop`, a list of definitions
            one value of `tools`; a list that holds lists (or None) varies them.
        rows: A DataFrame, a Series, a list of mappings or texts: what prompts are
            filled from. Every prompt is asked for every row.
        cells: Combinations that are not a product: a DataFrame or a list of mappings
            whose names are `prompt`, `model`, `system`, parameters, or columns: those
            that prompts name, and labels, which are kept beside the reply.
        tied: Names whose lists go side by side instead of being multiplied, or
            several such groups; `rows` among them gives each row its own value.
        where: Whether to keep a combination, told by a mapping of its values and
            its row's columns.
        extra: Fields the document does not show, sent with every request.
        repeats: How many times each combination is asked, at least 1.
        is_raw: Whether prompts are sent as they are, without templates.

    Raises:
        ParameterError: A name or a combination is not allowed (it is named), a list
            is empty, a column is not there or has gaps, or two combinations are the
            same request.
    """
    check_params(varied)
    if prompt is None and cells is None:
        raise _without_prompt()
    _check_repeats(repeats)
    source = None if rows is None else source_of(rows)
    dimensions = _dimensions(
        prompt,
        varied,
        cells=cells,
        tied=tied,
        n_rows=None if source is None else len(source),
    )
    check_names(dimensions, () if source is None else source.columns)
    if not any("prompt" in dimension.names for dimension in dimensions):
        raise _without_prompt()
    grid = Grid(
        dimensions=dimensions,
        source=source,
        repeats=int(repeats),
        extra=check_extra(extra),
        is_raw=is_raw,
    )
    _check_templates(grid)
    _check_points(grid)
    return grid if where is None or not grid.n_product else _narrowed(grid, where)


def _check_prompt(prompt: object) -> None:
    if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Iterable):
        raise ParameterError(
            f"prompt is {type(prompt).__name__}; give a text, a list of messages, or a "
            "list of such.",
            param="prompt",
        )


def _without_prompt() -> ParameterError:
    return ParameterError(
        "There is no prompt; give one, or cells with a column 'prompt'.", param="prompt"
    )


def _dimensions(
    prompt: object,
    varied: Mapping[str, object],
    *,
    cells: object,
    tied: Tied,
    n_rows: int | None,
) -> tuple[Dimension, ...]:
    axes = [axis_of(name, value) for name, value in varied.items()]
    if prompt is not None:
        _check_prompt(prompt)
        values = prompts_of(prompt)
        axes.insert(0, Axis(name="prompt", values=values, is_varied=has_many(prompt)))
    if cells is None:
        return tie(axes, tied, n_rows=n_rows)
    given = cells_of(cells)
    # the session's model stands in only where the cells have none
    rest = [
        axis for axis in axes if axis.is_varied or axis.name not in _whole_names(given)
    ]
    return (given, *tie(rest, tied, n_rows=n_rows))


def _whole_names(cells: Dimension) -> set[str]:
    whole = {
        name for name in cells.names if all(name in point for point in cells.points)
    }
    return whole & {"model"}


def _check_templates(grid: Grid) -> None:
    own = [
        name
        for dimension in grid.dimensions
        for name in dimension.names
        if name not in ASKED
    ]
    columns = [*(() if grid.source is None else grid.source.columns), *own]
    prompts = list(_given(grid, "prompt")) + list(_given(grid, "system"))
    if grid.is_raw:
        named: set[str] = set()
    else:
        if columns or grid.source is None:
            check_columns(prompts, columns)
        named = {name for prompt in prompts for name in columns_in(prompt)}
    if grid.source is not None and grid.source.columns:
        _check_use(grid.source, named)
    for name in own:
        if name in named:
            _check_own(grid, name)
        else:
            check_label(name)


def _check_use(source: Source, named: set[str]) -> None:
    used = [name for name in source.columns if name in named]
    if not used:
        raise ParameterError(
            "No prompt names a column of the rows, so all rows would be asked the "
            f"same. {marks_of(source.columns)}, or leave rows out and use repeats.",
            param="rows",
        )
    check_rows(source, used)


def _check_own(grid: Grid, name: str) -> None:
    """Refuse a cell without a column that prompts name."""
    gaps = [
        at
        for dimension in grid.dimensions
        if name in dimension.names
        for at, point in enumerate(dimension.points)
        if name not in point
    ]
    if gaps:
        raise ParameterError(
            f"Cell {gaps[0]} has no value for {name!r}, which a prompt names.",
            param="cells",
        )


def _given(grid: Grid, name: str) -> Iterable[object]:
    return (
        point[name]
        for dimension in grid.dimensions
        if name in dimension.names
        for point in dimension.points
        if point.get(name) is not None
    )


def _check_points(grid: Grid) -> None:
    """Check every point of every dimension, with the first of the others."""
    first: dict[str, Any] = {}
    for dimension in grid.dimensions:
        first |= next(iter(dimension.points), {})
    for dimension in grid.dimensions:
        seen: dict[str, str] = {}
        others = {k: v for k, v in first.items() if k not in dimension.names}
        for at, point in enumerate(dimension.points):
            words = dimension.in_words(at) if dimension.is_varied else ""
            row = at if dimension.is_by_row else 0
            same = _checked(grid, {**others, **point}, words, row=row)
            if same in seen and not dimension.is_by_row:
                raise ParameterError(
                    f"Two combinations are the same request: {seen[same]} and {words}. "
                    "Take one of them out; to ask the same more than once, use "
                    "repeats=2."
                )
            seen[same] = words


def _checked(grid: Grid, point: Mapping[str, Any], words: str, *, row: int) -> str:
    """Return what tells a request from others."""
    if point.get("model") is None:
        raise ParameterError(
            "A cell has no model; give each one, or leave the column out.",
            param="model",
        )
    try:
        request = grid.request_at(row, point)
        own = {name: str(point[name]) for name in point if name not in ASKED}
        templates = [str(point.get("prompt")), str(point.get("system")), own]
        return cell_id_of(request, templates=templates)
    except ParameterError as problem:
        found = problem
    where = f" This was the combination {words}; nothing was sent." if words else ""
    raise ParameterError(f"{found}{where}", param=found.param)


def _narrowed(grid: Grid, where: Where) -> Grid:
    kept: Sequence[int] = keep(grid, where)
    if not kept:
        raise ParameterError(
            f"where leaves none of {grid.n_product} combinations, so there would be "
            "nothing to ask.",
            param="where",
        )
    return replace(grid, kept=kept)


def _check_repeats(repeats: object) -> None:
    is_number = isinstance(repeats, int) and not isinstance(repeats, bool)
    if not is_number or repeats < 1:  # type: ignore[operator]  # just tested
        raise ParameterError(
            f"repeats={repeats!r} is not allowed; give an integer of at least 1.",
            param="repeats",
        )

"""Planning a run: what was given becomes a grid, a name and a seed.

Rules: nothing is sent; a name is looked up in the ledger, so that a run goes on after
a restart, and so that another grid of the same name is refused at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from secrets import randbits
from typing import Any
from uuid import uuid4

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import OriginKind
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.params import check_flag, unknown_param
from svc_notebook.service.request import check_extra
from svc_notebook.session import Session

from .dimensions import (
    ASKED,
    Axis,
    Dimension,
    Tied,
    axis_of,
    check_names,
    conditions_of,
    has_many,
    prompts_of,
    tie,
)
from .grid import Grid, Where, keep, request_key_of
from .run import Run
from .scheduler import seed_of
from .source import Source, check_columns, check_rows, columns_in, source_of
from .trial_runner import check_threshold

_CUTOFF = 0.8
_OWN = (
    *(
        "rows",
        "conditions",
        "tied",
        "where",
        "repeats",
        "name",
        "seed",
        "confirm_above",
    ),
    "raw",
)
"""What a sweep takes beside the parameters of a request."""

_PROMPT_FIRST = (
    "The prompt goes first, without a name: a text, messages, or a list of such."
)
_ELSEWHERE = {
    "stream": "A sweep asks for whole replies, since only they report their usage; "
    "leave stream out. A `%%svc` cell with several values shows them as they come, "
    "and svc.stream(prompt) streams one.",
    "messages": _PROMPT_FIRST,
    "prompt": _PROMPT_FIRST,
}
_SHOWN_NAMES = 4
_LEAST_CHARS = 4  # shorter beginnings may be words of their own


def check_params(names: Iterable[str]) -> None:
    """Refuse a name that is no parameter of the service.

    Raises:
        ParameterError: The nearest name is named, be it a sweep's own.
    """
    for name in names:
        if name in _ELSEWHERE:
            raise ParameterError(f"{_ELSEWHERE[name]} Nothing was sent.", param=name)
        if name in _OWN:  # asked by df.svc, which does not take it
            raise ParameterError(
                f"{name} belongs to svc.sweep and is not taken here. Nothing was sent.",
                param=name,
            )
        if name not in ASKED:
            if near := get_close_matches(name, _OWN, n=1, cutoff=_CUTOFF):
                raise ParameterError(
                    f"{name!r} is no parameter. Did you mean {near[0]}? Nothing was "
                    "sent.",
                    param=name,
                )
            raise unknown_param(name)


def check_label(name: str) -> None:
    """Refuse a label in a list of conditions that was meant as a parameter.

    Args:
        name: Of no parameter, and of no column that a prompt names.

    Raises:
        ParameterError: It is near a parameter, which is named.
    """
    plain = name.strip().casefold().replace("-", "_").replace(" ", "_")
    near = get_close_matches(plain, ASKED, n=1, cutoff=_CUTOFF) or [
        each for each in ASKED if _is_beginning(plain, each)
    ]
    if near:
        raise ParameterError(
            f"{name!r} in conditions is not a parameter, and no prompt names it. Did "
            f"you mean {near[0]}? If it is a label of your own, give it another name, "
            f"such as 'label_{plain}'. Nothing was sent.",
            param="conditions",
        )


def _is_beginning(plain: str, name: str) -> bool:
    return len(plain) >= _LEAST_CHARS and name.startswith(plain)


def marks_of(columns: Iterable[str]) -> str:
    """Say how a prompt names one of these columns; the way on, if none can be named.

    Args:
        columns: Of the rows, as text.
    """
    names = list(columns)
    plain = [name for name in names if name.isidentifier()]
    if plain:
        return f"Write {{{{{plain[0]}}}}} where the column goes"
    new = ["text", *(f"column_{at}" for at in range(1, len(names)))]
    way = f"rows.set_axis({new}, axis='columns')"
    if len(names) > _SHOWN_NAMES:
        way = "rows.rename(columns=...)"
    return (
        "A prompt names a column as {{name}}, with a plain name that is no number and "
        f"has no blanks; give {names[0]!r} such a name, as with {way}"
    )


def build_grid(  # noqa: PLR0913 - what a grid is made of
    prompt: object = None,
    *,
    varied: Mapping[str, object],
    rows: object = None,
    conditions: object = None,
    tied: Tied = (),
    where: Where | None = None,
    extra: Mapping[str, Any] | None = None,
    repeats: int = 1,
    is_raw: bool = False,
) -> Grid:
    r"""Make a grid and check all of it.

    Args:
        prompt: A text, or messages; or a list of such prompts. `{{name}}` is a column
            of the rows, `\{{name}}` the plain text. None if `conditions` has prompts.
        varied: `model`, `system` and parameters by the document's names, each one
            value or a list of values, in the order in which they vary: the last one
            fastest. A list of texts is one value of `stop`, a list of definitions
            one value of `tools`; a list that holds lists (or None) varies them.
        rows: A DataFrame, a Series, a list of mappings or texts: what prompts are
            filled from. Every prompt is asked for every row.
        conditions: An explicit list of combinations: a DataFrame or mappings
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
    if prompt is None and conditions is None:
        raise _without_prompt()
    _check_repeats(repeats)
    source = None if rows is None else source_of(rows)
    dimensions = _dimensions(
        prompt,
        varied,
        conditions=conditions,
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
        "There is no prompt; give one, or conditions with a column 'prompt'.",
        param="prompt",
    )


def _dimensions(
    prompt: object,
    varied: Mapping[str, object],
    *,
    conditions: object,
    tied: Tied,
    n_rows: int | None,
) -> tuple[Dimension, ...]:
    axes = [axis_of(name, value) for name, value in varied.items()]
    if prompt is not None:
        _check_prompt(prompt)
        values = prompts_of(prompt)
        axes.insert(0, Axis(name="prompt", values=values, is_varied=has_many(prompt)))
    if conditions is None:
        return tie(axes, tied, n_rows=n_rows)
    given = conditions_of(conditions)
    # the session's model stands in only where the conditions have none
    rest = [
        axis for axis in axes if axis.is_varied or axis.name not in _whole_names(given)
    ]
    return (given, *tie(rest, tied, n_rows=n_rows))


def _whole_names(conditions: Dimension) -> set[str]:
    whole = {
        name
        for name in conditions.names
        if all(name in point for point in conditions.points)
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
    """Refuse a condition without a column that prompts name."""
    gaps = [
        at
        for dimension in grid.dimensions
        if name in dimension.names
        for at, point in enumerate(dimension.points)
        if name not in point
    ]
    if gaps:
        raise ParameterError(
            f"Condition {gaps[0]} has no value for {name!r}, which a prompt names.",
            param="conditions",
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
            "A condition has no model; give each one, or leave the column out.",
            param="model",
        )
    try:
        request = grid.request_at(row, point)
        own = {name: str(point[name]) for name in point if name not in ASKED}
        templates = [str(point.get("prompt")), str(point.get("system")), own]
        return request_key_of(request, templates=templates)
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


def plan(  # noqa: PLR0913 - what a sweep is made of
    session: Session,
    prompt: object = None,
    *,
    model: str | Sequence[str] | None = None,
    system: str | Sequence[str | None] | None = None,
    rows: object = None,
    conditions: object = None,
    tied: Tied = (),
    where: Where | None = None,
    repeats: int = 1,
    name: str | None = None,
    seed: int | None = None,
    confirm_above: int | None = None,
    raw: bool = False,
    reuse: bool = False,
    origin: OriginKind = "sweep",
    prices: Prices | None = None,
    extra: Mapping[str, Any] | None = None,
    varied: Mapping[str, Any] | None = None,
) -> Run:
    r"""Plan a sweep: every combination of what is given as a list.

    Args:
        session: Whose settings and key are used, and whose ledger keeps.
        prompt: A text or messages; or a list of such prompts. `{{name}}` is a column
            of the rows, `\{{name}}` the plain text.
        model: One model id or a list; the session's model if None.
        system: One system text or a list; None is no system message.
        rows: A DataFrame, a Series, a list of mappings or texts to fill prompts from.
        conditions: An explicit list of combinations: a DataFrame or mappings.
        tied: Names whose lists go side by side instead of being multiplied; `rows`
            among them gives each row a value of its own.
        where: Whether to keep a combination, told by a mapping of its values.
        repeats: How many times each combination is asked.
        name: Name of the run; a run of this name goes on, also after a restart.
        seed: Of the order; made from the name if None, or at random without one.
        confirm_above: Ask before sending more requests than this; never if None.
        raw: Whether prompts are sent as they are, without templates.
        reuse: Whether the ledger's answer to an identical request, of the same
            repetition, is given back instead of asking.
        origin: Who asks, for the record.
        prices: The price table for costs; the session's, if it has one, if None.
        extra: Fields the document does not show, sent with every request.
        varied: Parameters, each one value or a list of values. `stop` as a list of
            texts is one value; a list of lists varies it; so for `tools`, which are
            offered and not run.

    Raises:
        ParameterError: Something or some combination is not allowed; it is named. Or
            a run of this name asked what this grid has not.
        ToolSchemaError: A function in `tools` cannot be offered.
        LedgerError: A name was given and the ledger cannot be read.
        SettingsError: The session's price table cannot be used.
    """
    check_flag("raw", raw)
    check_flag("reuse", reuse)
    model = session.settings.model if model is None else model
    given = {"model": model, "system": system, **(varied or {})}
    grid = build_grid(
        prompt,
        varied={key: each for key, each in given.items() if each is not None},
        rows=rows,
        conditions=conditions,
        tied=tied,
        where=where,
        extra=extra,
        repeats=repeats,
        is_raw=raw,
    )
    check_threshold(confirm_above)
    found = _name(name)
    run = Run(
        grid,
        session=session,
        name=found,
        run_id=found or f"run-{uuid4().hex[:12]}",
        seed=_seed(seed, found),
        origin=origin,
        prices=session.prices if prices is None else prices,
    )
    run.confirm_above = confirm_above
    run.is_reusing = reuse
    if found:
        run.bind()
    return run


def _name(name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(f"name={name!r} is not a name; give a text.", param="name")
    return name.strip()


def _seed(seed: object, name: str | None) -> int:
    if seed is None:
        return randbits(32) if name is None else seed_of(name)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ParameterError(
            f"seed={seed!r} is not an integer; give one, or leave it out.", param="seed"
        )
    return seed

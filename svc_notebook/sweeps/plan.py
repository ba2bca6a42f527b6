"""Plans a run, for `svc.sweep`: checks what it is given and makes a grid of it.

Nothing is sent. What the service would refuse is found here. A named run continues
after a restart; another grid of the same name is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from secrets import randbits
from typing import Any
from uuid import uuid4

from svc_notebook.analysis.answers import answer_type, kept_type
from svc_notebook.credentials import refuse_keys
from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import OriginKind
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.checks import (
    check_flag,
    check_int,
    check_text,
    did_you_mean,
    near_names,
)
from svc_notebook.service.params import unknown_param, with_params
from svc_notebook.session import Session, current
from svc_notebook.tools.extract import Form
from svc_notebook.tools.permissions import take_permit

from .dimensions import (
    FACTORS,
    LABELS,
    Dimension,
    Manifest,
    Tied,
    check_names,
    conditions_of,
    dimension_of,
    offering,
    paces_of,
    read_manifest,
    sweep_tools,
    tie,
)
from .grid import Grid, RunPlan, Where, hashed_labels, keep, request_key_of
from .order import seed_of
from .row_files import RowFiles, check_same
from .run import Run
from .source import (
    Source,
    check_columns,
    check_not_blank,
    check_rows,
    columns_in,
    is_text,
    source_of,
    typed,
)

_CUTOFF = 0.8
_OWN = (
    *("rows", "conditions", "tied", "where", "repeats"),
    *("name", "seed", "confirm_above", "raw", "answer", "manifest"),
    *("limits", "in_flight", "run_tools"),
)
"""What a sweep takes in addition to the parameters of a request."""

_OF_FRAMES = ("name", "confirm_above", "expand", "retry", "reuse")
_OWN_BY = {"rows": _OWN, "df": _OF_FRAMES, "series": _OF_FRAMES}

_PROMPT_FIRST = (
    "Give the prompt first, without a name: a text, messages, or a list of such."
)
_ELSEWHERE = {
    "stream": "A sweep asks for whole replies, because only they report their usage; "
    "remove stream. A `%%svc` cell with several values shows them as they arrive, and "
    "svc.stream(prompt) streams one.",
    "messages": _PROMPT_FIRST,
    **dict.fromkeys(
        ("confirm", "max_rounds", "tool_timeout_s", "total_s"),
        "It needs svc.sweep(..., tools=[...], run_tools=True).",
    ),
    "prompt": _PROMPT_FIRST,
}
_SHOWN_NAMES = 4
_LEAST_CHARS = 4  # shorter beginnings may be words of their own


def _check_params(names: Iterable[str], *, own: Sequence[str]) -> None:
    """Refuse a name that is not a parameter, and suggest the nearest one."""
    for name in names:
        if name in _ELSEWHERE:
            raise ParameterError(f"{_ELSEWHERE[name]} Nothing was sent.", param=name)
        if name in _OWN:  # asked by df.svc, which does not take it
            raise ParameterError(
                f"{name} is an argument of svc.sweep only. Nothing was sent.",
                param=name,
            )
        if name in FACTORS:
            continue
        if hint := did_you_mean(name, own, n=1, cutoff=_CUTOFF):
            raise ParameterError(
                f"{name!r} is not a parameter.{hint} Nothing was sent.", param=name
            )
        raise unknown_param(name)


def _check_label(name: str) -> None:
    """Refuse a label in conditions that looks like a misspelt parameter."""
    plain = name.strip().casefold().replace("-", "_").replace(" ", "_")
    near = near_names(plain, FACTORS, n=1, cutoff=_CUTOFF, least_chars=_LEAST_CHARS)
    if near:
        raise ParameterError(
            f"{name!r} in conditions is not a parameter, and no prompt uses it. Did "
            f"you mean {near[0]}? If it is a label of your own, rename it, for example "
            f"to 'label_{plain}'. Nothing was sent.",
            param="conditions",
        )


def _marker_hint(source: Source) -> str:
    """Say how a prompt uses one of the columns, or how to rename them first."""
    names, called = list(source.columns), source.called
    if plain := [name for name in names if name.isidentifier()]:
        return f"Write {{{{{plain[0]}}}}} where the column goes"
    new = ["text", *(f"column_{at}" for at in range(1, len(names)))]
    way = f"{called}.set_axis({new}, axis='columns')"
    if len(names) > _SHOWN_NAMES:
        way = f"{called}.rename(columns=...)"
    return (
        "A prompt uses a column as {{name}}, and the name must be an identifier; "
        f"rename {names[0]!r}, for example with {way}"
    )


def build_grid(  # noqa: PLR0913 - what a grid is made of
    prompt: object = None,
    *,
    varied: Mapping[str, object],
    rows: object = None,
    conditions: object = None,
    tied: Tied = (),
    where: Where | None = None,
    repeats: int = 1,
    is_raw: bool = False,
    form: Form[Any] | None = None,
    endpoint: Endpoint = SERVICE,
) -> Grid:
    """Make a grid and check all of it; for arguments and errors see `svc.sweep`.

    `form` is the tool that gives the answers, `endpoint` where it will be sent.
    """
    source = None if rows is None else source_of(rows)
    _check_params(varied, own=_OWN if source is None else _OWN_BY[source.called])
    n_repeats = check_int("repeats", repeats, minimum=1)
    dimensions = _dimensions(
        prompt,
        varied,
        conditions=conditions,
        tied=tied,
        n_rows=None if source is None else len(source),
    )
    check_names(dimensions, () if source is None else source.columns)
    if not any("prompt" in dimension.names for dimension in dimensions):
        raise ParameterError(
            "There is no prompt. Give one, or conditions with a column 'prompt'.",
            param="prompt",
        )
    grid = Grid(
        dimensions=dimensions,
        source=source,
        repeats=n_repeats,
        is_raw=is_raw,
        endpoint=endpoint,
    )
    _check_templates(grid, is_whole=where is None)
    if form is not None:
        grid = replace(grid, dimensions=offering(form, grid.dimensions))
    _check_points(grid)
    if where is None or not grid.n_product:
        return grid
    if kept := keep(grid, where):
        return replace(grid, kept=kept)
    raise ParameterError(
        f"where keeps none of {grid.n_product} combinations, so there is nothing to "
        "send.",
        param="where",
    )


def grid_of(found: Manifest, endpoint: Endpoint) -> Grid:
    """Make the grid of a manifest, to be sent to an endpoint, and check it."""
    older = (dimension_of("extra", found.extra),) if found.extra else ()
    rows: object = found.rows
    if found.files is not None:
        files = RowFiles(found.files.path)
        check_same(found.files, files.found)
        rows = files
    if found.rows and found.dtypes:
        rows = typed(found.rows, found.dtypes, found.index, found.categories)
    grid = Grid(
        dimensions=(*found.dimensions, *older),
        source=None if rows is None else source_of(rows),
        repeats=check_int("repeats", found.repeats, minimum=1),
        is_raw=found.is_raw,
        kept=found.kept,
        endpoint=endpoint,
    )
    if found.kept and not 0 <= min(found.kept) <= max(found.kept) < grid.n_product:
        raise ParameterError(
            f"manifest keeps combinations that its {grid.n_product} do not have; give "
            "it as run.manifest returned it.",
            param="manifest",
        )
    _check_templates(grid, is_whole=found.kept is None)
    _check_points(grid)
    return grid


def _dimensions(
    prompt: object,
    varied: Mapping[str, object],
    *,
    conditions: object,
    tied: Tied,
    n_rows: int | None,
) -> tuple[Dimension, ...]:
    found = [dimension_of(name, value) for name, value in varied.items()]
    if prompt is not None:
        if isinstance(prompt, bytes) or not isinstance(prompt, Iterable):
            raise ParameterError(
                f"prompt is {type(prompt).__name__}; give a text, a list of messages, "
                "a list of these, or a mapping from labels to these.",
                param="prompt",
            )
        found.insert(0, dimension_of("prompt", prompt))
    if conditions is None:
        return tie(found, tied, n_rows=n_rows)
    given = conditions_of(conditions)
    if "model" in given.names and all("model" in each for each in given.points):
        # the session's model is used only where the conditions have none
        found = [each for each in found if each.is_varied or each.names != ("model",)]
    return (given, *tie(found, tied, n_rows=n_rows))


def _check_templates(grid: Grid, *, is_whole: bool) -> None:
    columns = [*(() if grid.source is None else grid.source.columns), *grid.labels]
    prompts = [*grid.values_of("prompt"), *grid.values_of("system")]
    points = (point for each in grid.dimensions for point in each.points)
    values = (value for point in points for value in point.values())
    refuse_keys(values, of="A prompt, a parameter or a label")
    if grid.is_raw:
        named: set[str] = set()
    else:
        if columns or grid.source is None:
            called = "rows" if grid.source is None else grid.source.called
            check_columns(prompts, columns, called=called)
        named = {name for prompt in prompts for name in columns_in(prompt)}
    if grid.source is not None and grid.source.columns:
        _check_use(grid.source, named)
        if not grid.is_raw and is_whole:
            check_not_blank(grid.source, grid.values_of("prompt"))
    for name in grid.labels:
        if name in named:
            _check_own(grid, name)
        elif name not in LABELS.values():
            _check_label(name)


def _check_use(source: Source, named: set[str]) -> None:
    used = [name for name in source.columns if name in named]
    if not used:
        way = ", or use repeats instead of rows" if source.called == "rows" else ""
        raise ParameterError(
            "No prompt uses a column of the rows, so the same would be sent for all "
            f"rows. {_marker_hint(source)}{way}.",
            param=source.called,
        )
    check_rows(source, used)


def _check_own(grid: Grid, name: str) -> None:
    """Refuse a condition without a text for a column that a prompt uses."""
    for dimension in grid.dimensions:
        for at, point in enumerate(dimension.points):
            if name in dimension.names and name not in point:
                raise ParameterError(
                    f"Condition {at} has no value for {name!r}, which a prompt uses.",
                    param="conditions",
                )
            if name in point and not is_text(point[name]):
                raise ParameterError(
                    f"Condition {at} has {type(point[name]).__name__} for {name!r}; a "
                    "prompt takes texts, numbers and dates. Convert it to text first.",
                    param="conditions",
                )


def _check_points(grid: Grid) -> None:
    """Check every point of every dimension, together with the first of the others."""
    first: dict[str, Any] = {}
    varied = []
    for dimension in grid.dimensions:
        first |= next(iter(dimension.points), {})
        if dimension.is_varied and dimension.points:
            varied.append(dimension.in_words(0))
    key = _checked_key(grid, first, ", ".join(varied))
    for dimension in grid.dimensions:
        others = {k: v for k, v in first.items() if k not in dimension.names}
        seen = {key: 0}
        for at, point in enumerate(dimension.points[1:], start=1):
            words = dimension.in_words(at)
            row = at if dimension.is_by_row else 0
            same = _checked_key(grid, {**others, **point}, words, row=row)
            if same in seen and not dimension.is_by_row:
                raise ParameterError(
                    "Two combinations are the same request: "
                    f"{dimension.in_words(seen[same])} and {words}. Remove one of "
                    "them; to send the same more than once, use repeats=2."
                )
            seen[same] = at


def _checked_key(
    grid: Grid, point: Mapping[str, Any], words: str, *, row: int = 0
) -> str:
    """Return what identifies the request of a point; an error names the point."""
    if point.get("model") is None:
        raise ParameterError(
            "A condition has no model. Give each one a model, or remove the column.",
            param="model",
        )
    try:
        request = grid.request_at(row, point)
        system, labels = point.get("system"), hashed_labels(point)
        templates = [str(point.get("prompt")), str(system), labels]
        return request_key_of(request, templates=templates)
    except ParameterError as problem:
        where = f" This was the combination {words}; nothing was sent." if words else ""
        raise ParameterError(f"{problem}{where}", param=problem.param) from None


@with_params
def sweep(  # noqa: PLR0913 - varied is described as one; what a sweep is made of
    prompt: object = None,
    *,  # what is quoted is short in `svc.sweep?`
    model: "str | Sequence[str] | Mapping[str, str] | None" = None,
    system: "str | Sequence[str | None] | Mapping[str, str | None] | None" = None,
    rows: object = None,
    conditions: object = None,
    tied: "Sequence[str] | Sequence[Sequence[str]]" = (),
    where: "Callable[[Mapping[str, Any]], object] | None" = None,
    repeats: int = 1,
    name: str | None = None,
    seed: int | None = None,
    confirm_above: int | None = None,
    raw: bool = False,
    reuse: bool | None = None,
    answer: Any = None,  # noqa: ANN401 - a type, a regex or a function
    manifest: "Mapping[str, Any] | None" = None,
    limits: "Mapping[str, Any] | None" = None,
    in_flight: int | None = None,
    run_tools: bool = False,
    **varied: Any,  # noqa: ANN401 - a value, or a list of values, of any parameter
) -> "Run":
    r"""Plan a sweep: every combination of what is given as a list.

    Nothing is sent until you call `.run()` of the run that you get; display it for its
    plan. A combination that is not allowed is refused here, by an `AskError`.

    Args:
        prompt: A text or messages, or a list; `{{name}}` is a column of the rows.
        model: A model id, a list, or a mapping from labels to ids.
        system: A system text, a list, or a mapping from labels to texts.
        rows: A DataFrame, a Series, mappings, texts, or the path of Parquet files such
            as `folder/*.parquet`; each row gets every prompt.
        conditions: The combinations themselves: a DataFrame or mappings.
        tied: Names whose lists go side by side instead of being multiplied.
        where: A function of a combination that says whether to keep it.
        repeats: How many times each combination is sent.
        name: Name of the run; a run of this name continues, also after a restart.
        seed: Sets the order of sending; if None, from the name, else random.
        confirm_above: Ask before sending more requests than this; never if None.
        raw: Send prompts as they are, without filling templates.
        reuse: Whether the ledger may answer; None does what SVC_REUSE says.
        answer: The type of the answers, as for `read_answers`.
        manifest: The `manifest` of a run, to send the same requests again.
        limits: Lower limits for this run: `{"per_second": 2, "per_minute": 30}`.
        in_flight: Most requests in flight for one model; what its limit allows if None.
        run_tools: Run the functions in `tools`; `tool_calls_df` has the calls.
        **varied: Any parameter of `complete`: a value, or a list of values. Without
            `max_tokens` the service's default of 150 applies.

    Example:
        >>> replies = svc.sweep("Greet.", temperature=[0, 1]).run().replies_df()
    """
    return plan(
        current(),
        prompt,
        model=model,
        system=system,
        rows=rows,
        conditions=conditions,
        tied=tied,
        where=where,
        repeats=repeats,
        name=name,
        seed=seed,
        confirm_above=confirm_above,
        raw=raw,
        reuse=reuse,
        answer=answer,
        manifest=manifest,
        limits=limits,
        in_flight=in_flight,
        run_tools=run_tools,
        varied=varied,
    )


def plan(  # noqa: PLR0913 - what a sweep is made of
    session: Session,
    prompt: object = None,
    *,
    model: str | Sequence[str] | Mapping[str, str] | None = None,
    system: str | Sequence[str | None] | Mapping[str, str | None] | None = None,
    rows: object = None,
    conditions: object = None,
    tied: Tied = (),
    where: Where | None = None,
    repeats: int = 1,
    name: str | None = None,
    seed: int | None = None,
    confirm_above: int | None = None,
    raw: bool = False,
    reuse: bool | None = None,
    origin: OriginKind = "sweep",
    prices: Prices | None = None,
    answer: Any = None,  # noqa: ANN401 - a type, a regex or a function
    varied: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    in_flight: int | None = None,
    run_tools: bool = False,
) -> Run:
    """Plan a sweep for a session: see `svc.sweep`; `varied` has the parameters."""
    check_flag("raw", raw)
    check_flag("run_tools", run_tools)
    is_reusing = session.is_reusing(reuse)
    given = {"model": model, "system": system, **(varied or {})}
    permit = take_permit(given) if run_tools else None
    given = {key: each for key, each in given.items() if each is not None}
    read_as = None if answer is None else answer_type(answer)
    tools = own_rounds = None
    endpoint = session.settings.endpoint
    if manifest is None:
        grid = build_grid(
            prompt,
            varied={"model": session.settings.model, **given},
            rows=rows,
            conditions=conditions,
            tied=tied,
            where=where,
            repeats=repeats,
            is_raw=raw,
            form=read_as.form if read_as else None,
            endpoint=endpoint,
        )
        if permit is not None:
            asked = [given.get("tools"), conditions]
            tools = sweep_tools(asked, permit, grid.dimensions)
            own_rounds = tools.limits
    else:
        others = [each is not None for each in (prompt, rows, conditions, where)]
        found = read_manifest(
            manifest, *others, given, tied, raw, repeats != 1, run_tools
        )
        own_rounds = found.run_tools
        grid, seed = grid_of(found, endpoint), found.seed if seed is None else seed
        read_as = read_as or kept_type(found.answer)
        limits = limits or found.own_limits or None
        in_flight = in_flight or found.in_flight
    name = _name(name)
    planned = RunPlan(
        grid=grid,
        name=name,
        run_id=name or f"run-{uuid4().hex[:12]}",
        seed=_seed(seed, name),
        origin=origin,
        prices=session.prices if prices is None else prices,
        answer=read_as,
        paces={} if limits is None else paces_of(limits, grid.n_by_model, endpoint),
        in_flight=None
        if in_flight is None
        else check_int("in_flight", in_flight, minimum=1),
        run_tools=own_rounds,
        tools=tools,
    )
    least = _least(confirm_above)
    return Run(planned, session=session, confirm_above=least, is_reusing=is_reusing)


def _least(confirm_above: object) -> int | None:
    if confirm_above is None:
        return None
    return check_int(
        "confirm_above", confirm_above, minimum=0, otherwise="or None to never ask"
    )


def _name(name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(
            f"name must be a text that is not empty; got {name!r}.", param="name"
        )
    return check_text(name.strip(), param="name")


def _seed(seed: object, name: str | None) -> int:
    if seed is None:
        return randbits(32) if name is None else seed_of(name)
    return check_int("seed", seed, otherwise="or None to choose one")

"""The plan of a sweep: its grid, checked, with name, seed, prices and own limits.

Nothing is sent. What the service would refuse is found here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from svc_notebook.analysis.scoring import PlannedScores
from svc_notebook.analysis.typed_answers import AnswerType
from svc_notebook.credentials import refuse_keys
from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Origin, OriginKind
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.params import (
    check_int,
    did_you_mean,
    must_be,
    near_names,
)
from svc_notebook.tools.extract import Form

from .factors import (
    FACTORS,
    LABELS,
    Dimension,
    Zipped,
    check_names,
    conditions_of,
    dimension_of,
    with_answer_tool,
    zip_dimensions,
)
from .grid import Grid, Predicate, Trial, hashed_labels, matching, request_key_of
from .rows import (
    Rows,
    check_columns,
    check_not_blank,
    check_rows,
    columns_in,
    is_text,
    read_rows,
)
from .sweep_tools import SweepTools

LIMIT_NAMES = ("per_second", "per_minute", "in_flight")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLimits:
    """The user's own limits for one model; None where only the service's apply."""

    per_second: int | None = None
    per_minute: int | None = None
    in_flight: int | None = None

    @property
    def stated(self) -> dict[str, int]:
        """The limits that the user stated, by name."""
        limits = ((name, getattr(self, name)) for name in LIMIT_NAMES)
        return {name: limit for name, limit in limits if limit is not None}

    def limit(self, known: Limit | None) -> Limit | None:
        """Return the limit in force: the user's, or else the known one."""
        if self.per_second is None and self.per_minute is None:
            return known
        known = known or Limit(per_second=None, per_minute=None)
        return Limit(
            per_second=self.per_second or known.per_second,
            per_minute=self.per_minute or known.per_minute,
            in_flight=known.in_flight,
        )


LimitsByModel = Mapping[str, OwnLimits]


def read_limits(
    limits: object, models: Iterable[str], endpoint: Endpoint = SERVICE
) -> LimitsByModel:
    """Read `limits` of `svc.sweep`: numbers for all models, or by model."""
    allowed = ', such as {"per_second": 2, "in_flight": 4}, or such by model'
    if not isinstance(limits, Mapping) or not limits:
        raise must_be("limits", f"a mapping{allowed}", limits)
    models = list(models)
    if not any(isinstance(value, Mapping) for value in limits.values()):
        limits = dict.fromkeys(models, limits)
    for model, stated in limits.items():
        if model not in models:
            raise ParameterError(
                f"limits has {model!r}, which this run does not ask."
                f"{did_you_mean(str(model), [*models, *LIMIT_NAMES])} Its models are "
                f"{', '.join(models)}.",
                param="limits",
            )
        if not isinstance(stated, Mapping) or not set(stated) <= set(LIMIT_NAMES):
            allowed = f"a mapping with some of {', '.join(LIMIT_NAMES)}"
            raise must_be(f"limits of {model}", allowed, stated)
    return {
        model: _of_model(model, stated, endpoint.limit_of(model))
        for model, stated in limits.items()
    }


def _of_model(
    model: str, stated: Mapping[str, object], known: Limit | None
) -> OwnLimits:
    limits = {
        name: check_int(f"{name} in limits", value, minimum=1)
        for name, value in stated.items()
    }
    for name, limit in limits.items():
        most = getattr(known, name, None)
        if most is not None and limit > most:
            raise ParameterError(
                f"{name}={limit} in limits is above the service's limit for {model}, "
                f"which always applies; give at most {most}.",
                param="limits",
            )
    return OwnLimits(**limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run sends, under which name and how fast; for the fields see `Run`."""

    grid: Grid
    name: str | None
    run_id: str
    seed: int
    origin: OriginKind = "sweep"
    confirm_above: int | None = None
    is_reusing: bool = False
    prices: Prices | None = None
    answer: AnswerType | None = None
    scores: PlannedScores = field(default_factory=dict)
    own_limits: LimitsByModel = field(default_factory=dict)
    in_flight: int | None = None
    run_tools: Mapping[str, float] | None = (
        None  # limits of tool rounds; None: no tools are run
    )
    tools: SweepTools | None = (
        None  # None, too, for a rebuilt run: the ledger keeps no functions
    )

    def limit(self, model: str, endpoint: Endpoint) -> Limit | None:
        """Return the limit in force for a model; None if none is known."""
        return self.own_limits.get(model, OwnLimits()).limit(endpoint.limit_of(model))

    def origin_of(self, trial: Trial) -> Origin:
        """Return the origin of a trial's exchange."""
        return Origin(
            kind=self.origin,
            run=self.run_id,
            request_key=trial.request_key,
            repeat=trial.repeat,
            columns=trial.columns,
            answer=self.answer.kept if self.answer else None,
        )


_CUTOFF = 0.8  # how alike a label must be to a parameter to be refused
_LEAST_CHARS = 4  # shorter beginnings may be words of their own
_SHOWN_NAMES = 4


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


def _marker_hint(rows: Rows) -> str:
    """Say how a prompt uses one of the columns, or how to rename them first."""
    names, called = list(rows.columns), rows.called
    if plain := [name for name in names if name.isidentifier()]:
        return f"Write {{{{{plain[0]}}}}} where the column goes"
    new = ["text", *(f"column_{number}" for number in range(1, len(names)))]
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
    tied: Zipped = (),
    where: Predicate | None = None,
    repeats: int = 1,
    is_raw: bool = False,
    form: Form[Any] | None = None,
    endpoint: Endpoint = SERVICE,
) -> Grid:
    """Make a grid and check all of it; for arguments and errors see `svc.sweep`.

    `form` is the tool that gives the answers, `endpoint` where it will be sent.
    """
    read = None if rows is None else read_rows(rows)
    n_repeats = check_int("repeats", repeats, minimum=1)
    dimensions = _dimensions(
        prompt,
        varied,
        conditions=conditions,
        tied=tied,
        n_rows=None if read is None else len(read),
    )
    check_names(dimensions, () if read is None else read.columns)
    if not any("prompt" in dimension.names for dimension in dimensions):
        raise ParameterError(
            "There is no prompt. Give one, or conditions with a column 'prompt'.",
            param="prompt",
        )
    grid = Grid(
        dimensions=dimensions,
        rows=read,
        repeats=n_repeats,
        is_raw=is_raw,
        endpoint=endpoint,
    )
    check_templates(grid, is_whole=where is None)
    if form is not None:
        grid = replace(grid, dimensions=with_answer_tool(form, grid.dimensions))
    check_points(grid)
    if where is None or not grid.n_product:
        return grid
    if kept := matching(grid, where):
        return replace(grid, kept=kept)
    raise ParameterError(
        f"where keeps none of {grid.n_product} combinations, so there is nothing to "
        "send.",
        param="where",
    )


def _dimensions(
    prompt: object,
    varied: Mapping[str, object],
    *,
    conditions: object,
    tied: Zipped,
    n_rows: int | None,
) -> tuple[Dimension, ...]:
    factors = [dimension_of(name, value) for name, value in varied.items()]
    if prompt is not None:
        if isinstance(prompt, bytes) or not isinstance(prompt, Iterable):
            raise ParameterError(
                f"prompt is {type(prompt).__name__}; give a text, a list of messages, "
                "a list of these, or a mapping from labels to these.",
                param="prompt",
            )
        factors.insert(0, dimension_of("prompt", prompt))
    if conditions is None:
        return zip_dimensions(factors, tied, n_rows=n_rows)
    stated = conditions_of(conditions)
    if "model" in stated.names and all("model" in point for point in stated.points):
        # the session's model is used only where the conditions have none
        factors = [
            factor
            for factor in factors
            if factor.is_varied or factor.names != ("model",)
        ]
    return (stated, *zip_dimensions(factors, tied, n_rows=n_rows))


def check_templates(grid: Grid, *, is_whole: bool) -> None:
    """Check the prompts with the rows that fill them; all rows if it `is_whole`."""
    columns = [*(() if grid.rows is None else grid.rows.columns), *grid.labels]
    prompts = [*grid.values_of("prompt"), *grid.values_of("system")]
    values = (value for point in grid.points for value in point.values())
    refuse_keys(values, of="A prompt, a parameter or a label")
    names_used: set[str] = set()
    if not grid.is_raw:
        if columns or grid.rows is None:
            called = "rows" if grid.rows is None else grid.rows.called
            check_columns(prompts, columns, called=called)
        names_used = {name for prompt in prompts for name in columns_in(prompt)}
    if grid.rows is not None and grid.rows.columns:
        _check_use(grid.rows, names_used)
        if not grid.is_raw and is_whole:
            check_not_blank(grid.rows, grid.values_of("prompt"))
    for name in grid.labels:
        if name in names_used:
            _check_condition_texts(grid, name)
        elif name not in LABELS.values():
            _check_label(name)


def _check_use(rows: Rows, names_used: set[str]) -> None:
    used = [name for name in rows.columns if name in names_used]
    if not used:
        way = ", or use repeats instead of rows" if rows.called == "rows" else ""
        raise ParameterError(
            "No prompt uses a column of the rows, so the same would be sent for all "
            f"rows. {_marker_hint(rows)}{way}.",
            param=rows.called,
        )
    check_rows(rows, used)


def _check_condition_texts(grid: Grid, name: str) -> None:
    """Refuse a condition without a text for a column that a prompt uses."""
    for dimension in grid.dimensions:
        for number, point in enumerate(dimension.points):
            if name in dimension.names and name not in point:
                raise ParameterError(
                    f"Condition {number} has no value for {name!r}, which a prompt "
                    "uses.",
                    param="conditions",
                )
            if name in point and not is_text(point[name]):
                raise ParameterError(
                    f"Condition {number} has {type(point[name]).__name__} for "
                    f"{name!r}; a prompt takes texts, numbers and dates. Convert it "
                    "to text first.",
                    param="conditions",
                )


def check_points(grid: Grid) -> None:
    """Check every point of every dimension, with the first points of the others."""
    first: dict[str, Any] = {}
    varied = []
    for dimension in grid.dimensions:
        first |= next(iter(dimension.points), {})
        if dimension.is_varied and dimension.points:
            varied.append(dimension.in_words(0))
    first_key = _checked_key(grid, first, ", ".join(varied))
    for dimension in grid.dimensions:
        others = {
            name: value for name, value in first.items() if name not in dimension.names
        }
        seen = {first_key: 0}
        for number, point in enumerate(dimension.points[1:], start=1):
            words = dimension.in_words(number)
            row = number if dimension.is_by_row else 0
            key = _checked_key(grid, {**others, **point}, words, row=row)
            if key in seen and not dimension.is_by_row:
                raise ParameterError(
                    "Two combinations are the same request: "
                    f"{dimension.in_words(seen[key])} and {words}. Remove one of "
                    "them; to send the same more than once, use repeats=2."
                )
            seen[key] = number


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
        system, labels = point.get("system"), hashed_labels(point, grid.telling_labels)
        templates = [str(point.get("prompt")), str(system), labels]
        return request_key_of(request, templates=templates)
    except ParameterError as problem:
        where = f" This was the combination {words}; nothing was sent." if words else ""
        raise ParameterError(f"{problem}{where}", param=problem.param) from None

"""The plan of a sweep: its arguments, its grid, name, seed, prices and own limits.

The arguments of `svc.sweep` are listed only here. Nothing is sent, but what the service
would refuse is refused here. The ledger stores a plan as JSON: its manifest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from secrets import randbits
from typing import Any
from zlib import compress, decompress

import msgspec

from svc_notebook.analysis.exact_match import Mismatch, planned_mismatch
from svc_notebook.analysis.read_answers import AnswerType, answer_type, kept_type
from svc_notebook.analysis.scorers import ReadyScore, exact
from svc_notebook.analysis.scoring import (
    PlannedScores,
    function_to_keep,
    kept_function,
    read_scores,
)
from svc_notebook.credentials import known_keys, refuse_keys
from svc_notebook.display.front_end import write_warning
from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Origin, OriginKind, new_run_id
from svc_notebook.ledger.exchange_rows import KeptPlan, to_json
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.looks import read_looks
from svc_notebook.ledger.prices import Prices
from svc_notebook.ledger.reply_columns import (
    LATER,
    REPLIES,
    as_names,
    template_columns,
)
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.params import (
    check_flag,
    check_int,
    check_text,
    did_you_mean,
    must_be,
    near_names,
    unknown_param,
    with_params,
)
from svc_notebook.session import Session
from svc_notebook.tools.rounds import take_permit
from svc_notebook.tools.typed_answer import Form

from .grid import (
    FACTORS,
    LABELS,
    TOOLS,
    Dimension,
    Grid,
    Predicate,
    Trial,
    Zipped,
    check_names,
    conditions_of,
    dimension_of,
    hashed_labels,
    matching,
    request_key_of,
    with_answer_tool,
    zip_dimensions,
)
from .row_files import RowFileList, RowFiles, check_same_files
from .rows import (
    ROW,
    Rows,
    check_columns,
    check_not_blank,
    check_rows,
    columns_in,
    is_missing,
    is_text,
    read_rows,
    typed,
    without_missing,
)
from .sweep_tools import SweepTools, sweep_tools

LIMIT_NAMES = ("per_second", "per_minute", "in_flight")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLimits:
    """The user's own limits for one model; None if only the service's limit applies."""

    per_second: int | None = None
    per_minute: int | None = None
    in_flight: int | None = None

    @property
    def stated(self) -> dict[str, int]:
        """The limits that the user stated, by name."""
        limits = ((name, getattr(self, name)) for name in LIMIT_NAMES)
        return {name: limit for name, limit in limits if limit is not None}

    def limit(self, known: Limit | None) -> Limit | None:
        """Return the limit in force: the user's, or else the known limit."""
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
    """Read `limits` of `svc.sweep`: one mapping for all models, or one for each."""
    allowed = ', such as {"per_second": 2, "in_flight": 4}, or one for each model'
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
        model: _limits_of_model(model, stated, endpoint.limit_of(model))
        for model, stated in limits.items()
    }


def _limits_of_model(
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


class DecisionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The question and the plan that `Run.decide` fixed before its first request.

    Attributes:
        factor, on, margin, unit, missing, level: The question.
        max_requests, max_cost: The budget; None is no limit.
        block_rows: How many rows are sent between two looks; None if the run was
            complete, and was looked at once.
        looks: The kind of the intervals, as in `Run.contrast`.
        scores: A digest of the source of each score function, by name.
        plan: A digest of rows, prompts, values and seed.
        n_before: How many replies the run had before.
        digest: A digest of all other fields.
    """

    factor: str
    on: str
    margin: float | None
    unit: list[str] | None
    missing: str
    level: float
    max_requests: int | None
    max_cost: float | None
    block_rows: int | None
    looks: str = "any"
    scores: dict[str, str]
    plan: str
    n_before: int
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run sends, its name and its limits; for the fields see `Run`."""

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
    unit: tuple[str, ...] = ()
    own_limits: LimitsByModel = field(default_factory=dict)
    in_flight: int | None = None
    # limits of tool rounds; None if no tools are run
    run_tools: Mapping[str, float] | None = None
    # also None for a rebuilt run: the ledger keeps no functions
    tools: SweepTools | None = None
    decision: DecisionPlan | None = None  # if `Run.decide` was called

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


_CUTOFF = 0.8  # least similarity of a name to a parameter for it to be a typing error
_LEAST_CHARS = 4  # shorter beginnings of a parameter may be other words
_SHOWN_NAMES = 4
_TOOL_ARGUMENTS = ("confirm", "max_rounds", "tool_timeout_s", "total_s")
_PROMPT_FIRST = (
    "Give the prompt first, without a name: a text, messages, or a list of these."
)
_NOT_TAKEN = {
    "stream": "A sweep asks for whole replies, because only they report their usage; "
    "remove stream. A `%%svc` cell with several values shows them as they arrive, and "
    "svc.stream(prompt) streams one.",
    "messages": _PROMPT_FIRST,
    "prompt": _PROMPT_FIRST,
    **dict.fromkeys(
        _TOOL_ARGUMENTS,
        "It has an effect only if tools are run: remove it, or remove run_tools=False.",
    ),
}
"""Arguments that a sweep does not take, and what to do instead."""


@with_params
def make_plan(  # noqa: D417, PLR0913 - `svc.sweep`, whose docstring it is, has no session
    session: Session,
    /,
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
    scores: "Mapping[str, Any] | None" = None,
    unit: "str | Sequence[str] | None" = None,
    manifest: "Mapping[str, Any] | None" = None,
    limits: "Mapping[str, Any] | None" = None,
    in_flight: int | None = None,
    run_tools: bool = True,
    **varied: Any,  # noqa: ANN401 - a value, or a list of values, of any parameter
) -> Plan:
    r"""Plan a sweep: every combination of what is given as a list.

    Nothing is sent until you call `.run()` of the run that you get; display it for its
    plan. A combination that is not allowed is refused here, by an `AskError`.

    Args:
        prompt: A text or messages, or a list; `{{name}}` is a column of the rows.
        model: A model id, a list, or a mapping from labels to ids.
        system: A system text, a list, or a mapping from labels to texts.
        rows: A DataFrame, a Series, mappings, texts, a CSV file, or `a/*.parquet`.
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
        scores: By name, functions that score each reply as it comes (see `Run.score`).
        unit: The rows' columns whose values belong together, such as a document.
        manifest: The `manifest` of a run, to send the same requests again.
        limits: Lower limits for each model: `{"per_second": 2, "per_minute": 30}`.
        in_flight: Most requests in flight for one model; what its limit allows if None.
        run_tools: False leaves calls to you; `tool_calls_df` lists those that are run.
        **varied: Any parameter of `complete`: a value, or a list of values. Without
            `max_tokens` the service's default of 150 applies.

    Example:
        >>> replies = svc.sweep("Greet.", temperature=[0, 1]).run().replies_df()
    """
    check_flag("raw", raw)
    check_flag("run_tools", run_tools)
    params = {"model": model, "system": system, **varied}
    params = {name: value for name, value in params.items() if value is not None}
    is_varied = bool(params)
    has_tools = not params.keys().isdisjoint((TOOLS, *_TOOL_ARGUMENTS))
    permit = None
    if run_tools and (has_tools or conditions is not None):
        permit = take_permit(params)
    check_params(params, own=SWEEP_ARGUMENTS)
    answer_as = None if answer is None else answer_type(answer)
    planned_scores = {} if scores is None else read_scores(scores)
    tools: SweepTools | None = None
    tool_limits: Mapping[str, float] | None = None
    context = session.context()
    endpoint = context.settings.endpoint
    if manifest is None:
        grid = build_grid(
            prompt,
            varied={"model": context.settings.model, **params},
            rows=rows,
            conditions=conditions,
            tied=tied,
            where=where,
            repeats=repeats,
            is_raw=raw,
            form=answer_as.form if answer_as else None,
            endpoint=endpoint,
        )
        if permit is not None:
            tools = sweep_tools(
                [params.get(TOOLS), conditions], permit, grid.dimensions
            )
            tool_limits = tools.limits if tools else None
        _warn_of_models(grid)
    else:
        others = [value is not None for value in (prompt, rows, conditions, where)]
        stored = read_manifest(manifest, *others, is_varied, tied, raw, repeats != 1)
        tool_limits = stored.run_tools
        grid, seed = grid_of(stored, endpoint), stored.seed if seed is None else seed
        answer_as = answer_as or kept_type(stored.answer)
        planned_scores = planned_scores or {
            name: kept_function(kept) for name, kept in stored.scores.items()
        }
        unit = unit or stored.unit
        limits = limits or stored.own_limits or None
        in_flight = in_flight or stored.in_flight
    if scores is not None:
        _check_score_columns(planned_scores, grid)
        _check_right_values(planned_scores, grid, answer_as)
    name = _check_name(name)
    return Plan(
        grid=grid,
        name=name,
        run_id=name or new_run_id(),
        seed=_check_seed(seed, name),
        confirm_above=_check_confirm_above(confirm_above),
        is_reusing=context.is_reusing(reuse),
        prices=context.prices,
        answer=answer_as,
        scores=planned_scores,
        unit=read_unit(unit, grid.rows),
        own_limits={}
        if limits is None
        else read_limits(limits, grid.n_by_model, endpoint),
        in_flight=None
        if in_flight is None
        else check_int("in_flight", in_flight, minimum=1),
        run_tools=tool_limits,
        tools=tools,
    )


# what a sweep takes besides the parameters of a request, `model` and `system`
SWEEP_ARGUMENTS = tuple(
    name for name in make_plan.__kwdefaults__ or () if name not in FACTORS
)


def check_params(names: Iterable[str], *, own: Sequence[str]) -> None:
    """Refuse a name that is not a parameter, and suggest the most similar one."""
    for name in names:
        if name in _NOT_TAKEN:
            raise ParameterError(f"{_NOT_TAKEN[name]} Nothing was sent.", param=name)
        if name in SWEEP_ARGUMENTS:  # it was given to df.svc, which does not take it
            given = "" if name == "rows" else f", {name}=..."
            raise ParameterError(
                f"{name} is an argument of svc.sweep, not of df.svc. Use "
                f"svc.sweep(..., rows=df{given}).run().replies_df(). Nothing was sent.",
                param=name,
            )
        if name in FACTORS:
            continue
        if hint := did_you_mean(name, own, n=1, cutoff=_CUTOFF):
            raise ParameterError(
                f"{name!r} is not a parameter.{hint} Nothing was sent.", param=name
            )
        raise unknown_param(name)


def _warn_of_models(grid: Grid) -> None:
    """Say which models are unknown but similar to a known one; they are not refused."""
    endpoint = grid.endpoint
    known = [model.id for model in endpoint.known_models()]
    source = "the endpoint's list" if endpoint.lists_models else "the service document"
    for model in grid.n_by_model:
        hint = did_you_mean(model.lower(), known, n=1, cutoff=_CUTOFF)
        if hint and model not in known:
            write_warning(f"{model} is not in {source}; it is sent as it is.{hint}")


def _check_confirm_above(confirm_above: object) -> int | None:
    if confirm_above is None:
        return None
    return check_int(
        "confirm_above", confirm_above, minimum=0, otherwise="or None to never ask"
    )


def _check_name(name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(
            f"name must be a text that is not empty; got {name!r}.", param="name"
        )
    return check_text(name.strip(), param="name")


def _check_seed(seed: object, name: str | None) -> int:
    if seed is None:
        return randbits(32) if name is None else seed_of(name)
    return check_int("seed", seed, otherwise="or None to choose one")


def seed_of(name: str) -> int:
    """Return the seed of a run by its name, so that it is the same after a restart."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest())


_NO_ROWS = "There are no rows with columns"


def _check_score_columns(scores: PlannedScores, grid: Grid) -> None:
    """Refuse a ready-made score of a column that frames of replies will not have."""
    names = [column.name for column in REPLIES]
    columns = template_columns([dict.fromkeys(grid.column_names)], names)
    own = [column.name for column in columns if column.name != ROW]
    known = [*own, ROW, *names]
    in_words = f"The columns of the rows are {', '.join(own)}" if own else _NO_ROWS
    for name, score in scores.items():
        column = score.column if isinstance(score, ReadyScore) else None
        if column is None or column in known or column.startswith(LATER):
            continue
        raise ParameterError(
            f"The score {name} compares with the column {column!r}, which the replies "
            f"will not have.{did_you_mean(column, known, n=1)} {in_words}. "
            "Nothing was sent.",
            param="scores",
        )


def planned_never_right(
    scores: PlannedScores, grid: Grid, answer: AnswerType | None
) -> dict[str, Mismatch]:
    """Return, by score, the values in rows of memory that no answer can ever equal."""
    rows = grid.rows
    if rows is None or rows.files is not None or answer is None:
        return {}
    names = [column.name for column in REPLIES]
    columns = template_columns([dict.fromkeys(grid.column_names)], names)
    own = dict(zip((column.name for column in columns), grid.column_names, strict=True))
    found = {
        name: planned_mismatch(
            [None if is_missing(value) else value for value in rows.shown[column]],
            str(score.column),
            answer,
        )
        for name, score in scores.items()
        if isinstance(score, ReadyScore) and score.name == exact.__name__
        if (column := own.get(str(score.column))) in rows.shown
    }
    return {name: mismatch for name, mismatch in found.items() if mismatch.n_never}


def _check_right_values(
    scores: PlannedScores, grid: Grid, answer: AnswerType | None
) -> None:
    """Refuse a score for which no reply could ever be right."""
    for name, mismatch in planned_never_right(scores, grid, answer).items():
        if mismatch.n_never == mismatch.n_values:
            raise ParameterError(
                f"{name}: {mismatch.in_words()} Nothing was sent.", param="scores"
            )


def read_unit(unit: object, rows: Rows | None) -> tuple[str, ...]:
    """Read `unit` of `svc.sweep`: columns of the rows, without missing values."""
    names = () if unit is None else tuple(as_names(unit))
    called, columns = ("rows", {}) if rows is None else (rows.called, rows.shown)
    for name in names:
        if name not in columns:
            raise ParameterError(
                f"unit={name!r} is not a column of {called}."
                f"{did_you_mean(str(name), list(columns))} A unit says which rows "
                "belong together, such as a document; the columns are "
                f"{', '.join(columns) or 'none'}.",
                param="unit",
            )
        if n := sum(map(is_missing, columns[name])):
            raise ParameterError(
                f"{name} is missing in {n:,} of {len(columns[name]):,} rows, so their "
                "unit is unknown. Fill the gaps, or leave these rows out.",
                param="unit",
            )
    return names


def build_grid(  # noqa: PLR0913 - the parts of a grid
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

    `form` is the tool that gives the answers, `endpoint` is where requests will go.
    """
    grid_rows = None if rows is None else read_rows(rows)
    n_repeats = check_int("repeats", repeats, minimum=1)
    dimensions = _dimensions(
        prompt,
        varied,
        conditions=conditions,
        tied=tied,
        n_rows=None if grid_rows is None else len(grid_rows),
    )
    check_names(dimensions, () if grid_rows is None else grid_rows.columns)
    if not any("prompt" in dimension.names for dimension in dimensions):
        raise ParameterError(
            "There is no prompt. Give one, or conditions with a column 'prompt'.",
            param="prompt",
        )
    grid = Grid(
        dimensions=dimensions,
        rows=grid_rows,
        repeats=n_repeats,
        is_raw=is_raw,
        endpoint=endpoint,
    )
    # before the tool is added, whose order has no columns; blank rows may be left out
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
        # the session's model is for conditions without a model, and all have one
        factors = [
            factor
            for factor in factors
            if factor.is_varied or factor.names != ("model",)
        ]
    return (stated, *zip_dimensions(factors, tied, n_rows=n_rows))


def _check_label(name: str) -> None:
    """Refuse a label in conditions that looks like a misspelled parameter."""
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
    """Say how a prompt uses a column, or how to rename the columns first."""
    names, called = list(rows.columns), rows.called
    if plain := [name for name in names if name.isidentifier()]:
        return f"Write {{{{{plain[0]}}}}} where the column goes"
    new = ["text", *(f"column_{number}" for number in range(1, len(names)))]
    example = f"{called}.set_axis({new}, axis='columns')"
    if len(names) > _SHOWN_NAMES:
        example = f"{called}.rename(columns=...)"
    return (
        "A prompt uses a column as {{name}}, and the name must be an identifier; "
        f"rename {names[0]!r}, for example with {example}"
    )


def check_templates(grid: Grid, *, is_whole: bool) -> None:
    """Check the prompts with their rows; if it `is_whole`, no row may be left blank."""
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
        _check_use(grid, grid.rows, names_used)
        if not grid.is_raw and is_whole:
            check_not_blank(grid.rows, grid.values_of("prompt"))
    for name in grid.labels:
        if name in names_used:
            _check_condition_texts(grid, name)
        elif name not in LABELS.values():
            _check_label(name)


def _check_use(grid: Grid, rows: Rows, names_used: set[str]) -> None:
    used = [name for name in rows.columns if name in names_used]
    has_own = any(
        dimension.is_by_row and not {"prompt", "system"}.isdisjoint(dimension.names)
        for dimension in grid.dimensions
    )
    if not used and not has_own:
        instead = ", or use repeats instead of rows" if rows.called == "rows" else ""
        raise ParameterError(
            "No prompt uses a column of the rows, so the same would be sent for all "
            f"rows. {_marker_hint(rows)}{instead}.",
            param=rows.called,
        )
    check_rows(rows, used)


def _check_condition_texts(grid: Grid, name: str) -> None:
    """Refuse a condition that has no text for a column that a prompt uses."""
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
            in_words = dimension.in_words(number)
            row = number if dimension.is_by_row else 0
            key = _checked_key(grid, {**others, **point}, in_words, row=row)
            if key in seen and not dimension.is_by_row:
                raise ParameterError(
                    "Two combinations are the same request: "
                    f"{dimension.in_words(seen[key])} and {in_words}. Remove one of "
                    "them; to send the same more than once, use repeats=2."
                )
            seen[key] = number


def _checked_key(
    grid: Grid, point: Mapping[str, Any], in_words: str, *, row: int = 0
) -> str:
    """Return the key of the request of a point; an error names the point."""
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
        where = f" This was the combination {in_words}; nothing was sent."
        text = f"{problem}{where if in_words else ''}"
        raise ParameterError(text, param=problem.param) from None


class Manifest(msgspec.Struct, kw_only=True):
    """A plan as JSON: the ledger stores it, and `run.manifest` adds the outcome.

    Attributes:
        rows, dtypes, categories, index: The rows, and what else a DataFrame has.
        files: The files of the rows, if they are in files; then `rows` is None.
        csv: The name of the CSV file that `rows` came from; "" if none.
        kept: Numbers of the combinations that `where` kept; None for all.
        fixed: The factors that have one value.
        own_limits: The user's own limits, by model.
        scores: What is stored of each score, by name.
        unit: The columns of the rows that say which rows belong together.
        run_tools: The limits of tool rounds; None if no tools are run.
        is_reusing: Whether the ledger may answer.
        decision: What `Run.decide` fixed, if it was called.
        looks: With how many replies values were compared before the run was complete.
            Earlier versions stored it here; now the ledger has a table of looks.
    """

    run: str
    name: str | None
    origin: OriginKind
    seed: int
    repeats: int
    dimensions: tuple[Dimension, ...]
    rows: list[dict[str, Any]] | None
    files: RowFileList | None
    csv: str = ""
    dtypes: dict[str, str]
    categories: dict[str, dict[str, Any]]
    index: Mapping[str, Sequence[Any]]
    kept: list[int] | None
    fixed: dict[str, Any]
    answer: str | None
    scores: dict[str, dict[str, str]] = {}
    unit: tuple[str, ...] = ()
    is_raw: bool
    own_limits: dict[str, dict[str, int]]
    in_flight: int | None
    run_tools: Mapping[str, float] | None
    is_reusing: bool = False
    n_cells: int
    decision: DecisionPlan | None = None
    looks: tuple[int, ...] = ()


def manifest_of(plan: Plan) -> Manifest:
    """Return the manifest of a plan."""
    grid, rows = plan.grid, plan.grid.rows
    is_in_memory = rows is not None and rows.files is None
    fixed = {
        name: dimension.points[0].get(name)
        for dimension in grid.dimensions
        if len(dimension.points) == 1 and not dimension.is_by_row
        for name in dimension.names
    }
    limits = plan.own_limits.items()
    return Manifest(
        run=plan.run_id,
        name=plan.name,
        origin=plan.origin,
        seed=plan.seed,
        repeats=grid.repeats,
        dimensions=grid.dimensions,
        rows=[without_missing(rows.row(position)) for position in range(len(rows))]
        if rows is not None and is_in_memory
        else None,
        files=rows.files.listed if rows is not None and rows.files else None,
        csv="" if rows is None else rows.csv,
        dtypes={} if rows is None else rows.dtypes,
        categories={} if rows is None else rows.categories,
        index=rows.index if rows is not None and is_in_memory else {},
        kept=None if grid.kept is None else list(grid.kept),
        fixed=fixed,
        answer=plan.answer.kept if plan.answer else None,
        scores={name: function_to_keep(score) for name, score in plan.scores.items()},
        unit=plan.unit,
        is_raw=grid.is_raw,
        own_limits={model: limit.stated for model, limit in limits},
        in_flight=plan.in_flight,
        run_tools=plan.run_tools,
        is_reusing=plan.is_reusing,
        n_cells=len(grid),
        decision=plan.decision,
    )


class StudyFacts(msgspec.Struct, frozen=True):
    """The part of a manifest that is about deciding and comparing."""

    decision: DecisionPlan | None = None
    looks: tuple[int, ...] = ()


def stored_facts(ledger: Ledger | None, run_id: str) -> StudyFacts:
    """Return what the ledger has of a run's decision and looks."""
    for stored in () if ledger is None else ledger.plans(run_id)[-1:]:
        return msgspec.json.decode(decompress(stored.manifest), type=StudyFacts)
    return StudyFacts()


def looks_at(ledger: Ledger | None, plan: Plan) -> tuple[int, ...]:
    """Return with how many replies values were compared before the run was whole.

    A look at a complete run counts when the run has got more rows.
    """
    if ledger is None:
        return ()
    n_rows = n_rows_of(plan)
    looks = read_looks(ledger, plan.run_id)
    in_plan = stored_facts(ledger, plan.run_id).looks  # of an earlier version
    return tuple(
        sorted({*in_plan, *(look.n_replies for look in looks if look.n_rows < n_rows)})
    )


def n_rows_of(plan: Plan) -> int:
    """Return how many rows a plan has; a prompt without rows counts as one."""
    return 1 if plan.grid.rows is None else len(plan.grid.rows)


def stored_manifest(stored: KeptPlan) -> Manifest:
    """Return the manifest of a stored plan."""
    return read_manifest(msgspec.json.decode(decompress(stored.manifest)))


def as_stored(plan: Plan) -> Manifest:
    """Return the manifest of a plan as the ledger would give it back."""
    return msgspec.json.decode(_without_keys(manifest_of(plan)), type=Manifest)


def _without_keys(manifest: Manifest) -> bytes:
    """Return a manifest as JSON without API keys that this kernel knows."""
    text = to_json(manifest).decode()
    for key in known_keys():  # a column that no prompt uses may contain a key
        text = key.redact(text)
    return text.encode()


def read_manifest(manifest: object, *others: object) -> Manifest:
    """Read and check a manifest; other arguments of the plan are refused with it."""
    if any(others):
        raise ParameterError(
            "manifest has the whole grid; give only name, seed, confirm_above, "
            "reuse, answer, scores, unit, limits and in_flight with it.",
            param="manifest",
        )
    if isinstance(manifest, Manifest):
        return manifest
    if not isinstance(manifest, Mapping):
        raise ParameterError(
            f"manifest is {type(manifest).__name__}; give the dict that run.manifest "
            "returned, also after json.dumps and json.loads.",
            param="manifest",
        )
    try:
        return msgspec.convert(manifest, Manifest)
    except msgspec.ValidationError as problem:
        raise ParameterError(
            f"manifest is not the manifest of a run: {problem}. Give the dict that "
            "run.manifest returned, also after json.dumps and json.loads.",
            param="manifest",
        ) from None


def grid_of(manifest: Manifest, endpoint: Endpoint) -> Grid:
    """Make the grid of a manifest for an endpoint, and check it."""
    rows: object = manifest.rows
    if manifest.files is not None:
        rows = files = RowFiles(manifest.files.path)
        check_same_files(manifest.files, files.listed)
    elif manifest.rows and manifest.dtypes:
        rows = typed(
            manifest.rows, manifest.dtypes, manifest.index, manifest.categories
        )
    kept = manifest.kept
    grid = Grid(
        dimensions=manifest.dimensions,
        rows=None if rows is None else replace(read_rows(rows), csv=manifest.csv),
        repeats=check_int("repeats", manifest.repeats, minimum=1),
        is_raw=manifest.is_raw,
        kept=kept,
        endpoint=endpoint,
    )
    if kept and not 0 <= min(kept) <= max(kept) < grid.n_product:
        raise ParameterError(
            f"manifest keeps combinations beyond the {grid.n_product} of its grid. "
            "Give it as run.manifest returned it.",
            param="manifest",
        )
    check_templates(grid, is_whole=kept is None)
    check_points(grid)
    return grid


def keep_plan(plan: Plan, ledger: Ledger, *, has_unplanned: bool) -> None:
    """Store a plan with its rows in the ledger, unless it is there already.

    An older plan is kept while the run has trials that are not in this one. What a
    decision fixed, and the looks, are always kept.
    """
    manifest, facts = manifest_of(plan), stored_facts(ledger, plan.run_id)
    manifest.decision = plan.decision or facts.decision
    manifest.looks = facts.looks
    whole = _without_keys(manifest)
    digest = blake2b(whole, digest_size=8).hexdigest()
    stored = ledger.plans(plan.run_id, is_whole=False)
    if stored and stored[-1].digest == digest:
        return
    ledger.add_plan(
        KeptPlan(
            run=plan.run_id,
            # a new part keeps the older plan, the same part replaces it
            part=stored[-1].part + has_unplanned if stored else 0,
            name=plan.name,
            n_trials=len(plan.grid),
            digest=digest,
            manifest=compress(whole, level=1),
        )
    )

"""`svc.sweep`: its arguments, which are listed here only, and the plan made of them."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from secrets import randbits
from typing import Any, Concatenate, ParamSpec
from uuid import uuid4

from svc_notebook.analysis.scoring import kept_function, read_scores
from svc_notebook.analysis.typed_answers import answer_type, kept_type
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import OriginKind
from svc_notebook.service.params import (
    check_flag,
    check_int,
    check_text,
    did_you_mean,
    unknown_param,
    with_params,
)
from svc_notebook.session import Session, current
from svc_notebook.tools.rounds import take_permit

from .factors import FACTORS, TOOLS
from .manifest import grid_of, read_manifest
from .plan import Plan, build_grid, read_limits
from .run import Run
from .scheduler import seed_of
from .sweep_tools import SweepTools, sweep_tools

Arguments = ParamSpec("Arguments")
_CUTOFF = 0.8  # how alike a name must be to be suggested
_TOOL_ARGUMENTS = ("confirm", "max_rounds", "tool_timeout_s", "total_s")
_PROMPT_FIRST = (
    "Give the prompt first, without a name: a text, messages, or a list of such."
)
_REFUSED = {
    "stream": "A sweep asks for whole replies, because only they report their usage; "
    "remove stream. A `%%svc` cell with several values shows them as they arrive, and "
    "svc.stream(prompt) streams one.",
    "messages": _PROMPT_FIRST,
    "prompt": _PROMPT_FIRST,
    **dict.fromkeys(
        _TOOL_ARGUMENTS,
        "It means something only where tools are run: remove it, or run_tools=False.",
    ),
}
"""Names that a sweep does not take, and what to do instead."""


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
        rows: A DataFrame, a Series, mappings, texts, or files such as `a/*.parquet`.
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
        manifest: The `manifest` of a run, to send the same requests again.
        limits: Lower limits for this run: `{"per_second": 2, "per_minute": 30}`.
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
    read_as = None if answer is None else answer_type(answer)
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
            form=read_as.form if read_as else None,
            endpoint=endpoint,
        )
        if permit is not None:
            tools = sweep_tools(
                [params.get(TOOLS), conditions], permit, grid.dimensions
            )
            tool_limits = tools.limits if tools else None
    else:
        others = [value is not None for value in (prompt, rows, conditions, where)]
        known = read_manifest(manifest, *others, is_varied, tied, raw, repeats != 1)
        tool_limits = known.run_tools
        grid, seed = grid_of(known, endpoint), known.seed if seed is None else seed
        read_as = read_as or kept_type(known.answer)
        planned_scores = planned_scores or {
            name: kept_function(kept) for name, kept in known.scores.items()
        }
        limits = limits or known.own_limits or None
        in_flight = in_flight or known.in_flight
    name = _check_name(name)
    return Plan(
        grid=grid,
        name=name,
        run_id=name or f"run-{uuid4().hex[:12]}",
        seed=_check_seed(seed, name),
        confirm_above=_check_confirm_above(confirm_above),
        is_reusing=context.is_reusing(reuse),
        prices=context.prices,
        answer=read_as,
        scores=planned_scores,
        own_limits={}
        if limits is None
        else read_limits(limits, grid.n_by_model, endpoint),
        in_flight=None
        if in_flight is None
        else check_int("in_flight", in_flight, minimum=1),
        run_tools=tool_limits,
        tools=tools,
    )


# what a sweep takes in addition to the parameters of a request, `model` and `system`
SWEEP_ARGUMENTS = tuple(
    name for name in make_plan.__kwdefaults__ or () if name not in FACTORS
)


def plan_run(
    session: Session,
    prompt: object = None,
    *,
    origin: OriginKind = "sweep",
    **arguments: Any,  # noqa: ANN401 - those of `make_plan`
) -> Run:
    """Plan a run in a session; for the arguments see `svc.sweep`."""
    plan = make_plan(session, prompt, **arguments)
    return Run(replace(plan, origin=origin), session=session)


def _in_current_session(
    make: Callable[Concatenate[Session, Arguments], Plan],
) -> Callable[Arguments, Run]:
    """Make a public verb of a function that takes a session."""

    @wraps(make)
    def sweep(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Run:
        session = current()
        return Run(make(session, *args, **kwargs), session=session)

    signature = inspect.signature(make)
    _, *shown = signature.parameters.values()
    sweep.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what `?` shows
        parameters=shown, return_annotation="Run"
    )
    sweep.__name__ = sweep.__qualname__ = "sweep"
    return sweep


# the arguments are listed once, so the verb is made of the function that has them
sweep = _in_current_session(make_plan)


def check_params(names: Iterable[str], *, own: Sequence[str]) -> None:
    """Refuse a name that is not a parameter, and suggest the nearest one."""
    for name in names:
        if name in _REFUSED:
            raise ParameterError(f"{_REFUSED[name]} Nothing was sent.", param=name)
        if name in SWEEP_ARGUMENTS:  # given to df.svc, which does not take it
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

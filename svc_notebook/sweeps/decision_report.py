"""The report of a run: one file to attach to a decision, with the replies.

It is made from the ledger: the stored plan, the requests and the replies. What the
replies show is found in `report_findings`; `report_page` writes the page.
"""

import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from svc_notebook.analysis.contrast import Contrast, contrast
from svc_notebook.analysis.contrast_sentences import ADJECTIVES
from svc_notebook.analysis.decision import Decision
from svc_notebook.analysis.rated import of_chosen_labels, random_labels
from svc_notebook.analysis.reply_factors import (
    TEMPLATE,
    check_replies,
    coded,
    column_of,
    is_rate,
    named,
    scores,
    spoken,
)
from svc_notebook.analysis.report_findings import (
    JUDGE,
    RATED,
    Findings,
    JudgeFacts,
    against_best,
    answer_lines,
    condition_section,
    difference_section,
    flip_section,
    judge_section,
    limit_lines,
    measured,
    random_section,
    split_section,
    table_of,
    with_enough_rows,
    worst_section,
)
from svc_notebook.analysis.rounding import difference, number, percent
from svc_notebook.analysis.score_report import score_columns, score_report
from svc_notebook.analysis.statistics import LEVEL
from svc_notebook.analysis.summary import with_costs
from svc_notebook.credentials import known_keys
from svc_notebook.display.report_page import (
    FileInside,
    ReportFacts,
    ReportPage,
    ReportPart,
    ReportSection,
    ReportTable,
    Sentences,
    Verbatim,
)
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_export import export, write_whole
from svc_notebook.ledger.reply_columns import as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import check_text, must_be, shorten
from svc_notebook.settings import to_path

from .grid import LABELS
from .plan import DecisionPlan, Plan
from .plan_description import in_a_line
from .resume import settled_of
from .run_outcome import RunResult

_FORMATS = (".html", ".htm", ".md")
_MAX_INSIDE_BYTES = 1_000_000  # size in memory of a frame that is put into the page
_SHOWN_TEXTS = 6  # prompts, and as many system messages
_SHOWN_VALUES = 12
_VALUE_CHARS = 60
_PACKAGES = ("svc-notebook", "pandas", "numpy", "scipy", "pyarrow")
_KINDS = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}
WithLooks = Callable[[Contrast], Contrast]
"""Adds a note to a comparison if the run was looked at before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuestion:
    """The subject of a report; None takes what the plan says, or what a run shows.

    Attributes:
        factor: The factor that is compared.
        on: The score, or several scores.
        labels: Ratings by people, which correct the score of a judge.
        by: Columns of the rows, such as `language`, that split the figures.
        margin: A difference that would not matter.
        title: The title of the page.
    """

    factor: str | Sequence[str] | None = None
    on: str | Sequence[str] | None = None
    labels: str | None = None
    by: str | Sequence[str] | None = None
    margin: float | None = None
    title: str | None = None


def write_report(
    result: RunResult,
    path: str | PathLike[str],
    question: ReportQuestion,
    *,
    replay: Callable[[], Decision | None],
    with_looks: WithLooks,
    judges: Sequence[tuple[JudgeFacts, RunResult]],
) -> list[Path]:
    """Write the report of a run: see `Run.report`.

    Args:
        result: The result of the run.
        path: The file to write.
        question: The subject of the report.
        replay: Returns the decision of `Run.decide`, if there was one.
        with_looks: Adds a note to a comparison if the run was looked at before.
        judges: The facts about each judge of the run, and the result of its sweep.
    """
    place = Path(to_path("path", path)).expanduser()
    if place.suffix.lower() not in _FORMATS:
        raise ParameterError(
            f"path must end with .html or .md, which says what to write; got "
            f"{str(path)!r}.",
            param="path",
        )
    is_html = place.suffix.lower() != ".md"
    df = _without_keys(result.replies_df())
    findings = _findings(result, df, question, replay(), with_looks)
    findings = replace(findings, judges=[facts for facts, _ in judges])
    replies = _ReplyFiles.of(df, place, is_inside=is_html)
    judge_results = {facts.name: judge_result for facts, judge_result in judges}
    costs = _cost_section(result, judge_results)
    page = _page(result, findings, question.title, costs, replies.parts)
    text = page.html() if is_html else page.markdown()
    for key in known_keys():
        text = key.redact(text)
    files = [export(df, file) for file in replies.files]
    content = text.encode("utf-8", "replace")
    written = write_whole(place, lambda file: file.write_bytes(content))
    return [written, *files]


def _without_keys(df: pd.DataFrame) -> pd.DataFrame:
    """Hide the API keys of this kernel, which a column of the rows may contain."""
    keys = known_keys()

    def hidden(value: Any) -> Any:  # noqa: ANN401 - whatever a frame holds
        for key in keys:
            value = key.redact(value)
        return value

    changed = {}
    for name in df.columns if keys else ():
        values = df[name]
        if values.dtype == object or pd.api.types.is_string_dtype(values.dtype):
            texts = values.astype(object)
            safe = texts.map(hidden, na_action="ignore")
            if not safe.equals(texts):
                changed[name] = safe.astype(values.dtype)
        elif isinstance(values.dtype, pd.CategoricalDtype):
            kinds = values.cat.categories
            if [*map(hidden, kinds)] != [*kinds]:
                changed[name] = values.astype(object).map(hidden).astype("string")
    return df.assign(**changed) if changed else df


def _findings(
    result: RunResult,
    df: pd.DataFrame,
    question: ReportQuestion,
    decision: Decision | None,
    with_looks: WithLooks,
) -> Findings:
    """Compare what the question names, or else what the decision or the plan names."""
    df = with_costs(
        check_replies(df),
        result.prices,
        include_emulated=result.prices is not None,  # as in the table of costs
    )
    fixed = result.decision if decision is not None else None
    margin = question.margin
    names = [*result.plan.scores] or [_score_name(name) for name in scores(df)]
    options: dict[str, Any] = {"factor": question.factor, "unit": result.unit}
    if fixed is not None and question.factor is None:
        options["factor"] = _factors_of(fixed, df)
        options |= {"looks": fixed.looks, "missing": fixed.missing, "unit": fixed.unit}
        if margin not in {None, fixed.margin}:
            raise _other_margin(margin, fixed, options["factor"])
        names, margin = [fixed.on], None  # the decision has its own
    if question.on is not None:
        names = [_score_name(name) for name in as_names(question.on)]
    on = score_columns(df, names)
    if question.on is not None and not on:
        known = ", ".join(map(_score_name, scores(df))) or "none"
        raise ParameterError(
            f"No reply has a score {' or '.join(names)} that is a number; the scores "
            f"are {known}.",
            param="on",
        )
    df, corrected, notes = _correct(result, df, on, question.labels)
    enough, too_few, against = _with_enough_rows(df, on, options, margin)
    how = {**options, **against, **corrected}
    scored = score_report(df, names, compared=enough, **how) if on else None
    if scored is not None and scored.contrast is not None:
        compared = with_looks(scored.contrast)
        compared = replace(compared, notes=[*compared.notes, *notes])
        scored = replace(scored, contrast=compared)
    by = named(df, result.frames.own(question.by), param="by") if question.by else []
    split = None
    if by and scored is not None and scored.contrast is not None:
        split = _split(scored.contrast, by, how, with_looks)
    return Findings(
        df=df,
        on=on,
        scored=scored,
        decision=None if question.factor is not None else decision,
        seed=result.plan.seed,
        currency=result.prices.currency if result.prices else "",
        unit=options["unit"],
        by=by,
        split=split,
        too_few=too_few,
    )


def _other_margin(
    margin: float | None, fixed: DecisionPlan, factor: str | Sequence[str]
) -> ParameterError:
    return ParameterError(
        f"margin={margin!r} is not that of the decision, margin={fixed.margin}. Remove "
        "it: the report has the decision with its own margin. For a report without the "
        f"decision, name what to compare: factor={factor!r}.",
        param="margin",
    )


def _with_enough_rows(
    df: pd.DataFrame,
    on: Sequence[str],
    options: Mapping[str, Any],
    margin: float | None,
) -> tuple[pd.DataFrame, list[str], dict[str, Any]]:
    """Return the replies to compare, what is left out, and what a margin is against.

    A decision leaves nothing out: it drops values itself, and says so.
    """
    too_few: list[str] = []
    against: dict[str, Any] = {}
    if on and "looks" not in options:
        df, too_few = with_enough_rows(df, options["factor"], on[0])
    if on and margin is not None:
        best = against_best(df, options["factor"], on[0])
        against = {"margin": margin, **best}
    return df, too_few, against


def _split(
    compared: Contrast,
    by: Sequence[str],
    options: Mapping[str, Any],
    with_looks: WithLooks,
) -> Contrast:
    """Compare the same replies again, for each value of `by`."""
    is_decided = options.get("looks") == "any"
    # there are no intervals of subgroups that hold at any look
    how = {**options, "factor": options["factor"] or compared.factors, "looks": "one"}
    split = contrast(compared.replies, on=compared.scores, by=by, **how)
    return split if is_decided else with_looks(split)  # else the section says it


def _correct(
    result: RunResult, df: pd.DataFrame, on: Sequence[str], named: str | None
) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
    """Return the frame, the argument of `contrast` that corrects a judge, and notes."""
    notes = [of_chosen_labels(df, result.ledger, name) for name in on]
    corrected: dict[str, Any] = {}
    if labels := _labels(df, on, named):
        try:
            df, left_out = random_labels(df, result.ledger, labels)
        except ParameterError as problem:  # no reply was drawn at random
            left_out = str(problem)
        else:
            corrected["labels"] = _score_name(labels)
        notes.append(left_out)
    return df, corrected, [note for note in notes if note]


def _labels(df: pd.DataFrame, on: Sequence[str], labels: str | None) -> str:
    """Return the column of labels that correct the score; "" if there is none.

    A judge is corrected by the ratings of the same name, unless others are named.
    """
    if labels is not None:
        return column_of(df, labels, param="labels")
    if len(on) != 1 or not on[0].startswith(JUDGE):
        return ""
    own = on[0].replace(JUDGE, RATED)
    return own if own in df.columns and df[own].notna().any() else ""


def _score_name(name: str) -> str:
    return name.removeprefix(PREFIX)


def _factors_of(fixed: DecisionPlan, df: pd.DataFrame) -> str | list[str]:
    """Return the factors of a decision; of several, those with several values."""
    if fixed.factor in df.columns:
        return fixed.factor
    names = named(df, fixed.factor.split(" and "), param="factor")
    return [name for name in names if len(coded(df[name])[1]) > 1]


def _page(
    result: RunResult,
    findings: Findings,
    title: str | None,
    costs: ReportSection,
    replies: Sequence[ReportPart],
) -> ReportPage:
    name = result.plan.name
    table, lines = table_of(findings)
    sections = [
        ReportSection("The answer", _answer(result, findings)),
        difference_section(findings),
        condition_section(findings, table) if len(findings.df) else None,
        split_section(findings) if len(findings.df) else None,
        _limit_section(result, findings, lines),
        flip_section(findings),
        worst_section(findings),
        random_section(findings),
        judge_section(
            findings,
            lambda labels: of_chosen_labels(findings.df, result.ledger, labels),
        ),
        _asked_section(result, findings.df),
        costs,
        ReportSection(
            "To repeat the study",
            [ReportFacts([*_plan_lines(result, findings), *_versions()]), *replies],
        ),
    ]
    if title is not None and not isinstance(title, str):
        raise must_be("title", "a text", title)
    check_text(title or "", param="title")
    return ReportPage(
        title=title or (f"Report on run {name}" if name else "Report on a run"),
        subtitle=f"{_size(result)} {_when(findings.df)}".strip(),
        sections=[section for section in sections if section is not None],
    )


def _size(result: RunResult) -> str:
    """Say how many requests were planned, and how many have a reply."""
    n_trials = len(result.plan.grid)
    n_ok = result.status().counts(n_trials)["ok"]
    n = "All" if n_ok == n_trials else f"{n_ok:,} of"
    return f"{n} {n_trials:,} requests that were planned have a reply."


def _answer(result: RunResult, findings: Findings) -> list[ReportPart]:
    """Return the answer, and right below it what makes the answer doubtful."""
    leads, rest = answer_lines(findings)
    warnings = list(_warnings(result, findings.df, findings.on))
    asked = _question_in_words(result, findings)
    level = findings.contrast.level if findings.contrast else LEVEL
    brackets = "In brackets is the range in which the true value probably lies "
    brackets += f"({percent(level)})."
    return [
        Sentences([asked] if asked else [], style="quiet"),
        Sentences(leads, style="lead"),
        Sentences([*rest, *findings.too_few]),
        Sentences(warnings, style="warn"),
        Sentences([brackets] if findings.scored else [], style="quiet"),
    ]


def _question_in_words(result: RunResult, findings: Findings) -> str:
    """Say what was decided or compared; "" if nothing was."""
    fixed = result.decision
    if fixed is not None and findings.decision is not None:
        return f"Question: {_decision_in_words(fixed, findings.df)}"
    if findings.contrast is None:
        return ""
    compared = [
        f"the {spoken(name.removesuffix(TEMPLATE))}"
        for name in findings.contrast.factors
    ]
    verb = "does" if len(compared) == 1 else "do"
    what = measured(findings.df, findings.on)
    return f"Question: {verb} {' and '.join(compared)} change {what}?"


def _decision_in_words(fixed: DecisionPlan, df: pd.DataFrame) -> str:
    """Write the question of a decision, and how much worse a cheaper value may be."""
    name, column = fixed.on, column_of(df, fixed.on)
    is_share = is_rate(df, column)
    is_one = fixed.factor in df.columns
    factors = " and ".join(map(spoken, fixed.factor.split(" and ")))
    which = factors if is_one else f"combination of {factors}"
    asked = f"which {which} has the highest {name}?"
    if is_share and name in ADJECTIVES:
        asked = f"which {which} is {name} most often?"
    elif is_share:
        asked = f"for which {which} is {name} true most often?"
    if fixed.margin is None:
        return asked
    most = difference(fixed.margin, is_rate=is_share)
    return f"{asked} One that costs less may be at most {most} worse."


def _warnings(
    result: RunResult, df: pd.DataFrame, on: Collection[str]
) -> Iterator[str]:
    """Say what makes the answer doubtful; `on` has the scores that it is about."""
    n_trials, status = len(result.plan.grid), result.status()
    counts = status.counts(n_trials)
    n_missing = n_trials - len(settled_of(status))
    is_decided = result.decision is not None
    if n_missing and not is_decided:
        yield (
            f"This run is not complete: {n_missing:,} of {n_trials:,} requests have "
            "no reply yet."
        )
    if n_failed := counts["error"]:
        yield f"{n_failed:,} of {n_trials:,} requests failed."
    for name, found in result.answer_faults().never_right.items():
        if found.n_never and f"{PREFIX}{name}" in on:
            yield f"{found.in_words()} {found.remedy}"
    if df["is_emulated"].fillna(value=False).any():
        yield "An emulator answered: these replies say nothing about a model."


def _limit_section(
    result: RunResult, findings: Findings, lines: Iterable[str]
) -> ReportSection:
    """Return what the data cannot tell, and what is missing."""
    status = result.status()
    limits = [*_warnings(result, findings.df, findings.on)]
    if (unread := result.answer_faults().unread).n:
        limits.append(
            f"{unread.fact} The column answer_error of all replies, below, says why "
            "for each. If the texts do answer, read them in another way; else change "
            "the prompt."
        )
    limits += [*lines, *limit_lines(findings), status.cut_note()]
    if status.counts(len(result.plan.grid))["error"]:
        limits += [f"failed: {reason}" for reason in result.reasons()]
    if (at := _when(findings.df)) and findings.scored is not None:
        limits.append(
            f"The replies are from {at.removeprefix('Asked ').removesuffix('.')}. The "
            "models may have changed since."
        )
    shown = {*(findings.contrast.notes if findings.contrast else ())}
    rest = [line for line in dict.fromkeys(limits) if line and line not in shown]
    return ReportSection("What the data cannot tell", [Sentences(rest, is_list=True)])


def _when(df: pd.DataFrame) -> str:
    """Say when requests were sent, in UTC; "" if none were."""
    begun, ended = df["started_at"].min(), df["ended_at"].max()
    if pd.isna(begun):
        return ""
    first, last = (f"{at:%Y-%m-%d %H:%M}" for at in (begun, ended))
    if first != last and first[:10] == last[:10]:
        last = last[11:]
    return f"Asked {first} to {last} UTC." if first != last else f"Asked {first} UTC."


def _plan_lines(result: RunResult, findings: Findings) -> Iterator[tuple[str, str]]:
    """Return what was fixed before the first request, with its digest."""
    plan, fixed = result.plan, result.decision
    stored = result.ledger.plans(plan.run_id, is_whole=False) if result.ledger else []
    yield "run", plan.name or plan.run_id
    yield "requests", f"{len(plan.grid):,}"
    yield "seed of what is drawn at random", str(plan.seed)
    yield "rows that belong together", " and ".join(plan.unit)
    yield "scores", ", ".join(plan.scores)
    if plan.grid.rows is not None:
        yield "rows came from", _source(plan)
    compared = findings.contrast
    if compared is not None and len(compared.df) > 1:
        how = "not corrected"
        if compared.correct is not None:
            how = f"corrected together ({compared.correct.title()})"
        yield "comparisons", f"{len(compared.df):,}, {how}"
    yield "digest of the plan", stored[-1].digest if stored else "nothing was sent"
    if fixed is not None:
        yield from _decision_lines(fixed, findings.df)
    elif compared is not None:
        yield "question", "not fixed before the replies came"


def _decision_lines(fixed: DecisionPlan, df: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Return what a decision fixed before its first request."""
    yield "question", _decision_in_words(fixed, df)
    yield "level", percent(fixed.level)
    yield "most requests", str(fixed.max_requests or "")
    yield "most cost", str(fixed.max_cost or "")
    yield "fixed before the first request", "no" if fixed.n_before else "yes"
    yield "digest of the question and the plan", fixed.digest


def _asked_section(result: RunResult, df: pd.DataFrame) -> ReportSection:
    """Return models, prompts, system messages, parameters and rows."""
    plan = result.plan
    parts: list[ReportPart] = [_models(df), ReportFacts(list(_parameters(plan)))]
    for name in ("prompt", "system"):
        texts = dict(_texts(plan, name))
        parts += [
            Verbatim(head, text) for head, text in islice(texts.items(), _SHOWN_TEXTS)
        ]
        if (n_more := len(texts) - _SHOWN_TEXTS) > 0:
            parts.append(Sentences([f"{n_more:,} more are left out."]))
    return ReportSection("What was asked", parts)


def _models(df: pd.DataFrame) -> ReportTable:
    """Return a table of the models: the names they answered with, when and where."""
    rows = []
    for model, replies in df.groupby("model", sort=False):
        returned = replies["model_returned"].dropna().unique()
        addresses = replies["endpoint"].dropna().unique()
        is_emulated = replies["is_emulated"].fillna(value=False).any()
        rows.append(
            (
                str(model),
                ", ".join(map(str, returned[:_SHOWN_VALUES])) or "no reply",
                _when(replies).removeprefix("Asked ").rstrip("."),
                ", ".join(map(str, addresses)) + " (an emulator)" * bool(is_emulated),
            )
        )
    return ReportTable(("model", "answered as", "when", "where"), rows)


def _parameters(plan: Plan) -> Iterator[tuple[str, str]]:
    """Return the values of all factors but prompt and system, and the rows."""
    grid, rows = plan.grid, plan.grid.rows
    for dimension in grid.dimensions:
        for name in dimension.unlabelled:
            if name in {"prompt", "system"}:
                continue  # they have parts of their own
            label = LABELS.get(name, "")
            if name == "model" and label not in dimension.names:
                continue  # models without labels are in the table
            values = dict.fromkeys(
                _labelled_value(name, point, label) for point in dimension.points
            )
            shown = [shorten(value, _VALUE_CHARS) for value in values]
            n_more = len(values) - _SHOWN_VALUES
            more = f" and {n_more:,} more" if n_more > 0 else ""
            yield name, ", ".join(shown[:_SHOWN_VALUES]) + more
    if grid.repeats > 1:
        yield "repeats", str(grid.repeats)
    if grid.n_combinations != grid.n_product:
        n_out = grid.n_product - grid.n_combinations
        yield "left out", f"{n_out:,} of {grid.n_product:,} combinations"
    if rows is not None:
        yield "rows", f"{len(rows):,}, with the columns {', '.join(rows.columns)}"


def _labelled_value(name: str, point: Mapping[str, Any], label: str) -> str:
    """Return a value, with its label in front if it has one."""
    value = in_a_line(name, point[name]) if name in point else "not sent"
    return f"{point[label]} is {value}" if label in point else value


def _source(plan: Plan) -> str:
    rows = plan.grid.rows
    if rows is None or rows.files is None:
        source = "a table in the program that made the run"
        if rows is not None and rows.csv:
            source = f"{rows.csv} ({len(rows):,} rows)"
        return f"{source}; its ledger has all of them"
    listed = rows.files.listed
    names = [f"{file.name} ({file.n_rows:,} rows)" for file in listed.files]
    n_more = len(names) - _SHOWN_VALUES
    more = f" and {n_more:,} more files" if n_more > 0 else ""
    return f"{listed.path}: {', '.join(names[:_SHOWN_VALUES])}{more}"


def _texts(plan: Plan, name: str) -> Iterator[tuple[str, str]]:
    """Return the prompts of the plan or its system prompts, each with its heading."""
    label = LABELS[name]
    for dimension in plan.grid.dimensions:
        if name not in dimension.names:
            continue
        for position, point in enumerate(dimension.points, start=1):
            if (text := point.get(name)) is None:
                continue
            head = {"prompt": "Prompt", "system": "System prompt"}[name]
            which = f" {position}" if len(dimension.points) > 1 else ""
            if label in point:
                which = f" {point[label]}"
            yield f"{head}{which}", _as_text(text)


def _as_text(prompt: Any) -> str:  # noqa: ANN401 - a text or messages
    if isinstance(prompt, str):
        return prompt
    parts = [
        message if isinstance(message, Mapping) else _parts_of(message)
        for message in prompt
    ]
    return "\n\n".join(f"{part.get('role')}: {part.get('content')}" for part in parts)


def _parts_of(message: Any) -> Mapping[str, Any]:  # noqa: ANN401 - a message
    """Return the role and the content of a message."""
    return {name: getattr(message, name, "") for name in ("role", "content")}


def _cost_section(result: RunResult, judges: Mapping[str, RunResult]) -> ReportSection:
    """Return tokens and costs by model, failed and repeated requests included."""
    rows = [
        *_cost_rows(result),
        *chain(*(_cost_rows(judges[name], name) for name in judges)),
    ]
    heads = ["model", "requests", "prompt tokens", "reply tokens", "of these estimated"]
    heads.append("cost")
    notes = ["Costs are not known: there is no price table."]
    if (prices := result.prices) is not None:
        notes = [f"Prices: {prices.stamp}. Reused answers cost nothing."]
    if not rows:
        return ReportSection("Costs", [Sentences(["Nothing was sent."])])
    parts: list[ReportPart] = [ReportTable(heads, rows)]
    parts.append(Sentences(notes, style="quiet"))
    return ReportSection("Costs", parts)


def _cost_rows(result: RunResult, judge: str = "") -> list[tuple[str, ...]]:
    """Return the rows of the table of costs for a run, or for a judge of it."""
    usage = result.usage_df(["model"], include_emulated=True, include_reused=False)
    estimates = ["estimated_prompt_tokens", "estimated_completion_tokens"]
    usage = usage.assign(estimated=usage[estimates].sum(axis=1))
    return [
        (
            f"{row['model']}{f' for {judge}' if judge else ''}",
            _count(row["n_requests"]),
            _count(row["prompt_tokens"]),
            _count(row["completion_tokens"]),
            _count(row["estimated"]),
            "not known" if pd.isna(row["cost"]) else number(float(row["cost"])),
        )
        for row in usage.to_dict("records")
    ]


def _count(value: Any) -> str:  # noqa: ANN401 - a number or a missing one
    return "" if pd.isna(value) else f"{int(value):,}"


@dataclass(frozen=True, slots=True)
class _ReplyFiles:
    """The replies as files: what is said about them, and files to write next to it."""

    parts: Sequence[ReportPart]
    files: Sequence[Path]

    @classmethod
    def of(cls, df: pd.DataFrame, place: Path, *, is_inside: bool) -> "_ReplyFiles":
        """Put the replies into the page if they are few, else into files next to it."""
        size = int(df.memory_usage(deep=True).sum())
        is_inside = is_inside and size <= _MAX_INSIDE_BYTES
        parts: list[ReportPart] = []
        files: list[Path] = []
        for suffix, kind in _KINDS.items():
            file = place.with_name(f"{place.stem}.replies{suffix}")
            if suffix == ".parquet" and not _is_installed("pyarrow"):
                parts.append(Sentences(["Parquet needs pyarrow, which is missing."]))
            elif is_inside:
                parts.append(FileInside(file.name, kind, _content(df, suffix)))
            else:
                parts.append(Sentences([f"{file.name}, next to this file"]))
                files.append(file)
        count = f"All replies ({len(df):,} lines, also for requests without a reply):"
        return cls([Sentences([count]), *parts], files)


def _content(df: pd.DataFrame, suffix: str) -> bytes:
    with TemporaryDirectory() as folder:
        return export(df, Path(folder) / f"replies{suffix}").read_bytes()


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for name in _PACKAGES:
        if _is_installed(name):
            yield name, version(name)

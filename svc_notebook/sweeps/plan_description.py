"""A run in words: its plan, its outcome, and why requests failed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from svc_notebook.display.escape import to_terminal
from svc_notebook.display.front_end import fitted_to_terminal
from svc_notebook.display.number_words import count_in_words, duration_in_words
from svc_notebook.display.reply_display import Final
from svc_notebook.exchange import Failure
from svc_notebook.service.catalogue import DEFAULT_MAX_TOKENS
from svc_notebook.service.params import shorten
from svc_notebook.tokens import Tokens

from .estimate import (
    SHOWN_MODELS,
    Forecast,
    PlanEstimate,
    SoFar,
    Speed,
    cost_range,
    forecast,
    missing_requests,
)
from .grid import EXTRA, LABELS, TOOLS, Dimension, Grid, tool_names
from .rows import Rows, size_and_end

Line = tuple[str, str]
"""A label, and the text next to it."""

_SHOWN_VALUES = 6  # most values of a factor in its line
_VALUE_CHARS = 40
_TEXT_CHARS = 300  # most characters of all templates in a line
_TEMPLATES = ("prompt", "system")
_MORE = " ..."
_WORD_CHARS = 30  # a longer word may be cut
_PLACEHOLDER = re.compile(r"\{\{.*?\}\}")


def plan_lines(
    grid: Grid,
    *,
    size: PlanEstimate,
    n_left: Mapping[str, int] | None = None,
    is_answered: bool = False,
    speed: Speed = Speed(),  # noqa: B008 - it cannot change
) -> list[Line]:
    """Return what a plan sends, how large it is, and warnings.

    `n_left` is the number of requests still to be sent to each model; all if None.
    `speed` is as for `forecast`.
    """
    n_left = grid.n_by_model if n_left is None else n_left
    is_left = any(n_left.values())
    n_out = grid.n_product - grid.n_combinations
    left = {model: n for model, n in n_left.items() if n}
    times = None if is_answered else duration_lines(forecast(left, speed))
    lines = [
        ("trials", _product_in_words(grid)),
        ("rows", _rows_in_words(grid.rows)),
        *map(_values_line, grid.dimensions),
        ("repeats", str(grid.repeats) if grid.repeats > 1 else ""),
        ("where", f"leaves out {n_out:,} of {grid.n_product:,}" if n_out else ""),
        ("ledger", _reused_in_words(size) if is_left else ""),
        *(_estimate_lines(size, n_left, times) if is_left else _spent(size)),
    ]
    return [line for line in lines if line[1]]


def headline(
    grid: Grid, counts: Mapping[str, int], *, is_begun: bool, unread: str = ""
) -> str:
    """Say in one line how many requests there are, and how they ended.

    `unread` says how many answers could not be read.
    """
    n_trials = len(grid)
    requests = count_in_words(n_trials, "requests")
    if not n_trials:
        return "0 requests planned, nothing to send."
    if not is_begun:
        return f"{requests} planned, nothing sent yet."
    words = {
        "ok": "ok",
        "error": "failed",
        "cancelled": "interrupted",
        "not_run": "not run",
    }
    parts = [
        f"{counts.get(status, 0):,} {word}"
        for status, word in words.items()
        if counts.get(status) or status == "ok"
    ]
    return f"{requests}: {', '.join(filter(None, (*parts, unread)))}."


def duration_lines(forecasts: Sequence[Forecast]) -> list[str]:
    """Say when the last request can be sent, and which limit determines that."""
    lines = []
    slowest = forecasts[0] if forecasts else None
    article = "" if slowest and slowest.binds.startswith("your") else "the "
    if slowest and slowest.ends_s:
        low, best, high = map(duration_in_words, slowest.ends_s)
        why = f"{article}{slowest.binds}" if slowest.binds else "how long replies take"
        between = "" if low == high else f" ({low} to {high}, by the replies so far)"
        lines.append(
            f"about {best} until the last reply{between}, because of {why} of "
            f"{slowest.model}"
        )
    elif slowest and slowest.last_sent_s:
        lines.append(
            f"about {duration_in_words(slowest.last_sent_s or 0)} until the last "
            f"request is sent, because of {article}{slowest.binds} of {slowest.model}"
        )
    unknown = [forecast.model for forecast in forecasts if forecast.last_sent_s is None]
    if unknown:
        shown = ", ".join(unknown[:SHOWN_MODELS])
        lines.append(f"unknown for {shown}: no limit is documented")
    return lines


def _estimate_lines(
    size: PlanEstimate, n_left: Mapping[str, int], times: Sequence[str] | None
) -> list[Line]:
    is_answered = times is None
    is_part = size.so_far is None and sum(n_left.values()) < size.n_trials
    of_all = f", for all {size.n_trials:,} requests" if is_part else ""
    cost = "" if is_answered else cost_range(size)
    return [
        ("tokens", _tokens_in_words(size) + of_all),
        ("cost", cost + of_all if cost else ""),
        *(("time", line) for line in times or ()),
        ("note", "nothing is sent: the file in SVC_ANSWERS answers" * is_answered),
        *(("note", line) for line in _warnings(size)),
    ]


def _spent(size: PlanEstimate) -> list[Line]:
    """Say what a complete run used and cost."""
    used = size.so_far
    if used is None:
        return []
    n_prompt, n_completion = used.prompt_tokens, used.completion_tokens
    tokens = f"{n_prompt:,} in prompts and {n_completion:,} in replies"
    return [("tokens", tokens), ("cost", cost_range(size))]


def _product_in_words(grid: Grid) -> str:
    parts = [] if grid.rows is None else [f"rows ({len(grid.rows)})"]
    parts += [
        f"{' + '.join(dimension.unlabelled)} ({len(dimension.points)})"
        for dimension in grid.dimensions
        if len(dimension.points) > 1 and not dimension.is_by_row
    ]
    parts += [f"repeats ({grid.repeats})"] if grid.repeats > 1 else []
    return " x ".join(parts) if len(parts) > 1 else ""


def _rows_in_words(rows: Rows | None) -> str:
    if rows is None:
        return ""
    columns = list(rows.columns)
    names = ", ".join(columns[:_SHOWN_VALUES])
    if (n_more := len(columns) - _SHOWN_VALUES) > 0:
        names += f" and {n_more} more"
    shown = f"{len(rows)} ({names})" if names else str(len(rows))
    renamed = (f", the second {name} as var_{name}" for name in sorted(rows.duplicates))
    n_files = 0 if rows.files is None else len(rows.files.files)
    where = f" in {count_in_words(n_files, 'Parquet files')}" if n_files else ""
    return shown + "".join(renamed) + where


def _reused_in_words(size: PlanEstimate) -> str:
    if not (n := sum(size.answered.values())):
        return ""
    return f"answers {n:,} of {n + size.n_trials:,} requests, at no cost"


def _tokens_in_words(size: PlanEstimate) -> str:
    if size.so_far is not None:
        return _tokens_so_far(size.so_far, is_open=size.n_unlimited > 0)
    source = "estimated from a sample" if size.is_sampled else "estimated"
    replies = f"0 to {size.completion_tokens:,} in replies (by max_tokens)"
    if size.n_unlimited:
        replies = "unknown in replies (max_tokens is not set)"
    return f"about {size.prompt.best:,} in prompts ({source}: {size.prompt}), {replies}"


def _tokens_so_far(so_far: SoFar, *, is_open: bool) -> str:
    """Say how many tokens were used, and how many what is missing will use."""
    replies = f"{_with_interval(so_far.completion)} in replies"
    if so_far.n_unmeasured:  # between nothing and max_tokens, so no number is likely
        replies = f"{so_far.completion} in replies (by max_tokens)"
        if is_open:
            replies = "unknown in replies (max_tokens is not set)"
    return (
        f"{so_far.prompt_tokens:,} in prompts and {so_far.completion_tokens:,} in "
        f"replies so far, {missing_requests(so_far.n_left)} "
        f"{_with_interval(so_far.prompt)} in prompts and {replies}"
    )


def _with_interval(tokens: Tokens) -> str:
    """Return a number of tokens in words, with its interval if it is not exact."""
    if tokens.low == tokens.high:
        return str(tokens)
    return f"about {tokens.best:,} ({tokens})"


def _warnings(size: PlanEstimate) -> list[str]:
    lines = []
    if size.n_default:
        is_all = size.n_default == size.n_trials
        where = (
            "" if is_all else f" for {size.n_default:,} of {size.n_trials:,} requests"
        )
        lines.append(
            f"max_tokens is not set{where}: the service's default of "
            f"{DEFAULT_MAX_TOKENS} applies and cuts longer replies"
        )
    if size.n_over:
        budgets = " or ".join(f"{n:,}" for n in size.budgets)
        lines.append(
            f"{size.n_over:,} may not fit: prompt (estimated) and max_tokens together "
            f"exceed the {budgets} tokens of one request"
        )
    return lines


def _values_line(dimension: Dimension) -> Line:
    points = dimension.points
    n_chars = max(_VALUE_CHARS, _TEXT_CHARS // min(len(points), _SHOWN_VALUES))
    shown = [
        " + ".join(
            _value_with_label(name, point, n_chars) for name in dimension.unlabelled
        )
        for point in points[:_SHOWN_VALUES]
    ]
    n_more = len(points) - len(shown)
    rest = f" and {n_more:,} more" if n_more else ""
    names = dimension.unlabelled
    names = ("rows", *names) if dimension.is_by_row else names
    return " + ".join(names), f"{', '.join(shown)}{rest}"


def in_a_line(name: str, value: Any) -> str:  # noqa: ANN401 - of any parameter
    """Return a value in one line; as its repr if blanks or line ends matter."""
    if name == TOOLS:
        return tool_names(value) or "none"
    if name == EXTRA and value:
        return ", ".join(f"{key}={field!r}" for key, field in value.items())
    value = list(value) if isinstance(value, tuple) else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a judge has 0.0, and users write 0
    plain = " ".join(str(value).split())
    is_plain = plain and (name != "stop" or plain == value)
    return plain if is_plain else repr(value)


def _value_with_label(name: str, point: Mapping[str, Any], n_chars: int) -> str:
    value = _value_in_words(name, point.get(name), n_chars)
    label = point.get(LABELS.get(name, ""))
    if label is None:
        return value
    return f"{_value_in_words(LABELS[name], label, _VALUE_CHARS)} ({value})"


def _value_in_words(name: str, value: object, n_chars: int) -> str:
    if value is None:
        return "not sent"
    if name == "prompt":
        _, value = size_and_end(value)  # for messages, the last one of the user
    text = in_a_line(name, value)
    is_template = name in _TEMPLATES
    text = _cut(text, n_chars) if is_template else shorten(text, _VALUE_CHARS)
    # Markdown's rule for code that contains a backtick
    fence = "``" if "`" in text else "`"
    pad = " " if fence == "``" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _cut(template: str, n_chars: int) -> str:
    """Shorten a template after a word, and never within one of its placeholders."""
    if len(template) <= n_chars:
        return template
    end = n_chars - len(_MORE)
    # some scripts have no blanks between words
    blank = template.rfind(" ", end - _WORD_CHARS, end + 1)
    end = end if blank < 0 else blank
    for placeholder in _PLACEHOLDER.finditer(template):
        start, stop = placeholder.span()
        end = start if start < end < stop else end
    return template[:end].rstrip() + _MORE


# the name of a run may have these signs, which Markdown must not interpret
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#])")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """A run in words: its outcome in one line, labelled facts, and the next steps.

    `marks` are warnings; a page shows them in frames before the next steps.
    """

    name: str | None
    head: str
    lines: Sequence[Line] = ()
    footer: str = ""
    marks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Plain text, as wide as frames are printed, with the labels in one column."""
        import pandas as pd  # noqa: PLC0415 - where a run is shown

        title = f"Run {self.name}: " if self.name else "Run: "
        width = max((len(label) for label, _ in self.lines), default=0) + 4
        body = [
            line
            for label, text in self.lines
            for line in wrap(
                text,
                max(pd.get_option("display.width") or 80, width + 40),
                initial_indent=f"  {label}".ljust(width),
                subsequent_indent=" " * width,
                break_on_hyphens=False,
            )
        ]
        parts = [
            fitted_to_terminal(to_terminal(title + self.head)),
            to_terminal("\n".join(body)),
            fitted_to_terminal(to_terminal(self.footer)),
        ]
        return "\n".join(filter(None, parts))

    def bundle(self) -> dict[str, str]:
        """Return `text/html` and `text/plain`."""
        name = _SIGNS.sub(r"\\\1", self.name or "")
        title = f"**Run {name}** · " if name else "**Run** · "
        facts = "\n".join(f"- {label}: {text}" for label, text in self.lines)
        text = f"{title}{self.head}\n\n{facts}"
        final = Final(texts=(text,), footer=self.footer, marks=self.marks)
        return {**final.bundle(), "text/plain": self.text}


SHOWN_REASONS = 5
_REASON_CHARS = 480  # long enough for the remedy, which is at the end of a message
_NUMBER = re.compile(r"\d+")
# a line break that ends a sentence without a full stop
_LINE_END = re.compile(r"(?<=\w)\n(?=[A-Z])")


def reasons_of(failures: Iterable[Failure]) -> list[str]:
    """Return why requests failed, the most frequent reasons first, with counts."""
    alike: dict[tuple[object, ...], list[Failure]] = {}
    for failure in failures:
        text = _NUMBER.sub("0", failure.message)  # messages that differ in numbers
        kind = failure.type, failure.http_status, failure.code, failure.param, text
        alike.setdefault(kind, []).append(failure)
    by_count = sorted(alike.values(), key=len, reverse=True)
    lines = [_reason(group[0], len(group)) for group in by_count[:SHOWN_REASONS]]
    n_more = len(by_count) - len(lines)
    return [*lines, f"{n_more:,} more reasons are in replies_df()"] if n_more else lines


def _reason(failure: Failure, n: int) -> str:
    text = _LINE_END.sub(". ", failure.message)
    message = shorten(" ".join(text.split()), _REASON_CHARS)
    status = "" if failure.http_status is None else f" ({failure.http_status})"
    return f"{n:,} x {failure.type}{status}: {message}"

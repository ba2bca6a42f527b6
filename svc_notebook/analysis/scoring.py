"""Scoring replies: functions of a row give scores, which the ledger keeps.

What a user may have overlooked is said in a line: functions that raise, no answer that
counts as right, and labels that no reply can match. A sweep knows its scores before it
has replies: its plan has their functions, and the ledger what it can keep of them.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from svc_notebook.errors import ParameterError, write_line
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_columns import dtype_of
from svc_notebook.service.params import (
    as_number,
    check_text,
    did_you_mean,
    must_be,
    shorten,
)

from .exact_match import Mismatch, mismatch
from .read_answers import AnswerType
from .scorers import ReadyScore, Scorer, kept_score

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

    from svc_notebook.ledger.scores import Score

OnError = Literal["missing", "raise", 0]
"""What a reply has whose function raises: no score, nothing for all, or 0."""
ERROR = "_error"
_ANSWER = "answer"
_SHOWN_CHARS = 300
_NAME_CHARS = 60


def check_on_error(on_error: object) -> OnError:
    """Return what a score is where its function raises."""
    if on_error == "missing":
        return "missing"
    if on_error == "raise":
        return "raise"
    if as_number(on_error) == 0:
        return 0
    raise must_be("on_error", "'missing', 'raise' or 0", on_error)


def check_scorers(scores: Mapping[str, object]) -> None:
    """Refuse a name that cannot be kept, and what is neither a function nor None."""
    for name, rule in scores.items():
        check_text(name, param=name, name=f"The name {name!r}")
        if rule is not None and not callable(rule):
            raise ParameterError(
                f"{name} must be a function of a row, such as "
                "svc.scores.exact('label') or lambda r: len(r.text) < 100, or None to "
                f"remove the score; got {type(rule).__name__}.",
                param=name,
            )


@dataclass(frozen=True, slots=True)
class LostFunction:
    """A function of an earlier kernel, of which the ledger has the name."""

    name: str


PlannedScores = Mapping[str, Scorer | LostFunction]
"""The scores of a plan, by name."""


def read_scores(scores: object) -> PlannedScores:
    """Check `scores` of `svc.sweep`: functions of a row, by the name of the score."""
    if not isinstance(scores, Mapping) or None in scores.values():
        allowed = (
            "a mapping from names to functions of a row, such as "
            "{'right': svc.scores.exact('label')}"
        )
        raise must_be("scores", allowed, scores)
    check_scorers(scores)
    return dict(scores)


def function_to_keep(score: Scorer | LostFunction) -> dict[str, str]:
    """Return what the ledger keeps of the function of a planned score.

    A ready-made score is kept with its arguments. Of any other function only the name
    is kept, so it must be given again after a restart.
    """
    if isinstance(score, ReadyScore) and (kept := score.kept) is not None:
        return {"ready": kept}
    return {"function": _name_of(score)}


def kept_function(kept: Mapping[str, str]) -> Scorer | LostFunction:
    """Return the function of a planned score that the ledger kept."""
    if "ready" not in kept:
        return LostFunction(kept.get("function", "a function"))
    try:
        return kept_score(kept["ready"])
    except (ValueError, TypeError, KeyError):  # of another version, or written by hand
        return LostFunction(shorten(kept["ready"], _NAME_CHARS))


def planned_in_words(name: str, score: Scorer | LostFunction) -> str:
    """Return a score of a plan, for people who read the plan."""
    words = f"{name} by {_name_of(score)}"
    if isinstance(score, LostFunction):
        words += (
            f", which is not kept; give scores={{{name!r}: {score.name}}} again, or "
            f"call .score({name}={score.name})"
        )
    return words


def _name_of(score: Scorer | LostFunction) -> str:
    if isinstance(score, LostFunction):
        return score.name
    name = getattr(score, "__name__", None)
    return shorten(str(name) if name else repr(score), _NAME_CHARS)


class ScoredRow:
    """A row of a frame of replies: `row.label` or `row["label"]`; None is missing.

    It remembers what was read, so that a comparison of missing values is noticed.
    """

    __slots__ = ("_at", "_columns", "_values")

    def __init__(self, columns: Mapping[str, Sequence[Any]], at: int) -> None:
        self._columns = columns
        self._at = at
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of any column
        value = self._values[name] = self._columns[name][self._at]
        return value

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any column
        try:
            return self[name]
        except KeyError as problem:
            raise AttributeError(problem.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)


def values_read(row: ScoredRow) -> Mapping[str, Any]:
    """Return what was read of a row; a method would hide a column of its name."""
    return row._values  # noqa: SLF001 - see above


class Columns(Mapping[str, Sequence[Any]]):
    """The columns of a frame as lists, each made when it is first looked at."""

    def __init__(self, frame: "pd.DataFrame") -> None:
        self.frame = frame
        self._lists: dict[str, Sequence[Any]] = {}

    def __len__(self) -> int:
        return len(self.frame.columns)

    def __iter__(self) -> Iterator[str]:
        return map(str, self.frame.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.frame.columns

    def __getitem__(self, name: str) -> Sequence[Any]:
        if name not in self._lists:
            if name not in self.frame.columns:
                near = did_you_mean(str(name), self, n=1)
                raise KeyError(f"the replies have no column {name!r}.{near}")
            values = self.frame[name]
            self._lists[name] = (
                values.astype(object).where(values.notna(), None).tolist()
            )
        return self._lists[name]


@dataclass(slots=True)
class Outcome:
    """What became of the replies that one function scored.

    Attributes:
        name: Of the score.
        rule: The function.
        on_error: What a reply has for which it raises.
        n_good: How many replies it was called for.
        errors: How often it raised which kind of error.
        first: The first error.
        n_nothing_right: How many replies without an answer, or without anything to
            compare it with, count as right.
        nothing: What was missing of the first of them.
        mismatch: What can never be right.
    """

    name: str
    rule: Scorer
    on_error: OnError = "missing"
    n_good: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    first: Exception | None = None
    n_nothing_right: int = 0
    nothing: tuple[str, ...] = ()
    mismatch: Mismatch = field(default_factory=Mismatch)

    @property
    def n_failed(self) -> int:
        """How many replies the function raised for."""
        return self.errors.total()

    def note_error(self, problem: Exception, at: int) -> str:
        """Count an error, and return it in words; raise one if that is wanted."""
        if self.on_error == "raise":
            raise ParameterError(
                f"{self.name} raised {_kind(problem)} for row {at} of the replies: "
                f"{shorten(_words(problem), _SHOWN_CHARS)}. No score was saved.",
                param=self.name,
            ) from problem
        self.first = self.first or problem
        self.errors[_kind(problem)] += 1
        reason = shorten(f"{_kind(problem)}: {_words(problem)}", _SHOWN_CHARS)
        return reason.encode("utf-8", "replace").decode()

    def lines(self) -> list[str]:
        """Return what should be said once all replies are scored."""
        lines = [self._raised()] if self.n_failed else []
        if self.n_nothing_right:
            lines.append(self._nothing_right())
        if self.mismatch.n_never:
            lines.append(f"{self.name}: {self.mismatch.in_words()}")
        return lines

    def _raised(self) -> str:
        kinds = list(self.errors)
        what = kinds[0] if len(kinds) == 1 else f"errors, first {_kind(self.first)}"
        value = "have no score" if self.on_error == "missing" else "count 0"
        other = "on_error=0 counts them 0" if self.on_error == "missing" else ""
        other = other or "on_error='missing' leaves them out"
        return (
            f"{self.n_failed} of {self.n_good} replies raised {what}: "
            f"{shorten(_words(self.first), 120)}. They {value}; the column "
            f"score_{self.name}{ERROR} says why. {other}, on_error='raise' stops."
        )

    def _nothing_right(self) -> str:
        n_replies = self.n_nothing_right
        replies = "1 reply" if n_replies == 1 else f"{n_replies} replies"
        missing = " and ".join(self.nothing) or _ANSWER
        verb = "are" if len(self.nothing) > 1 else "is"
        others = [name for name in self.nothing if not name.startswith(_ANSWER)]
        label = others[0] if others else "label"
        return (
            f"{self.name} is True for {replies} where {missing} {verb} missing: "
            "None == None. No answer is not a right one; use "
            f"svc.scores.exact({label!r})."
        )

    def check_any(self) -> None:
        """Raise ParameterError if no reply has a score that means something."""
        if self.first is not None and self.n_failed == self.n_good:
            raise ParameterError(
                f"{self.name} failed for all of {self.n_good} replies, first with "
                f"{_kind(self.first)}: {_words(self.first)}. No score was saved.",
                param=self.name,
            ) from self.first
        if self.mismatch.n_never and self.mismatch.n_never == self.mismatch.n_values:
            raise ParameterError(
                f"{self.name}: {self.mismatch.in_words()} No score was saved.",
                param=self.name,
            )


def _words(error: Exception | None) -> str:
    """Return what an exception says, as a part of a longer sentence."""
    return str(error).removesuffix("No score was saved.").rstrip(". ")


def _kind(error: Exception | None) -> str:
    return type(error).__name__


def scores_of(
    columns: Columns,
    positions: Sequence[int],
    outcome: Outcome,
    answer: AnswerType | None = None,
) -> dict[str, list[Any]]:
    """Apply a function to some rows.

    Args:
        columns: Of a frame of replies.
        positions: The rows.
        outcome: Has the function; what happens is added to it.
        answer: How the answers were read, if that is known.

    Returns:
        The scores of all rows by name, None where there is none, and why rows have
        none under the name `NAME_error`.

    Raises:
        ParameterError: The function raised an error, and `on_error` is `raise`.
    """
    values_by_name: dict[str, list[Any]] = {}
    failed: list[int] = []
    for at in positions:
        row = ScoredRow(columns, at)
        try:
            returned = outcome.rule(row)
            scores = _parts(outcome.name, returned)
        except Exception as problem:  # noqa: BLE001 - the user's own, shown in its row
            failed.append(at)
            scores = {outcome.name + ERROR: outcome.note_error(problem, at)}
        else:
            _note_nothing(outcome, row, returned, columns, at)
        for key, score in scores.items():
            if key not in values_by_name:
                values_by_name[key] = [None] * len(columns.frame)
            values_by_name[key][at] = score
    outcome.n_good += len(positions)
    if outcome.on_error == 0 and failed:
        _put_zeros(outcome.name, values_by_name, failed, len(columns.frame))
    if isinstance(outcome.rule, ReadyScore) and outcome.rule.name == "exact":
        outcome.mismatch += mismatch(
            columns, positions, outcome.rule.arguments["column"], answer
        )
    return values_by_name


def _put_zeros(
    name: str, values_by_name: dict[str, list[Any]], failed: Sequence[int], n_rows: int
) -> None:
    """Give replies that failed the score 0, under each name that others have."""
    for key in values_by_name.keys() - {name + ERROR} or {name}:
        values = values_by_name.setdefault(key, [None] * n_rows)
        for at in failed:
            values[at] = 0


def _note_nothing(
    outcome: Outcome,
    row: ScoredRow,
    returned: Any,  # noqa: ANN401 - what a function returned
    columns: Columns,
    at: int,
) -> None:
    """Count a reply that is right though what was compared is missing."""
    is_true = type(returned).__name__ in {"bool", "bool_"} and bool(returned)
    if not is_true or isinstance(outcome.rule, ReadyScore):
        return
    values = values_read(row)
    missing = tuple(name for name, value in values.items() if value is None)
    is_about_answer = any(name.startswith(_ANSWER) for name in values) and not (
        {"answer_ok", "answer_error"} & values.keys()
    )
    has_none = "answer_ok" in columns and columns["answer_ok"][at] is False
    if len(missing) > 1 or (is_about_answer and has_none):
        outcome.n_nothing_right += 1
        outcome.nothing = outcome.nothing or missing


def _parts(name: str, returned: Any) -> dict[str, Any]:  # noqa: ANN401 - what a function returned
    """Return what a function gave as scores by name, without what is missing."""
    from svc_notebook.ledger.scores import to_score  # noqa: PLC0415 - pandas

    parts = {name: returned}
    if isinstance(returned, Mapping):
        parts = {f"{name}_{key}": value for key, value in returned.items()}
    for value in (*parts, *parts.values()):
        if isinstance(value, str):
            check_text(value, param=name, name=f"The score {name}")
    return {
        key: to_score(f"the score {name}", value)
        for key, value in parts.items()
        if not _is_missing(value)
    }


def _is_missing(value: Any) -> bool:  # noqa: ANN401 - what a function returned
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    number = as_number(value)  # also numpy's, of any size
    return number is not None and math.isnan(number)


def good_rows(columns: Columns) -> list[int]:
    """Return the positions of good replies; what failed or is missing has no score."""
    ids = columns["exchange_id"]
    status = columns["status"] if "status" in columns else ["ok"] * len(ids)
    return [
        at
        for at, (exchange_id, row_status) in enumerate(zip(ids, status, strict=True))
        if row_status == "ok" and isinstance(exchange_id, str)
    ]


def score_replies(
    ledger: Ledger | None,
    frame: "pd.DataFrame",
    rules: Mapping[str, Scorer | None],
    *,
    on_error: OnError = "missing",
    answer: AnswerType | None = None,
    remembered: Collection[str] = (),
) -> int:
    """Score the good replies of a frame, or remove scores: see `svc.score`.

    A frame of pandas gets the columns, in place. The ledger is None if nothing was
    asked. `answer` is how the answers of the frame were read, if that is known. Scores
    that are `remembered` can be removed before any reply has one.
    """
    from svc_notebook.ledger.scores import check_types  # noqa: PLC0415 - pandas

    columns = Columns(to_pandas(frame))
    names = getattr(columns.frame, "columns", ())
    if not {"exchange_id", "choice_index"} <= set(names):
        raise ParameterError(
            "Only a frame of replies can be scored, with exchange_id and choice_index.",
            param="frame",
        )
    check_scorers(rules)
    on_error = check_on_error(on_error)
    positions = good_rows(columns)
    scored: dict[str, list[Any]] = {}
    outcomes: list[Outcome] = []
    old: list[str] = []
    for name, rule in rules.items():
        if rule is None:
            old += _names_of(ledger, columns, name, remembered)
        else:
            outcome = Outcome(name, rule, on_error)
            scored |= scores_of(columns, positions, outcome, answer)
            outcome.check_any()
            outcomes.append(outcome)
            old += [name, name + ERROR]
    check_types(scored)
    n_kept = 0 if ledger is None else _keep(ledger, columns, scored, old)
    _put_scores(columns.frame, old, scored)
    for line in (line for outcome in outcomes for line in outcome.lines()):
        write_line(line)
    if columns.frame is not frame:
        write_line(_NO_COLUMNS)
    return n_kept


_NO_COLUMNS = (
    "The frame is not one of pandas, so it got no columns; replies_df() has the scores "
    "that the ledger keeps. For columns in a frame, score that of svc.as_replies()."
)


def _put_scores(
    frame: "pd.DataFrame", old: Sequence[str], scored: Mapping[str, list[Any]]
) -> None:
    """Put scores into a frame, in place of the old ones."""
    from svc_notebook.ledger.reply_frames import put, to_array  # noqa: PLC0415 - pandas
    from svc_notebook.ledger.scores import PREFIX  # noqa: PLC0415 - pandas

    for name in old:
        if PREFIX + name in frame.columns:
            del frame[PREFIX + name]
    for name, values in scored.items():
        put(frame, PREFIX + name, to_array(values, dtype_of(values)))


def _names_of(
    ledger: Ledger | None, columns: Columns, name: str, remembered: Collection[str]
) -> list[str]:
    """Return the names of the scores that are removed: of a dict, those of its keys.

    They may be in the frame alone, or in the ledger alone.
    """
    from svc_notebook.ledger.scores import (  # noqa: PLC0415 - pandas
        PREFIX,
        names_of_scores,
    )

    known = [
        column.removeprefix(PREFIX) for column in columns if column.startswith(PREFIX)
    ]
    if ledger is not None:
        in_ledger = names_of_scores(ledger, _exchange_ids(columns))
        known = list(dict.fromkeys([*known, *in_ledger]))
    if name in known or name + ERROR in known:
        return [name, name + ERROR]
    if of_dict := [
        score_name for score_name in known if score_name.startswith(name + "_")
    ]:
        return of_dict
    if name in remembered:
        return [name]
    raise ParameterError(
        f"There is no score {name!r} to remove.{did_you_mean(name, known, n=1)} The "
        f"scores are {', '.join(known) or 'none'}.",
        param=name,
    )


def _exchange_ids(columns: Columns) -> set[str]:
    """Return the ids of the replies; a row without a reply has none."""
    ids = columns["exchange_id"]
    return {exchange_id for exchange_id in ids if isinstance(exchange_id, str)}


def _keep(
    ledger: Ledger,
    columns: Columns,
    scored: Mapping[str, list[Any]],
    old: Sequence[str],
) -> int:
    """Keep scores instead of the old ones, and return how many were kept."""
    from svc_notebook.ledger.scores import replace_scores  # noqa: PLC0415 - pandas

    scores = scores_to_keep(columns, scored)
    unknown = replace_scores(
        ledger, scores, old=[*old, *scored], among=_exchange_ids(columns)
    )
    if unknown:
        write_line(
            f"{len(unknown)} of these replies are not in the current ledger, so their "
            "scores are in the frame alone."
        )
    good = (score for score in scores if not score.name.endswith(ERROR))
    return sum(score.exchange_id not in unknown for score in good)


def scores_to_keep(
    columns: Columns, scored: Mapping[str, Sequence[Any]]
) -> "list[Score]":
    """Return scores as the ledger keeps them."""
    from svc_notebook.ledger.scores import Score  # noqa: PLC0415 - pandas

    ids, indexes = columns["exchange_id"], columns["choice_index"]
    return [
        Score(ids[at], int(indexes[at] or 0), name, value)
        for name, values in scored.items()
        for at, value in enumerate(values)
        if value is not None
    ]

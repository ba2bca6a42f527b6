"""Score replies with functions of a row, and save the scores in the ledger.

A line warns of likely mistakes: functions that raise, missing answers that
count as right, and labels that no answer can equal. A sweep knows its scores before it
has replies: the plan has their functions, and the ledger keeps as much of these as it
can.
"""

import inspect
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from svc_notebook.display.front_end import write_note, write_warning
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_columns import dtype_of
from svc_notebook.service.params import (
    as_number,
    check_text,
    did_you_mean,
    must_be,
    printable,
    shorten,
)
from svc_notebook.template import as_variable

from .exact_match import Mismatch, mismatch
from .read_answers import AnswerType, UnreadAnswers
from .scorers import ReadyScore, Scorer, exact, kept_score

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

    from svc_notebook.ledger.scores import Score

OnError = Literal["missing", "raise", 0]
"""If a function raises: the reply has no score, nothing is saved, or the score is 0."""


class ScoreRule(NamedTuple):
    """A score function, and the score of a reply for which it raises."""

    function: Scorer
    on_error: OnError = "missing"


ERROR = "_error"
_ANSWER = "answer"
_SHOWN_CHARS = 300
_NAME_CHARS = 60


def check_on_error(on_error: object) -> OnError:
    """Return `on_error` if it is allowed."""
    if on_error == "missing":
        return "missing"
    if on_error == "raise":
        return "raise"
    if as_number(on_error) == 0:
        return 0
    raise must_be("on_error", "'missing', 'raise' or 0", on_error)


def check_scorers(scores: Mapping[str, object]) -> None:
    """Refuse names that cannot be saved, and values that are not functions or None."""
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
    """A function of an earlier kernel; the ledger has only its name."""

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

    For a ready-made score that is its name and arguments. For other functions it is
    only the name, so the function must be given again after a restart.
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
    except (ValueError, TypeError, KeyError):  # by another version, or edited by hand
        return LostFunction(shorten(kept["ready"], _NAME_CHARS))


def source_digest(score: Scorer | LostFunction) -> str:
    """Return a digest of the source of a score; "" if it is not known."""
    if isinstance(score, LostFunction):
        return ""
    if isinstance(score, ReadyScore) and score.kept is not None:
        return _digest(score.kept.encode())
    code = getattr(score, "__code__", None)
    if code is not None and code.co_name == "<lambda>":  # its line has other code, too
        constants = [value for value in code.co_consts if not hasattr(value, "co_code")]
        return _digest(code.co_code + repr((constants, code.co_names)).encode())
    try:
        return _digest(inspect.getsource(score).encode())
    except (OSError, TypeError):
        return _digest(code.co_code) if code else ""


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


def planned_in_words(name: str, score: Scorer | LostFunction) -> str:
    """Return a score of a plan as text, such as "right by exact('label')"."""
    text = f"{name} by {_name_of(score)}"
    if isinstance(score, LostFunction):
        text += (
            f", which is not kept; give scores={{{name!r}: {score.name}}} again, or "
            f"call .score({name}={score.name})"
        )
    return text


def _name_of(score: Scorer | LostFunction) -> str:
    if isinstance(score, LostFunction):
        return score.name
    name = getattr(score, "__name__", None)
    return shorten(str(name) if name else repr(score), _NAME_CHARS)


class ScoredRow:
    """A row of a frame of replies: `row.label` or `row["label"]`; None is missing.

    It remembers which values were read, so that `_note_mistakes` can tell whether a
    score compared missing values.
    """

    __slots__ = ("_columns", "_position", "_values")

    def __init__(self, columns: Mapping[str, Sequence[Any]], position: int) -> None:
        self._columns = columns
        self._position = position
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of any column
        value = self._values[name] = self._columns[name][self._position]
        return value

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any column
        if name not in self._columns:  # Python has replaced the Thai vowel ำ by two
            name = next((x for x in self._columns if as_variable(x) == name), name)
        try:
            return self[name]
        except KeyError as problem:
            raise AttributeError(problem.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)


def values_read(row: ScoredRow) -> Mapping[str, Any]:
    """Return the values that were read from a row.

    This is not a method, since that would hide a column of the same name.
    """
    return row._values  # noqa: SLF001 - see above


class Columns(Mapping[str, Sequence[Any]]):
    """The columns of a frame as lists; each list is made when it is first read."""

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
class ScoreOutcome:
    """The outcome of scoring replies with one function: errors and likely mistakes.

    Attributes:
        name: The name of the score.
        rule: The function.
        on_error: The score of a reply for which the function raises.
        n_good: How many replies it was called for.
        errors: How often it raised each type of error.
        first: The first error.
        empty: How often it returned a value that is no score, such as None.
        n_missing_right: How many replies count as right though the answer, or the value
            to compare it with, is missing.
        missing: The columns that were missing in the first of these.
    """

    name: str
    rule: Scorer
    on_error: OnError = "missing"
    n_good: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    first: Exception | None = None
    empty: Counter[str] = field(default_factory=Counter)
    n_missing_right: int = 0
    missing: tuple[str, ...] = ()

    @property
    def n_failed(self) -> int:
        """How many replies the function raised for."""
        return self.errors.total()

    def note_error(self, problem: Exception, at: int) -> str:
        """Count an error and return it as text; raise it if `on_error` is "raise"."""
        if self.on_error == "raise":
            raise ParameterError(
                f"{self.name} raised {_kind(problem)} for row {at} of the replies: "
                f"{shorten(_error_text(problem), _SHOWN_CHARS)}. No score was saved.",
                param=self.name,
            ) from problem
        self.first = self.first or problem
        self.errors[_kind(problem)] += 1
        reason = shorten(f"{_kind(problem)}: {_error_text(problem)}", _SHOWN_CHARS)
        return reason.encode("utf-8", "replace").decode()

    def lines(self, *, n_replies: int = 1) -> list[str]:
        """Return warnings for the user, once all replies are scored.

        Args:
            n_replies: How many good replies there are, also those scored before.
        """
        lines = [self._raised_line()] if self.n_failed else []
        if n_replies <= self.n_good == self.empty.total():
            lines.append(self._empty_line())
        if self.n_missing_right:
            lines.append(self._missing_right_line())
        return lines

    def _raised_line(self) -> str:
        kinds = list(self.errors)
        errors = kinds[0] if len(kinds) == 1 else f"errors, first {_kind(self.first)}"
        result, other = "count as 0", "on_error='missing' to give them no score"
        if self.on_error == "missing":
            result, other = "have no score", "on_error=0 to count them as 0"
        return (
            f"{self.name} raised {errors} for {self.n_failed} of {self.n_good} "
            f"replies: {shorten(_error_text(self.first), 120)}. They {result}; see the "
            f"column score_{self.name}{ERROR}. Use {other}, or on_error='raise' to "
            "stop at the first error."
        )

    def _empty_line(self) -> str:
        returned = " or ".join(self.empty)
        replies = "the only reply"
        if self.n_good > 1:
            replies = f"all {count_in_words(self.n_good, 'replies')}"
        next_step = "Return True, False or a number. Is a `return` missing?"
        if isinstance(self.rule, ReadyScore):
            next_step = "The values to compare with are missing in these rows."
        return (
            f"{self.name}: the function returned {returned} for {replies}, which means "
            f"not scored. {next_step}"
        )

    def _missing_right_line(self) -> str:
        n_replies = self.n_missing_right
        replies = count_in_words(n_replies, "replies")
        missing = " and ".join(self.missing) or _ANSWER
        verb = "are" if len(self.missing) > 1 else "is"
        others = [name for name in self.missing if not name.startswith(_ANSWER)]
        label = others[0] if others else "label"
        return (
            f"{self.name} is True for {replies} where {missing} {verb} missing: "
            "None == None. A missing answer should not count as right; use "
            f"svc.scores.exact({label!r})."
        )

    def check_any(self, found: Mismatch) -> None:
        """Raise ParameterError if all failed, or if no answer can ever match.

        `found` has the values that no answer can equal.
        """
        if self.first is not None and self.n_failed == self.n_good:
            raise ParameterError(
                f"{self.name} failed for all {self.n_good} replies, first with "
                f"{_kind(self.first)}: {_error_text(self.first)}. No score was saved.",
                param=self.name,
            ) from self.first
        if found.n_never and found.n_never == found.n_values:
            raise ParameterError(
                f"{self.name}: {found.in_words()} No score was saved.",
                param=self.name,
            )


def _error_text(error: Exception | None) -> str:
    """Return the message of an exception for use within a longer sentence."""
    return str(error).removesuffix("No score was saved.").rstrip(". ")


def _kind(error: Exception | None) -> str:
    return type(error).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFaults:
    """What is wrong with the answers of some replies.

    Attributes:
        unread: The answers that could not be read.
        never_right: By score, the right values that no answer can ever equal.
    """

    unread: UnreadAnswers = field(default_factory=UnreadAnswers)
    never_right: Mapping[str, Mismatch] = field(default_factory=dict)

    def __add__(self, other: "AnswerFaults") -> "AnswerFaults":
        """Return the counts of both."""
        names = dict.fromkeys([*self.never_right, *other.never_right])
        none = Mismatch()
        return AnswerFaults(
            unread=self.unread + other.unread,
            never_right={
                name: self.never_right.get(name, none)
                + other.never_right.get(name, none)
                for name in names
            },
        )

    def notes(self, names: Collection[str]) -> list[str]:
        """Return a sentence for each of these scores that has such right values."""
        return [
            f"{name}: {found.in_words()} {found.remedy}"
            for name, found in self.never_right.items()
            if found.n_never and name in names
        ]


def never_right(
    columns: Columns, functions: Mapping[str, Scorer], answer: AnswerType | None
) -> dict[str, Mismatch]:
    """Return, by score, the right values of good replies that no answer can equal.

    Args:
        columns: The columns of a frame of replies.
        functions: The score functions, by the name of the score.
        answer: The type that the answers were read as, if that is known.
    """
    positions = good_rows(columns)
    return {
        name: mismatch(columns, positions, str(function.column), answer)
        for name, function in functions.items()
        if isinstance(function, ReadyScore) and function.name == exact.__name__
    }


def scores_of(
    columns: Columns, positions: Sequence[int], outcome: ScoreOutcome
) -> dict[str, list[Any]]:
    """Apply a function to some rows.

    Args:
        columns: The columns of a frame of replies.
        positions: The positions of the rows.
        outcome: It has the function; errors and mistakes are added to it.

    Returns:
        The scores of all rows by name, None where there is no score; under `NAME_error`
        the reason why a row has none.

    Raises:
        ParameterError: The function raised an error, and `on_error` is `raise`.
    """
    values_by_name: dict[str, list[Any]] = {}
    failed: list[int] = []
    for position in positions:
        row = ScoredRow(columns, position)
        try:
            returned = outcome.rule(row)
            scores = _parts(outcome.name, returned)
        except Exception as problem:  # noqa: BLE001 - user code; shown in its row
            failed.append(position)
            scores = {outcome.name + ERROR: outcome.note_error(problem, position)}
        else:
            _note_mistakes(outcome, row, returned, columns, position)
        for key, score in scores.items():
            if key not in values_by_name:
                values_by_name[key] = [None] * len(columns.frame)
            values_by_name[key][position] = score
    outcome.n_good += len(positions)
    if outcome.on_error == 0 and failed:
        _put_zeros(outcome.name, values_by_name, failed, len(columns.frame))
    return values_by_name


def _put_zeros(
    name: str, values_by_name: dict[str, list[Any]], failed: Sequence[int], n_rows: int
) -> None:
    """Give replies whose function raised the score 0, in each column of the score."""
    for key in values_by_name.keys() - {name + ERROR} or {name}:
        values = values_by_name.setdefault(key, [None] * n_rows)
        for position in failed:
            values[position] = 0


def _note_mistakes(
    outcome: ScoreOutcome,
    row: ScoredRow,
    returned: Any,  # noqa: ANN401 - what a function returned
    columns: Columns,
    position: int,
) -> None:
    """Count a reply without a score, or that is right though values are missing."""
    if empty := _empty_value(returned):
        outcome.empty[empty] += 1
    is_true = type(returned).__name__ in {"bool", "bool_"} and bool(returned)
    if not is_true or isinstance(outcome.rule, ReadyScore):
        return
    values = values_read(row)
    missing = tuple(name for name, value in values.items() if value is None)
    is_about_answer = any(name.startswith(_ANSWER) for name in values) and not (
        {"answer_ok", "answer_error"} & values.keys()
    )
    has_none = "answer_ok" in columns and columns["answer_ok"][position] is False
    if len(missing) > 1 or (is_about_answer and has_none):
        outcome.n_missing_right += 1
        outcome.missing = outcome.missing or missing


def _parts(name: str, returned: Any) -> dict[str, Any]:  # noqa: ANN401 - what a function returned
    """Return the value that a function returned as scores by name; missing ones not."""
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


def _empty_value(returned: Any) -> str:  # noqa: ANN401 - what a function returned
    """Name a returned value that is no score; "" if it is one."""
    if isinstance(returned, Mapping):
        is_empty = all(map(_is_missing, returned.values()))
        return "a dict without values" if is_empty else ""
    if not _is_missing(returned):
        return ""
    return "None" if returned is None else "NaN"


def _is_missing(value: Any) -> bool:  # noqa: ANN401 - what a function returned
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    number = as_number(value)  # NumPy's types, too
    return number is not None and math.isnan(number)


def good_rows(columns: Columns) -> list[int]:
    """Return the positions of good replies, which are the only ones to score."""
    ids = columns["exchange_id"]
    status = columns["status"] if "status" in columns else ["ok"] * len(ids)
    return [
        position
        for position, (exchange_id, row_status) in enumerate(
            zip(ids, status, strict=True)
        )
        if row_status == "ok" and isinstance(exchange_id, str)
    ]


class SavedScores(int):
    """How many scores were saved: a number, which a cell shows in words.

    Attributes:
        says: The rate or mean of each score, of how many replies, and its column.
    """

    says: str

    @classmethod
    def of(
        cls, n_saved: int, scored: Mapping[str, list[Any]], n_good: int
    ) -> "SavedScores":
        """Return the number of scores, with the values of all good replies by name."""
        saved = cls(n_saved)
        lines = [
            _line_of(name, values, n_good)
            for name, values in scored.items()
            if not name.endswith(ERROR)
        ]
        saved.says = "\n".join(lines) or f"{n_saved:,} scores saved"
        return saved

    def _repr_pretty_(self, printer: Any, *_: object) -> None:  # noqa: ANN401 - IPython's
        printer.text(self.says)


def _line_of(name: str, values: Sequence[Any], n_good: int) -> str:
    """Say what a score is: "right: 16 of 24 replies (67 %), column score_right"."""
    from .rounding import number, percent  # noqa: PLC0415 - numpy

    known = [value for value in values if value is not None]
    numbers = [float(value) for value in known if not isinstance(value, str)]
    of = f"{len(known):,} of {n_good:,} replies"
    if known and len(numbers) == len(known):
        mean = sum(numbers) / len(numbers)
        if set(numbers) <= {0.0, 1.0}:
            of = f"{sum(numbers):,.0f} of {len(known):,} replies ({percent(mean)})"
            n_without = n_good - len(known)
            of += f", {n_without:,} without a score" if n_without else ""
        else:
            of = f"mean {number(mean)}, {of}"
    name = printable(name)
    return f"{name}: {of}; the column score_{name} of replies_df()"


def score_replies(
    ledger: Ledger | None,
    frame: "pd.DataFrame",
    rules: Mapping[str, Scorer | None],
    *,
    on_error: OnError = "missing",
    answer: AnswerType | None = None,
    remembered: Collection[str] = (),
) -> SavedScores:
    """Score the good replies of a frame, or remove scores: see `svc.score`.

    Args:
        ledger: Where the scores are saved; None if there is no ledger yet.
        frame: A frame of replies. If it is a pandas frame, columns are added in place.
        rules: Functions by the name of the score; None removes the score.
        on_error: The score of a reply for which the function raises.
        answer: The type that the answers were read as, if that is known.
        remembered: Names of planned scores, which can be removed before any reply has
            such a score.
    """
    from svc_notebook.ledger.scores import check_types  # noqa: PLC0415 - pandas

    columns = Columns(to_pandas(frame))
    names = getattr(columns.frame, "columns", ())
    if not {"exchange_id", "choice_index"} <= set(names):
        raise ParameterError(
            "Only a frame of replies can be scored, but this frame has no columns "
            "exchange_id and choice_index. Use replies_df() or svc.as_replies().",
            param="frame",
        )
    check_scorers(rules)
    on_error = check_on_error(on_error)
    positions = good_rows(columns)
    scored: dict[str, list[Any]] = {}
    outcomes: list[ScoreOutcome] = []
    old: list[str] = []
    functions = {name: rule for name, rule in rules.items() if rule is not None}
    faults = AnswerFaults(never_right=never_right(columns, functions, answer))
    for name, rule in rules.items():
        if rule is None:
            old += _names_of(ledger, columns, name, remembered)
        else:
            outcome = ScoreOutcome(name, rule, on_error)
            scored |= scores_of(columns, positions, outcome)
            outcome.check_any(faults.never_right.get(name, Mismatch()))
            outcomes.append(outcome)
            old += [name, name + ERROR]
    check_types(scored)
    n_kept = 0 if ledger is None else _keep(ledger, columns, scored, old)
    _put_scores(columns.frame, old, scored)
    lines = [line for outcome in outcomes for line in outcome.lines()]
    for line in [*lines, *faults.notes(functions)]:
        write_warning(line)
    if columns.frame is not frame:
        write_note(_NO_COLUMNS)
    return SavedScores.of(n_kept, scored, len(positions))


_NO_COLUMNS = (
    "The scores were not added to this frame, since it is not a pandas frame. "
    "replies_df() has the scores that are in the ledger. To get columns in a frame, "
    "convert it with svc.as_replies() and score the result."
)


def _put_scores(
    frame: "pd.DataFrame", old: Sequence[str], scored: Mapping[str, list[Any]]
) -> None:
    """Put scores into a frame, in place of the old ones."""
    from svc_notebook.ledger.reply_frames import put_score, to_array  # noqa: PLC0415 - pandas
    from svc_notebook.ledger.scores import PREFIX  # noqa: PLC0415 - pandas

    for name in old:
        if PREFIX + name in frame.columns:
            del frame[PREFIX + name]
    for name, values in scored.items():
        put_score(frame, PREFIX + name, to_array(values, dtype_of(values)))


def _names_of(
    ledger: Ledger | None, columns: Columns, name: str, remembered: Collection[str]
) -> list[str]:
    """Return the names of the scores to remove; of a dict, one for each key.

    They may be only in the frame, or only in the ledger.
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
    """Return the ids of the replies; rows without a reply have no id."""
    ids = columns["exchange_id"]
    return {exchange_id for exchange_id in ids if isinstance(exchange_id, str)}


def _keep(
    ledger: Ledger,
    columns: Columns,
    scored: Mapping[str, list[Any]],
    old: Sequence[str],
) -> int:
    """Save scores in place of the old ones, and return how many were saved."""
    from svc_notebook.ledger.scores import replace_scores  # noqa: PLC0415 - pandas

    scores = scores_to_keep(columns, scored)
    unknown = replace_scores(
        ledger, scores, old=[*old, *scored], among=_exchange_ids(columns)
    )
    if unknown:
        write_note(
            f"{len(unknown)} of these replies are not in the current ledger, so their "
            "scores are only in the frame."
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
        Score(ids[position], int(indexes[position] or 0), name, value)
        for name, values in scored.items()
        for position, value in enumerate(values)
        if value is not None
    ]

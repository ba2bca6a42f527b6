"""Ready-made scores, such as `run.score(right=svc.scores.exact("label"))`.

Each function returns one that takes a row of a frame of replies.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from svc_notebook.errors import (
    ParameterError,
    ToolCallError,
    ToolSchemaError,
    write_line,
)
from svc_notebook.ledger.columns import dtype_of
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.checks import (
    check_text,
    did_you_mean,
    must_be,
    shorten,
    shown,
)
from svc_notebook.tools.schema import build, schema_of

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

__all__ = ["contains", "exact", "json_schema", "json_valid", "length", "regex"]

Rule = Callable[[Any], Any]
"""Takes a row of a frame of replies; returns a score, or a dict of scores."""
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)


def __dir__() -> list[str]:
    return __all__


def exact(column: str = "label") -> Rule:
    """Say whether the answer is the value of a column; without answers, the text is.

    A reply without a valid answer is wrong. Spaces around are ignored. Where the column
    has no value, nothing is scored.

    Args:
        column: The column with what is right.

    Example:
        >>> run.score(right=svc.scores.exact("label"))
        12
    """
    check_text(column, param="column")

    def score(row: Any) -> bool | None:  # noqa: ANN401 - of any columns
        right = row[column]
        if right is None:
            return None
        if row["answer_ok"] is not None:
            answer = row["answer"]
            return bool(answer == right or _plain(answer) == _plain(right))
        return _plain(row["text"]) == _plain(right)

    return score


def contains(column: str | None = None, *, text: str | None = None) -> Rule:
    """Say whether the reply contains a text, or the value of a column; case is ignored.

    Args:
        column: The column with what to look for, another in each row.
        text: What to look for in all replies.

    Example:
        >>> run.score(sorry=svc.scores.contains(text="sorry"))
        12
    """
    if (column is None) == (text is None):
        raise ParameterError(
            "contains takes either a column, contains('label'), or a text for all "
            "rows, contains(text='sorry').",
            param="text",
        )

    def score(row: Any) -> bool | None:  # noqa: ANN401 - of any columns
        wanted = text if column is None else row[column]
        if wanted is None:
            return None
        return _plain(wanted).casefold() in (row["text"] or "").casefold()

    return score


def regex(pattern: str | re.Pattern[str]) -> Rule:
    """Say whether a regular expression is found in the reply.

    Args:
        pattern: As for `re.search`.

    Example:
        >>> run.score(number=svc.scores.regex(r"[0-9]+"))
        12
    """
    try:
        found = re.compile(pattern)
    except (re.error, TypeError) as problem:
        raise ParameterError(
            f"pattern is not a regular expression: {problem}.", param="pattern"
        ) from None
    return lambda row: found.search(row["text"] or "") is not None


def json_valid() -> Rule:
    """Say whether the reply is JSON, alone or in one fenced block.

    Example:
        >>> run.score(json=svc.scores.json_valid())
        12
    """
    return lambda row: _json(row["text"]) is not _NO_JSON


def json_schema(schema: Any) -> Rule:  # noqa: ANN401 - a schema or a type
    """Say whether the reply is JSON that fits a schema, or a type.

    Args:
        schema: A JSON schema as a mapping (draft 2020-12); or a dataclass, a TypedDict,
            a pydantic model or another type as in `svc.extract`.

    Example:
        >>> run.score(invoice=svc.scores.json_schema(Invoice))
        12
    """
    check = _check_of(schema)

    def score(row: Any) -> bool:  # noqa: ANN401 - of any columns
        value = _json(row["text"])
        return value is not _NO_JSON and check(value)

    return score


def length(unit: Literal["characters", "words"] = "characters") -> Rule:
    """Count the characters of the reply, or its words.

    Args:
        unit: `words` are what blanks separate, so they mean little in Thai.

    Example:
        >>> run.score(words=svc.scores.length("words"))
        12
    """
    if unit not in ("characters", "words"):
        raise must_be("unit", "'characters' or 'words'", unit)
    if unit == "words":
        return lambda row: len((row["text"] or "").split())
    return lambda row: len(row["text"] or "")


_NO_JSON = object()


def _plain(value: object) -> str:
    return "" if value is None else str(value).strip()


def _json(text: str | None) -> Any:  # noqa: ANN401 - JSON
    fenced = _FENCED.fullmatch(text or "")
    try:
        return json.loads(fenced[1] if fenced else text or "", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NO_JSON


def _refuse(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _check_of(schema: Any) -> Callable[[Any], bool]:  # noqa: ANN401 - a schema or a type
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - slow
    from referencing import Registry  # noqa: PLC0415 - slow to load

    if isinstance(schema, Mapping):
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as problem:
            raise ParameterError(
                f"schema is not a JSON schema: {problem.message}.", param="schema"
            ) from None
        # an empty registry: nothing that a schema refers to is downloaded
        return Draft202012Validator(schema, registry=Registry()).is_valid
    try:
        schema_of(schema)
    except ToolSchemaError as problem:
        raise ParameterError(
            f"schema must be a JSON schema or a type; got {shown(schema)}. {problem}",
            param="schema",
        ) from None

    def fits(value: Any) -> bool:  # noqa: ANN401 - JSON
        try:
            build(schema, value)
        except ToolCallError:
            return False
        return True

    return fits


# Scoring the rows of a frame.

_ERROR = "_error"


class ScoredRow:
    """A row of a frame of replies: `row.label` or `row["label"]`; None is missing."""

    __slots__ = ("_at", "_columns")

    def __init__(self, columns: Mapping[str, Sequence[Any]], at: int) -> None:
        self._columns = columns
        self._at = at

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of any column
        return self._columns[name][self._at]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any column
        try:
            return self._columns[name][self._at]
        except KeyError as problem:
            raise AttributeError(problem.args[0]) from None


class _Columns(dict[str, Sequence[Any]]):
    """The columns of a frame as lists, each made when it is first looked at."""

    def __init__(self, frame: "pd.DataFrame") -> None:
        self.frame = frame

    def __missing__(self, name: str) -> Sequence[Any]:
        if name not in self.frame.columns:
            near = did_you_mean(str(name), map(str, self.frame.columns), n=1)
            raise KeyError(f"the replies have no column {name!r}.{near}")
        values = self.frame[name]
        self[name] = values.astype(object).where(values.notna(), None).tolist()
        return self[name]


def score_replies(
    ledger: Ledger | None, frame: "pd.DataFrame", rules: Mapping[str, Rule | None]
) -> int:
    """Score the good replies of a frame, or remove scores: see `svc.score`.

    The frame gets the columns, in place. The ledger is None if nothing was asked.
    """
    from svc_notebook.ledger.frames import put, to_array  # noqa: PLC0415 - pandas
    from svc_notebook.ledger.scores import PREFIX  # noqa: PLC0415 - pandas

    if not {"exchange_id", "choice_index"} <= set(getattr(frame, "columns", ())):
        raise ParameterError(
            "Only a frame of replies can be scored, with exchange_id and choice_index.",
            param="frame",
        )
    columns = _Columns(frame)
    found: dict[str, list[Any]] = {}
    old: list[str] = []
    for name, rule in rules.items():
        check_text(name, param=name, name=f"The name {name!r}")
        if rule is None:
            old += _names_of(frame, name)
        elif callable(rule):
            found |= _scored(columns, name, rule)
            old += [name, name + _ERROR]
        else:
            raise ParameterError(
                f"{name} must be a function of a row, such as lambda r: r.answer == "
                f"r.label, or None to remove the score; got {type(rule).__name__}.",
                param=name,
            )
    n_kept = 0 if ledger is None else _kept(ledger, columns, found, old)
    for name in old:
        if PREFIX + name in frame.columns:
            del frame[PREFIX + name]
    for name, values in found.items():
        put(frame, PREFIX + name, to_array(values, dtype_of(values)))
    return n_kept


def _names_of(frame: "pd.DataFrame", name: str) -> list[str]:
    """Return the names of the scores that are removed: of a dict, those of its keys."""
    columns = map(str, frame.columns)
    known = [each[len("score_") :] for each in columns if each.startswith("score_")]
    if name in known or name + _ERROR in known:
        return [name, name + _ERROR]
    if found := [each for each in known if each.startswith(name + "_")]:
        return found
    raise ParameterError(
        f"There is no score {name!r} to remove.{did_you_mean(name, known, n=1)} The "
        f"scores are {', '.join(known) or 'none'}.",
        param=name,
    )


def _scored(columns: _Columns, name: str, rule: Rule) -> dict[str, list[Any]]:
    """Return the scores of all rows by name, and why rows have none."""
    found: dict[str, list[Any]] = {}
    n_rows, n_good, first = len(columns.frame), 0, None
    n_failed = 0
    for at in _good_rows(columns):
        n_good += 1
        try:
            scores = _parts(name, rule(ScoredRow(columns, at)))
        except Exception as problem:  # noqa: BLE001 - the user's own, shown in its row
            n_failed, first = n_failed + 1, first or problem
            reason = shorten(f"{type(problem).__name__}: {problem}", 300)
            scores = {name + _ERROR: reason.encode("utf-8", "replace").decode()}
        for key, each in scores.items():
            if key not in found:
                found[key] = [None] * n_rows
            found[key][at] = each
    if first is not None and n_failed == n_good:
        raise ParameterError(
            f"{name} failed for all of {n_good} replies, first with "
            f"{type(first).__name__}: {first}. No score was saved.",
            param=name,
        ) from first
    return found


def _parts(name: str, given: Any) -> dict[str, Any]:  # noqa: ANN401 - what a function returned
    """Return what a function gave as scores by name, without what is missing."""
    from svc_notebook.ledger.scores import to_score  # noqa: PLC0415 - pandas

    parts = {name: given}
    if isinstance(given, Mapping):
        parts = {f"{name}_{key}": each for key, each in given.items()}
    for each in (*parts, *parts.values()):
        if isinstance(each, str):
            check_text(each, param=name, name=f"The score {name}")
    return {
        key: to_score(f"the score {name}", each)
        for key, each in parts.items()
        if not _is_missing(each)
    }


def _good_rows(columns: _Columns) -> Iterator[int]:
    """Return the positions of good replies; what failed or is missing has no score."""
    ids = columns["exchange_id"]
    is_known = "status" in columns.frame.columns
    status = columns["status"] if is_known else ["ok"] * len(ids)
    for at, (exchange_id, each) in enumerate(zip(ids, status, strict=True)):
        if each == "ok" and isinstance(exchange_id, str):
            yield at


def _is_missing(value: Any) -> bool:  # noqa: ANN401 - what a function returned
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124 - NaN


def _kept(
    ledger: Ledger, columns: _Columns, found: Mapping[str, list[Any]], old: list[str]
) -> int:
    """Keep scores instead of the old ones, and return how many were kept."""
    from svc_notebook.ledger.scores import Score, replace_scores  # noqa: PLC0415

    ids, indexes = columns["exchange_id"], columns["choice_index"]
    scores = [
        Score(ids[at], int(indexes[at] or 0), name, value)
        for name, values in found.items()
        for at, value in enumerate(values)
        if value is not None
    ]
    among = {each for each in ids if isinstance(each, str)}
    unknown = replace_scores(ledger, scores, old=[*old, *found], among=among)
    if unknown:
        write_line(
            f"{len(unknown)} of these replies are not in the current ledger, so their "
            "scores are in the frame alone."
        )
    good = (score for score in scores if not score.name.endswith(_ERROR))
    return sum(score.exchange_id not in unknown for score in good)

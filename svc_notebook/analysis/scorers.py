"""Ready-made scores, such as `run.score(right=svc.scores.exact("label"))`.

Each function returns one that takes a row of a frame of replies.
"""

import json
import math
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
from svc_notebook.service.params import (
    as_number,
    check_text,
    did_you_mean,
    must_be,
    shorten,
    shown,
)

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

__all__ = ["contains", "exact", "json_schema", "json_valid", "length", "regex"]

Scorer = Callable[[Any], Any]
"""Takes a row of a frame of replies; returns a score, or a dict of scores."""
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?```\s*", re.DOTALL | re.IGNORECASE)


def __dir__() -> list[str]:
    return __all__


def exact(column: str = "label") -> Scorer:
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


def contains(column: str | None = None, *, text: str | None = None) -> Scorer:
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


def regex(pattern: str | re.Pattern[str]) -> Scorer:
    """Say whether a regular expression is found in the reply.

    Args:
        pattern: As for `re.search`.

    Example:
        >>> run.score(number=svc.scores.regex(r"[0-9]+"))
        12
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as problem:
        raise ParameterError(
            f"pattern is not a regular expression: {problem}.", param="pattern"
        ) from None
    return lambda row: compiled.search(row["text"] or "") is not None


def json_valid() -> Scorer:
    """Say whether the reply is JSON, alone or in one fenced block.

    Example:
        >>> run.score(json=svc.scores.json_valid())
        12
    """
    return lambda row: _json(row["text"]) is not _NO_JSON


def json_schema(schema: Any) -> Scorer:  # noqa: ANN401 - a schema or a type
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


def length(unit: Literal["characters", "words"] = "characters") -> Scorer:
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
    raise ValueError(name)  # JSON has neither NaN nor Infinity


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
    from svc_notebook.tools.schema import build, schema_of  # noqa: PLC0415 - pydantic

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
    ledger: Ledger | None, frame: "pd.DataFrame", rules: Mapping[str, Scorer | None]
) -> int:
    """Score the good replies of a frame, or remove scores: see `svc.score`.

    The frame gets the columns, in place. The ledger is None if nothing was asked.
    """
    from svc_notebook.ledger.reply_frames import (  # noqa: PLC0415 - pandas
        put,
        to_array,
    )
    from svc_notebook.ledger.scores import (  # noqa: PLC0415 - pandas
        PREFIX,
        check_types,
    )

    if not {"exchange_id", "choice_index"} <= set(getattr(frame, "columns", ())):
        raise ParameterError(
            "Only a frame of replies can be scored, with exchange_id and choice_index.",
            param="frame",
        )
    columns = _Columns(frame)
    scored: dict[str, list[Any]] = {}
    old: list[str] = []
    for name, rule in rules.items():
        check_text(name, param=name, name=f"The name {name!r}")
        if rule is None:
            old += _names_of(ledger, columns, name)
        elif callable(rule):
            scored |= _scored(columns, name, rule)
            old += [name, name + _ERROR]
        else:
            raise ParameterError(
                f"{name} must be a function of a row, such as lambda r: r.answer == "
                f"r.label, or None to remove the score; got {type(rule).__name__}.",
                param=name,
            )
    check_types(scored)
    n_kept = 0 if ledger is None else _kept(ledger, columns, scored, old)
    for name in old:
        if PREFIX + name in frame.columns:
            del frame[PREFIX + name]
    for name, values in scored.items():
        put(frame, PREFIX + name, to_array(values, dtype_of(values)))
    return n_kept


def _names_of(ledger: Ledger | None, columns: _Columns, name: str) -> list[str]:
    """Return the names of the scores that are removed: of a dict, those of its keys.

    They may be in the frame alone, or in the ledger alone.
    """
    from svc_notebook.ledger.scores import (  # noqa: PLC0415 - pandas
        PREFIX,
        names_of_scores,
    )

    frame_names = map(str, columns.frame.columns)
    known = [x.removeprefix(PREFIX) for x in frame_names if x.startswith(PREFIX)]
    if ledger is not None:
        exchange_ids = {x for x in columns["exchange_id"] if isinstance(x, str)}
        known = list(dict.fromkeys([*known, *names_of_scores(ledger, exchange_ids)]))
    if name in known or name + _ERROR in known:
        return [name, name + _ERROR]
    if of_dict := [
        score_name for score_name in known if score_name.startswith(name + "_")
    ]:
        return of_dict
    raise ParameterError(
        f"There is no score {name!r} to remove.{did_you_mean(name, known, n=1)} The "
        f"scores are {', '.join(known) or 'none'}.",
        param=name,
    )


def _scored(columns: _Columns, name: str, rule: Scorer) -> dict[str, list[Any]]:
    """Return the scores of all rows by name, and why rows have none."""
    values_by_name: dict[str, list[Any]] = {}
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
        for key, score in scores.items():
            if key not in values_by_name:
                values_by_name[key] = [None] * n_rows
            values_by_name[key][at] = score
    if first is not None and n_failed == n_good:
        raise ParameterError(
            f"{name} failed for all of {n_good} replies, first with "
            f"{type(first).__name__}: {first}. No score was saved.",
            param=name,
        ) from first
    return values_by_name


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


def _good_rows(columns: _Columns) -> Iterator[int]:
    """Return the positions of good replies; what failed or is missing has no score."""
    ids = columns["exchange_id"]
    is_known = "status" in columns.frame.columns
    status = columns["status"] if is_known else ["ok"] * len(ids)
    for at, (exchange_id, row_status) in enumerate(zip(ids, status, strict=True)):
        if row_status == "ok" and isinstance(exchange_id, str):
            yield at


def _is_missing(value: Any) -> bool:  # noqa: ANN401 - what a function returned
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    number = as_number(value)  # also numpy's, of any size
    return number is not None and math.isnan(number)


def _kept(
    ledger: Ledger, columns: _Columns, scored: Mapping[str, list[Any]], old: list[str]
) -> int:
    """Keep scores instead of the old ones, and return how many were kept."""
    from svc_notebook.ledger.scores import Score, replace_scores  # noqa: PLC0415

    ids, indexes = columns["exchange_id"], columns["choice_index"]
    scores = [
        Score(ids[at], int(indexes[at] or 0), name, value)
        for name, values in scored.items()
        for at, value in enumerate(values)
        if value is not None
    ]
    among = {exchange_id for exchange_id in ids if isinstance(exchange_id, str)}
    unknown = replace_scores(ledger, scores, old=[*old, *scored], among=among)
    if unknown:
        write_line(
            f"{len(unknown)} of these replies are not in the current ledger, so their "
            "scores are in the frame alone."
        )
    good = (score for score in scores if not score.name.endswith(_ERROR))
    return sum(score.exchange_id not in unknown for score in good)

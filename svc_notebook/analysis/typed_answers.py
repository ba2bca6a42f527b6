"""Typed answers in replies: a label, a number, yes or no, fields, or your own rule.

Answers are read from what a reply says, never asked for again. A reply that can be
read in two ways, with two labels or two numbers, has no answer.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, is_typeddict

import msgspec

from svc_notebook.errors import ParameterError, ToolCallError
from svc_notebook.ledger.columns import Dtype, dtype_of
from svc_notebook.ledger.reply_frames import ANSWERS
from svc_notebook.service.params import as_number, shorten
from svc_notebook.service.request import ToolCall
from svc_notebook.tools.extract import Form, read_value, to_form

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

_SHOWN_CHARS = 80
_FIELD = "answer_"
_ALLOWED = (
    "a Literal such as Literal['spam', 'ham'], bool, int, float, a dataclass, a "
    "TypedDict or a pydantic model, a compiled regex, or a function of the text"
)

Read = Callable[[str, Sequence[ToolCall]], Any]


class NoAnswer(Exception):  # noqa: N818 - never shown as an error: a cell of a frame
    """Why a reply has no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerType:
    """How answers of one type are read.

    Attributes:
        name: What messages call it.
        read: Takes the text and the tool calls of a reply, and returns the answer;
            None if the ledger kept only the name.
        kept: What the ledger keeps, as JSON: the type, or only its name.
        dtype: Of the column `answer`; from the values if None.
        fields: The fields of a structured answer, with their dtypes.
        form: The tool that is offered, if one is.
    """

    name: str
    read: Read | None
    kept: str
    dtype: Dtype | None = None
    fields: Mapping[str, Dtype] | None = None
    form: Form[Any] | None = None

    @property
    def in_words(self) -> str:
        """How answers are read, for the plan of a run."""
        name = shorten(self.name, _SHOWN_CHARS)
        if self.read is None:
            again = f"call .read({name}), or give answer={name} again"
            return f"none are read, since {name} is not kept; {again}"
        how = "the tool that is offered" if self.form else "each text"
        return f"{name}, read from {how}"


def answer_type(type_: Any, *, param: str = "answer") -> AnswerType:  # noqa: ANN401 - whatever was given
    """Read the `answer` of a sweep: see `svc.sweep`."""
    type_ = getattr(type_, "__value__", type_)  # of `type Label = ...`
    if get_origin(type_) is Literal:
        return _of_labels(get_args(type_), param)
    if isinstance(type_, type) and type_ in _PLAIN:
        return _PLAIN[type_]
    if isinstance(type_, re.Pattern) and isinstance(type_.pattern, str):
        return _of_pattern(type_)
    if isinstance(type_, type) or get_origin(type_) is not None:
        if get_origin(type_) is list or _has_fields(get_origin(type_) or type_):
            return _of_form(type_)
    elif callable(type_):
        return _of_function(type_)
    shown = getattr(type_, "__name__", None) or shorten(repr(type_), _SHOWN_CHARS)
    raise ParameterError(f"{param} must be {_ALLOWED}; got {shown}.", param=param)


def kept_type(kept: str | None) -> AnswerType | None:
    """Return the type that the ledger kept, if only by its name; None if none."""
    match msgspec.json.decode(kept or "{}"):
        case {"labels": [*labels]}:
            return _of_labels(tuple(labels), "answer")
        case {"type": str(name)}:
            return next(
                plain_type for plain_type in _PLAIN.values() if plain_type.name == name
            )
        case {"regex": str(pattern), "flags": int(flags)}:
            return _of_pattern(re.compile(pattern, flags))
        case {"given": str(name)}:
            return AnswerType(name=name, read=None, kept=kept or "")
    return None


def _has_fields(type_: Any) -> bool:  # noqa: ANN401 - any type
    is_model = hasattr(type_, "model_json_schema") or hasattr(
        type_, "__struct_fields__"
    )
    return is_dataclass(type_) or is_typeddict(type_) or is_model


def _kept(**how: object) -> str:
    return msgspec.json.encode(how).decode()


# Labels. A reply is compared without case, Markdown's marks and invisible characters.
# A label is found as a whole word; words that a hyphen joins are one word ("non-spam").
# Where a script has no spaces between words, such as Thai, a label may be anywhere,
# but no mark above or below may be added to its last letter. Of labels that begin at
# one place the longest counts, so "not spam" can be a label as well as "spam".

_MARKS = re.compile(r"\\(?=[^\w\s])|[*`~\u200b-\u200d\u2060\ufeff\u00ad]")
_EMPHASIS = re.compile(r"(?<!\w)_+|_+(?!\w)")
_NO_SPACES = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
)
_LETTER = rf"[^\W{_NO_SPACES}]"
_HYPHEN = r"[-\u2010\u2011]"
_ABOVE = (
    r"[\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece]"
)
_NOT_KNOWN = 'Negation ("not spam") is not understood'


def _folded(text: str) -> str:
    """Return a text as labels are compared."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    plain = _MARKS.sub("", plain.casefold())
    return " ".join((_EMPHASIS.sub("", plain) if "_" in plain else plain).split())


def _of_labels(labels: tuple[Any, ...], param: str) -> AnswerType:
    folded = {_folded(str(label)): label for label in labels}
    is_plain = all(type(label) in {str, int} for label in labels)
    if not is_plain or "" in folded or len(folded) < len(labels):
        raise ParameterError(
            f"{param} has labels that cannot be told apart in a text: "
            f"{shorten(', '.join(map(repr, labels)), _SHOWN_CHARS)}. Labels must be "
            "texts or whole numbers that differ in more than case and Markdown.",
            param=param,
        )
    dtype = dtype_of(labels)
    values = {
        key: str(label) if dtype == "string" else label for key, label in folded.items()
    }
    return AnswerType(
        name=f"Literal[{', '.join(map(repr, labels))}]",
        read=_label_reader(values),
        kept=_kept(labels=labels),
        dtype=dtype,
    )


def _label_reader(values: Mapping[str, Any]) -> Read:
    keys = sorted(values, key=len, reverse=True)
    firsts = "".join({re.escape(key[0]) for key in keys})  # much faster
    pattern = re.compile(rf"(?=[{firsts}])(?:{'|'.join(map(_whole_word, keys))})")
    shown = shorten(", ".join(dict.fromkeys(str(x) for x in values.values())), 60)

    def read(text: str, _: Sequence[ToolCall]) -> Any:  # noqa: ANN401 - a label
        words = (match[0] for match in pattern.finditer(_folded(text)))
        labels_in_text = list(dict.fromkeys(values[word] for word in words))
        if len(labels_in_text) == 1:
            return labels_in_text[0]
        if not labels_in_text:
            raise NoAnswer(f"None of the labels is in the reply: {shown}.")
        labels = shorten(", ".join(map(str, labels_in_text)), _SHOWN_CHARS)
        raise NoAnswer(f"The reply has several labels: {labels}. {_NOT_KNOWN}.")

    return read


def _whole_word(key: str) -> str:
    before = rf"(?<!{_LETTER})(?<!{_LETTER}{_HYPHEN})"
    after = rf"(?!{_LETTER})(?!{_HYPHEN}{_LETTER})"
    first = before if re.match(_LETTER, key[0]) else ""
    last = after if re.match(_LETTER, key[-1]) else ""
    return rf"{first}{re.escape(key)}{last}(?!{_ABOVE})"


# Yes and no: as labels.

_YES = ("yes", "true", "ใช่", "จริง")
_NO = ("no", "false", "not true", "ไม่ใช่", "ไม่จริง", "เท็จ")

# Numbers. A comma is between thousands, a point before decimals. Digits in a word
# ("GPT-4", "8b") and in dates or versions of several parts ("1.2.3") are not numbers.

_DIGITED = rf"[^\W_{_NO_SPACES}]"
_NUMBER = re.compile(
    rf"(?<!\d)(?<!{_DIGITED})(?<!\d[.,])(?<![^\W\d_]{_HYPHEN})"
    r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
    rf"(?!\d)(?!{_DIGITED})(?![.,]\d)"
)
_INT64 = 2**63


def _read_number(text: str, _: Sequence[ToolCall]) -> Decimal:
    plain = text.replace("\N{MINUS SIGN}", "-")
    numbers = {
        Decimal(digits.replace(",", "")): digits for digits in _NUMBER.findall(plain)
    }
    if len(numbers) == 1:
        return next(iter(numbers))
    if not numbers:
        raise NoAnswer("The reply has no number.")
    shown = shorten(", ".join(numbers.values()), _SHOWN_CHARS)
    raise NoAnswer(f"The reply has several numbers: {shown}.")


def _read_int(text: str, calls: Sequence[ToolCall]) -> int:
    number = _read_number(text, calls)
    if abs(number) >= _INT64:
        raise NoAnswer("The number is too large.")
    if number != int(number):
        raise NoAnswer(f"{number} is not a whole number.")
    return int(number)


def _read_float(text: str, calls: Sequence[ToolCall]) -> float:
    number = float(_read_number(text, calls))
    if abs(number) == float("inf"):
        raise NoAnswer("The number is too large.")
    return number


_PLAIN: dict[Any, AnswerType] = {
    bool: AnswerType(
        name="bool",
        read=_label_reader({**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}),
        kept=_kept(type="bool"),
        dtype="boolean",
    ),
    int: AnswerType(name="int", read=_read_int, kept=_kept(type="int"), dtype="Int64"),
    float: AnswerType(
        name="float", read=_read_float, kept=_kept(type="float"), dtype="Float64"
    ),
}


def _of_pattern(pattern: re.Pattern[str]) -> AnswerType:
    def read(text: str, _: Sequence[ToolCall]) -> str:
        """Return the first group of the first match, or all of it without groups."""
        match = pattern.search(text)
        if match is None or (answer := match[1 if pattern.groups else 0]) is None:
            raise NoAnswer("The regex finds nothing in the reply.")
        return str(answer)

    return AnswerType(
        name=f"re.compile({shorten(repr(pattern.pattern), _SHOWN_CHARS)})",
        read=read,
        kept=_kept(regex=pattern.pattern, flags=pattern.flags),
        dtype="string",
    )


def _of_function(function: Callable[[str], Any]) -> AnswerType:
    name = str(getattr(function, "__name__", type(function).__name__))

    def read(text: str, _: Sequence[ToolCall]) -> Any:  # noqa: ANN401 - the user's
        try:
            answer = _plain(function(text))
        except Exception as problem:  # noqa: BLE001 - the user's own, shown in its row
            reason = shorten(f"{type(problem).__name__}: {problem}", 300)
            raise NoAnswer(reason) from None
        if answer is None:
            raise NoAnswer(f"{name} returned None.")
        return answer

    return AnswerType(name=name, read=read, kept=_kept(given=name))


def _plain(value: Any) -> Any:  # noqa: ANN401 - what a function returned
    """Return a value that a column can hold; None for what is missing."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value)
    if type(value).__name__ in {"bool", "bool_"}:
        return bool(value)
    number = as_number(value)
    if number is not None:
        return None if number != number else number  # noqa: PLR0124 - NaN
    is_missing = value is None or type(value).__name__ in {"NAType", "NaTType"}
    return None if is_missing else str(value)


# Fields: the type is offered as one tool, and read from its call.


def _of_form(type_: Any) -> AnswerType:  # noqa: ANN401 - a type
    form: Form[Any] = to_form(type_)

    def read(text: str, calls: Sequence[ToolCall]) -> Any:  # noqa: ANN401 - JSON
        try:
            value = read_value(form, calls, text)
        except ToolCallError as problem:
            raise NoAnswer(str(problem)) from None
        return msgspec.to_builtins(value, enc_hook=_to_json)

    properties = form.definition["function"]["parameters"]["properties"]
    fields = {name: _dtype_of(schema) for name, schema in properties.items()}
    return AnswerType(
        name=form.name,
        read=read,
        kept=_kept(given=form.name),
        dtype="string",
        fields=None if form.is_list else fields,
        form=form,
    )


def _to_json(value: Any) -> Any:  # noqa: ANN401 - of a model or its fields
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


_DTYPES: dict[Any, Dtype] = {
    "integer": "Int64",
    "number": "Float64",
    "boolean": "boolean",
}


def _dtype_of(schema: Mapping[str, Any]) -> Dtype:
    """Return the dtype of a field; objects, lists and mixtures become JSON texts."""
    kinds: list[Any] = []
    for option in schema.get("anyOf", [schema]):
        kind = option.get("type")
        kinds += kind if isinstance(kind, list) else [kind]
    if kinds == [None] and "enum" in schema:
        return dtype_of(schema["enum"])
    kinds = [kind for kind in kinds if kind != "null"]
    return _DTYPES.get(kinds[0], "string") if len(kinds) == 1 else "string"


# Frames.


def read_answers(df: "pd.DataFrame", answer: Any) -> "pd.DataFrame":  # noqa: ANN401 - a type
    """Return a copy of a frame with answers of a type: see `svc.read_answers`."""
    if "text" not in getattr(df, "columns", ()):
        raise ParameterError(
            "read_answers takes a DataFrame with a column 'text', such as "
            f"svc.replies_df(); got {type(df).__name__}.",
            param="df",
        )
    if not df.columns.is_unique:
        twice = df.columns[df.columns.duplicated()][0]
        raise ParameterError(
            f"The frame has several columns called {twice!r}; rename all but one.",
            param="df",
        )
    known = [column.name for column in ANSWERS]
    old = [
        name
        for name in df.columns
        if str(name).startswith(_FIELD) and name not in known
    ]
    return with_answers(df.drop(columns=old), answer_type(answer, param="type_"))


def with_answers(frame: "pd.DataFrame", how: AnswerType) -> "pd.DataFrame":
    """Fill in the answers of a frame, which is changed in place."""
    return frame if how.read is None else _filled(frame, repeat(how), how)


def with_kept_answers(
    frame: "pd.DataFrame", kept_types: Sequence[str | None]
) -> "pd.DataFrame":
    """Fill in answers of the types that the ledger kept with each row."""
    types = {kept: kept_type(kept) for kept in set(kept_types)}
    readable = [type_ for type_ in types.values() if type_ and type_.read]
    if not readable:
        return frame
    one = readable[0] if len({type_.dtype for type_ in readable}) == 1 else None
    return _filled(frame, (types[kept] for kept in kept_types), one)


def _filled(
    frame: "pd.DataFrame", types: Iterable[AnswerType | None], stated: AnswerType | None
) -> "pd.DataFrame":
    from svc_notebook.ledger.reply_frames import (  # noqa: PLC0415 - pandas
        put,
        to_array,
    )

    answers, errors = _answers_of(frame, types)
    is_ok = [
        None if answer is None and error is None else error is None
        for answer, error in zip(answers, errors, strict=True)
    ]
    dtype = stated.dtype if stated else None
    put(frame, "answer", _column(answers, dtype))
    put(frame, "answer_ok", to_array(is_ok, "boolean"))
    put(frame, "answer_error", to_array(errors, "string"))
    fields: Mapping[str, Dtype | None] = (stated and stated.fields) or {
        str(name): None
        for answer in answers
        if isinstance(answer, dict)
        for name in answer
    }
    known = {column.name.removeprefix(_FIELD) for column in ANSWERS}
    for name, of_field in fields.items():
        values = [
            answer.get(name) if isinstance(answer, dict) else None for answer in answers
        ]
        shown = f"var_{name}" if name in known else name
        put(frame, _FIELD + shown, _column(values, of_field), before="answer_ok")
    return frame


def _answers_of(
    frame: "pd.DataFrame", types: Iterable[AnswerType | None]
) -> tuple[list[Any], list[str | None]]:
    """Return the answer of each row, and why it has none; equal replies once."""
    texts, calls, status = (
        frame[name].astype(object).where(frame[name].notna(), None).tolist()
        if name in frame.columns
        else [default] * len(frame)
        for name, default in (("text", None), ("tool_calls", None), ("status", "ok"))
    )
    seen: dict[Any, tuple[Any, str | None]] = {}
    answers, errors = list[Any](), list[str | None]()
    # rows first: `repeat` has no end
    for text, called, state, how in zip(texts, calls, status, types, strict=False):
        outcome: tuple[Any, str | None] = (None, None)
        if how and how.read and state == "ok" and (text, called) != (None, None):
            key = how.kept, text, called
            if key not in seen:
                seen[key] = _answer_of(how.read, text or "", called)
            outcome = seen[key]
        answers.append(outcome[0])
        errors.append(outcome[1])
    return answers, errors


_CALLS = msgspec.json.Decoder(list[ToolCall])


def _answer_of(read: Read, text: str, calls: str | None) -> tuple[Any, str | None]:
    try:
        return read(text, _CALLS.decode(calls) if calls else ()), None
    except msgspec.DecodeError:
        return None, "The column tool_calls has no JSON of tool calls."
    except NoAnswer as why:
        return None, str(why)


def _column(values: Sequence[Any], dtype: Dtype | None) -> Any:  # noqa: ANN401 - pandas' own
    from svc_notebook.ledger.reply_frames import to_array  # noqa: PLC0415 - pandas

    is_json = any(isinstance(value, (dict, list)) for value in values)
    dtype = dtype or ("string" if is_json else dtype_of(values))
    if dtype == "string":
        values = [_as_text(value) for value in values]
    return to_array(list(values), dtype)


def _as_text(value: Any) -> str | None:  # noqa: ANN401 - JSON
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return value if value is None else str(value)

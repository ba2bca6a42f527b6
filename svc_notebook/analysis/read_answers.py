"""Read answers from replies: a label, a number, yes or no, fields, or by your own rule.

Nothing is sent. A reply that can be read in two ways, such as one with two labels or
two numbers, has no answer.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from itertools import repeat
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

import msgspec

from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError, ToolCallError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.reply_columns import ANSWERS, Dtype, dtype_of
from svc_notebook.service.params import as_number, shorten
from svc_notebook.service.request import ToolCall
from svc_notebook.tools.typed_answer import Form, read_value, to_form

from .negation import negation_around

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd

_SHOWN_CHARS = 80
_REASON_CHARS = 200
_FIELD = "answer_"
_ALLOWED = (
    "a Literal such as Literal['spam', 'ham'], an Enum, bool, int, float, str, a "
    "dataclass, a TypedDict or a pydantic model, one of these or None, a compiled "
    "regex, or a function of the text"
)

Read = Callable[[str, Sequence[ToolCall]], Any]


class NoAnswer(Exception):  # noqa: N818 - never shown as an error: a cell of a frame
    """Why a reply has no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerType:
    """How answers of one type are read.

    Attributes:
        name: The name of the type in messages.
        read: A function that takes the text and the tool calls of a reply and returns
            the answer; None if the ledger has only the type's name.
        kept: The JSON that the ledger keeps: the type, or only its name.
        dtype: The dtype of the column `answer`; inferred from the values if None.
        labels: The possible answers, if there are only a few.
        fields: The fields of a structured answer, with their dtypes.
        form: The tool that is offered to the model, if there is one.
    """

    name: str
    read: Read | None
    kept: str
    dtype: Dtype | None = None
    labels: tuple[Any, ...] | None = None
    fields: Mapping[str, Dtype] | None = None
    form: Form[Any] | None = None

    @property
    def in_words(self) -> str:
        """How answers are read, as the plan of a run shows it."""
        name = shorten(self.name, _SHOWN_CHARS)
        if self.read is None:
            remedy = f"call .read({name}), or give answer={name} again"
            return f"none are read, since {name} is not kept; {remedy}"
        how = "a call of the tool that is offered" if self.form else "each reply"
        return f"{name}, read from {how}"


def answer_type(type_: Any, *, param: str = "answer") -> AnswerType:  # noqa: ANN401 - not checked yet
    """Read the `answer` of a sweep: see `svc.sweep`."""
    type_ = getattr(type_, "__value__", type_)  # of `type Label = ...`
    if get_origin(type_) in (Union, UnionType, Literal):
        return _of_options(type_, param)
    if isinstance(type_, type) and (type_ in _PLAIN or issubclass(type_, Enum)):
        return _PLAIN.get(type_) or _of_enum(type_.__name__, _members(type_), param)
    if isinstance(type_, re.Pattern) and isinstance(type_.pattern, str):
        return _of_pattern(type_)
    if isinstance(type_, type) or get_origin(type_) is not None:
        if get_origin(type_) is list or _has_fields(get_origin(type_) or type_):
            return _of_form(type_)
    elif callable(type_):
        return _of_function(type_)
    shown = getattr(type_, "__name__", None) or shorten(repr(type_), _SHOWN_CHARS)
    raise _not_allowed(param, shown)


def _not_allowed(param: str, shown: str) -> ParameterError:
    return ParameterError(f"{param} must be {_ALLOWED}; got {shown}.", param=param)


def kept_type(kept: str | None) -> AnswerType | None:
    """Return the type that the ledger kept, which may be only a name; None if none."""
    type_: AnswerType | None = None
    match msgspec.json.decode(kept or "{}"):
        case {"optional": str(kept_inner)}:
            inner = kept_type(kept_inner)
            type_ = inner and _or_none(inner)
        case {"labels": [*labels]}:
            type_ = _of_labels(tuple(labels), "answer")
        case {"enum": str(name), "members": dict(members)}:
            type_ = _of_enum(name, members, "answer")
        case {"type": str(name)}:
            type_ = next(plain for plain in _PLAIN.values() if plain.name == name)
        case {"regex": str(pattern), "flags": int(flags)}:
            type_ = _of_pattern(re.compile(pattern, flags))
        case {"given": str(name)}:
            type_ = AnswerType(name=name, read=None, kept=kept or "")
    return type_


def _has_fields(type_: Any) -> bool:  # noqa: ANN401 - any type
    is_model = hasattr(type_, "model_json_schema") or hasattr(
        type_, "__struct_fields__"
    )
    return is_dataclass(type_) or is_typeddict(type_) or is_model


def _kept(**how: object) -> str:
    return msgspec.json.encode(how).decode()


# Labels. Case, Markdown's marks and invisible characters are ignored. A label must be a
# whole word; words joined by a hyphen are one word ("non-spam"). In scripts without
# spaces between words, such as Thai, a label may be anywhere, but its last letter must
# not have a further mark above or below. Of labels that begin at the same place the
# longest counts, so that "not spam" can be a label as well as "spam".

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
# an empty line or the next item of a list begins a new clause without a full stop, too
_PARAGRAPH = re.compile(r"\s*\n\s*\n\s*|\s*\n\s*(?=(?:[-\u2022*+]|\d+[.)])\s)")


def _folded(text: str) -> str:
    """Return a text in the form in which labels are compared."""
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
            "texts or whole numbers that differ in more than case and Markdown marks.",
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
        labels=tuple(values.values()),
    )


def label_reader(type_: object) -> Callable[[str], Any] | None:
    """Return the function that reads a label of a Literal or an Enum in a text.

    It raises ToolCallError, with the reason, if the text does not have one label. None
    for other types, and for labels that cannot be told apart in a text.
    """
    type_ = getattr(type_, "__value__", type_)  # of `type Label = ...`
    is_enum = isinstance(type_, type) and issubclass(type_, Enum)
    try:
        is_literal = get_origin(type_) is Literal and None not in get_args(type_)
        how = answer_type(type_) if is_enum or is_literal else None
    except ParameterError:
        return None
    read = how.read if how else None
    if read is None:
        return None

    def read_label(text: str) -> Any:  # noqa: ANN401 - a label
        try:
            return read(text, ())
        except NoAnswer as reason:
            raise ToolCallError(str(reason)) from None

    return read_label


def _members(type_: type[Enum]) -> dict[str, Any]:
    return {name: member.value for name, member in type_.__members__.items()}


def _of_enum(name: str, members: Mapping[str, Any], param: str) -> AnswerType:
    """Return the type that reads an Enum's values; its names are recognised, too."""
    by_value = _of_labels(tuple(dict.fromkeys(members.values())), param)
    is_text = by_value.dtype == "string"
    value_of = {
        _folded(label): str(value) if is_text else value
        for member, value in members.items()
        for label in (member, member.replace("_", " "))
    }
    # if a value is also the name of another member, it is read as the value
    value_of |= {_folded(str(value)): value for value in by_value.labels or ()}
    return replace(
        by_value,
        name=name,
        read=_label_reader(value_of),
        kept=_kept(enum=name, members=members),
    )


def _label_reader(values: Mapping[str, Any]) -> Read:
    keys = sorted(values, key=len, reverse=True)
    # to look for the first characters before all labels is much faster
    firsts = "".join({re.escape(key[0]) for key in keys})
    pattern = re.compile(rf"(?=[{firsts}])(?:{'|'.join(map(_whole_word, keys))})")
    shown = shorten(", ".join(dict.fromkeys(str(x) for x in values.values())), 60)

    def read(text: str, _: Sequence[ToolCall]) -> Any:  # noqa: ANN401 - a label
        folded = _folded(_PARAGRAPH.sub(". ", text))
        matches = list(pattern.finditer(folded))
        labels_in_text = list(dict.fromkeys(values[match[0]] for match in matches))
        if not labels_in_text:
            raise NoAnswer(f"None of the labels is in the reply: {shown}.")
        if len(labels_in_text) > 1:
            labels = shorten(", ".join(map(str, labels_in_text)), _SHOWN_CHARS)
            raise NoAnswer(f"The reply has several labels: {labels}.")
        since = 0
        for match in matches:
            if negated := negation_around(folded, *match.span(), since=since):
                raise NoAnswer(f"The reply negates a label: {_quoted(negated)}.")
            since = match.end()
        return labels_in_text[0]

    return read


def _quoted(text: str) -> str:
    """Return a text in quotes; of a long one only the end, which has the label."""
    n_cut = len(text) - _SHOWN_CHARS
    return f'"{text}"' if n_cut <= 0 else f'"...{text[n_cut:]}"'


def _whole_word(key: str) -> str:
    before = rf"(?<!{_LETTER})(?<!{_LETTER}{_HYPHEN})"
    after = rf"(?!{_LETTER})(?!{_HYPHEN}{_LETTER})"
    first = before if re.match(_LETTER, key[0]) else ""
    last = after if re.match(_LETTER, key[-1]) else ""
    return rf"{first}{re.escape(key)}{last}(?!{_ABOVE})"


# Yes and no are read as labels.

_YES = ("yes", "true", "ใช่", "จริง")
_NO = ("no", "false", "not true", "ไม่ใช่", "ไม่จริง", "เท็จ")

# Numbers. A comma separates thousands, a point decimals. Digits in words ("GPT-4",
# "8b"), in dates and in versions ("1.2.3") are not numbers.

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
        raise NoAnswer("The number is too large for Int64.")
    if number != int(number):
        raise NoAnswer(f"{number} is not a whole number.")
    return int(number)


def _read_float(text: str, calls: Sequence[ToolCall]) -> float:
    number = float(_read_number(text, calls))
    if abs(number) == float("inf"):
        raise NoAnswer("The number is too large.")
    return number


def _read_str(text: str, _: Sequence[ToolCall]) -> str:
    if plain := text.strip():
        return plain
    raise NoAnswer("The reply is empty.")


_PLAIN: dict[Any, AnswerType] = {
    bool: AnswerType(
        name="bool",
        read=_label_reader({**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}),
        kept=_kept(type="bool"),
        dtype="boolean",
        labels=(True, False),
    ),
    int: AnswerType(name="int", read=_read_int, kept=_kept(type="int"), dtype="Int64"),
    float: AnswerType(
        name="float", read=_read_float, kept=_kept(type="float"), dtype="Float64"
    ),
    str: AnswerType(name="str", read=_read_str, kept=_kept(type="str"), dtype="string"),
}


def _of_pattern(pattern: re.Pattern[str]) -> AnswerType:
    def read(text: str, _: Sequence[ToolCall]) -> str:
        """Return the first group of the first match, or all of it without groups."""
        match = pattern.search(text)
        if match is None or (answer := match[1 if pattern.groups else 0]) is None:
            raise NoAnswer("The regex does not match the reply.")
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
        except Exception as problem:  # noqa: BLE001 - user code; shown in answer_error
            reason = shorten(f"{type(problem).__name__}: {problem}", 300)
            raise NoAnswer(reason) from None
        if answer is None:
            raise NoAnswer(f"{name} returned None.")
        return answer

    return AnswerType(name=name, read=read, kept=_kept(given=name))


def _plain(value: Any) -> Any:  # noqa: ANN401 - what a function returned
    """Return a value that a column can hold; None if it is missing."""
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


# Optional types: "none" is a valid answer, which is a missing value in the frame.

_NONE = re.compile(r"(?:^|[^\w/-])(?:none|null|n/a|nil|ไม่มี)(?:\s|[^\w\s]|ครับ|ค่ะ|คะ)*$")


def _of_options(type_: Any, param: str) -> AnswerType:  # noqa: ANN401 - a type
    """Return the answer type for a Literal, or for one type or None."""
    options = [option for option in get_args(type_) if option not in (None, NoneType)]
    may_be_none = len(options) < len(get_args(type_))
    if get_origin(type_) is Literal and options:
        labels = _of_labels(tuple(options), param)
        return _or_none(labels) if may_be_none else labels
    if may_be_none and len(options) == 1:
        inner = answer_type(options[0], param=param)
        return (
            inner if "optional" in msgspec.json.decode(inner.kept) else _or_none(inner)
        )
    raise _not_allowed(param, shorten(str(type_), _SHOWN_CHARS))


def _or_none(inner: AnswerType) -> AnswerType:
    """Return a type that also accepts "none" as an answer."""
    read_inner, is_text = inner.read, inner.name == "str"

    def read(text: str, calls: Sequence[ToolCall]) -> Any:  # noqa: ANN401 - of any type
        folded = _folded(text)
        says_none = (_NONE.match if is_text else _NONE.search)(folded) is not None
        try:
            answer = read_inner(text, calls) if read_inner else None
        except NoAnswer:
            if says_none and not calls:
                return None
            raise
        if not says_none or inner.form:  # in JSON, "null" is the value of a field
            return answer
        if is_text:
            return None
        shown = shorten(str(answer), _SHOWN_CHARS)
        raise NoAnswer(f"The reply says both {shown} and none.")

    return replace(
        inner,
        name=f"{inner.name} | None",
        read=read if read_inner else None,
        kept=_kept(optional=inner.kept),
    )


# Fields: the type is offered as a tool, and the answer is read from its call.


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
    "decimal": "Float64",  # sums and means, as of all numbers; `answer` has each digit
    "date": "datetime64[us]",
    "date-time": "datetime64[us, UTC]",
}


def _dtype_of(schema: Mapping[str, Any]) -> Dtype:
    """Return the dtype of a field; objects, lists and mixtures become JSON texts."""
    kinds: list[Any] = []
    for option in schema.get("anyOf", [schema]):
        kind = option.get("type")
        of_option = kind if isinstance(kind, list) else [kind]
        # how a text is written says what it is: a decimal, a date
        written = option.get("format", "string")
        kinds += [written if kind == "string" else kind for kind in of_option]
    if kinds == [None] and "enum" in schema:
        return dtype_of(schema["enum"])
    dtypes = {_DTYPES.get(kind, "string") for kind in kinds if kind != "null"}
    if dtypes == {"Int64", "Float64"}:
        return "Float64"
    return dtypes.pop() if len(dtypes) == 1 else "string"


# Frames.


def read_answers(df: "pd.DataFrame", answer: Any) -> "pd.DataFrame":  # noqa: ANN401 - a type
    """Return a copy of a frame with answers of a type: see `svc.read_answers`."""
    from .reply_factors import check_column_names  # noqa: PLC0415 - pandas

    df = to_pandas(df)
    if "text" not in getattr(df, "columns", ()):
        raise ParameterError(
            "read_answers takes a DataFrame with a column 'text', such as "
            f"svc.replies_df(); got {type(df).__name__}.",
            param="df",
        )
    check_column_names(df.columns)
    known = [column.name for column in ANSWERS]
    old = [
        name
        for name in df.columns
        if str(name).startswith(_FIELD) and name not in known
    ]
    return with_answers(df.drop(columns=old), answer_type(answer, param="type_"))


def with_answers(frame: "pd.DataFrame", how: AnswerType) -> "pd.DataFrame":
    """Fill in the answers of a frame, in place."""
    return frame if how.read is None else _fill_answers(frame, repeat(how), how)


def with_kept_answers(
    frame: "pd.DataFrame", kept_types: Sequence[str | None]
) -> "pd.DataFrame":
    """Fill in the answers, in place, each of the type that the ledger kept with it."""
    types = {kept: kept_type(kept) for kept in set(kept_types)}
    readable = [type_ for type_ in types.values() if type_ and type_.read]
    if not readable:
        return frame
    has_one_dtype = len({type_.dtype for type_ in readable}) == 1
    stated = readable[0] if has_one_dtype else None
    return _fill_answers(frame, (types[kept] for kept in kept_types), stated)


def _fill_answers(
    frame: "pd.DataFrame", types: Iterable[AnswerType | None], stated: AnswerType | None
) -> "pd.DataFrame":
    """Fill in the columns of answers; dtypes are those of `stated`, or inferred."""
    from svc_notebook.ledger.reply_frames import put, to_array  # noqa: PLC0415 - pandas

    answers, errors, is_ok = _answers_of(frame, types)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadAnswers:
    """The answers of good replies that could not be read.

    Attributes:
        n: How many.
        n_replies: How many good replies there are.
        reason: Why the first of them could not be read.
    """

    n: int = 0
    n_replies: int = 0
    reason: str = ""

    def __add__(self, other: "UnreadAnswers") -> "UnreadAnswers":
        """Return the counts of both, with the first reason."""
        return UnreadAnswers(
            n=self.n + other.n,
            n_replies=self.n_replies + other.n_replies,
            reason=self.reason or other.reason,
        )

    @property
    def in_words(self) -> str:
        """Their number in words; "" if all were read."""
        return f"{count_in_words(self.n, 'answers')} not read" if self.n else ""

    @property
    def fact(self) -> str:
        """How many they are, and why the first was not read; "" if all were read."""
        if not self.n:
            return ""
        return (
            f"{self.n:,} of {self.n_replies:,} answers could not be read. The first: "
            f"{shorten(self.reason, _REASON_CHARS)}"
        )

    @property
    def note(self) -> str:
        """The fact, and what to do next; "" if all were read."""
        if not self.n:
            return ""
        return (
            f"{self.fact} The column answer_error of "
            "replies_df() says why for each. If the texts do answer, .read(...) reads "
            "them in another way and sends nothing; else change the prompt."
        )


def unread_answers(frame: "pd.DataFrame") -> UnreadAnswers:
    """Count the answers that could not be read, in a frame that has answers."""
    is_ok = frame["answer_ok"]
    errors = frame["answer_error"][is_ok.eq(other=False).fillna(value=False)]
    return UnreadAnswers(
        n=len(errors),
        n_replies=int(is_ok.notna().sum()),
        reason="".join(errors.iloc[:1]),
    )


def _answers_of(
    frame: "pd.DataFrame", types: Iterable[AnswerType | None]
) -> tuple[list[Any], list[str | None], list[bool | None]]:
    """Return for each row its answer, the reason if it has none, and whether it is ok.

    The last is None for rows without a good reply. Equal replies are read only once.
    """
    texts, calls, status = (
        frame[name].astype(object).where(frame[name].notna(), None).tolist()
        if name in frame.columns
        else [default] * len(frame)
        for name, default in (("text", None), ("tool_calls", None), ("status", "ok"))
    )
    seen: dict[Any, tuple[Any, str | None]] = {}
    answers, errors, is_ok = list[Any](), list[str | None](), list[bool | None]()
    # not strict, since `types` may be infinite
    for text, called, state, how in zip(texts, calls, status, types, strict=False):
        answer, error, is_read = None, None, None
        if how and how.read and state == "ok" and (text, called) != (None, None):
            key = how.kept, text, called
            if key not in seen:
                seen[key] = _answer_of(how.read, text or "", called)
            answer, error = seen[key]
            is_read = error is None
        answers.append(answer)
        errors.append(error)
        is_ok.append(is_read)
    return answers, errors, is_ok


_CALLS = msgspec.json.Decoder(list[ToolCall])


def _answer_of(read: Read, text: str, calls: str | None) -> tuple[Any, str | None]:
    try:
        return read(text, _CALLS.decode(calls) if calls else ()), None
    except msgspec.DecodeError:
        return None, "The column tool_calls is not the JSON of tool calls."
    except NoAnswer as why:
        return None, str(why)


def _column(values: Sequence[Any], dtype: Dtype | None) -> Any:  # noqa: ANN401 - pandas' own
    from svc_notebook.ledger.reply_frames import to_array  # noqa: PLC0415 - pandas

    is_json = any(isinstance(value, (dict, list)) for value in values)
    dtype = dtype or ("string" if is_json else dtype_of(values))
    if dtype == "string":
        values = [_as_text(value) for value in values]
    elif dtype.startswith("datetime"):
        values = [_as_instant(value) for value in values]
    return to_array(list(values), dtype)


def _as_instant(value: Any) -> datetime | None:  # noqa: ANN401 - JSON
    """Return the instant of an ISO text; one without an offset is taken as UTC."""
    try:
        instant = datetime.fromisoformat(value)
        in_utc = instant.astimezone(UTC) if instant.tzinfo else instant
        return in_utc.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):  # missing, or beyond years 1 to 9999
        return None


def _as_text(value: Any) -> str | None:  # noqa: ANN401 - JSON
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return value if value is None else str(value)

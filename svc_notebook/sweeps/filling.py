r"""Prompts as templates: `{{column}}` filled from a row.

Rules: pure; every name is checked against the columns, and every row for missing
values, before anything is sent; a value is put in as it reads, and never expanded
again; `\{{name}}` is the plain text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from svc_notebook.chat.template import did_you_mean, fill, names_in
from svc_notebook.errors import ParameterError
from svc_notebook.service.message import Message
from svc_notebook.service.text import check_text

from .source import Source, is_missing

_SHOWN_ROWS = 5
UNNAMEABLE = (
    "A prompt names a column with a plain name that is no number and has no blanks; "
    "rename the columns, for example with rows.rename(columns=...)."
)


def columns_in(prompt: object) -> tuple[str, ...]:
    """Return the columns that a prompt names: a text, messages, or None."""
    texts = [prompt] if isinstance(prompt, str) else map(_content, _messages(prompt))
    return tuple(
        dict.fromkeys(
            name for text in texts if isinstance(text, str) for name in names_in(text)
        )
    )


def filled(prompt: Any, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 - text or messages
    """Return a prompt with a row's values in the place of its marks."""
    if isinstance(prompt, str):
        return fill(prompt, lambda name: to_text(row[name]))
    if prompt is None:
        return None
    return [_filled_message(message, row) for message in _messages(prompt)]


def to_text(value: object) -> str:
    """Return how a value of a row reads in a prompt."""
    return value if isinstance(value, str) else str(value)


def check_columns(prompts: Iterable[object], columns: Iterable[str]) -> None:
    """Refuse a name that is no column.

    Args:
        prompts: Prompts and systems, filled or not.
        columns: What there is; none if no rows were given.

    Raises:
        ParameterError: A mark names no column; the near ones are named.
    """
    known = list(columns)
    for prompt in prompts:
        for name in columns_in(prompt):
            if name not in known:
                raise _unknown(name, known)


def check_rows(source: Source, names: Iterable[str]) -> None:
    """Refuse rows that cannot be put into a prompt.

    Args:
        source: The rows.
        names: The columns that templates name.

    Raises:
        ParameterError: A value is missing, or no text can carry it; its row is named.
    """
    for name in names:
        values = source.columns[name]
        gaps = [at for at, value in enumerate(values) if is_missing(value)]
        if gaps:
            raise _incomplete(name, [source.labels[at] for at in gaps])
        for at, value in enumerate(values):
            check_text(to_text(value), param=f"{name} of row {source.labels[at]!r}")


def _messages(prompt: object) -> Sequence[Any]:
    is_several = isinstance(prompt, Sequence) and not isinstance(prompt, (str, bytes))
    return prompt if is_several else ()  # type: ignore[return-value]  # just tested


def _content(message: object) -> object:
    if isinstance(message, Mapping):
        return message.get("content")
    return getattr(message, "content", None)


def _filled_message(message: Any, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 - both kinds
    content = _content(message)
    if not isinstance(content, str):
        return message
    text = fill(content, lambda name: to_text(row[name]))
    if isinstance(message, Mapping):
        return {**message, "content": text}
    return Message(
        role=message.role,
        content=text,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
    )


def _unknown(name: str, known: Sequence[str]) -> ParameterError:
    where = (
        f"is no column; the columns are {', '.join(known)}."
        + ("" if any(map(str.isidentifier, known)) else f" {UNNAMEABLE}")
        if known
        else "stands for a column, but no rows were given."
    )
    return ParameterError(
        f"{{{{{name}}}}} {where}{did_you_mean(name, known)} For the plain text write "
        f"\\{{{{{name}}}}}, or use raw=True. Nothing was sent.",
        param="prompt",
    )


def _incomplete(name: str, labels: Sequence[object]) -> ParameterError:
    shown = ", ".join(map(repr, labels[:_SHOWN_ROWS]))
    more = len(labels) - _SHOWN_ROWS
    rest = f" and {more} more" if more > 0 else ""
    plural = "row" if len(labels) == 1 else "rows"
    return ParameterError(
        f"The column {name!r} has no value in {plural} {shown}{rest}, and the prompt "
        f"needs one. Fill the gaps or leave the {plural} out, for example with "
        f"rows.dropna(subset=[{name!r}]). Nothing was sent.",
        param="rows",
    )

"""Prompts with `{{name}}`, which the values of a row fill: a text or messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import did_you_mean
from svc_notebook.template import fill, names_in, wrong_marks

_NO_IDENTIFIER = (
    "A prompt uses a column by a name that is an identifier; rename the columns, for "
    "example with {called}.rename(columns=...)."
)


def columns_in(prompt: object) -> tuple[str, ...]:
    """Return the columns that a prompt uses: a text, messages, or None."""
    names = (name for text in _texts(prompt) for name in names_in(text))
    return tuple(dict.fromkeys(names))


def _texts(prompt: object) -> Iterator[str]:
    texts = [prompt] if isinstance(prompt, str) else map(_content, _messages(prompt))
    return (text for text in texts if isinstance(text, str))


def size_and_end(prompt: object) -> tuple[int, str]:
    """Return how many messages a prompt has, and the newest text of the user."""
    if isinstance(prompt, str):
        return 1, prompt
    messages = _messages(prompt)
    of_user = [message for message in messages if _part(message, "role") == "user"]
    return len(messages), str(_content(of_user[-1])) if of_user else ""


def filled(prompt: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - text or messages
    """Return a prompt with its `{{name}}` replaced by the values."""
    if isinstance(prompt, str):
        return fill(prompt, lambda name: to_text(values[name]))
    if prompt is None:
        return None
    return [_filled_message(message, values) for message in _messages(prompt)]


def to_text(value: object) -> str:
    """Return a value of a row as a text for a prompt."""
    # str() of an enumeration of texts would be its name
    return value if isinstance(value, str) else str(value)


def check_columns(
    prompts: Iterable[object], columns: Iterable[str], *, called: str = "rows"
) -> None:
    """Refuse `{{name}}` in a prompt or system if it is not a column."""
    known = list(columns)
    for prompt in prompts:
        for text in _texts(prompt):
            for mark in wrong_marks(text):
                raise _not_a_mark(mark, known, called)
        for name in columns_in(prompt):
            if name not in known:
                raise _unknown_column(name, known, called)


def _messages(prompt: object) -> Sequence[Any]:
    if isinstance(prompt, Sequence) and not isinstance(prompt, (str, bytes)):
        return prompt
    return ()


def _content(message: object) -> object:
    return _part(message, "content")


def _part(message: object, name: str) -> object:
    if isinstance(message, Mapping):
        return message.get(name)
    return getattr(message, name, None)


def _filled_message(message: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - both kinds
    content = _content(message)
    if not isinstance(content, str):
        return message
    text = filled(content, values)
    if isinstance(message, Mapping):
        return {**message, "content": text}
    return replace(message, content=text)


def _not_a_mark(mark: str, known: Sequence[str], called: str) -> ParameterError:
    inner = mark[2:-2].strip()
    hint = "Put what you compute into a column first."
    if inner.isidentifier():
        hint = f"Did you mean {{{{{inner}}}}}?"
    elif inner in known:
        hint = _NO_IDENTIFIER.format(called=called)
    return ParameterError(
        f"{mark} is not a column: between the braces there may only be its name, "
        f"without spaces. {hint} {_plain_text_hint(mark, called)}",
        param="prompt",
    )


def _unknown_column(name: str, known: Sequence[str], called: str) -> ParameterError:
    problem = "means a column, but no rows were given."
    if known:
        are = "the column is" if len(known) == 1 else "the columns are"
        problem = f"is not a column; {are} {', '.join(known)}."
        if not any(map(str.isidentifier, known)):
            problem += f" {_NO_IDENTIFIER.format(called=called)}"
    mark = f"{{{{{name}}}}}"
    hint = did_you_mean(name, known)
    return ParameterError(
        f"{mark} {problem}{hint} {_plain_text_hint(mark, called)}", param="prompt"
    )


def _plain_text_hint(mark: str, called: str) -> str:
    raw = ", or use raw=True" if called == "rows" else ""
    return f"For the plain text write \\{mark}{raw}. Nothing was sent."

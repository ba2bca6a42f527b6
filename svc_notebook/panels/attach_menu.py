"""The notebook's values that a message can attach: offers them, and reads them.

The page gets names, kinds and sizes. Finding these runs no code of the user's objects.
A value is converted to text only when a message with it is sent, or when the page asks
for its size in tokens.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol

from svc_notebook.conversations.attachments import CAP_TOKENS, Hide, read_item
from svc_notebook.errors import SvcError, last_error
from svc_notebook.service.params import shorten
from svc_notebook.template import as_variable
from svc_notebook.tokens import estimate_tokens

MAX_OFFERS = 50  # names in the list after `@`
_MAX_VARIABLES = 40  # before anything is typed: leaves room for cells
# Modules, functions and classes are code, not values to write into a prompt.
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type)
_SIZED = (list, tuple, dict, set, frozenset)
# Libraries whose `shape` is cheap to read and runs no code of the user.
_SHAPED = ("pandas", "numpy", "polars")
_START_CHARS = 60  # of a cell's code, beside its name
_PEEK_CHARS = 8 * CAP_TOKENS  # of a text to measure; longer texts are cut when sent
NamedValues = Iterator[tuple[str, object]]


class Shell(Protocol):
    """The part of IPython's shell that has the notebook's names and cells."""

    user_ns: dict[str, Any]
    user_ns_hidden: Mapping[str, Any]  # names from before the first cell
    history_manager: Any  # has the cells as they were typed; None without history


def current_shell() -> Shell | None:
    """Return the shell of this kernel; None in a plain program."""
    from IPython import get_ipython  # noqa: PLC0415 - only where there is a kernel

    shell: Shell | None = get_ipython()
    return shell


def offers(fragment: str, shell: Shell | None, hide: Hide) -> dict[str, Any]:
    """Return the values, for the page, whose names contain a fragment.

    The name that is the fragment comes first, then names that begin with it, each
    newest first. A text that contains the API key is left out.
    """
    # a copy, since a cell may run meanwhile
    names = shell.user_ns.copy() if shell else {}
    typed_name, search = as_variable(fragment), as_variable(fragment.casefold())
    variables = _matching(search, _variables(names, shell))
    cells = _matching(search, _cells(names))
    error = _matching(search, iter([("Err", last_error())] if last_error() else []))
    n_variables = len(variables) if search else _MAX_VARIABLES
    pairs = [*error, *variables[:n_variables], *cells, *variables[n_variables:]]
    pairs.sort(key=lambda pair: _fit(pair[0], typed_name, search), reverse=True)
    typed = getattr(shell and shell.history_manager, "input_hist_raw", [])
    shown = (offer for pair in pairs if (offer := _offer(*pair, hide, typed)))
    shown_offers = list(islice(shown, MAX_OFFERS))
    is_all = len(pairs) <= MAX_OFFERS
    return {"t": "names", "text": fragment, "offers": shown_offers, "is_all": is_all}


def _fit(name: str, typed: str, search: str) -> int:
    """Return how well a name fits what is typed; most if it is the same."""
    folded = name.casefold()
    return (name == typed) + (folded == search) + folded.startswith(search)


def _matching(search: str, pairs: NamedValues) -> list[tuple[str, object]]:
    return [(name, value) for name, value in pairs if search in name.casefold()]


def _variables(names: Mapping[str, Any], shell: Shell | None) -> NamedValues:
    """Iterate the notebook's variables, except private names, modules, functions.

    A panel is left out, too: what it shows is in the conversation already.
    """
    hidden = shell.user_ns_hidden if shell else {}
    for name in reversed([name for name in names if str(name).isidentifier()]):
        value = names[name]
        is_own = name not in hidden or hidden[name] is not value
        is_data = not (issubclass(type(value), _CODE) or _is_panel(value))
        if is_own and name[0] != "_" and is_data:
            yield name, value


def _is_panel(value: object) -> bool:
    return type(value).__module__.startswith("svc_notebook.panels.")


def _cells(names: Mapping[str, Any]) -> NamedValues:
    """Iterate the cells that ran, and their values, newest first."""
    sources, values = names.get("In"), names.get("Out")
    by_number = dict(enumerate(sources)) if type(sources) is list else {}
    known = dict(values) if isinstance(values, dict) else {}
    for number in sorted({*by_number, *known}, reverse=True):
        if by_number.get(number):
            yield f"In[{number}]", by_number[number]
        if number in known:
            yield f"Out[{number}]", known[number]


def _offer(
    name: str, value: object, hide: Hide, typed: list[str]
) -> dict[str, str] | None:
    """Describe a value; None for a text that contains the API key.

    `typed` are the cells as they were typed, by their numbers.
    """
    kind, size, start = type(value).__name__, "", ""
    if type(value) is str:
        if hide(value) != value:
            return None
        kind = "text"
        if name.startswith("In["):
            kind, number = "cell", int(name[3:-1])
            code = typed[number] if number < len(typed) else value
            start = shorten(" ".join(hide(code[:_PEEK_CHARS]).split()), _START_CHARS)
        n_tokens = estimate_tokens(value[:_PEEK_CHARS]).best
        is_cut = n_tokens > CAP_TOKENS
        size = f"cut to {CAP_TOKENS:,} tokens" if is_cut else f"~{n_tokens:,} tokens"
    elif name == "Err":
        kind = f"the last error, {kind}"
    elif type(value) in _SIZED:
        size = f"{len(value):,} items"  # type: ignore[arg-type]  # just tested
    elif type(value).__module__.partition(".")[0] in _SHAPED:
        with suppress(Exception):  # a user's class may be in a module of such a name
            size = _shape(value)
    return {"name": name, "kind": kind, "size": size, "start": start}


def _shape(value: Any) -> str:  # noqa: ANN401 - a frame or an array
    shape = [f"{n:,}" for n in value.shape]
    if type(value).__name__ == "DataFrame":
        return f"{shape[0]} rows x {shape[1]} columns"
    return " x ".join(shape)


def to_size(name: str, shell: Shell | None, hide: Hide) -> dict[str, Any]:
    """Return how large a value would be in a prompt, or why it cannot be attached."""
    size = {"t": "size", "name": name, "kind": "", "n_tokens": 0, "problem": ""}
    try:
        item = read_item(name, shell.user_ns if shell else {}, hide)
    except SvcError as error:
        return {**size, "problem": str(error)}
    return {**size, "kind": item.kind, "n_tokens": item.n_tokens}

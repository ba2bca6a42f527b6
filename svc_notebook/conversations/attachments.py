"""Attachments: values of the notebook that are added below a prompt, with their names.

`%%svc --with` and the panel write the same text. A turn records where its attachments
are in the text, so that they are never mixed up with what the user typed.
"""

import inspect
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from svc_notebook.errors import (
    ConfigError,
    OverBudgetError,
    ParameterError,
    SvcError,
    last_error,
)
from svc_notebook.exchange import Attached
from svc_notebook.template import as_variable
from svc_notebook.tokens import estimate_tokens
from svc_notebook.tools.dataframe_for_model import HEAD_TOKENS, cut_table, is_table

CAP_TOKENS = 1500  # of one item: a few of them and a reply fit into 8192
MAX_FILE_BYTES = 1_000_000  # far above the budget; a larger file is not even read
_MAX_TOKEN_CHARS = 32  # a text longer than its cap times this need not be measured

Hide = Callable[[str], str]
"""A function that replaces API keys in a text."""

_CELL = re.compile(r"(In|Out)\[(-?\d+)\]")
_FENCE = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptItem:
    """A value that is added to a prompt, as text."""

    name: str
    text: str
    kind: str

    @property
    def n_tokens(self) -> int:
        """Estimated tokens of the text."""
        return estimate_tokens(self.text).best

    @property
    def note(self) -> str:
        """The description of the value in the footer."""
        plural = "s"[: self.n_tokens != 1]
        return f"{self.name} ({self.kind}, about {self.n_tokens:,} token{plural})"


def to_item(name: str, value: object) -> PromptItem:
    """Convert a variable to text; a table is cut to `CAP_TOKENS`."""
    try:
        if isinstance(value, str):
            return PromptItem(name=name, text=value, kind="text")
        if is_table(value):
            return _table(name, value)
        return PromptItem(name=name, text=_source(value), kind=type(value).__name__)
    except ConfigError:  # a package is missing; it names the command
        raise
    except Exception as error:
        kind = type(value).__name__
        raise ParameterError(
            f"{name} cannot be put into a prompt: converting this {kind} to text "
            f"raised {type(error).__name__}. Convert it to text yourself first.",
            param="messages",
        ) from error


def _source(value: object) -> str:
    """Return the source of a function or class, and `str` of anything else."""
    if inspect.isfunction(value) or inspect.isclass(value):
        with suppress(OSError, TypeError):
            return inspect.getsource(value)
    return str(value)


def _table(name: str, value: object) -> PromptItem:
    # the cap is a rule of thumb, so rows have their likely size, not their largest
    most = CAP_TOKENS - HEAD_TOKENS
    table = cut_table(value, most, size=lambda row: estimate_tokens(row).mean)
    cut = f"; {table.cut} follow" if table.cut else ""
    head = f"{table.kind} {name}, {table.shape}{cut}:"
    return PromptItem(
        name=name,
        text="\n".join([head, *table.lines]),
        kind=f"{table.kind} {table.shape}{', cut to ' + table.cut if cut else ''}",
    )


def add_items(
    prompt: str, items: Sequence[PromptItem]
) -> tuple[str, tuple[Attached, ...]]:
    """Return the prompt with the items below it, and where each item is."""
    attached: list[Attached] = []
    for item in items:
        # the fence is longer than any in the text, so that the text cannot close it
        longest = max((len(run) for run in _FENCE.findall(item.text)), default=2)
        fence = "`" * (longest + 1)
        start = len(prompt) + 2
        prompt += f"\n\n{item.name}:\n{fence}\n{item.text}\n{fence}"
        position = Attached(
            name=item.name, kind=item.kind, start=start, end=len(prompt)
        )
        attached.append(position)
    return prompt, tuple(attached)


def split_items(
    prompt: str, attached: Sequence[Attached]
) -> tuple[str, tuple[PromptItem, ...]]:
    """Return the typed prompt, and the items that `add_items` put below it."""
    items = []
    for part in attached:
        block = prompt[part.start : part.end].removeprefix(f"{part.name}:\n")
        text = block.partition("\n")[2].rpartition("\n")[0]
        items.append(PromptItem(name=part.name, text=text, kind=part.kind))
    return prompt[: max(attached[0].start - 2, 0)], tuple(items)


def find_item(name: str, names: Mapping[str, Any], *, mark: str) -> PromptItem | None:
    """Find Err, In[3], Out[-1] or a variable; None if there is no such name.

    `mark` is put before the name in messages.
    """
    if name == "Err":
        return _last_error(mark)
    if cell := _CELL.fullmatch(name):
        return _cell_item(mark + name, cell[1], int(cell[2]), names)
    variable = as_variable(name)
    return to_item(name, names[variable]) if variable in names else None


def _cell_item(
    label: str, kind: str, number: int, names: Mapping[str, Any]
) -> PromptItem:
    """Return a cell or its value; -1 is the newest that was run or has a value."""
    cells = names.get(kind, {})
    numbers = sorted(cells) if isinstance(cells, dict) else range(1, len(cells))
    if -len(numbers) <= number < 0:
        number = numbers[number]
    if number not in numbers:
        reason = "was not run" if kind == "In" else "has no value"
        raise ParameterError(
            f"{label}: cell {number} {reason} in this kernel.", param="with"
        )
    return to_item(f"{kind}[{number}]", cells[number])


def _last_error(mark: str) -> PromptItem:
    error = last_error()
    if error is None:
        raise ParameterError(
            f"{mark}Err: no cell of yours has failed in this kernel yet.", param="with"
        )
    from svc_notebook.display.traceback_for_model import to_report  # noqa: PLC0415 - rare

    return PromptItem(name="Err", text=to_report(error).text, kind="the last error")


def read_text_file(path: Path, name: str, *, mark: str) -> PromptItem:
    """Read a text file; refuse one that is too large or is not text.

    `mark` is put before the name in messages.
    """
    try:
        if path.stat().st_size <= MAX_FILE_BYTES:
            text = path.read_text("utf-8-sig").rstrip("\n")
            return PromptItem(name=name, text=text, kind="file")
        reason = f"is larger than {MAX_FILE_BYTES // 1_000_000} MB"
    except UnicodeDecodeError:
        reason = "is not text in UTF-8"
    except OSError as problem:
        reason = f"cannot be read ({problem.strerror})"
    raise ParameterError(
        f"{mark}{name}: {path.resolve()} {reason}. Read the part that matters into a "
        "variable, and give its name.",
        param="with",
    )


def as_sent(item: PromptItem, hide: Hide) -> PromptItem:
    """Return an item as it is sent: without API keys, and not longer than the cap."""
    return capped(replace(item, text=hide(item.text)))


def capped(item: PromptItem, most_tokens: int = CAP_TOKENS) -> PromptItem:
    """Cut the middle out of an item that is longer than the cap."""
    whole, n_whole = item.text, len(item.text)
    n_measured = min(n_whole, _MAX_TOKEN_CHARS * most_tokens)
    if n_measured == n_whole and item.n_tokens <= most_tokens:
        return item

    def ends(n_chars: int) -> tuple[str, str]:
        n_last = n_chars // 3
        return whole[: n_chars - n_last], whole[n_whole - n_last :]

    n_chars = bisect_right(
        range(n_measured + 1),
        most_tokens,
        key=lambda n: estimate_tokens("".join(ends(n))).best,
    )
    first, last = ends(n_chars - 1)
    cut = f"cut to {n_chars - 1:,} of {n_whole:,} characters"
    text = f"{first}\n[{cut}; the middle is left out]\n{last}"
    return replace(item, text=text, kind=f"{item.kind}, {cut}")


def read_item(name: str, names: Mapping[str, Any], hide: Hide) -> PromptItem:
    """Read a value as `--with` does; refuse one that cannot be attached."""
    try:
        item = find_item(name, names, mark="")
        if item and (item.name == "Err" or hide(item.text) == item.text):
            return as_sent(item, hide)
    except SvcError:
        raise
    except BaseException as problem:  # noqa: BLE001 - str() of an object may raise anything
        reason = f"converting it to text raised {type(problem).__name__}"
        remedy = "Convert it to text yourself first"
    else:
        reason, remedy = "this notebook no longer has this variable", "Define it again"
        if item:
            reason, remedy = "it holds the API key", "Remove the key from it"
    raise ParameterError(
        f"{name} cannot be attached: {reason}. Nothing was sent. {remedy}, or remove "
        f"{name} below the message.",
        param="messages",
    )


def read_items(
    prompt: str,
    kept: Sequence[PromptItem],
    added: Sequence[str],
    names: Mapping[str, Any],
    hide: Hide,
    *,
    budget_tokens: int | None,
) -> list[PromptItem]:
    """Read the attachments of a message; refuse a message that is too large."""
    by_name = {item.name: item for item in kept}
    by_name |= {name: read_item(name, names, hide) for name in added}
    items = list(by_name.values())
    n_tokens = estimate_tokens(prompt).best + sum(item.n_tokens for item in items)
    if budget_tokens is None or n_tokens <= budget_tokens:
        return items
    sizes = ", ".join(f"{item.name} {item.n_tokens:,}" for item in items)
    raise OverBudgetError(
        f"The message has about {n_tokens:,} tokens with its attachments ({sizes}); "
        f"prompt and reply together may have {budget_tokens:,}. Nothing was sent. "
        "Remove an attachment, or attach a variable with only the part that matters.",
        prompt_tokens=n_tokens,
        budget_tokens=budget_tokens,
    )

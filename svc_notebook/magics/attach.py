"""`--with`: what is added to a prompt because the user named it.

Rules: nothing is added that was not named, a machine's paths least of all; each
item has a cap, and what is cut is stated in the text and in the footer; the fence
around an item is longer than any in it.
"""

import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from svc_notebook.errors import ParameterError
from svc_notebook.tokens import estimate_tokens

from .context import CAP_TOKENS, Item, to_item

_CELL = re.compile(r"(In|Out)\[(\d+)\]")
_CELL_FILE = re.compile(
    r'File "[^"\n]*(?:ipykernel_\d+[/\\]\d+\.py|<ipython-input-[^"\n]*>)"'
)
_INSTALLED = re.compile(r'File "[^"\n]*[/\\](?:site|dist)-packages[/\\]')
_FENCE = re.compile(r"`{3,}")
_N_FRAMES = 3


def to_items(
    wanted: Sequence[str],
    names: Mapping[str, Any],
    *,
    cap_tokens: int = CAP_TOKENS,
) -> tuple[Item, ...]:
    """Find what `--with` names: variables, In[3], Out[3] and Err.

    Args:
        wanted: As typed.
        names: The notebook's variables, In and Out among them.
        cap_tokens: The most estimated tokens of each.

    Raises:
        ParameterError: Something is not there.
    """
    return tuple(_capped(_find(name, names), cap_tokens) for name in wanted)


def add_items(prompt: str, items: Sequence[Item]) -> str:
    """Return the prompt with the items below it, each under its name."""
    blocks = [prompt]
    for item in items:
        longest = max((len(run) for run in _FENCE.findall(item.text)), default=2)
        fence = "`" * (longest + 1)
        blocks.append(f"{item.name}:\n{fence}\n{item.text}\n{fence}")
    return "\n\n".join(blocks)


def _find(name: str, names: Mapping[str, Any]) -> Item:
    cell = _CELL.fullmatch(name)
    if name == "Err":
        return _last_error()
    if cell:
        return _cell(name, cell[1], int(cell[2]), names)
    if name in names:
        return to_item(name, names[name])
    public = [known for known in names if not known.startswith("_")]
    near = ", ".join(get_close_matches(name, public, n=3))
    hint = f" Did you mean {near}?" if near else ""
    raise ParameterError(
        f"--with {name}: there is no such variable.{hint} It takes variables, In[3], "
        "Out[3] and Err, separated by commas.",
        param="with",
    )


def _cell(name: str, kind: str, number: int, names: Mapping[str, Any]) -> Item:
    cells = names.get(kind, {})
    has_it = number in cells if isinstance(cells, dict) else 0 < number < len(cells)
    if not has_it:
        what = "no cell of that number was run" if kind == "In" else "it has no value"
        raise ParameterError(f"--with {name}: {what} in this kernel.", param="with")
    return to_item(name, cells[number])


def _last_error() -> Item:
    error = getattr(sys, "last_value", None)
    if error is None:
        raise ParameterError(
            "--with Err: no cell has failed in this kernel yet.", param="with"
        )
    told = traceback.TracebackException.from_exception(error)
    inside = [frame for frame in told.stack if not _is_of_ipython(frame.filename)]
    told.stack = traceback.StackSummary.from_list(inside[-_N_FRAMES:])
    text = _CELL_FILE.sub("Cell", "".join(told.format()))
    return Item(
        name="Err", text=_INSTALLED.sub('File "', text).rstrip(), kind="the last error"
    )


def _is_of_ipython(filename: str) -> bool:
    return "IPython" in Path(filename).parts


def _capped(item: Item, cap_tokens: int) -> Item:
    if item.n_tokens <= cap_tokens:
        return item
    text = _head(item.text, cap_tokens)
    cut = f"cut to the first {len(text)} of {len(item.text)} characters"
    return replace(item, text=f"{text}\n[{cut}]", kind=f"{item.kind}, {cut}")


def _head(text: str, cap_tokens: int) -> str:
    """Return as much of the beginning as the cap allows, by halving."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= cap_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]

"""`--format code`: what of a reply goes into the next cell, and the note that says so.

Rules: decides; the shell puts it there. It is never run by itself; characters that
act instead of being read are made visible, as they are in the reply; nothing of a
reply that broke off is put anywhere.
"""

from dataclasses import dataclass

from svc_notebook.completion import Completion
from svc_notebook.display.characters import visible
from svc_notebook.display.fences import fences
from svc_notebook.display.stream import Mode

_PYTHON = {"python", "py", "python3", "ipython", "ipython3"}


@dataclass(frozen=True, slots=True)
class NextCell:
    """What is put into the next cell.

    Attributes:
        code: None for nothing.
        note: What the footer says of it.
    """

    code: str | None = None
    note: str = ""


def next_cell(completion: Completion, mode: Mode) -> NextCell:
    """Choose the code of a reply: the first Python block, or else the first.

    Args:
        completion: The reply; the first choice counts.
        mode: How the cell shows replies; where nobody watches, no cell is made.
    """
    if completion.is_partial:
        return NextCell()
    found = fences(completion.text)
    if not found:
        return NextCell(note="no code block in the reply")
    chosen = next((each for each in found if each.language in _PYTHON), found[0])
    if mode is Mode.SETTLED:
        return NextCell(note="nobody watches, so no cell was made of the code")
    which = "the code"
    if len(found) > 1:
        which = f"code block {found.index(chosen) + 1} of {len(found)}"
    words = [] if chosen.language in {"", *_PYTHON} else [chosen.language[:20]]
    words += [] if chosen.is_closed else ["unfinished"]
    kind = f" ({', '.join(words)})" if words else ""
    note = f"{which}{kind} is in the next cell, and was not run"
    return NextCell(visible(chosen.code.removesuffix("\n")), note)

"""Puts the code of a reply into the next cell: `--format code`, `%svc insert`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from svc_notebook import Completion
from svc_notebook.display.error_box import LINE_CHARS
from svc_notebook.display.escape import visible
from svc_notebook.display.markdown import Fence, fences
from svc_notebook.display.reply_display import Mode
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import shorten

from .cell_context import CellContext

_PYTHON = {"python", "py", "python3", "ipython", "ipython3"}
# a line that runs a shell command, or a magic such as `%%bash`
_COMMAND_LINE = re.compile(r"(?m)^(?:[\w, \t]*=)?[ \t]*((?:!|%%?[A-Za-z]).*)")


@dataclass(frozen=True, slots=True)
class NextCell:
    """The code for the next cell, if any, and what the footer says about it."""

    code: str | None = None
    note: str = ""

    def put(self, shell: InteractiveShell) -> str:
        """Put the code into the next cell; return the note as a sentence.

        Where there is no next cell, the code follows the note.
        """
        sentence = self.note[:1].upper() + self.note[1:]
        if self.code is not None and not _can_put():
            return f"{sentence}\n{self.code}"
        if self.code is not None:
            shell.set_next_input(self.code)
        return sentence


def _can_put() -> bool:
    """Whether this front end has a next cell; a simple prompt has none."""
    return not getattr(get_ipython(), "simple_prompt", False)


def next_cell(completion: Completion, mode: Mode) -> NextCell:
    """Choose the code block of a reply: the first Python one, else the first one."""
    if completion.is_partial:
        return NextCell()
    blocks = fences(completion.text)
    if not blocks:
        return NextCell(note="no code block in the reply")
    python = (at for at, block in enumerate(blocks) if block.language in _PYTHON)
    return _to_next(blocks, next(python, 0), mode)


def chosen_cell(
    completion: Completion | None, number_text: str, mode: Mode
) -> NextCell:
    """Choose the code block that `%svc insert` names, counted from 1."""
    texts = completion.texts if completion else ()
    blocks = [block for text in texts for block in fences(text)]
    if not blocks:
        has_none = "The last reply has no code block."
        return NextCell(note=has_none if texts else "This kernel has no reply yet.")
    if not 1 <= int(number_text) <= len(blocks):
        lines = [
            f"%svc insert {number_text}: the last reply has no such code block. It has:"
        ]
        for number, block in enumerate(blocks, 1):
            first = block.code.strip().partition("\n")[0]
            line = f"{number}  {block.language[:20] or 'code'}  {first}"
            lines.append(shorten(line, LINE_CHARS))
        raise ParameterError("\n".join(lines), param="line")
    return _to_next(blocks, int(number_text) - 1, mode)


def _to_next(blocks: Sequence[Fence], index: int, mode: Mode) -> NextCell:
    """Return a block for the next cell, if a person can read it before it runs."""
    if mode is Mode.SETTLED:
        return NextCell(note="not interactive: the code was not put into a new cell")
    chosen = blocks[index]
    which_block = (
        f"code block {index + 1} of {len(blocks)}" if len(blocks) > 1 else "the code"
    )
    remarks = [] if chosen.language in {"", *_PYTHON} else [chosen.language[:20]]
    remarks += [] if chosen.is_closed else ["unfinished"]
    kind = f" ({', '.join(remarks)})" if remarks else ""
    note = f"{which_block}{kind} is in the next cell, and was not run"
    if not _can_put():
        copy_hint = "a simple prompt has no next cell: copy it"
        note = f"{which_block}{kind} was not run; {copy_hint}"
    code = visible(chosen.code.removesuffix("\n"))
    if command_line := _COMMAND_LINE.search(code):
        line = code.count("\n", 0, command_line.start(1)) + 1
        note += f"; look at line {line}: {shorten(command_line[1], 40)}"
    return NextCell(code, note)


def insert(context: CellContext, word: str = "1") -> str:
    """Put a code block of the last reply into the next cell; say which."""
    return chosen_cell(context.session.context().last(), word, context.mode).put(
        context.shell
    )

"""Puts the code of a reply into the next cell: `--format code`, `%svc insert`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from IPython.core.getipython import get_ipython

from svc_notebook import Completion
from svc_notebook.display.cell_language import SHELLS, cell_magic
from svc_notebook.display.error_box import LINE_CHARS
from svc_notebook.display.escape import visible
from svc_notebook.display.front_end import Output, cell_ids, parent_message
from svc_notebook.display.markdown import Fence, fences
from svc_notebook.display.reply_display import Mode
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import shorten

from .cell_context import CellContext

# a line that runs a shell command, or a magic such as `%%bash`
_COMMAND_LINE = re.compile(r"(?:[\w, \t]*=)?[ \t]*((?:!|%%?[A-Za-z]).*)")
# What deletes or overwrites, takes rights, stops programs, runs what it loads, or
# writes outside of the folder: a hint where to look first, no check of the others.
_RISKY = re.compile(
    r"\b(?:sudo|doas|mkfs|shred|shutdown|reboot|crontab|systemctl|kill|pkill|killall)\b"
    r"|\brm(?: [^|;&\n]*)? -\w*[rf]|\bdd [^\n]*of=|\bch(?:mod|own) [^\n]*-\w*R"
    r"|\bfind [^\n]*-(?:delete|exec)\b|\beval[ \t]|<\([ \t]*(?:curl|wget)"
    r"|\bgit [^\n]*(?:--force|--hard|\bclean\b|push [^\n]*-f\b)"
    r"|\|[ \t]*(?:(?:ba|z|da)?sh\b|python)|\$\([ \t]*(?:curl|wget)"
    r"|(?:>|\b(?:tee|mv|cp|ln|install)\b[^|;&\n]*[ \t])[ \t]*[\"']?"
    r"(?:/(?!dev/null|tmp/)|~|\$\{?HOME|\.\./)"
    r"|\b(?:Remove-Item|Invoke-Expression|iex|Set-ExecutionPolicy)\b",
    re.IGNORECASE,
)
_SEEN_CHARS = 300  # of a line; a longer one is to be looked at, whatever it has


_INSERTED = "is in the next cell, and was not run"
_PUT_BEFORE = (
    "was put into the next cell before; %svc insert in a new cell puts it there again"
)
_SAME = (
    "the code is the same as in the cell that failed, so it was not put into a cell; "
    "`%svc explain` asks for the cause, `%svc fix -m MODEL` asks another model"
)
# What the extension of the page says in place of these words, once it has looked.
_FOUND = {
    "inserted": _INSERTED,
    "replaced": "replaced earlier code in the next cell, and was not run",
    "next": "is already in the next cell",
    "below": "is already in a cell below",
    "changed": "is in a cell below, where you have changed it since",
}
EXTENSION_PAYLOAD = "svc_notebook"  # front ends without the extension ignore it


@dataclass(frozen=True, slots=True)
class NextCell:
    """The code for the next cell, if any, and what the footer says about it."""

    code: str | None = None
    note: str = ""

    def put(self, context: CellContext) -> str:
        """Put the code into the next cell; return the note as a sentence.

        Where the page has our extension, it sees to it that the notebook has the code
        once.
        """
        sentence = self.note[:1].upper() + self.note[1:]
        if self.code is None or not _can_put():
            return sentence
        is_new = not _was_put(self.code, context)
        if is_new:
            context.shell.set_next_input(self.code)
        cell_id, execution = cell_ids(context.shell)
        payloads = context.shell.payload_manager
        if cell_id and payloads:
            key = _key(self.code, context)
            context.memory.put_codes.setdefault(key, execution)
            said = _INSERTED if is_new else _PUT_BEFORE
            payloads.write_payload(
                {
                    "source": EXTENSION_PAYLOAD,
                    "text": self.code,
                    "is_new": is_new,
                    "said": said,
                    "found": _FOUND,
                }
            )
        return sentence


def _key(code: str, context: CellContext) -> tuple[str, str, str]:
    """Return what is the same when a cell runs again and puts the same code."""
    asking = parent_message(context.shell).get("content", {}).get("code", "")
    return cell_ids(context.shell)[0], asking, code


def _was_put(code: str, context: CellContext) -> bool:
    """Whether this cell, unchanged, put this code when it ran before."""
    execution = cell_ids(context.shell)[1]
    return context.memory.put_codes.get(_key(code, context), execution) != execution


def _can_put() -> bool:
    """Whether this front end has a next cell; a simple prompt has none."""
    return not getattr(get_ipython(), "simple_prompt", False)


def next_cell(
    completion: Completion, context: CellContext, failed_code: str = ""
) -> NextCell:
    """Choose a code block of a reply: Python first, then what else can be a cell.

    None is put into a cell if it is the same as the cell that it was to correct.
    """
    if completion.is_partial:
        return NextCell()
    blocks = fences(completion.text)
    if not blocks:
        return NextCell(note="no code block in the reply")
    best = min(range(len(blocks)), key=lambda index: _rank(blocks[index]))
    if failed_code and _bare(blocks[best].code) == _bare(failed_code):
        return NextCell(note=_SAME)
    return _to_next(blocks, best, context)


def _bare(code: str) -> list[str]:
    """Return the lines of code, without blanks at their ends."""
    return [line.rstrip() for line in code.strip("\n").split("\n")]


def _rank(block: Fence) -> int:
    """Rank a block: named Python first, last what cannot be a cell."""
    magic = cell_magic(block.language)
    return 2 if magic is None else int(bool(magic) or not block.language)


def chosen_cell(
    completion: Completion | None, number_text: str, context: CellContext
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
    return _to_next(blocks, int(number_text) - 1, context)


def _to_next(blocks: Sequence[Fence], index: int, context: CellContext) -> NextCell:
    """Return a block for the next cell, if a person can read it before it runs."""
    if context.mode is Mode.SETTLED:
        return NextCell(note="not interactive: the code was not put into a new cell")
    chosen = blocks[index]
    which_block = (
        f"code block {index + 1} of {len(blocks)}" if len(blocks) > 1 else "the code"
    )
    magic = cell_magic(chosen.language)
    remarks = [] if magic == "" else [chosen.language[:20]]
    remarks += [] if chosen.is_closed else ["unfinished"]
    kind = f" ({', '.join(remarks)})" if remarks else ""
    if magic is None:
        reason = "was not put into a cell, since cells here run Python: copy it"
        return NextCell(note=f"{which_block}{kind} {reason}")
    code = _with_magic(magic, visible(chosen.code.removesuffix("\n")))
    words = _PUT_BEFORE if _was_put(code, context) else _INSERTED
    if not _can_put():
        words = "was not run; a simple prompt has no next cell: copy it"
    return NextCell(code, f"{which_block}{kind} {words}{_remark(code, magic)}")


def _with_magic(magic: str, code: str) -> str:
    """Begin a cell with its magic, unless the model did."""
    is_plain = not magic or code.lstrip().startswith("%%")
    return code if is_plain else f"%%{magic}\n{code}"


def _remark(code: str, magic: str) -> str:
    """Point at the first line to look at before it runs.

    Among Python that is a line for a shell; for a shell, one that can do harm.
    """
    if magic not in {"", *SHELLS}:
        return ""
    for number, line in enumerate(code.split("\n"), start=1):
        if magic:
            command = line.strip() if _is_risky(line.strip()) else ""
        else:
            match = _COMMAND_LINE.match(line)
            command = match[1] if match else ""
        if command:
            return f"; look at line {number}: {shorten(command, 40)}"
    return ""


def _is_risky(line: str) -> bool:
    is_seen = not line.startswith("#")
    return is_seen and (len(line) > _SEEN_CHARS or _RISKY.search(line) is not None)


def insert(context: CellContext, word: str = "1") -> None:
    """Put a code block of the last reply into the next cell; say which.

    Where there is no next cell, the code follows.
    """
    last = context.session.context().last(is_reply=True)
    chosen = chosen_cell(last, word, context)
    context.say(chosen.put(context))
    if chosen.code is not None and not _can_put():
        Output().write(f"{chosen.code}\n")

"""Keep what was typed behind `%svc` and below `%%svc` as it is.

IPython cleans a cell before it looks for a magic: it strips `>>>` and `In [1]:`
prompts and empties lines of blanks; and it takes a line that ends in `?` for a
question about a name. A prompt is a text, not code, so these run first and write
the calls that IPython would write, with the text untouched.

Rules: only cells whose first line with text begins with `%%svc`, and statements
that are `%svc` with a question; `%%svc?` and `%svc?` stay help; a `%svc` inside a
string is a string; the one newline that IPython itself adds is taken off.
"""

import re
from tokenize import DEDENT, INDENT, TokenInfo
from typing import Self

from IPython.core.inputtransformer2 import TokenTransformBase

_CELL = re.compile(r"%%svc(?:[ \t]+(?P<line>.*?))?[ \t]*\r?\n?\Z")
_QUESTION = re.compile(
    r"(?P<before>\s*(?:[A-Za-z_]\w*\s*=\s*)?)%svc[ \t]+(?P<rest>\S.*\?)\s*\Z"
)


class KeepBody:
    """A cleanup transform for `input_transformers_cleanup`."""

    has_side_effects = True  # so that a terminal's check for a finished cell skips it

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the cell's lines, those of a `%%svc` cell as one call."""
        first = next((i for i, line in enumerate(lines) if line.strip()), None)
        found = None if first is None else _CELL.match(lines[first])
        if first is None or found is None:
            return lines
        body = "".join(lines[first + 1 :]).removesuffix("\n")
        line = found["line"] or ""
        return [f"get_ipython().run_cell_magic('svc', {line!r}, {body!r})\n"]


class KeepQuestion(TokenTransformBase):
    """A token transform: `%svc …?` asks, where IPython would look up a name."""

    priority = 0  # before help, which begins at the same place

    @classmethod
    def find(cls, tokens_by_line: list[list[TokenInfo]]) -> Self | None:
        """Find the first statement that is a `%svc` question."""
        for tokens in tokens_by_line:
            first = next((t for t in tokens if t.type not in {INDENT, DEDENT}), None)
            line = first.line.split("\n")[0] if first else ""
            if first and _QUESTION.match(line) and not line[: first.start[1]].strip():
                return cls(first.start)
        return None

    def transform(self, lines: list[str]) -> list[str]:
        """Write the call that the question means."""
        found = _QUESTION.match(lines[self.start_line])
        if found is None:
            raise SyntaxError  # IPython then tries its own transforms
        call = f"get_ipython().run_line_magic('svc', {found['rest']!r})\n"
        before, after = lines[: self.start_line], lines[self.start_line + 1 :]
        return [*before, found["before"] + call, *after]

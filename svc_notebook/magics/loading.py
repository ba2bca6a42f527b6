"""`%load_ext svc_notebook`: what is registered with IPython, and taken away again.

Rules: loading again is loading once; unloading leaves nothing behind.
"""

import re
from functools import partial
from tokenize import DEDENT, INDENT, TokenInfo
from types import ModuleType
from typing import Self

from IPython.core.inputtransformer2 import TokenTransformBase
from IPython.core.interactiveshell import InteractiveShell
from traitlets import TraitError

from svc_notebook.display.live import Screen
from svc_notebook.session import current

from .completions import MATCHER_ID, Known, matcher
from .defaults import ModelTrait, ParamTrait
from .svc import SvcMagics
from .tool_cell import tool_notes

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


def load(shell: InteractiveShell) -> None:
    """Register the magics and what they need of the shell, once."""
    unload(shell)
    for name, reason in _taken_out(shell):
        Screen().write(f"SvcMagics.{name} was left as it is by default: {reason}\n")
    shell.register_magics(SvcMagics)
    shell.input_transformers_cleanup.insert(0, KeepBody())
    shell.input_transformer_manager.token_transformers.insert(0, KeepQuestion)
    shell.Completer.custom_matchers.insert(0, matcher(partial(_known, shell)))


def _taken_out(shell: InteractiveShell) -> list[tuple[str, str]]:
    """Take out of the configuration what no default can be, and say why.

    A refused `%config` stays in it, and one wrong line of a file would leave no magic.
    """
    said = shell.config.get("SvcMagics", {})
    found = []
    for name, trait in SvcMagics.class_traits(config=True).items():
        if name in said and isinstance(trait, (ModelTrait, ParamTrait)):
            try:
                trait.validate(shell, said[name])
            except TraitError as error:
                found.append((name, str(error)))
                del said[name]
    return found


def unload(shell: InteractiveShell) -> None:
    """Take away what `load` registered."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("svc", None)
    kept = [
        each
        for each in shell.input_transformers_cleanup
        if not isinstance(each, KeepBody)
    ]
    shell.input_transformers_cleanup[:] = kept
    transforms = shell.input_transformer_manager.token_transformers
    transforms[:] = [each for each in transforms if each is not KeepQuestion]
    shell.Completer.custom_matchers[:] = [
        each
        for each in shell.Completer.custom_matchers
        if getattr(each, "matcher_identifier", "") != MATCHER_ID
    ]


def _known(shell: InteractiveShell) -> Known:
    hidden = shell.user_ns_hidden
    return Known(
        variables=tuple(
            (name, type(value).__name__)
            for name, value in shell.user_ns.items()
            if not name.startswith("_")
            and name not in hidden
            and not isinstance(value, ModuleType)
        ),
        conversations=tuple(each.name for each in current().conversations),
        tools=tool_notes(shell.user_ns),
    )

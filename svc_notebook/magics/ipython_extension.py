"""`%load_ext svc_notebook`: registers the magics with IPython, and removes them.

It imports only what IPython needs at once; the first `%svc` imports the rest.
"""

import gc
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from tokenize import DEDENT, INDENT, TokenInfo
from typing import TYPE_CHECKING, Self

from IPython.core import completer
from IPython.core.inputtransformer2 import TokenTransformBase
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)

from svc_notebook.errors import Interrupted, ParameterError, last_error

from .config_traits import SvcTraits, remove_unusable

if TYPE_CHECKING:  # most of the package, which the first `%svc` loads
    from .svc_command import SvcCommand

MATCHER_ID = "svc_notebook"
_CELL = re.compile(r"%%svc(?:[ \t]+(?P<line>.*?))?[ \t]*\r?\n?\Z")
_LINE = re.compile(r"%svc(?:[ \t]+(?P<line>-.*?))?[ \t]*\r?\n\Z")
_QUESTION = re.compile(
    r"(?P<before>\s*(?:[A-Za-z_]\w*\s*=\s*)?)%svc[ \t]+(?P<rest>\S.*\?)\s*\Z"
)


class CellTransform:
    """A cleanup transform that keeps the body of a `%%svc` cell as typed.

    An empty one becomes a blank line, since IPython refuses it in words of its own.

    Below a `%svc` without a prompt, which is refused, the lines are not read as Python.
    """

    has_side_effects = True  # IPython then skips it when it checks for a complete cell

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the cell's lines; a `%%svc` cell becomes one call of the magic."""
        first = next((i for i, line in enumerate(lines) if line.strip()), None)
        if first is None:
            return lines
        body = "".join(lines[first + 1 :]).removesuffix("\n") or "\n"
        if magic_line := _CELL.match(lines[first]):
            line = magic_line["line"] or ""
            return [f"get_ipython().run_cell_magic('svc', {line!r}, {body!r})\n"]
        if body.strip() and (magic_line := _LINE.match(lines[first])):
            line = (magic_line["line"] or "") + "\n"  # says that there are lines below
            if _has_no_prompt(line):
                return [f"get_ipython().run_line_magic('svc', {line!r})\n"]
        return lines


def _has_no_prompt(line: str) -> bool:
    from .options import parse_options  # noqa: PLC0415 - rare

    with suppress(ParameterError):  # the line is refused
        return not parse_options(line).text
    return True


class QuestionTransform(TokenTransformBase):
    """A token transform that makes `%svc ...?` a question instead of IPython's help."""

    priority = 0  # before IPython's help, which matches the same line

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
        """Replace the question by a call of the magic."""
        question = _QUESTION.match(lines[self.start_line])
        if question is None:
            raise SyntaxError  # IPython then tries its own transforms
        call = f"get_ipython().run_line_magic('svc', {question['rest']!r})\n"
        before, after = lines[: self.start_line], lines[self.start_line + 1 :]
        return [*before, question["before"] + call, *after]


@contextmanager
def _without_gc() -> Iterator[None]:
    """Import without garbage collection.

    Imports create no garbage, and searching everything that the kernel holds would take
    a fifth of their time.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()


@magics_class
class SvcMagics(SvcTraits, Magics):
    """Ask a chat-completion service from a cell; `%config SvcMagics` lists defaults."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell=shell)
        # what `%svc?` and `%%svc?` show
        vars(SvcMagics.svc)["getdoc"] = self._show_help

    def _show_help(self) -> str:
        return self._command.help()

    @cached_property
    def _command(self) -> "SvcCommand":
        with _without_gc():
            import svc_notebook.client.connections  # noqa: F401, PLC0415 - httpx

            from .svc_command import SvcCommand  # noqa: PLC0415 - most of the package

        return SvcCommand(self.shell, self)

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def svc(
        self,
        line: str,
        cell: str | None = None,
        local_ns: Mapping[str, object] | None = None,
    ) -> object:
        """Ask the service, or tell it how to answer; `%svc help` lists the options."""
        try:
            command = self._command
        except KeyboardInterrupt:  # during the imports; their traceback would not help
            message = "(interrupted while loading; nothing was sent)"
            raise Interrupted(message=message) from None
        return command.run(line, cell, local_ns)

    def close(self) -> None:
        """Stop watching the shell."""
        if "_command" in vars(self):
            self._command.close()


def _matcher(shell: InteractiveShell) -> Callable[..., object]:
    def svc(context: "completer.CompletionContext") -> "completer.SimpleMatcherResult":
        if "%svc" not in context.full_text:
            return completer.SimpleMatcherResult(completions=[])
        from .tab_completion import match  # noqa: PLC0415 - with the first Tab in a cell

        return match(context, shell)

    matches: Callable[..., object]
    matches = completer.context_matcher(identifier=MATCHER_ID)(svc)
    return matches


def load(shell: InteractiveShell) -> None:
    """Register the magics and what they need of the shell, once."""
    unload(shell)
    for name, reason in remove_unusable(shell.config.get("SvcMagics", {})):
        sys.stdout.write(f"SvcMagics.{name} was reset to its default: {reason}\n")
    shell.register_magics(SvcMagics)
    shell.input_transformers_cleanup.insert(0, CellTransform())
    shell.input_transformer_manager.token_transformers.insert(0, QuestionTransform)
    if hasattr(
        completer, "context_matcher"
    ):  # IPython 7 has none, so no Tab completion
        shell.Completer.custom_matchers.insert(0, _matcher(shell))
    shell.events.register("post_run_cell", last_error)


def unload(shell: InteractiveShell) -> None:
    """Remove what `load` registered."""
    with suppress(ValueError):  # it is not registered
        shell.events.unregister("post_run_cell", last_error)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("svc", None)
    magics = shell.magics_manager.registry.pop("SvcMagics", None)
    if magics:
        magics.close()
    cleanup = shell.input_transformers_cleanup
    cleanup[:] = [
        transform for transform in cleanup if not isinstance(transform, CellTransform)
    ]
    transforms = shell.input_transformer_manager.token_transformers
    transforms[:] = [
        transform for transform in transforms if transform is not QuestionTransform
    ]
    matchers = getattr(shell.Completer, "custom_matchers", [])
    matchers[:] = [
        matcher
        for matcher in matchers
        if getattr(matcher, "matcher_identifier", "") != MATCHER_ID
    ]

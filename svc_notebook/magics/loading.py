"""`%load_ext svc_notebook`: what is registered with IPython, and taken away again.

Rules: loading again is loading once; unloading leaves nothing behind.
"""

from functools import partial
from types import ModuleType

from IPython.core.interactiveshell import InteractiveShell
from traitlets import TraitError

from svc_notebook.display.screen import Screen
from svc_notebook.session import current

from .completions import MATCHER_ID, Known, matcher
from .svc import SvcMagics
from .toolbox import tool_notes
from .traits import ModelTrait, ParamTrait
from .verbatim import KeepBody, KeepQuestion


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

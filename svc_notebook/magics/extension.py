"""`%load_ext svc_notebook`: what is registered with IPython, and removed again."""

from contextlib import suppress
from functools import partial
from types import ModuleType

from IPython.core.interactiveshell import InteractiveShell
from traitlets import TraitError

from svc_notebook.display.output import Output
from svc_notebook.session import current

from .cell import CellTransform, QuestionTransform, last_error
from .completions import MATCHER_ID, Known, matcher
from .defaults import ModelTrait, ParamTrait
from .reply_cell import Places
from .svc import SvcMagics
from .tool_cell import tool_notes
from .value_cell import known_types


def load(shell: InteractiveShell) -> None:
    """Register the magics and what they need of the shell, once."""
    unload(shell)
    for name, reason in _remove_unusable(shell):
        Output().write(f"SvcMagics.{name} was reset to its default: {reason}\n")
    shell.register_magics(SvcMagics)
    shell.input_transformers_cleanup.insert(0, CellTransform())
    shell.input_transformer_manager.token_transformers.insert(0, QuestionTransform)
    shell.Completer.custom_matchers.insert(0, matcher(partial(_known, shell)))
    shell.events.register("post_run_cell", last_error)


def _remove_unusable(shell: InteractiveShell) -> list[tuple[str, str]]:
    """Remove defaults from the configuration that cannot be used, and say why.

    A refused `%config` stays in it, and one wrong line of a file would leave no magic.
    """
    configured = shell.config.get("SvcMagics", {})
    found = []
    for name, trait in SvcMagics.class_traits(config=True).items():
        if name in configured and isinstance(trait, (ModelTrait, ParamTrait)):
            try:
                trait.validate(shell, configured[name])
            except TraitError as error:
                found.append((name, str(error)))
                del configured[name]
    return found


def unload(shell: InteractiveShell) -> None:
    """Remove what `load` registered."""
    with suppress(ValueError):  # it is not there
        shell.events.unregister("post_run_cell", last_error)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("svc", None)
    cleanup = shell.input_transformers_cleanup
    cleanup[:] = [each for each in cleanup if not isinstance(each, CellTransform)]
    transforms = shell.input_transformer_manager.token_transformers
    transforms[:] = [each for each in transforms if each is not QuestionTransform]
    runs = shell.events.callbacks["pre_run_cell"]
    runs[:] = [
        each for each in runs if not isinstance(getattr(each, "__self__", 0), Places)
    ]
    matchers = shell.Completer.custom_matchers
    matchers[:] = [
        each
        for each in matchers
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
        types=known_types(shell.user_ns),
    )

"""Errors of this package in IPython: short, with the line of the user's own code.

Importing the package in IPython is enough; the magics need not be loaded. `%tb` shows
the whole traceback. Of an interrupted request one line is shown.
"""

import re
import sys
from asyncio import CancelledError
from contextlib import suppress
from traceback import walk_tb
from types import TracebackType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from svc_notebook.errors import Interrupted, SvcError

_TRACEBACK_HINT = "`%tb` shows the whole traceback."
# A key that is typed into the code, as in `svc.use(key="...")`.
_TYPED_KEY = re.compile(r"(key\w*\s*=\s*[bruf]*)([\"']).*?(?:\2|$)", re.IGNORECASE)


def register(shell: InteractiveShell) -> None:
    """Let a shell show this package's errors in short form; keep other handlers."""
    kinds, show_others = shell.custom_exceptions, shell.CustomTB
    if SvcError in kinds:
        return

    def show(
        shell: InteractiveShell,
        kind: type[BaseException],
        error: BaseException,
        frames: TracebackType,
        tb_offset: int | None = None,
    ) -> object:
        if isinstance(error, kinds):
            return show_others(kind, error, frames, tb_offset=tb_offset)
        # `%tb` and `%debug` read these.
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, frames
        if shell.call_pdb or _shows_traceback(shell):  # `%pdb` stops where it arose
            shell.showtraceback((kind, error, frames), tb_offset=tb_offset)
        elif isinstance(error, SvcError):
            _show_box(shell, error)
        elif not hasattr(error, "_render_traceback_") and _is_of_request(frames):
            shell._showtraceback(kind, error, [str(_interrupted())])  # noqa: SLF001 - IPython calls it to show errors
        else:
            shell.showtraceback((kind, error, frames), tb_offset=tb_offset)
        return None

    shell.set_custom_exc((*kinds, SvcError, KeyboardInterrupt, CancelledError), show)


def _shows_traceback(shell: InteractiveShell) -> bool:
    """Whether the user wants whole tracebacks (`%config SvcMagics.show_traceback`)."""
    magics: Any = shell.magics_manager.registry.get("SvcMagics")
    return magics is not None and bool(magics.show_traceback)


def _is_of_request(frames: TracebackType) -> bool:
    """Whether an interrupt stopped a request, and not other code of the user."""
    return any(
        frame.f_globals.get("__name__", "").startswith("svc_notebook.client")
        for frame, _ in walk_tb(frames)
    )


def _interrupted() -> Interrupted:
    """Return what is shown of a request that was interrupted a moment ago."""
    from svc_notebook.session import current  # noqa: PLC0415 - not at import

    with suppress(SvcError):  # no ledger can be read
        completion = current().context().last()
        if completion is not None and completion.exchange.status == "cancelled":
            return Interrupted(completion)
    return Interrupted()


def _show_box(shell: InteractiveShell, error: SvcError) -> None:
    """Show what happened, in which line of the user's code, and the cause if any.

    JupyterLab breaks the text of an error within words. So where a user sees the cell,
    only the headline is an error, and HTML below it has the rest.
    """
    from svc_notebook.display.error_box import ErrorBox  # noqa: PLC0415 - not at import
    from svc_notebook.display.front_end import (  # noqa: PLC0415 - as above
        Output,
        is_terminal,
    )

    # the lines of a magic are right above
    more = () if hasattr(error, "_render_traceback_") else _user_lines(error)
    box = ErrorBox.of(error, more=more)
    lines = [box.text(is_terminal=is_terminal())]
    if not _is_watched():
        shell._showtraceback(type(error), error, lines)  # noqa: SLF001 - IPython calls it to show errors
        return
    shell._showtraceback(type(error), error, [box.head])  # noqa: SLF001 - as above
    vars(shell)["_last_traceback"] = lines  # the kernel sends it in its reply
    Output().publish(box.bundle, None)


def _is_watched() -> bool:
    """Whether a user sees this cell in a notebook."""
    from svc_notebook.display.front_end import (  # noqa: PLC0415 - as above
        Screen,
        find_screen,
    )
    from svc_notebook.session import current  # noqa: PLC0415 - as above

    try:
        display = current().settings.display
    except SvcError:  # the settings are what is wrong
        display = "auto"
    return find_screen(display) is Screen.NOTEBOOK


def _user_lines(error: SvcError) -> list[str]:
    """Return the user's lines that led to an error and to its causes, without keys."""
    from svc_notebook.credentials import known_keys  # noqa: PLC0415 - not at import
    from svc_notebook.display.traceback_for_model import (  # noqa: PLC0415 - as above
        causes,
        user_lines,
    )

    lines = user_lines(error)
    for cause in causes(error):
        cause_lines = str(cause).strip().splitlines()
        cause_text = f": {cause_lines[0]}" if cause_lines else ""
        lines += [
            f"caused by {type(cause).__name__}{cause_text}",
            *user_lines(cause)[-1:],
        ]
    text = _TYPED_KEY.sub(r"\1\2[key]\2", "\n".join(lines))
    for key in known_keys():
        text = key.redact(text)
    return [*text.splitlines(), _TRACEBACK_HINT]


def hide_interrupt(shell: InteractiveShell) -> None:
    """Stop IPython from showing the interrupt until this cell has ended."""
    show = type(shell)._showtraceback  # noqa: SLF001 - IPython calls it to show errors

    def show_others(kind: type, error: BaseException, lines: list[str]) -> None:
        if isinstance(error, Interrupted):
            vars(shell)["_last_traceback"] = lines  # the kernel sends it in its reply
        else:
            show(shell, kind, error, lines)

    def end(*_: object) -> None:
        vars(shell).pop("_showtraceback", None)
        shell.events.unregister("post_run_cell", end)

    vars(shell)["_showtraceback"] = show_others
    shell.events.register("post_run_cell", end)

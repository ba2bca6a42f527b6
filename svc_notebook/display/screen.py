"""What can be done to a cell or a terminal.

What it is not: it decides nothing; `stream` and `live` do.

Rules for this file: it is the only one in `display` that touches IPython, and
it does so when something is shown, not when it is imported.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Bundle: TypeAlias = Mapping[str, str]


def _publish(bundle: Bundle, display_id: str | None) -> None:
    from IPython.display import display  # noqa: PLC0415 - optional at import

    display(dict(bundle), raw=True, display_id=display_id)


def _update(bundle: Bundle, display_id: str) -> None:
    from IPython.display import update_display  # noqa: PLC0415 - optional at import

    update_display(dict(bundle), display_id=display_id, raw=True)


def _clear() -> None:
    from IPython.display import clear_output  # noqa: PLC0415 - optional at import

    clear_output(wait=True)


def _erase() -> None:
    from IPython.display import clear_output  # noqa: PLC0415 - optional at import

    clear_output()


def _write(text: str) -> None:
    # A terminal that cannot show a letter shows its number instead of failing.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Where text is shown.

    Attributes:
        publish: Add an output to the cell; a display id makes it updatable.
        update: Replace the output of that display id, wherever it is.
        clear: Empty the cell when its next output comes.
        erase: Empty the cell now.
        write: Print text that is safe for a terminal.
    """

    publish: Callable[[Bundle, str | None], None] = _publish
    update: Callable[[Bundle, str], None] = _update
    clear: Callable[[], None] = _clear
    erase: Callable[[], None] = _erase
    write: Callable[[str], None] = _write

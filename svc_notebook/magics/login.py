"""`%svc login`: an API key typed into a prompt that does not echo it.

Rules: the value is in no frame that raises and in nothing that is returned; where
nobody can type, or where typing would show, nothing is asked.
"""

import warnings
from collections.abc import Callable
from getpass import getpass

from svc_notebook.credentials import KEYRING_NAME, Key, remember
from svc_notebook.errors import ConfigError, MissingKeyError
from svc_notebook.settings import WAYS_ON

Ask = Callable[[str], str]
_PROMPT = "API key (is not shown): "


def login(ask: Ask | None = None) -> str:
    """Ask for the key and use it in this kernel.

    Args:
        ask: Shows a prompt and returns what was typed; the kernel's own if None.

    Returns:
        Where the key is kept, in words.

    Raises:
        MissingKeyError: What was typed cannot be sent.
        ConfigError: Nobody can type here, or it would show.
    """
    found = _typed(ask or getpass)
    if isinstance(found, ConfigError):
        raise found
    name = remember(found)
    if name is None:
        return "The key is kept in this kernel's memory, until the kernel ends."
    return (
        f"The key is kept in the keyring {name}, for later kernels too; "
        f"`keyring del {KEYRING_NAME} SVC_API_KEY` in a terminal takes it out."
    )


def _typed(ask: Ask) -> Key | ConfigError:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # getpass warns before it echoes
            value = ask(_PROMPT)
    except Exception:  # noqa: BLE001 - each front end refuses in its own way
        return ConfigError(
            f"No key can be typed here without being shown or waited for. {WAYS_ON}"
        )
    try:
        return Key(value, source="a prompt")
    except MissingKeyError as problem:
        return problem.with_traceback(None)

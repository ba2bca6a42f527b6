"""What an emulator may be made of: the arguments of `Emulator`, checked.

What it is not: scripts are checked in `entry`; nothing is started here.

Rules for this file: a wrong argument is found before anything starts, and its
error names the argument and what is allowed; keys are never repeated, only counted.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from svc_notebook.errors import SettingsError

from .keys import Keys
from .models import DOCUMENTED, LIMITS

_PORT_MAX = 65535
# What a header can carry behind "Bearer ".
_SENDABLE = re.compile(r"[\x21-\x7e]+")


def read_port(port: object) -> int:
    """Check a port: 0 to 65535.

    Raises:
        SettingsError: It is none.
    """
    if isinstance(port, bool) or not isinstance(port, int):
        raise SettingsError(f"port={port!r} is not a port; give 0 to {_PORT_MAX}.")
    if not 0 <= port <= _PORT_MAX:
        raise SettingsError(
            f"Port {port} cannot be used; choose one of 1 to {_PORT_MAX}, or 0 for a "
            "free one."
        )
    return port


def read_seconds(name: str, value: object, *, is_zero_allowed: bool = True) -> float:
    """Check a duration: a finite number of seconds, 0 or more.

    Raises:
        SettingsError: It is none; the argument is named.
    """
    if not _is_number(value) or value < 0 or (value == 0 and not is_zero_allowed):
        least = "0 or more" if is_zero_allowed else "more than 0"
        raise SettingsError(f"{name}={value!r} has to be a number of seconds, {least}.")
    return float(value)


def read_speed(tokens_per_s: object) -> float | None:
    """Check a speed: a finite number above 0, or None for no waiting.

    Raises:
        SettingsError: It is neither.
    """
    if tokens_per_s is None:
        return None
    if not _is_number(tokens_per_s) or tokens_per_s <= 0:
        raise SettingsError(
            f"tokens_per_s={tokens_per_s!r} has to be a number above 0, or None for "
            "no waiting."
        )
    return float(tokens_per_s)


def read_seed(seed: object) -> int:
    """Check a seed: an integer.

    Raises:
        SettingsError: It is none.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise SettingsError(f"seed={seed!r} has to be an integer.")
    return seed


def read_clock(name: str, clock: object) -> Callable[[], float]:
    """Check a clock by asking it once.

    Raises:
        SettingsError: It cannot be called, fails, or tells no finite number.
    """
    told: object = clock
    if callable(clock):
        try:
            told = clock()
        except Exception as error:  # noqa: BLE001 - the user's clock
            told = error
        if _is_number(told):
            return clock
    raise SettingsError(
        f"{name} has to be a function that tells a finite number of seconds, "
        f"not {told!r}."
    )


def read_models(models: object) -> tuple[str, ...]:
    """Check model ids: a sequence of non-empty texts.

    Raises:
        SettingsError: They are something else.
    """
    ids = _texts(models)
    if ids is None or not all(ids):
        raise SettingsError(
            f"models={models!r} has to be a list of model ids, none empty."
        )
    return ids


def read_keys(keys: object, revoked: object, forbidden: object) -> Keys:
    """Check the keys: at least one is served, and each can be sent and means one thing.

    Raises:
        SettingsError: They cannot be used; no key is shown.
    """
    read = {
        name: _sendable(name, value)
        for name, value in (
            ("keys", keys),
            ("revoked", revoked),
            ("forbidden", forbidden),
        )
    }
    if not read["keys"]:
        raise SettingsError("Give the emulator at least one key, none empty.")
    for one, other in (
        ("keys", "revoked"),
        ("keys", "forbidden"),
        ("revoked", "forbidden"),
    ):
        if set(read[one]) & set(read[other]):
            raise SettingsError(
                f"{one} and {other} share a key; give each key in one of them."
            )
    return Keys(read["keys"], read["revoked"], read["forbidden"])


def read_limits(limits: object, models: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Check limits: True for the document's, False for none, or a table.

    Args:
        limits: As given.
        models: Model ids served besides the documented ones.

    Raises:
        SettingsError: They are something else, or for a model that is not served.
    """
    if isinstance(limits, bool):
        return LIMITS if limits else {}
    if not isinstance(limits, Mapping) or not all(map(_is_window, limits.values())):
        raise SettingsError(
            f"limits={limits!r} has to be True, False, or model ids with (requests a "
            "second, requests a minute), each an integer of 0 or more."
        )
    unknown = [each for each in limits if each not in (*DOCUMENTED, *models)]
    if unknown:
        raise SettingsError(
            f"limits names {unknown[0]!r}, which is not served; served are "
            f"{', '.join((*DOCUMENTED, *models))}. Add it to models."
        )
    return {model: (windows[0], windows[1]) for model, windows in limits.items()}


def _sendable(name: str, keys: object) -> tuple[str, ...]:
    """Read keys that a header can carry."""
    read = _texts(keys)
    if read is None:
        raise SettingsError(f"{name} has to be a list of keys, also for a single one.")
    for at, key in enumerate(read):
        if not key:
            raise SettingsError("Give the emulator at least one key, none empty.")
        if not _SENDABLE.fullmatch(key):
            raise SettingsError(
                f"{name}[{at}] cannot be sent in a header: use letters, digits and "
                "signs of ASCII, without blanks."
            )
    return read


def _texts(value: object) -> tuple[str, ...] | None:
    """Read a list of texts; a single text is none."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return None
    return tuple(value) if all(isinstance(each, str) for each in value) else None


def _is_window(windows: object) -> bool:
    """Tell whether this is a pair of counts."""
    n_windows = 2
    return (
        isinstance(windows, Sequence)
        and not isinstance(windows, str | bytes)
        and len(windows) == n_windows
        and all(type(count) is int and count >= 0 for count in windows)
    )


def _is_number(value: object) -> TypeGuard[float]:
    """Tell whether this is a finite number."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )

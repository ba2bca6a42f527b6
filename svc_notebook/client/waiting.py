"""Waits that can be seen: told to whoever watches an exchange."""

import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """An exchange waits.

    Attributes:
        wait_s: Seconds, as far as is known now.
        reason: For people, such as "per-minute limit of svc-v2-70b-instruct".
    """

    wait_s: float
    reason: str


Watch = Callable[[Waiting], None]
"""Told about each wait; called on the loop's thread, and must return at once."""

SAID_S = 2.0
"""Shorter waits are not worth a line."""


def say(waiting: Waiting) -> None:
    """Write a line on stderr for a wait that somebody would wonder about."""
    if waiting.wait_s >= SAID_S:
        sys.stderr.write(f"waiting {waiting.wait_s:.0f} s: {waiting.reason}\n")

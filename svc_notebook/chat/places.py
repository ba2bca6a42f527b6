"""Turns, versions and choices by number: where they stand, and what is not there.

What it is not: it knows no history. Rules: pure; numbers count from 1; whoever is
refused is told which of the three does not exist, and how many there are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from svc_notebook.errors import ParameterError

What = Literal["turn", "version", "choice"]


class NotThereError(IndexError):
    """There is no such turn, version or choice.

    Attributes:
        what: Which of them.
        asked: The number or id that was given.
        n_there: How many there are.
        turn: The number of the turn whose version or choice it would be.
    """

    def __init__(self, what: What, asked: object, n_there: int) -> None:
        super().__init__(f"There is no {what} {asked!r} of {n_there}.")
        self.what: What = what
        self.asked = asked
        self.n_there = n_there
        self.turn: int | None = None


def place_of(number: object, n_there: int, what: What) -> int:
    """Return the index of a number that counts from 1.

    Raises:
        NotThereError: There are not so many, or it is no whole number.
    """
    try:
        return range(1, n_there + 1).index(number)  # type: ignore[arg-type]  # else it is not in it
    except ValueError:
        raise NotThereError(what, number, n_there) from None


@contextmanager
def within(turn: int) -> Iterator[None]:
    """Note whose versions and choices are looked through here."""
    try:
        yield
    except NotThereError as missing:
        missing.turn = turn
        raise


@contextmanager
def said_of(name: str) -> Iterator[None]:
    """Refuse what is not there in the words of the conversation of this name.

    Raises:
        ParameterError: Something is not there.
    """
    try:
        yield
    except NotThereError as missing:
        raise ParameterError(_words(name, missing), param="turn") from None


def _words(name: str, missing: NotThereError) -> str:
    what, n_there = missing.what, missing.n_there
    if what == "turn":
        whose = f"The conversation {name!r}"
        if not n_there:
            return f"{whose} has no turns yet."
    else:
        whose = f"Turn {missing.turn} of {name!r}"
    return (
        f"{whose} has {n_there} {what}{'s'[: n_there != 1]} and no {what} "
        f"{missing.asked!r}; `%svc history {name}` lists them with their versions."
    )

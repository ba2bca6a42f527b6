"""What became of a cell, as far as the others of its run care."""

from dataclasses import dataclass

from svc_notebook.errors import RateLimitError, SvcError


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The service answered.

    Attributes:
        n_tokens: Of prompt and reply, reported or else estimated.
    """

    n_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The cell failed, and its row says why.

    Attributes:
        error: Why.
        is_of_service: Whether the next cell might well fail for the same reason.
    """

    error: SvcError
    is_of_service: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The service's limit was exceeded (429): ask this cell again later."""

    error: RateLimitError


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more can be asked: no key, no ledger."""

    error: SvcError


Outcome = Answered | Failed | Refused | Stop

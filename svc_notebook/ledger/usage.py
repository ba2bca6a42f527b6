"""Usage: exchanges summed up by group.

What it is not: it makes no frame (see `frames`), and holds no exchange back. Rules:
reported and estimated tokens are never added; what is left out is counted, so that
an empty sum explains itself; a sum of costs that lacks one is unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange

from .columns import Column, Scalar
from .estimate import Estimates
from .prices import Prices
from .reply import Reply, to_replies
from .tally import Tally


def to_tallies(
    exchanges: Iterable[Exchange],
    *,
    by: Sequence[Column[Reply]],
    include_emulated: bool = False,
    include_reused: bool = False,
    estimates: Estimates | None = None,
    prices: Prices | None = None,
) -> list[Tally]:
    """Sum up exchanges, in the order in which their groups first come.

    Without columns to group by there is one group, also of no exchanges.
    """
    found: dict[tuple[Scalar, ...], Tally] = {}

    def tally_of(key: tuple[Scalar, ...]) -> Tally:
        if key not in found:
            found[key] = Tally(key, estimates=estimates, prices=prices)
        return found[key]

    if not by:
        tally_of(())
    for exchange in exchanges:
        first = next(to_replies(exchange))
        tally = tally_of(tuple(column.read(first) for column in by))
        if (exchange.is_emulated and not include_emulated) or (
            exchange.is_reused and not include_reused
        ):
            tally.n_left_out += 1
        else:
            tally.add(exchange)
    return list(found.values())


def key_columns(by: Sequence[Column[Reply]]) -> tuple[Column[Tally], ...]:
    """Return the columns that hold a group's key, with their dtypes of replies.

    Raises:
        ParameterError: One of them is summed up.
    """
    summed = [column.name for column in by if column.name in _SUMMED]
    if summed:
        raise ParameterError(
            f"{summed[0]!r} is summed up here and cannot be grouped by as well; group "
            "the frame of replies_df() by it.",
            param="by",
        )
    return tuple(
        Column(
            name=column.name,
            dtype=column.dtype,
            unit=column.unit,
            read=_nth(position),
            doc=column.doc,
        )
        for position, column in enumerate(by)
    )


def _nth(position: int) -> Callable[[Tally], Scalar]:
    return lambda tally: tally.key[position]


def _count(name: str, doc: str) -> Column[Tally]:
    return Column(name=name, dtype="Int64", read=attrgetter(name), doc=doc)


def _tokens(name: str, doc: str) -> Column[Tally]:
    read = attrgetter(name)
    return Column(name=name, dtype="Int64", unit="tokens", read=read, doc=doc)


def _seconds(name: str, doc: str) -> Column[Tally]:
    read = attrgetter(name)
    return Column(name=name, dtype="Float64", unit="s", read=read, doc=doc)


_REPORTED = "sum of what the service reported; missing if it reported none"
USAGE: tuple[Column[Tally], ...] = (
    _count("n_requests", "requests that count"),
    _count("n_failed", "that ended in an error"),
    _count("n_cancelled", "that were interrupted"),
    _count("n_cut", "with a reply that ended for want of tokens"),
    _count("n_refused", "answers 429 on the way, retried ones included"),
    _count("n_reported", "whose tokens are reported"),
    _tokens("prompt_tokens", _REPORTED),
    _tokens("completion_tokens", _REPORTED),
    _tokens("total_tokens", _REPORTED),
    _count("n_estimated", "that answered without reporting tokens, such as streams"),
    _tokens(
        "estimated_prompt_tokens",
        "estimate for those n_estimated, on the safe side; not part of prompt_tokens",
    ),
    _tokens(
        "estimated_completion_tokens",
        "estimate for those n_estimated; not part of completion_tokens",
    ),
    _tokens(
        "estimated_low_tokens",
        "prompts and replies of those n_estimated have at least about so many tokens",
    ),
    _tokens("estimated_high_tokens", "and at most about so many"),
    _count("n_missing", "that nothing came back for"),
    _seconds("queue_s", "waited for our own limits, all together"),
    _seconds("retry_wait_s", "waited between attempts, all together"),
    _seconds("median_first_text_s", "median of first_text_s of those that are ok"),
    _seconds("median_latency_s", "median of latency_s of those that are ok"),
    Column(
        name="cost",
        dtype="Float64",
        read=attrgetter("cost"),
        doc="of reported tokens, by your price table; missing if any of it is unknown",
    ),
    Column(
        name="estimated_cost",
        dtype="Float64",
        read=attrgetter("estimated_cost"),
        doc="of estimated tokens, likewise; not part of cost",
    ),
    _count("n_unpriced", "with tokens, but without a price in your table"),
    Column(
        name="cost_source",
        dtype="string",
        read=attrgetter("cost_source"),
        doc="the price table, its currency and its date",
    ),
    _count(
        "n_left_out",
        "requests to the emulator, or re-used replies, that are not counted here",
    ),
)
"""What `usage_df` says of each group, after the columns it was grouped by."""

_SUMMED = frozenset(column.name for column in USAGE)

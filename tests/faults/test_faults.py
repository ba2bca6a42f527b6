"""Every case of the tables, over a real socket, through both clients."""

import logging
import re
from collections.abc import Callable, Iterator

import pytest

from svc_notebook.errors import DocumentError, ServiceError
from tests.faults.answers import GOOD
from tests.faults.case import Case, Fails
from tests.faults.player import (
    KEY,
    Played,
    everything_of,
    is_chained,
    play_awaited,
    play_plain,
    play_through,
)
from tests.faults.server import RawServer
from tests.faults.tables import CASES

PLAYERS: dict[str, Callable[..., Played]] = {
    "plain": play_plain,
    "awaited": play_awaited,
    "through httpx": play_through,
}
LONG = re.compile(
    r"for ever|20 MB|never|trickles|total deadline|pieces of 1|one byte|nothing else"
    r"|a byte at a time"
)
# Only our own connections notice these (at once); httpx waits, or asks once more.
OURS = re.compile("banner|a kept connection|without an end|a length in chunked")
GAMES = [
    pytest.param(
        case,
        verb,
        kind,
        id=f"{case.section} {case.fault} {verb} {kind}",
        # both clients take the same request path, so one of them is enough for a start
        marks=[pytest.mark.slow]
        if kind != "awaited" or LONG.search(case.fault)
        else [],
    )
    for case in CASES
    for verb in case.verbs
    for kind in PLAYERS
    if kind != "through httpx"
    or not (LONG.search(case.fault) or OURS.search(case.fault))
]
NEXT_STEP = re.compile(
    r"\b(ask|allow|change|check|choose|copy|did you mean|give|leave|must be|remove|set"
    r"|shorten|use|wait)\b",
    re.IGNORECASE,
)


@pytest.fixture
def served(case: Case) -> Iterator[RawServer]:
    """The case's server."""
    server = RawServer(case.answers)
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The model called .* and wrote no text")
@pytest.mark.parametrize(("case", "verb", "kind"), GAMES)
def test_fault_ends_well(
    case: Case,
    verb: str,
    kind: str,
    served: RawServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A fault ends as its table says, in time, recorded, and without the key."""
    caplog.set_level(logging.DEBUG)
    n_requests: list[int] = []

    def after() -> bool:
        n_requests.append(len(served.requests))
        served.then([GOOD])
        return not case.to

    port = served.base_url.split(":")[2].split("/")[0]
    base_url = case.to.format(port=port) or served.base_url
    played = PLAYERS[kind](base_url, case, verb, after)

    _look_at_end(case, played, is_streamed=verb == "stream")
    _look_at_record(case, played)
    assert n_requests == [case.n_requests]
    assert played.slept_s >= case.waits_s
    assert played.again == ("" if case.to else "Hello.")
    assert (served.wait_until_left(), served.calls) == ([], served.calls)
    assert KEY not in everything_of(played) + caplog.text


def _look_at_end(case: Case, played: Played, *, is_streamed: bool) -> None:
    if isinstance(case.ends, str):
        assert played.error is None
        assert played.completion is not None
        assert played.completion.text == case.ends
        assert played.shown == (case.ends if is_streamed else "")
        assert case.check is None or case.check(played.completion)
        return
    assert played.completion is None
    _look_at_error(case.ends, played, is_streamed=is_streamed)
    assert case.check is None or case.check(played.error)


def _look_at_error(ends: Fails, played: Played, *, is_streamed: bool) -> None:
    error = played.error
    assert type(error) is ends.kind
    said = str(error)
    assert [each for each in ends.says if each not in said] == []
    assert {name: getattr(error, name) for name in ends.has} == dict(ends.has)
    partial = error.partial.text if error.partial else None
    assert partial if ends.partial is ... else partial == ends.partial
    assert played.shown == ((partial or "") if is_streamed else "")
    assert NEXT_STEP.search(said)
    assert len(said.encode()) < 4096
    assert said.replace("\n", "").isprintable()
    assert not is_chained(error)


def _look_at_record(case: Case, played: Played) -> None:
    """Check the record: one exchange if anything was sent, else none."""
    if case.n_requests == 0 and not played.exchanges:
        return
    (exchange,) = played.exchanges
    expected = case.n_requests if case.n_attempts is None else case.n_attempts
    assert exchange.n_attempts == expected
    if isinstance(case.ends, str):
        assert (exchange.status, exchange.failure) == ("ok", None)
        return
    error, failure = played.error, exchange.failure
    assert failure is not None
    assert (exchange.status, failure.type) == ("error", type(error).__name__)
    assert isinstance(error, case.ends.kind)
    assert error.exchange_id == exchange.exchange_id
    assert error.n_attempts == exchange.n_attempts
    if isinstance(error, ServiceError | DocumentError) and error.status:
        assert failure.http_status == error.status

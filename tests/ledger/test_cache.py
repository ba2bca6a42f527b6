"""An identical request is answered from the ledger; any other is not."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.errors import LedgerError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.cache import LedgerCache, find_recorded
from svc_notebook.ledger.ledger import PAGE_ROWS, Ledger
from svc_notebook.service.request import CompletionRequest, build_request

MakeExchange = Callable[..., Exchange]

HERE = "https://service.test/v1"
TOOL = {"type": "function", "function": {"name": "f", "description": "d"}}


def _request(prompt: Any = "Hi", **given: Any) -> CompletionRequest:  # noqa: ANN401 - fields
    model, system = given.pop("model", "m"), given.pop("system", None)
    return build_request(prompt, model=model, system=system, params=given)


def _found(ledger: Ledger, request: CompletionRequest, **origin: Any) -> str | None:  # noqa: ANN401 - fields
    answer = find_recorded(LedgerCache(ledger, HERE), request, Origin(**origin))
    return answer.exchange_id if answer else None


@pytest.mark.parametrize(
    "other",
    [
        _request("Hi!"),
        _request(model="n"),
        _request(system="Be brief."),
        _request(temperature=0.7),
        _request(max_tokens=9),
        _request(stop="a"),
        _request(tools=[TOOL]),
        _request(extra={"seed": 1}),
        _request([{"role": "assistant", "content": "Hi"}]),
    ],
)
def test_a_request_that_differs_is_another(
    ledger: Ledger, make: MakeExchange, other: CompletionRequest
) -> None:
    """Whatever affects the reply tells requests apart."""
    ledger.add(make(1, request=_request()))

    assert _found(ledger, other) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "error", "body": None},
        {"status": "cancelled"},
        {"is_reused": True},
        {"endpoint": "https://other.test/v1"},
    ],
)
def test_only_good_first_hand_answers_of_the_endpoint_count(
    ledger: Ledger, make: MakeExchange, changes: dict[str, Any]
) -> None:
    """Failures, partial replies, re-used ones and other services are no answers."""
    ledger.add(make(1, request=_request(), **changes))

    assert _found(ledger, _request()) is None


def test_each_repetition_has_its_own_answer(ledger: Ledger, make: MakeExchange) -> None:
    """A repetition is answered by that repetition; none said is the first."""
    for number in range(3):
        origin = Origin(kind="sweep", run="r", repeat=number)
        ledger.add(make(number, request=_request(), origin=origin))

    assert [_found(ledger, _request(), repeat=each) for each in (0, 1, 2, 3)] == [
        "x0000",
        "x0001",
        "x0002",
        None,
    ]
    assert _found(ledger, _request()) == "x0000"


@pytest.mark.slow
def test_looking_through_a_held_ledger_waits_once(
    ledger: Ledger, make: MakeExchange, path: Path
) -> None:
    """While another program holds the file, hashes are read once and stay in memory."""
    for number in range(3 * PAGE_ROWS):
        ledger.add(make(number, request=_request(f"p{number}")))
    statements: list[str] = []
    with ledger.opened() as connection, closing(sqlite3.connect(path)) as holder:
        connection.set_trace_callback(statements.append)
        holder.execute("BEGIN EXCLUSIVE")
        first = _found(ledger, _request("p3"))
        n_tries = statements.count("BEGIN IMMEDIATE")
        statements.clear()
        second = _found(ledger, _request("p700"))
        n_pages = sum("NOT is_reused" in each for each in statements)
    after = _found(ledger, _request("p3"))
    connection.set_trace_callback(None)

    assert (first, second, after) == ("x0003", "x0700", "x0003")
    assert (n_tries, n_pages) == (1, 2)  # the second only looks for newer ones


def test_an_index_that_cannot_be_kept_is_an_error(
    ledger: Ledger, make: MakeExchange
) -> None:
    """A hash that the file cannot take is refused, and nothing is half done."""
    ledger.add(make(1, request=_request()))

    with pytest.raises(LedgerError):
        next(ledger.with_request_hash("x", endpoint=HERE, hash_of=lambda _: object()))  # type: ignore[arg-type, return-value]  # wrong on purpose

    assert _found(ledger, _request()) == "x0001"

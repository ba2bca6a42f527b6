"""Exchanges: where their numbers come from, and when a reply is cut."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

import svc_notebook.exchange as exchange_
from svc_notebook.completion import Completion
from svc_notebook.display import reply_footer
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import build_request

AT = datetime(2025, 1, 1, tzinfo=UTC)


def exchange(
    *choices: Choice,
    n_tokens: int | None = None,
    max_tokens: int | None = None,
    **rest: Any,  # noqa: ANN401
) -> Exchange:
    """Return an exchange with these choices."""
    usage = None if n_tokens is None else Usage(completion_tokens=n_tokens)
    return Exchange(
        exchange_id="e",
        origin=Origin(),
        endpoint="https://host/v1",
        request=build_request("Hi", model="m", params={"max_tokens": max_tokens}),
        body=CompletionBody(choices=choices, usage=usage) if choices else None,
        started_at=AT,
        ended_at=AT,
        **rest,
    )


STOP = Choice(text="x", finish_reason="stop")
CASES = [
    (exchange(Choice(text="x", finish_reason="length")), True),
    (exchange(STOP, n_tokens=149), False),
    (exchange(STOP, n_tokens=150), True),
    (exchange(STOP, n_tokens=150, max_tokens=200), False),
    (exchange(STOP, est_completion_tokens=900), False),
    (exchange(STOP, n_chunks=150), False),
    (exchange(STOP, n_chunks=151), True),
    (exchange(STOP, n_chunks=153), True),
    (exchange(STOP, n_chunks=154), False),
    (exchange(STOP, n_chunks=151, n_tokens=100), False),
    (exchange(STOP, n_chunks=201, max_tokens=200), True),
    (exchange(STOP, n_tokens=10, est_completion_tokens=150), False),
    (exchange(Choice(text="x"), est_completion_tokens=900), False),
    (exchange(Choice(text="x", finish_reason="weather"), n_tokens=150), False),
    (exchange(STOP, Choice(index=1, finish_reason="stop"), n_tokens=300), False),
]


@pytest.mark.parametrize(("made", "is_cut"), CASES, ids=range(len(CASES)))
def test_cut(made: Exchange, is_cut: bool) -> None:
    """A reply is cut by its finish reason, or where tokens are counted at the limit.

    They are reported, or one chunk each; an estimate is no evidence.
    """
    assert exchange_.is_cut(made, made.choices[0]) == is_cut


def test_usage_source() -> None:
    """Usage is reported, estimated, or missing where nothing came."""
    made = [exchange(STOP, n_tokens=1), exchange(STOP), exchange()]

    got = [each.usage_source for each in made]

    assert got == ["reported", "estimated", "missing"]
    assert made[2].choices == ()


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_an_empty_reply_is_marked(text: str | None) -> None:
    """Blanks are no reply either."""
    made = exchange(Choice(text=text, finish_reason="stop"))

    assert reply_footer.marks(made) == ("empty",)


@pytest.mark.parametrize(
    ("answered", "marks"),
    [("another-<b>", ("answered by another-<b>",)), ("m", ()), ("m-2026-01-31", ())],
)
def test_another_model_is_marked(answered: str, marks: tuple[str, ...]) -> None:
    """A reply says which model answered; a version of the one asked is no other."""
    body = CompletionBody(choices=(STOP,), model=answered)
    made = replace(exchange(STOP), body=body)

    html = Completion(made).final().bundle()["text/html"]

    assert reply_footer.marks(made) == marks
    assert ("another-&lt;b&gt;" in html) is bool(marks)

"""Chunks put together: choices apart, calls never glued."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.service.chunk import (
    Assembly,
    CallPiece,
    Choice,
    Chunk,
    CompletionBody,
    Delta,
    Usage,
)


def made(*deltas: Delta) -> tuple[Choice, ...]:
    """Put deltas together, one chunk each."""
    assembly = Assembly()
    for delta in deltas:
        assembly.add(Chunk(deltas=(delta,)))
    return assembly.body().choices


def calls(*pieces: CallPiece) -> list[tuple[str, str, str]]:
    """Put pieces of calls together; return id, name and arguments of each call."""
    (choice,) = made(*(Delta(calls=(piece,)) for piece in pieces))
    return [(c.id, c.function.name, c.function.arguments) for c in choice.tool_calls]


def test_labels_and_usage_are_kept() -> None:
    """Labels come from the first chunk that has them, usage from the last."""
    assembly = Assembly()
    usage = Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    assembly.add(Chunk(id="c", created=1, model="m", deltas=(Delta(text="a"),)))
    assembly.add(Chunk(id="d", deltas=(Delta(finish_reason="stop"),)))
    assembly.add(Chunk(usage=usage))

    assert assembly.body() == CompletionBody(
        id="c",
        created=1,
        model="m",
        choices=(Choice(text="a", finish_reason="stop"),),
        usage=usage,
    )
    assert (assembly.n_chunks, assembly.is_finished) == (3, True)


def test_empty_and_none_are_told_apart() -> None:
    """An empty reply has a text; a choice that said nothing has none."""
    got = [
        made(Delta(text="")),
        made(Delta(finish_reason="stop")),
        made(Delta()),
        made(Delta(calls=(CallPiece(id="c"),), finish_reason="x")),
    ]

    assert [choices[0].text for choices in got] == ["", "", None, None]


def test_one_index_with_new_ids_is_never_glued() -> None:
    """A new id under an old index begins a new call."""
    got = calls(
        CallPiece(index=0, id="a", name="f", arguments="{1"),
        CallPiece(index=0, id="b", name="g", arguments="{2"),
        CallPiece(index=0, arguments="}"),
    )

    assert got == [("a", "f", "{1"), ("b", "g", "{2}")]


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=3))))
def test_any_interleaving_keeps_choices_apart(pieces: list[tuple[int, str]]) -> None:
    """Whatever the order, each choice has its own text, by index."""
    choices = made(*(Delta(index=index, text=text) for index, text in pieces))

    got = {choice.index: choice.text for choice in choices}

    want: dict[int, str] = {}
    for index, text in pieces:
        want[index] = want.get(index, "") + text
    assert got == want
    assert [choice.index for choice in choices] == sorted(want)


def test_a_flood_of_calls_is_joined_by_index() -> None:
    """Thousands of calls in pieces stay apart, each with its own arguments."""
    pieces = [
        CallPiece(index=n % 5000, id=f"c{n % 5000}", name="f", arguments=str(n // 5000))
        for n in range(15_000)
    ]
    assembly = Assembly()

    assembly.add(Chunk(deltas=(Delta(calls=tuple(pieces), finish_reason="stop"),)))

    calls = assembly.body().choices[0].tool_calls
    assert [call.id for call in calls] == [f"c{n}" for n in range(5000)]
    assert {call.function.arguments for call in calls} == {"012"}

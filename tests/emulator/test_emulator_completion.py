"""Where a text is cut off: stop sequences and max_tokens (doc: Request body)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.emulator.completion_writer import Choice, cut_choice
from svc_notebook.emulator.rules import count_tokens, split_tokens

TOKENS = ("One", ",", " two", ",", " three")


@pytest.mark.parametrize(
    ("stop", "pieces", "n_tokens"),
    [
        (("nine",), TOKENS, 5),
        ((" two",), ("One", ","), 3),
        (("e, t",), ("On",), 3),
        (("three", ","), ("One",), 2),
        (("One",), (), 1),
    ],
)
def test_a_stop_sequence_ends_the_text_before_it(
    stop: tuple[str, ...], pieces: tuple[str, ...], n_tokens: int
) -> None:
    """The sequence may lie across tokens, and is not part of the text."""
    choice = cut_choice(TOKENS, max_tokens=100, stop=stop)

    assert choice == Choice(pieces=pieces, finish_reason="stop", n_tokens=n_tokens)


@pytest.mark.parametrize(
    ("max_tokens", "finish_reason"), [(1, "length"), (4, "length"), (5, "stop")]
)
def test_max_tokens_ends_the_text(max_tokens: int, finish_reason: str) -> None:
    """Only a text that wanted to go on finishes with `length`."""
    choice = cut_choice(TOKENS, max_tokens=max_tokens, stop=())

    assert choice == Choice(
        pieces=TOKENS[:max_tokens], finish_reason=finish_reason, n_tokens=max_tokens
    )


@pytest.mark.slow
@given(
    st.lists(st.text("abก", min_size=1, max_size=3), max_size=12),
    st.lists(st.text("abก", min_size=1, max_size=4), max_size=4),
)
def test_stops_at_the_first_moment_a_sequence_is_whole(
    tokens: list[str], stop: list[str]
) -> None:
    """However the text is cut into tokens, it ends before the first sequence."""
    choice = cut_choice(tokens, max_tokens=100, stop=stop)

    assert not any(each in choice.text for each in stop)
    assert "".join(tokens).startswith(choice.text)
    assert (choice.text == "".join(tokens)) == (
        not any(each in "".join(tokens) for each in stop)
    )


@pytest.mark.slow
@given(st.text())
def test_tokens_joined_are_the_text(text: str) -> None:
    """Nothing is lost when a text is cut into tokens."""
    assert "".join(split_tokens(text)) == text
    assert count_tokens(text) == len(split_tokens(text))

"""A cut reply in the panel: which limit cut it, and how it goes on."""

from collections.abc import Iterator

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.panels.conftest import OpenPage

LINES = "First we walk along the sea.\nThen we rest"
CUT_LINES = {"when": {"contains": "Walk"}, "text": LINES, "finish_reason": "length"}
REPEATED = {
    "when": {"contains": "Go on"},
    "text": ["Then ", "we ", "rest", " in ", "the shade."],
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose reply is cut, and whose rest repeats its last line."""
    script = [CUT_LINES, REPEATED]
    with Emulator(
        script=script, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


def test_while_it_goes_on_no_repetition_is_shown(open_page: OpenPage) -> None:
    """What the rest repeats is dropped at once, not only at the end."""
    page = open_page()
    turn = page.ask("Walk")

    got = page.do("continue", turn=turn["id"])

    assert got["turns"][0]["choices"][0]["text"] == f"{LINES} in the shade."
    assert got["turns"][0]["footer"].startswith("2 requests, ")
    assert got["turns"][0]["footer"].endswith(" · continued")
    tails = page.tails()
    assert all(tail.count("Then we") <= 1 for tail in tails)
    assert "Then we rest in the shade." in tails[-1]


@pytest.mark.parametrize(
    ("max_tokens", "words"),
    [
        (150, "Cut at 150 tokens (max_tokens)"),
        ("service", "Cut at 150 tokens (the default)"),
        ("fit", "tokens (all that was left)"),
    ],
)
def test_a_cut_reply_says_which_limit_cut_it(
    open_page: OpenPage, max_tokens: str | int, words: str
) -> None:
    """The number of tokens, and where it comes from."""
    page = open_page(max_tokens=max_tokens)

    assert words in page.ask("Walk")["ended"]

"""Keys: who is served, and that no text keeps one (doc: Authentication)."""

import pytest

from svc_notebook.emulator.access import Keys, sent_key

KEYS = Keys(valid=("sk-long-enough", "abc"), revoked=("sk-long",), forbidden=())


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Bearer", ""),
        ("Basic abc", ""),
        ("abc", ""),
        ("Bearer a b", "a b"),
    ],
)
def test_reads_the_key_of_the_bearer_scheme(header: str, key: str) -> None:
    """Only that scheme counts, in any case."""
    assert sent_key({"authorization": header}) == key


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("my sk-long-enough!", "my [key]!"),
        ("xsk-long-enoughx", "x[key]x"),
        ("sk-long", "[key]"),
        ("the abc of abcd", "the [key] of abcd"),
        ("mine is sent-key-9", "mine is [key]"),
    ],
)
def test_takes_keys_out_of_texts(text: str, hidden: str) -> None:
    """Known keys and the one sent go; short ones where they stand alone."""
    assert KEYS.hide(text, {"authorization": "Bearer sent-key-9"}) == hidden

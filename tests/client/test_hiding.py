"""The key in a reply that comes in pieces: hidden, and nothing else delayed."""

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.redact import Hiding
from svc_notebook.credentials import Key
from svc_notebook.service.chunk import CallPiece, Delta

VALUE = "sk-sk-secret%41of\\it"
KEY = Key(VALUE, source="test")
ESCAPED = json.dumps(VALUE)[1:-1]
QUOTED = "".join(f"%{ord(each):02X}" for each in VALUE)
JSON_QUOTED = "".join(f"\\u{ord(each):04x}" for each in VALUE)
KEYS = ("sk-", "sk-se", VALUE, VALUE.upper(), QUOTED, JSON_QUOTED, ESCAPED)
WORDS = ("a", " ", "%", "%2", "\\", "\\u00", "ก", "👩", "%73", "100%")
PARTS = st.sampled_from([*KEYS, *WORDS])


def cut(text: str, places: list[int]) -> list[str]:
    """Return a text in pieces."""
    at = sorted(place % (len(text) + 1) for place in places)
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True) if a < b]


@given(st.lists(PARTS, max_size=8), st.lists(st.integers(0, 999), max_size=12))
def test_what_is_shown_is_what_is_recorded(parts: list[str], places: list[int]) -> None:
    """However a text is cut, its pieces join to it with each whole key blotted out."""
    text = "".join(parts)
    hiding = Hiding(KEY)

    shown = [hiding.take(Delta(text=piece)).text for piece in cut(text, places)]
    shown += [delta.text for delta in hiding.flush()]

    assert "".join(each or "" for each in shown) == KEY.hide_whole(text)


@given(st.text(alphabet="abz ก.", max_size=30), st.lists(st.integers(0, 99)))
def test_other_text_is_not_held_back(text: str, places: list[int]) -> None:
    """Text in which no key can begin is shown as it comes."""
    hiding = Hiding(KEY)
    pieces = cut(text, places)

    shown = [hiding.take(Delta(text=piece)).text for piece in pieces]

    assert (shown, list(hiding.flush())) == (pieces, [])


def test_a_beginning_is_out_with_the_next_piece() -> None:
    """What might have become the key is shown as soon as it cannot any more."""
    hiding = Hiding(KEY)

    shown = [hiding.take(Delta(text=each)).text for each in ("I sk", "-sk-s", "ay")]

    assert shown == ["I ", "", "sk-sk-say"]


def test_the_end_of_a_choice_lets_go_of_what_is_held() -> None:
    """With a choice's finish reason nothing of it is held back; others are apart."""
    hiding = Hiding(KEY)
    deltas = (
        Delta(index=0, text="a sk-"),
        Delta(index=1, text="b sk-"),
        Delta(index=0, text="s", finish_reason="stop"),
    )

    shown = [hiding.take(each) for each in deltas]

    assert shown == [
        Delta(index=0, text="a "),
        Delta(index=1, text="b "),
        Delta(index=0, text="sk-s", finish_reason="stop"),
    ]
    assert list(hiding.flush()) == [Delta(index=1, text="sk-")]


def test_arguments_of_calls_are_hidden_each_apart() -> None:
    """A key cut over the pieces of one call is hidden; two calls are not glued."""
    hiding = Hiding(KEY)
    pieces = [
        CallPiece(id="1", name="f", arguments='{"a":"' + VALUE[:9]),
        CallPiece(arguments=VALUE[9:] + '","b":"sk-'),
        CallPiece(id="2", name=f"{VALUE}", arguments="{}"),
    ]

    shown = [hiding.take(Delta(calls=(each,))).calls for each in pieces]

    assert shown == [
        (CallPiece(id="1", name="f", arguments='{"a":"'),),
        (CallPiece(arguments='[key]","b":"'),),
        (CallPiece(arguments="sk-"), CallPiece(id="2", name="[key]", arguments="{}")),
    ]


def test_the_end_of_an_answer_lets_go_of_what_calls_held() -> None:
    """A stream that breaks off in a call shows all that came of its arguments."""
    hiding = Hiding(KEY)
    hiding.take(Delta(index=1, calls=(CallPiece(index=2, arguments="{sk-"),)))

    rest = list(hiding.flush())

    assert rest == [Delta(index=1, calls=(CallPiece(index=2, arguments="sk-"),))]


def test_a_finish_reason_shows_no_key() -> None:
    """Where a service echoes the key as the reason, the reason is blotted out."""
    shown = Hiding(KEY).take(Delta(finish_reason=f"bad {VALUE}"))

    assert shown.finish_reason == "bad [key]"


def test_a_word_is_no_key() -> None:
    """A key of fewer than 8 characters is an ordinary word, and stays."""
    hiding = Hiding(Key("word", source="test"))

    assert hiding.take(Delta(text="a word wo")).text == "a word wo"


def test_many_pieces_take_no_long_time() -> None:
    """20 000 pieces, each of which may begin the key, take less than 2 s."""
    hiding = Hiding(KEY)
    began_s = time.process_time()

    for at in range(20_000):
        hiding.take(Delta(text="\\" if at % 2 else "some sk-"))

    assert time.process_time() - began_s < 2.0

"""What the emulator writes: repeatable, honest, and visibly parametrised."""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.emulator.completion_writer import Choice, cut_choice
from svc_notebook.emulator.emulated_tokens import count_tokens, split_tokens
from svc_notebook.emulator.filler import draw, penalised, write
from svc_notebook.emulator.http_values import DOCUMENTED
from svc_notebook.emulator.request_checks import ChatRequest, read_chat_request

MakeChat = Callable[..., ChatRequest]

QUESTION = "How does rain form over the mountains?"
PRAISE = {"good", "useful", "clear", "simple"}
PRAISE |= {"sensible", "practical", "helpful", "modest"}
THAI = "อธิบายเรื่องฝนให้หน่อย"


def _choice(chat: ChatRequest, nth: int = 0) -> Choice:
    seed = chat.seed(emulator_seed=0, nth=nth, choice_index=0)
    return cut_choice(write(chat, seed), max_tokens=chat.max_tokens, stop=chat.stop)


def _texts(chat: ChatRequest, n: int = 40) -> list[str]:
    return [_choice(chat, nth).text for nth in range(n)]


def test_the_same_seed_writes_the_same_text(make_chat: MakeChat) -> None:
    """Everything comes from the seed."""
    chat = make_chat(QUESTION)

    assert _choice(chat, 3) == _choice(chat, 3)


@pytest.mark.slow
def test_variety_grows_with_the_temperature(make_chat: MakeChat) -> None:
    """Texts share fewer of their word pairs the hotter it is."""

    def n_pairs(temperature: float) -> int:
        texts = _texts(make_chat(QUESTION, temperature=temperature, max_tokens=40))
        words = [text.split() for text in texts]
        return len({pair for line in words for pair in zip(line, line[1:])})  # noqa: B905, RUF007 - pairs

    counts = [n_pairs(temperature) for temperature in (0.0, 0.3, 1.0, 2.0)]

    assert counts == sorted(counts)
    assert counts[3] > 1.1 * counts[2] > 1.2 * counts[1] > 2 * counts[0]


@pytest.mark.parametrize("model", DOCUMENTED)
@pytest.mark.parametrize("temperature", [0, 0.7, 2])
@pytest.mark.parametrize("question", [QUESTION, THAI, "?", ""])
def test_every_text_is_whole_sentences_and_ends(
    make_chat: MakeChat, model: str, temperature: float, question: str
) -> None:
    """Whatever is asked, the reply begins at once and leaves no slot open."""
    chat = make_chat(question, model=model, temperature=temperature, max_tokens=2000)

    choice = _choice(chat)

    assert choice.text == choice.text.strip()
    assert re.match(r"[A-Z*\u0e01-\u0e46]", choice.text)
    assert choice.finish_reason == "stop"
    assert not set(choice.text) & {"<", ">", "[", "]"}


def test_thai_is_answered_in_thai(make_chat: MakeChat) -> None:
    """A Thai prompt gets a Thai text."""
    text = _choice(make_chat("ช่วยอธิบายเรื่องฝนตกหนัก")).text

    assert not any("a" <= letter <= "z" for letter in text)


SCORES = (2.0, 1.0, 0.0)
CHAT = read_chat_request(
    b'{"model": "svc-instruct", "messages": [{"role": "user", "content": "Hi"}]}'
)


def _shares(n_seen: int = 0, **params: float) -> list[float]:
    """Draw often, where the first option appeared before; say how often each came."""
    chat = replace(CHAT, **params)  # type: ignore[arg-type]  # numbers by name
    rng = Random(5)  # noqa: S311 - repeatable chance
    scores = [penalised(chat, SCORES[0], n_seen), *SCORES[1:]]
    drawn = Counter(draw(chat, scores, rng) for _ in range(4000))
    return [drawn[at] / 4000 for at in range(3)]


def _softmax(*scores: float) -> list[float]:
    weights = [math.exp(score) for score in scores]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("temperature", [1e-9, 0.3, 0.7, 1.0, 2.0])
def test_draws_follow_the_softmax_of_the_temperature(temperature: float) -> None:
    """Each option comes as often as its score over the temperature says."""
    tops = [(score - SCORES[0]) / temperature for score in SCORES]

    shares = _shares(temperature=temperature)

    assert shares == pytest.approx(_softmax(*tops), abs=0.03)


@pytest.mark.parametrize(
    ("penalty", "score"),
    [
        ({"presence_penalty": 1}, 1.0),
        ({"presence_penalty": -1}, 3.0),
        ({"frequency_penalty": 0.5}, 0.5),
        ({"repetition_penalty": 2}, 1.0),
    ],
)
def test_penalties_change_the_score_of_what_appeared(
    penalty: dict[str, float], score: float
) -> None:
    """Presence counts once, frequency by how often; negative values invite."""
    shares = _shares(3, temperature=1, **penalty)

    assert shares == pytest.approx(_softmax(score, 1.0, 0.0), abs=0.03)


@pytest.mark.slow
@given(
    st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=12),
    st.floats(0.01, 2.0),
    st.floats(0.0, 1.0),
)
def test_top_p_keeps_the_likeliest_that_reach_it(
    scores: list[float], temperature: float, top_p: float
) -> None:
    """An option outside the nucleus is never drawn."""
    rng = Random(5)  # noqa: S311 - repeatable chance
    top = max(scores)
    shares = _softmax(*((score - top) / temperature for score in scores))

    at = draw(replace(CHAT, temperature=temperature, top_p=top_p), scores, rng)

    likelier = sum(share for share in shares if share > shares[at])
    assert likelier < top_p + 1e-9 or shares[at] == max(shares)


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

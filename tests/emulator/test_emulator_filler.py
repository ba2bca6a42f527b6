"""What the emulator writes: repeatable, honest, and visibly parametrised."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.emulator.completion_writer import Choice, cut_choice
from svc_notebook.emulator.filler import draw, penalised, write
from svc_notebook.emulator.http_values import DOCUMENTED
from svc_notebook.emulator.rules import ChatRequest, read_chat_request

MakeChat = Callable[..., ChatRequest]

QUESTION = "How does rain form over the mountains?"
LARGE = "svc-v2-70b-instruct"
PRAISE = {"good", "useful", "clear", "simple"}
PRAISE |= {"sensible", "practical", "helpful", "modest"}
THAI = "อธิบายเรื่องฝนให้หน่อย"


def _choice(chat: ChatRequest, nth: int = 0) -> Choice:
    seed = chat.seed(emulator_seed=0, nth=nth, choice_index=0)
    return cut_choice(write(chat, seed), max_tokens=chat.max_tokens, stop=chat.stop)


def _texts(chat: ChatRequest, n: int = 40) -> list[str]:
    return [_choice(chat, nth).text for nth in range(n)]


def _mean_repeats(chat: ChatRequest) -> float:
    """Say how many of a text's praising words came before in it, on average."""
    words = [
        [word for word in re.findall(r"\w+", text) if word in PRAISE]
        for text in _texts(chat)
    ]
    return statistics.mean(len(each) - len(set(each)) for each in words)


def test_the_same_seed_writes_the_same_text(make_chat: MakeChat) -> None:
    """Everything comes from the seed."""
    chat = make_chat(QUESTION)

    assert _choice(chat, 3) == _choice(chat, 3)


def test_temperature_zero_writes_one_text(make_chat: MakeChat) -> None:
    """At 0 the sample's number does not matter."""
    assert len(set(_texts(make_chat(QUESTION, temperature=0)))) == 1


def test_prompts_are_answered_differently(make_chat: MakeChat) -> None:
    """Without any chance, most prompts still get texts that differ."""
    chats = [make_chat(f"Question {at}", temperature=0) for at in range(20)]

    assert len({_choice(chat).text for chat in chats}) > 15


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


def test_a_small_top_p_calms_a_high_temperature(make_chat: MakeChat) -> None:
    """The nucleus leaves out unlikely words."""
    hot = make_chat(QUESTION, temperature=2, max_tokens=60)
    calm = make_chat(QUESTION, temperature=2, top_p=0.3, max_tokens=60)

    n_words = [len({*" ".join(_texts(chat)).split()}) for chat in (calm, hot)]

    assert n_words[0] < 0.8 * n_words[1]


@pytest.mark.parametrize("model", DOCUMENTED)
def test_the_least_top_p_writes_what_temperature_zero_does(
    make_chat: MakeChat, model: str
) -> None:
    """With no share of probability left to choose from, nothing is chosen."""
    calm = make_chat(QUESTION, model=model, temperature=1.5, top_p=0.01)
    cold = make_chat(QUESTION, model=model, temperature=0)

    assert set(_texts(calm, n=10)) == set(_texts(cold, n=1))


@pytest.mark.parametrize(
    "penalty",
    [{"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 1.6}],
)
@pytest.mark.parametrize("model", ["svc-v2-8b-instruct", "svc-v1.5-instruct"])
def test_penalties_make_a_text_repeat_less(
    make_chat: MakeChat, model: str, penalty: dict[str, float]
) -> None:
    """Words that could be replaced come again half as often at most."""
    plain = _mean_repeats(make_chat(QUESTION, model=model))
    penalised = _mean_repeats(make_chat(QUESTION, model=model, **penalty))

    assert penalised < 0.5 * plain


@pytest.mark.slow
def test_a_negative_penalty_makes_it_repeat_more(make_chat: MakeChat) -> None:
    """Below 0, words that appeared are preferred."""
    asked = {"model": "svc-v1.5-instruct", "temperature": 1}
    plain = _mean_repeats(make_chat(QUESTION, **asked))
    invited = _mean_repeats(make_chat(QUESTION, **asked, frequency_penalty=-1))

    assert invited > 1.2 * plain


def test_models_differ_in_length(make_chat: MakeChat) -> None:
    """A large model writes more than a small one of its generation."""

    def mean_tokens(model: str) -> float:
        chat = make_chat(QUESTION, model=model, max_tokens=1000)
        return statistics.mean(_choice(chat, nth).n_tokens for nth in range(20))

    small, large = mean_tokens("svc-v2-8b-instruct"), mean_tokens(LARGE)

    assert 40 < small < 100
    assert 150 < large < 320


@pytest.mark.parametrize("question", [QUESTION, THAI])
def test_no_two_documented_models_write_the_same(
    make_chat: MakeChat, question: str
) -> None:
    """A comparison of models shows a difference without any chance."""
    texts = {
        _choice(make_chat(question, model=model, temperature=0, max_tokens=500)).text
        for model in DOCUMENTED
    }

    assert len(texts) == len(DOCUMENTED)


@pytest.mark.parametrize("question", [QUESTION, THAI])
def test_the_default_of_max_tokens_is_felt(make_chat: MakeChat, question: str) -> None:
    """A large model's text ends at 150 tokens, unless more are asked for."""
    short, long = (
        _choice(make_chat(question, model=LARGE)),
        _choice(make_chat(question, model=LARGE, max_tokens=2000)),
    )

    assert (short.n_tokens, short.finish_reason) == (150, "length")
    assert (long.n_tokens > 150, long.finish_reason) == (True, "stop")


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


def test_max_tokens_and_stop_do_not_change_the_words(make_chat: MakeChat) -> None:
    """A shorter reply is the beginning of the longer one."""
    whole = _choice(make_chat(QUESTION, max_tokens=500)).text
    cut = _choice(make_chat(QUESTION, max_tokens=10)).text
    word = whole.split()[4]
    stopped = _choice(make_chat(QUESTION, stop=[word])).text

    assert whole.startswith(cut)
    assert stopped == whole[: whole.index(word)]


@pytest.mark.parametrize(
    ("system", "question", "words"),
    [
        ("Answer in one word: yes or no.", "Is it wet?", {"yes", "no"}),
        ("Be kind.", "Classify as good, bad, or odd: Hm", {"good", "bad", "odd"}),
    ],
)
def test_a_word_that_a_prompt_offers_is_the_whole_reply(
    make_chat: MakeChat, system: str, question: str, words: set[str]
) -> None:
    """A classification can be tried out: one text gets one word at temperature 0."""
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": question},
    ]
    warm, cold = (
        make_chat(messages=messages),
        make_chat(messages=messages, temperature=0),
    )

    assert set(_texts(warm)) == words
    assert len(set(_texts(cold))) == 1
    assert set(_texts(cold)) <= words


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

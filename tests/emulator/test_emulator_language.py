"""What the language model writes: repeatable, honest, and visibly parametrised."""

import statistics
import time
from collections.abc import Callable

import pytest

from svc_notebook.emulator.access import DOCUMENTED
from svc_notebook.emulator.chat_request import ChatRequest
from svc_notebook.emulator.completion_writer import Choice, cut_choice
from svc_notebook.emulator.language import Brief, brief_of, learn, write

MakeAsk = Callable[..., ChatRequest]

QUESTION = "How does rain form over the mountains?"


def _choice(ask: ChatRequest, nth: int = 0) -> Choice:
    seed = ask.seed(emulator_seed=0, nth=nth, choice_index=0)
    return cut_choice(write(ask, seed), max_tokens=ask.max_tokens, stop=ask.stop)


def _texts(ask: ChatRequest, n: int = 40) -> list[str]:
    return [_choice(ask, nth).text for nth in range(n)]


def _repeats(text: str) -> float:
    """Say which share of the words came before."""
    words = text.split()
    return 1.0 - len(set(words)) / len(words)


def test_the_same_seed_writes_the_same_text(make_chat: MakeAsk) -> None:
    """Everything comes from the seed."""
    ask = make_chat(QUESTION)

    assert _choice(ask, 3) == _choice(ask, 3)


def test_temperature_zero_writes_one_text(make_chat: MakeAsk) -> None:
    """At 0 the sample's number does not matter."""
    assert len(set(_texts(make_chat(QUESTION, temperature=0), n=10))) == 1


def test_variety_grows_with_the_temperature(make_chat: MakeAsk) -> None:
    """Texts share fewer of their word pairs the hotter it is."""

    def pairs(temperature: float) -> int:
        texts = _texts(make_chat(QUESTION, temperature=temperature, max_tokens=40))
        words = [text.split() for text in texts]
        return len({pair for line in words for pair in zip(line, line[1:])})  # noqa: B905, RUF007 - pairs

    counts = [pairs(temperature) for temperature in (0.0, 0.3, 1.0, 2.0)]

    assert counts == sorted(counts)
    assert counts[-1] > 1.5 * counts[-2]


def test_a_small_top_p_calms_a_high_temperature(make_chat: MakeAsk) -> None:
    """The nucleus keeps rare words out."""
    hot = make_chat(QUESTION, temperature=2, max_tokens=60)
    calm = make_chat(QUESTION, temperature=2, top_p=0.3, max_tokens=60)

    n_words = [len({*" ".join(_texts(ask)).split()}) for ask in (calm, hot)]

    assert n_words[0] < 0.8 * n_words[1]


@pytest.mark.parametrize("model", DOCUMENTED)
def test_the_least_top_p_writes_what_temperature_zero_does(
    make_chat: MakeAsk, model: str
) -> None:
    """With no share of probability left to choose from, nothing is chosen."""
    calm = make_chat(QUESTION, model=model, temperature=1.5, top_p=0.01)
    cold = make_chat(QUESTION, model=model, temperature=0)

    assert set(_texts(calm, n=10)) == set(_texts(cold, n=1))


@pytest.mark.parametrize(
    "penalty",
    [{"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 1.6}],
)
@pytest.mark.parametrize("question", ["Write 300 words about rain.", QUESTION])
def test_penalties_make_a_text_repeat_less(
    make_chat: MakeAsk, question: str, penalty: dict[str, float]
) -> None:
    """The share of words that came before falls by a tenth at least, soon visible."""
    plain = _texts(make_chat(question, max_tokens=150), n=20)
    penalised = _texts(make_chat(question, max_tokens=150, **penalty), n=20)

    means = [statistics.mean(map(_repeats, texts)) for texts in (penalised, plain)]
    assert means[0] < 0.9 * means[1]


def test_a_negative_penalty_makes_it_repeat_more(make_chat: MakeAsk) -> None:
    """Below 0 what appeared is invited back."""
    long = "Write 300 words about rain."
    plain = _texts(make_chat(long, max_tokens=300), n=15)
    invited = _texts(make_chat(long, max_tokens=300, frequency_penalty=-0.5), n=15)

    assert statistics.mean(map(_repeats, invited)) > statistics.mean(
        map(_repeats, plain)
    )


def test_models_differ_in_length(make_chat: MakeAsk) -> None:
    """A large model writes more than a small one of its generation."""

    def mean_tokens(model: str) -> float:
        ask = make_chat(QUESTION, model=model, max_tokens=1000)
        return statistics.mean(_choice(ask, nth).n_tokens for nth in range(20))

    small, large = mean_tokens("svc-v2-8b-instruct"), mean_tokens("svc-v2-70b-instruct")

    assert 40 < small < 100
    assert 150 < large < 320


@pytest.mark.parametrize("question", [QUESTION, "อธิบายเรื่องฝนให้หน่อย"])
def test_no_two_documented_models_write_the_same(
    make_chat: MakeAsk, question: str
) -> None:
    """A comparison of models shows a difference without any chance."""
    texts = {
        _choice(make_chat(question, model=model, temperature=0, max_tokens=500)).text
        for model in DOCUMENTED
    }

    assert len(texts) == len(DOCUMENTED)


@pytest.mark.parametrize(
    "question",
    ["Write a very long story about rain.", "Explain rain in detail", "เล่าเรื่องฝนยาวๆ"],
)
def test_the_default_of_max_tokens_is_felt(make_chat: MakeAsk, question: str) -> None:
    """A text that is to be long ends at 150 tokens, unless more are asked for."""
    short, long = (
        _choice(make_chat(question)),
        _choice(make_chat(question, max_tokens=2000)),
    )

    assert (short.n_tokens, short.finish_reason) == (150, "length")
    assert (long.n_tokens > 300, long.finish_reason) == (True, "stop")


@pytest.mark.parametrize("model", DOCUMENTED)
@pytest.mark.parametrize("temperature", [0, 0.7, 2])
@pytest.mark.parametrize("question", [QUESTION, "อธิบายเรื่องฝนให้หน่อย", "?", ""])
def test_every_text_says_that_it_is_emulated_and_ends(
    make_chat: MakeAsk, model: str, temperature: float, question: str
) -> None:
    """Whatever is asked, the reply opens honestly and comes to an end."""
    ask = make_chat(question, model=model, temperature=temperature, max_tokens=2000)

    choice = _choice(ask)

    assert choice.text.startswith(("Emulated reply. ", "คำตอบจำลอง "))
    assert choice.finish_reason == "stop"


def test_words_of_the_prompt_come_back(make_chat: MakeAsk) -> None:
    """A text is about what was asked."""
    assert "rain" in _choice(make_chat(QUESTION)).text


def test_thai_is_answered_in_thai(make_chat: MakeAsk) -> None:
    """A Thai prompt gets a Thai text about its subject."""
    text = _choice(make_chat("ช่วยอธิบายเรื่องฝนตกหนัก")).text

    assert "ฝนตกหนัก" in text
    assert not any("a" <= letter <= "z" for letter in text)


def test_max_tokens_and_stop_do_not_change_the_words(make_chat: MakeAsk) -> None:
    """A shorter reply is the beginning of the longer one."""
    whole = _choice(make_chat(QUESTION, max_tokens=500)).text
    cut = _choice(make_chat(QUESTION, max_tokens=10)).text
    stopped = _choice(make_chat(QUESTION, stop=["rain"])).text

    assert whole.startswith(cut)
    assert stopped == whole[: whole.index("rain")]


@pytest.mark.parametrize(
    ("question", "brief"),
    [
        (
            "Explain the Monsoon in 50 words",
            Brief(subjects=("Monsoon",), is_thai=False, wanted_tokens=60),
        ),
        (
            "Compare Chiang Mai with the Isan.",
            Brief(subjects=("Chiang Mai", "Isan"), is_thai=False, wanted_tokens=None),
        ),
        (
            "What makes a good cup of tea? Say it in one sentence, and keep it short.",
            Brief(subjects=("cup", "tea"), is_thai=False, wanted_tokens=None),
        ),
        (
            "What goes up must come down",
            Brief(subjects=("this",), is_thai=False, wanted_tokens=None),
        ),
        ("Hi?", Brief(subjects=("this",), is_thai=False, wanted_tokens=None)),
        (
            "ขอ 10 ประโยค เรื่องข้าวหอม",
            Brief(subjects=("ข้าวหอม",), is_thai=True, wanted_tokens=140),
        ),
        (
            "เขียนเรื่องข้าวหอมยาวๆ",
            Brief(subjects=("ข้าวหอม",), is_thai=True, wanted_tokens=400),
        ),
        (
            "Is the Nile longer than the Amazon, or as deep?",
            Brief(
                subjects=("Nile", "Amazon", "deep"),
                is_thai=False,
                wanted_tokens=None,
            ),
        ),
        ("คือ", Brief(subjects=("เรื่องนี้",), is_thai=True, wanted_tokens=None)),
    ],
)
def test_reads_what_to_write_about(question: str, brief: Brief) -> None:
    """Subject, language and length come from the prompt."""
    assert brief_of(question) == brief


def test_a_length_asked_for_is_roughly_kept(make_chat: MakeAsk) -> None:
    """Several hundred words are several hundred tokens."""
    ask = make_chat("Write 1000 words about rain.", max_tokens=4000)

    assert 1000 < _choice(ask).n_tokens < 1500


def test_writing_is_fast(make_chat: MakeAsk) -> None:
    """8000 tokens take well under two seconds, also on a busy machine."""
    ask = make_chat("Write 9000 words about rain.", max_tokens=8000)
    _choice(make_chat(QUESTION))
    begun_s = time.perf_counter()

    choice = _choice(ask)

    assert (choice.n_tokens, choice.finish_reason) == (8000, "length")
    assert time.perf_counter() - begun_s < 2.0


def test_counts_become_probabilities() -> None:
    """What followed more often is likelier, and everything has a chance."""
    ngram = learn([["a", "b"], ["a", "b"], ["a", "c"]])
    names = ngram.vocabulary

    followers = ngram.candidates((ngram.stop, ngram.stop, names.index("a")))

    assert [names[token] for token, _ in followers] == ["b", "c"]
    assert followers[0][1] > followers[1][1]
    assert len(ngram.singles) == len(names)

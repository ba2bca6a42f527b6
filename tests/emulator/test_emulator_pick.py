"""Prompts that ask for one of several words get one of them."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from svc_notebook.emulator.chat_request import ChatRequest
from svc_notebook.emulator.completion_writer import cut_choice
from svc_notebook.emulator.language import Sampling, options_of, pick, write

LABELS = ("positive", "negative", "neutral")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Answer in one word, positive, negative or neutral: Good!", LABELS),
        ("Reply with positive/negative/neutral only. Text: so-so", LABELS),
        ("Is it one of positive, negative, or neutral?", LABELS),
        ("ตอบคำเดียว บวก หรือ ลบ: ดีมาก", ("บวก", "ลบ")),
        ("Classify as positive, negative or neutral. Text: fine", LABELS),
        ("Answer yes or no: does it rain?", ("yes", "no")),
        ("Should I take the bus or the train?", ()),
        ("Say it in one word.", ()),
    ],
)
def test_finds_the_words_on_offer(text: str, options: tuple[str, ...]) -> None:
    """Only where a single word is asked for, and words are offered."""
    assert options_of(text) == options


def _counts(
    temperature: float,
    about: str = "a text",
    model: str = "svc-instruct",
    *,
    top_p: float = 1.0,
) -> Counter[str]:
    rng = Random(3)  # noqa: S311 - repeatable chance
    return Counter(
        pick(
            LABELS,
            about,
            model=model,
            by=Sampling(temperature=temperature, top_p=top_p),
            rng=rng,
        )
        for _ in range(500)
    )


def test_temperature_decides_how_often_the_favourite_is_picked() -> None:
    """Always at 0, less and less often as it grows."""
    favourite = _counts(0.0).most_common(1)[0][0]

    counts = [_counts(temperature)[favourite] for temperature in (0.0, 0.7, 2.0)]

    assert counts[0] == 500
    assert counts == sorted(counts, reverse=True)
    assert counts[2] < counts[1]


def test_a_small_top_p_always_picks_the_favourite() -> None:
    """The nucleus leaves the others out, however high the temperature."""
    assert _counts(2.0, top_p=0.01) == _counts(0.0)
    assert len(_counts(2.0, top_p=1.0)) > 1


def test_prompts_have_favourites_of_their_own() -> None:
    """Different texts are not all given the same word."""
    favourites = {
        _counts(0.0, about=f"text {at}").most_common(1)[0][0] for at in range(20)
    }

    assert favourites == set(LABELS)


def test_models_agree_mostly_but_not_always() -> None:
    """A comparison of models finds both."""
    n_agreed = sum(
        _counts(0.0, f"text {at}").keys()
        == _counts(0.0, f"text {at}", "svc-v2-8b-instruct").keys()
        for at in range(40)
    )

    assert 20 < n_agreed < 40


def test_the_reply_is_the_word_alone(make_chat: Callable[..., ChatRequest]) -> None:
    """The system message may offer the words; the user message is judged."""
    ask = make_chat(
        messages=[
            {"role": "system", "content": "Answer with one word: yes or no."},
            {"role": "user", "content": "Does it rain?"},
        ]
    )

    texts = {cut_choice(write(ask, n), max_tokens=9, stop=()).text for n in range(40)}

    assert texts == {"yes", "no"}

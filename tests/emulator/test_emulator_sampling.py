"""Penalties, temperature and top_p act on the draw as the document says."""

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.emulator.language import (
    LIFT,
    WEIGHT,
    Rare,
    Sampling,
    draw,
    nucleus,
    penalised,
)

# Three tokens at hand, and a fourth that only the rare tail holds.
SHARES = {0: 0.6, 1: 0.3, 2: 0.1}
CANDIDATES = [(token, math.log(share)) for token, share in SHARES.items()]
NO_TAIL = Rare((-400.0,) * 4)
N_DRAWS = 4000


def _shares(
    by: Sampling,
    *,
    rare: Rare = NO_TAIL,
    seen: dict[int, int] | None = None,
) -> dict[int, float]:
    """Draw many times and say how often each token came."""
    rng = Random(5)  # noqa: S311 - repeatable chance
    seen = seen or {}
    scores = penalised(CANDIDATES, seen, by)
    drawn = Counter(
        draw(scores, rare, by=by, seen=seen, rng=rng) for _ in range(N_DRAWS)
    )
    return {token: drawn[token] / N_DRAWS for token in range(4)}


def _softmax(scores: list[float]) -> list[float]:
    weights = [math.exp(score) for score in scores]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 2.0])
def test_draws_follow_the_softmax_of_the_temperature(temperature: float) -> None:
    """Each token comes as often as its score over the temperature says."""
    wanted = _softmax([score / temperature for _, score in CANDIDATES])

    shares = _shares(Sampling(temperature=temperature))

    assert [shares[token] for token in range(3)] == pytest.approx(wanted, abs=0.03)


def test_temperature_zero_takes_the_likeliest() -> None:
    """At 0 nothing is left to chance."""
    assert _shares(Sampling(temperature=0.0)) == {0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0}


def test_a_tiny_temperature_is_close_to_zero() -> None:
    """The smallest temperatures neither overflow nor surprise."""
    assert _shares(Sampling(temperature=1e-9))[0] == 1.0


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.0, {0}), (0.5, {0}), (0.61, {0, 1}), (0.95, {0, 1, 2})]
)
def test_top_p_keeps_the_likeliest_that_reach_it(top_p: float, kept: set[int]) -> None:
    """Nothing outside the nucleus is ever drawn."""
    shares = _shares(Sampling(temperature=1.0, top_p=top_p))

    assert {token for token, share in shares.items() if share} == kept


def test_the_rare_tail_comes_with_the_temperature() -> None:
    """Tokens that were never seen here come more often when it is hotter."""
    rare = Rare((-9.0, -9.0, -9.0, -6.0))

    shares = [_shares(Sampling(temperature=t), rare=rare)[3] for t in (0.5, 1.0, 2.0)]

    assert shares == sorted(shares)
    assert shares[0] < 0.001
    assert shares[2] > 0.02


@pytest.mark.parametrize(
    ("by", "score_change"),
    [
        (Sampling(temperature=1.0, presence_penalty=1.0), -1.0),
        (Sampling(temperature=1.0, presence_penalty=-1.0), 1.0),
        (Sampling(temperature=1.0, frequency_penalty=0.5), -1.5),
        (Sampling(temperature=1.0, frequency_penalty=-0.5), 1.5),
    ],
)
def test_penalties_change_the_score_of_what_appeared(
    by: Sampling, score_change: float
) -> None:
    """Presence counts once, frequency by how often; negative values invite."""
    wanted = _softmax(
        [CANDIDATES[0][1] + WEIGHT * score_change, CANDIDATES[1][1], CANDIDATES[2][1]]
    )

    shares = _shares(by, seen={0: 3})

    assert [shares[token] for token in range(3)] == pytest.approx(wanted, abs=0.03)


def test_the_repetition_penalty_divides_a_score() -> None:
    """A token that appeared is less likely, whatever its score's sign."""
    by = Sampling(repetition_penalty=2.0)

    scored = [(by.scored(logp, n_seen=1), by.scored(logp, 0)) for logp in (0.0, -20.0)]

    assert scored == [(LIFT / 2.0, LIFT), ((LIFT - 20.0) * 2.0, LIFT - 20.0)]


@given(st.floats(1.01, 2.0), st.floats(-30.0, 0.0))
def test_a_larger_repetition_penalty_never_helps(penalty: float, logp: float) -> None:
    """No score rises by it."""
    by = Sampling(repetition_penalty=penalty)

    assert by.scored(logp, 1) <= by.scored(logp, 0)


def test_penalties_reach_the_rare_tail() -> None:
    """A rare token that appeared comes less often than one that did not."""
    by = Sampling(temperature=1.0, presence_penalty=2.0 / WEIGHT)
    rare = Rare((-400.0, -400.0, -1.0, -1.0))
    rng = Random(5)  # noqa: S311 - repeatable chance
    candidates = [(0, -8.0)]

    drawn = Counter(
        draw(candidates, rare, by=by, seen={3: 1}, rng=rng) for _ in range(N_DRAWS)
    )

    assert drawn[3] / drawn[2] == pytest.approx(math.exp(-2.0), abs=0.05)


def test_a_rare_token_comes_at_last_however_penalised() -> None:
    """Where everything appeared already, drawing still ends."""
    by = Sampling(temperature=0.1, presence_penalty=2.0)
    rng = Random(5)  # noqa: S311 - repeatable chance

    token = draw([(0, -9.0)], Rare((-0.1,)), by=by, seen={0: 1}, rng=rng)

    assert token == 0


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12),
    st.floats(0.0, 0.5),
    st.floats(0.0, 1.0),
)
def test_a_nucleus_is_never_empty_and_never_too_large(
    weights: list[float], tail: float, top_p: float
) -> None:
    """It reaches top_p, and would not without its least likely token."""
    pairs = [(weight, token) for token, weight in enumerate(weights)]

    kept, rest = nucleus(pairs, tail, top_p)

    wanted = top_p * (sum(weights) + tail)
    reached = sum(weight for weight, _ in kept)
    assert kept
    assert reached + rest >= wanted - 1e-9
    assert reached - kept[-1][0] < wanted or len(kept) == 1

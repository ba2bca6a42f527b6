"""Ranking candidates by comparisons in pairs, from frames and from picks."""

import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.analysis.ranking import Ranking
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.exchange_rows import Compared, Comparison
from svc_notebook.session import current, isolated

A, B = "svc-v2-8b-instruct", "svc-v2-70b-instruct"
VERDICTS = (
    "a b left,a b left,a b right,a b tie,a c left,a c left,a c tie,"
    "b c left,b c right,b c left,b c tie,c a left"
)


def frame(verdicts: str = VERDICTS) -> pd.DataFrame:
    """Return a frame of verdicts."""
    rows = [verdict.split() for verdict in verdicts.split(",")]
    return pd.DataFrame(rows, columns=["left", "right", "winner"])


def strengths(ranked: Ranking) -> dict[str, float]:
    """Return the strength of each candidate."""
    return dict(zip(ranked.df["candidate"], ranked.df["strength"], strict=True))


def test_strengths_with_ties_equal_those_of_another_package() -> None:
    """They are the scores that evalica 0.4.2 finds, as logarithms with mean 0."""
    # recorded with evalica.newman(..., tolerance=1e-12, limit=10000).scores
    recorded = {"a": 0.46500331028, "b": 0.0, "c": -0.46500331028}

    assert strengths(svc.ranking(frame())) == pytest.approx(recorded, abs=1e-6)


def test_strengths_without_ties_equal_those_of_another_package() -> None:
    """They are those of evalica's Bradley-Terry."""
    # recorded with evalica.bradley_terry(..., tolerance=1e-12, limit=10000).scores
    recorded = {"a": 0.46820592481, "b": 0.0, "c": -0.46820592481}
    pairs = frame().query("winner != 'tie'")

    assert strengths(svc.ranking(pairs)) == pytest.approx(recorded, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.permutations(range(12)), st.lists(st.booleans(), min_size=12, max_size=12))
def test_order_and_sides_do_not_matter(
    order: list[int], is_swapped: list[bool]
) -> None:
    """Rows in another order, sides swapped and names for sides change no strength."""
    pairs = frame().iloc[order].reset_index(drop=True)
    other = pairs.copy()
    swap = np.array(is_swapped)
    other.loc[swap, ["left", "right"]] = pairs.loc[swap, ["right", "left"]].to_numpy()
    named = {"left": pairs["left"], "right": pairs["right"]}
    for side, names in named.items():
        other["winner"] = other["winner"].mask(pairs["winner"] == side, names)

    expected = strengths(svc.ranking(frame()))
    assert strengths(svc.ranking(other)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.permutations(["x", "y", "z"]))
def test_names_do_not_matter(names: list[str]) -> None:
    """Candidates with other names have the same strengths."""
    new = dict(zip("abc", names, strict=True))
    pairs = frame().replace({"left": new, "right": new})

    expected = {new[name]: x for name, x in strengths(svc.ranking(frame())).items()}
    assert strengths(svc.ranking(pairs)) == pytest.approx(expected, abs=1e-6)


def test_the_best_is_named_when_it_can_be_told() -> None:
    """A candidate that wins 36 of 40 comparisons is the best, and says so."""
    ranked = svc.ranking(frame(",".join(["a b left"] * 36 + ["a b right"] * 4)))

    assert ranked.best == ("a",)
    assert ranked.says == "a is preferred to the other, over 40 comparisons."
    assert "36 won, 4 lost, 0 tied" in repr(ranked)


def test_a_winner_of_everything_is_finite_and_said() -> None:
    """Its strength has a number, and a note says that it cannot be measured."""
    ranked = svc.ranking(frame(",".join(["a b left"] * 30)))

    assert np.isfinite(strengths(ranked)["a"])
    assert ranked.best == ("a",)
    assert ranked.notes[0].startswith(
        "a won every comparison, so it cannot be measured how much"
    )


def test_few_units_are_too_early() -> None:
    """Comparisons of one rater count as one, which can tell nothing."""
    pairs = frame(",".join(["a b left"] * 29 + ["a b right"])).assign(rater="Ann")

    ranked = svc.ranking(pairs, unit="rater")

    assert ranked.best == ("a", "b")
    assert ranked.df["low"].isna().all()
    assert "only 1 value of rater, but at least 20" in ranked.says


def test_comparisons_of_one_row_count_once() -> None:
    """Three raters who agree on 30 rows tell no more than one of them does."""
    pairs = frame(",".join(["a b left"] * 20 + ["a b right"] * 10))
    pairs = pairs.assign(row=range(30), rater="Ann")
    others = [pairs.assign(rater=name) for name in ("Ben", "Cem")]

    ranked = svc.ranking(pd.concat([pairs, *others], ignore_index=True))
    alone = svc.ranking(pairs)

    assert (ranked.n_units, alone.n_units) == (30, 30)
    assert "over 30 rows" in ranked.says
    assert ranked.df["low"][0] == pytest.approx(alone.df["low"][0], abs=0.02)


def test_the_interval_of_two_is_that_of_a_logit() -> None:
    """With 64 of 100 wins it is that of the odds, with Student's t."""
    pairs = frame(",".join(["a b left"] * 64 + ["a b right"] * 36))

    first = svc.ranking(pairs).df.iloc[0]

    reach = 1.984 * np.sqrt(1 / 64.5 + 1 / 36.5) / 2  # half of the difference is each's
    assert first["strength"] == pytest.approx(np.log(64 / 36) / 2, abs=1e-6)
    assert first["high"] - first["strength"] == pytest.approx(reach, rel=0.001)


def test_the_best_set_is_of_differences() -> None:
    """Where a third is hardly known, two overlap and are told apart all the same."""
    often = ["a b left"] * 40 + ["a b right"] * 15
    seldom = ["b c left", "b c right"] * 3

    ranked = svc.ranking(frame(",".join(often + seldom)))

    at = ranked.df.set_index("candidate")
    assert at["low"]["a"] < at["high"]["b"]
    assert ranked.best == ("a", "c")


def test_without_scipy_there_is_an_order_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strengths are there; the sentence names the command that adds intervals."""
    monkeypatch.setitem(sys.modules, "scipy.special", None)

    ranked = svc.ranking(frame(",".join(["a b left"] * 36 + ["a b right"] * 4)))

    assert ranked.best == ("a", "b")
    assert ranked.says == (
        "a and b are in the order of their strengths, over 40 comparisons. "
        "Intervals need SciPy: python -m pip install scipy."
    )


def test_groups_that_were_never_compared_are_refused() -> None:
    """The error names both groups."""
    with pytest.raises(ParameterError, match="Nothing compares a, b with c, d"):
        svc.ranking(frame("a b left,c d left"))


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ("a b c", "must be left, right, tie or one of the two"),
        ("a a tie", "compares 'a' with itself"),
        ("a left left", "Rename the candidate"),
    ],
)
def test_a_verdict_that_means_nothing_is_refused(verdicts: str, said: str) -> None:
    """The error says what a row may have."""
    with pytest.raises(ParameterError, match=said):
        svc.ranking(frame(verdicts))


@pytest.mark.parametrize("level", [95, 0, "high", float("nan")])
def test_a_level_is_between_0_and_1(level: object) -> None:
    """Also a text or no number is refused by name."""
    with pytest.raises(ParameterError, match="level must be between 0 and 1, such as"):
        svc.ranking(frame("a b left"), level=level)  # type: ignore[arg-type]  # wrong


def test_hostile_names_are_escaped() -> None:
    """A candidate's name reaches no page as HTML."""
    pairs = frame().replace({"a": "<img src=x>"})

    assert "<img" not in svc.ranking(pairs)._repr_mimebundle_()["text/html"]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kernel whose service is an emulator."""
    with Emulator(tokens_per_s=None, first_token_s=0, limits=False) as running:
        monkeypatch.setenv("SVC_BASE_URL", running.base_url)
        monkeypatch.setenv("SVC_API_KEY", running.api_key)
        with isolated():
            yield


def pick(text: str, better: str, key: str) -> None:
    """Ask two models at once, as a panel does, and pick the reply of one."""
    talk = svc.conversation("plan")
    steps = [talk.next_turn(text, model=each, turn_key=key) for each in (A, B)]
    client = current().client
    said = [client.complete(step.request, origin=step.origin) for step in steps]
    replies = tuple(
        Compared(label=step.request.model, exchange_id=reply.exchange.exchange_id)
        for step, reply in zip(steps, said, strict=True)
    )
    talk.record(steps[0], *said, comparison=Comparison(replies=replies))
    models = [version.model for version in talk.turns[-1].versions]
    talk.prefer(len(talk.turns), 1 + models.index(better))


@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
def test_picks_of_a_panel_are_ranked() -> None:
    """Each pick is a win over the others of its turn, also of a repeated question."""
    for n in range(24):
        pick("Which?" if n < 2 else f"Which {n}?", B if n > 1 else A, f"turn{n}")
    assert current().ledger.flush()

    ranked = svc.ranking(svc.replies_df())

    assert ranked.n_units == 24
    assert ranked.df[["candidate", "n_won", "n_lost"]].to_numpy().tolist() == [
        [B, 22, 2],
        [A, 2, 22],
    ]
    assert ranked.says == f"{B} is preferred to the other, over 24 turns."


@pytest.mark.usefixtures("kernel")
def test_a_frame_without_picks_says_how_to_make_some() -> None:
    """The error names both kinds of frames."""
    svc.complete("Hello")

    with pytest.raises(ParameterError, match="Compare models in a panel"):
        svc.ranking(svc.replies_df())

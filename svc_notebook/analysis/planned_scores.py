"""The scores of a plan: functions by name, and what the ledger keeps of them.

A ready-made score is kept with its arguments. Of any other function only the name is
kept, so it must be given again after a restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from svc_notebook.service.params import must_be, shorten

from .scorers import ReadyScore, Scorer, kept_score
from .scoring import check_scorers

_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class LostFunction:
    """A function of an earlier kernel, of which the ledger has the name."""

    name: str


PlannedScores = Mapping[str, Scorer | LostFunction]


def read_scores(scores: object) -> PlannedScores:
    """Check `scores` of `svc.sweep`: functions of a row, by the name of the score."""
    if not isinstance(scores, Mapping) or None in scores.values():
        allowed = (
            "a mapping from names to functions of a row, such as "
            "{'right': svc.scores.exact('label')}"
        )
        raise must_be("scores", allowed, scores)
    check_scorers(scores)
    return dict(scores)


def scores_to_keep(scores: PlannedScores) -> dict[str, dict[str, str]]:
    """Return what the ledger keeps of scores."""
    return {name: _to_keep(score) for name, score in scores.items()}


def kept_scores(kept: Mapping[str, Mapping[str, str]]) -> PlannedScores:
    """Return the scores that the ledger kept."""
    return {name: _from_kept(how) for name, how in kept.items()}


def _from_kept(how: Mapping[str, str]) -> Scorer | LostFunction:
    if "ready" not in how:
        return LostFunction(how.get("function", "a function"))
    try:
        return kept_score(how["ready"])
    except (ValueError, TypeError, KeyError):  # of another version, or written by hand
        return LostFunction(shorten(how["ready"], _SHOWN_CHARS))


def _to_keep(score: Scorer | LostFunction) -> dict[str, str]:
    if isinstance(score, ReadyScore) and (kept := score.kept) is not None:
        return {"ready": kept}
    return {"function": name_of(score)}


def name_of(score: Scorer | LostFunction) -> str:
    """Return what a function is called in messages."""
    if isinstance(score, LostFunction):
        return score.name
    name = getattr(score, "__name__", None)
    return shorten(str(name) if name else repr(score), _SHOWN_CHARS)


def in_words(name: str, score: Scorer | LostFunction) -> str:
    """Return a score of a plan, for people who read the plan."""
    if isinstance(score, LostFunction):
        return (
            f"{name} by {score.name}, which is not kept; give scores={{{name!r}: "
            f"{score.name}}} again, or call .score({name}={score.name})"
        )
    return f"{name} by {name_of(score)}"

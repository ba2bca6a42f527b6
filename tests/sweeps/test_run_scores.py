"""Scores that cover their run: part of the plan, made as replies come, remembered."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.scores import keep_scores, read_scores
from svc_notebook.session import Session
from svc_notebook.sweeps import run_scores
from svc_notebook.sweeps.progress import RepliesSoFar
from svc_notebook.sweeps.run import plan_run
from svc_notebook.sweeps.stored_runs import stored_run
from tests.sweeps.conftest import LARGE, SMALL, answering

OpenSession = Callable[[Emulator], Session]
Mail = Literal["spam", "ham"]
ROWS = pd.DataFrame(
    {
        "mail": ["win 1", "win 2", "win 3", "hi 1", "hi 2", "hi 3"],
        "label": ["spam", "spam", "spam", "ham", "ham", "spam"],
    }
)
RIGHT = svc.scores.exact("label")


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that says a label."""
    with answering(
        {"when": {"contains": "win"}, "text": "It is **Spam**."},
        {"text": "ham"},
    ) as running:
        yield running


def _swept(session: Session, **how: Any) -> Any:  # noqa: ANN401 - any arguments
    arguments = {"rows": ROWS, "model": SMALL, "answer": Mail, **how}
    arguments = {"scores": {"right": RIGHT}, **arguments}
    return plan_run(session, "Label: {{mail}}", **arguments)


def is_short(row: Any) -> bool:  # noqa: ANN401 - a row
    """Score a reply by its length."""
    return len(row.text) < 5


def is_field(row: Any) -> dict[str, bool]:  # noqa: ANN401 - a row
    """Score two parts of a reply, and both."""
    return {"a": True, "all": len(row.text) < 5}


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that forgets what a kernel remembers of runs."""
    return lambda: monkeypatch.setattr(run_scores, "_remembered", {})


def test_a_plan_has_scores(session: Session) -> None:
    """They are in its words, and the replies have them when the run ends."""
    run = _swept(session, scores={"right": RIGHT, "short": is_short})

    assert "right by svc.scores.exact(column='label'); short by is_short" in repr(run)
    assert list(run.plan.scores) == ["right", "short"]
    run.run()
    frame = run.replies_df()
    assert frame["score_right"].tolist() == [1, 1, 1, 1, 1, 0]
    assert frame["score_short"].tolist() == [0, 0, 0, 1, 1, 1]
    assert len(read_scores(session.ledger)) == 12


@pytest.mark.slow
def test_the_progress_shows_the_rate_so_far(session: Session) -> None:
    """Each model has its own, a mean or a share, and how often a function raised."""
    rules = {"right": RIGHT, "n": lambda r: r.text.index("."), "field": is_field}
    run = _swept(session, scores=rules, model=[SMALL, LARGE]).run()

    so_far = run._scores.newest.so_far  # noqa: SLF001 - what the bars show
    assert so_far(SMALL) == RepliesSoFar(
        scores=["field_all 50 % of 6", "right 83 % of 6"], problems=["n raised for 6"]
    )


def test_the_rate_of_a_continued_run_is_of_all_its_replies(session: Session) -> None:
    """The scores of earlier replies count, as they do in the bars."""
    run = _swept(session, scores={"right": RIGHT}, name="mails").run(first=2).run()

    so_far = run._scores.newest.so_far  # noqa: SLF001 - what the bars show
    assert so_far(SMALL).scores == ["right 83 % of 6"]


def test_a_changed_function_of_a_score_is_said(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier scores stay until `score` makes all again; then nothing is said."""
    _swept(session, scores={"right": lambda _: 1}, name="mails").run()
    _swept(session, scores={"right": lambda _: 1}, name="mails")
    assert "has changed" not in capsys.readouterr().err

    again = _swept(session, scores={"right": lambda _: 0}, name="mails")

    assert capsys.readouterr().err == (
        'The function of the score right has changed since run "mails" was started. '
        "Its replies keep their scores, and only new replies get others; "
        "run.score(right=...) scores all again.\n"
    )
    again.score(right=lambda _: 0)
    _swept(session, scores={"right": lambda _: 0}, name="mails")
    assert "has changed" not in capsys.readouterr().err


def _corrected() -> pd.DataFrame:
    """Return the rows with a corrected label, which no prompt uses."""
    return ROWS.assign(label=["spam", "spam", "spam", "ham", "ham", "ham"])


def test_a_corrected_label_is_scored_again(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the reply of its row is, when the same run is planned with the label."""
    calls: list[str] = []

    def is_right(row: Any) -> bool:  # noqa: ANN401 - a row
        calls.append(row.mail)
        return bool(row.answer == row.label)

    rules = {"right": RIGHT, "own": is_right}
    first = _swept(session, name="mails", scores=rules).run()
    calls.clear()
    capsys.readouterr()

    again = _swept(session, name="mails", scores=rules, rows=_corrected())

    for _ in range(2):
        frame = again.replies_df()
        assert frame["label"].tolist()[-1] == "ham"
        assert frame["score_right"].tolist() == [1] * 6
        assert frame["score_own"].tolist() == [1] * 6
        again.run()
    assert calls == ["hi 3"]
    assert (
        "The row of 1 reply has changed since it was scored. Scored again: right, own."
    ) in capsys.readouterr().err
    first.run()  # it has the label of before
    assert first.replies_df()["score_right"].tolist() == [1, 1, 1, 1, 1, 0]


def test_labels_corrected_in_a_file_are_scored_again_after_a_restart(
    emulator: Emulator,
    open_session: OpenSession,
    restart: Callable[[], None],
    tmp_path: Path,
) -> None:
    """So it is with new rows in the file, whose requests are sent by the same pass."""
    file = tmp_path / "mails.csv"
    ROWS.to_csv(file, index=False)
    _swept(open_session(emulator), name="mails", rows=str(file)).run()
    restart()
    more = pd.DataFrame({"mail": ["win 4"], "label": ["ham"]})
    pd.concat([more, _corrected()]).to_csv(file, index=False)

    run = _swept(open_session(emulator), name="mails", rows=str(file)).run()

    frame = run.replies_df()
    assert frame["label"].tolist() == ["ham", *_corrected()["label"]]
    assert frame["score_right"].tolist() == [0, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("label", ["hams", "ham"])
def test_labels_corrected_in_a_parquet_file_are_scored_again(
    session: Session, capsys: pytest.CaptureFixture[str], tmp_path: Path, label: str
) -> None:
    """Only the replies to its rows are, also if the size of the file stays the same."""
    texts, folder = [], tmp_path / "mails"

    def is_right(row: Any) -> bool:  # noqa: ANN401 - a row
        texts.append(row.mail)
        return bool(row.label.startswith(row.text.lower()))

    folder.mkdir()
    ROWS[:3].to_parquet(folder / "1.parquet", compression=None)
    ROWS[3:].to_parquet(folder / "2.parquet", compression=None)
    how = {"rows": folder, "scores": {"right": is_right}, "answer": None}
    _swept(session, name="mails", **how).run()
    n_bytes = (folder / "2.parquet").stat().st_size
    labels = ["ham", "ham", label]
    ROWS[3:].assign(label=labels).to_parquet(folder / "2.parquet", compression=None)
    texts.clear()

    again = _swept(session, name="mails", **how)
    frame = again.replies_df()
    rebuilt = stored_run(session, "mails")

    assert ((folder / "2.parquet").stat().st_size == n_bytes) is (label == "hams")
    assert frame["label"].tolist()[3:] == labels
    assert frame["score_right"].tolist() == [0, 0, 0, 1, 1, 1]
    assert rebuilt.replies_df()["score_right"].tolist() == [0, 0, 0, 1, 1, 1]
    assert sorted(texts) == ["hi 1", "hi 2", "hi 3"]
    assert (
        "The files of 3 replies have changed since they were scored. Scored again: "
        "right."
    ) in capsys.readouterr().err


def test_scores_stay_if_the_values_of_rows_are_the_same(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows in another order, and another column, change nothing that was scored."""
    calls: list[str] = []

    def is_right(row: Any) -> bool:  # noqa: ANN401 - a row
        calls.append(row.mail)
        return bool(row.answer == row.label)

    _swept(session, name="mails", scores={"right": is_right}).run()
    capsys.readouterr()
    for rows in (ROWS, ROWS[::-1].reset_index(drop=True), ROWS.assign(note="new")):
        _swept(session, name="mails", scores={"right": is_right}, rows=rows).run()

    assert len(calls) == 6
    assert "scored again" not in capsys.readouterr().err


def test_scores_that_cannot_be_made_again_stay_when_rows_change(
    session: Session, capsys: pytest.CaptureFixture[str], restart: Callable[[], None]
) -> None:
    """Ratings by people, judgements and lost functions stay, and a line says so."""
    run = _swept(session, name="mails").run()
    run.score(short=is_short)
    frame = run.replies_df()
    frame["score_judge_good"] = 1
    frame["score_rated_good"] = 0
    keep_scores(session.ledger, frame)
    restart()
    capsys.readouterr()

    again = _swept(session, name="mails", rows=_corrected())

    assert (
        "The row of 1 reply has changed since it was scored. Kept as before: short, "
        "judge_good, rated_good; run.score(...) scores again.\n"
    ) in capsys.readouterr().err
    frame = again.run().replies_df()
    assert frame["score_right"].tolist() == [1] * 6
    assert frame["score_rated_good"].tolist() == [0] * 6
    assert frame["score_short"].tolist() == [0, 0, 0, 1, 1, 1]


def test_new_replies_get_the_scores_of_before(session: Session) -> None:
    """A function given to `score` scores what comes later, also of another `Run`."""
    calls: list[str] = []

    def right(row: Any) -> bool:  # noqa: ANN401 - a row
        calls.append(row.mail)
        return bool(row.answer == row.label)

    run = _swept(session, scores=None, name="mails").run(first=2)
    assert run.score(right=right) == 2

    run.run(first=4)
    again = stored_run(session, "mails").run()

    assert again.replies_df()["score_right"].tolist() == [1, 1, 1, 1, 1, 0]
    assert sorted(calls) == sorted(ROWS["mail"])  # each reply once


def test_a_score_may_be_given_before_the_replies(session: Session) -> None:
    """And None forgets it, at any time, also if it is of the plan."""
    run = _swept(session, scores={"n": is_short})
    assert run.score(right=RIGHT, short=is_short) == 0
    run.score(short=None)

    run.run(first=2)
    run.score(right=None, n=None)

    names = list(run.run().replies_df())
    assert [name for name in names if name.startswith("score_")] == []
    assert list(run.plan.scores) == []


@pytest.mark.slow
def test_after_a_restart_a_ready_made_score_is_still_there(
    emulator: Emulator, open_session: OpenSession, restart: Callable[[], None]
) -> None:
    """Of a function the name is left: the plan says so, and what has no score."""
    rules = {"right": RIGHT, "short": is_short}
    _swept(open_session(emulator), scores=rules, name="mails").run(first=2)
    restart()

    run = stored_run(open_session(emulator), "mails")

    said = " ".join(repr(run).split())
    assert "right by svc.scores.exact(column='label'); short by is_short, which" in said
    assert "is not kept; give scores={'short': is_short} again, or call .score(" in said
    frame = run.run().replies_df()
    assert frame["score_right"].notna().all()
    assert frame["score_short"].notna().sum() == 2
    run.score(short=is_short)
    assert "is not kept" not in repr(run)


@pytest.mark.slow
def test_unscored_replies_are_said_after_a_restart(
    emulator: Emulator,
    open_session: OpenSession,
    restart: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line counts the new ones; with the function again all have a score."""
    run = _swept(open_session(emulator), scores=None, name="mails").run(first=2)
    run.score(short=is_short, right=RIGHT)
    restart()

    session = open_session(emulator)
    _swept(session, name="mails").run()

    assert "4 new replies have no score short: this kernel does not know its " in (
        capsys.readouterr().err
    )
    given = _swept(session, name="mails", scores={"short": is_short}).run()
    assert given.replies_df()["score_short"].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_complete_run_gets_new_scores(session: Session, emulator: Emulator) -> None:
    """Nothing is sent, and replies without a score get one; None stays none."""
    calls: list[int] = []
    _swept(session, scores=None, name="mails").run()
    n_sent = len(emulator.requests)

    def only_some(row: Any) -> bool | None:  # noqa: ANN401 - a row
        calls.append(row.row)
        return True if row.row < 2 else None

    run = _swept(session, scores={"some": only_some}, name="mails").run().run()

    assert len(emulator.requests) == n_sent
    assert run.replies_df()["score_some"].tolist() == [1, 1, *[pd.NA] * 4]
    assert sorted(calls) == [0, 1, 2, 3, 4, 5]


def test_what_functions_overlook_is_said_at_the_end(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run goes on, whatever a function does."""
    rows = ROWS.assign(label=["SPAM", *["ham"] * 5])
    rules = {
        "right": RIGHT,
        "half": lambda r: 1 / (len(r.text) - 3),
        "z": lambda r: True if r.row < 3 else "no",
        "none": lambda _: None,
    }

    frame = _swept(session, rows=rows, scores=rules).run().replies_df()

    said = capsys.readouterr().err
    assert "right: 1 of 6 replies have a label that can never be the answer" in said
    assert "half raised ZeroDivisionError for 3 of 6 replies: division by zero." in said
    assert "none: the function returned None for all 6 replies" in said
    assert "z: The score z is " in said  # text or a number, whichever came first
    assert frame["status"].eq("ok").all()
    assert frame["score_half"].notna().sum() == frame["score_half_error"].notna().sum()


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (lambda _: None, "the function returned None for all 6 replies"),
        (lambda _: float("nan"), "the function returned NaN for all 6 replies"),
        (lambda _: {"a": None}, "returned a dict without values for all 6 replies"),
        (lambda row: row["row"] or None, None),
    ],
)
def test_a_function_that_scores_no_reply_is_said(
    score: Callable[[Any], Any],
    said: str | None,
    session: Session,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says what the function returned and what that means."""
    rows = pd.DataFrame({"mail": [f"mail {n}" for n in range(6)]})
    run = plan_run(session, "{{mail}}", rows=rows, model=SMALL).run()
    capsys.readouterr()

    saved = run.score(empty=score)

    shown = " ".join(capsys.readouterr().err.split())
    if said is None:
        assert saved == 5
        assert "not scored" not in shown
    else:
        assert saved == 0
        assert f"{said}, which means not scored." in shown


def test_a_run_in_the_background_is_scored(session: Session) -> None:
    """Also one that is awaited; it is over when its scores are there."""
    run = _swept(session)

    run.start().wait()
    other = _swept(session)
    asyncio.run(_awaited(other))

    for frame in (run.replies_df(), other.replies_df()):
        assert frame["score_right"].notna().all()


async def _awaited(run: Any) -> None:  # noqa: ANN401 - a run
    await run


def test_a_function_may_ask_the_service(session: Session) -> None:
    """It is called on a thread of its own, while the run goes on."""

    def judged(row: Any) -> bool:  # noqa: ANN401 - a row
        return session.client.complete(f"win? {row.text}", model=SMALL).text != ""

    assert (
        _swept(session, scores={"judged": judged})
        .run()
        .replies_df()["score_judged"]
        .tolist()
        == [1] * 6
    )


@dataclass
class Ticket:
    """A ticket."""

    city: str
    seats: int | None = None


def test_fields_of_an_answer_are_scored(open_session: OpenSession) -> None:
    """Each has its score, and there is one for all; the others have no column."""
    call = {"name": "Ticket", "arguments": {"city": "Rome", "seats": None}}
    script = [{"tool_calls": [call], "times": None}]
    rows = pd.DataFrame(
        {"mail": ["a", "b"], "gold_city": ["Rome", "Rome"], "gold_seats": [None, 2]}
    )
    with Emulator(tokens_per_s=None, first_token_s=0, script=script) as emulator:
        run = _swept(
            open_session(emulator),
            rows=rows,
            answer=Ticket,
            scores={"field": svc.scores.fields("gold_{}")},
        ).run()

    frame = run.replies_df()
    assert frame["score_field_city"].tolist() == [1, 1]
    assert frame["score_field_seats"].tolist() == [1, 0]
    assert frame["score_field_all"].tolist() == [1, 0]


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city} is wet"


def test_only_the_last_reply_of_tool_rounds_is_scored(
    open_session: OpenSession,
) -> None:
    """The rounds before it have no score."""
    with Emulator(tokens_per_s=None, first_token_s=0) as emulator:
        session = open_session(emulator)
        run = plan_run(
            session,
            "Use weather for {{city}}.",
            rows=[{"city": "Oslo"}],
            tools=[weather],
            max_tokens=200,
            scores={"rounds": lambda r: r.n_rounds},
        ).run()

    assert run.replies_df()["score_rounds"].tolist() == [2]
    assert [score.value for score in read_scores(session.ledger)] == [2]


def test_a_manifest_has_the_scores(session: Session) -> None:
    """A plan made of it has the ready-made ones, and those given with it instead."""
    manifest = _swept(session, scores={"right": RIGHT, "short": is_short}).manifest

    again = plan_run(session, manifest=manifest)
    given = plan_run(session, manifest=manifest, scores={"short": is_short})

    edited = {**manifest, "scores": {"new": {"ready": '["later", {}]'}}}
    later = plan_run(session, manifest=edited)

    assert "new by" in repr(later)
    assert "is not kept" in repr(later)
    assert repr(again.plan.scores["right"]) == repr(RIGHT)
    assert again.manifest["scores"] == manifest["scores"]
    assert list(given.plan.scores) == ["short"]


@pytest.mark.parametrize("scores", [RIGHT, ["right"], {"right": None}, {"right": 1}])
def test_scores_are_functions_by_name(session: Session, scores: object) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(ParameterError, match=r"svc\.scores\.exact\('label'\)"):
        _swept(session, scores=scores)


@pytest.mark.slow
def test_the_errors_of_a_score_are_no_score(session: Session) -> None:
    """Where a function raised, the one score is still the one that is compared."""
    fails = {"half": lambda row: 1 / row.row > 0}  # for the first row
    run = _swept(session, model=[SMALL, LARGE], scores=fails).run()

    assert "score_half_error" in run.replies_df()
    assert run.contrast("model").df["n_prompts"].tolist() == [5]


@pytest.mark.parametrize("score", [svc.scores.exact, svc.scores.contains])
def test_a_misspelt_column_of_a_score_is_found_before_sending(
    session: Session, emulator: Emulator, score: Callable[[str], Any]
) -> None:
    """Columns of the rows and of replies are known; a function may read any name."""
    rows = pd.DataFrame({"text": ["a"], "label": ["x"]})

    def planned(column: str) -> svc.Run:
        scores = {"right": score(column), "own": lambda row: row.lable}
        return plan_run(session, "{{text}}", rows=rows, scores=scores)

    with pytest.raises(ParameterError, match=r"'lable'.* Did you mean label\?.*text"):
        planned("lable")

    with pytest.raises(ParameterError, match="There are no rows with columns"):
        plan_run(session, "Hi", scores={"right": score("label")})
    assert not emulator.requests
    for column in ("label", "text", "var_text", "model", "answer_city"):
        assert len(planned(column)) == 1

"""Answers of a sweep: asked for, read, kept with a named run, and read again."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pandas as pd
import pytest

from svc_notebook.analysis import scorers
from svc_notebook.analysis.read_answers import with_kept_answers
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.reply_frames import replies_df
from svc_notebook.session import Session
from svc_notebook.sweeps.run import plan_run
from svc_notebook.sweeps.stored_runs import stored_run

OpenSession = Callable[[Emulator], Session]
Mail = Literal["spam", "ham"]
ROWS = pd.DataFrame({"mail": ["win", "hi"], "answer": ["spam", "ham"]})
CALL = {"name": "Verdict", "arguments": {"label": "spam", "sure": 0.9}}


@dataclass
class Verdict:
    """What a mail is."""

    label: str
    sure: float


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that calls the tool, if it is asked to, and else says a label."""
    script: list[dict[str, Any]] = [
        {"when": {"contains": "Verdict"}, "tool_calls": [CALL], "times": None},
        {"when": {"contains": "win"}, "text": "It is **Spam**.", "times": None},
        {"text": "7 <b>hams</b>, ham", "times": None},
    ]
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=script
    ) as running:
        yield running


def _swept(session: Session, answer: Any = None, **how: Any) -> Any:  # noqa: ANN401 - any type
    how = {"rows": ROWS, **how}
    return plan_run(session, "Label: {{mail}}", answer=answer, **how)


@pytest.mark.slow
def test_a_sweep_reads_answers(session: Session) -> None:
    """The answer has its own columns, and the column of the rows gives way to it."""
    run = _swept(session, Mail)

    assert "answer is var_answer" in repr(run)
    assert "Literal['spam', 'ham'], read from each reply" in repr(run)
    frame = run.run().replies_df()
    assert frame["answer"].tolist() == ["spam", "ham"]
    assert frame["var_answer"].tolist() == ["spam", "ham"]
    assert frame["answer_ok"].tolist() == [True, True]
    here = list(frame).index("text")
    names = ["text", "answer", "answer_ok", "answer_error"]
    assert list(frame)[here : here + 4] == names


def test_a_type_with_fields_is_offered_as_a_tool(session: Session) -> None:
    """The prompt ends with the request to call it, and the answer is the call's."""
    run = _swept(session, Verdict)

    asked = run.grid[0].request
    assert asked.messages[-1].content.startswith("Label: win\n\nAnswer by calling")
    assert [each["function"]["name"] for each in asked.tools] == ["Verdict"]
    frame = run.run().replies_df()
    assert frame["answer_label"].tolist() == ["spam", "spam"]
    assert frame["answer_sure"].tolist() == [0.9, 0.9]
    assert frame["answer"][0] == '{"label":"spam","sure":0.9}'


@dataclass
class Receipt:
    """What was paid, and when."""

    amount: Decimal
    day: date
    due: date | None = None


RECEIPTS = pd.DataFrame(
    {
        "mail": ["win", "hi"],
        "gold_amount": [Decimal("12.50"), Decimal("9.00")],
        "gold_day": ["2024-03-01", "2024-03-02"],
        "gold_due": [pd.Timestamp(2024, 4, 1), pd.NaT],
    }
)


def test_numbers_and_dates_of_fields_are_scored_and_compared(
    open_session: OpenSession,
) -> None:
    """Columns have dtypes to calculate with, in this run and when it is stored."""
    script: list[dict[str, Any]] = [
        {
            "when": {"contains": word},
            "tool_calls": [{"name": "Receipt", "arguments": arguments}],
            "times": None,
        }
        for word, arguments in {
            "win": {"amount": "12.5", "day": "2024-03-01", "due": "2024-04-01"},
            "hi": {"amount": "9.00", "day": "2024-03-03"},
        }.items()
    ]
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=script
    ) as emulator:
        how: dict[str, Any] = {"rows": RECEIPTS, "name": "receipts"}
        how["model"] = ["svc-v2-8b-instruct", "svc-v2-70b-instruct"]
        run = _swept(open_session(emulator), Receipt, **how).run()
        run.score(field=scorers.fields())

        frame = run.replies_df()

        assert frame["answer_amount"].max() == 12.5
        assert frame["answer_amount"].sum() == 43
        assert (frame["answer_day"] > "2024-03-01").tolist() == [
            False,
            False,
            True,
            True,
        ]
        assert frame["score_field_amount"].tolist() == [1, 1, 1, 1]
        assert frame["score_field_day"].tolist() == [1, 1, 0, 0]
        assert frame["score_field_due"].tolist()[:2] == [1, 1]
        assert "10.8" in repr(run.contrast("model", on="answer_amount"))
        again = _swept(open_session(emulator), Receipt, **how).replies_df()
        assert again.filter(like="answer").dtypes.equals(
            frame.filter(like="answer").dtypes
        )


def test_a_type_with_fields_takes_no_other_tools(session: Session) -> None:
    """Its own tool is the only one; tools are refused."""
    tool = {"type": "function", "function": {"name": "other"}}

    with pytest.raises(ParameterError, match="answer=Verdict is read from a tool call"):
        _swept(session, Verdict, tools=[tool])


def test_old_replies_are_read_again(session: Session) -> None:
    """Nothing is sent, and the frames have the new answers."""
    run = _swept(session, Mail).run()
    n_before = len(list(session.ledger.read()))

    found = run.read(int).replies_df()

    assert found["answer"].tolist() == [pd.NA, 7]
    assert len(list(session.ledger.read())) == n_before
    assert run.read(None).replies_df()["answer_ok"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "expected"),
    [(Mail, ["spam", "ham"]), (re.compile("S|7"), ["S", "7"]), (int, [pd.NA, 7])],
)
def test_a_named_run_keeps_its_type(
    emulator: Emulator, open_session: OpenSession, answer: object, expected: list[Any]
) -> None:
    """After a restart the answers are read as before, also from the ledger alone."""
    _swept(open_session(emulator), answer, name="mails").run()
    session = open_session(emulator)

    again = _swept(session, name="mails")

    assert again.replies_df()["answer"].tolist() == expected
    ledger = replies_df(session.ledger, scope="all", answers=with_kept_answers)
    assert sorted(map(str, ledger["answer"])) == sorted(map(str, expected))


def test_a_named_run_asks_for_a_type_it_could_not_keep(
    emulator: Emulator, open_session: OpenSession
) -> None:
    """A function must be given again, and the run says so; until then none is there."""

    def first_word(text: str) -> str:
        return text.split(maxsplit=1)[0]

    _swept(open_session(emulator), first_word, name="mails").run()

    again = _swept(open_session(emulator), name="mails")
    said = " ".join(repr(again).split())
    assert "is not kept; call .read(first_word), or give answer=first_word" in said
    assert again.replies_df()["answer"].isna().all()
    given = _swept(open_session(emulator), first_word, name="mails")
    assert given.replies_df()["answer"].tolist() == ["It", "7"]


def test_a_named_run_of_a_type_with_fields_needs_it_again(
    emulator: Emulator, open_session: OpenSession
) -> None:
    """Without the type other requests are planned; the message names only the type."""
    _swept(open_session(emulator), Verdict, name="mails").run()

    with pytest.raises(ParameterError, match="answer has changed from Verdict to None"):
        _swept(open_session(emulator), name="mails")

    again = _swept(open_session(emulator), Verdict, name="mails")
    assert again.n_todo == 0


def test_usage_is_not_grouped_by_answers(session: Session) -> None:
    """Usage is summed without reading texts, and the message names another way."""
    run = _swept(session, Mail).run()

    with pytest.raises(ParameterError, match=r"replies_df\(\)\.groupby\('answer'\)"):
        run.usage_df(by="answer", include_emulated=True)


@pytest.mark.slow
def test_a_run_is_scored_by_its_answers(session: Session) -> None:
    """A score stays with the replies, in the frames of the run and of the ledger."""
    run = _swept(session, Mail)
    assert run.score(right=lambda r: r.answer == r.var_answer) == 0  # nothing sent yet

    assert (
        run.run().score(right=scorers.exact("var_answer"), long=scorers.length()) == 4
    )

    frame = run.replies_df()
    assert frame["score_right"].tolist() == [1, 1]
    here = list(frame).index("answer") + 1
    names = ["score_right", "score_long", "answer_ok"]
    assert list(frame)[here : here + 3] == names
    assert replies_df(session.ledger)["score_right"].tolist() == [1, 1]
    run.score(right=None)
    assert "score_right" not in run.replies_df()


def test_a_label_that_no_answer_can_be_is_refused(session: Session) -> None:
    """A run knows the type of its answers, and says what is wrong with the column."""
    rows = ROWS.assign(label=["SPAM ", "Ham"])
    run = plan_run(session, "{{mail}}", rows=rows, answer=Mail).run()

    with pytest.raises(
        ParameterError, match=r"such as 'SPAM ': the answers are 'spam'"
    ):
        run.score(right=scorers.exact("label"))

    assert "score_right" not in run.replies_df()
    assert run.score(right=lambda r: r.answer == r.label.strip().lower()) == 2


def test_a_plan_says_which_labels_no_answer_can_be(session: Session) -> None:
    """It is said before a request is paid for; where all are so, nothing is planned."""
    rows = ROWS.assign(answer=["SPAM", "ham"])
    right = {"right": scorers.exact("var_answer")}

    planned = _swept(session, Mail, rows=rows, scores=right)

    said = (
        "right: 1 of 2 rows have a var_answer that can never be the answer, such as "
        "'SPAM': the answers are 'spam', 'ham' (did you mean 'spam'?)."
    )
    assert said in " ".join(repr(planned).split())
    assert said not in " ".join(repr(planned.run()).split())
    for answer in (Mail, Verdict, bool):
        with pytest.raises(ParameterError, match=r"^right: 2 of 2 rows .* was sent\.$"):
            _swept(session, answer, rows=rows.assign(answer="SPAM"), scores=right)
    rows["answer"] = pd.array(["spam", None], dtype="string")
    others: list[Any] = [Mail | None, str, None]
    for other in others:
        assert "never" not in repr(_swept(session, other, rows=rows, scores=right))


def test_a_score_needs_a_name(session: Session) -> None:
    """Without a function there is nothing to do, and the message shows how."""
    with pytest.raises(ParameterError, match=r"run\.score\(right=svc"):
        _swept(session).score()


def _warned(run: Any, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:  # noqa: ANN401 - a run
    """Return what a run prints at its end, and its text, each in one line."""
    run.run()
    return _in_a_line(capsys.readouterr().err), _in_a_line(repr(run))


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def test_answers_that_cannot_be_read_are_reported(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of a run, its text and its page say how many, why, where, and what next.

    One of 24 is as clear as all of them.
    """
    rows = [{"mail": f"win {number}"} for number in range(23)] + [{"mail": "hi"}]
    run = _swept(session, Literal["spam", "eggs"], rows=rows, model="svc-instruct")

    ended, text = _warned(run, capsys)

    why = "1 of 24 answers could not be read. The first: None of the labels is in the"
    assert ended.count(why) == text.count(why) == 1
    assert "The column answer_error of replies_df()" in ended
    assert ".read(...)" in ended
    assert "24 requests: 24 ok, 1 answer not read." in text
    assert ">1 answer not read</span>" in run._repr_mimebundle_()["text/html"]

    assert "not read" not in repr(run.read(str))


def test_a_resumed_run_counts_all_labels_that_cannot_be_right(
    emulator: Emulator, open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new kernel says it of the replies so far, and then of all; each count once."""
    rows = [
        {"mail": f"win {n}", "label": "SPAM" if n % 2 else "spam"} for n in range(8)
    ]
    how: dict[str, Any] = {"rows": rows, "name": "mails"}
    right = {"right": scorers.exact("label")}
    first = _swept(open_session(emulator), Mail, scores=right, **how)
    first.run(first=4)
    n_first = int(first.replies_df().query("status == 'ok'")["label"].eq("SPAM").sum())
    said = "have a label that can never be the answer, such as 'SPAM'"
    assert f"right: {n_first} of 4 replies {said}" in capsys.readouterr().err

    run = stored_run(open_session(emulator), "mails")

    assert f"right: {n_first} of 4 replies {said}" in _in_a_line(repr(run))
    ended, text = _warned(run, capsys)
    assert ended.count(f"right: 4 of 8 replies {said}") == 1
    assert ended.count("never be the answer") == 1
    assert "Correct the label of these rows, or leave the rows out." in ended
    assert f"right: 4 of 8 replies {said}" in text


def test_a_type_that_the_model_does_not_call_is_reported(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replies in plain text are ok, and their answers are not."""

    @dataclass
    class Sender:
        """Who wrote."""

        name: str

    ended, text = _warned(_swept(session, Sender), capsys)

    why = "2 of 2 answers could not be read. The first: The reply neither calls Sender"
    assert why in ended
    assert "2 requests: 2 ok, 2 answers not read." in text


def test_a_resumed_run_counts_all_answers_that_cannot_be_read(
    emulator: Emulator, open_session: OpenSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of earlier passes and kernels count, too, and each counts once."""
    rows = [{"mail": f"{mail} {n}"} for n in range(4) for mail in ("win", "hi")]
    how: dict[str, Any] = {"rows": rows, "name": "mails"}
    first = _swept(open_session(emulator), Literal["spam", "eggs"], **how)
    first.run(first=4)
    n_first = int((~first.replies_df()["answer_ok"].dropna()).sum())
    assert f"{n_first} of 4 answers could not be read." in capsys.readouterr().err

    run = stored_run(open_session(emulator), "mails")

    assert f"4 ok, 4 not run, {n_first} answer" in repr(run)
    ended, text = _warned(run, capsys)
    assert "4 of 8 answers could not be read." in ended
    assert "8 requests: 8 ok, 4 answers not read." in text

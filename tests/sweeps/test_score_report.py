"""A run with scores ends with what they say: by condition, differences, flips."""

import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Literal

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import Session
from svc_notebook.sweeps.run import Run, plan_run
from svc_notebook.sweeps.stored_runs import stored_run
from tests.sweeps.conftest import LARGE, SMALL, answering

pytestmark = pytest.mark.slow

MODELS = {"8b": SMALL, "70b": LARGE}
RIGHT = {"right": svc.scores.exact("label")}
ROWS = pd.DataFrame(
    {
        "mail": [f"win {n} <b>ฟรี</b>" if n % 2 else f"hi {n}" for n in range(8)],
        "label": ["spam" if n % 2 else "ham" for n in range(8)],
    }
)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose small model says ham to everything."""
    with answering(
        {"when": {"model": SMALL}, "text": "ham"},
        {"when": {"contains": "win"}, "text": "spam"},
        {"text": "ham"},
    ) as running:
        yield running


def _swept(session: Session, **how: Any) -> Run:  # noqa: ANN401 - any arguments
    arguments: dict[str, Any] = {"model": MODELS, "scores": RIGHT}
    arguments |= {"rows": ROWS, "answer": Literal["spam", "ham"], **how}
    return plan_run(session, "Label: {{mail}}", **arguments)


LINES = (
    r"right: 8b 50 % \(\d+ to \d+\); 70b 100 % \(\d+ to 100\) "
    r"[^:]*70b is right more often than 8b: 100 % against 50 %.*"
    r"Only 70b is right in 4 of 8 rows, only 8b in 0; both in 4, neither in 0\."
)


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def test_an_interrupted_report_is_one_line(session: Session) -> None:
    """The replies are there, and the run shows its scores when it is asked again."""
    run = _swept(session)
    run.run()

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "score_report":
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(svc.errors.Interrupted, match="all replies are kept"):
            repr(run)
    finally:
        sys.setprofile(None)

    assert re.search(LINES, _in_a_line(repr(run)))


def test_a_program_gets_a_few_lines(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody has to ask; without scores there are none."""
    _swept(session).run()
    assert re.search(LINES, _in_a_line(capsys.readouterr().err))

    _swept(session, scores=None).run()
    assert "right" not in capsys.readouterr().err


def test_the_run_shows_them_below_its_state(session: Session) -> None:
    """The plan's last state comes first, then drawings and flips."""
    run = _swept(session)
    assert "50 %" not in repr(run)

    bundle = run.run()._repr_mimebundle_()

    text = _in_a_line(bundle["text/plain"])
    assert re.search(rf"16 requests: 16 ok\..*{LINES}$", text)
    html = bundle["text/html"]
    assert html.index("16 ok") < html.index("<svg")
    assert html.count("<svg") == 3
    assert "Only 70b is right: 4 rows" in html
    assert "<b>ฟรี" not in html


def test_a_comparison_shows_the_correct_answer(session: Session) -> None:
    """Below "not right" nobody has to look up what would be."""
    run = _swept(session).run()

    shown = str(run.compare())

    assert "mail: win 1 <b>ฟรี</b>, label: spam\n" in shown
    assert ", label: " not in str(run.compare(rows="mail"))
    unscored = _swept(session, scores=None).run()
    assert ", label: " not in str(unscored.compare())
    unscored.score(right=svc.scores.exact("label"))
    assert ", label: spam\n" in str(unscored.compare())


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """Give a shell, and take it away again."""
    config = Config(HistoryManager={"enabled": False})
    yield InteractiveShell.instance(config=config, colors="nocolor")
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    "code", ["run.run()", "done = run.run()\nprint('later')", "run.run(); 1"]
)
def test_a_cell_shows_them_once(
    session: Session,
    shell: InteractiveShell,
    code: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are above everything that the cell outputs after the end of the run."""
    shell.user_ns["run"] = _swept(session)

    shell.run_cell(code, store_history=True)  # type: ignore[no-untyped-call]  # IPython's
    shown = _in_a_line(capsys.readouterr().out)

    assert len(re.findall(LINES, shown)) == 1
    assert shown.startswith("right: 8b")

    shell.run_cell("2")  # type: ignore[no-untyped-call]  # IPython's
    assert "70b" not in capsys.readouterr().out

    shell.run_cell("run", store_history=True)  # type: ignore[no-untyped-call]  # IPython's
    assert re.search(LINES, _in_a_line(capsys.readouterr().out))


def test_one_condition_has_its_score_alone(session: Session) -> None:
    """Where nothing varies there is nothing to compare."""
    text = repr(_swept(session, model=SMALL).run())

    assert re.search(r"\n\nright: svc-instruct 50 % \(\d+ to \d+\)$", text)


def test_one_labelled_model_has_its_score_by_its_label(session: Session) -> None:
    """A label takes the place of the model, also where there is only one."""
    text = repr(_swept(session, model={"small": SMALL}).run())

    assert re.search(r"\n\nright: small 50 % \(\d+ to \d+\)$", text)


DOCS = ROWS.assign(doc=[f"doc {n // 2}" for n in range(8)])


def test_the_unit_of_the_plan_is_that_of_all_figures(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unasked end and each verb are over documents; another unit may be given."""
    run = _swept(session, rows=DOCS, unit="doc", name="mails").run()

    said = _in_a_line(capsys.readouterr().err)
    assert "over 4 values of doc" in said
    assert "unit" in repr(_swept(session, rows=DOCS, unit="doc"))
    summed = run.summary_df(by="model")
    assert summed["n_units"].tolist() == [4, 4]
    assert summed.equals(run.summary_df(by="model", unit="doc"))
    assert run.contrast("model").df.equals(run.contrast("model", unit="doc").df)
    assert run.contrast_df("model")["n_units"].tolist() == [4]
    assert run.how_many(0.1) == run.how_many(0.1, unit="doc")
    assert run.confusion_df().equals(run.confusion_df(unit="doc"))
    assert not run.confusion_df().equals(run.confusion_df(unit="row"))
    assert run.contrast_df("model", unit="row")["n_units"].tolist() == [8]
    assert "over 8 rows" in run.contrast("model", unit="row").says[0]


def test_labels_of_a_few_rows_correct_the_scores_of_a_run(session: Session) -> None:
    """They are scores like others, over the unit of the plan; a frame has the same."""
    run = _swept(session, rows=DOCS, unit="doc", name="mails").run()
    run.score(
        rated=lambda row: row.answer == row.label if row.row < 6 else None,
        judge=lambda row: row.answer == "ham",
    )

    corrected = run.contrast("model", on="judge", labels="rated")
    trust = run.agreement(judge="judge", labels="rated")

    row = corrected.df.iloc[0]
    assert row[["n_labels", "n_scored"]].tolist() == [12, 16]
    frame = run.replies_df()
    again = svc.contrast_df(frame, "model", "judge", labels="rated", unit="doc")
    assert corrected.df.equals(again)
    assert trust.df.equals(svc.agreement(frame, "judge", "rated", unit="doc").df)
    assert trust.df["n_replies"].tolist() == [12]
    assert set(trust.disagreements["model_label"]) == set(MODELS)


def test_a_run_keeps_its_unit(session: Session) -> None:
    """The manifest and the ledger have it; of a renamed column the name in frames."""
    rows = DOCS.rename(columns={"doc": "run"})  # a column of every frame of replies
    run = _swept(session, rows=rows, unit="run", name="mails").run()

    assert tuple(run.manifest["unit"]) == ("run",)
    for again in (
        stored_run(session, "mails"),
        plan_run(session, manifest=run.manifest, name="mails"),
    ):
        assert again.contrast_df("model")["n_units"].tolist() == [4]
    other = plan_run(session, manifest=run.manifest, name="mails", unit="mail")
    assert other.contrast_df("model")["n_units"].tolist() == [8]


def test_a_unit_is_a_column_of_the_rows(session: Session) -> None:
    """A slip and a gap are found before anything is sent."""
    with pytest.raises(ParameterError, match=r"unit='dok' is not .*mean doc.*mail,"):
        _swept(session, rows=DOCS, unit="dok")
    with pytest.raises(ParameterError, match="doc is missing in 2 of 8 rows"):
        _swept(session, rows=DOCS.replace("doc 3", None), unit=["label", "doc"])

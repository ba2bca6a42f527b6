"""A run with scores ends with what they say: by condition, differences, flips."""

import re
from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import svc_notebook as svc
from svc_notebook.emulator.server import Emulator
from svc_notebook.session import Session
from svc_notebook.sweeps.run import Run, plan_run
from tests.analysis.make import LARGE, SMALL

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
    script: list[dict[str, Any]] = [
        {"when": {"model": SMALL}, "text": "ham", "times": None},
        {"when": {"contains": "win"}, "text": "spam", "times": None},
        {"text": "ham", "times": None},
    ]
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=script
    ) as running:
        yield running


def _swept(session: Session, **how: Any) -> Run:  # noqa: ANN401 - any arguments
    arguments: dict[str, Any] = {"model": [SMALL, LARGE], "scores": RIGHT}
    arguments |= {"rows": ROWS, "answer": Literal["spam", "ham"], **how}
    return plan_run(session, "Label: {{mail}}", **arguments)


LINES = (
    r"right: 8b 50 % \(\d+ to \d+\); 70b 100 % \(\d+ to 100\) "
    r"[^:]*70b is right more often than 8b: 100 % against 50 %.*"
    r"only 70b is right in 4 of 8 rows, only 8b in 0; both in 4, neither in 0\."
)


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


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
    assert "70b" not in repr(run).replace(LARGE, "")

    bundle = run.run()._repr_mimebundle_()

    text = _in_a_line(bundle["text/plain"])
    assert re.search(rf"16 requests: 16 ok\..*{LINES}$", text)
    html = bundle["text/html"]
    assert html.index("16 ok") < html.index("<svg")
    assert html.count("<svg") == 3
    assert "only 70b is right: 4 rows" in html
    assert "<b>ฟรี" not in html


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """Give a shell, and take it away again."""
    config = Config(HistoryManager={"enabled": False})
    yield InteractiveShell.instance(config=config, colors="nocolor")
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("code", ["run.run()", "done = run.run()", "run.run(); 1"])
def test_a_cell_shows_them_once(
    session: Session,
    shell: InteractiveShell,
    code: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are below the run if the cell shows it, and otherwise below the cell."""
    shell.user_ns["run"] = _swept(session)

    shell.run_cell(code)  # type: ignore[no-untyped-call]  # IPython's
    shown = _in_a_line(capsys.readouterr().out)

    assert len(re.findall(LINES, shown)) == 1
    assert shown.endswith("neither in 0.")

    shell.run_cell("2")  # type: ignore[no-untyped-call]  # IPython's
    assert "70b" not in capsys.readouterr().out


def test_one_condition_has_its_score_alone(session: Session) -> None:
    """Where nothing varies there is nothing to compare."""
    text = repr(_swept(session, model=SMALL).run())

    assert re.search(r"\n\nright: svc-v2-8b-instruct 50 % \(\d+ to \d+\)$", text)

"""The examples in docstrings run as written, against the emulator."""

import asyncio
import inspect
import re
import shutil
from dataclasses import dataclass
from doctest import (
    NORMALIZE_WHITESPACE,
    DocTest,
    DocTestFinder,
    DocTestRunner,
)
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.pandas import FrameAccessor

LOGS = Path(__file__).parents[1] / "analysis" / "data"


@dataclass
class Invoice:
    """An invoice."""

    number: int
    total: float


def weather(city: str) -> str:
    """Say how the weather in a city is."""
    return f"{city}: sunny"


def lookup(word: str) -> str:
    """Explain a word."""
    return word


def _examples() -> list[DocTest]:
    """Return the examples of public names, and of what the classes have."""
    public = {f"svc.{name}": getattr(svc, name) for name in svc.__all__}
    public |= {f"svc.scores.{n}": getattr(svc.scores, n) for n in svc.scores.__all__}
    public["df.svc"] = FrameAccessor
    find = DocTestFinder(recurse=True)
    things = [
        (name, thing) for name, thing in public.items() if not inspect.ismodule(thing)
    ]
    found = [
        test for name, thing in things for test in find.find(thing, name, globs={})
    ]
    return [test for test in found if test.examples]


def _names(source: str) -> dict[str, object]:
    """Return what an example takes for granted: a frame, types, functions, a run."""
    df = pd.DataFrame(
        {
            "text": [f"message {number}" for number in range(6)],
            "label": ["spam", "ham", "spam"] * 2,
        }
    )
    names: dict[str, object] = {"svc": svc, "pd": pd, "asyncio": asyncio, "df": df}
    names |= {"Invoice": Invoice, "weather": weather, "lookup": lookup}
    names["Literal"] = Literal
    for log in ("old.eval", "new.eval") if "read_eval" in source else ():
        shutil.copy(LOGS / log, log)
    if "scores.fields" in source:
        df = df.assign(gold_number=7, gold_total=120.0)
        return names | _asked(df, answer=Invoice)
    return names | (_asked(df) if re.search(r"run\b|replies|concat", source) else {})


def _asked(
    df: pd.DataFrame, answer: object = Literal["spam", "ham"]
) -> dict[str, object]:
    run = svc.sweep(
        "Classify: {{text}}",
        rows=df,
        model=["svc-v2-8b-instruct", "svc-v2-70b-instruct"],
        answer=answer,
        name="labels",
    ).run()
    if answer is not Invoice:
        run.score(right=svc.scores.exact("label"))
    replies = run.replies_df()
    svc.export(replies, "replies.parquet")
    a, b = replies.assign(run="a"), replies.assign(run="b")
    return {"run": run, "replies": replies, "a": a, "b": b}


@pytest.mark.slow
@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("example", _examples(), ids=lambda each: each.name)
def test_an_example_runs_as_written(example: DocTest) -> None:
    """What a docstring shows is what happens."""
    example.globs.update(_names("".join(each.source for each in example.examples)))
    runner = DocTestRunner(optionflags=NORMALIZE_WHITESPACE)
    said: list[str] = []

    runner.run(example, out=said.append)

    assert runner.failures == 0, "".join(said)


def test_no_example_is_skipped() -> None:
    """An example that does not run is not one."""
    shown = [(test.name, each) for test in _examples() for each in test.examples]

    assert [name for name, each in shown if "doctest:" in each.source] == []


def test_every_public_function_and_class_has_an_example() -> None:
    """But for errors, whose base class has one, and the hooks of `%load_ext`."""
    shown = {test.name for test in _examples()}
    public = (
        name
        for name in svc.__all__
        if not name.endswith(("Error", "_ipython_extension"))
        and not inspect.ismodule(getattr(svc, name))
    )

    without = [name for name in public if f"svc.{name}" not in shown]

    assert without == []

"""The list of conversations in the ledger, and the search in it."""

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import isolated

RAIN = {"when": {"contains": "rain"}, "text": 'It says "100 %\\wet".', "times": None}
CUT = {"when": {"contains": "Count"}, "text": "one, tw", "finish_reason": "length"}
OTHER = {"text": "Yes.", "times": None}


pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture
def script() -> list[dict[str, Any]]:
    """What the emulator answers."""
    return [RAIN, CUT, OTHER]


@contextmanager
def kernel() -> Iterator[None]:
    """Begin a kernel."""
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def three(emulator: Emulator) -> None:  # noqa: ARG001 - it must run
    """Three conversations of two kernels."""
    with kernel():
        svc.conversation("sea", system="Secret words.").ask("Is it blue?")
        svc.conversation("weather").ask("Will it rain?")
        svc.conversation("sea").ask("Is it\n  salt?", model="svc-v2-70b-instruct")
    with kernel():
        svc.conversation("เที่ยว").ask("ไปภูเก็ตวันไหนดี")


def found(search: str) -> list[str]:
    """Return the names that a search finds."""
    with kernel():
        return list(svc.conversations_df(search)["conversation"])


@pytest.mark.slow
@pytest.mark.usefixtures("three")
def test_the_newest_comes_first_with_its_turns_models_and_prompt() -> None:
    """The conversations of all kernels that use the ledger."""
    with kernel():
        frame = svc.conversations_df()

    rows = frame.drop(columns="asked_at").itertuples(index=False, name=None)
    assert list(rows) == [
        ("เที่ยว", 1, "svc-v2.1-12b-instruct", "ไปภูเก็ตวันไหนดี"),
        ("sea", 2, "svc-v2.1-12b-instruct, svc-v2-70b-instruct", "Is it salt?"),
        ("weather", 1, "svc-v2.1-12b-instruct", "Will it rain?"),
    ]
    assert frame["asked_at"].is_monotonic_decreasing


@pytest.mark.slow
@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("SEA", ["sea"]),
        ("ภูเก็ต", ["เที่ยว"]),
        ("is it blue", ["sea"]),
        ('says "100 %\\w', ["weather"]),
        ("  salt ", ["sea"]),
        ("100_%", []),
        ("%", ["weather"]),
        ("content", []),
        ("8b-instruct", []),
        ("Secret", []),
        ("user", []),
    ],
)
def test_names_prompts_and_replies_are_searched(search: str, names: list[str]) -> None:
    """Special characters stand for themselves; fields of the record are not texts."""
    assert found(search) == names


def test_a_continuation_and_a_deleted_turn_are_not_counted() -> None:
    """The prompt is the user's, not our own that asks for the rest."""
    with kernel():
        plan = svc.conversation("plan")
        plan.ask("Is it far?")
        plan.ask("Count")
        plan.go_on()
        plan.delete(1)
        frame = svc.conversations_df()

    assert list(frame[["n_turns", "prompt"]].iloc[0]) == [1, "Count"]


@pytest.mark.slow
@pytest.mark.usefixtures("three")
def test_a_damaged_exchange_hides_no_other(tmp_path: Path) -> None:
    """Its own conversation is listed, and says that it cannot be read."""
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection:
        sql = "UPDATE exchanges SET record = '{' WHERE conversation = 'weather'"
        connection.execute(sql)
        connection.commit()

    with kernel():
        frame = svc.conversations_df().set_index("conversation")
    assert frame.loc["weather", "prompt"] == "(cannot be read)"
    assert found("blue") == ["sea"]


def test_an_empty_ledger_has_none_and_the_same_dtypes() -> None:
    """A frame without rows has the dtypes of one with rows."""
    with kernel():
        empty = svc.conversations_df().dtypes
        svc.conversation("plan").ask("one")
        full = svc.conversations_df().dtypes

    assert list(empty) == list(full)

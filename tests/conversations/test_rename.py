"""A conversation gets another name, in this kernel and in the ledger."""

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated

CUT = {"when": {"contains": "Count"}, "text": "one, tw", "finish_reason": "length"}


pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture
def script() -> list[dict[str, Any]]:
    """What the emulator answers."""
    return [CUT]


@contextmanager
def kernel() -> Iterator[None]:
    """Begin a kernel."""
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def prompts(name: str) -> list[str | None]:
    """Return the prompts of a conversation after a restart."""
    with kernel():
        return [turn.prompt.content for turn in svc.conversation(name).restore().turns]


@pytest.mark.slow
def test_a_new_name_survives_a_restart() -> None:
    """Turns from before and after it, with their marks, are under the new name."""
    with kernel():
        plan = svc.conversation("plan")
        plan.ask("one")
        plan.pin(1)
        plan.rename("ภูเก็ต").ask("two")
        assert svc.conversation("ภูเก็ต") is plan
        assert svc.conversation("plan") is plan

    assert prompts("ภูเก็ต") == ["one", "two"]
    with kernel():
        assert svc.conversation("ภูเก็ต").restore().turns[0].is_pinned
        assert svc.conversation("plan") is svc.conversation("ภูเก็ต")


@pytest.mark.slow
def test_frames_know_the_new_name_and_records_stay(tmp_path: Path) -> None:
    """What was paid for keeps its text and its checksum."""
    with kernel():
        plan = svc.conversation("plan")
        plan.ask("one")
        with current().ledger.opened():
            before = _records(tmp_path)
        plan.rename("trip")
        found = svc.replies_df(conversation="trip")
        none = svc.replies_df(conversation="plan")

    assert list(found["conversation"]) == ["trip"]
    assert none.empty
    assert _records(tmp_path) == before


def _records(folder: Path) -> list[object]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        sql = "SELECT record, record_crc32 FROM exchanges"
        return connection.execute(sql).fetchall()


@pytest.mark.slow
def test_a_name_that_is_taken_is_refused() -> None:
    """Of this kernel or of another; nothing changes."""
    with kernel():
        svc.conversation("old").ask("one")
    with kernel():
        plan = svc.conversation("plan")
        plan.ask("two")
        here = svc.conversation("here")
        for name in ("old", "here"):
            with pytest.raises(svc.errors.ParameterError, match=f"'{name}' already"):
                plan.rename(name)
        with pytest.raises(svc.errors.ParameterError, match="up to 100 printable"):
            plan.rename("my\nplan")
        plan.ask("three")
        assert here.name == "here"

    assert prompts("plan") == ["two", "three"]


@pytest.mark.slow
def test_a_reply_on_its_way_follows() -> None:
    """It was asked under the old name, and is kept under the new one."""
    with kernel():
        plan = svc.conversation("plan")
        plan.ask("one")
        with plan.stream("two") as stream:
            plan.rename("trip")
            for _ in stream:
                pass
        assert [turn.prompt.content for turn in plan.turns] == ["one", "two"]

    assert prompts("trip") == ["one", "two"]


def test_a_tool_call_on_its_way_follows() -> None:
    """Renamed by a tool between two rounds, the call is restored too."""
    with kernel():
        plan = svc.conversation("plan")

        @svc.tool
        def leave(city: str) -> str:
            """Leave a city.

            Args:
                city: Which one.
            """
            plan.rename("trip")
            return f"left {city}"

        plan.ask("leave Rome", tools=[leave])

    with kernel():
        [turn] = svc.conversation("trip").restore().turns
        assert [run.name for run in turn.version.tool_runs] == ["leave"]


@pytest.mark.slow
def test_a_ledger_that_cannot_be_written_keeps_the_name(tmp_path: Path) -> None:
    """Nothing is renamed by half."""
    with kernel():
        plan = svc.conversation("plan")
        plan.ask("one")
        current().ledger.flush()
        held = sqlite3.connect(tmp_path / "ledger.sqlite")
        held.execute("BEGIN IMMEDIATE")
        with (
            closing(held),
            pytest.raises(svc.errors.LedgerError, match="another program"),
        ):
            plan.rename("trip")
        plan.ask("two")

        assert plan.name == "plan"
    assert prompts("plan") == ["one", "two"]


def test_a_name_with_the_key_is_refused(emulator: Emulator) -> None:
    """A conversation is neither made nor renamed to a name that would be recorded."""
    plan = svc.conversation("plan")

    for name in (emulator.api_key, f"my-{emulator.api_key}"):
        with pytest.raises(
            svc.errors.ParameterError, match="contains the API key"
        ) as caught:
            plan.rename(name)
        with pytest.raises(svc.errors.ParameterError, match="contains the API key"):
            svc.conversation(name)
        assert emulator.api_key not in str(caught.value)

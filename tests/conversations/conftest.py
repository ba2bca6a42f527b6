"""What tests of conversations share: an emulator, and a ledger."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated


@contextmanager
def kernel(name: str = "plan") -> Iterator[svc.Conversation]:
    """Begin a kernel, and use a conversation in it; the ledger has all of it then."""
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield svc.conversation(name)
        current().ledger.flush()


@contextmanager
def answered(*script: dict[str, Any]) -> Iterator[None]:
    """Let an emulator of its own answer."""
    with (
        Emulator(
            script=script, tokens_per_s=None, first_token_s=0, limits=False
        ) as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("SVC_BASE_URL", running.base_url)
        environment.setenv("SVC_API_KEY", running.api_key)
        yield


def prompts(plan: svc.Conversation) -> list[str | None]:
    """Return the prompts of a conversation."""
    return [turn.prompt.content for turn in plan.turns]


@pytest.fixture
def script() -> list[dict[str, Any]]:
    """What the emulator answers; a file's own fixture has more."""
    return []


@pytest.fixture
def emulator(
    script: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Emulator]:
    """An emulator, and a ledger that the kernels of a test share."""
    with Emulator(
        script=script, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        monkeypatch.setenv("SVC_BASE_URL", running.base_url)
        monkeypatch.setenv("SVC_API_KEY", running.api_key)
        monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
        monkeypatch.setenv("SVC_MODEL", "svc-v2.1-12b-instruct")  # no limit: no waiting
        yield running


@pytest.fixture
def plan(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[svc.Conversation]:
    """A conversation in a new session."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    with isolated():
        yield svc.conversation("plan")

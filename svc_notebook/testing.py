"""Pytest fixtures for tests of code that uses this package.

`svc_emulator` is an emulator of the service for one test. Add one line to a
`conftest.py`, and every test can use it:

    pytest_plugins = ["svc_notebook.testing"]

    def test_the_summary_is_kept(svc_emulator):
        notes = summarise("a long text")          # code that asks the service

        assert svc_emulator.requests[0].json["model"] == "svc-v2-8b-instruct"

During the test, SVC_BASE_URL and SVC_API_KEY are the emulator's, exchanges are kept in
memory only, and no other setting of the environment applies. The emulator answers at
once and without rate limits; a mark changes that, with keywords of
`svc_notebook.Emulator`:

    @pytest.mark.svc_emulator(script=[{"text": "positive"}], limits=True)

`svc_run` is for tests of the model itself. It returns a run from your ledger by name,
with the settings of the environment; its `recheck` asks the service:

    def test_the_model_is_no_worse(svc_run):
        checked = svc_run("tea-shop").recheck(n=40)

        assert not checked.is_worse, checked.says
"""

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import pytest

from svc_notebook import Run, run
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.service.params import did_you_mean
from svc_notebook.session import isolated
from svc_notebook.settings import ENV_NAMES


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark with pytest."""
    config.addinivalue_line(
        "markers", "svc_emulator(**keywords): arguments of the fixture's Emulator"
    )


@pytest.fixture
def svc_emulator(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Emulator]:
    """An emulator of the service on this machine, for one test."""
    keywords: dict[str, Any] = {
        "tokens_per_s": None,
        "first_token_s": 0.0,
        "limits": False,
    }
    mark = request.node.get_closest_marker("svc_emulator")
    if mark is not None and mark.args:
        raise ParameterError(
            "The mark svc_emulator takes only named arguments, those of "
            "svc_notebook.Emulator; write @pytest.mark.svc_emulator(script=[...])."
        )
    if mark is not None:
        known = list(signature(Emulator).parameters)
        for name in mark.kwargs.keys() - set(known):
            raise ParameterError(
                f"The mark svc_emulator has no argument {name!r}; its arguments are "
                f"those of svc_notebook.Emulator: {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )
        keywords |= mark.kwargs
    for name in ENV_NAMES.values():
        monkeypatch.delenv(name, raising=False)
    with Emulator(**keywords) as emulator:
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        monkeypatch.setenv("SVC_LEDGER", ":memory:")
        with isolated():  # the session is made in the test, from these settings
            yield emulator


@pytest.fixture
def svc_run() -> Iterator[Callable[[str], Run]]:
    """Return runs of the ledger by name, to recheck them with the service."""
    with isolated():
        yield run

"""The generator of the site's reference, and a session for what the reference shows."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.session import isolated

SCRIPT: list[dict[str, Any]] = [
    {"when": {"system": "You judge"}, "judge": "fair", "times": None},
    {"when": {"contains": "Say hello"}, "text": "Hello!", "times": None},
    {"when": {"contains": "story"}, "text": ["Once ", "upon a time."], "times": None},
    {"when": {"contains": "Where to begin"}, "text": "With the map.", "times": None},
    {
        "when": {"contains": "Invoice 7"},
        "tool_calls": [{"name": "Invoice", "arguments": {"number": 7, "total": 120.0}}],
    },
    {
        "when": {"contains": "Classify", "model": "svc-v2-8b-instruct"},
        "text": "spam",
        "times": None,
    },
    {"when": {"contains": "Classify"}, "text": "ham", "times": None},
]
"""What the examples in docstrings are answered."""
SOURCE = Path(__file__).parents[2] / "notebooks" / "reference.py"


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The module as Sphinx would import it."""
    spec = spec_from_file_location("reference", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pages(reference: ModuleType) -> dict[str, str]:
    """Every page by its name."""
    found: dict[str, str] = reference.pages()
    return found


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session with the emulator, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    emulator = svc.Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=SCRIPT
    )
    with emulator:
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        with isolated():
            yield

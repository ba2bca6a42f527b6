"""The demo's notebook: found, changed, marked, placed."""

import json
from pathlib import Path

import pytest

from svc_notebook.demo import quickstart
from svc_notebook.errors import SettingsError

EMULATOR = 'svc.use(endpoint=svc.Emulator(script="answers.json"))'


def test_finds_the_checkouts_own_quickstart() -> None:
    """In a checkout the demo runs notebooks/quickstart.ipynb as it stands."""
    checkout = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"

    got = quickstart.read_quickstart()

    cells = json.loads(checkout.read_text("utf-8"))["cells"]
    assert [cell["id"] for cell in got["cells"]] == [cell["id"] for cell in cells]


def test_the_quickstart_asks_the_emulator() -> None:
    """As it stands, the quickstart sends to the emulator and nowhere else."""
    used = [
        line
        for cell in quickstart.read_quickstart()["cells"]
        if cell["cell_type"] == "code"
        for line in cell["source"].splitlines()
        if "use" in line and "svc" in line
    ]

    assert used == [EMULATOR]


def test_for_the_service_one_cell_is_changed() -> None:
    """Only the cell that chooses who answers differs for the real service."""
    notebook = quickstart.read_quickstart()

    changed = quickstart.for_service(notebook)

    pairs = zip(notebook["cells"], changed["cells"], strict=True)
    different = [(a["source"], b["source"]) for a, b in pairs if a != b]
    assert different == [(EMULATOR, "%svc use service")]


def test_a_second_demo_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    """Without --out a demo never writes where an earlier one wrote."""
    first = quickstart.make_folder(None, here=tmp_path)
    second = quickstart.make_folder(None, here=tmp_path)

    assert [first.name, second.name] == ["svc-notebook-demo", "svc-notebook-demo-2"]


def test_refuses_to_write_over_a_notebook(tmp_path: Path) -> None:
    """A folder that holds a quickstart.ipynb is refused, naming the way on."""
    (tmp_path / quickstart.NAME).write_text("mine")

    with pytest.raises(SettingsError, match="choose another folder with --out"):
        quickstart.make_folder(tmp_path, here=tmp_path)


def test_refuses_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A folder below a file cannot be made; the message names --out."""
    (tmp_path / "file").write_text("")

    with pytest.raises(SettingsError, match="you can write to with --out DIR"):
        quickstart.make_folder(tmp_path / "file" / "folder", here=tmp_path)

"""The quickstart notebook of the demo: finds, reads, adapts and copies it.

With the emulator it runs unchanged; for the service, the cell with the tag `service` is
changed.
"""

import json
from copy import deepcopy
from datetime import datetime
from importlib.resources import files
from itertools import chain, count
from pathlib import Path
from shutil import copyfile

from svc_notebook.errors import SettingsError

from .run_notebook import Notebook

NAME = "quickstart.ipynb"
ANSWERS = "answers.json"  # the replies to the notebook, written by hand
FOLDER = "svc-notebook-demo"
EMULATOR = "the emulator"
_TAG = "service"


def notebooks_folder() -> Path:
    """Return the folder of the notebooks: in the installed package or the checkout.

    Raises:
        SettingsError: The notebooks are in neither.
    """
    package = Path(str(files("svc_notebook")))
    for folder in (package / "notebooks", package.parent / "notebooks"):
        if (folder / NAME).is_file():
            return folder
    raise SettingsError(
        f"The demo's notebook, {NAME}, was not installed with the package. Install "
        "it again, in a copy of its repository: "
        "python -m pip install --force-reinstall ."
    )


def read_quickstart() -> Notebook:
    """Read the quickstart notebook.

    Raises:
        SettingsError: The notebook was not installed.
    """
    notebook: Notebook = json.loads((notebooks_folder() / NAME).read_text("utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])  # in the file it may be a list
    return notebook


def for_service(notebook: Notebook) -> Notebook:
    """Return the notebook with the real service instead of the emulator."""
    changed = deepcopy(notebook)
    for cell in changed["cells"]:
        if _TAG in cell["metadata"].get("tags", []):
            cell["source"] = "%svc use service"
    return changed


def with_note(notebook: Notebook, *, who: str, now: datetime) -> Notebook:
    """Return the notebook with a first cell that says who answered, and when.

    Args:
        notebook: The notebook as it ran.
        who: Who answered: `EMULATOR` or the service's address.
        now: When it ran (aware).
    """
    when = now.strftime("%Y-%m-%d %H:%M %Z").strip()
    text = f"> This copy was run by `svc-notebook demo` on {when}.\n> "
    text += (
        "**Every reply and every number below comes from the emulator**, a program "
        "on this machine; no service was asked and nothing was spent."
        if who == EMULATOR
        else f"The replies below come from the service at {who}."
    )
    changed = deepcopy(notebook)
    note = {"cell_type": "markdown", "id": "demo-note", "metadata": {}, "source": text}
    changed["cells"].insert(0, note)
    changed["metadata"]["svc_notebook"] = {"answered_by": who}
    return changed


def make_folder(out: Path | None, *, here: Path) -> Path:
    """Make the folder that the executed notebook is written to.

    Args:
        out: The folder that the user gave; None for a new one.
        here: The parent of a new folder.

    Raises:
        SettingsError: The folder cannot be made, or has such a notebook already.
    """
    if out is not None and (out / NAME).exists():
        raise SettingsError(
            f"{out / NAME} already exists and may contain your own work; choose "
            "another folder with --out, or move that file."
        )
    names = chain([FOLDER], (f"{FOLDER}-{n}" for n in count(2)))
    folder = out or next(here / name for name in names if not (here / name).exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"The folder {folder} cannot be created ({error.strerror}); choose a "
            "folder that you can write to with --out DIR."
        ) from None
    if not (folder / ANSWERS).exists():
        copyfile(notebooks_folder() / ANSWERS, folder / ANSWERS)
    return folder

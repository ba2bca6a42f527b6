"""The quickstart notebook of the demo: where it is, what is changed in it, its copy.

Against the emulator it runs without a change; for the service the cell tagged
`service` is changed.
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
ANSWERS = "answers.json"  # what it is answered, written by hand
FOLDER = "svc-notebook-demo"
EMULATOR = "the emulator"
_TAG = "service"


def notebooks_folder() -> Path:
    """Return the folder of the notebooks: in the wheel, or else in the checkout.

    Raises:
        SettingsError: It is in neither.
    """
    package = Path(str(files("svc_notebook")))
    for folder in (package / "notebooks", package.parent / "notebooks"):
        if (folder / NAME).is_file():
            return folder
    raise SettingsError(
        f"The demo's notebook, {NAME}, was not installed with the package. Install "
        "it again: python -m pip install --force-reinstall svc-notebook."
    )


def read_quickstart() -> Notebook:
    """Read the quickstart.

    Raises:
        SettingsError: It was not installed.
    """
    read: Notebook = json.loads((notebooks_folder() / NAME).read_text("utf-8"))
    for cell in read["cells"]:
        cell["source"] = "".join(cell["source"])  # in the file it may be a list
    return read


def for_service(notebook: Notebook) -> Notebook:
    """Return the notebook asking the real service instead of the emulator."""
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
        out: The folder asked for; None for a new one.
        here: Where a new one is made.

    Raises:
        SettingsError: It cannot be made, or it already holds such a notebook.
    """
    if out is not None and (out / NAME).exists():
        raise SettingsError(
            f"{out / NAME} already exists and may contain your own work; choose "
            "another folder with --out, or move that file."
        )
    names = chain([FOLDER], (f"{FOLDER}-{n}" for n in count(2)))
    made = out or next(here / name for name in names if not (here / name).exists())
    try:
        made.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"The folder {made} cannot be created ({error.strerror}); choose a folder "
            "that you can write to with --out DIR."
        ) from None
    if not (made / ANSWERS).exists():
        copyfile(notebooks_folder() / ANSWERS, made / ANSWERS)
    return made

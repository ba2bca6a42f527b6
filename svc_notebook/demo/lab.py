"""`svc-notebook lab`: a copy of the lessons, opened in JupyterLab with an emulator.

The emulator ends with JupyterLab; an existing copy is not overwritten.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from svc_notebook import Emulator
from svc_notebook.errors import SettingsError

from .quickstart import NAME, notebooks_folder

LAB_FOLDER = "svc-notebook-tour"


def open_lab(folder: Path | None = None, options: Sequence[str] = ()) -> int:
    """Open JupyterLab with the lessons, wait for its end, return its exit status.

    Args:
        folder: The folder for the lessons; `svc-notebook-tour` here if None.
        options: Options for JupyterLab, such as --no-browser.

    Raises:
        SettingsError: JupyterLab is not installed, or the folder cannot be written.
    """
    if find_spec("jupyterlab") is None:
        raise SettingsError(
            "JupyterLab is not installed. Install it with "
            "`python -m pip install jupyterlab`, or run `svc-notebook demo`, which "
            "needs only a terminal."
        )
    tour = copy_tour(folder or Path(LAB_FOLDER))
    with Emulator() as emulator:
        print(  # noqa: T201 - the command's answer
            f"JupyterLab opens {tour}, a copy that you can change.\n"
            "An emulator of the service answers on this machine. Its replies to the "
            "lessons were written by hand.\nPress Ctrl-C twice to end both.",
            flush=True,
        )
        command = [sys.executable, "-m", "jupyterlab", *options, str(tour)]
        with subprocess.Popen(  # noqa: S603 - our own command
            command, env=lab_env(os.environ, emulator)
        ) as lab:
            signal.signal(signal.SIGTERM, lambda *_: lab.terminate())
            return _wait(lab)


def copy_tour(folder: Path) -> Path:
    """Copy the notebooks into a folder; return the one to begin with.

    Raises:
        SettingsError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "images").mkdir(exist_ok=True)
        tour = notebooks_folder()
        for source in (
            *tour.glob("*.ipynb"),
            *tour.glob("*.json"),
            *tour.glob("*.csv"),
            *tour.glob("*.toml"),
            *tour.glob("*.eval"),
            *tour.glob("images/*.png"),
        ):
            target = folder / source.relative_to(tour)
            if not target.exists():
                shutil.copyfile(source, target)
    except OSError as error:
        raise SettingsError(
            f"The folder {folder} cannot be written ({error.strerror}); choose another "
            "with --dir."
        ) from None
    return folder / NAME


def lab_env(environ: Mapping[str, str], emulator: Emulator) -> dict[str, str]:
    """Return the environment for JupyterLab, with the emulator's address and key."""
    return {
        **environ,
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
    }


def _wait(lab: "subprocess.Popen[bytes]") -> int:
    """Wait for JupyterLab, which handles Ctrl-C itself."""
    while True:
        try:
            return lab.wait()
        except KeyboardInterrupt:
            continue

"""The layers, which `lint-imports` checks, and what importing costs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from svc_notebook.emulator.emulator import Emulator

ROOT = Path(__file__).parents[1]
HEAVY = (
    *("httpx", "pandas", "ipywidgets", "httptools", "jupyter_client"),
    *("pydantic", "jsonschema"),
)


def _loaded_after(program: str) -> list[str]:
    """Return which heavy packages a fresh Python holds after a program."""
    report = (
        f"import json, sys; print(json.dumps([n for n in {HEAVY} if n in sys.modules]))"
    )
    ended = subprocess.run(  # noqa: S603 - a Python of our own
        [sys.executable, "-c", f"{program}\n{report}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    loaded: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return loaded


@pytest.mark.slow
def test_every_import_runs_downwards() -> None:
    """The contracts in pyproject.toml hold."""
    command = str(Path(sys.executable).with_name("lint-imports"))

    ended = subprocess.run(  # noqa: S603 - installed with the tests
        [command, "--no-cache"], capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert ended.returncode == 0, ended.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "import svc_notebook",
        "import svc_notebook.cli",
        (
            "from IPython.core.interactiveshell import InteractiveShell\n"
            "shell = InteractiveShell.instance()\n"
            "shell.run_line_magic('load_ext', 'svc_notebook')\n"
            "assert 'svc' in shell.magics_manager.magics['cell']\n"
            "import sys\n"
            "assert 'svc_notebook.session' not in sys.modules"
        ),
    ],
    ids=["import", "command", "load_ext"],
)
def test_nothing_heavy_is_loaded_before_it_is_used(program: str) -> None:
    """Neither the package, its command nor its extension loads what it may not need."""
    assert _loaded_after(program) == []


@pytest.mark.slow
def test_a_first_cell_loads_only_what_sends_its_request(emulator: Emulator) -> None:
    """A cell in a terminal, where no HTML is drawn, loads what speaks HTTP, no more."""
    program = (
        "import os\n"
        f"os.environ['SVC_BASE_URL'] = {emulator.base_url!r}\n"
        f"os.environ['SVC_API_KEY'] = {emulator.api_key!r}\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'svc_notebook')\n"
        "shell.run_cell_magic('svc', '', 'Hi.')\n"
        "import sys\n"
        "assert 'markdown_it' not in sys.modules\n"
        "assert 'svc_notebook.conversations.conversation' not in sys.modules"
    )

    assert _loaded_after(program) == ["httpx", "httptools"]


@pytest.mark.slow
def test_a_sweep_loads_pandas_only_for_a_frame(emulator: Emulator) -> None:
    """Planning a sweep and sending it takes no pandas; a frame of it does."""
    program = (
        "import svc_notebook as svc\n"
        f"svc.use(base_url={emulator.base_url!r}, key={emulator.api_key!r})\n"
        "run = svc.sweep(['Hi.', 'Ho.'], model='svc-v2-8b-instruct', max_tokens=5)\n"
        "run.run()\n"
    )

    assert "pandas" not in _loaded_after(program)
    assert "pandas" in _loaded_after(f"{program}run.replies_df()")


@pytest.mark.slow
def test_a_question_loads_pydantic_only_for_a_tool(emulator: Emulator) -> None:
    """A plain question and a ready-made definition do without; a function needs it."""
    program = (
        "import svc_notebook as svc\n"
        f"svc.use(base_url={emulator.base_url!r}, key={emulator.api_key!r})\n"
        "about = {'name': 'a', 'description': 'A.'}\n"
        "svc.complete('Hi.', tools=[{'type': 'function', 'function': about}])\n"
    )

    assert "pydantic" not in _loaded_after(program)
    assert "pydantic" in _loaded_after(f"{program}svc.tool(lambda: 0, name='b')")


@pytest.mark.slow
def test_plain_python_needs_no_notebook() -> None:
    """Importing the package outside a notebook loads no IPython."""
    program = "import svc_notebook, sys; assert 'IPython' not in sys.modules"

    assert _loaded_after(program) == []


def test_folders_hold_a_docstring_and_nothing_else() -> None:
    """A folder's `__init__.py` has no code: names are imported where they are made."""
    folders = (ROOT / "svc_notebook").glob("*/**/__init__.py")

    with_code = [
        str(path.relative_to(ROOT))
        for path in folders
        if len(compile(path.read_text("utf-8"), path, "exec").co_names) > 1
    ]

    assert with_code == []

"""Draws what the magic shows, in both front ends and themes, and an export; not tests.

    python -m pytest -o "python_functions=draw_*" tests/browser/looks.py

The pictures are written into the folder that LOOKS_FOLDER names.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from svc_notebook.emulator.server import Emulator
from tests.browser.conftest import Bench
from tests.browser.pictures import _theme

FOLDER = Path(os.environ.get("LOOKS_FOLDER", "looks"))
READ = """\
Use `pandas.read_csv` and tell it which column holds the dates:

```python
import pandas as pd

df = pd.read_csv("rain.csv", parse_dates=["day"])
df.groupby(df["day"].dt.month)["mm"].mean()
```

| column | meaning |
|:-------|--------:|
| day | the date |
| mm | rain, in millimetres |

The mean of a month is $\\bar{x} = \\frac{1}{n}\\sum_i x_i$.
"""
LONG = "unbroken" * 60
SCRIPT: list[dict[str, Any]] = [
    {"when": {"contains": "read it"}, "text": f"{READ}\n\n{LONG}", "times": None},
    {
        "when": {"contains": "filtered"},
        "text": "I cannot say",
        "finish_reason": "content_filter",
        "times": None,
    },
    {
        "when": {"contains": "too long"},
        "text": "One, two, three",
        "finish_reason": "length",
        "times": None,
    },
    {"when": {"contains": "refused"}, "status": 401, "times": None},
    {"when": {"contains": "broken"}, "status": 500, "times": None},
    {
        "when": {"contains": "stuck"},
        "text": ["**Partial** ", "answer"],
        "cut_after": 2,
        "end": "silent",
    },
    {"when": {"contains": "awaited"}, "text": ["x"], "cut_after": 0, "end": "silent"},
]
MODELS = ("svc-v2-8b-instruct", "svc-v2-70b-instruct")
CELLS = (
    "%%svc\nread it",
    "%%svc --tools none\ntoo long",
    "%svc continue",
    "%%svc\nfiltered",
    "%%svc\nrefused",
    "%%svc\nbroken",
    f"%%svc -m {','.join(MODELS)} -t 0,0.7,1.4 --max-tokens 40\nSpeak of tea",
    "%%svc -n 3 --max-tokens 40\nThree names",
    "def weather(city: str) -> str:\n    'Tell the weather.'\n    return 'rain'",
    "%%svc --tools weather --confirm-tools none\nUse weather for Rome",
    "%svc usage emulated",
    "%svc models",
    "%svc help",
    "%%svc --dry-run --system 'Be brief.'\nWhat is in it?",
    "%%svc -c plan\nPlan a day by the sea",
    "%svc history plan",
)
LAST = ("%%svc\nget stuck", "%%svc\nlong awaited")


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with a script for each case, and its own words for the rest."""
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


@pytest.mark.parametrize("place", ["lab", "notebook"])
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def draw_looks(bench: Bench, place: str, theme: str) -> None:
    """Each cell is a picture."""
    FOLDER.mkdir(exist_ok=True)
    page = bench.page()
    page.set_viewport_size({"width": 1000, "height": 1000})
    notebook = bench.open(bench.write("looks", *CELLS, *LAST), page, place=place)
    notebook.wait_idle()
    _theme(page, f"JupyterLab {theme}")
    if place == "lab":
        notebook.command("application:toggle-left-area")
    for cell in range(len(CELLS) + 1):
        notebook.run(cell)
        expect(notebook.cells.nth(cell).locator(".jp-InputPrompt")).to_have_text(
            f"[{cell + 1}]:"
        )
        notebook.wait_idle()
    stuck, awaited = len(CELLS) + 1, len(CELLS) + 2
    notebook.run(stuck)
    expect(notebook.shown(stuck)).to_contain_text("Partial answer")
    notebook.command("notebook:interrupt-kernel")
    notebook.wait_idle()
    notebook.run(awaited)
    expect(notebook.shown(awaited)).to_contain_text("waiting")
    for cell in range(1, awaited + 1):
        notebook.cells.nth(cell).scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        name = f"{place}-{theme}-{cell:02}.png"
        notebook.cells.nth(cell).screenshot(path=FOLDER / name)
    notebook.save()
    notebook.command("notebook:interrupt-kernel")
    notebook.wait_idle()
    page.wait_for_timeout(500)
    notebook.cells.nth(awaited).screenshot(
        path=FOLDER / f"{place}-{theme}-{awaited + 1:02}.png"
    )
    if (place, theme) == ("lab", "Light"):
        subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "nbconvert", "--to", "html", str(notebook.path)],
            check=True,
        )
        page.goto(notebook.path.with_suffix(".html").as_uri())
        page.wait_for_timeout(2000)
        page.screenshot(path=FOLDER / "export.png", full_page=True)

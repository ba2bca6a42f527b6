"""Remarks in a cell: quiet lines and warnings, not the pink box of stderr."""

import pytest

from tests.notebook.conftest import Kernel

UNSCORED = """
import pandas as pd, svc_notebook as svc
replies = svc.as_replies(
    pd.DataFrame({"item": range(5), "model": "m", "good": [True, None, *[False] * 3]}),
    row="item", scores="good",
)
df = svc.summary_df(replies)
"""


@pytest.fixture
def noted(kernel: Kernel) -> tuple[str, dict[str, str]]:
    """What a cell with a missing score printed, and the bundle it displayed."""
    ran = kernel.run(UNSCORED)
    printed = "".join(content["text"] for content in ran.all("stream"))
    (shown,) = ran.all("display_data")
    return printed, shown["data"]


def test_a_note_is_a_quiet_line(noted: tuple[str, dict[str, str]]) -> None:
    """Nothing is on stderr; the line is grey and breaks between words."""
    printed, bundle = noted

    assert printed == ""
    assert bundle["text/plain"] == (
        "1 of 5 replies has no score `good`; the figures leave it out, and with it 1 "
        "of 5 rows."
    )
    assert "color:#767676" in bundle["text/html"]


def test_a_warning_has_a_coloured_edge(kernel: Kernel) -> None:
    """A line about numbers that may be wrong is not grey, and is not on stderr."""
    ran = kernel.run(
        "import pandas as pd, svc_notebook as svc\n"
        'svc.as_replies(pd.DataFrame({"right": [True]}), scores="right");'
    )

    (shown,) = ran.all("display_data")
    assert ran.all("stream") == []
    assert shown["data"]["text/plain"].startswith("Neither row= nor prompt= is given")
    assert "border-left" in shown["data"]["text/html"]
    assert "#767676" not in shown["data"]["text/html"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("%svc hide 'a <b>' 1", "%svc unhide 'a &lt;b&gt;' 1"),
        ("%svc pin 'a <b>' 1", "%svc unpin 'a &lt;b&gt;' 1"),
        ("%svc use emulator", "%svc Tell me a joke"),
    ],
)
def test_what_a_command_says_shows_code_as_code(
    kernel: Kernel, line: str, code: str
) -> None:
    """A notebook has no backticks, as in errors; the text for a terminal has them."""
    kernel.run("%load_ext svc_notebook")
    kernel.run("%svc use emulator")
    kernel.run("%%svc -c 'a <b>'\nHi")

    (shown,) = kernel.run(line).all("display_data")

    assert f"border-radius:3px'>{code}</code>" in shown["data"]["text/html"]
    assert "`" not in shown["data"]["text/html"]
    assert "`" in shown["data"]["text/plain"]

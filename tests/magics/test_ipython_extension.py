"""A `%%svc` cell reaches the magic as it was typed, also if that must load first."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from svc_notebook.magics.ipython_extension import CellTransform


def body_of(cell: str) -> str:
    """Return the body that IPython would pass to the magic for this cell."""
    transformers = TransformerManager()  # type: ignore[no-untyped-call]  # IPython's
    transformers.cleanup_transforms.insert(0, CellTransform())
    received: list[str] = []

    class Shell:
        def run_cell_magic(self, _name: str, _line: str, body: str) -> None:
            received.append(body)

    exec(transformers.transform_cell(cell), {"get_ipython": Shell})  # noqa: S102 - our own code
    return received[0]


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_body_arrives_unchanged(body: str) -> None:
    """Any text that does not end in a line end arrives as it was typed."""
    if body.endswith(("\n", "\r")):
        return

    assert body_of("%%svc\n" + body) == body


@pytest.mark.parametrize(
    "body",
    [
        ">>> print(1)\n... 2",
        "In [1]: x\n   ...: y",
        "   \n  indented\n\t\n",
        "%%svc\nnested",
        "x?\n!ls\n%time",
        "back\\\nslash",
    ],
)
def test_what_ipython_would_clean_is_kept(body: str) -> None:
    """Prompts, blank lines, magics and shell escapes in a body stay text."""
    assert body_of("%%svc -t 1\n" + body + "\n") == body


_INTERRUPTED_IMPORT = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "svc_notebook")

class Finder:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
shell.run_cell("%svc help")
print("-----")
shell.run_cell("%svc help")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "svc_notebook.magics.svc_command",
        "svc_notebook.tools.rounds",
        "svc_notebook.session",
    ],
)
def test_an_interrupt_of_the_first_imports_is_one_line(module: str) -> None:
    """The first cell says that it was interrupted; run again, it works."""
    code = [sys.executable, "-c", _INTERRUPTED_IMPORT, module]

    ended = subprocess.run(code, capture_output=True, text=True, check=True)  # noqa: S603 - our own interpreter

    first, again = ended.stdout.split("-----")
    assert first.split("\n") == [
        "(interrupted while loading; nothing was sent)",
        "",
    ]
    assert "%%svc" in again
    assert "Traceback" not in again


@pytest.mark.slow
def test_an_interrupt_of_a_later_import_is_one_line() -> None:
    """What a command alone needs is loaded when it runs."""
    code = [
        sys.executable,
        "-c",
        _INTERRUPTED_IMPORT,
        "svc_notebook.magics.subcommands",
    ]

    ended = subprocess.run(code, capture_output=True, text=True, check=True)  # noqa: S603 - our own interpreter

    first, again = ended.stdout.split("-----")
    assert first == "[interrupted] nothing was sent\n"
    assert "%%svc" in again
    assert "Traceback" not in again

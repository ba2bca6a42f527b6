"""The source of a `%%svc` cell reaches the magic as it was typed."""

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

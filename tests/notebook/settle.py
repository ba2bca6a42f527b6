"""Run the notebooks and save their outputs, settled.

    python tests/notebook/settle.py [NAME.ipynb ...]

What it is not: a test; the tests run the notebooks again and compare. It writes
no times and joins what was printed in pieces, so that a notebook whose outputs
are the same is the same file.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def settle(path: Path) -> None:
    """Run one notebook and write it back.

    Raises:
        CellExecutionError: A cell failed; the file is left as it was.
    """
    notebook = nbformat.reads(path.read_text("utf-8"), as_version=4)
    client = NotebookClient(
        notebook,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata["language_info"] = {"name": "python"}
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def main(names: Sequence[str]) -> int:
    """Settle the notebooks named, or all of them."""
    for path in map(Path, names) if names else sorted(NOTEBOOKS.glob("*.ipynb")):
        settle(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Code that a cell puts below itself is there once, in JupyterLab and Notebook 7."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook

CELLS = "window.jupyterapp.shell.currentWidget.content.model.cells"
N_TEXTS = 4


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that writes the same code, or other code each time."""
    always = {"when": {"contains": "same"}, "text": "```py\nx = 1 < 2\n```"}
    others = [{"text": f"```py\ny = {n}\n```"} for n in range(N_TEXTS)]
    with Emulator(script=[always | {"times": None}, *others], limits=False) as running:
        yield running


def sources(notebook: Notebook) -> list[str]:
    """Return the texts of the cells below the first one."""
    texts: list[str] = notebook.page.evaluate(
        f"() => [...{CELLS}].map((cell) => cell.sharedModel.getSource())"
    )
    return texts[1:]


def wait_for_sources(notebook: Notebook, wanted: list[str]) -> None:
    """Wait until the cells below the first one have these texts."""
    notebook.page.wait_for_function(
        f"""(wanted) => JSON.stringify(wanted) === JSON.stringify(
          [...{CELLS}].slice(1).map((cell) => cell.sharedModel.getSource()))""",
        arg=wanted,
    )


def run_again(notebook: Notebook, cell: int, note: str) -> None:
    """Run a cell, until its note shows that it ran."""
    notebook.run(cell)
    expect(notebook.shown(cell)).to_contain_text(note)
    notebook.wait_idle()


def with_code(bench: Bench, name: str, place: str) -> Notebook:
    """Open a notebook whose third cell has put code below itself."""
    path = bench.write(name, "%%svc\nThe same", "%svc insert", "'last'")
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    notebook.run(1)
    run_again(notebook, 2, "The code is in the next cell")
    return notebook


def test_run_all_again_adds_no_second_copy(bench: Bench, place: str) -> None:
    """The code is directly below its cell, and only a later Run All runs it."""
    cells = ("%%svc -f code\nThe same", "%svc insert", "'last'")
    notebook = bench.open(bench.write(f"all-{place}", *cells), place=place)
    notebook.run_all()
    expect(notebook.shown(1)).to_contain_text("is in the next cell, and was not run")
    expect(notebook.shown(5)).to_contain_text("last")
    code = "x = 1 < 2"
    once = [cells[0], code, cells[1], code, cells[2]]
    assert sources(notebook) == once
    assert notebook.output(4) == ""
    expect(notebook.cells.nth(2)).to_contain_text("[ ]:")

    notebook.run_all()

    expect(notebook.shown(1)).to_contain_text("the code is already in the next cell")
    expect(notebook.shown(3)).to_contain_text("The code is already in the next cell")
    expect(notebook.cells.nth(4)).to_contain_text("[9]:")
    notebook.wait_idle()
    assert sources(notebook) == once


def test_only_code_that_nobody_touched_is_replaced(bench: Bench, place: str) -> None:
    """A cell that was edited, or was run, is left alone."""
    ask = "%%svc -f code\nOther"
    path = bench.write(f"other-{place}", ask, "'last'")
    notebook = bench.open(path, place=place)
    notebook.wait_idle()
    notebook.run(0)
    run_again(notebook, 1, "is in the next cell, and was not run")
    run_again(notebook, 1, "replaced earlier code in the next cell, and was not run")
    wait_for_sources(notebook, [ask, "y = 1", "'last'"])

    notebook.enter(2)
    notebook.page.keyboard.type(" + 1")
    run_again(notebook, 1, "is in the next cell, and was not run")
    wait_for_sources(notebook, [ask, "y = 2", "y = 1 + 1", "'last'"])

    notebook.run(2)
    expect(notebook.cells.nth(2)).to_contain_text("[5]:")
    run_again(notebook, 1, "is in the next cell, and was not run")
    wait_for_sources(notebook, [ask, "y = 3", "y = 2", "y = 1 + 1", "'last'"])


def test_code_that_was_corrected_stays_alone(bench: Bench, place: str) -> None:
    """Run All does not bring back what was wrong, and a new kernel does not either."""
    notebook = with_code(bench, f"right-{place}", place)
    notebook.enter(3)
    notebook.page.keyboard.type(" or 2")
    corrected = ["%%svc\nThe same", "%svc insert", "x = 1 < 2 or 2", "'last'"]
    said = "The code is in a cell below, where you have changed it since"
    notebook.run_all()

    expect(notebook.shown(2)).to_contain_text(said)
    expect(notebook.cells.nth(4)).to_contain_text("[8]:")
    wait_for_sources(notebook, corrected)
    notebook.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()"
    )
    notebook.run_all()
    expect(notebook.cells.nth(4)).to_contain_text("[5]:")
    expect(notebook.shown(2)).to_contain_text(said)
    wait_for_sources(notebook, corrected)


def test_code_that_was_deleted_is_put_there_again(bench: Bench, place: str) -> None:
    """The cell that asks for it need not change."""
    notebook = with_code(bench, f"again-{place}", place)
    once = ["%%svc\nThe same", "%svc insert", "x = 1 < 2", "'last'"]
    wait_for_sources(notebook, once)
    notebook.enter(3)
    notebook.command("notebook:delete-cell")
    expect(notebook.cells).to_have_count(4)

    notebook.run(2)

    wait_for_sources(notebook, once)
    expect(notebook.shown(2)).to_contain_text("The code is in the next cell")

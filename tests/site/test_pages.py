"""The site's source: pages that say what is true, and lead somewhere.

The built site is looked at in tests/browser/test_site.py.
"""

import re
from pathlib import Path

import pytest

from svc_notebook.demo.lab import copy_tour
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.catalogue import MODELS
from svc_notebook.timeouts import Timeouts

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PAGES = sorted(path.name for path in NOTEBOOKS.glob("*.md"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
FILES = re.compile(r"`((?:svc_notebook|tests)/[\w/.]+)`")


def _text(name: str) -> str:
    return (NOTEBOOKS / name).read_text("utf-8")


def _words(sql: str) -> str:
    return " ".join(sql.replace('"', "").replace(";", "").split())


@pytest.mark.parametrize("name", PAGES)
def test_its_links_lead_somewhere(name: str) -> None:
    """A link on a page is to a file beside it, on a code host as on the site."""
    links = LINK.findall(_text(name))

    assert [link for link in links if not (NOTEBOOKS / link).is_file()] == []


@pytest.mark.parametrize("name", PAGES)
def test_the_files_that_it_names_exist(name: str) -> None:
    """A page that names a file of the repository names one that is there."""
    root = NOTEBOOKS.parent

    assert [
        each for each in FILES.findall(_text(name)) if not (root / each).exists()
    ] == []


def test_nobody_is_sent_to_an_index() -> None:
    """No page or message installs the package by its name: no index has it."""
    root = NOTEBOOKS.parent
    paths = (
        *(NOTEBOOKS / name for name in PAGES),
        *NOTEBOOKS.glob("*.ipynb"),
        *(root / "svc_notebook").rglob("*.py"),
        root / "README.md",
    )

    by_name = re.compile(r"pip install (?:--?[\w-]+ )*['\"]?svc[-_]notebook\b")
    assert [path for path in paths if by_name.search(path.read_text("utf-8"))] == []


def test_the_schema_is_the_ledgers(tmp_path: Path) -> None:
    """The page has every table and index of a new ledger, as SQLite has them."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with ledger.opened() as connection:
        made = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
        ).fetchall()
    ledger.close()

    block = _text("ledger.md").split("```sql\n")[1].split("```")[0]

    shown = [_words(each) for each in block.split(";\n") if each.strip()]
    assert sorted(shown) == sorted(_words(sql) for (sql,) in made)


def test_the_limits_are_the_catalogues() -> None:
    """The page has the model limits that the package keeps to, and no others."""
    rows = re.findall(
        r"^\| `(svc-\S+)` \| (\d+) \| (\d+) \|$", _text("limits.md"), re.MULTILINE
    )

    assert {name: (int(each), int(minute)) for name, each, minute in rows} == {
        model.id: (model.limit.per_second, model.limit.per_minute)
        for model in MODELS
        if model.limit
    }


def test_the_time_outs_are_the_settings() -> None:
    """The page has the default of every time-out."""
    rows = re.findall(r"^\| `(\w+_s)` \| ([\d.]+) \|", _text("limits.md"), re.MULTILINE)

    shown = {name: float(value) for name, value in rows}
    assert Timeouts(**shown) == Timeouts()
    assert set(shown) == set(Timeouts.__dataclass_fields__)


def test_the_tour_is_copied_without_the_site(tmp_path: Path) -> None:
    """`svc-notebook lab` copies lessons and what they read, not the site's source."""
    copy_tour(tmp_path)

    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds == {".ipynb", ".json", ".csv", ".toml", ".eval", ".png"}

"""The documentation site, as a reader meets it: built once, read from its files."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.panel_page import axe_findings

ROOT = Path(__file__).parents[2]
PAGES = ("index", "start", "compare", "how-it-works")
BUILD_S = 600


class Links(HTMLParser):
    """What a page refers to, and the places in it.

    Attributes:
        ids: Of its elements.
        links: Addresses that a reader may follow.
        loaded: Addresses that a browser fetches by itself.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take one element."""
        found = {name: value or "" for name, value in attrs}
        self.ids.add(found.get("id", ""))
        if tag == "a":
            self.links += [found["href"]] if "href" in found else []
        else:
            self.loaded += [found[name] for name in ("src", "href") if name in found]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site: the one that SVC_SITE names, else one that is built."""
    if built := os.environ.get("SVC_SITE"):
        return Path(built)
    if find_spec("myst_nb") is None or find_spec("pydata_sphinx_theme") is None:
        pytest.skip("the site needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # noqa: S603 - our own command
        [
            *(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"),
            *("-d", folder / "doctrees", ROOT / "notebooks", folder / "html"),
        ],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    """Every page with what it refers to."""
    return {
        path: Links(path)
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts  # the theme's templates
    }


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Links]) -> None:
    """Scripts, styles, fonts and pictures are files of the site."""
    foreign = [
        (path.name, address)
        for path, page in pages.items()
        for address in page.loaded
        if urlsplit(address).scheme not in ("", "data") or address.startswith("//")
    ]

    assert foreign == []


def test_no_link_is_dead(site: Path, pages: dict[Path, Links]) -> None:
    """Each link inside the site leads to a file, and to a place in it."""
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            place = unquote(parts.fragment)
            target = (path.parent / unquote(parts.path)).resolve()
            target = target if parts.path else path
            is_there = target not in pages or not place or place in pages[target].ids
            if not (target.is_file() and is_there):
                dead.append((str(path.relative_to(site)), link))

    assert dead == []


def test_every_lesson_is_there(site: Path) -> None:
    """Each notebook is a page, with the outputs that it was saved with."""
    lessons = [path.stem for path in (ROOT / "notebooks").glob("*.ipynb")]

    without = [
        name
        for name in lessons
        if 'class="output' not in (site / f"{name}.html").read_text("utf-8")
    ]

    assert len(lessons) > 1
    assert without == []


def test_search_finds_a_page_from_its_files(browser: Browser, site: Path) -> None:
    """Without a server and a network, a search lists the pages with the word."""
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.goto((site / "search.html").as_uri() + "?q=keyring")

    found = page.locator(
        "#search-results li a", has_text="Keys, and what is kept where"
    )
    expect(found.first).to_be_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(
    browser: Browser, site: Path, theme: Literal["light", "dark"]
) -> None:
    """Everybody can read and use it, in both themes, on narrow and wide screens."""
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    page = browser.new_page(color_scheme=theme)

    found = {}
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            found[name, width] = axe_findings(page, axe, root="html")
    page.close()

    assert {at: each for at, each in found.items() if each} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_picture_follows_the_theme(
    browser: Browser, site: Path, theme: Literal["light", "dark"]
) -> None:
    """Of a picture that was drawn in both themes, a page shows the fitting one."""
    page = browser.new_page(color_scheme=theme)
    page.goto((site / "quickstart.html").as_uri())

    shown = page.locator("img[src*='quickstart']:visible")

    expect(shown).to_have_count(1)
    end = "quickstart-dark.png" if theme == "dark" else "quickstart.png"
    assert (shown.get_attribute("src") or "").endswith(end)
    page.close()


def test_no_page_is_wider_than_a_phone(
    browser: Browser, site: Path, pages: dict[Path, Links]
) -> None:
    """At 400 pixels nothing but tables, code and outputs scrolls sideways."""
    page = browser.new_page(viewport={"width": 400, "height": 900})
    wide = []
    for path in pages:
        page.goto(path.as_uri())
        width = page.evaluate("() => document.documentElement.scrollWidth")
        wide += [(str(path.relative_to(site)), width)] if width > 400 else []
    page.close()

    assert wide == []

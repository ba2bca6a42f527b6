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

from svc_notebook import __version__
from tests.browser.panel_page import axe_findings

ROOT = Path(__file__).parents[2]
PAGES = ("index", "start", "cookbook", "compare", "how-it-works", "reference/index")
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


def test_the_movie_comes_before_the_command(browser: Browser, site: Path) -> None:
    """The first page shows what it is like, then the command, whole on a phone."""
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto((site / "index.html").as_uri())
    movie = page.locator("img[src*='movie']:visible")
    command = page.locator("pre", has_text="svc-notebook demo")

    expect(movie).to_have_count(1)
    above, below = movie.bounding_box(), command.bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]
    assert command.evaluate("pre => pre.scrollWidth <= pre.clientWidth")
    page.close()


def test_each_page_has_the_version_and_an_icon(browser: Browser, site: Path) -> None:
    """They are in the head of the page, and in the tab."""
    page = browser.new_page()
    page.goto((site / "guides.html").as_uri())

    expect(page.locator("header .navbar-brand").first).to_contain_text(__version__)
    icon = page.locator("link[rel='icon']").get_attribute("href") or ""
    assert (site / icon).is_file()
    page.close()


def test_a_button_copies_a_block_of_code(browser: Browser, site: Path) -> None:
    """Code is copied as it is, and a console's without its prompts and results."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()

    copied = []
    for name, text in (("index", "svc-notebook demo"), ("reference/tools", ">>> ")):
        page.goto((site / f"{name}.html").as_uri())
        block = page.locator("div.highlight", has_text=text).first
        block.hover()
        block.get_by_role("button", name="Copy").click()
        expect(block.get_by_role("button", name="Copied")).to_be_visible()
        copied.append(page.evaluate("() => navigator.clipboard.readText()"))
    context.close()

    assert copied[0] == "python -m pip install . && svc-notebook demo"
    assert copied[1]
    assert ">>>" not in copied[1]


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

"""The views that a panel sends to its page: what is in them, and how much."""

from collections.abc import Iterator

import pytest

from svc_notebook.emulator.server import Emulator
from tests.panels.conftest import OpenPage


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without limits."""
    with Emulator(
        keys=["svc-key-of-this-test-4b1c"],
        tokens_per_s=None,
        first_token_s=0,
        limits=False,
    ) as running:
        yield running


def test_the_view_holds_no_key(open_page: OpenPage, emulator: Emulator) -> None:
    """Neither state nor messages nor the repr hold the key or a header."""
    page = open_page()
    page.ask("Hello")

    said = f"{page.comm.published!r} {page.panel.get_state()!r} {page.panel!r}"

    assert emulator.api_key not in said
    assert "Authorization" not in said
    synced = {name for name in page.panel.keys if not name.startswith("_")}
    assert synced == {"layout", "tabbable", "tooltip", "view"}


def test_a_view_carries_the_turns_that_changed(open_page: OpenPage) -> None:
    """What a page has is not sent again; one that says hello gets everything."""
    page = open_page()
    ids = [page.ask(text)["id"] for text in ("One", "Two", "Three")]
    page.comm.published.clear()

    fourth = page.ask("Four")["id"]
    page.say("pin", turn=ids[0])
    brought = [each["id"] for view in page.views for each in view["turns"]]
    page.say("hello", seq=page.numbers[-1])
    n_views = len(page.views)
    page.say("hello")

    assert brought == [fourth, ids[0]]
    assert len(page.views) == n_views + 1
    assert all("fields" not in view for view in page.views[:-1])
    assert page.views[-1]["is_whole"]
    assert [each["id"] for each in page.views[-1]["turns"]] == [*ids, fourth]


def test_a_broken_message_is_answered_in_words(open_page: OpenPage) -> None:
    """What the browser may not say changes nothing and is said in the notice."""
    page = open_page()

    page.say("nonsense")

    assert "reload" in page.view["notice"]

"""The kernel's part of a rating's panel: what a page may ask for, and what it gets."""

import json
import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import comm
import pytest
from nbconvert import HTMLExporter

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.ledger.ratings import read_ratings
from svc_notebook.panels.rating_panel import ACTIONS, RatingPanel
from svc_notebook.panels.widget import script
from svc_notebook.session import current, isolated
from tests.notebook.conftest import Kernel
from tests.panels.conftest import Page, PageComm
from tests.panels.protocol import Fields, of_kind, types_of

KEY = "svc-key-of-this-test-77aa"
TEXT = "An answer with **bold** words and <script>window.ran = 1</script>."
MODELS = ["svc-instruct", "svc-v2.1-12b-instruct"]  # no limit, so nothing waits
VIEW = "application/vnd.jupyter.widget-view+json"
WORDS = ["one", "two", "three"]
KIND = re.compile(r'\b(?:send|sendOnCard)\(\{? ?(?:t: )?"(\w+)"')
OPEN = """\
import svc_notebook as svc
rows = [{"word": word} for word in ("one", "two", "three")]
run = svc.sweep("Explain {{word}}", rows=rows, name="words").run()
run.rate(rater="anna")"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose models each say the same to all."""
    script = [
        {"when": {"model": model}, "text": f"{TEXT} Reply {n}.", "times": None}
        for n, model in enumerate(MODELS)
    ]
    with Emulator(
        script=script, keys=[KEY], tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


OpenRating = Callable[..., Page]


@pytest.fixture
def open_rating(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenRating]:
    """Opens panels that rate the replies of a run, of one kernel's ledger."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", KEY)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    monkeypatch.setattr(comm, "create_comm", PageComm)
    panels: list[RatingPanel] = []

    with isolated():

        def open_one(**options: Any) -> Page:  # noqa: ANN401 - as Run.rate
            rows = [{"word": word} for word in WORDS]
            run = svc.sweep("Explain {{word}}", rows=rows, model=MODELS).run()
            rating = run.rate(rater="anna", **{"scale": "1-5", **options})
            panels.append(RatingPanel(rating))
            return Page(panels[-1])

        yield open_one
        for panel in panels:
            panel.close()


def rate(page: Page, choice: int, **more: object) -> None:
    """Rate the card in sight, as a key does."""
    seen = {"card": page.view["card"]["id"], "text": "", "seconds_s": 1.5}
    page.say("rate", choice=choice, **{**seen, **more})


def test_what_is_answered_comes_with_the_card(open_rating: OpenRating) -> None:
    """The prompt, which is open if it is short, and what fills it."""
    card = open_rating().view["card"]

    (filled,), (prompt,) = card["filled"], card["prompts"]
    assert filled["name"] == "word"
    assert prompt["html"] == filled["html"].replace("<pre>", "<pre>Explain ")
    assert (card["others"], card["is_open"]) == ([], True)


def test_a_rating_shows_the_next_card(open_rating: OpenRating) -> None:
    """The page gets the next card, and that its message was heard."""
    page = open_rating()
    before = page.view["card"]
    rate(page, 3)

    assert page.view["n_done"] == 1
    assert page.view["card"]["id"] != before["id"]
    assert page.views[-1]["card"] == page.view["card"]
    assert page.heard[-1] == {"t": "heard", "kind": "rate"}


@pytest.mark.slow
def test_a_late_key_rates_nothing(open_rating: OpenRating) -> None:
    """What names another card than the one that is next is not taken, and is said."""
    page = open_rating()
    late = page.view["card"]["id"]
    rate(page, 3)
    rate(page, 0, card=late)
    page.say("skip", card=late)

    assert (page.view["n_done"], page.view["n_skipped"]) == (1, 0)
    assert "another tab" in page.view["notice"].lower()
    rate(page, 0)
    assert (page.view["n_done"], page.view["notice"]) == (2, "")


def test_undo_brings_the_card_back(open_rating: OpenRating) -> None:
    """With its value and its note, which can be changed."""
    page = open_rating()
    assert page.view["can"] == []
    first = page.view["card"]["id"]
    rate(page, 3, text="unsure")
    assert page.view["can"] == ["undo"]
    page.say("undo")

    card = page.view["card"]
    assert (card["id"], card["chosen"], card["note"]) == (first, 3, "unsure")


def test_a_note_is_seen_in_all_tabs(open_rating: OpenRating) -> None:
    """It is part of the view before the card is rated."""
    page = open_rating()
    page.say("note", card=page.view["card"]["id"], text="half a note")

    assert page.views[-1]["card"]["note"] == "half a note"


def test_a_key_in_a_note_is_refused(open_rating: OpenRating) -> None:
    """Neither the view nor a message has it."""
    page = open_rating()
    rate(page, 3, text=f"see {KEY}")

    assert page.view["n_done"] == 0
    assert page.view["is_problem"]
    assert "remove the key" in page.view["notice"]
    assert KEY not in json.dumps([page.comm.published, page.view], default=str)


def test_two_panels_of_a_rating_follow_each_other(open_rating: OpenRating) -> None:
    """A change by code shows, too."""
    page = open_rating()
    other = Page(RatingPanel(page.panel.rating))
    rate(page, 3)
    other.panel.rating.rate(1, seconds_s=2)

    assert other.views[-1]["card"] == page.views[-1]["card"]
    assert other.view["n_done"] == 2
    other.panel.close()


@pytest.mark.parametrize("pairs", [None, "model"])
def test_a_blind_page_does_not_know_the_model(
    open_rating: OpenRating, pairs: str | None
) -> None:
    """Neither its name nor the exchange, by which it could be looked up."""
    page = open_rating(pairs=pairs)
    card = page.panel.rating.card()
    assert card is not None
    said = json.dumps(page.view)

    assert len(page.view["card"]["replies"]) == (2 if pairs else 1)
    assert not any(model in said for model in MODELS)
    assert not any(reply.exchange_id in said for reply in card.replies)


def test_who_is_not_blind_sees_the_model(open_rating: OpenRating) -> None:
    """Each of a pair has its name."""
    page = open_rating(pairs="model", blind=False)
    labels = {reply["label"] for reply in page.view["card"]["replies"]}

    assert labels == set(MODELS)


@pytest.mark.slow
def test_the_end_has_a_summary(open_rating: OpenRating) -> None:
    """It counts the ratings and says what can be done next."""
    page = open_rating()
    while page.view["card"]:
        rate(page, 1)

    assert "<td>2</td>" in page.view["summary"]
    assert "rated_good" in page.view["summary"]
    rate_again = {"card": "", "choice": 1, "text": "", "seconds_s": 0}
    page.say("rate", **rate_again)
    assert page.heard[-1] == {"t": "heard", "kind": "rate"}


def test_a_ledger_that_cannot_be_read_is_said(
    open_rating: OpenRating, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Then no view can be drawn: a message says it, and that the key was heard."""
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("SVC_LEDGER", str(path))
    page = open_rating()
    card = page.view["card"]["id"]
    current().ledger.close()
    for file in tmp_path.glob("ledger.db*"):
        file.write_bytes(b"no ledger")
    page.say("rate", card=card, choice=1, text="", seconds_s=1)

    problem, heard = page.heard[-2:]
    assert problem["t"] == "problem"
    assert "ledger" in problem["text"]
    assert heard == {"t": "heard", "kind": "rate"}


@pytest.mark.parametrize(
    "message",
    [
        {"t": "rate"},
        {"t": "rate", "card": "x"},
        {"t": "rate", "card": None, "choice": "1"},
        {"t": "send", "text": "Hello"},
        {"t": None},
    ],
)
def test_a_message_that_is_unknown_changes_nothing(
    open_rating: OpenRating, message: dict[str, Any]
) -> None:
    """It is refused in a notice, and the page is told that it was heard."""
    page = open_rating()
    page.panel.hear(message)

    assert page.view["n_done"] == 0
    assert page.view["is_problem"]
    assert page.heard[-1]["t"] == "heard"


def test_the_time_of_a_rating_is_kept(open_rating: OpenRating) -> None:
    """What is no time is left out."""
    page = open_rating()
    for seconds_s in (2.5, -1, "x", float("nan")):
        rate(page, 1, seconds_s=seconds_s)

    kept = sorted(read_ratings(current().ledger), key=lambda rating: rating.rated_at)
    assert [rating.seconds_s for rating in kept] == [2.5, None, None, None]


def test_the_page_can_say_what_python_can_do() -> None:
    """Every row of the table is a type, and the page sends nothing else."""
    assert set(of_kind("Action", "rating")) == set(ACTIONS)
    assert set(KIND.findall(script("rating"))) <= set(ACTIONS)


@pytest.mark.parametrize("kind", ACTIONS)
def test_what_an_action_needs_is_sent(kind: str) -> None:
    """The fields without which Python refuses it are in its type."""
    fields = set(of_kind("Action", "rating")[kind])

    assert set(ACTIONS[kind].needs) <= fields


@pytest.mark.slow
def test_everything_that_is_said_has_a_type(open_rating: OpenRating) -> None:
    """The view with a card and at the end, and each message, have the fields."""
    page = open_rating()
    page.say("hello", seq=-1, on=True)
    check("View", page.view)
    while page.view["card"]:
        rate(page, 1)
    check("View", page.view)

    messages = of_kind("Message", "rating")
    for said in page.heard:
        assert set(said) == set(messages[said["t"]]), said


def test_the_page_reads_every_field() -> None:
    """A field that no line of the scripts names would be sent for nothing."""
    code = script("rating")
    names = {name for fields in types_of("rating").values() for name in fields}

    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()


def check(name: str, value: Any) -> None:  # noqa: ANN401 - JSON
    """Check that a value has the fields of its type, and so on inside it."""
    if isinstance(value, list):
        for member in value:
            check(name, member)
    elif value is not None:
        fields: Fields = types_of("rating")[name]
        assert set(value) == set(fields), (name, set(value) ^ set(fields))
        for field, kind in fields.items():
            inner = kind.strip("?").removesuffix("[]")
            if inner in types_of("rating"):
                check(inner, value[field])


@pytest.fixture
def kernel(emulator: Emulator) -> Iterator[Kernel]:
    """A kernel."""
    kernel = Kernel(
        {
            "SVC_BASE_URL": emulator.base_url,
            "SVC_API_KEY": KEY,
            "SVC_LEDGER": ":memory:",
        }
    )
    try:
        yield kernel
    finally:
        kernel.close()


@pytest.mark.slow
def test_a_cell_shows_the_panel_and_the_ratings(kernel: Kernel) -> None:
    """Run again, the cell has one panel; its earlier one is closed."""
    opened = kernel.run(OPEN, cell_id="cell-1")
    again = kernel.run(OPEN, cell_id="cell-1")

    shown = [content["data"] for content in opened.all("display_data")][-2:]
    opened_id = shown[0][VIEW]["model_id"]
    assert "svc-static" in shown[1]["text/html"]
    assert "0 of 3 replies rated" in shown[1]["text/plain"]
    assert opened_id in [content["comm_id"] for content in again.all("comm_close")]


@pytest.mark.slow
def test_an_exported_page_shows_the_ratings_once(kernel: Kernel) -> None:
    """`nbconvert --to html` has no widget, and only what is static in its place."""
    shown = kernel.run(OPEN).all("display_data")[-2:]
    outputs = [
        {"output_type": "display_data", "data": output["data"], "metadata": {}}
        for output in shown
    ]
    cell = {
        "cell_type": "code",
        "id": "rate",
        "source": OPEN,
        "metadata": {},
        "outputs": outputs,
        "execution_count": 1,
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    exporter: Any = HTMLExporter()  # type: ignore[no-untyped-call]  # nbconvert has no types
    html, _ = exporter.from_file(StringIO(json.dumps(notebook)))

    assert html.count("0 of 3 replies rated") == 1
    assert html.count("to go on") == 1  # which the page hides


@pytest.mark.slow
def test_a_finished_rating_does_not_ask_to_go_on(kernel: Kernel) -> None:
    """Without a kernel the cell shows the ratings and what they are for."""
    code = OPEN.replace("run.rate", "rating = run.rate") + (
        "\nwhile rating.card():\n    rating.rate(1)\nrating"
    )
    shown = kernel.run(code).all("display_data")[-1]["data"]["text/html"]

    assert "3 of 3 replies rated" in shown
    assert "rated_good" in shown
    assert "go on rating" not in shown


@pytest.mark.slow
def test_without_a_watcher_there_is_text(kernel: Kernel) -> None:
    """A notebook that a program runs gets what can be called, and no widget."""
    ran = kernel.run(OPEN, is_watched=False)

    assert ran.all("comm_open") == []
    assert "0 of 3 replies rated" in ran.shown

"""A cut reply in the panel: which limit cut it, and how it goes on."""

from collections.abc import Callable, Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from tests.panels.conftest import OpenPage

LINES = "First we walk along the sea.\nThen we rest"
CUT_LINES = {"when": {"contains": "Walk"}, "text": LINES, "finish_reason": "length"}
REPEATED = {
    "when": {"contains": "Go on"},
    "text": ["Then ", "we ", "rest", " in ", "the shade."],
    "finish_reason": "stop",
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose reply is cut, and whose rest repeats its last line."""
    script = [CUT_LINES, REPEATED]
    with Emulator(
        script=script, tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


def test_while_it_goes_on_no_repetition_is_shown(open_page: OpenPage) -> None:
    """What the rest repeats is dropped at once, not only at the end."""
    page = open_page()
    turn = page.ask("Walk")

    got = page.do("continue", turn=turn["id"])

    assert got["turns"][0]["choices"][0]["text"] == f"{LINES} in the shade."
    assert got["turns"][0]["footer"].startswith("2 requests, ")
    assert got["turns"][0]["footer"].endswith(" · continued")
    tails = page.tails()
    assert all(tail.count("Then we") <= 1 for tail in tails)
    assert "Then we rest in the shade." in tails[-1]


@pytest.mark.parametrize(
    ("max_tokens", "words"),
    [
        (150, "Cut at 150 tokens (max_tokens)"),
        ("service", "Cut at 150 tokens (the default)"),
        ("fit", "tokens (all that was left)"),
    ],
)
def test_a_cut_reply_says_which_limit_cut_it(
    open_page: OpenPage, max_tokens: str | int, words: str
) -> None:
    """The number of tokens, and where it comes from."""
    page = open_page(max_tokens=max_tokens)

    assert words in page.ask("Walk")["ended"]


def test_a_cut_reply_says_if_a_number_may_get_more(open_page: OpenPage) -> None:
    """For Thai, the upper bound of the prompt may be far above its likely size."""
    page = open_page()

    ended = page.ask("แขกบอกว่าสระปิด " * 400 + "Walk")["ended"]

    assert "Cut at " in ended
    assert (
        "(all that was sure to be left; a number in max_tokens may get more)" in ended
    )


def test_a_continued_version_has_the_settings_it_was_asked_with(
    open_page: OpenPage,
) -> None:
    """Not those of its last part, in the panel, the history and the export."""
    page = open_page()
    page.say("set", name="max_tokens", value=45)
    turn = page.ask("Walk")
    page.say("set", name="max_tokens", value="fit")
    page.do("continue", turn=turn["id"])
    page.do("regenerate", turn=turn["id"])
    page.say("choose", turn=turn["id"], version=1)
    [shown] = page.view["turns"]

    assert shown["footer"].endswith(" · continued · max_tokens 45")
    assert " · continued · max_tokens 45" in page.panel.conversation.to_markdown()


def test_a_reply_that_is_probably_cut_again_says_so_once(open_page: OpenPage) -> None:
    """Its rest has as many tokens as allowed and ended with `stop`."""
    page = open_page()
    turn = page.ask("Walk")
    page.say("set", name="max_tokens", value=5)
    [shown] = page.do("continue", turn=turn["id"])["turns"]

    assert "probably cut" in shown["badges"]
    # the page shows no badge that this begins with
    assert shown["ended"] == "Probably cut at 5 tokens (max_tokens)"


OFFER = "asks for the rest"


@pytest.fixture(autouse=True)
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells show their replies as in a notebook."""
    monkeypatch.setenv("SVC_DISPLAY", "live")


@pytest.fixture
def run_cell(shell: InteractiveShell) -> Callable[[str], object]:
    """Run a cell in a shell that knows the magic."""
    shell.run_line_magic("load_ext", "svc_notebook")
    run: Callable[[str], object] = shell.run_cell
    return run


def texts(outputs: list[RichOutput]) -> dict[str, str]:
    """Return what the displays of a cell show in the end, by their ids."""
    shown = {each.transient["display_id"]: each.data for each in outputs}
    return {name: data["text/plain"] for name, data in shown.items()}


@pytest.mark.parametrize("way", ["panel", "python"])
def test_a_reply_that_goes_on_elsewhere_grows_in_its_cell(
    open_page: OpenPage, run_cell: Callable[[str], object], way: str
) -> None:
    """The output says no longer that it is cut, and how to go on."""
    page = open_page("plan")
    with capture_output() as before:
        run_cell("%%svc -c plan\nWalk")
    with capture_output() as after:
        if way == "panel":
            page.do("continue", turn=page.view["turns"][0]["id"])
        else:
            svc.conversation("plan").go_on()

    [(name, cut)] = texts(before.outputs).items()
    assert OFFER in cut
    [(same, whole)] = texts(after.outputs).items()
    assert same == name
    assert whole.startswith(f"{LINES} in the shade.\n")
    assert (OFFER in whole, "cut" in whole) == (False, False)
    assert "2 requests, " in whole


def test_what_a_copy_goes_on_with_is_not_the_cells_reply(
    open_page: OpenPage, run_cell: Callable[[str], object]
) -> None:
    """The conversation of the cell has the cut reply, and so has the cell."""
    open_page("plan")
    run_cell("%%svc -c plan\nWalk")
    other = svc.conversation("plan").copy("other")
    run_cell("%%svc -c other\nHello")
    with capture_output() as after:
        other.go_on(1)

    assert other.turns[0].version.text.endswith("the shade.")
    assert after.outputs == []

"""The messages of a panel: their route to the browser, their number and size."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest
import traitlets
from comm.base_comm import BaseComm
from hypothesis import given
from hypothesis import strategies as st
from ipywidgets import Widget

from svc_notebook.display.markdown import to_html
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.browser_messages import Comm
from svc_notebook.panels.live_reply import ENVELOPE_BYTES, GAP_S, ReplyRenderer
from svc_notebook.session import current
from tests.panels.conftest import OpenPage


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator that always says the same, in one piece."""
    script = [{"text": ["The same answer to all."], "times": None}]
    with Emulator(script=script, limits=False) as running:
        yield running


class ReroutingComm(BaseComm):
    """Sends messages to where it last published, as ipykernel 7.4 does."""

    def publish_msg(self, *_: object, **__: object) -> None:
        """Go nowhere."""

    def _reply_subshell_for(self, data: object, chosen: str | None) -> str | None:
        del data, chosen
        return "elsewhere"


class FixedComm(ReroutingComm):
    """The same, where that cannot be changed."""

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any
        if name == "_reply_subshell_for":
            raise AttributeError(name)
        super().__setattr__(name, value)


class Shown(Widget):  # type: ignore[misc]  # ipywidgets has no types
    """A widget with a view."""

    view = traitlets.Dict().tag(sync=True)


def comm_of(
    kind: type[BaseComm], monkeypatch: pytest.MonkeyPatch
) -> tuple[Comm, Shown]:
    """Return a panel's comm, and its widget with a comm of this kind."""
    make: Callable[..., BaseComm] = kind
    monkeypatch.setattr(comm, "create_comm", make)
    widget = Shown()
    return Comm(widget), widget


def test_the_front_ends_choice_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages go to the subshell that the front end names."""
    comm_, widget = comm_of(ReroutingComm, monkeypatch)

    comm_.put({"a": 1})

    found: Any = widget.comm
    route = found._reply_subshell_for  # noqa: SLF001 - the kernel's own call
    assert route({}, "chosen") == "chosen"
    assert (comm_.is_lost, widget.view) == (False, {"a": 1, "nth": 1, "seq": 1})


def test_if_the_choice_cannot_be_kept_the_comm_is_lost_until_it_hears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the page has to say hello again."""
    comm_, _ = comm_of(FixedComm, monkeypatch)

    before = comm_.is_lost
    is_free = comm_.hear()

    assert (before, is_free, comm_.is_lost) == (True, False, False)


def test_a_closed_widget_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending something after the end does not fail."""
    comm_, widget = comm_of(ReroutingComm, monkeypatch)
    widget.close()

    comm_.send({"t": "ended"})
    comm_.put({"a": 1})

    assert widget.view == {}


TEXT = "# Head\n\nSome *text* here.\n\n- one\n- two\n\n```py\nx = 1\n```\n\nThe end"


# Before each block at the top: the blocks of the text below have none inside.
TOP = re.compile(
    r"(?=<div style=margin-bottom:-1em>|(?<!-1em>)<div class=highlight|<h1)"
)


def played(
    renderer: ReplyRenderer, pieces: list[tuple[int, str]], gap_s: float
) -> list[str]:
    """Feed pieces at a pace; return what a page shows for each choice."""
    shown: dict[int, tuple[list[str], str]] = {}
    now_s = 0.0
    for at, (choice, text) in enumerate(pieces):
        renderer.feed(choice, text)
        now_s += gap_s
        for message in renderer.take(now_s, is_last=at == len(pieces) - 1):
            blocks, tail = shown.get(message["choice"], ([], ""))
            tail = tail[: message["n_same"]] + message["tail"]
            n_same = len(blocks) - message["n_back"]
            added = filter(None, TOP.split(message["html"]))
            shown[message["choice"]] = ([*blocks[:n_same], *added], tail)
    return ["".join((*shown[at][0], shown[at][1])) for at in sorted(shown)]


@pytest.mark.parametrize("size", [70, 300])
def test_a_long_block_of_code_has_its_colours_when_it_ends(size: int) -> None:
    """Drawn in pieces without colours, it is then drawn as a whole in their place."""
    code = "```py\n" + "x = 'a line of code'\n" * 600 + "```\n"
    text = f"# Head\n\n{code}\nThe end"
    pieces = [(0, text[at : at + size]) for at in range(0, len(text), size)]
    renderer = ReplyRenderer()

    [shown] = played(renderer, pieces, gap_s=2.0)

    assert shown == to_html(text)
    [drawn] = renderer.drawn
    assert drawn["html"] + drawn["tail"] == shown


@pytest.mark.slow
@given(st.lists(st.integers(1, 9), min_size=1), st.sampled_from([0.001, 0.02, 0.3]))
def test_however_it_comes_the_page_shows_the_same(
    sizes: list[int], gap_s: float
) -> None:
    """Blocks and tail together are what the view holds, at any pace and cut."""
    rest, pieces = TEXT, []
    for size in sizes * 40:
        if rest:
            pieces.append((0, rest[:size]))
            rest = rest[size:]
    renderer = ReplyRenderer()

    [shown] = played(renderer, [*pieces, (0, rest)], gap_s)

    [drawn] = renderer.drawn
    assert shown == drawn["html"] + drawn["tail"]
    assert '<h1 class="jp-toc-ignore">Head</h1>' in shown
    assert "The end" in shown


def test_at_most_twenty_messages_a_second() -> None:
    """However fast pieces come, messages of all choices together are bounded."""
    renderer, n_messages, n_steps = ReplyRenderer(), 0, 4000

    for step in range(n_steps):
        renderer.feed(step % 3, "word ")
        n_messages += len(renderer.take(step / 1000))

    seconds_s = n_steps / 1000
    assert n_messages <= seconds_s / GAP_S + 3


@pytest.mark.slow
def test_bytes_grow_with_the_reply() -> None:
    """An 18 kB reply costs at most 15 times its bytes, the envelopes counted."""
    line = "Some words that make a line of ordinary text, and a *few* more. "
    reply = "".join(f"{line * 3}\n\n" for _ in range(95))
    pieces = [reply[at : at + 5] for at in range(0, len(reply), 5)]
    renderer, n_bytes = ReplyRenderer(), 0

    for step, piece in enumerate(pieces):
        renderer.feed(0, piece)
        for message in renderer.take(step / 200, is_last=step == len(pieces) - 1):
            n_bytes += ENVELOPE_BYTES + len(message["html"]) + len(message["tail"])

    assert len(reply) > 18_000
    assert n_bytes < 15 * len(reply)


@pytest.mark.slow
def test_a_turn_costs_the_same_in_a_long_chat(open_page: OpenPage) -> None:
    """What is sent for one after 200 turns is at most a tenth more than after 5."""
    page = open_page(model="svc-instruct")  # without a documented limit
    plan = page.panel.conversation

    def cost() -> int:
        page.comm.published.clear()
        page.ask("Hello")
        return len(json.dumps(page.comm.published, default=str))

    costs = []
    for n_turns in (5, 200):
        while len(plan.turns) < n_turns:
            plan.ask("Hello", model="svc-instruct", max_tokens=20)
        costs.append(min(cost() for _ in range(5)))

    assert costs[1] < 1.1 * costs[0], costs


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("send", {"text": "My key is {}"}),
        ("set", {"name": "system", "value": "Use {}"}),
        ("set", {"name": "model", "value": "{}"}),
        ("compare", {"name": "model", "value": ["{}", "svc-instruct"], "on": False}),
        ("rename", {"name": "{}"}),
        ("open", {"name": "{}"}),
        ("find", {"text": "{}"}),
        ("names", {"text": "{}"}),
        ("size", {"name": "{}"}),
    ],
)
def test_a_key_that_is_typed_is_neither_shown_nor_kept(
    open_page: OpenPage, emulator: Emulator, kind: str, content: dict[str, Any]
) -> None:
    """A text, a setting or a name with it is refused before anything repeats it."""
    page = open_page()
    page.ask("Hello")
    typed = json.loads(json.dumps(content).replace("{}", emulator.api_key))

    page.say(kind, **typed)

    transcript = page.panel.conversation._repr_mimebundle_()
    said = f"{page.comm.published} {page.panel.get_state()} {transcript}"
    assert emulator.api_key not in said
    assert "This text, setting or name contains the API key" in page.view["notice"]
    assert len(emulator.requests) == 1
    assert not list(current().ledger.read(conversation=emulator.api_key))

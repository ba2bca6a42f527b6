"""The panel in JupyterLab and in Notebook 7, on a kernel, against the emulator.

Each front end opens one notebook with one panel, of which each test has a turn of its
own; what ends the panel comes last.
"""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocket, expect

from svc_notebook.emulator.emulator import Emulator
from tests.browser.conftest import Bench, Notebook, Server
from tests.browser.panel_page import axe_findings

HOSTILE = """\
Before.

<script>window.ran = "script"</script>
<img src="/x-img" onerror="window.ran='onerror'">
<iframe src="/x-frame"></iframe>

![a picture](http://127.0.0.1:9/x-picture.png) and
[a link](javascript:window.ran='link') and `<img src=/x-code>`.

After.
"""
PARAGRAPH = (
    "A paragraph of a *long* reply, with `code`, a [link](https://example.org) and "
    "enough words that a line of it is as long as lines are.\n\n"
)
LONG = (
    PARAGRAPH * 92 + "```python\n" + "print('a line of code')\n" * 240 + "```\n\nDone."
)
FORMULA = "\\sum_{i=1}^{n} \\frac{\\frac{a_i}{b_i}}{\\frac{c_i}{d_i}}"
FORMULAS = [
    f"Step of the proof.\n\n{formula}\n\n"
    for formula in (f"$${FORMULA}$$", f"\\begin{{align}}\n{FORMULA}\n\\end{{align}}")
    for _ in range(20)
]
# How far the newest text is from the transcript's end, after each frame was drawn.
DISTANCES = """() => {
  const log = document.querySelector(".svc-log");
  const note = () => requestAnimationFrame(() => setTimeout(() => {
    distances.push(log.scrollHeight - log.scrollTop - log.clientHeight);
    note();
  }));
  window.distances = [];
  note();
}"""
WORDS = [f"word{n} " for n in range(200)]
END_PX = 16
ENDLESS = [f"word{n} " for n in range(4000)]  # for two minutes: it is stopped
SCRIPT: list[dict[str, Any]] = [
    {"when": {"contains": "through a reload"}, "text": WORDS, "gap_s": 0.03},
    {"when": {"contains": "slowly"}, "text": ENDLESS, "gap_s": 0.03, "times": None},
    {"when": {"contains": "hostile"}, "text": HOSTILE, "times": None},
    {
        "when": {"contains": "Prove it"},
        "text": [*FORMULAS, "Done."],
        "gap_s": 0.1,
    },
    {"when": {"contains": "Ask twice"}, "text": "One.", "times": 1},
    {"when": {"contains": "Ask twice"}, "text": "Two.", "times": 1},
    {"when": {"contains": "edited"}, "text": "Answer to what was edited."},
    {
        "when": {"contains": "Be long"},
        "text": [LONG[at : at + 24] for at in range(0, len(LONG), 24)],
        "gap_s": 0.005,
    },
    {
        "when": {"contains": "Pay", "role": "user"},
        "tool_calls": [{"name": "pay", "arguments": {"amount": 5}}],
    },
    {"text": "Anything else.", "times": None},
]
CELLS = (
    "import svc_notebook as svc\npanel = svc.panel('plan')\npanel",
    "import time\nprint('be' + 'gun')\nfor _ in range(20_000):\n    time.sleep(0.05)",
    "%%svc -c plan\nFrom a cell",
    "panel",
    """\
@svc.tool(confirm=True)
def pay(amount: int) -> str:
    "Pays a sum."
    return f"paid {amount}"

svc.panel('shop', tools=[pay])""",
    "%%svc -c plan\nSpeak slowly from a cell",
)
OPEN, BUSY, MAGIC, SECOND, TOOLS, SLOW_MAGIC = range(1, 7)


class Chat:
    """A panel in a notebook.

    Args:
        notebook: Has it below a cell.
        emulator: Answers it.
        cell: The cell.
    """

    def __init__(
        self, notebook: Notebook, emulator: Emulator, cell: int = OPEN
    ) -> None:
        self.notebook = notebook
        self.page = notebook.page
        self.emulator = emulator
        self.root = notebook.shown(cell).locator(".svc-panel")
        self.turns = self.root.locator(".svc-turn")
        self.last = self.turns.last
        self.composer = self.root.get_by_role("textbox", name="Message")
        self.said = self.root.get_by_role("status")

    def button(self, name: str, within: Locator | None = None) -> Locator:
        """Find a button by what its name begins with."""
        pattern = re.compile(f"^{re.escape(name)}")
        return (within or self.root).get_by_role("button", name=pattern)

    def say(self, text: str) -> None:
        """Send a message."""
        self.composer.fill(text)
        self.composer.press("Enter")

    def ask(self, text: str, answer: str) -> None:
        """Send a message and wait until its reply has ended."""
        self.say(text)
        self.ended(text, answer)

    def ended(self, text: str, answer: str) -> None:
        """Wait until the newest turn is this one."""
        expect(self.last.locator(".svc-prompt")).to_have_text(text)
        expect(self.last.locator(".svc-answer")).to_contain_text(answer)
        expect(self.last.locator(".svc-foot")).to_be_visible()

    def is_cell_running(self) -> bool:
        """Say whether the busy cell runs."""
        return "[*]" in self.notebook.cells.nth(BUSY).inner_text()

    def run_busy(self) -> None:
        """Run the cell that keeps the kernel busy, and wait until it does."""
        self.notebook.run(BUSY)
        output = self.notebook.shown(BUSY)
        expect(output).to_contain_text("begun")
        expect(output).not_to_contain_text("KeyboardInterrupt")

    def end_busy(self) -> None:
        """Interrupt the cell."""
        self.notebook.command("notebook:interrupt-kernel")
        expect(self.notebook.shown(BUSY)).to_contain_text("KeyboardInterrupt")


@pytest.fixture(scope="module")
def emulator(place: str) -> Iterator[Emulator]:
    """An emulator that answers by what it is asked."""
    del place  # each has an emulator of its own
    with Emulator(script=SCRIPT, limits=False) as running:
        yield running


@pytest.fixture(scope="module")
def frames() -> list[int]:
    """Sizes of what came over the page's sockets, in bytes."""
    return []


@pytest.fixture(scope="module")
def chat(
    place: str, browser: Browser, lab: Server, emulator: Emulator, frames: list[int]
) -> Iterator[Chat]:
    """A panel that is open."""
    bench = Bench(browser, lab, emulator)
    page = bench.page()
    _count(page, frames)
    path = bench.write(f"panel-{place}", *CELLS)
    try:
        opened = bench.open(path, page, place=place)
        opened.wait_idle()
        opened.run(0)
        expect(opened.cells.nth(0)).to_contain_text("[1]:")
        opened.run(OPEN)
        found = Chat(opened, emulator)
        expect(found.composer).to_be_visible()
        opened.wait_idle()
        yield found
    finally:
        bench.close()


def _count(page: Page, sizes: list[int]) -> None:
    def on_socket(socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: sizes.append(len(payload)))

    page.on("websocket", on_socket)


def test_a_reply_streams(chat: Chat) -> None:
    """Its first words are there while the service writes; Enter has sent it."""
    chat.say("Speak slowly")

    expect(chat.last).to_contain_text("word3")
    assert chat.emulator.requests[-1].ended == "running"
    expect(chat.composer).to_be_focused()
    expect(chat.composer).to_have_value("")
    chat.composer.press("Escape")
    expect(chat.said).to_have_text("Reply stopped")
    expect(chat.last).to_contain_text("svc-v2-8b-instruct")
    assert chat.emulator.wait_idle()
    assert chat.emulator.requests[-1].is_cut_by_client


def test_it_lives_while_a_cell_runs(chat: Chat) -> None:
    """Send and Stop act before the cell has ended."""
    chat.run_busy()
    chat.composer.fill("Speak slowly, please")
    chat.composer.press("Enter")
    expect(chat.last.locator(".svc-answer")).to_contain_text("word0")
    chat.button("Stop").click()
    expect(chat.said).to_have_text("Reply stopped")
    is_running = chat.is_cell_running()
    chat.end_busy()

    assert is_running
    expect(chat.root).not_to_contain_text("Stop works after")
    assert chat.emulator.requests[-1].is_cut_by_client


def test_it_stops_a_reply_that_began_before_the_cell(chat: Chat) -> None:
    """A cell that starts meanwhile does not come between."""
    chat.say("Speak slowly again")
    expect(chat.last.locator(".svc-answer")).to_contain_text("word0")
    chat.run_busy()
    grown = chat.last.inner_text()
    expect(chat.last).not_to_have_text(grown)
    chat.composer.press("Escape")
    expect(chat.said).to_have_text("Reply stopped")
    is_running = chat.is_cell_running()
    chat.end_busy()

    assert is_running


def test_versions(chat: Chat) -> None:
    """Asked again, both answers are kept; the arrows choose between them."""
    chat.ask("Ask twice", "One.")
    chat.button("Ask again", chat.last).click()
    expect(chat.last).to_contain_text("2/2")
    chat.ended("Ask twice", "Two.")
    chat.button("Previous version", chat.last).click()
    expect(chat.last).to_contain_text("1/2")
    chat.ended("Ask twice", "One.")
    chat.ask("Go on", "Anything else.")

    sent = [each["content"] for each in chat.emulator.requests[-1].json["messages"]]
    assert sent[-3:] == ["Ask twice", "One.", "Go on"]


def test_edit_and_resend(chat: Chat) -> None:
    """Up edits the last message; it is asked again in its place."""
    n_turns = chat.turns.count()
    chat.composer.press("ArrowUp")
    edited = chat.root.get_by_role("textbox", name="Edit the prompt")
    expect(edited).to_have_value("Go on")
    edited.fill("This was edited")
    edited.press("Enter")
    chat.ended("This was edited", "Answer to what was edited.")

    assert chat.turns.count() == n_turns
    sent = [each["content"] for each in chat.emulator.requests[-1].json["messages"]]
    assert "Go on" not in sent


def test_the_notebook_does_not_hear_what_is_typed(chat: Chat) -> None:
    """No key adds, deletes, leaves or runs a cell, in the composer or on a button."""
    n_cells = chat.notebook.cells.count()
    counter = chat.notebook.cells.nth(OPEN).inner_text().split(":")[0]
    chat.composer.fill("")
    for key in ("d", "d", "a", "b", "m", "x", "Escape", "0", "0", "Shift+Enter"):
        chat.composer.press(key)
    expect(chat.composer).to_be_focused()
    assert chat.composer.input_value() == "ddabmx00\n"
    chat.composer.press("Control+z")
    assert chat.composer.input_value() == "ddabmx00"
    chat.button("Clear").focus()
    for key in ("a", "b", "x", "d", "d", "m"):
        chat.page.keyboard.press(key)

    assert chat.notebook.cells.count() == n_cells
    assert chat.notebook.cells.nth(OPEN).inner_text().split(":")[0] == counter
    expect(chat.composer).to_have_value("ddabmx00")
    chat.composer.fill("")


def hears_keys(notebook: Notebook) -> None:
    """Check that the notebook hears keys: they add a cell and delete it."""
    n_cells = notebook.cells.count()
    notebook.page.keyboard.press("b")
    expect(notebook.cells).to_have_count(n_cells + 1)
    for key in "dd":
        notebook.page.keyboard.press(key)
    expect(notebook.cells).to_have_count(n_cells)


def test_control_m_leaves_the_panel_for_its_cell(chat: Chat) -> None:
    """The notebook hears keys again; what was typed stays."""
    chat.composer.fill("A draft")
    chat.composer.press("Control+m")
    expect(chat.notebook.cells.nth(OPEN)).to_contain_class("jp-mod-selected")
    hears_keys(chat.notebook)

    expect(chat.composer).to_have_value("A draft")
    chat.composer.fill("")


def test_a_press_beside_the_panel_leaves_it(chat: Chat) -> None:
    """On its cell's number, or another's: keys go to the notebook, not to the draft."""
    for at in (OPEN, 0):
        chat.composer.fill("A draft")
        chat.composer.press("End")
        cell = chat.notebook.cells.nth(at)
        cell.locator(".jp-InputPrompt").click()
        expect(chat.composer).not_to_be_focused()
        expect(cell).to_contain_class("jp-mod-selected")
        hears_keys(chat.notebook)

    expect(chat.composer).to_have_value("A draft")
    chat.composer.fill("")


def test_undo_in_the_panel_never_changes_a_cell(chat: Chat) -> None:
    """In the empty box and on a button it is for the conversation; in a field, for it.

    The browser's own undo would be for the cell, which was edited last.
    """
    chat.ask("Undo me", "Anything else.")
    n_turns = chat.turns.count()
    cell = chat.notebook.cells.nth(MAGIC).locator(".cm-content")
    chat.notebook.enter(MAGIC)
    chat.page.keyboard.type(" of mine")
    source = cell.inner_text()
    chat.composer.press("Control+z")
    expect(chat.turns).to_have_count(n_turns - 1)
    chat.composer.press("Control+Shift+Z")
    expect(chat.turns).to_have_count(n_turns)
    chat.root.get_by_role("log").press("Control+z")
    expect(chat.turns).to_have_count(n_turns - 1)
    chat.button("Clear").press("Control+y")
    expect(chat.turns).to_have_count(n_turns)
    chat.root.get_by_text("Settings", exact=True).click()
    for label in ("system prompt", "temperature", "Model"):
        for key in ("Control+z", "Control+y", "Control+Shift+Z"):
            chat.root.get_by_label(label, exact=True).press(key)
    chat.root.get_by_text("Settings", exact=True).click()
    chat.composer.press_sequentially("Typed")
    for _ in range(2):
        chat.composer.press("Control+z")
    expect(chat.turns).to_have_count(n_turns - 1)
    expect(chat.composer).to_have_value("")

    assert cell.inner_text() == source
    chat.notebook.enter(MAGIC)
    for _ in " of mine":
        chat.page.keyboard.press("Backspace")


def test_a_hostile_reply_is_inert(chat: Chat) -> None:
    """Nothing of it runs, and nothing is asked for."""
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    chat.ask("Be hostile", "After.")

    text = chat.last.locator(".svc-answer")
    assert text.locator("script, img, iframe, [onerror], [style]").count() == 0
    hrefs = text.locator("a").evaluate_all("links => links.map(link => link.href)")
    assert hrefs == ["http://127.0.0.1:9/x-picture.png"]
    assert chat.page.evaluate("() => window.ran ?? null") is None
    assert [url for url in asked if "/x-" in url] == []


def test_a_cell_and_the_panel_share_the_conversation(chat: Chat) -> None:
    """What a cell says in it shows in the panel, and the draft stays."""
    chat.composer.fill("A draft")
    chat.notebook.run(MAGIC)

    chat.ended("From a cell", "Anything else.")
    expect(chat.composer).to_have_value("A draft")
    chat.notebook.wait_idle()
    chat.composer.fill("")


def test_a_reply_to_a_cell_grows_in_the_panel(chat: Chat) -> None:
    """No message goes without it, the draft stays, and Stop stops the cell."""
    cell = chat.notebook.shown(SLOW_MAGIC)
    chat.composer.fill("A draft")
    chat.notebook.run(SLOW_MAGIC)
    expect(chat.last.locator(".svc-prompt")).to_have_text("Speak slowly from a cell")
    expect(chat.last.locator(".svc-answer")).to_contain_text("word3")
    expect(chat.root.locator(".svc-status")).to_have_text("Replying to a cell …")
    chat.composer.press("Enter")
    expect(chat.composer).to_have_value("A draft")
    n_asked = len(chat.emulator.requests)
    chat.button("Stop").click()

    expect(cell).to_contain_text("interrupted")
    expect(chat.said).to_have_text("Reply ended")
    chat.ended("Speak slowly from a cell", "word3")
    expect(chat.last).to_contain_text("Interrupted")
    assert len(chat.emulator.requests) == n_asked
    chat.notebook.wait_idle()
    chat.composer.fill("")


def test_the_end_is_followed_while_math_is_typeset(chat: Chat) -> None:
    """The host draws formulas late and higher than their source; it stays in sight."""
    chat.page.evaluate(DISTANCES)
    chat.ask("Prove it", "Done.")
    expect(chat.last.locator("mjx-container")).to_have_count(len(FORMULAS))
    distances: list[float] = chat.page.evaluate("() => distances")

    print(f"at most {max(distances)} px from the end")  # noqa: T201 - a figure
    assert sorted(distances)[len(distances) * 9 // 10] < END_PX
    assert distances[-1] < END_PX
    expect(chat.button("Jump to the latest")).to_be_hidden()


def test_a_second_view_shows_the_same(chat: Chat) -> None:
    """A reply appears in both, and both steer it."""
    chat.notebook.run(SECOND)
    second = chat.notebook.shown(SECOND).locator(".svc-panel")
    expect(second.locator(".svc-turn")).to_have_count(chat.turns.count())
    chat.say("Speak slowly to two")
    expect(second.locator(".svc-turn").last).to_contain_text("word3")
    second.get_by_role("button", name="Stop (Esc)").click()

    expect(chat.said).to_have_text("Reply stopped")
    expect(second.locator(".svc-turn")).to_have_count(chat.turns.count())


def test_a_tool_asks_for_consent(chat: Chat) -> None:
    """A card shows the call; it runs with the arguments as edited, and is on record."""
    chat.notebook.run(TOOLS)
    shop = Chat(chat.notebook, chat.emulator, TOOLS)
    shop.say("Pay the baker")
    card = shop.root.get_by_role("group", name="The model wants to call pay")
    card.get_by_text("Edit the arguments").click()
    arguments = card.get_by_role("textbox", name="Arguments")
    expect(arguments).to_have_value(re.compile(r'"amount": 5'))
    arguments.fill('{"amount": 4}')
    card.get_by_role("button", name="Approve", exact=True).click()
    shop.ended("Pay the baker", "Anything else.")
    expect(card).to_be_hidden()
    shop.last.locator(".svc-tool-runs summary").click()

    expect(shop.last.locator(".svc-tool-runs")).to_contain_text("paid 4")
    assert chat.emulator.requests[-1].json["messages"][-1]["content"].endswith("paid 4")


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_axe_finds_nothing_serious(chat: Chat, theme: str) -> None:
    """Among the styles of the front end too names, roles and contrast are right."""
    chat.page.evaluate(
        "(theme) => window.jupyterapp.commands.execute("
        "'apputils:change-theme', { theme })",
        theme,
    )
    is_light = "true" if theme.endswith("Light") else "false"
    expect(chat.page.locator(f"body[data-jp-theme-light={is_light}]")).to_be_attached()
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")

    assert axe_findings(chat.page, axe, ".jp-OutputArea .svc-panel") == []


def test_one_turn_takes_little_room_and_a_refusal_is_at_its_field(chat: Chat) -> None:
    """The panel is as tall as what it shows; a value that is taken ends the refusal."""
    if chat.turns.count():
        chat.button("Clear").click()
    expect(chat.turns).to_have_count(0)
    chat.ask("Hello", "Anything else.")
    expect(chat.last.get_by_text("1 · You", exact=True)).to_be_visible()
    box = chat.root.bounding_box()
    chat.root.get_by_text("Settings").click()
    temperature = chat.root.get_by_label("temperature")
    refusal = chat.root.locator(".svc-refusal:visible")
    temperature.fill("7")
    temperature.press("Enter")
    expect(refusal).to_contain_text("from 0 to 2")
    temperature.fill("")
    temperature.press("Enter")
    expect(refusal).to_have_count(0)
    chat.root.get_by_text("Settings").click()

    assert box is not None
    assert box["height"] < 450


def test_a_long_reply_is_cheap(chat: Chat, frames: list[int]) -> None:
    """At most 20 bytes come for each byte of a reply of 18 kB."""
    assert len(LONG) > 18_000
    chat.button("Clear").click()  # the whole budget is needed
    expect(chat.turns).to_have_count(0)
    expect(chat.said).not_to_have_text("Reply finished")
    n_before = len(frames)
    chat.say("Be long")
    chat.page.wait_for_function(
        "() => document.querySelector('.svc-panel .svc-unseen').textContent"
        " === 'Reply finished'",
        polling=250,
    )
    n_bytes = sum(frames[n_before:])
    chat.ended("Be long", "Done.")

    assert n_bytes / len(LONG) < 20


def test_a_reload_during_a_reply_loses_nothing(chat: Chat) -> None:
    """The panel comes back, and the reply goes on to its end; no key is in the file."""
    n_turns = chat.turns.count()
    chat.notebook.save()
    saved = chat.notebook.path.read_text()
    chat.say("Speak slowly through a reload")
    expect(chat.last).to_contain_text("word9")
    chat.composer.fill("A draft")
    chat.page.on("dialog", lambda dialog: dialog.accept())
    chat.page.reload()

    expect(chat.last.locator(".svc-prompt")).to_have_text(
        "Speak slowly through a reload"
    )
    chat.ended("Speak slowly through a reload", "word199")
    expect(chat.turns).to_have_count(n_turns + 1)
    expect(chat.composer).to_have_value("A draft")
    assert chat.last.locator(".svc-answer").inner_text().count("word9 ") == 1
    assert _secret(chat.emulator) not in _outputs(saved)


def test_a_restarted_kernel_is_said(chat: Chat) -> None:
    """The panel disables itself and says what to do; the transcript stays."""
    chat.composer.fill("A draft")
    chat.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext"
        ".session.kernel.restart()"
    )

    expect(chat.root).to_contain_text(
        "The kernel was restarted or shut down; run the cell again."
    )
    expect(chat.composer).to_be_disabled()
    expect(chat.composer).to_have_value("A draft")
    expect(chat.button("Clear")).to_be_disabled()
    expect(chat.last).to_contain_text("word199")


def test_a_kernel_that_is_shut_down_is_said_at_once(chat: Chat) -> None:
    """Before anything is sent; the cell's next run has a panel that can be used."""
    gone = "The kernel was restarted or shut down; run the cell again."
    session = "window.jupyterapp.shell.currentWidget.sessionContext"
    chat.notebook.wait_idle()
    for _ in range(2):
        chat.notebook.run(0)
        chat.notebook.run(OPEN)
        expect(chat.composer).to_be_enabled()
        expect(chat.root).not_to_contain_text(gone)
        chat.composer.fill("")  # a draft is measured, which would find out

        chat.page.evaluate(f"() => {session}.shutdown()")
        expect(chat.root).to_contain_text(gone)
        expect(chat.composer).to_be_disabled()
        chat.page.evaluate(f"() => {session}.changeKernel({{ name: 'python3' }})")
        chat.notebook.wait_idle()
        expect(chat.root).to_contain_text(gone)


def _secret(emulator: Emulator) -> str:
    return str(emulator.api_key)


def _outputs(saved: str) -> str:
    """Return a saved notebook without the sources of its cells."""
    notebook = json.loads(saved)
    for cell in notebook["cells"]:
        del cell["source"]
    return json.dumps(notebook)

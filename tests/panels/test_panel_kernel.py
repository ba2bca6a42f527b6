"""The panel in a real kernel, spoken to as a front end speaks to a widget."""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import TIMEOUT_S, Kernel

pytestmark = pytest.mark.slow
needs_ipykernel_7 = pytest.mark.skipif(
    int(version("ipykernel").partition(".")[0]) < 7,
    reason="needs ipykernel 7: subshells, and output in its own cell",
)
PIECES = [f"word{n} " for n in range(60)]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose replies come word by word."""
    slow = {"text": PIECES, "gap_s": 0.05, "times": None}
    key = "svc-key-of-this-test-77aa"
    with Emulator(script=[slow], keys=[key], limits=False) as running:
        yield running


@pytest.fixture
def kernel(emulator: Emulator) -> Iterator[Kernel]:
    """A kernel with a panel shown in a cell."""
    env = {
        "SVC_BASE_URL": emulator.base_url,
        "SVC_API_KEY": emulator.api_key,
        "SVC_LEDGER": ":memory:",
    }
    kernel = Kernel(env)
    try:
        yield kernel
    finally:
        kernel.close()


class Page:
    """What a page with the panel's view sees and says."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.heard: list[dict[str, Any]] = []
        self.outputs: list[tuple[str, dict[str, Any]]] = []
        self.parents: list[tuple[str, str]] = []
        self.comm_id = ""
        self.view: dict[str, Any] = {}
        ran = kernel.run("import svc_notebook as svc\np = svc.panel('plan')\np")
        assert ran.status == "ok", ran.messages
        for kind, content in ran.messages:
            state = content.get("data", {}).get("state", {})
            if kind == "comm_open" and "view" in state:
                self.comm_id, self.view = content["comm_id"], state["view"]
        self.opening = ran.messages

    def say(self, content: dict[str, Any], *, subshell: str | None = None) -> None:
        """Send a message of the view, on a subshell as JupyterLab does."""
        client = self.kernel.client
        message = client.session.msg(
            "comm_msg",
            {
                "comm_id": self.comm_id,
                "data": {"method": "custom", "content": content},
            },
        )
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        client.shell_channel.send(message)

    def subshell(self) -> str:
        """Open a subshell."""
        client = self.kernel.client
        client.control_channel.send(client.session.msg("create_subshell_request"))
        reply = client.get_control_msg(timeout=TIMEOUT_S)
        found: str = reply["content"]["subshell_id"]
        return found

    def wait(self, is_there: Callable[[], bool]) -> None:
        """Read what is published until this is true."""
        while not is_there():
            message = self.kernel.client.get_iopub_msg(timeout=TIMEOUT_S)
            kind, content = message["msg_type"], message["content"]
            if kind == "comm_msg" and content["comm_id"] == self.comm_id:
                self._take(content["data"])
            elif kind not in {"status", "execute_input"}:
                self.outputs.append((kind, content))
                self.parents.append((kind, message["parent_header"]["msg_id"]))

    def _take(self, data: dict[str, Any]) -> None:
        if data["method"] == "custom":
            self.heard.append(data["content"])
        elif "view" in data.get("state", {}):
            news = data["state"]["view"]
            turns = {each["number"]: each for each in self.view["turns"]}
            turns |= {each["number"]: each for each in news["turns"]}
            joined = [turns[n] for n in range(1, news["n_turns"] + 1)]
            self.view = {**self.view, **news, "turns": joined}

    def has(self, kind: str) -> bool:
        """Return whether a message of a kind was heard."""
        return any(each["t"] == kind for each in self.heard)


@needs_ipykernel_7
@pytest.mark.parametrize("is_changed_by_a_cell", [False, True])
def test_send_and_stop_answer_while_a_cell_runs(
    kernel: Kernel, emulator: Emulator, is_changed_by_a_cell: bool
) -> None:
    """With subshells both act although the cell has not ended."""
    page = Page(kernel)
    subshell = page.subshell()
    page.say({"t": "hello"}, subshell=subshell)
    page.wait(lambda: page.has("ack"))
    if is_changed_by_a_cell:
        kernel.run("p.conversation.system = 'Be brief'")
    busy = kernel.begin("import time; time.sleep(999)")

    page.say({"t": "send", "text": "Tell me"}, subshell=subshell)
    page.wait(lambda: page.has("delta"))
    page.say({"t": "stop"}, subshell=subshell)
    page.wait(lambda: page.has("ended"))
    page.wait(lambda: page.view["state"] == "idle")

    assert emulator.wait_idle()
    assert emulator.requests[-1].is_cut_by_client
    [turn] = page.view["turns"]
    assert "interrupted" in turn["badges"]
    assert "continue" in turn["can"]
    kernel.manager.interrupt_kernel()
    assert kernel.reply(busy) == "error"


def test_without_subshells_the_reply_goes_on_while_a_cell_runs(kernel: Kernel) -> None:
    """A front end without subshells learns it; a reply that has begun still streams."""
    page = Page(kernel)
    page.say({"t": "hello"})
    page.wait(lambda: page.has("ack"))
    page.say({"t": "send", "text": "Tell me"})
    page.wait(lambda: page.has("delta"))
    busy = kernel.begin("import time; time.sleep(999)")
    n_before = len(page.heard)

    page.wait(lambda: len(page.heard) > n_before + 5)

    assert [each["subshell"] for each in page.heard if each["t"] == "ack"] == [False]
    kernel.manager.interrupt_kernel()
    assert kernel.reply(busy) == "error"


def test_no_message_to_the_page_holds_the_key(
    kernel: Kernel, emulator: Emulator
) -> None:
    """Neither the widget's state, nor what it says, nor the outputs hold the key."""
    page = Page(kernel)
    page.say({"t": "send", "text": "Tell me"})
    page.wait(lambda: page.has("ended"))
    page.wait(lambda: page.view["state"] == "idle")

    said = str((page.opening, page.heard, page.outputs, page.view))

    assert emulator.api_key not in said


def test_the_transcript_beside_the_panel_is_updated(kernel: Kernel) -> None:
    """After each turn the output beside it holds the transcript, as plain HTML."""
    page = Page(kernel)
    shown = [content for kind, content in page.opening if kind == "display_data"]
    page.say({"t": "send", "text": "Tell <me>"})

    page.wait(lambda: any(kind == "update_display_data" for kind, _ in page.outputs))

    [update] = [c for kind, c in page.outputs if kind == "update_display_data"]
    assert len(shown) == 2
    assert update["transient"] == shown[1]["transient"]
    assert "Tell &lt;me&gt;" in update["data"]["text/html"]
    assert "word59" in update["data"]["text/plain"]
    view = "application/vnd.jupyter.widget-view+json"
    assert view in shown[0]["data"]
    assert sorted(shown[1]["data"]) == sorted(update["data"])
    assert sorted(update["data"]) == ["text/html", "text/plain"]
    assert update["data"]["text/html"].startswith('<div class="svc-static">')


def test_a_page_that_asks_for_all_gets_the_transcript_again(kernel: Kernel) -> None:
    """Only a page that knows its outputs by what was saved: no page has such ids."""
    page = Page(kernel)
    shown = [content for kind, content in page.opening if kind == "display_data"]
    names = [each["transient"]["display_id"] for each in shown]
    marks = [each["metadata"]["svc_notebook"] for each in shown]
    assert marks == names
    later = kernel.begin("p.conversation.ask('Tell')")
    assert kernel.reply(later) == "ok"

    ran = kernel.run("state = p.get_state()")

    [again] = ran.all("update_display_data")
    assert "Tell" in again["data"]["text/html"]
    assert again["metadata"] == shown[1]["metadata"]
    assert again["transient"]["display_id"] not in names
    assert kernel.run("state = p.get_state('view')").all("update_display_data") == []


def test_the_transcript_follows_a_new_name(kernel: Kernel) -> None:
    """It begins with the conversation's name, which may be hostile."""
    page = Page(kernel)
    kernel.begin("p.conversation.ask('Hi')")
    page.say({"t": "rename", "name": "<b>trip</b>"})

    page.wait(lambda: "trip" in str(page.outputs))

    update = page.outputs[-1][1]
    assert "&lt;b&gt;trip&lt;/b&gt;" in update["data"]["text/html"]
    assert "<b>trip" not in update["data"]["text/html"]
    assert page.view["name"] == "<b>trip</b>"


@needs_ipykernel_7
def test_each_part_of_a_long_transcript_is_an_output_of_the_panels_cell(
    kernel: Kernel,
) -> None:
    """What a later cell adds belongs to it; earlier parts do not come again."""
    page = Page(kernel)
    shown = [content for kind, content in page.opening if kind == "display_data"]
    later = kernel.begin("for n in range(7): p.conversation.ask(f'Turn {n}')")
    page.wait(lambda: "Turn 6" in str(page.outputs))

    assert kernel.reply(later) == "ok"
    [part] = [content for kind, content in page.outputs if kind == "display_data"]
    updates = [c for kind, c in page.outputs if kind == "update_display_data"]
    names = [each["transient"]["display_id"] for each in updates]
    [parent] = [each for kind, each in page.parents if kind == "display_data"]
    assert parent != later
    first, second = shown[1]["transient"]["display_id"], part["transient"]["display_id"]
    assert names == [first] * 5 + [second]
    assert "Turn 5" in part["data"]["text/plain"]
    assert "Turn 4" not in part["data"]["text/plain"]


def test_a_host_that_cannot_hide_the_transcript_gets_it_folded(kernel: Kernel) -> None:
    """The page says whether it has JupyterLab's classes; where not, it is `details`."""
    page = Page(kernel)
    page.say({"t": "hello", "seq": 0, "on": False})
    page.wait(lambda: any(kind == "update_display_data" for kind, _ in page.outputs))

    [update] = [c for kind, c in page.outputs if kind == "update_display_data"]
    assert update["data"]["text/html"].startswith(
        '<details class="svc-static svc-panel-'
    )


def test_a_frozen_panel_is_its_transcript(kernel: Kernel) -> None:
    """The transcript takes the widget's place, and the comm is closed."""
    page = Page(kernel)
    shown = [content for kind, content in page.opening if kind == "display_data"]

    ran = kernel.run("p.freeze()")

    first, second = ran.all("update_display_data")
    assert first["transient"] == shown[0]["transient"]
    assert sorted(first["data"]) == ["text/html", "text/plain"]
    assert second["transient"] == shown[1]["transient"]
    assert second["data"]["text/plain"] == ""
    assert page.comm_id in [each["comm_id"] for each in ran.all("comm_close")]


def test_a_panel_frozen_during_a_reply_keeps_what_had_come(kernel: Kernel) -> None:
    """The reply is stopped, and the frozen transcript gets it, marked."""
    page = Page(kernel)
    shown = [content for kind, content in page.opening if kind == "display_data"]
    page.say({"t": "send", "text": "Tell"})
    page.wait(lambda: page.has("delta"))

    kernel.run("p.freeze(); p.freeze()")
    page.wait(lambda: "interrupted" in str(page.outputs))

    last = [c for kind, c in page.outputs if kind == "update_display_data"][-1]
    assert last["transient"] == shown[0]["transient"]
    assert "word0" in last["data"]["text/plain"]


def test_a_kernel_without_a_user_shows_the_static_transcript(kernel: Kernel) -> None:
    """Where stdin is forbidden, as in nbclient, the panel is one static output."""
    code = "import svc_notebook as svc\nsvc.conversation('plan').ask('Hi');"
    kernel.run(code, is_watched=False)
    ran = kernel.run("svc.panel('plan')", is_watched=False)

    shown = [c for kind, c in ran.messages if not kind.startswith("comm")]
    [output] = shown
    assert sorted(output["data"]) == ["text/html", "text/plain"]
    assert "word59" in output["data"]["text/plain"]


def test_a_cell_that_runs_again_has_the_same_panel(kernel: Kernel) -> None:
    """What was set in it stays; what the code asks for otherwise now, holds."""

    def run(code: str, cell: str = "a") -> None:
        client = kernel.client
        content = {"code": code, "silent": False, "allow_stdin": True}
        message = client.session.msg("execute_request", content)
        message["metadata"]["cellId"] = cell
        client.shell_channel.send(message)
        assert kernel.reply(message["header"]["msg_id"]) == "ok"

    opening = "import svc_notebook as svc; q = svc.panel('shop', temperature={}); q"
    said = "q.hear(dict(t='set', name={!r}, value={!r}))"
    run(opening.format(0.5))
    run("first = q; " + said.format("model", "svc-instruct"), cell="b")
    run("first = q; " + said.format("temperature", 1.5), cell="b")
    run(opening.format(0.5))
    settings = "[q.get_state()['view']['settings'][n] for n in ('model','temperature')]"
    kept = kernel.value(settings)
    run(opening.format(0.7))

    assert kept == "['svc-instruct', 1.5]"
    assert kernel.value(settings) == "['svc-instruct', 0.7]"
    assert kernel.value("q is first, svc.panel('shop') is q") == "True False"
    run("import svc_notebook as svc; q = svc.panel('other'); q")
    assert kernel.value("first.comm is None, q.comm is None") == "True False"


@pytest.mark.parametrize(
    "show", ["w.VBox([w.VBox([p])])", "w.Tab([p])", "display(w.VBox([p]))"]
)
def test_a_panel_inside_a_widget_has_its_transcript_too(
    kernel: Kernel, show: str
) -> None:
    """The cell that shows the container gets it after its output."""
    ran = kernel.run("import svc_notebook as svc\np = svc.panel('boxed')")
    assert ran.all("display_data") == []

    ran = kernel.run(f"import ipywidgets as w\n{show}")

    assert "svc-static" in str(ran.all("display_data")[-1]["data"])

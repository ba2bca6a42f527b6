"""`%%svc` in a real kernel: live, settled, interrupted; and the login."""

from collections.abc import Iterator
from typing import Any

import pytest

from svc_notebook.emulator.emulator import Emulator
from tests.notebook.conftest import TIMEOUT_S, Kernel, Ran, wait_for_request

PIECES = [f"word{n} " for n in range(40)]
STUCK: dict[str, Any] = {
    "when": {"contains": "stuck"},
    "text": ["Partial ", "answer"],
    "cut_after": 2,
    "end": "silent",
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose replies come word by word; one never ends, one is late."""
    late = {"when": {"contains": "late"}, "text": "Late.", "before_s": 600}
    slow = {"text": PIECES, "gap_s": 0.05, "times": None}
    key = "svc-key-of-this-test-5f2d"
    with Emulator(script=[STUCK, late, slow], keys=[key], limits=False) as running:
        yield running


def test_a_reply_grows_in_its_place(kernel: Kernel) -> None:
    """In a watched cell the first words show first, and the last update has all."""
    ran = Ran()
    cell = kernel.begin("%%svc\nTell me something")

    kernel.read(cell, ran, until="word3")
    kernel.read(cell, ran)

    assert ran.status == "ok"
    assert "word39" in ran.all("update_display_data")[-1]["data"]["text/plain"]


def test_an_unwatched_cell_draws_once(kernel: Kernel) -> None:
    """Where stdin is forbidden, as in nbclient, the cell has one output, no updates."""
    ran = kernel.run("%%svc\nTell me something", is_watched=False)

    assert [kind for kind, _ in ran.messages] == ["display_data"]
    assert sorted(ran.messages[0][1]["data"]) == ["text/html", "text/plain"]


def test_text_shows_while_the_reply_comes_and_an_interrupt_ends_both(
    kernel: Kernel, emulator: Emulator
) -> None:
    """Interrupted, it closes the connection, keeps the text and stops later cells."""
    ran = Ran()
    cell = kernel.begin("%%svc -o answer\nGet stuck")
    following = kernel.begin("print('ran on')")
    kernel.read(cell, ran, until="Partial answer")
    assert emulator.requests[-1].ended == "running"

    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    assert (ran.status, kernel.reply(following)) == ("error", "aborted")
    assert emulator.wait_idle()
    assert emulator.requests[-1].is_cut_by_client
    assert ran.all("error") == []  # the footer says it
    last = ran.all("update_display_data")[-1]["data"]
    assert "Partial answer" in last["text/plain"]
    assert ran.shown.count("interrupted") == 2  # as HTML, and as plain text
    assert "answer has what arrived" in last["text/plain"]
    assert kernel.value("repr((svc.last().text, answer.is_partial))") == (
        "('Partial answer', True)"
    )


def test_an_unwatched_cell_says_once_that_it_was_interrupted(
    kernel: Kernel, emulator: Emulator
) -> None:
    """The cell fails, and its saved output has the mark, without a second line."""
    ran = Ran()
    cell = kernel.begin("%%svc\nGet stuck", is_watched=False)
    wait_for_request(emulator)

    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    assert ran.status == "error"
    assert ran.all("error") == []
    assert ran.shown.count("interrupted") == 2  # as HTML, and as plain text


@pytest.mark.parametrize(
    ("loop", "ename"),
    [
        ("for text in svc.stream", "KeyboardInterrupt"),
        ("async for text in svc.AsyncClient().stream", "CancelledError"),
    ],
)
def test_an_interrupted_loop_over_a_stream_says_what_is_kept(
    kernel: Kernel, loop: str, ename: str
) -> None:
    """One line in place of the frames; the error stays that of Python.

    An old kernel would be interrupted in `flush`, which waits for the text to be sent.
    """
    ran = Ran()
    cell = kernel.begin(f"{loop}('Get stuck'):\n    print(text)")
    following = kernel.begin("print('ran on')")
    kernel.read(cell, ran, until="answer")

    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    [error] = ran.all("error")
    assert (ran.status, kernel.reply(following)) == ("error", "aborted")
    assert error["ename"] == ename
    assert error["traceback"] == ["(interrupted - what arrived is kept: svc.last())"]
    assert kernel.value("svc.last().text") == "Partial answer"


def test_an_interrupted_verb_shows_one_line(kernel: Kernel, emulator: Emulator) -> None:
    """`svc.complete` leaves Python's own error, without frames of the package."""
    ran = Ran()
    cell = kernel.begin("svc.complete('Be late')")
    wait_for_request(emulator)

    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    [error] = ran.all("error")
    assert (ran.status, error["ename"]) == ("error", "KeyboardInterrupt")
    assert error["traceback"] == ["(interrupted)"]
    assert emulator.wait_idle()
    assert emulator.requests[-1].ended == "client_left"


def test_an_interrupt_of_other_code_keeps_its_traceback(kernel: Kernel) -> None:
    """Only that of a request is left out."""
    ran = Ran()
    cell = kernel.begin("print('begun', flush=True)\nwhile True:\n    pass")
    kernel.read(cell, ran, until="begun")

    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    [error] = ran.all("error")
    assert "Traceback" in "\n".join(error["traceback"])


def test_an_interrupt_hides_no_other_error(kernel: Kernel) -> None:
    """Caught by the user, it leaves the traceback of what fails next."""
    ran = Ran()
    cell = kernel.begin(
        "try:\n    %svc Get stuck\nexcept KeyboardInterrupt:\n    1 / 0"
    )
    kernel.read(cell, ran, until="Partial answer")

    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)
    [after] = kernel.run("1 / 0").all("error")

    assert ran.all("error")[0]["ename"] == after["ename"] == "ZeroDivisionError"


def test_after_an_interrupt_the_next_cell_asks_again(
    kernel: Kernel, emulator: Emulator
) -> None:
    """The kernel that was interrupted answers its next cell."""
    ran = Ran()
    cell = kernel.begin("%%svc\nGet stuck")
    kernel.read(cell, ran, until="Partial answer")
    kernel.manager.interrupt_kernel()
    kernel.read(cell, ran)

    got = kernel.run("%%svc\nTell me something", is_watched=False)

    assert got.status == "ok"
    assert [each.ended for each in emulator.requests] == ["client_left", "whole"]


def test_no_message_holds_the_key(kernel: Kernel, emulator: Emulator) -> None:
    """Neither a reply, nor what is in use, nor a failure shows the key."""
    cells = ["%%svc\nTell me", "%svc use", "svc.last()", "%%svc --model other\nTell me"]

    shown = [str(kernel.run(code).messages) for code in cells]

    assert all(shown)
    assert [emulator.api_key in each for each in shown] == [False] * len(cells)


def test_a_failure_is_one_short_box(kernel: Kernel) -> None:
    """A refused parameter is no traceback, and the cell has failed.

    The error is the headline; HTML, which is not broken within words, says the rest.
    """
    ran = kernel.run("%%svc --temperature 3\nTell me")

    [error] = ran.all("error")
    [box] = ran.all("display_data")
    assert ran.status == "error"
    assert error["traceback"] == ["\x1b[1mNothing was sent\x1b[0m"]
    assert "temperature must be a number from 0 to 2" in error["evalue"]
    assert "temperature must be a number from 0 to 2" in box["data"]["text/html"]
    assert "  temperature must be a number" in box["data"]["text/plain"]


def test_a_failure_that_nobody_watches_is_one_text(kernel: Kernel) -> None:
    """A program that runs notebooks reads the whole message in the error."""
    ran = kernel.run("%%svc --temperature 3\nTell me", is_watched=False)

    [error] = ran.all("error")
    [box] = error["traceback"]
    assert ran.all("display_data") == []
    assert "temperature must be a number" in box
    assert len(box.splitlines()) <= 6


@pytest.mark.parametrize("call", ["svc.", "await svc.AsyncClient()."])
def test_a_failed_call_is_short_and_has_its_line(kernel: Kernel, call: str) -> None:
    """A call in Python is shown as a cell of the magic is; `%tb` has the rest."""
    code = f"{call}complete('Hi', temperature=3)"

    ran = kernel.run(f"# a line before\n{code}")
    # older kernels print it, and send what is printed some time after the cell's end
    flushed = "%tb\nimport sys; sys.stdout.flush()"
    [whole] = kernel.run("%tb").all("error") or kernel.run(flushed).all("stream")

    [box] = ran.all("display_data")
    text = box["data"]["text/plain"]
    assert ran.status == "error"
    assert f"Cell In[2], line 2: {code}" in " ".join(text.split())
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 6
    assert "Traceback" in str(whole)


def test_a_loop_over_the_magic_clears_nothing(kernel: Kernel) -> None:
    """A cell that asks several times keeps its other output and every reply."""
    code = "get_ipython().run_cell_magic('svc', '-m svc-instruct', f'ask {n}')"

    ran = kernel.run(f"for n in (1, 2):\n    print('before', n)\n    {code}")

    assert ran.status == "ok"
    assert ran.all("clear_output") == []
    assert "".join(each["text"] for each in ran.all("stream")) == "before 1\nbefore 2\n"
    assert len(ran.all("display_data")) == 2


VALUE = "sk-secret-of-the-kernel"


def test_a_key_is_asked_for_as_a_password(kernel: Kernel) -> None:
    """The prompt is one that does not echo; no output holds what was typed."""
    cell = kernel.begin("%svc login")
    request = kernel.client.get_stdin_msg(timeout=TIMEOUT_S)
    kernel.client.input(VALUE)
    ran = kernel.read(cell, Ran())

    assert request["content"]["password"] is True
    assert VALUE not in str(ran.messages)
    assert "a prompt" in kernel.run("%svc use", is_watched=False).shown


def test_nobody_is_asked_where_nobody_watches(kernel: Kernel) -> None:
    """Run by nbclient, a login fails in a few lines that name the ways on."""
    ran = kernel.run("%svc login", is_watched=False)

    assert ran.status == "error"
    assert "SVC_API_KEY" in str(ran.messages)


def test_a_mark_that_goes_as_typed_is_said_at_once(kernel: Kernel) -> None:
    """The line is above the reply, and shows while the service has written nothing."""
    ran = Ran()
    cell = kernel.begin("%%svc\nTell me {{something + 1}}")

    kernel.read(cell, ran, until="Sent as typed: {{something + 1}}")
    n_before = len(ran.messages)
    kernel.read(cell, ran)

    assert n_before == 1
    assert [kind for kind, _ in ran.messages][:2] == ["display_data"] * 2
    assert "clear_output" not in dict(ran.messages)
    assert "word39" in ran.all("update_display_data")[-1]["data"]["text/plain"]


def test_a_panel_answers_the_page(kernel: Kernel) -> None:
    """It is shown with its transcript, and hears a page with ipywidgets 7, too."""
    shown = kernel.run("panel = svc.panel('plan')\npanel")
    heard = kernel.run("panel.hear({'t': 'hello', 'seq': 0, 'on': True})")

    [widget, static] = [content["data"] for content in shown.all("display_data")]
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert widget["text/plain"] == ""
    assert "to go on chatting." in static["text/html"]
    assert "Colab" not in static["text/html"]
    messages = [content["data"].get("content", {}) for content in heard.all("comm_msg")]
    assert [message["t"] for message in messages] == ["ack", "heard"]


def test_only_colab_shows_how_colab_allows_widgets(kernel: Kernel) -> None:
    """Its kernel has imported its package before any cell."""
    kernel.run("import sys; sys.modules['google.colab'] = sys")
    shown = kernel.run("svc.panel('in colab')")
    kernel.run("del sys.modules['google.colab']")

    static = shown.all("display_data")[-1]["data"]["text/html"]
    assert "In Colab, run <code>from google.colab import output" in static


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("%svc use", "service  "),
        ("%svc fix", "No cell of this kernel has failed; nothing to fix."),
        (
            "x = 1\nget_ipython().run_line_magic('svc', 'Hello {x}')",
            "Sent as typed: {x}",
        ),
    ],
)
def test_a_note_breaks_at_blanks(kernel: Kernel, code: str, said: str) -> None:
    """A narrow cell would break what is printed within words."""
    ran = kernel.run(code)

    note = ran.all("display_data")[0]["data"]
    assert note["text/plain"].startswith(said)
    assert said in note["text/html"]
    assert "word-break:normal" in note["text/html"]
    assert not ran.all("stream")


def test_what_a_command_says_flows_in_a_cell(kernel: Kernel) -> None:
    """Lines that are broken beforehand are ragged in a narrow cell."""
    ran = kernel.run("%svc use emulator")

    [said] = [content["data"] for content in ran.all("display_data")]
    assert "\n" not in said["text/plain"]
    assert "\n" not in said["text/html"]


def test_help_breaks_no_words_in_a_narrow_cell(kernel: Kernel) -> None:
    """The browser knows the width, and breaks lines of HTML at blanks."""
    ran = kernel.run("%svc help")

    [page] = [content["data"] for content in ran.all("display_data")]
    assert "white-space:pre-wrap" in page["text/html"]
    assert "word-break:normal" in page["text/html"]
    assert "{{name}} puts a variable in" in page["text/plain"]
    assert "flex-wrap:wrap" in page["text/html"]
    assert ">--no-record</span>" in page["text/html"]
    assert ">%svc help all</code>" in page["text/html"]
    assert "`" not in page["text/html"]
    assert ran.all("stream") == []

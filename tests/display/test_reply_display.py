"""A reply while it streams: what each mode shows, how often, and when."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.client.rate_windows import Waiting
from svc_notebook.display.html_styles import BODY, quiet_html, verbatim_html
from svc_notebook.display.markdown import to_html
from svc_notebook.display.reply_display import (
    Final,
    Mode,
    ReplyDisplay,
    Wait,
    follow,
)
from svc_notebook.display.reply_footer import UNFINISHED, WAITING
from svc_notebook.errors import Interrupted
from svc_notebook.service.chunk import Delta
from svc_notebook.tools.call import ToolRun
from tests.display.conftest import Act, Recorder

_FINAL = Final(texts=("One.\n\nTwo.",), footer="3 tokens", marks=("cut",))


_LONG = "A line of words. " * 30 + "End."
_UNFINISHED = quiet_html("<span class=svc-live>still being written</span>")


def _open(
    recorder: Recorder,
    mode: Mode,
    *,
    own_output: bool = True,
    is_verbatim: bool = False,
    n_texts: int = 1,
) -> ReplyDisplay:
    return ReplyDisplay.open(
        mode,
        own_output=own_output,
        is_verbatim=is_verbatim,
        n_texts=n_texts,
        output=recorder.output(),
        clock=recorder.clock,
        display_id="d",
    )


def _stream(
    display: ReplyDisplay, recorder: Recorder, text: str, *, n_chars: int = 200
) -> None:
    """Add a text in pieces, each a second after the one before."""
    for at in range(0, len(text), n_chars):
        recorder.now_s += 1.0
        display.add(text[at : at + n_chars])


@pytest.mark.parametrize("n_texts", [1, 2])
@pytest.mark.parametrize("own_output", [True, False])
def test_a_dot_moves_until_the_first_words(
    recorder: Recorder, n_texts: int, *, own_output: bool
) -> None:
    """One message says that the reply is awaited; its dot moves without more."""
    display = _open(recorder, Mode.LIVE, own_output=own_output, n_texts=n_texts)
    display.flush()
    n_before = len(recorder.acts)
    waiting = recorder.cell()[0]["text/html"]
    for _ in range(9):
        recorder.now_s += 1.0
        display.flush()

    display.add("One", n_texts - 1)

    text = recorder.cell()[0]["text/html"]
    assert len(recorder.acts) == n_before + 1
    assert [(WAITING in html, "@keyframes" in html) for html in (waiting, text)] == [
        (True, True),
        (False, False),
    ]
    assert "prefers-reduced-motion" in waiting


@pytest.mark.parametrize("status", ["", "waiting 3 s: too many requests"])
@pytest.mark.parametrize("n_texts", [1, 2])
def test_live_output_says_that_it_is_unfinished(
    recorder: Recorder, n_texts: int, status: str
) -> None:
    """Saved in mid-stream, an output ends with the mark; the final form has none."""
    display = _open(recorder, Mode.LIVE, n_texts=n_texts)
    display.flush()
    seen = [recorder.cell()[-1]["text/html"]]
    for text in ("One.\n\n", "Two", _LONG):
        recorder.now_s += 1.0
        display.add(text)
        display.status(status, is_now=True)
        seen.append(recorder.cell()[-1]["text/html"])

    display.finish(_FINAL)

    assert all(UNFINISHED in html[-60:] for html in seen)
    assert UNFINISHED not in str(recorder.cell())


def test_no_text_disappears_while_it_is_moved(recorder: Recorder) -> None:
    """After each message, all that was drawn before can still be read."""
    display = _open(recorder, Mode.LIVE)
    words = [f"word{number:03}" for number in range(300)]
    _stream(display, recorder, "\n\n".join(words), n_chars=90)
    acts, recorder.acts = recorder.acts, []

    n_seen = []
    for act in acts:
        recorder.acts.append(act)
        shown = "".join(bundle["text/html"] for bundle in recorder.cell())
        n_seen.append(sum(word in shown for word in words))
    assert n_seen == sorted(n_seen)


@pytest.mark.parametrize("is_verbatim", [True, False])
def test_what_moves_is_seen_once(recorder: Recorder, *, is_verbatim: bool) -> None:
    """After each message every word that was shown can be read once, none twice."""
    display = _open(recorder, Mode.LIVE, is_verbatim=is_verbatim)
    words = [f"word{number:03}" for number in range(600)]
    _stream(display, recorder, "\n\n".join(words), n_chars=90)
    acts, recorder.acts = recorder.acts, []

    seen: set[str] = set()
    for act in acts:
        recorder.acts.append(act)
        html = "".join(bundle["text/html"] for bundle in recorder.cell())
        for name in re.findall(r"<style>\.([\w-]+)\{display:none}</style>", html):
            tag = "span" if is_verbatim else "div"
            html = re.sub(
                rf"<{tag} class={name}>.*?</{tag}>", "", html, flags=re.DOTALL
            )
        visible = re.findall(r"word\d{3}", html)
        assert len(visible) == len(set(visible))
        assert seen <= set(visible)
        seen = set(visible)


def test_a_long_reply_ends_in_place(recorder: Recorder) -> None:
    """At the end only the last output changes: it gets the footer."""
    display = _open(recorder, Mode.LIVE)
    text = f"{_LONG}\n\n{_LONG}\n\nTwo."
    _stream(display, recorder, text)
    n_before = len(recorder.acts)

    display.finish(replace(_FINAL, texts=(text,)))

    assert recorder.kinds()[n_before:] == ["update"]
    assert [bundle["text/plain"] for bundle in recorder.cell()] == [
        f"{_LONG}\n\n",
        f"{_LONG}\n\nTwo.\n\n[cut] 3 tokens",
    ]


def test_a_final_text_that_differs_replaces_what_streamed(recorder: Recorder) -> None:
    """A reply that was changed at its end is shown alone."""
    display = _open(recorder, Mode.LIVE)
    _stream(display, recorder, f"{_LONG}\n\n{_LONG}\n\nTwo.")

    display.finish(_FINAL)

    assert (recorder.cell(), recorder.kinds()[-2:]) == (
        [_FINAL.bundle()],
        ["clear", "publish"],
    )


_PIECES = st.sampled_from(
    [
        *("word ", "\n", "\n\n", "# Head\n", "- item\n", "  - nested\n", "1. one\n"),
        *("```python\n", "x = 1\n", "```\n", "> quoted\n", "| a | b |\n|---|---|\n"),
        *("| 1 | 2 |\n", "[name][ref]", "[ref]: https://a.example\n", "$x^2$", "**b**"),
        *("---\n", "    code\n", "ภาษาไทย ", "<b>", "$$\nx\n$$\n", f"{_LONG}\n\n"),
    ]
)


@pytest.mark.slow
@given(pieces=st.lists(_PIECES, max_size=40))
def test_what_streamed_is_drawn_as_a_whole(pieces: list[str]) -> None:
    """The outputs together have the HTML of the text drawn at once."""
    recorder = Recorder()
    display = _open(recorder, Mode.LIVE)
    text = "".join(pieces)
    _stream(display, recorder, text, n_chars=7)

    display.finish(Final(texts=(text,)))

    parts = [bundle["text/html"] for bundle in recorder.cell()]
    html = "".join(part.removeprefix(BODY).removesuffix("</div>") for part in parts)
    assert html == to_html(text)
    assert len(parts) <= 10


class _Interrupting(Recorder):
    """A screen where an interrupt comes at one act, before it is shown or after."""

    def __init__(self, at_act: int, *, is_before: bool) -> None:
        super().__init__()
        self._at_act = at_act
        self._is_before = is_before
        self._n_acts = 0

    def note(self, act: Act) -> None:
        """Show the act, unless the interrupt comes first."""
        self._n_acts += 1
        is_hit = self._n_acts == self._at_act
        if not (is_hit and self._is_before):
            super().note(act)
        if is_hit:
            raise KeyboardInterrupt


class _Polled:
    """A stream whose pieces come a few at a time, a second after the ones before."""

    def __init__(self, recorder: Recorder, text: str, *, is_verbatim: bool) -> None:
        self.display = _open(recorder, Mode.LIVE, is_verbatim=is_verbatim)
        self.completion = ""  # as far as it arrived
        self.final = Final(texts=(), is_verbatim=is_verbatim, marks=("interrupted",))
        self._recorder = recorder
        self._text = text

    @property
    def is_done(self) -> bool:
        """Whether all pieces were returned."""
        return self.completion == self._text

    def poll(self, timeout_s: float) -> list[Delta]:
        """Return the next pieces."""
        self._recorder.now_s += 20 * timeout_s
        at = len(self.completion)
        pieces = [self._text[start : start + 37] for start in range(at, at + 111, 37)]
        self.completion += "".join(pieces)
        return [Delta(text=piece) for piece in pieces]

    def cancel(self) -> str:
        """Return what arrived."""
        return self.completion

    def show(self, delta: Delta) -> None:
        """Show a piece."""
        self.display.add(delta.text or "")

    def wait(self, wait: Wait) -> None:
        """Show a wait."""
        self.display.wait(wait)

    def flush(self) -> float | None:
        """Show what is new."""
        return self.display.flush()

    def end(self, completion: object | None) -> None:
        """Show the final form."""
        self.final = replace(self.final, texts=(str(completion),))
        self.display.finish(self.final)


_MIXED = f"# Head\n\n{_LONG}\n\n- one\n  - two\n\n```python\nx = 1\n```\n\n" * 4


@pytest.mark.slow
@pytest.mark.parametrize("is_verbatim", [True, False])
@pytest.mark.parametrize("is_before", [True, False])
def test_an_interrupt_at_any_message_loses_nothing(
    *, is_before: bool, is_verbatim: bool
) -> None:
    """What arrived is in the outputs, once and in order, wherever an interrupt came."""
    whole = Recorder()
    polled = _Polled(whole, _MIXED, is_verbatim=is_verbatim)
    follow(polled, polled)

    for at_act in range(1, len(whole.acts) + 1):
        recorder = _Interrupting(at_act, is_before=is_before)
        stream = _Polled(recorder, _MIXED, is_verbatim=is_verbatim)
        with pytest.raises(Interrupted) as caught:
            follow(stream, stream)

        assert caught.value.partial == stream.completion
        assert _read(recorder) == (
            _read_html(stream.final.bundle()["text/html"]),
            stream.final.bundle()["text/plain"].split(),
        )


def _read(recorder: Recorder) -> tuple[str, list[str]]:
    """Return what the outputs show together: HTML without its frames, and words."""
    html = "".join(_read_html(bundle["text/html"]) for bundle in recorder.cell())
    return html, " ".join(out["text/plain"] for out in recorder.cell()).split()


def _read_html(html: str) -> str:
    """Return the HTML within the frames of an output."""
    within = html.removeprefix(BODY).removesuffix("</div>")
    frame, end = verbatim_html("|").split("|")
    return within.replace(frame, "").replace(end, "")


def test_verbatim_text_is_drawn_as_written(recorder: Recorder) -> None:
    """Shown as it is, no line of a long reply is lost or formatted."""
    display = _open(recorder, Mode.LIVE, is_verbatim=True)
    text = "".join(f"# line *{number}*\n" for number in range(300))
    _stream(display, recorder, text)

    display.finish(Final(texts=(text,), is_verbatim=True))

    cell = recorder.cell()
    assert "".join(each["text/plain"] for each in cell).split() == text.split()
    assert 1 < len(cell) <= 10
    assert all("<pre" in each["text/html"] for each in cell)


@pytest.mark.parametrize("n_texts", [2, 3])
def test_choices_stream_side_by_side(recorder: Recorder, n_texts: int) -> None:
    """Several choices are drawn as in the final form, in one output."""
    display = _open(recorder, Mode.LIVE, n_texts=n_texts)
    texts = tuple(f"**{number}**" for number in range(n_texts))
    for number, text in enumerate(texts):
        recorder.now_s += 1.0
        display.add(text, number)
    streamed = recorder.cell()[0]["text/html"]
    final = Final(texts=texts, footer="3 tokens")

    display.finish(final)

    without_footer = replace(final, footer="").bundle()["text/html"]
    assert streamed == without_footer + _UNFINISHED
    assert recorder.cell() == [final.bundle()]


@pytest.mark.parametrize("is_verbatim", [True, False])
def test_a_40_kb_reply_takes_ten_outputs(recorder: Recorder, is_verbatim: bool) -> None:
    """However long a reply is, it has at most ten outputs at any time."""
    display = _open(recorder, Mode.LIVE, is_verbatim=is_verbatim)

    _stream(display, recorder, "A paragraph of some words.\n\n" * 1_400)

    assert 5 <= len(recorder.cell()) <= 10


def test_live_takes_everything_away_if_nothing_stays(recorder: Recorder) -> None:
    """Settled without a reply, the cell is empty."""
    display = _open(recorder, Mode.LIVE)
    display.status("waiting 12 s for the minute limit")

    display.finish(None)

    assert recorder.cell() == []


def test_notes_stand_below_the_text_until_more_comes(recorder: Recorder) -> None:
    """A note replaces the one before, and text replaces the note."""
    display = _open(recorder, Mode.LIVE)
    shown = []
    for show, text in (
        (display.status, "waiting 2 s"),
        (display.status, "waiting 1 s"),
        (display.add, "On"),
    ):
        recorder.now_s += 1.0
        show(text)
        shown.append(recorder.cell()[0]["text/html"])

    is_shown = [("waiting 2 s" in html, "waiting 1 s" in html) for html in shown]
    assert is_shown == [(True, False), (False, True), (False, False)]


def test_among_other_output_one_display_is_updated(recorder: Recorder) -> None:
    """Without an output of its own, the reply keeps to one display made at once."""
    display = _open(recorder, Mode.LIVE, own_output=False)
    display.add("One.\n\nTw")
    recorder.now_s = 1.0
    display.add("o.")

    display.finish(_FINAL)

    assert (recorder.kinds(), recorder.cell()) == (
        ["publish", "update", "update", "update"],
        [_FINAL.bundle()],
    )


def test_settled_shows_one_display(recorder: Recorder) -> None:
    """Settled, neither text nor notes show before the one final display."""
    display = _open(recorder, Mode.SETTLED)
    display.status("waiting 2 s")
    display.add("One.")
    display.flush()

    display.finish(_FINAL)

    assert recorder.acts == [("publish", _FINAL.bundle(), None)]


def test_plain_prints_text_as_it_comes(recorder: Recorder) -> None:
    """Printed text is whole, safe, and followed by the closing line alone."""
    display = _open(recorder, Mode.PLAIN)
    display.add("One.\n\n")
    display.add("Two.")

    display.finish(_FINAL)

    assert recorder.printed() == "One.\n\nTwo.\n[cut] 3 tokens\n"


def test_plain_prints_nothing_a_terminal_obeys(recorder: Recorder) -> None:
    """Control characters are printed as escapes, cut anywhere."""
    display = _open(recorder, Mode.PLAIN)
    for piece in ("\x1b", "]0;x\x07", "\r"):
        display.add(piece)

    display.finish(Final(texts=("\x1b]0;x\x07\r",), footer="\x1b[2J"))

    assert recorder.printed() == "\\x1b]0;x\\a\\r\n\\x1b[2J\n"


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_follows_the_end(recorder: Recorder, mode: Mode) -> None:
    """After settling, text, notes, flushes and another end change nothing."""
    display = _open(recorder, mode)
    display.finish(_FINAL)
    before = list(recorder.acts)
    recorder.now_s = 9.0

    display.add("late")
    display.status("late")
    display.flush()
    display.finish(_FINAL)

    assert recorder.acts == before


@pytest.mark.slow
def test_import_leaves_the_notebook_alone() -> None:
    """Importing the module loads neither IPython nor widgets."""
    code = (
        "import sys, svc_notebook.display.reply_display;"
        "print({'IPython', 'ipywidgets', 'httpx'} & set(sys.modules))"
    )

    got = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert got.stdout.strip() == "set()"


RUN = ToolRun(
    call_id="c", name="weather", asked_arguments='{"city": "Rome"}', result="rain"
)


def _with_call(
    recorder: Recorder, mode: Mode, *, own_output: bool = True
) -> ReplyDisplay:
    """Return a reply with text, a call, and text."""
    display = ReplyDisplay.open(
        mode,
        own_output=own_output,
        output=recorder.output(),
        clock=recorder.clock,
        display_id="d",
    )
    display.add("Before.")
    recorder.now_s += 1
    display.status("running", is_now=True)
    recorder.now_s += 1
    display.tool_run(RUN)
    recorder.now_s += 1
    display.add("\n\n")
    display.add("After.")
    recorder.now_s += 1
    display.flush()
    return display


@pytest.mark.parametrize("own_output", [True, False])
def test_a_live_cell_shows_text_call_and_text(
    recorder: Recorder, *, own_output: bool
) -> None:
    """In this order, each once; the status line is gone."""
    _with_call(recorder, Mode.LIVE, own_output=own_output)

    shown = "".join(each.get("text/html", "") for each in recorder.cell())
    places = [shown.index(word) for word in ("Before.", "<details>", "After.")]
    assert places == sorted(places)
    assert [shown.count(word) for word in ("Before.", "<details>", "After.")] == [
        1,
        1,
        1,
    ]
    assert "running" not in shown


def test_plain_prints_a_countdown_once(recorder: Recorder) -> None:
    """Notes that differ in figures only are one line."""
    display = _open(recorder, Mode.PLAIN)
    display.add("One")
    for note in ("waiting 2 s", "waiting 1 s", "trying again"):
        display.status(note)

    display.finish(None)

    assert recorder.printed() == "One\nwaiting 2 s\ntrying again\n"


FINAL = Final(texts=("Before.\n\nAfter.",), footer="m", tool_runs=(RUN,))


LINE = 'weather(city="Rome") → rain'


def test_a_terminal_prints_the_call_on_a_line(recorder: Recorder) -> None:
    """Between the texts; the final form adds its closing line alone."""
    display = _with_call(recorder, Mode.PLAIN)
    display.finish(FINAL)

    assert recorder.printed() == f"Before.\nrunning\n{LINE}\n\n\nAfter.\nm\n"


@pytest.mark.parametrize("mode", [Mode.LIVE, Mode.PLAIN])
def test_no_wait_of_no_seconds_is_shown(recorder: Recorder, mode: Mode) -> None:
    """What is left of a second ends the countdown instead of staying as 0 s."""
    display = _open(recorder, mode)
    for wait_s in (2.0, 0.4, 0.0):
        recorder.now_s += 1.0
        display.wait(Waiting(wait_s=wait_s, reason="too many requests"))

    seen = str(recorder.acts)
    last = str(recorder.acts[-1])
    assert "waiting 2 s: too many requests" in seen
    assert "waiting 0 s" not in seen
    assert (mode is Mode.LIVE) == ("waiting 2 s" not in last)


def test_updates_of_a_long_text_are_rare(recorder: Recorder) -> None:
    """A text of 22 kB is sent once a second, or after three if little is new."""
    display = _open(recorder, Mode.LIVE, own_output=False)
    recorder.now_s = 1.0
    display.add("word" * 5_300)
    display.add("more")
    recorder.now_s = 1.9
    display.flush()
    n_before = len(recorder.acts)
    recorder.now_s = 4.1

    display.flush()

    assert (n_before, len(recorder.acts)) == (2, 3)


def test_a_reply_in_lumps_is_updated_often(recorder: Recorder) -> None:
    """Text that arrives every 40 ms, 900 bytes a second, waits at most 0.15 s."""
    display = _open(recorder, Mode.LIVE)
    shown_s = [0.0]

    for _ in range(86):
        display.add("words " * 6)
        for _ in range(4):
            display.flush()
            if len(recorder.acts) >= len(shown_s):
                shown_s.append(recorder.now_s)
            recorder.now_s += 0.01

    gaps_s = [round(after - before, 2) for before, after in pairwise(shown_s)]
    assert max(gaps_s) <= 0.15


@pytest.mark.parametrize("end", ["Rest.", "Other."])
@pytest.mark.parametrize("is_other_form", [True, False])
@pytest.mark.parametrize("own_output", [True, False])
def test_what_follows_a_question_is_below_it(
    recorder: Recorder, end: str, *, is_other_form: bool, own_output: bool
) -> None:
    """What was above stays there, unless the final form is another one."""
    display = _open(recorder, Mode.LIVE, own_output=own_output)
    display.add("Begin.")
    recorder.note(("publish", {"text/plain": "Run it? y"}, None))
    display.go_below()
    _stream(display, recorder, "Rest. " * 2000)
    display.add("\n\nRest.")
    text = f"Begin.\n\n{'Rest. ' * 2000}\n\n{end}"

    display.finish(replace(_FINAL, texts=(text,), is_verbatim=is_other_form))

    cell = [shown["text/plain"].strip() for shown in recorder.cell()]
    assert cell[:2] == ["" if is_other_form else "Begin.", "Run it? y"]
    assert cell[-1].endswith(f"{end}\n\n[cut] 3 tokens")
    assert "".join(cell).count("Begin.") == 1
    assert "clear" not in recorder.kinds()


def test_questions_open_few_outputs(recorder: Recorder) -> None:
    """However many there are, the cell gets at most ten outputs of a reply."""
    display = _open(recorder, Mode.LIVE)
    for n in range(50):
        display.add(f"Text {n}.\n\n")
        display.go_below()

    display.finish(
        replace(_FINAL, texts=("\n\n".join(f"Text {n}." for n in range(50)),))
    )

    assert len(recorder.cell()) == 10
    assert "Text 49." in recorder.cell()[-1]["text/plain"]

"""Text that a server gives next to the content: folded, kept, and never sent back."""

from collections.abc import Iterator
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from tests.magics.conftest import Shell, contents

THOUGHT = "I am asked & <b>think</b>. 😀"


def _chunk(reason: str | None = None, **delta: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def streamed(name: str) -> dict[str, Any]:
    """Return a streamed reply whose thoughts come under a name, in pieces."""
    pieces = (_chunk(**{name: THOUGHT[at : at + 7]}) for at in range(0, 28, 7))
    events = [_chunk(role="assistant", content=None), *pieces]
    events += [_chunk(content="Four"), _chunk(content="."), _chunk("stop")]
    return {"when": {"is_streamed": True}, "events": [*events, "[DONE]"]}


def whole(**message: object) -> dict[str, Any]:
    """Return a reply in one piece."""
    said = {"role": "assistant", "content": "Four.", **message}
    choice = {"index": 0, "message": said, "finish_reason": "stop"}
    return {"when": {"is_streamed": False}, "json": {"choices": [choice]}}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """A service that thinks first, in a stream and otherwise."""
    only = [_chunk(reasoning_content="Hm. "), _chunk("length"), "[DONE]"]
    silent = whole(content=None, reasoning_content=THOUGHT)
    silent["json"]["choices"][0]["finish_reason"] = "length"
    script = [
        {**silent, "when": {"contains": "nothing"}},
        {"when": {"contains": "hm"}, "events": only},
        {**streamed("reasoning_content"), "times": 2},
        streamed("reasoning"),
        {**whole(reasoning_content=THOUGHT), "times": None},
    ]
    with Emulator(script=script, tokens_per_s=None, first_token_s=0) as running:
        yield running


@pytest.mark.slow
def test_it_is_apart_from_the_text(shell: Shell) -> None:
    """Both names, in a stream and not: the text has none of it, the reply has it."""
    for options in ("", "", "--no-stream"):
        shown = shell.run(f"%%svc -o answer {options}\nTwo and two?").shown
        answer = shell.names["answer"]

        assert isinstance(answer, svc.Completion)
        assert (answer.text, answer.reasoning) == ("Four.", THOUGHT)
        assert svc.replies_df()["text"].tolist()[-1] == "Four."
        assert "think" not in shown
        assert f"reasoning: {len(THOUGHT)} characters" in shown
        html = answer._repr_mimebundle_()["text/html"]
        assert "<details><summary" in html
        assert "&lt;b&gt;think&lt;/b&gt;" in html


@pytest.mark.usefixtures("shell")
def test_a_reply_of_reasoning_only_says_so() -> None:
    """The text is empty, and the reply says why."""
    completion = svc.complete("Say nothing")

    assert "cut · empty" in repr(completion)
    assert completion.notes == (
        "all tokens went into the reasoning; allow more with max_tokens",
    )


def test_it_is_kept_and_not_sent_back(shell: Shell, emulator: Emulator) -> None:
    """The ledger and a restored conversation have it; the next request has not."""
    shell.run("%%svc -c sums\nTwo and two?")
    shell.run("%%svc -c sums\nTwo and three?")

    assert contents(emulator) == ["Two and two?", "Four.", "Two and three?"]
    kept = svc.conversation("sums")
    assert kept.turns[0].version.reasonings == (THOUGHT,)
    folded = f"<details><summary>reasoning: {len(THOUGHT)} characters</summary>"
    quote = "\n".join(f"> {line}" for line in THOUGHT.splitlines())
    assert f"\n\n{folded}\n\n{quote}\n\n</details>\n\n*" in kept.to_markdown()
    bundle = kept._repr_mimebundle_()
    assert "&lt;b&gt;think" in bundle["text/html"]
    assert "think" not in bundle["text/plain"]
    assert THOUGHT in kept.to_json()


def test_thoughts_without_an_answer(shell: Shell) -> None:
    """All tokens went into thinking: the reply is cut and empty, and says how much."""
    shown = shell.run("%%svc\nhm").shown

    assert "[cut] [empty]" in shown
    assert "reasoning: 4 characters" in shown

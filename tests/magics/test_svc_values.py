"""`%%svc --as Model -o x`: a value of a type of the notebook from a cell."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from tests.magics.conftest import Shell

TYPES = """\
from dataclasses import dataclass
from typing import Literal, TypedDict
from pydantic import BaseModel
@dataclass
class Invoice:
    "An invoice."
    number: int
    total: float
class Place(TypedDict):
    name: str
class Order(BaseModel):
    item: str
Mood = Literal["good", "bad"]
text = "a text"
class Shy(BaseModel):
    item: str
    def __repr__(self): raise ValueError("no")
"""
GOOD = {"number": 7, "total": 120}

Serve = Callable[..., Emulator]


def calling(name: str, arguments: object) -> dict[str, Any]:
    """Return a scripted reply that calls the type's tool."""
    return {"tool_calls": [{"id": "c", "name": name, "arguments": arguments}]}


@pytest.fixture
def serve(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Makes scripted emulators; the types are defined."""
    shell.run(TYPES)
    with ExitStack() as running:

        def begin(*script: dict[str, Any]) -> Emulator:
            emulator = running.enter_context(Emulator(script=script))
            monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
            monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
            return emulator

        yield begin


@pytest.mark.parametrize(
    ("as_type", "reply", "value", "shown"),
    [
        (
            "Invoice",
            calling("Invoice", GOOD),
            "Invoice(7, 120.0)",
            "Invoice(number=7, total=120.0)",
        ),
        (
            "list[Invoice]",
            calling("Invoice_list", {"items": [GOOD, GOOD]}),
            "[Invoice(7, 120.0)] * 2",
            "[Invoice(number=7, total=120.0)",
        ),
        ("Place", calling("Place", {"name": "a"}), "{'name': 'a'}", "{'name': 'a'}"),
        ("Order", {"text": '{"item": "a"}'}, "Order(item='a')", "Order(item='a')"),
        ("Mood", calling("label", {"label": "bad"}), "'bad'", "'bad'"),
        ("Mood", {"text": "**Good**."}, "'good'", "'good'"),
        ("Mood", {"text": "The mood is bad."}, "'bad'", "'bad'"),
    ],
)
def test_a_cell_gives_a_value(
    shell: Shell,
    serve: Serve,
    as_type: str,
    reply: dict[str, Any],
    value: str,
    shown: str,
) -> None:
    """It is shown as Python writes it, once, with the footer, and has its name."""
    emulator = serve(reply)

    cell = shell.run(f"%%svc --as {as_type} -o x\nNumber 7.")

    assert cell.value == eval(value, shell.names)  # noqa: S307 - written above
    assert shell.names["x"] is cell.value
    assert cell.shown.count(shown) == 1
    assert "[emulator] svc-v2-8b-instruct" in cell.shown
    prompt = emulator.requests[0].json["messages"][-1]["content"]
    assert prompt.startswith("Number 7.")
    assert len(emulator.requests[0].json["tools"]) == 1


def test_the_line_below_counts_every_try(shell: Shell, serve: Serve) -> None:
    """A value that fits at the third try was charged for three times."""
    serve({"text": "No idea.", "times": 2}, calling("Invoice", GOOD))

    cell = shell.run("%%svc --no-stream --as Invoice -o x\nNumber 7.")

    sent = svc.replies_df()
    prompt, reply = (
        sent[name].sum() for name in ("prompt_tokens", "completion_tokens")
    )
    assert len(sent) == 3
    assert f"3 requests, {prompt} → {reply} tokens" in cell.shown
    assert "2 replies before it did not fit" in cell.shown
    assert f"3 requests, {prompt} → {reply} tokens" in repr(svc.last())


def test_what_never_fits_is_an_error(shell: Shell, serve: Serve) -> None:
    """The name keeps what it had."""
    serve({"text": "No idea.", "times": None})
    shell.run("x = 'before'")

    cell = shell.run("%%svc --as Invoice -o x\nNumber 7.")

    assert isinstance(cell.error, svc.errors.ToolCallError)
    assert "The reply does not fit Invoice" in cell.shown
    assert "gave no valid Invoice in 3 tries" in cell.shown
    assert cell.shown.count("No idea.") == 3
    assert "[does not fit]" in cell.shown
    assert "or ask another model with -m" in cell.shown
    assert "max_tries" not in cell.shown
    assert shell.names["x"] == "before"


def test_a_call_that_never_fits_is_shown_with_its_reason(
    shell: Shell, serve: Serve
) -> None:
    """Each try's call is there with what was wrong."""
    serve(calling("Invoice", {"number": "x"}) | {"times": None})

    cell = shell.run("%%svc --as Invoice -o x\nNumber 7.")

    assert cell.shown.count('Invoice(number="x") ✕ Error: number: input') == 3
    assert "handed back" not in cell.shown


def test_a_value_that_cannot_be_written_is_kept(shell: Shell, serve: Serve) -> None:
    """A `__repr__` of the user that fails costs no reply."""
    serve(calling("Shy", {"item": "a"}))

    cell = shell.run("%%svc --as Shy -o x\nNumber 7.")

    assert cell.error is None
    assert "<a Shy that cannot be displayed>" in cell.shown


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("--as Invioce", "Did you mean Invoice?"),
        ("--as list[Invioce]", "Did you mean Invoice?"),
        ("--as dict[str,Invoice]", "or list[NAME]"),
        ("--as Literal['a','b']", "has no type of that name"),
        ("--as text", "This is a value of type str"),
        ("--as list[text]", "cannot be described"),
        ("--as Invoice -c plan", "--as does not go with -c"),
        ("--as Invoice --tools len", "--as does not go with --tools"),
        ("--as Invoice -f json", "--as does not go with --format"),
        ("--as Invoice -n 2", "--as does not go with -n"),
        (
            "--as Invoice -t 0,1 -m a,b",
            (
                "but --model and --temperature have several values. For a value of "
                "each reply, write svc.sweep(PROMPT, model=['a', 'b'], "
                "temperature=[0, 1], "
                "answer=Invoice).run().replies_df()"
            ),
        ),
        ("--as Invoice --repeats 2", "--repeats has several values"),
    ],
)
def test_slips_send_nothing(shell: Shell, serve: Serve, line: str, remedy: str) -> None:
    """What does not go is refused in words, before anything is sent."""
    emulator = serve()

    cell = shell.run(f"%%svc {line}\nNumber 7.")

    assert isinstance(cell.error, svc.SvcError)
    assert remedy in cell.shown
    assert emulator.requests == ()


def test_tools_of_every_cell_are_left_out(shell: Shell, serve: Serve) -> None:
    """`%config SvcMagics.tools` does not refuse values."""
    emulator = serve(calling("Invoice", GOOD))
    shell.run("def find(x: str) -> str:\n    'Find.'\n    return x")
    shell.run("%svc tools add find")

    cell = shell.run("%%svc --as Invoice\nNumber 7.")

    assert cell.error is None
    assert len(emulator.requests[0].json["tools"]) == 1

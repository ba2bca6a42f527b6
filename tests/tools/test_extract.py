"""extract returns an object of a type, or raises an error with the reason."""

import json
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

import svc_notebook as svc
from tests.tools.conftest import Serve


@dataclass
class Invoice:
    """An invoice.

    Attributes:
        number: Printed on top.
        total: In euros.
    """

    number: int
    total: float


@dataclass
class Bill:
    """A bill."""

    baht: Decimal


class Place(TypedDict):
    """A place."""

    name: str


class Order(BaseModel):
    """An order."""

    item: str
    count: int = 1


def calling(arguments: object, name: str = "Invoice") -> dict[str, Any]:
    """Return a scripted reply that calls the form."""
    return {"tool_calls": [{"id": "c", "name": name, "arguments": arguments}]}


GOOD = {"number": 7, "total": 120}


def test_the_emulator_fills_a_form_in(serve: Serve) -> None:
    """Without a script, a dataclass comes back as an object."""
    emulator = serve()
    got = svc.extract(Invoice, "Number 7 costs 120.5 euros.")

    assert got == Invoice(number=7, total=120.5)
    (asked,) = emulator.requests
    assert asked.json["tools"][0]["function"]["name"] == "Invoice"
    assert asked.json["messages"][-1]["content"].startswith("Number 7 costs")


def test_other_kinds_of_types(serve: Serve) -> None:
    """A TypedDict gives a dict, a pydantic model an object of it."""
    serve(calling({"name": "Rome"}, "Place"), calling({"item": "tea"}, "Order"))
    assert svc.extract(Place, "Rome.") == {"name": "Rome"}
    assert svc.extract(Order, "Tea.") == Order(item="tea", count=1)


def test_a_number_for_a_decimal_keeps_its_digits(serve: Serve) -> None:
    """Also in a list, and in a call that is written as text."""
    serve(
        calling('{"baht": 12345678901234567890.10}', "Bill"),
        calling('{"items": [{"baht": 0.10}]}', "Bill_list"),
        {"text": '{"baht": 55.00}'},
    )

    got = [
        svc.extract(Bill, "A bill."),
        *svc.extract(list[Bill], "Bills."),
        svc.extract(Bill, "A bill."),
    ]

    texts = [str(one.baht) for one in got]
    assert texts == ["12345678901234567890.10", "0.10", "55.00"]


@pytest.mark.parametrize("arguments", [{"items": [GOOD, GOOD]}, [GOOD, GOOD]])
def test_a_list_comes_in_a_field_or_alone(serve: Serve, arguments: object) -> None:
    """A list of a type is taken however the model wraps it."""
    emulator = serve(calling(json.dumps(arguments), "Invoice_list"))

    got = svc.extract(list[Invoice], "Two of number 7.")

    assert got == [Invoice(number=7, total=120.0)] * 2
    (asked,) = emulator.requests
    schema = asked.json["tools"][0]["function"]["parameters"]
    assert schema["properties"]["items"]["items"]["required"] == ["number", "total"]


def test_what_does_not_fit_goes_back_with_the_reason(serve: Serve) -> None:
    """Words instead of a call, then a wrong type, then the value: three exchanges."""
    emulator = serve(
        {"text": "It is number 7."},
        calling({"number": "seven", "total": 120}),
        calling(GOOD),
    )
    got = svc.extract(Invoice, "Number 7.")

    second, third = (each.json["messages"] for each in emulator.requests[1:])
    assert got == Invoice(number=7, total=120.0)
    assert "You did not call Invoice." in second[-1]["content"]
    assert third[-1]["role"] == "tool"
    assert "number" in third[-1]["content"]
    assert list(svc.tool_calls_df()["error"].isna()) == [False, True]


def test_it_gives_up_after_so_many_tries(serve: Serve) -> None:
    """The error names the last fault and holds the last reply."""
    emulator = serve(calling("{", "Invoice") | {"times": None})
    with pytest.raises(
        svc.errors.ToolCallError, match=r"in 2 tries.*not JSON"
    ) as caught:
        svc.extract(Invoice, "Number 7.", max_tries=2)

    assert len(emulator.requests) == 2
    assert isinstance(caught.value.partial, svc.Completion)
    assert caught.value.partial.tool_calls[0].function.arguments == "{"


@pytest.mark.parametrize(
    ("max_tokens", "advice"),
    [
        (9, "Pass a larger max_tokens, such as max_tokens='fit'"),
        ("fit", "shorten the prompt, or ask for less"),
    ],
)
@pytest.mark.parametrize(
    "reply",
    [
        calling('{"number": 7, "to'),
        calling(""),
        {"text": '```json\n{"number": 7, "to'},
        {"text": "First, let me"},
    ],
)
def test_a_reply_that_was_cut_is_not_asked_for_again(
    serve: Serve, reply: dict[str, Any], max_tokens: Literal["fit"] | int, advice: str
) -> None:
    """The error says that it was cut and what to pass; one request was sent."""
    emulator = serve({**reply, "finish_reason": "length"})

    with pytest.raises(
        svc.errors.CutError, match=f"The reply was cut .*{advice}"
    ) as caught:
        svc.extract(Invoice, "Number 7.", max_tokens=max_tokens)

    assert len(emulator.requests) == 1
    assert isinstance(caught.value.partial, svc.Completion)


@pytest.mark.parametrize(
    "text",
    [
        '{"number": 7, "total": 120}',
        '```json\n{"number": 7, "total": 120}\n```',
        'Here it is:\n\n```\n{"number": 7,\n "total": 120}\n```\nAnything else?',
        'Sure {as asked} [1]: {"number": 7, "total": 120}. Not {"number": 8}.',
    ],
)
def test_json_that_comes_as_text_is_read(serve: Serve, text: str) -> None:
    """Plain, fenced or after a few words, JSON instead of a call is the value."""
    emulator = serve({"text": text})

    assert svc.extract(Invoice, "Number 7.") == Invoice(number=7, total=120.0)
    assert len(emulator.requests) == 1


OTHER = {"number": 8, "total": 1}


def _two_calls(name: str, *arguments: object) -> dict[str, Any]:
    calls = [calling(each, name)["tool_calls"][0] for each in arguments]
    return {"tool_calls": [{**each, "id": f"c{n}"} for n, each in enumerate(calls)]}


def test_the_lists_of_several_calls_are_joined(serve: Serve) -> None:
    """No item of a reply with two calls is lost."""
    serve(_two_calls("Invoice_list", {"items": [GOOD]}, {"items": [OTHER]}))

    got = svc.extract(list[Invoice], "Numbers 7 and 8.")

    assert [each.number for each in got] == [7, 8]


def test_a_list_of_which_a_part_does_not_fit_goes_back(serve: Serve) -> None:
    """No part of a list is taken alone."""
    emulator = serve(
        _two_calls("Invoice_list", {"items": [GOOD]}, {"items": [{"number": 8}]}),
        calling({"items": [GOOD, OTHER]}, "Invoice_list"),
    )

    got = svc.extract(list[Invoice], "Numbers 7 and 8.")

    assert [each.number for each in got] == [7, 8]
    answers = [each["content"] for each in emulator.requests[1].json["messages"][-2:]]
    assert "Another call of this reply did not fit. Answer by" in answers[0]
    assert "total" in answers[1]


def test_calls_with_different_values_go_back(serve: Serve) -> None:
    """One value is asked for, so two are sent back; the same one twice is taken."""
    emulator = serve(
        _two_calls("Invoice", GOOD, OTHER), _two_calls("Invoice", GOOD, GOOD)
    )

    assert svc.extract(Invoice, "Number 7.") == Invoice(number=7, total=120.0)
    answers = emulator.requests[1].json["messages"][-2:]
    assert all("The calls gave different values." in a["content"] for a in answers)
    assert all("calling the tool Invoice once" in a["content"] for a in answers)


def test_a_call_of_something_else_is_answered(serve: Serve) -> None:
    """A name that was not offered goes back as a fault."""
    emulator = serve(calling(GOOD, "Bill"), calling(GOOD))

    got = svc.extract(Invoice, [svc.Message(role="system", content="Number 7.")])

    first, second = (each.json["messages"] for each in emulator.requests)
    assert got == Invoice(number=7, total=120.0)
    assert [each["role"] for each in first] == ["system", "user"]
    assert "There is no such tool; call Invoice." in second[-1]["content"]


@pytest.mark.parametrize(
    ("type_", "more", "error"),
    [
        (int, {}, svc.errors.ToolSchemaError),
        (dict[str, int], {}, svc.errors.ToolSchemaError),
        ("Invoice", {}, svc.errors.ToolSchemaError),
        (None, {}, svc.errors.ToolSchemaError),
        (Invoice(number=7, total=1.0), {}, svc.errors.ToolSchemaError),
        (Invoice, {"max_tries": 0}, svc.errors.ParameterError),
        (Invoice, {"tools": [print]}, svc.errors.ParameterError),
        (Invoice, {"n": 2}, svc.errors.ParameterError),
    ],
)
def test_what_cannot_be_meant_is_refused(
    serve: Serve,
    type_: Any,  # noqa: ANN401 - types without named fields
    more: dict[str, Any],
    error: type[Exception],
) -> None:
    """Nothing is sent."""
    emulator = serve()
    with pytest.raises(error):
        svc.extract(type_, "Number 7.", **more)

    assert emulator.requests == ()


class Mood(Enum):
    """How a customer feels."""

    GLAD = "glad"
    CROSS = "cross"


@pytest.mark.parametrize(
    ("type_", "label", "value"),
    [
        (Literal["glad", "cross"], "cross", "cross"),
        (Literal["ชม", "ติ"], "ติ", "ติ"),
        (Mood, "cross", Mood.CROSS),
    ],
)
def test_labels_need_no_class(
    serve: Serve,
    type_: Any,  # noqa: ANN401 - a Literal is no class
    label: str,
    value: object,
) -> None:
    """Another label is sent back, and a reply that is only a label is read."""
    wrong, right = (calling({"label": text}, "label") for text in ("sad", label))
    emulator = serve(wrong, right, {"text": f"{label}."})

    assert svc.extract(type_, "Cold tea again.") == value
    assert svc.extract(type_, "Cold tea again.") == value
    assert "label" in emulator.requests[1].json["messages"][-1]["content"]
    assert len(emulator.requests) == 3


def test_a_thai_name_stays(serve: Serve) -> None:
    """A class's own name is the tool's, in any script; marks above letters too."""
    place = make_dataclass("ชื่อ", [("name", str)])
    emulator = serve(calling({"name": "ภูเก็ต"}, "ชื่อ"))

    assert svc.extract(place, "ภูเก็ต") == place("ภูเก็ต")
    assert emulator.requests[0].json["tools"][0]["function"]["name"] == "ชื่อ"


class Tone(Enum):
    """The tone of a text."""

    WARM_HEARTED = "warm"
    COLD = "cold"


@pytest.mark.parametrize("type_", [Literal["good", "bad", "not good"], Tone])
@pytest.mark.parametrize(
    "text",
    [
        "The mood is bad.",
        "**Not good**, I would say.",
        "It is not bad.",
        "good or bad?",
        "Goodness!",
        "It is warm-hearted.",
        "WARM HEARTED",
        "I cannot say.",
    ],
)
def test_a_label_in_words_is_read_as_in_a_sweep(
    serve: Serve,
    type_: Any,  # noqa: ANN401 - a Literal is no class
    text: str,
) -> None:
    """What a sweep's `answer=` reads is extracted, and what it refuses is not."""
    serve({"text": text, "times": None})
    run = svc.sweep("How is it?", answer=type_, name="moods").run()
    row = run.replies_df().iloc[0]

    if not row["answer_ok"]:
        with pytest.raises(svc.errors.ToolCallError) as caught:
            svc.extract(type_, "How is it?", max_tries=1)
        assert row["answer_error"] in str(caught.value)
        assert repr(text) in str(caught.value)
        return
    value = svc.extract(type_, "How is it?", max_tries=1)
    assert getattr(value, "value", value) == row["answer"]

"""Scripts: answers given instead of the emulator's own."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from svc_notebook.emulator.emulated_service import Service
from svc_notebook.emulator.http_values import Reply
from svc_notebook.emulator.script import Script, read_script
from svc_notebook.errors import SettingsError

Fields = Callable[..., dict[str, Any]]


@pytest.fixture
def play(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> Callable[..., Reply]:
    """Answer one request by one entry."""

    def answer(entry: dict[str, Any], **more: object) -> Reply:
        return post(make_service(script=(entry,)), fields(**more))

    return answer


def _body(reply: Reply) -> Any:  # noqa: ANN401 - JSON
    return json.loads(b"".join(piece.data for piece in reply.body))


def _texts(reply: Reply) -> list[str]:
    return [choice["message"]["content"] for choice in _body(reply)["choices"]]


def test_entries_answer_in_order_and_once(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """When the script is used up the emulator writes again."""
    service = make_service(script=({"text": "one"}, {"text": "two", "times": 2}))

    texts = [_texts(post(service, fields()))[0] for _ in range(4)]

    assert texts[:3] == ["one", "two", "two"]
    assert texts[3] not in texts[:3]


@pytest.mark.parametrize(
    "text", ["One, two, three, four.", ["One, t", "wo, three, f", "our."]]
)
@pytest.mark.parametrize("times", [1, None])
@pytest.mark.parametrize("when", [{"contains": "Count"}, {}])
def test_a_text_that_was_cut_goes_on(
    make_service: Callable[..., Service],
    post: Callable[..., Reply],
    fields: Fields,
    text: str | list[str],
    times: int | None,
    when: dict[str, str],
) -> None:
    """Asked to go on, it sends the rest, also if the rest is cut again."""
    other = {"text": "Five.", "when": {"contains": "then continue"}}
    entry = {"text": text, "times": times, "when": when}
    service = make_service(script=(other, entry))
    messages = [{"role": "user", "content": "Count"}]
    parts = []
    for wish in ("Go on", "Continue", "and then continue"):
        reply = post(service, fields(messages=messages, max_tokens=3))
        parts += _texts(reply)
        messages += [
            {"role": "assistant", "content": parts[-1]},
            {"role": "user", "content": wish},
        ]

    sent = "".join(parts)
    assert "One, two, three, four.".startswith(sent)
    assert sent.startswith("One, two, three")
    assert _texts(post(service, fields(messages=messages))) == ["Five."]


def test_an_entry_answers_every_nth_request_that_fits(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """A class can see how every third request is refused and sent again."""
    service = make_service(
        script=(
            {
                "when": {"contains": "Hi"},
                "every": 3,
                "times": 2,
                "status": 429,
                "error": {"message": "Slow down."},
            },
            {"text": "fine", "times": None},
        )
    )

    bodies = [fields("Other"), *(fields("Hi") for _ in range(9))]
    statuses = [post(service, body).status for body in bodies]

    assert statuses == [200, 200, 200, 429, 200, 200, 429, 200, 200, 200]


def _refused(
    service: Service, post: Callable[..., Reply], bodies: Sequence[dict[str, Any]]
) -> set[int]:
    """Post bodies, each with the number of its place; return the numbers refused."""
    failed = {int(body["user"]) for body in bodies if post(service, body).status == 503}
    assert failed < {int(body["user"]) for body in bodies}
    return failed


@pytest.mark.slow
def test_an_entry_answers_a_share_of_the_requests_by_chance(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """A seed fails the same requests in any order, and about as many as asked for."""
    script: Any = ({"share": 0.2, "times": None, "status": 503, "error": {}},)
    bodies = [fields(f"Question {at}", user=str(at)) for at in range(300)]

    failed = _refused(make_service(script=script, seed=7), post, bodies)
    again = _refused(make_service(script=script, seed=7), post, bodies[::-1])
    others = _refused(make_service(script=script, seed=8), post, bodies)

    assert 40 <= len(failed) <= 80
    assert again == failed
    assert others != failed


def test_a_request_that_is_sent_again_is_drawn_again(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """A retry gets through in the end."""
    script: Any = ({"share": 0.5, "times": None, "status": 503, "error": {}},)
    service = make_service(script=script)

    statuses = [post(service, fields("Same")).status for _ in range(40)]

    assert set(statuses) == {200, 503}


def test_an_entry_answers_what_it_is_meant_for(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """Entries are chosen by text, model, form and last role."""
    service = make_service(
        script=(
            {"when": {"contains": "rain"}, "text": "wet", "times": None},
            {"when": {"model": "svc-instruct"}, "text": "old", "times": None},
            {"when": {"role": "assistant"}, "text": "on", "times": None},
            {"when": {"is_streamed": False}, "text": "else", "times": None},
        )
    )
    bodies = [
        fields("Is it rain?"),
        fields("Hi", model="svc-instruct"),
        fields("Hi"),
        fields(messages=[{"role": "assistant", "content": "And"}]),
        fields("Is it rain?"),
    ]

    texts = [_texts(post(service, body))[0] for body in bodies]

    assert texts == ["wet", "old", "else", "on", "wet"]


MESSAGES = [
    {"role": "system", "content": "Answer in Thai. Be brief."},
    {"role": "user", "content": "Green or black tea?"},
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "price", "parameters": {"type": "object"}},
    }
]


@pytest.mark.parametrize(
    ("when", "fits", "other"),
    [
        ({"contains": ["black", "Green"]}, {}, {"messages": MESSAGES[:1]}),
        ({"is": "green or  black TEA"}, {}, {"messages": MESSAGES[:1]}),
        ({"is": ["Tea", "green or black tea?"]}, {}, {"messages": MESSAGES[:1]}),
        ({"system": "Thai"}, {}, {"messages": MESSAGES[1:]}),
        ({"system": ["Thai", "brief"]}, {}, {"messages": MESSAGES[1:]}),
        ({"system": None}, {"messages": MESSAGES[1:]}, {}),
        ({"model": ["svc-instruct", "svc-v2-8b-instruct"]}, {}, {"model": "svc-x"}),
        ({"temperature": 0.7}, {}, {"temperature": 0}),
        ({"temperature": {"above": 1}}, {"temperature": 1.2}, {"temperature": 1}),
        ({"temperature": {"below": 1}}, {}, {"temperature": 1}),
        ({"top_p": {"at_most": 0.5}}, {"top_p": 0.5}, {}),
        ({"n": {"at_least": 2, "below": 4}}, {"n": 3}, {"n": 4}),
        ({"max_tokens": 150}, {}, {"max_tokens": 20}),
        ({"presence_penalty": 1}, {"presence_penalty": 1}, {}),
        ({"frequency_penalty": {"above": 0}}, {"frequency_penalty": 1}, {}),
        ({"repetition_penalty": {"above": 1}}, {"repetition_penalty": 1.05}, {}),
        ({"user": "ann"}, {"user": "ann"}, {"user": "bob"}),
        ({"tools": ["price"]}, {"tools": TOOLS}, {}),
        ({"tools": []}, {}, {"tools": TOOLS}),
    ],
)
def test_an_entry_is_for_a_system_message_and_parameters(
    make_service: Callable[..., Service],
    post: Callable[..., Reply],
    fields: Fields,
    when: dict[str, Any],
    fits: dict[str, Any],
    other: dict[str, Any],
) -> None:
    """What is not sent has the document's default; a text is looked for inside."""
    entry = {"when": when, "text": "scripted", "times": None}
    service = make_service(models=("svc-x",), script=(entry,))
    asked = {"messages": MESSAGES}

    texts = [
        _texts(post(service, fields(**{**asked, **more})))[0] for more in (fits, other)
    ]

    assert [text == "scripted" for text in texts] == [True, False]


def test_defaults_are_keys_of_each_entry(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """An entry that says otherwise wins."""
    script = {
        "defaults": {"note": "written by hand", "times": None},
        "entries": [{"text": "one", "times": 1}, {"text": "two", "note": "ลองดู"}],
    }
    service = make_service(script=script)

    replies = [post(service, fields()) for _ in range(3)]

    assert [_texts(reply)[0] for reply in replies] == ["one", "two", "two"]
    assert [unquote(reply.headers["x-svc-emulator"]) for reply in replies] == [
        "written by hand",
        "ลองดู",
        "ลองดู",
    ]


def test_a_refused_request_uses_no_entry_up(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """The document's rules hold inside a script too."""
    service = make_service(script=({"text": "one"},))

    refused = post(service, fields(temperature=9))

    assert refused.status == 400
    assert _texts(post(service, fields())) == ["one"]


@pytest.mark.parametrize(
    ("usage", "sent"), [({"prompt_tokens": 1}, {"prompt_tokens": 1}), ({}, None)]
)
def test_usage_can_be_given_or_left_out(
    play: Callable[..., Reply], usage: dict[str, int], sent: dict[str, int] | None
) -> None:
    """An empty usage is none."""
    assert _body(play({"text": "a", "usage": usage})).get("usage") == sent


def test_choices_and_calls_can_be_given(play: Callable[..., Reply]) -> None:
    """Several choices, calls with objects or texts as arguments."""
    calls = [{"name": "f", "arguments": {"a": "ก"}}, {"name": "g", "arguments": "{"}]
    reply = play(
        {"choices": [{"text": "x", "finish_reason": "odd"}, {"tool_calls": calls}]}
    )

    assert _body(reply)["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "x"},
            "finish_reason": "odd",
        },
        {
            "index": 1,
            "message": {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "call_0",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": "ก"}'},
                    },
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "g", "arguments": "{"},
                    },
                ],
            },
            "finish_reason": "stop",
        },
    ]


@pytest.mark.parametrize(
    ("entry", "status", "headers", "body"),
    [
        (
            {
                "error": {"message": "no"},
                "status": 429,
                "headers": {"Retry-After": "2"},
            },
            429,
            {
                "content-type": "application/json",
                "content-length": "26",
                "retry-after": "2",
            },
            b'{"error":{"message":"no"}}',
        ),
        (
            {"error": "odd"},
            500,
            {"content-type": "application/json", "content-length": "15"},
            b'{"error":"odd"}',
        ),
        (
            {"json": [1], "headers": {"content-length": None}},
            200,
            {"content-type": "application/json"},
            b"[1]",
        ),
        (
            {"body": b"\xff<p>", "headers": {"content-type": "text/html"}},
            200,
            {"content-type": "text/html"},
            b"\xff<p>",
        ),
        ({"status": 503}, 503, {"content-type": "application/json"}, b""),
    ],
)
def test_any_status_header_and_body_can_be_sent(
    play: Callable[..., Reply],
    entry: dict[str, Any],
    status: int,
    headers: dict[str, str],
    body: bytes,
) -> None:
    """Faults of the service, and of what stands before it, can be played."""
    reply = play(entry)

    assert (reply.status, reply.headers, b"".join(p.data for p in reply.body)) == (
        status,
        headers,
        body,
    )


def test_events_are_sent_as_they_are(play: Callable[..., Reply]) -> None:
    """Texts go into `data:` untouched, other values as JSON."""
    reply = play({"events": ["{not JSON", {"a": 1}, "[DONE]"]}, stream=True)

    assert [piece.data for piece in reply.body] == [
        b"data: {not JSON\n\n",
        b'data: {"a":1}\n\n',
        b"data: [DONE]\n\n",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_script_can_be_a_file(tmp_path: Path, encoding: str) -> None:
    """A JSON array of entries, with or without the mark some editors write."""
    path = tmp_path / "script.json"
    path.write_text('[{"text": "ก"}]', encoding=encoding)

    assert read_script(path) == [{"text": "ก"}]


def test_a_missing_script_file_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer, whose notebook is in another folder, sees what to do."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SettingsError) as caught:
        read_script("answers.json")

    assert str(caught.value) == (
        f"There is no script {str(tmp_path / 'answers.json')!r}. Give the right path, "
        "or open the notebook next to the script. `svc-notebook lab` opens a folder "
        "with the lessons and their answers.json."
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "There is no script"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("{}", "must be a list of entries, or {"),
        ("7", "must be a list of entries, or {"),
        ('{"entry": []}', "unknown key 'entry'. Did you mean `entries`?"),
        ('{"entries": [], "defaults": 7}', "must be a list of entries, or {"),
    ],
)
def test_a_wrong_script_file_is_named(
    tmp_path: Path, content: str | None, words: str
) -> None:
    """The error names the file and what it should hold."""
    path = tmp_path / "script.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")

    with pytest.raises(SettingsError) as caught:
        read_script(path)

    assert words in str(caught.value)
    assert "script.json" in str(caught.value)


WRONG: list[tuple[Any, str]] = [
    (7, "Entry 0 of the script cannot be used: Expected `object`"),
    (
        {"txt": "x"},
        "field `txt`. Did you mean `text`? `python -m pydoc svc_notebook.emulator",
    ),
    ({"when": {"modle": "x"}}, "unknown field `modle` - at `$.when`"),
    ({"when": {"modle": "x"}}, "at `$.when`. Did you mean `model`?"),
    ({"tims": 2}, "unknown field `tims`. Did you mean `times`?"),
    ({"choices": [{"txt": ""}]}, "]`. Did you mean `text`?"),
    ({"tool_calls": [{"nam": ""}]}, "Did you mean `name`?"),
    ({"when": {"n": {"max": 1}}}, "Allowed: above, below, at_least, at_most."),
    ({"when": {"temperature": "hot"}}, "got `str` - at `$.when.temperature`"),
    ({"when": {"tools": "price"}}, "Expected `array`, got `str` - at `$.when.tools`"),
    ({"note": 61 * "x"}, "length <= 60 - at `$.note`"),
    ({"when": {"is_streamed": 1}}, "at `$.when.is_streamed`"),
    ({"when": {"role": "bot"}}, "'bot' - at `$.when.role`"),
    ({"times": 0}, "Expected `int` >= 1 - at `$.times`"),
    ({"times": True}, "at `$.times`"),
    ({"every": 0}, "Expected `int` >= 1 - at `$.every`"),
    ({"share": 0}, "Expected `float` > 0.0 - at `$.share`"),
    ({"share": 0.5, "every": 2}, "'every' and 'share' exclude each other"),
    ({"text": ["a", 1]}, "Expected `str`, got `int` - at `$.text[1]`"),
    ({"tool_calls": [{}]}, "missing required field `name` - at `$.tool_calls[0]`"),
    ({"tool_calls": [{"name": "f", "arguments": 7}]}, "$.tool_calls[0].arguments`"),
    ({"choices": [{"text": 1}]}, "at `$.choices[0].text`"),
    ({"events": "x"}, "Expected `array`, got `str` - at `$.events`"),
    ({"body": [1]}, "Expected a text or a list of texts - at `$.body`"),
    ({"json": {1, 2}}, "Expected JSON - at `$.json`"),
    ({"status": "200"}, "at `$.status`"),
    ({"status": 100}, "Expected `int` >= 200 - at `$.status`"),
    ({"status": 204, "text": "x"}, "a reply of status 204 has no body"),
    ({"headers": {"a b": "x"}}, "the header 'a b' needs a name of letters"),
    ({"headers": {"x": "a\r\nb: c"}}, "a value of one line"),
    ({"headers": {"x": "ก"}}, "the header 'x' needs"),
    ({"headers": {"x": 7}}, "at `$.headers[...]`"),
    ({"before_s": math.inf}, "at `$.before_s`"),
    ({"gap_s": -1}, "Expected `float` >= 0.0 - at `$.gap_s`"),
    ({"gap_s": math.nan}, "at `$.gap_s`"),
    ({"cut_after": -1}, "at `$.cut_after`"),
    ({"end": "bang"}, "'bang' - at `$.end`"),
    ({"text": "x", "raw": "y"}, "'raw' and 'text' exclude each other"),
    ({"tool_calls": [], "json": 1}, "'json' and 'tool_calls' exclude each other"),
]


@pytest.mark.parametrize(("entry", "words"), WRONG)
def test_a_wrong_entry_is_found_when_the_script_is_read(
    entry: Any,  # noqa: ANN401 - wrong on purpose
    words: str,
) -> None:
    """The error names the entry and the field, and where the fields are explained."""
    with pytest.raises(SettingsError) as caught:
        Script([entry])

    assert words in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"times": None, "when": {"role": "tool"}},
        {"choices": []},
        {"choices": [{"text": "a"}, {"tool_calls": [{"name": "f", "arguments": "{"}]}]},
        {"events": [b"\xff", {"a": math.nan}]},
        {"status": None, "headers": {"x": None}},
        {"status": 204, "headers": {"x": ""}},
        {"body": b"", "headers": {"Content-Length": "9", "x": "caf\xe9 (1)"}},
        {"error": None, "status": 599},
    ],
)
def test_odd_entries_are_played(
    play: Callable[..., Reply], entry: dict[str, Any]
) -> None:
    """Faults of every kind can be scripted, and are sent."""
    assert play(entry).status == entry.get("status", 500 if "error" in entry else 200)


def _streamed_text(reply: Reply) -> tuple[str, str]:
    """Join the text of a stream; return it with the finish reason at its end."""
    events = b"".join(piece.data for piece in reply.body).decode().split("\n\n")[:-2]
    choices = [json.loads(event[6:])["choices"][0] for event in events]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    return text, choices[-1]["finish_reason"]


@pytest.mark.parametrize("text", ["one two three four", ("one", " two three", " four")])
def test_a_text_is_cut_at_max_tokens(
    make_service: Callable[..., Service],
    post: Callable[..., Reply],
    fields: Fields,
    text: str | tuple[str, ...],
) -> None:
    """Whole or streamed, in one text or in pieces; usage counts what is sent."""
    service = make_service(script=({"text": text, "times": None},))

    cut = _body(post(service, fields(max_tokens=2)))
    streamed = post(service, fields(max_tokens=2, stream=True))
    whole = _body(post(service, fields(max_tokens=4)))

    assert cut["choices"][0]["message"]["content"] == "one two"
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 2
    assert _streamed_text(streamed) == ("one two", "length")
    assert whole["choices"][0]["message"]["content"] == "one two three four"
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"]["completion_tokens"] == 4


def test_a_text_ends_at_a_stop_sequence(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """A script is no way around `stop`."""
    service = make_service(script=({"text": "one two three"},))

    choice = _body(post(service, fields(stop=" three")))["choices"][0]

    assert choice["message"]["content"] == "one two"
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(("max_tokens", "n_calls"), [(1, 0), (2, 1), (150, 1)])
def test_calls_after_a_text_are_cut_with_it(
    make_service: Callable[..., Service],
    post: Callable[..., Reply],
    fields: Fields,
    max_tokens: int,
    n_calls: int,
) -> None:
    """Text and calls share the limit, and both count."""
    entry = {"text": "one", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}

    body = _body(post(make_service(script=(entry,)), fields(max_tokens=max_tokens)))

    choice = body["choices"][0]
    assert len(choice["message"].get("tool_calls", [])) == n_calls
    assert choice["finish_reason"] == ("stop" if max_tokens == 150 else "length")
    assert body["usage"]["completion_tokens"] == min(max_tokens, 9)


def test_a_text_with_its_own_finish_reason_is_sent_whole(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> None:
    """The script says how it ends; the usage is that of the whole text."""
    entry = {"text": "one two three", "finish_reason": "stop"}

    body = _body(post(make_service(script=(entry,)), fields(max_tokens=2)))

    assert body["choices"][0]["message"]["content"] == "one two three"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 3

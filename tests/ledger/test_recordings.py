"""A file of answers lets a notebook run without key and network."""

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svc_notebook.errors import AskError, ParameterError, SettingsError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.recordings import RecordingFile, export_answers
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.request import (
    CompletionRequest,
    assistant,
    build_request,
    system,
    user,
)

MakeExchange = Callable[..., Exchange]


def _request(prompt: Any = "Hi", **params: Any) -> CompletionRequest:  # noqa: ANN401 - fields
    return build_request(prompt, model="m", params=params)


def _body(text: str) -> CompletionBody:
    return CompletionBody(choices=(Choice(text=text, finish_reason="stop"),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a place for a file of answers."""
    return tmp_path / "answers.jsonl"


def test_says_what_was_written_where(make: MakeExchange, file: Path) -> None:
    """The number is a number; a cell that ends with it shows a sentence."""
    written = export_answers(file, [make(request=_request())])

    assert (written, f"{written}", str(written + 1)) == (1, "1", "2")
    assert repr(written) == (
        f"1 answer written to {str(file)!r}. With SVC_ANSWERS set to it, the notebook "
        "needs neither key nor network."
    )
    assert repr(export_answers(file, [])).startswith("0 answers written to")


def test_gives_back_what_was_recorded(make: MakeExchange, file: Path) -> None:
    """An exported answer is found by its request, whole, with its date."""
    asked = make(7, request=_request("สวัสดี\n", stop=["a"]), is_emulated=True)

    n_answers = export_answers(file, [asked])
    found = RecordingFile.from_file(file).find(_request("สวัสดี\n", stop=["a"]), Origin())

    assert n_answers == 1
    expected = (asked.body, asked.started_at, asked.endpoint, asked.is_emulated)
    assert (
        found.body,
        found.started_at,
        found.endpoint,
        found.is_emulated,
    ) == expected


def test_a_file_is_read_once_for_each_change(make: MakeExchange, file: Path) -> None:
    """What was found goes on in order until the file changes; then it begins again."""
    asked = [make(each, request=_request(), body=_body(str(each))) for each in range(2)]
    export_answers(file, asked)
    answers = RecordingFile.from_file(file)
    first = answers.find(_request(), Origin())

    again = answers.find(_request(), Origin())
    export_answers(file, [make(request=_request(), body=_body("new"))])
    changed = answers.find(_request(), Origin())

    texts = [each.choices[0].text for each in (first, again, changed)]
    assert texts == ["0", "1", "new"]
    assert again.body is not None


def test_a_file_that_goes_is_named(make: MakeExchange, file: Path) -> None:
    """A file that is deleted after it was read is an error, not the old answers."""
    export_answers(file, [make(request=_request())])
    answers = RecordingFile.from_file(file)
    file.unlink()

    with pytest.raises(SettingsError, match="cannot be read"):
        answers.find(_request(), Origin())


def test_holds_nothing_of_who_asked(make: MakeExchange, file: Path) -> None:
    """Conversation, run, template columns and user are not in the file."""
    origin = Origin(conversation="mine", run="mine", columns={"name": "mine"})

    export_answers(file, [make(request=_request(user="mine"), origin=origin)])

    assert "mine" not in file.read_text(encoding="utf-8")


def test_a_missing_request_is_named_with_the_nearest(
    make: MakeExchange, file: Path
) -> None:
    """The error names the request, the nearest recorded one, and the difference."""
    recorded = [
        _request("Describe the sea.", temperature=0.2),
        _request("Name three rivers.", temperature=0.7),
    ]
    export_answers(file, [make(n, request=each) for n, each in enumerate(recorded)])
    answers = RecordingFile.from_file(file)

    with pytest.raises(AskError) as caught:
        answers.find(_request("Describe the sea.", temperature=0.7), Origin())

    assert str(caught.value) == (
        "'answers.jsonl' has no recorded answer to this request: "
        "model='m', prompt='Describe the sea.', temperature=0.7. The nearest "
        "recorded request is "
        "model='m', prompt='Describe the sea.', temperature=0.2; it differs in "
        "temperature (0.2 recorded, 0.7 asked). To record it, run the notebook with a "
        "key and without SVC_ANSWERS, and export the answers again."
    )


def _missing(make: MakeExchange, file: Path, recorded: Any, asked: Any) -> str:  # noqa: ANN401 - prompts
    export_answers(file, [make(request=_request(recorded))])
    with pytest.raises(AskError) as caught:
        RecordingFile.from_file(file).find(_request(asked), Origin())
    return str(caught.value).partition("it differs in ")[2].partition(". To record")[0]


BEFORE = [user("One?"), assistant("1" * 300 + " blue")]


@pytest.mark.parametrize(
    ("recorded", "asked", "said"),
    [
        (
            [*BEFORE, user("Two?")],
            [BEFORE[0], assistant("1" * 300 + " red"), user("Two?")],
            (
                "message 2 of 3, assistant ('...1111111111111111111 blue' recorded, "
                "'...1111111111111111111 red' asked)"
            ),
        ),
        (
            [*BEFORE, user("Two?")],
            [user("Two?")],
            (
                "the number of messages (3 recorded, 1 asked), "
                "message 1 of 1, user ('One?' recorded, 'Two?' asked)"
            ),
        ),
        (
            [*BEFORE, user("Two?")],
            [*BEFORE, system("Two?")],
            "message 3 of 3 (user: 'Two?' recorded, system: 'Two?' asked)",
        ),
    ],
)
def test_says_which_message_differs_and_how(
    make: MakeExchange,
    file: Path,
    recorded: Any,  # noqa: ANN401 - prompts
    asked: Any,  # noqa: ANN401 - prompts
    said: str,
) -> None:
    """The first message that differs is named, with its texts from where they do."""
    assert _missing(make, file, recorded, asked) == said


def test_says_which_tool_differs(make: MakeExchange, file: Path) -> None:
    """Tools of the same number and name still differ in their definitions."""
    tools = [
        {"type": "function", "function": {"name": "f", "description": each}}
        for each in ("One.", "Two.")
    ]
    export_answers(file, [make(request=_request(tools=tools[:1]))])

    with pytest.raises(AskError, match=r"differs in the definition of the tool f\."):
        RecordingFile.from_file(file).find(_request(tools=tools[1:]), Origin())


def test_an_error_shows_no_whole_prompt(make: MakeExchange, file: Path) -> None:
    """Long prompts are shortened in the error."""
    export_answers(file, [make(request=_request("a" * 5000))])

    with pytest.raises(AskError) as caught:
        RecordingFile.from_file(file).find(_request("b" * 5000), Origin())

    assert len(str(caught.value)) < 800


HEAD = b'{"svc_answers":1}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"{}\n", "line 1 is not"),
        (b"not json\n", "line 1 is not JSON"),
        (b"\xff\xfe\n", "line 1 is not JSON"),
        (HEAD + b'{"a":1}\n', "line 2 is not an answer"),
        (HEAD + b"\n<<<<<<< HEAD\n", "line 3 is a conflict mark of git"),
    ],
)
def test_refuses_what_is_no_file_of_answers(
    file: Path, content: bytes, said: str
) -> None:
    """Another file is refused by name, with the line and what writes the right one."""
    file.write_bytes(content)

    with pytest.raises(SettingsError, match=rf"answers\.jsonl.*{said}.*export_answers"):
        RecordingFile.from_file(file)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (r'"choices":\[.*?\}\]', '"choices":[]', "line 2.*no choices"),
        (r'"messages":\[.*?\]', '"messages":[]', "line 2.*messages is empty"),
        (r'"model":"m"', '"model":""', "line 2.*No model is chosen"),
        (r'"params":{}', '"params":{"temperature":9}', "line 2.*temperature"),
        (r'"role":"user"', '"role":"boss"', "line 2.*role must be"),
    ],
)
def test_refuses_an_answer_that_cannot_be_one(
    make: MakeExchange, file: Path, old: str, new: str, said: str
) -> None:
    """An edited line is refused with its number and the reason."""
    export_answers(file, [make(request=_request())])
    written = file.read_text(encoding="utf-8")
    file.write_text(re.sub(old, new, written, count=1), encoding="utf-8")

    with pytest.raises(SettingsError, match=said):
        RecordingFile.from_file(file)


def test_an_edited_request_is_the_one_that_is_answered(
    make: MakeExchange, file: Path
) -> None:
    """An answer belongs to the request as the file has it now, and to no other."""
    export_answers(file, [make(request=_request("Old"), body=_body("Yes."))])
    written = file.read_text(encoding="utf-8")
    file.write_text(written.replace("Old", "New"), encoding="utf-8")

    answers = RecordingFile.from_file(file)

    assert answers.find(_request("New"), Origin()).choices[0].text == "Yes."
    with pytest.raises(AskError):
        answers.find(_request("Old"), Origin())


def test_refuses_a_newer_file(file: Path) -> None:
    """A file of a newer version is refused with the way on."""
    file.write_bytes(b'{"svc_answers":99}\n')

    with pytest.raises(SettingsError, match="Upgrade"):
        RecordingFile.from_file(file)


def test_keeps_what_a_model_wrote_wrongly(make: MakeExchange, file: Path) -> None:
    """Half of a surrogate pair in a reply is mended, not a crash."""
    export_answers(file, [make(request=_request(), body=_body("half \ud83d"))])

    found = RecordingFile.from_file(file).find(_request(), Origin())

    assert found.choices[0].text == "half ?"


def test_a_folder_that_is_not_there_is_named(make: MakeExchange, file: Path) -> None:
    """What cannot be written is refused with the reason, and leaves nothing behind."""
    with pytest.raises(ParameterError, match="No such file or directory"):
        export_answers(file.parent / "no" / "a.jsonl", [make()])

    assert list(file.parent.iterdir()) == []


def test_replaces_a_file_whole_and_keeps_its_mode(
    make: MakeExchange, file: Path
) -> None:
    """An export that fails half-way leaves the old file, one that works its mode."""
    export_answers(file, [make(request=_request())])
    file.chmod(0o640)
    before = file.read_bytes()

    def broken() -> Any:  # noqa: ANN401 - a generator
        yield make(1, request=_request("other"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_answers(file, broken())
    assert file.read_bytes() == before
    export_answers(file, [])
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [each.name for each in file.parent.iterdir()] == [file.name]

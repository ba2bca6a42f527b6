"""A file of answers lets a notebook run without key and network."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from svc_notebook.errors import AskError, ParameterError, SettingsError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.answers import Answers, export_answers
from svc_notebook.ledger.exports import write_whole
from svc_notebook.service.chunk import Choice, CompletionBody
from svc_notebook.service.request import CompletionRequest, build_request

MakeExchange = Callable[..., Exchange]


def _request(prompt: str = "Hi", **params: Any) -> CompletionRequest:  # noqa: ANN401 - fields
    return build_request(prompt, model="m", params=params)


def _body(text: str) -> CompletionBody:
    return CompletionBody(choices=(Choice(text=text, finish_reason="stop"),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a place for a file of answers."""
    return tmp_path / "answers.jsonl"


def test_gives_back_what_was_recorded(make: MakeExchange, file: Path) -> None:
    """An exported answer is found by its request, whole, with its date."""
    asked = make(7, request=_request("สวัสดี\n", stop=["a"]), is_emulated=True)

    n_answers = export_answers(file, [asked])
    found = Answers.from_file(file).find(_request("สวัสดี\n", stop=["a"]), Origin())

    assert n_answers == 1
    expected = (asked.body, asked.started_at, asked.endpoint, asked.is_emulated)
    assert (
        found.body,
        found.started_at,
        found.endpoint,
        found.is_emulated,
    ) == expected


def test_the_last_of_several_answers_is_exported(
    make: MakeExchange, file: Path
) -> None:
    """A request has one answer: the newest good one."""
    asked = [make(each, request=_request(), body=_body(str(each))) for each in range(3)]
    failed = make(3, request=_request(), body=None, status="error")

    assert export_answers(file, [*asked, failed]) == 1

    answers = Answers.from_file(file)
    assert len(answers) == 1
    assert answers.find(_request(), Origin()).choices[0].text == "2"


def test_each_repetition_is_kept(make: MakeExchange, file: Path) -> None:
    """The repetitions of a cell of a sweep are told apart."""
    asked = [
        make(
            each,
            request=_request(),
            body=_body(str(each)),
            origin=Origin(kind="sweep", run="r", repeat=each),
        )
        for each in range(2)
    ]
    export_answers(file, asked)

    answers = Answers.from_file(file)

    texts = [
        answers.find(_request(), Origin(repeat=each)).choices[0].text for each in (0, 1)
    ]
    assert texts == ["0", "1"]
    with pytest.raises(AskError, match="differs in repetition 2"):
        answers.find(_request(), Origin(repeat=2))


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
    answers = Answers.from_file(file)

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


def test_an_error_shows_no_whole_prompt(make: MakeExchange, file: Path) -> None:
    """Long prompts are shortened in the error."""
    export_answers(file, [make(request=_request("a" * 5000))])

    with pytest.raises(AskError) as caught:
        Answers.from_file(file).find(_request("b" * 5000), Origin())

    assert len(str(caught.value)) < 800


def test_an_empty_file_of_answers_says_so(file: Path) -> None:
    """With nothing recorded, the error says that there is nothing."""
    export_answers(file, [])

    with pytest.raises(AskError, match="The file is empty"):
        Answers.from_file(file).find(_request(), Origin())


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n", b"not json\n", b"\xff\xfe\n", b'{"svc_answers":1}\n{"a":1}\n'],
)
def test_refuses_what_is_no_file_of_answers(file: Path, content: bytes) -> None:
    """Another file is refused by name, with what writes the right one."""
    file.write_bytes(content)

    with pytest.raises(SettingsError, match=r"answers\.jsonl.*export_answers"):
        Answers.from_file(file)


def test_refuses_a_newer_file(file: Path) -> None:
    """A file of a newer version is refused with the way on."""
    file.write_bytes(b'{"svc_answers":99}\n')

    with pytest.raises(SettingsError, match="Upgrade"):
        Answers.from_file(file)


def test_refuses_a_file_that_is_not_there(file: Path) -> None:
    """A missing file is named, with the variable to unset."""
    with pytest.raises(SettingsError, match="SVC_ANSWERS"):
        Answers.from_file(file)


def test_keeps_what_a_model_wrote_wrongly(make: MakeExchange, file: Path) -> None:
    """Half of a surrogate pair in a reply is mended, not a crash."""
    export_answers(file, [make(request=_request(), body=_body("half \ud83d"))])

    found = Answers.from_file(file).find(_request(), Origin())

    assert found.choices[0].text == "half ?"


def test_every_line_is_json(make: MakeExchange, file: Path) -> None:
    """The file is JSON lines, its format on the first."""
    export_answers(file, [make(request=_request())])

    head, answer = map(msgspec.json.decode, file.read_bytes().splitlines())
    assert head == {"svc_answers": 1}
    assert answer["request"]["model"] == "m"


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


def test_an_error_of_ours_while_writing_stays_as_it_is(tmp_path: Path) -> None:
    """What the writing refuses is said as it was said."""

    def refuse(_: Path) -> None:
        raise SettingsError("No.")

    with pytest.raises(SettingsError, match=r"^No\.$"):
        write_whole(tmp_path / "a", refuse)

    assert list(tmp_path.iterdir()) == []


def test_a_home_that_nobody_knows_is_refused() -> None:
    """A file in the home of somebody who is not there is refused as ours."""
    with pytest.raises(SettingsError, match="unknown home folder"):
        Answers.from_file("~nobody-at-all/answers.jsonl")

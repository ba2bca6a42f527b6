"""An answer that was recorded is given back before anything is sent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import AskError, ParameterError
from svc_notebook.ledger.recordings import export_answers
from svc_notebook.magics import use_and_login
from svc_notebook.session import Session, current, isolated
from svc_notebook.settings import Settings
from svc_notebook.svc_use import use

SCRIPT: list[dict[str, Any]] = [
    {"text": each} for each in ("One.", "Two.", "Three.", "Four.")
]


@pytest.fixture
def session() -> Any:  # noqa: ANN401 - a generator
    """Return a session that asks an emulator, with a ledger in memory."""
    with Emulator(script=SCRIPT, tokens_per_s=None, first_token_s=0) as emulator:
        opened = Session(
            Settings(base_url=emulator.base_url, ledger=":memory:", is_emulated=True)
        )
        opened._emulator = emulator  # noqa: SLF001 - the one with a script
        yield opened, emulator
        opened.close()


def test_reuse_sends_nothing_the_second_time(session: Any) -> None:  # noqa: ANN401 - a pair
    """An identical request is answered from the ledger, marked, and counted once."""
    opened, emulator = session
    first = opened.client.complete("Count.")
    again = opened.client.complete("Count.", answers=opened.context().reused)

    assert (first.text, again.text) == ("One.", "One.")
    assert len(emulator.requests) == 1
    assert again.exchange.is_reused
    assert "re-used" in " ".join(again.final().marks)
    kept = [exchange.is_reused for exchange in opened.ledger.read()]
    assert kept == [False, True]


def test_recorded_answers_need_no_key_and_no_address(
    session: Any,  # noqa: ANN401 - a pair
    tmp_path: Path,
) -> None:
    """With a file of answers nothing is sent; what was not recorded is an error."""
    opened, _ = session
    opened.client.complete("Count.")
    file = tmp_path / "answers.jsonl"
    export_answers(file, opened.ledger.read())
    offline = Session(Settings(ledger=":memory:", answers=str(file)))

    assert offline.client.complete("Count.").text == "One."
    with pytest.raises(AskError, match="no recorded answer"):
        offline.client.complete("Count to three.")
    offline.close()


def _replayed(session: Any, tmp_path: Path) -> Session:  # noqa: ANN401 - a pair
    file = tmp_path / "answers.jsonl"
    export_answers(file, session[0].ledger.read())
    return Session(Settings(ledger=":memory:", answers=str(file)))


@pytest.mark.parametrize("is_reused", [False, True])
def test_the_same_question_twice_is_answered_in_order(
    session: Any,  # noqa: ANN401 - a pair
    tmp_path: Path,
    *,
    is_reused: bool,
) -> None:
    """Asked twice, both replies come back, in their order; also where re-use is on."""
    recorded = [session[0].client.complete("Count.").text for _ in range(2)]
    offline = _replayed(session, tmp_path)
    answers = offline.context().reused if is_reused else None

    texts = [offline.client.complete("Count.", answers=answers).text for _ in range(2)]

    offline.close()
    assert texts == recorded == ["One.", "Two."]


def test_a_turn_that_was_asked_again_is_replayed(
    session: Any,  # noqa: ANN401 - a pair
    tmp_path: Path,
) -> None:
    """A conversation whose first turn was asked again runs from the file as it did."""

    def talk(opened: Session) -> list[str | None]:
        conversation = opened.conversations.named("plan")
        asked = [conversation.ask("a"), conversation.ask("b")]
        return [each.text for each in [*asked, conversation.ask_again(1)]]

    recorded = talk(session[0])
    offline = _replayed(session, tmp_path)

    replayed = talk(offline)

    offline.close()
    assert replayed == recorded == ["One.", "Two.", "Three."]


def test_a_recording_is_not_replaced_by_a_part_of_it(
    session: Any,  # noqa: ANN401 - a pair
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file in SVC_ANSWERS is only written to when all its answers were replayed."""
    for _ in range(2):
        session[0].client.complete("Count.")
    file = tmp_path / "answers.jsonl"
    export_answers(file, session[0].ledger.read())
    recorded = file.read_bytes()
    monkeypatch.setenv("SVC_ANSWERS", str(file))
    monkeypatch.setenv("SVC_LEDGER", ":memory:")

    with isolated():
        current().client.complete("Count.")
        with pytest.raises(ParameterError, match=r"1 of its 2 answers.*another file"):
            svc.export_answers(file)
        assert file.read_bytes() == recorded
        assert svc.export_answers(tmp_path / "other.jsonl") == 1
        current().client.complete("Count.")
        assert svc.export_answers(file) == 2


def test_an_endpoint_that_a_file_hides_is_said(
    session: Any,  # noqa: ANN401 - a pair
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Choosing an endpoint while a file answers says that the file goes on."""
    session[0].client.complete("Count.")
    file = tmp_path / "answers.jsonl"
    export_answers(file, session[0].ledger.read())
    monkeypatch.setenv("SVC_ANSWERS", str(file))

    with isolated():
        with pytest.warns(RuntimeWarning, match=r"answers\.jsonl still answers"):
            use(endpoint="emulator")
        said = use_and_login.use(current(), "emulator")

    assert "answers.jsonl still answers" in said


def test_the_service_needs_no_key_where_a_file_answers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Choosing the service without a key says that the file goes on, and what lacks."""
    monkeypatch.setenv("SVC_ANSWERS", str(tmp_path / "answers.jsonl"))
    monkeypatch.setenv("SVC_BASE_URL", "https://service.example/v1")
    monkeypatch.delenv("SVC_API_KEY", raising=False)

    with isolated():
        said = use_and_login.use(current(), "service")

    assert "answers.jsonl still answers" in said
    assert "The service cannot be asked: No API key" in said


@pytest.mark.parametrize("is_from_file", [False, True])
def test_a_cut_reply_does_not_answer_a_request_for_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_from_file: bool
) -> None:
    """What the service's default cut is not re-used where max_tokens is `fit`."""
    file = tmp_path / "answers.jsonl"
    script = [{"text": "One, tw", "finish_reason": "length"}, {"text": "One, two."}]
    with Emulator(script=script) as emulator, isolated():
        svc.use(endpoint=emulator)
        cut = svc.complete("Count.", max_tokens="service")
        if is_from_file:
            svc.export_answers(file)
            monkeypatch.setenv("SVC_ANSWERS", str(file))
            with pytest.raises(AskError, match="no recorded answer"):
                svc.complete("Count.", max_tokens="fit")
            return
        whole = svc.complete("Count.", max_tokens="fit", reuse=True)
        again = svc.complete("Count.", max_tokens="fit", reuse=True)

    assert [cut.is_cut, whole.text, again.text] == [True, "One, two.", "One, two."]
    assert again.exchange.is_reused


def test_a_whole_reply_answers_a_request_that_fits() -> None:
    """Where the service's default was enough, its reply is re-used for `fit`."""
    with Emulator(script=SCRIPT) as emulator, isolated():
        svc.use(endpoint=emulator)
        svc.complete("Count.", max_tokens="service")

        assert svc.complete("Count.", max_tokens="fit", reuse=True).text == "One."


def test_clients_are_answered_from_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With SVC_ANSWERS clients need neither key nor address, and send nothing."""
    file = tmp_path / "answers.jsonl"
    with Emulator(script=SCRIPT) as emulator, isolated():
        svc.use(endpoint=emulator)
        svc.Client().complete("Count.")
        svc.export_answers(file)
    monkeypatch.setenv("SVC_ANSWERS", str(file))

    async def ask() -> str:
        async with svc.AsyncClient() as client:
            return "".join([text async for text in client.stream("Count.")])

    with isolated(), svc.Client() as client:
        texts = [client.complete("Count.").text, asyncio.run(ask())]
        with pytest.raises(AskError, match="no recorded answer"):
            svc.Client(base_url="https://svc.test/v1").complete("Count to three.")

    assert texts == ["One.", "One."]

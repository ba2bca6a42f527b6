"""max_tokens is a number, `fit` or `service`, and means the same everywhere."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd
import pytest

import svc_notebook as svc
import svc_notebook.pandas
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.ledger.cache import hash_request
from svc_notebook.service.request import build_request
from svc_notebook.session import isolated
from svc_notebook.sweeps.grid import request_key_of
from svc_notebook.tokens import with_max_tokens

FRAME: Any = pd.DataFrame({"text": ["one", "two"]})
LARGE = 7000


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Emulator]:
    """The kernel's service: an emulator without limits."""
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, text="filler"
    ) as running:
        monkeypatch.setenv("SVC_BASE_URL", running.base_url)
        monkeypatch.setenv("SVC_API_KEY", running.api_key)
        monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
        with isolated():
            yield running


def plan() -> Any:  # noqa: ANN401 - takes any argument
    """Return a conversation with a turn."""
    found = svc.conversation("plan")
    if not found.turns:
        found.ask("First.")
    return found


Verb = Callable[..., Any]
VERBS: dict[str, Verb] = {
    "complete": svc.complete,
    "stream": lambda prompt, **params: list(svc.stream(prompt, **params)),
    "ask": lambda prompt, **params: plan().ask(prompt, **params),
    "ask_again": lambda prompt, **params: plan().ask_again(1, prompt, **params),
}
MANY: dict[str, Verb] = {
    "sweep": lambda prompt, **params: svc.sweep(prompt, **params).run(),
    "frame": lambda prompt, **params: FRAME.svc.complete(
        prompt + " {{text}}", **params
    ),
}
verbs = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
many = pytest.mark.parametrize("verb", MANY.values(), ids=MANY)
all_verbs = pytest.mark.parametrize(
    "verb", [*VERBS.values(), *MANY.values()], ids=[*VERBS, *MANY]
)


def sent(emulator: Emulator) -> object:
    """Return the max_tokens of the newest request."""
    return emulator.requests[-1].json.get("max_tokens")


@verbs
def test_a_verb_asks_for_what_the_prompt_leaves(emulator: Emulator, verb: Verb) -> None:
    """Without max_tokens a reply has as much room as a cell's."""
    verb("Short.")
    short: Any = sent(emulator)
    verb("word " * 500)
    long: Any = sent(emulator)

    assert short > LARGE
    assert long < short - 400


@pytest.mark.slow
@all_verbs
@pytest.mark.parametrize(
    ("word", "number"), [("service", None), (None, None), (99, 99)]
)
def test_service_sends_none(
    emulator: Emulator, verb: Verb, word: object, number: int | None
) -> None:
    """`service` and None leave max_tokens out, and a number is sent as it is."""
    verb("Hi", max_tokens=word)

    assert sent(emulator) == number


@pytest.mark.slow
@all_verbs
@pytest.mark.parametrize("value", [0, False, "fitt", 8193, 1.5, [[1]]])
def test_what_is_not_allowed_is_refused(
    emulator: Emulator, verb: Verb, value: object
) -> None:
    """0 and False too are refused; the error names the words, and nothing is sent."""
    plan()
    n_before = len(emulator.requests)

    with pytest.raises(svc.errors.ParameterError, match=r"8192, fit .* or service"):
        verb("Hi", max_tokens=value)

    assert len(emulator.requests) == n_before


def test_a_complete_request_is_sent_as_it_is(emulator: Emulator) -> None:
    """A `CompletionRequest` gets no max_tokens, and refuses one."""
    request = build_request("Hi", model="svc-v2-8b-instruct")
    svc.complete(request)

    assert sent(emulator) is None
    with pytest.raises(
        svc.errors.ParameterError, match="max_tokens= was given together"
    ):
        svc.complete(request, max_tokens=5)


def test_a_fitted_request_is_fitted_again(emulator: Emulator) -> None:
    """A request that was asked for with `fit` can be sent again with more messages."""
    asked = svc.complete("Hi").request
    longer = (svc.Message(role="system", content="word " * 500), *asked.messages)

    svc.complete(msgspec.structs.replace(asked, messages=longer))

    first, second = (each.json["max_tokens"] for each in emulator.requests)
    assert second < first - 400


@pytest.mark.usefixtures("emulator")
def test_a_panel_sends_none_if_told_to() -> None:
    """None means the same in a panel as elsewhere."""
    panel: Any = svc.panel("plan", max_tokens=None)
    view = panel.get_state()["view"]

    assert view["settings"]["max_tokens"] == "service"


@pytest.mark.parametrize(("max_tokens", "is_cut"), [(20, True), (30, False)])
def test_the_chunks_of_a_stream_tell_that_it_was_cut(
    monkeypatch: pytest.MonkeyPatch, max_tokens: int, is_cut: bool
) -> None:
    """A stream that ends with `stop` after as many chunks as tokens is probably cut."""
    words = {"text": ["incomprehensibilities "] * 20, "finish_reason": "stop"}
    with Emulator(script=[words], tokens_per_s=None, limits=False) as scripted:
        monkeypatch.setenv("SVC_BASE_URL", scripted.base_url)
        monkeypatch.setenv("SVC_API_KEY", scripted.api_key)
        with isolated(), svc.stream("Hi", max_tokens=max_tokens) as pieces:
            list(pieces)

    assert pieces.completion.is_cut == is_cut
    assert pieces.completion.usage_source == "estimated"


@pytest.mark.slow
@many
def test_many_requests_keep_the_services_default(
    emulator: Emulator, verb: Verb
) -> None:
    """Where cost counts, `fit` is used only if it is asked for."""
    verb("Hi")
    default = sent(emulator)
    verb("Hi", max_tokens="fit")
    fitted: Any = sent(emulator)

    assert default is None
    assert fitted > LARGE


def test_a_sweep_says_at_its_end_what_was_cut(
    emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is printed and shown with the run, and names what to pass."""
    note = "1 of 2 replies was cut. Pass a larger max_tokens, such as max_tokens='fit'."
    models = ["svc-v2-8b-instruct", "svc-v2-70b-instruct"]  # terse, and talkative
    run = svc.sweep("Tea?", model=models, temperature=0).run()

    assert note in capsys.readouterr().err
    assert note in " ".join(repr(run).split())
    assert len(emulator.requests) == 2
    run = svc.sweep("Tea?", model=models, temperature=0, max_tokens="fit").run()
    assert not run.cut_note


@pytest.mark.slow
def test_fit_varies_in_a_sweep(emulator: Emulator) -> None:
    """`fit`, a number and none are three requests; the run of a name continues."""
    sizes = [None, "fit", 9]
    svc.sweep("Hi", max_tokens=sizes[:2], name="sizes").run()

    run = svc.sweep("Hi", max_tokens=sizes, name="sizes").run()

    assert len(emulator.requests) == 3
    assert run.replies_df()["status"].tolist() == ["ok"] * 3
    assert "`fit`" in repr(run)


def test_what_is_computed_identifies_nothing() -> None:
    """Another estimate gives another number, and still the same request."""
    made = build_request("Hi", model="m")
    fitted = with_max_tokens(made, "fit")
    other = msgspec.structs.replace(fitted, params={"max_tokens": 7001})
    number = with_max_tokens(made, fitted.params["max_tokens"])

    assert hash_request(fitted) == hash_request(other) != hash_request(number)
    assert request_key_of(fitted) == request_key_of(other) != request_key_of(number)


@pytest.mark.slow
@pytest.mark.parametrize("recorded", ["service", "fit"])
def test_recorded_answers_serve_fit(
    emulator: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: Literal["fit", "service"],
) -> None:
    """Answers recorded with `fit` or without max_tokens serve re-use and a file."""
    text = svc.complete("Hi", max_tokens=recorded).text
    file = tmp_path / "answers.jsonl"
    svc.export_answers(file)

    again = svc.complete("Hi", reuse=True)
    monkeypatch.setenv("SVC_ANSWERS", str(file))
    replayed = svc.complete("Hi")

    assert (again.text, replayed.text) == (text, text)
    assert len(emulator.requests) == 1


def test_the_best_recorded_answer_is_taken(emulator: Emulator) -> None:
    """An answer to `fit` goes before one that 150 tokens may have cut."""
    whole = svc.complete("Write an essay about tea.")
    svc.complete("Write an essay about tea.", max_tokens="service")

    again = svc.complete("Write an essay about tea.", reuse=True)

    assert again.text == whole.text
    assert len(emulator.requests) == 2

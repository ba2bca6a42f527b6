"""Each kind of server answers cells, panels and sweeps; a key stays with its server."""

from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.completer import provisionalcompleter

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.endpoints import Endpoint, facts_of, read_models
from svc_notebook.magics.use_and_login import login, use
from svc_notebook.service.catalogue import DOCUMENTED, Limit
from svc_notebook.session import current, isolated
from tests.faults.server import RawServer
from tests.magics.conftest import Shell, ipython, shell  # noqa: F401 - fixtures
from tests.panels.conftest import OpenPage, open_page  # noqa: F401 - a fixture

from .conftest import MODEL, Describe, Start

BODY = (
    b'{"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": '
    b'[{"index": 0, "message": {"role": "assistant", "content": "Yes."}, '
    b'"finish_reason": "stop"}]}'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    b"%d\r\n\r\n%s" % (len(BODY), BODY)
)

KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "with a context of its own": (
        {"contexts": {MODEL: 1024}},
        f'[lab.models."{MODEL}"]\ncontext = 1024\n',
    ),
    "without a key": ({"needs_key": False}, "key = false\n"),
    "with limits of its own": (
        {"limits": {MODEL: (50, 900)}},
        "per_second = 50\nper_minute = 900\n",
    ),
    "with a list of models": (
        {"has_model_list": True, "contexts": {MODEL: 32768}},
        f'model = "{MODEL}"\n',
    ),
    "without a list": ({}, f'model = "{MODEL}"\n'),
}


@pytest.fixture(params=KINDS)
def lab(request: pytest.FixtureRequest, start: Start, describe: Describe) -> Emulator:
    """A server of each kind, described as `lab`."""
    options, text = KINDS[request.param]
    server = start(keys=["sk-of-the-lab"], **options)
    key = "" if "key =" in text else 'key_env = "LAB_API_KEY"\n'
    describe(f'[lab]\nbase_url = "{server.base_url}"\n{key}{text}')
    return server


def _asked(server: Emulator) -> list[Any]:
    return [each.json["model"] for each in server.requests if each.method == "POST"]


@pytest.mark.slow
def test_every_kind_answers_cells_panels_and_sweeps(
    lab: Emulator,
    open_page: OpenPage,  # noqa: F811 - the fixture
    shell: Shell,  # noqa: F811 - the fixture
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them go to the endpoint in use, with its model, and no key elsewhere."""
    monkeypatch.setenv("LAB_API_KEY", "sk-of-the-lab")
    svc.use(endpoint="lab", model=MODEL)

    cell = shell.run("%%svc\nWhat is a tide?")
    view = open_page("tides").do("send", text="And an ebb?")
    run = svc.sweep("Again: {{n}}", rows=[{"n": 1}, {"n": 2}], max_tokens=20).run()

    assert (cell.error, view["is_problem"], len(view["turns"])) == (None, False, 1)
    assert run.replies_df()["status"].tolist() == ["ok", "ok"]
    assert _asked(lab) == [MODEL] * 4
    assert emulator.requests == ()


@pytest.mark.slow
def test_a_list_of_models_is_offered_with_its_contexts(
    start: Start,
    describe: Describe,
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """`%svc models` and Tab have what the server lists; `fit` uses its context."""
    server = start(has_model_list=True, contexts={MODEL: 32768}, needs_key=False)
    describe("")
    use(current(), server.base_url, "no-key")

    frame: Any = shell.run("%svc models").value
    with provisionalcompleter():
        offered = shell.ipython.Completer.completions("%svc use tid", 12)
        found = [each.text for each in offered]
    completion = svc.complete("Hi", model=MODEL)

    assert frame["context_tokens"].to_dict() == {MODEL: 32768}
    assert found == [MODEL]
    assert 32000 < completion.request.params["max_tokens"] < 32768


@pytest.mark.slow
def test_a_server_that_was_started_again_is_asked_for_its_models(
    start: Start, describe: Describe
) -> None:
    """An endpoint that is chosen once more has the model that its server has now."""
    ours: dict[str, Any] = {"needs_key": False, "has_model_list": True}
    with Emulator(models=["old"], limits=False, **ours) as server:
        ours["port"] = urlsplit(server.base_url).port or 0
        describe(f'[lab]\nbase_url = "{server.base_url}"\nkey = false\n')
        svc.use(endpoint="lab")
        before = svc.complete("Hi").model
    start(models=["new"], **ours)
    with pytest.raises(svc.SvcError) as refused:
        svc.complete("Hi")

    svc.use(endpoint="lab")

    assert "it lists" not in str(refused.value)
    assert (before, svc.complete("Hi").model) == ("old", "new")


def test_a_list_is_asked_for_again_after_a_failure(describe: Describe) -> None:
    """A server that could not answer is asked later; one without a list is not."""
    describe("")
    answers = [[b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % s] for s in (503, 404)]
    with closing(RawServer(answers)) as server:
        svc.use(base_url=server.base_url, key=False)
        for _ in range(3):
            current().models(wait_s=3)
            facts_of(server.base_url).asked_s -= 60  # so long ago

    assert [request[:4] for request in server.requests] == [b"GET "] * 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "401"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "it is not JSON"),
    ],
)
def test_a_list_that_cannot_be_read_says_why(
    describe: Describe,
    shell: Shell,  # noqa: F811 - the fixture
    answer: bytes,
    why: str,
) -> None:
    """`%svc models` names the reason."""
    describe("")
    with closing(RawServer([[answer]])) as server:
        svc.use(base_url=server.base_url, key=False)

        shown = repr(shell.run("%svc models").value)

    assert f"Its list of models could not be read: {why}. Any model can" in shown


@pytest.mark.slow
def test_a_large_context_is_used(start: Start, describe: Describe) -> None:
    """More than the document's 8192 tokens are sent where the file says so."""
    server = start(contexts={MODEL: 32768})
    describe(
        f'[lab]\nbase_url = "{server.base_url}"\nkey = false\n'
        f'[lab.models."{MODEL}"]\ncontext = 32768\n'
    )
    svc.use(endpoint="lab")
    svc.use(base_url=server.base_url, key=server.api_key)

    completion = svc.complete("word " * 9000, max_tokens=12000)
    run = svc.sweep("word " * 9000, max_tokens=12000)

    assert completion.request.params["max_tokens"] == 12000
    assert "may not fit" not in repr(run)


@pytest.fixture
def servers() -> Any:  # noqa: ANN401 - a generator
    """Two servers that keep what they are sent, byte for byte."""
    with closing(RawServer([[ANSWER]])) as one, closing(RawServer([[ANSWER]])) as two:
        yield one, two


def test_keys_never_cross(
    servers: tuple[RawServer, RawServer],
    describe: Describe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the wire each server gets its own key only, or none."""
    one, two = servers
    monkeypatch.setenv("ONE_API_KEY", "sk-of-the-first")
    monkeypatch.setenv("SVC_API_KEY", "sk-of-the-service")
    describe(
        f'[one]\nbase_url = "{one.base_url}"\nkey_env = "ONE_API_KEY"\n'
        f'[two]\nbase_url = "{two.base_url}"\n'
    )

    svc.use(endpoint="one")
    svc.complete("Hi", model="m")
    with pytest.raises(svc.errors.MissingKeyError, match="was not sent") as refused:
        svc.use(endpoint="two")
    svc.use(base_url=two.base_url, key="sk-of-the-second")
    svc.complete("Hi", model="m")
    with pytest.raises(svc.errors.ParameterError, match="contains the API key"):
        svc.complete("Is it sk-of-the-first?", model="m")
    svc.use(base_url=two.base_url, key=False)
    svc.complete("Hi", model="m")

    assert b"Bearer sk-of-the-first" in one.requests[-1]
    assert all(b"the-s" not in each for each in one.requests)
    asked = [request for request in two.requests if request.startswith(b"POST")]
    assert b"Bearer sk-of-the-second" in asked[-2]
    assert b"uthorization" not in asked[-1]
    said = b"".join(two.requests)
    assert b"the-first" not in said
    assert b"the-service" not in said
    assert "sk-of" not in str(refused.value)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lba", "Did you mean `lab`"),
        ("127.0.0.1:8000/v1", "has no scheme"),
        ("lab.example/v1", "has no scheme"),
        ("https://me:pw@lab.example/v1", "has a user name"),
        ("http://lab.example/v1", "unencrypted"),
    ],
)
def test_what_is_not_a_model_is_not_taken_for_one(
    describe: Describe, word: str, said: str
) -> None:
    """Nothing changes, and the message says what was meant."""
    describe('[lab]\nbase_url = "https://lab.example/v1"\nkey = false\n')
    before = current().settings

    with pytest.raises(svc.SvcError, match=said) as caught:
        use(current(), word)

    assert current().settings == before
    assert "pw" not in str(caught.value)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: svc.use(endpoint="lba"), "Did you mean lab"),
    (lambda: svc.use(endpoint="lab", base_url="https://a/v1"), "not both"),
    (lambda: svc.use(endpoint="https://a/v1"), "given with base_url="),
    (lambda: svc.use(key="sk-1"), "key= belongs to base_url="),
    (lambda: svc.use(model="https://a/v1"), "an address, not a model id"),
    (lambda: svc.use("https://a/v1"), "svc.use(base_url=...)"),  # type: ignore[arg-type]  # the mistake
]


@pytest.mark.parametrize(("call", "said"), WRONG)
def test_wrong_use_says_what_to_write(
    describe: Describe, call: Callable[[], object], said: str
) -> None:
    """The message names the argument that was meant."""
    describe('[lab]\nbase_url = "https://lab.example/v1"\nkey = false\n')

    with pytest.raises(svc.errors.ParameterError) as caught:
        call()

    assert said in str(caught.value)


@pytest.mark.slow
def test_a_broken_file_stops_requests_but_not_the_emulator(describe: Describe) -> None:
    """The line is named wherever a request would go, except to the emulator."""
    describe("[lab\n")

    with pytest.raises(svc.errors.SettingsError, match="line 1"):
        svc.complete("Hi")
    svc.use(endpoint="emulator")

    assert svc.complete("Hi", max_tokens=5).finish_reason


def test_a_change_of_the_file_applies_at_once(start: Start, describe: Describe) -> None:
    """The limits of the endpoint in use are those of the file now."""
    text = f'[lab]\nbase_url = "{start().base_url}"\nkey = false\n'
    describe(f"{text}per_second = 5\n")
    svc.use(endpoint="lab")
    before = current().settings.endpoint.limit

    describe(f"{text}per_second = 5000\n")

    assert before == Limit(per_second=5, per_minute=None)
    assert current().settings.endpoint.limit == Limit(per_second=5000, per_minute=None)


def test_an_address_keeps_what_was_said_of_it(
    start: Start, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change elsewhere does not bring back a key that is not needed."""
    server = start(needs_key=False)
    describe(f'[lab]\nbase_url = "{server.base_url}"\nkey_env = "LAB_API_KEY"\n')
    svc.use(base_url=server.base_url, key=False)

    monkeypatch.setenv("SVC_MODEL", MODEL)

    assert svc.complete("Hi").model == MODEL


def test_a_refused_key_is_named_by_its_variable(
    start: Start, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which key was sent, or that none was."""
    server = start()
    monkeypatch.setenv("LAB_API_KEY", "sk-wrong-one")
    describe(f'[lab]\nbase_url = "{server.base_url}"\nkey_env = "LAB_API_KEY"\n')

    svc.use(endpoint="lab")
    with pytest.raises(svc.errors.AuthError) as refused:
        svc.complete("Hi", model=MODEL)
    svc.use(base_url=server.base_url, key=False)
    with pytest.raises(svc.errors.AuthError) as keyless:
        svc.complete("Hi", model=MODEL)

    assert "Set LAB_API_KEY to a valid key" in str(refused.value)
    assert "SVC_API_KEY" not in str(refused.value)
    assert not hasattr(refused.value, "__notes__")
    assert "No key was sent" in str(keyless.value)


def test_a_key_that_was_typed_is_named_when_it_is_refused(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What helps is said: SVC_API_KEY would change nothing."""
    address = start(keys=["sk-of-the-lab"]).base_url
    monkeypatch.setenv("SVC_BASE_URL", address)
    monkeypatch.setenv("SVC_API_KEY", "sk-of-the-lab")
    login(current(), ask=lambda _: "sk-mistyped")

    with pytest.raises(svc.errors.AuthError) as typed:
        svc.complete("Hi", model=MODEL)
    with pytest.raises(svc.errors.AuthError) as given:
        svc.Client(api_key="sk-also-mistyped").complete("Hi", model=MODEL)

    said = str(typed.value)
    assert "from a prompt is invalid or revoked" in said
    assert f"Type another one after `%svc login {address}`" in said
    assert "or give the client another key=" in str(given.value)
    assert "SVC_API_KEY" not in f"{typed.value} {given.value}"


def test_a_model_goes_with_its_endpoint(start: Start, describe: Describe) -> None:
    """The file's model is used there, and the usual one elsewhere."""
    text = f'[lab]\nbase_url = "{start().base_url}"\nkey = false\nmodel = "{MODEL}"\n'
    describe(text)

    svc.use(endpoint="lab")
    there = current().settings.model
    svc.use(endpoint="service")

    assert (there, current().settings.model) == (MODEL, "svc-v2-8b-instruct")


@pytest.mark.parametrize(
    ("address", "is_service"),
    [
        ("http://127.0.0.1:9/v1", True),  # at SVC_BASE_URL is the service
        ("https://10.0.0.5:8000/v1", True),
        ("https://svc.example.com/v1", True),
        ("https://other.example.com/v1", False),
    ],
)
def test_the_document_s_limits_are_the_service_s(
    address: str, is_service: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However an address is chosen, it has the limits of what is there."""
    if "other" not in address:
        monkeypatch.setenv("SVC_BASE_URL", address)
        monkeypatch.setenv("SVC_API_KEY", "a-key-of-the-test")
    with isolated():
        chosen = [svc.Client(base_url=address, api_key="k").settings]
        if "other" not in address:
            chosen.append(svc.Client().settings)
        svc.use(base_url=address, key="k")
        chosen.append(svc.Client().settings)

    limits = [used.endpoint.limit_of("svc-v2-8b-instruct") for used in chosen]

    assert {limit is not None for limit in limits} == {is_service}
    assert len({used.endpoint for used in chosen}) == 1
    assert Endpoint().info_of("any") == DOCUMENTED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


@pytest.mark.slow
@given(JSON, st.sampled_from(["id", "data", "max_model_len", "meta"]))
def test_any_answer_is_read_without_an_error(answer: object, name: str) -> None:
    """What is no list of models has no models, or those with a text as id."""
    found = read_models({"data": [{name: answer}, answer], name: answer})

    assert all(each.id.strip() for each in found)

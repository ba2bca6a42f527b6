"""Errors name the endpoint: its key's variable and list, and what does not pass."""

import pytest

import svc_notebook as svc

from .conftest import Describe
from .stub_server import Serve, listed, reply, written


def test_a_refused_key_is_that_of_this_server(
    serve: Serve, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variable and address are named, and not the service's."""
    server = serve(written({"error": {"message": "Invalid key"}}, 401))
    monkeypatch.setenv("LAB_API_KEY", "a-key-of-the-lab")
    describe(f'[lab]\nbase_url = "{server.base_url}"\nkey_env = "LAB_API_KEY"\n')
    svc.use(endpoint="lab", model="m")

    with pytest.raises(svc.errors.AuthError) as caught:
        svc.complete("Hi")
    svc.use(base_url=server.base_url, key=False)
    with pytest.raises(svc.errors.AuthError) as keyless:
        svc.complete("Hi", model="m")

    said = str(caught.value)
    assert f"{server.base_url} refused the API key. Set LAB_API_KEY to a" in said
    assert f"`%svc login {server.base_url}`" in str(keyless.value)
    for text in (said, str(keyless.value)):
        assert "SVC_API_KEY" not in text
        assert "dashboard" not in text


def test_an_unknown_model_is_answered_with_the_list(serve: Serve) -> None:
    """The server's own list, not the document's."""
    refusal = written({"error": {"message": "The model `x` does not exist."}}, 404)
    server = serve(refusal, models=listed({"id": "a"}, {"id": "b"}))
    svc.use(base_url=server.base_url, key=False, model="a")

    with pytest.raises(svc.errors.UnknownModelError) as caught:
        svc.complete("Hi", model="x")

    assert f"{server.base_url} has no model 'x' (it lists a, b)" in str(caught.value)
    assert "documented" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("200 OK\r\nContent-Type: text/html", "<html>", "The body begins: <html>"),
        ("200 OK", "", r"The body begins: \(empty\)"),
        ("302 Found\r\nLocation: https://other.example/v1", "", "a redirect"),
        ("304 Not Modified", "", "instead of a reply"),
    ],
)
def test_an_answer_of_something_else_names_this_address(
    serve: Serve, head: str, body: str, said: str
) -> None:
    """The address in use is named, and not the variable of the service's."""
    answer = f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    server = serve([answer.encode()])
    svc.use(base_url=server.base_url, key=False, model="m")

    with pytest.raises(svc.errors.DocumentError, match=said) as caught:
        svc.complete("Hi")

    assert server.base_url in str(caught.value)
    assert "SVC_" not in str(caught.value)
    assert "the service's" not in str(caught.value)


def test_a_quota_that_is_used_up_is_not_waited_for(serve: Serve) -> None:
    """One request is sent, and the model is not closed for others."""
    error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
    server = serve(written({"error": error}, 429), reply())
    svc.use(base_url=server.base_url, key=False, model="m")

    with pytest.raises(svc.errors.BadRequestError, match="no quota left") as caught:
        svc.complete("Hi")

    assert caught.value.status == 429
    assert len(server.bodies) == 1
    assert svc.Client(key=False).due("m").wait_s == 0


def test_equal_refusals_stop_a_sweep(serve: Serve, describe: Describe) -> None:
    """After ten in a row the model is given up; different ones are single failures."""
    server = serve(written({"error": {"message": "top_k is not supported"}}, 400))
    describe(f'[lab]\nbase_url = "{server.base_url}"\nkey = false\nin_flight = 1\n')
    svc.use(endpoint="lab", model="m")
    rows = [{"n": n} for n in range(300)]

    run = svc.sweep("Hi {{n}}", rows=rows)
    with pytest.raises(svc.errors.BadRequestError, match="top_k is not supported"):
        run.run()

    assert len(server.bodies) == 10


@pytest.mark.slow
def test_a_429_without_a_hint_waits_seconds(serve: Serve) -> None:
    """A gateway's limit may pass at once; a minute is the last guess."""
    refused = written({"error": {"message": "No deployments available"}}, 429)
    server = serve(refused, reply())
    svc.use(base_url=server.base_url, key=False, model="m")
    waits: list[float] = []

    svc.Client(key=False).complete("Hi", watch=lambda due: waits.append(due.wait_s))

    assert len(server.bodies) == 2
    assert 0 < sum(waits) < 20

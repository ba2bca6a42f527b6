"""The first cell after an address is chosen has the model, the key and the numbers."""

import pytest

import svc_notebook as svc
from svc_notebook.errors import ConfigError
from svc_notebook.magics.use_and_login import use
from svc_notebook.session import current
from tests.magics.conftest import Shell, ipython, shell  # noqa: F401 - fixtures

from .stub_server import NO_LIST, Serve, listed, reply, written

REFUSED = written({"error": {"message": "Invalid API key"}}, 401)


def _no_prompt(_: str) -> str:
    raise NotImplementedError


def test_the_only_model_is_asked(serve: Serve, shell: Shell) -> None:  # noqa: F811 - the fixture
    """Nobody has to name it, and a server without keys is used without one."""
    server = serve(reply(), models=listed({"id": "tide-1b", "max_model_len": 2048}))

    said = shell.run(f"%svc use {server.base_url}").shown
    cell = shell.run("%%svc\nWhat is a tide?")

    assert said.strip() == (
        f"Replies now come from {server.base_url}. No key is sent (key=False). "
        "The model is tide-1b."
    )
    assert cell.error is None
    assert server.bodies[0]["model"] == "tide-1b"
    assert 1900 < server.bodies[0]["max_tokens"] < 2048
    assert all(b"uthorization" not in request for request in server.raw.requests)


def test_several_models_are_shown_to_choose_from(serve: Serve) -> None:
    """A request that names none says so, and a model that is not listed may be used."""
    server = serve(reply(), models=listed({"id": "a"}, {"id": "b"}))

    said = use(current(), server.base_url, "no-key")
    with pytest.raises(svc.errors.ParameterError, match=r"No model is chosen.*svc mod"):
        svc.complete("Hi")
    use(current(), "b")
    svc.complete("Hi")
    svc.complete("Hi", model="c")

    assert said.endswith("\nIt lists a, b. Choose one: `%svc use a`.")
    assert [body["model"] for body in server.bodies] == ["b", "c"]
    assert [model.id for model in current().models()] == ["a", "b"]


def test_a_model_that_was_named_stays(serve: Serve) -> None:
    """It is said where the server does not list it."""
    server = serve(models=listed({"id": "a"}, {"id": "b"}))
    svc.use(model="tide:q4")

    said = use(current(), server.base_url, "no-key")

    assert "The model is tide:q4, which it does not list: it lists a, b." in said
    svc.use(base_url=server.base_url, key=False, model="b")
    assert current().settings.model == "b"


def test_a_server_without_a_list_keeps_the_model(serve: Serve) -> None:
    """It may be the service at another address; the way to name a model is said."""
    server = serve(reply())

    said = use(current(), server.base_url, "no-key")

    assert "It lists no models. The model is svc-v2-8b-instruct" in said


def test_the_key_is_asked_for_in_the_same_step(serve: Serve) -> None:
    """Where the server wants one; it is sent to this address, with the list too."""
    server = serve(listed({"id": "a"}), reply(), models=REFUSED)
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "a-key-of-the-lab"

    said = use(current(), server.base_url, ask=ask)
    svc.complete("Hi")

    assert asked == [f"API key of {server.base_url} (is not shown): "]
    assert "The model is a." in said
    without, *rest = server.raw.requests
    assert b"uthorization" not in without
    assert all(b"Authorization: Bearer a-key-of-the-lab" in each for each in rest)


def test_where_no_key_can_be_typed_the_ways_are_named(serve: Serve) -> None:
    """As they are where the server does not answer."""
    server = serve(models=REFUSED)
    before = current().settings

    with pytest.raises(ConfigError, match=r"No API key for (.|\n)*key=False"):
        use(current(), server.base_url, ask=_no_prompt)

    assert current().settings == before


def test_a_server_that_does_not_answer_is_named(serve: Serve) -> None:
    """The error says so first, before any key is typed."""
    server = serve()
    server.raw.close()

    with pytest.raises(ConfigError) as caught:
        use(current(), server.base_url, ask=_no_prompt)

    assert "does not answer now, so it is unknown" in caught.value.__notes__[0]


def test_a_client_may_need_no_key(serve: Serve) -> None:
    """`key=False` says so, as in `svc.use`."""
    server = serve(models=reply())

    with svc.Client(base_url=server.base_url, key=False) as client:
        client.complete("Hi", model="m")

    assert b"uthorization" not in server.raw.requests[0]


def test_the_list_is_that_of_the_server_in_use(serve: Serve) -> None:
    """What was learnt of another one, or is documented, is not in it."""
    server = serve(models=listed({"id": "a"}))
    other = serve(models=NO_LIST)
    svc.use(base_url=other.base_url, key=False)

    before = current().models()
    svc.use(base_url=server.base_url, key=False)

    assert (before, [model.id for model in current().models()]) == ((), ["a"])

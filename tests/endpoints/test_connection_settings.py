"""An endpoint's headers, query, path and fields are sent; its secrets are variables."""

from dataclasses import replace
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.endpoints import to_server_url
from svc_notebook.magics.use_and_login import use
from svc_notebook.session import current
from svc_notebook.settings import Settings, endpoint_at

from .conftest import Describe
from .stub_server import Serve, reply

SECRET = "a-secret-of-the-lab"  # noqa: S105 - it is not


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://host", "https://host/v1"),
        ("https://host:8443/api/", "https://host:8443/api/v1"),
        ("https://host/v1/chat/completions", "https://host/v1"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai"),
        ("https://host/api/paas/v4", "https://host/api/paas/v4"),
        ("https://host/openai/v1/", "https://host/openai/v1"),
        (
            "https://host/openai/deployments/d/chat/completions?api-version=2024-10-21",
            "https://host/openai/deployments/d",
        ),
    ],
)
def test_an_address_is_taken_as_it_is(text: str, address: str) -> None:
    """/v1 is added only where an address names no version; its query is kept apart."""
    base_url, query = to_server_url(text)

    assert base_url == address
    assert query == ((("api-version", "2024-10-21"),) if "?" in text else ())
    settings = Settings(base_url=text.partition("?")[0], endpoint=endpoint_at(text))
    assert settings.base_url == replace(settings, model="m").base_url == address


@pytest.mark.parametrize("query", ["?key=1234", "?api_key=x", "?sig=1", "?"])
def test_a_query_has_no_key(query: str) -> None:
    """Addresses are shown and recorded."""
    with pytest.raises(svc.errors.SettingsError, match="or contains a key"):
        to_server_url(f"https://host/v1{query}")


def _head(server: Any) -> str:  # noqa: ANN401 - a stub
    return str(server.raw.requests[-1].partition(b"\r\n\r\n")[0].decode())


def test_the_file_says_how_an_endpoint_is_asked(
    serve: Serve, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all its models: headers, query, the key's header, the path and fields."""
    server = serve(reply())
    host = server.base_url.removesuffix("/v1")
    monkeypatch.setenv("LAB_KEY", "a-key-of-the-lab")
    monkeypatch.setenv("LAB_TOKEN", SECRET)
    describe(
        f'[lab]\nbase_url = "{host}"\nkey_env = "LAB_KEY"\nkey_header = "api-key"\n'
        'path = "/openai/deployments/d"\nquery = { api-version = "2024-10-21" }\n'
        'headers = { X-Team = "tides", X-Token = "$LAB_TOKEN" }\n'
        "extra = { top_k = 20 }\ncontext = 5000\nmax_reply = 700\n"
    )

    svc.use(endpoint="lab", model="m")
    svc.complete("Hi")
    completion = svc.complete("Hi", extra={"top_k": 1, "seed": 2})

    head = _head(server)
    assert head.startswith(
        "POST /openai/deployments/d/chat/completions?api-version=2024-10-21 HTTP/1.1"
    )
    assert "api-key: a-key-of-the-lab" in head
    assert f"X-Team: tides\r\nX-Token: {SECRET}" in head
    assert "uthorization" not in head
    assert server.bodies[0]["top_k"] == 20
    assert server.bodies[1] | {"messages": 0} == {
        "model": "m",
        "messages": 0,
        "max_tokens": 700,
        "top_k": 1,
        "seed": 2,
    }
    assert SECRET not in repr((completion, completion.exchange, current().settings))
    curl = completion.as_curl()
    assert '-H "api-key: $LAB_KEY"' in curl
    assert '-H "X-Team: tides"' in curl
    assert '-H "X-Token: $LAB_TOKEN"' in curl
    assert "completions?api-version=2024-10-21" in curl


def test_use_says_how_an_endpoint_is_asked(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an address, and later for the endpoint in use."""
    server = serve(reply())
    monkeypatch.setenv("LAB_TOKEN", SECRET)

    svc.use(
        base_url=server.base_url,
        key=False,
        model="m",
        path="/v1beta/openai",
        headers={"X-Token": "$LAB_TOKEN"},
        max_reply=300,
    )
    svc.complete("Hi")
    first = _head(server)
    svc.use(query={"trace": "1"}, extra={"top_k": 3}, max_tokens_field="n_predict")
    svc.complete("Hi")

    assert first.startswith("POST /v1beta/openai/chat/completions HTTP/1.1")
    assert _head(server).startswith("POST /v1beta/openai/chat/completions?trace=1 H")
    assert f"X-Token: {SECRET}" in _head(server)
    sent = [body.keys() - {"model", "messages"} for body in server.bodies]
    assert sent == [{"max_tokens"}, {"n_predict", "top_k"}]


def test_a_header_s_secret_is_hidden_as_a_key_is(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no prompt and no reply, and a variable that is not set is named."""
    server = serve(reply(f"It is {SECRET}."))
    monkeypatch.setenv("LAB_TOKEN", SECRET)
    svc.use(
        base_url=server.base_url, key=False, model="m", headers={"X-A": "$LAB_TOKEN"}
    )

    completion = svc.complete("Hi")
    with pytest.raises(svc.errors.ParameterError, match="contains the API key"):
        svc.complete(f"Is it {SECRET}?")
    monkeypatch.delenv("LAB_TOKEN")
    with pytest.raises(svc.errors.MissingKeyError, match=r"X-A of .* needs LAB_T"):
        svc.use(base_url=server.base_url, key=False, headers={"X-A": "$LAB_TOKEN"})

    assert completion.text == "It is [key]."


def test_a_header_s_secret_does_not_go_unencrypted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a key, too, http to another machine is refused for it."""
    monkeypatch.setenv("LAB_TOKEN", SECRET)
    headers = {"X-A": "$LAB_TOKEN"}

    with pytest.raises(svc.errors.SettingsError, match="unencrypted"):
        svc.use(base_url="http://10.0.0.5/v1", key=False, headers=headers)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"headers": {"X-Api-Key": "abc"}}, "a key does not belong here"),
        ({"headers": {"Authorization": "Bearer abc"}}, "a key does not belong here"),
        ({"headers": {"X-A": "$SVC_API_KEY"}}, "is for SVC_BASE_URL only"),
        ({"headers": {"Host": "x"}}, "is not a header that can be set"),
        ({"headers": {"X-A": "a\r\nb"}}, "visible ASCII"),
        ({"query": {"key": "abc"}}, "a key does not belong here"),
        ({"path": "v1"}, "must be a path such as"),
        ({"context": 0}, "must be an integer >= 1"),
        ({"extra": {"temperature": 1}}, "is a parameter of the service"),
        ({"contxt": 5}, "Did you mean context?"),
        ({"stream_usage": "yes"}, "must be true or false"),
    ],
)
def test_what_cannot_be_set_is_refused(
    serve: Serve, describe: Describe, settings: dict[str, Any], why: str
) -> None:
    """In code and in the file, with the reason; the value is not shown."""
    server = serve()
    before = current().settings

    with pytest.raises(svc.errors.SvcError) as caught:
        svc.use(base_url=server.base_url, key=False, **settings)
    ((name, value),) = settings.items()
    text = str(value) if isinstance(value, int) else repr(value)
    if isinstance(value, dict):
        pairs = ", ".join(f'{key} = "{one}"' for key, one in value.items())
        text = "{ " + pairs.replace("\r\n", "\\r\\n") + " }"
    describe(f'[lab]\nbase_url = "{server.base_url}"\nkey = false\n{name} = {text}\n')
    with pytest.raises(svc.errors.SettingsError) as in_file:
        svc.use(endpoint="lab")

    assert why in str(caught.value)
    assert why in str(in_file.value)
    assert "line 4" in str(in_file.value)
    assert "abc" not in str(caught.value) + str(in_file.value)
    assert current().settings == before


def test_a_number_of_tokens_is_no_key(describe: Describe) -> None:
    """A setting that does not exist is named as such, and not as a secret."""
    describe('[lab]\nbase_url = "https://lab.example/v1"\nmax_tokens = 4096\n')

    with pytest.raises(svc.errors.SettingsError, match=r"max_tokens: there is no such"):
        svc.use(endpoint="lab")


def test_one_secret_is_not_sent_to_two_servers(describe: Describe) -> None:
    """A header's variable is for one server only, as a key's is."""
    describe(
        '[a]\nbase_url = "https://a.example/v1"\nheaders = { X-A = "$LAB_TOKEN" }\n'
        '[b]\nbase_url = "https://b.example/v1"\nkey_env = "LAB_TOKEN"\n'
    )

    with pytest.raises(svc.errors.SettingsError, match="on different hosts"):
        svc.use(endpoint="a")


@pytest.mark.usefixtures("describe")
def test_the_service_is_asked_as_its_document_says() -> None:
    """Only its numbers can be corrected."""
    svc.use(endpoint=svc.Emulator())

    with pytest.raises(svc.errors.ParameterError, match="headers= is for other"):
        svc.use(headers={"X-A": "b"})
    svc.use(context=9000)

    assert current().info_of("svc-v2-8b-instruct").context_tokens == 9000


def test_an_address_with_a_query_is_used(serve: Serve) -> None:
    """As another vendor's documentation shows it."""
    server = serve(reply())

    use(current(), f"{server.base_url}/chat/completions?api-version=1", "no-key")
    svc.complete("Hi", model="m")

    assert _head(server).startswith("POST /v1/chat/completions?api-version=1 HTTP")
    assert current().settings.base_url == server.base_url

"""`transport=`: any transport of httpx sends the requests."""

import asyncio
import gzip
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from svc_notebook.client.async_client import AsyncClient
from svc_notebook.client.event_loop import portal
from svc_notebook.client.sync_client import Client
from svc_notebook.errors import NoConnectionError, SettingsError, TimedOutError
from svc_notebook.settings import Settings

KEY = "sk-secret-of-the-test"
REPLY = (
    b'{"id":"c","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}'
)
Answer = Callable[[httpx.Request], httpx.Response]


def asked(answer: Answer, base_url: str = "https://svc.invalid/v1") -> str:
    """Return the text of a reply that a function gives."""
    transport = httpx.MockTransport(answer)
    with Client(base_url=base_url, api_key=KEY, transport=transport) as client:
        return client.complete("Hi", model="svc-instruct").text


def test_a_transport_gets_the_whole_request() -> None:
    """Method, address, headers and body are those of our own connections."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        headers = {"Content-Encoding": "gzip"}
        stream = httpx.ByteStream(gzip.compress(REPLY))
        return httpx.Response(200, headers=headers, stream=stream)

    text = asked(answer)

    (request,) = requests
    assert text == "Hello."
    assert (request.method, request.url.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert b'"content":"Hi"' in request.content


def test_a_list_of_models_takes_the_same_way() -> None:
    """A transport of the user's, such as one through a proxy, is not gone around."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"data": [{"id": "m"}]})

    transport = httpx.MockTransport(answer)
    base_url = "https://list.svc.invalid/v1"
    with Client(base_url=base_url, api_key=KEY, transport=transport) as client:
        client.list_models(wait_s=10)

    (request,) = requests
    assert (request.method, request.url.path) == ("GET", "/v1/models")


@pytest.mark.parametrize(
    ("scheme", "line"),
    [
        ("http", b"POST http://svc.example/v1/chat/completions HTTP/1.1"),
        ("https", b"CONNECT svc.example:443 HTTP/1.1"),
    ],
)
def test_a_proxy_of_a_transport_is_asked_as_httpx_asks_it(
    scheme: str,
    line: bytes,
    serve: Callable[..., Any],
) -> None:
    """It sees the whole address, or where the tunnel is to lead."""
    good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(REPLY) + REPLY
    server = serve([good if scheme == "http" else b"HTTP/1.1 502 No\r\n\r\n"])
    settings = Settings(base_url=f"{scheme}://svc.example/v1", allow_http=True)
    transport = httpx.AsyncHTTPTransport(proxy=server.base_url.removesuffix("/v1"))
    with Client(settings, api_key=KEY, transport=transport) as client:
        if scheme == "http":
            assert client.complete("Hi", model="svc-instruct").text == "Hello."
        else:
            with pytest.raises(NoConnectionError, match="the proxy refused"):
                client.complete("Hi", model="svc-instruct")
    portal().run(transport.aclose())

    assert server.requests[0].partition(b"\r\n")[0] == line


def raising(problem: type[Exception]) -> Answer:
    """Return a function that fails so."""

    def answer(_: httpx.Request) -> httpx.Response:
        raise problem(KEY)

    return answer


@pytest.mark.parametrize(
    ("problem", "kind", "words"),
    [
        (httpx.ConnectTimeout, TimedOutError, "No connection .* within 10 s"),
        (httpx.ReadTimeout, TimedOutError, "did not finish"),
        (httpx.ProxyError, NoConnectionError, "the proxy refused"),
        (ZeroDivisionError, NoConnectionError, "transport raised ZeroDivisionError"),
    ],
)
def test_failures_are_ours(
    problem: type[Exception], kind: type[Exception], words: str
) -> None:
    """What a transport raises becomes one of our errors, without its text."""
    with pytest.raises(kind, match=words) as caught:
        asked(raising(problem))

    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    "wrong", [httpx.AsyncHTTPTransport, httpx.HTTPTransport(), "http://proxy"]
)
def test_what_is_no_transport_is_refused(wrong: Any) -> None:  # noqa: ANN401 - wrong
    """A class, a transport that does not await, or an address is refused at once."""
    with pytest.raises(SettingsError, match=r"httpx\.AsyncBaseTransport"):
        AsyncClient(base_url="https://svc.invalid/v1", api_key=KEY, transport=wrong)


@pytest.mark.slow
def test_logs_of_httpx_do_not_show_the_key(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A service that quotes the key in a header does not get it into a log."""
    caplog.set_level(logging.DEBUG)
    head = f"HTTP/1.1 200 OK\r\nX-Echo: {KEY}\r\nContent-Length: {len(REPLY)}\r\n\r\n"
    server = serve([head.encode() + REPLY])

    async def scene() -> str:
        async with (
            httpx.AsyncHTTPTransport() as transport,
            AsyncClient(
                base_url=server.base_url, api_key=KEY, transport=transport
            ) as client,
        ):
            return (await client.complete("Hi", model="svc-instruct")).text

    assert asyncio.run(scene()) == "Hello."
    assert "X-Echo" in caplog.text
    assert KEY not in caplog.text

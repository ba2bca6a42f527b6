"""The plain client against the emulator: threads, running loops, interrupts, forks."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from svc_notebook.client.rate_limit import RateLimits
from svc_notebook.client.rate_windows import Waiting
from svc_notebook.client.sync_client import Client
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import (
    MissingKeyError,
    ParameterError,
    SettingsError,
    SvcError,
)
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import Delta
from svc_notebook.settings import Settings

ClientOf = Callable[..., Client]
Serve = Callable[..., Any]
Kept = Any  # the conftest's sink
MODEL = "svc-instruct"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
SOME = b'data: {"choices":[{"index":0,"delta":{"content":"some"}}]}\n\n'


@pytest.fixture
def client(emulator: Emulator) -> Client:
    """A client of the emulator, in real time."""
    return Client(
        Settings(base_url=emulator.base_url, model=MODEL), api_key=emulator.api_key
    )


def test_a_prompt_with_the_key_is_not_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recorded answer would keep the prompt, and a miss would quote it."""
    key = "sk-of-this-kernel-123"
    monkeypatch.setenv("SVC_API_KEY", key)
    looked_up: list[Any] = []
    offline = Client(Settings(), answers=lambda *args: looked_up.append(args))

    with pytest.raises(ParameterError, match="contains the API key") as refused:
        offline.complete(f"My key is {key}.")

    assert looked_up == []
    assert key not in str(refused.value)


def test_an_estimate_is_marked_and_has_its_interval(client: Client) -> None:
    """A footer says `~`; where the mouse rests, it says parts and interval."""
    stream = client.stream("Say hello in many words.", temperature=0, max_tokens=9)
    list(stream)

    [exchange] = _exchanges(stream)
    prompt, reply = exchange.est_prompt_tokens, exchange.est_completion_tokens
    low, high = exchange.est_low_tokens, exchange.est_high_tokens
    assert low is not None
    assert high is not None
    assert low <= prompt + reply <= high
    assert reply <= 9
    total = prompt + reply
    assert repr(stream.completion.usage) == (
        f"EstimatedUsage(prompt_tokens=~{prompt}, completion_tokens=~{reply}, "
        f"total_tokens=~{total})"
    )
    shown = stream.completion.final().bundle()
    assert f" · ~{prompt} → ~{reply} tokens · " in shown["text/plain"]
    hint = f"estimated: {prompt} + {reply} tokens, together {low} to {high}"
    assert f' title="{hint}"' in shown["text/html"]


def _exchanges(*held: Any) -> list[Exchange]:  # noqa: ANN401 - stream or completion
    return [getattr(each, "completion", each).exchange for each in held]


def test_only_what_was_asked_is_sent(serve: Serve, client_of: ClientOf) -> None:
    """The body holds the model, the messages and what was asked for, nothing else."""
    server = serve([b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n"])

    with pytest.raises(SvcError):
        client_of(server.base_url).complete("Hi {x} $y", temperature=0)

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert body == (
        b'{"model":"svc-instruct","messages":[{"role":"user","content":"Hi {x} $y"}],'
        b'"temperature":0}'
    )
    names = [line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    assert sorted(names) == [
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"user-agent",
    ]
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer sk-secret-of-the-test\r\n" in head


def test_changing_both_of_a_pair_is_warned_of(
    serve: Serve, client_of: ClientOf
) -> None:
    """The pair temperature and top_p is warned of at the call, and sent."""
    server = serve([b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n"])

    with (
        pytest.warns(UserWarning, match="changing only one of them") as warned,
        pytest.raises(SvcError),
    ):
        client_of(server.base_url).complete("Hi", temperature=1, top_p=0.5)

    assert b'"temperature":1,"top_p":0.5}' in server.requests[0]
    assert [each.filename for each in warned] == [__file__]


def test_every_exchange_is_told_once(
    emulator: Emulator, client_of: ClientOf, kept: Kept
) -> None:
    """Good and refused exchanges reach the sink once, with times and estimates."""
    client = client_of(emulator.base_url)
    origin = Origin(kind="frame", columns={"a": 1})

    with pytest.raises(SvcError) as caught:  # the key is not the emulator's
        client.complete("Hello", origin=origin)

    (exchange,) = kept.exchanges
    assert exchange.origin == origin
    assert (exchange.status, exchange.failure.http_status) == ("error", 401)
    assert exchange.failure.code == "invalid_api_key"
    assert exchange.is_emulated
    assert caught.value.exchange_id == exchange.exchange_id
    assert exchange.est_prompt_tokens == 5
    assert (exchange.est_low_tokens, exchange.est_high_tokens) == (2, 9)
    assert exchange.started_at.utcoffset() == timedelta(0)
    assert exchange.ended_at >= exchange.started_at


def test_missing_key_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not set is named, with the way on."""
    monkeypatch.delenv("SVC_API_KEY", raising=False)
    monkeypatch.delenv("SVC_BASE_URL", raising=False)

    with pytest.raises(SettingsError, match=r"(?s)SVC_BASE_URL.*emulator"):
        Client().complete("Hello")
    with pytest.raises(MissingKeyError, match=r"svc\.invalid/v1(.|\n)*key="):
        Client(base_url="https://svc.invalid/v1").complete("Hello")


@pytest.mark.parametrize(
    "base_url",
    [
        "https://[v1.x]/v1",
        "https://999.1.1.1/v1",
        "https://xn--.example",
        "https://xn--a.example",
        f"https://{'a' * 70_000}/v1",
    ],
)
def test_an_address_that_http_does_not_take(base_url: str) -> None:
    """It is refused in our words before anything is sent, and not repeated."""
    with pytest.raises(SettingsError, match="https://HOST/v1") as caught:
        Client(base_url=base_url, key="sk-of-the-test").complete("Hello")

    assert len(str(caught.value)) < 400


def test_a_sink_that_fails_loses_no_reply(emulator: Emulator) -> None:
    """A reply is returned even if it could not be kept; that is warned of once."""

    class Full:
        def add(self, _: Exchange) -> None:
            raise SvcError("The disk is full.")

    with Client(
        Settings(base_url=emulator.base_url, model=MODEL),
        api_key=emulator.api_key,
        sinks=[Full()],
    ) as client:
        with pytest.warns(RuntimeWarning, match="disk is full") as caught:
            texts = [client.complete("Hello").text for _ in range(2)]

        assert all(texts)
        assert len(caught) == 1


def test_a_ready_request_is_sent_as_it_is(emulator: Emulator, client: Client) -> None:
    """The request of a completion can be asked again, and takes nothing besides."""
    first = client.complete("Hello", temperature=0)

    again = client.complete(first.request)
    streamed = client.stream(first.request).completion

    assert again.request == streamed.request == first.request
    assert again.text == streamed.text == first.text
    assert len(emulator.requests) == 3
    for given in ({"model": MODEL}, {"system": "Be brief."}, {"temperature": 1}):
        with pytest.raises(ParameterError, match=f"{next(iter(given))}=.*leave out"):
            client.complete(first.request, **given)


@pytest.mark.slow
def test_works_inside_a_running_loop(client: Client) -> None:
    """The plain verbs work where an event loop is running, as in a notebook."""

    async def cell() -> str:
        return client.complete("Hello").text + "".join(client.stream("Hello"))

    assert asyncio.run(cell())


@pytest.mark.slow
def test_works_from_sixteen_threads(emulator: Emulator, client: Client) -> None:
    """Sixteen threads share one client."""
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda at: client.complete(f"Say {at}").text, range(32)))

    assert len([text for text in texts if text]) == 32
    assert len(emulator.requests) == 32


def test_poll_tells_waits_and_content(serve: Serve, client_of: ClientOf) -> None:
    """`poll` returns waits and content in order, and then the end."""
    refused = b"HTTP/1.1 429 X\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    server = serve([refused], [HEAD, SOME, end, b"data: [DONE]\n\n"])
    stream = client_of(server.base_url).stream("Hi")

    items: list[Delta | Waiting] = []
    while not stream.is_done:
        items += stream.poll(0.5)

    assert items[0] == Waiting(5.5, "trying again after a 429: too many requests")
    assert items[-2:] == [Delta(text="some"), Delta(finish_reason="stop")]


def test_cancel_closes_the_connection(
    serve: Serve, client_of: ClientOf, kept: Kept
) -> None:
    """`cancel` closes the connection, keeps what came, and is recorded."""
    server = serve([HEAD, SOME, "silence"])
    stream = client_of(server.base_url).stream("Hi")
    assert next(iter(stream)) == "some"

    partial = stream.cancel()

    assert server.wait_until_left() == []
    assert partial is not None
    assert (partial.text, partial.exchange.status) == ("some", "cancelled")
    assert kept.exchanges == [partial.exchange]
    assert stream.is_done
    assert stream.poll(0) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent differently")
@pytest.mark.parametrize("verb", ["stream", "complete"])
def test_interrupt_closes_the_connection(
    verb: str, serve: Serve, client_of: ClientOf, kept: Kept
) -> None:
    """An interrupt closes the connection and is recorded, once."""

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    start = HEAD if verb == "stream" else b""
    server = serve([start, SOME * bool(start), 0.2, interrupt, "silence"])
    client = client_of(server.base_url)

    with pytest.raises(KeyboardInterrupt):
        "".join(client.stream("Hi")) if verb == "stream" else client.complete("Hi")

    assert server.wait_until_left() == []
    assert [exchange.status for exchange in kept.exchanges] == ["cancelled"]


def test_interrupted_wait_for_a_limit_frees_its_place(
    emulator: Emulator, kept: Kept
) -> None:
    """What is stopped while it waits is recorded as never sent; its place is free."""
    settings = Settings(base_url=emulator.base_url, model="svc-v2-8b-instruct")
    now = [0.0]
    limits = RateLimits(clock=lambda: now[0])
    client = Client(settings, api_key=emulator.api_key, sinks=[kept], limits=limits)
    limiter = limits.of("svc-v2-8b-instruct")
    for slot in [limiter.reserve() for _ in range(5)]:
        limiter.try_pass(slot)
        limiter.sent(slot)
    stream = client.stream("Hi")
    (waiting,) = stream.poll(5)

    partial = stream.cancel()

    assert waiting == Waiting(1.08, "per-second limit of svc-v2-8b-instruct")
    assert partial is not None
    assert (partial.exchange.status, partial.exchange.n_attempts) == ("cancelled", 0)
    assert kept.exchanges == [partial.exchange]
    now[0] = 1.09
    assert [limiter.try_pass(limiter.reserve()).wait_s for _ in range(5)] == [0.0] * 5
    assert emulator.requests == ()


@pytest.mark.slow
def test_two_threads_read_one_stream(serve: Serve, client_of: ClientOf) -> None:
    """Threads that share a stream share its text, and both come to its end."""
    end = b'data: {"choices":[{"index":0,"finish_reason":"stop"}]}\n\n'
    stream = client_of(serve([HEAD, SOME, 0.3, SOME, end]).base_url).stream("Hi")

    with ThreadPoolExecutor(2) as pool:
        shown = list(pool.map(lambda _: "".join(stream), range(2), timeout=120))

    assert "".join(shown) == "somesome"


def test_complete_gives_a_completion(client: Client) -> None:
    """`complete` returns text, finish reason and the usage that was reported."""
    completion = client.complete("Say hello.", max_tokens=5)

    usage = completion.usage
    assert completion.text
    assert (completion.finish_reason, completion.is_cut) == ("length", True)
    assert (completion.usage_source, usage.completion_tokens) == ("reported", 5)
    assert repr(usage).startswith("Usage(prompt_tokens=")
    assert "~" not in repr(usage)

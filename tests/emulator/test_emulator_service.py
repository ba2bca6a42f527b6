"""The service without sockets: what is checked when, its limits, what is answered."""

import json
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from svc_notebook.emulator.completion_writer import Pace
from svc_notebook.emulator.emulated_keys import FORBIDDEN_KEY, REVOKED_KEY, Keys
from svc_notebook.emulator.emulated_rate_limits import LIMITS, Quota
from svc_notebook.emulator.emulated_service import Service
from svc_notebook.emulator.http_values import Reply, Request

Fields = Callable[..., dict[str, Any]]
MakeService = Callable[..., Service]
Post = Callable[..., Reply]


def _body(reply: Reply) -> Any:  # noqa: ANN401 - JSON
    return json.loads(b"".join(piece.data for piece in reply.body))


def _text(reply: Reply) -> str:
    text: str = _body(reply)["choices"][0]["message"]["content"]
    return text


def _fault(reply: Reply) -> tuple[int | None, str, str | None]:
    error = _body(reply)["error"]
    return reply.status, error["type"], error["code"]


@pytest.fixture
def service(make_service: MakeService) -> Service:
    """A service without limits."""
    return make_service()


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "svc-emulator",
        "Bearer",
        "Bearer ",
        "Bearer svc-emulat",
        "Bearer svc-emulator2",
        "Bearer svc-emulator svc-emulator",
        "Basic svc-emulator",
        f"Bearer {REVOKED_KEY}",
    ],
)
def test_a_missing_or_wrong_key_comes_before_everything_else(
    service: Service, post: Post, authorization: str
) -> None:
    """Missing, half, Basic, unknown and revoked keys are 401, also with a bad body."""
    reply = post(service, b"no JSON", authorization=authorization)

    assert _fault(reply) == (401, "authentication_error", "invalid_api_key")


def test_a_key_in_the_query_does_not_count(service: Service) -> None:
    """Only the header is looked at."""
    reply = service.reply(
        Request(method="POST", path="/v1/chat/completions?key=svc-emulator")
    )

    assert reply.status == 401


def test_a_key_without_permission_is_403(
    service: Service, post: Post, fields: Fields
) -> None:
    """The key is known, and may not do this."""
    reply = post(service, fields(), key=FORBIDDEN_KEY)

    assert _fault(reply) == (403, "authentication_error", None)


@pytest.mark.parametrize(
    "key", ["sk-secret", "svc-emulator-revoked", "svc-emulator-forbidden"]
)
def test_no_fault_repeats_a_key(
    service: Service, post: Post, fields: Fields, key: str
) -> None:
    """Neither the key that was sent nor values sent in its place come back."""
    replies = [
        post(service, fields(), key=key),
        post(service, fields(model=key)),
        post(service, fields(temperature=key)),
        post(service, fields(stop=[key] * 5)),
        post(service, fields(messages=[{"role": key, "content": key}])),
        post(service, key.encode()),
        post(service, fields(), **{"content-type": key}),
    ]

    assert not any(key.encode() in piece.data for r in replies for piece in r.body)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/chat/completions", 405),
        ("BREW", "/v1/chat/completions", 405),
        ("POST", "/v1/chat/completions/", 404),
        ("GET", "/v1/models", 404),
        ("POST", "/v2/chat/completions", 404),
        ("POST", "/", 405),
    ],
)
def test_other_operations_are_refused(
    service: Service, method: str, path: str, status: int
) -> None:
    """There is one operation (doc: Endpoints)."""
    headers = {"authorization": "Bearer svc-emulator"}

    reply = service.reply(Request(method=method, path=path, headers=headers))

    assert _fault(reply) == (status, "invalid_request_error", None)


def test_the_root_says_what_this_is(service: Service) -> None:
    """Anyone who opens the address in a browser reads that it is an emulator."""
    reply = service.reply(Request(method="GET", path="/"))

    assert (reply.status, reply.headers["content-type"]) == (
        200,
        "text/plain; charset=utf-8",
    )
    assert b"This is an emulator" in reply.body[0].data


def test_a_body_too_long_to_keep_is_refused(service: Service) -> None:
    """What was not kept cannot be answered."""
    headers = {
        "authorization": "Bearer svc-emulator",
        "content-type": "application/json",
    }

    reply = service.reply(
        Request(method="POST", path="/v1/chat/completions", headers=headers, body=None)
    )

    assert _fault(reply) == (400, "invalid_request_error", None)


def test_limits_answer_429_without_a_hint(
    make_service: MakeService, post: Post, fields: Fields
) -> None:
    """Over the limit; no retry hint is shown, so none is sent (doc: Errors)."""
    service = make_service(limits=LIMITS)

    replies = [post(service, fields()) for _ in range(6)]

    assert [reply.status for reply in replies] == [200] * 5 + [429]
    assert _fault(replies[-1])[1:] == ("invalid_request_error", None)
    assert "retry-after" not in replies[-1].headers


def test_refused_requests_use_no_limit_up(
    make_service: MakeService, post: Post, fields: Fields
) -> None:
    """Neither wrong keys nor bad bodies count."""
    service = make_service(limits=LIMITS)
    for _ in range(20):
        post(service, fields(), key="wrong")
        post(service, fields(temperature=9))

    assert post(service, fields()).status == 200


def test_identical_requests_get_one_sample_after_another(
    make_service: MakeService, post: Post, fields: Fields
) -> None:
    """Samples differ within a run, and two runs read the same."""
    runs = []
    for _ in range(2):
        service = make_service(is_filler=True)
        runs.append([_text(post(service, fields())) for _ in range(5)])

    assert len(set(runs[0])) == 5
    assert runs[0] == runs[1]


def test_the_pace_is_part_of_the_reply(
    make_service: MakeService, post: Post, fields: Fields
) -> None:
    """A stream waits before its headers, then between tokens; a whole reply once."""
    pace = Pace(first_token_s=0.5, tokens_per_s=10)
    service = make_service(pace=pace)

    streamed = post(service, fields(stream=True, max_tokens=3))
    whole = post(service, fields(max_tokens=3))

    assert streamed.before_s == 0.5
    assert [piece.after_s for piece in streamed.body] == [0.0, 0.1, 0.1, 0.1, 0.1]
    assert whole.before_s == pytest.approx(0.8)
    assert [piece.after_s for piece in whole.body] == [0.0]


KEYS = Keys(valid=("sk-long-enough", "abc"), revoked=("sk-long",), forbidden=())


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("my sk-long-enough!", "my [key]!"),
        ("xsk-long-enoughx", "x[key]x"),
        ("sk-long", "[key]"),
        ("the abc of abcd", "the [key] of abcd"),
        ("mine is sent-key-9", "mine is [key]"),
    ],
)
def test_takes_keys_out_of_texts(text: str, hidden: str) -> None:
    """Known keys and the one sent go; short ones where they stand alone."""
    assert KEYS.hide(text, {"authorization": "Bearer sent-key-9"}) == hidden


class SetClock(Protocol):
    """The clock of the fixture."""

    at_s: float

    def __call__(self) -> float:
        """Tell the time."""
        ...


@pytest.fixture
def quota(clock: SetClock) -> Quota:
    """The document's limits."""
    return Quota(LIMITS, clock)


@pytest.mark.parametrize(
    ("model", "per_minute"), [(m, n) for m, (_, n) in LIMITS.items()]
)
def test_a_minute_holds_so_many_requests(
    quota: Quota, clock: SetClock, model: str, per_minute: int
) -> None:
    """Spread out, the minute's limit is met, and frees itself one by one."""
    begun_at_s = clock.at_s
    for _ in range(per_minute):
        assert quota.take(model) is None
        clock.at_s += 0.3

    assert quota.take(model) == "per minute"
    clock.at_s = begun_at_s + 60.0
    assert [quota.take(model), quota.take(model)] == [None, "per minute"]


def test_windows_slide(quota: Quota, clock: SetClock) -> None:
    """No moment opens a fresh window: any second holds at most its number."""
    taken = []
    for _ in range(40):
        taken.append(quota.take("svc-v2-8b-instruct"))
        clock.at_s += 0.1

    assert taken[:12] == [None] * 5 + ["per second"] * 5 + [None] * 2


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("POST", "/", "GET, HEAD"),
        ("GET", "/v1/models", None),
    ],
)
def test_a_method_refused_names_those_allowed(
    service: Service, method: str, path: str, allow: str | None
) -> None:
    """A 405 has the header Allow, as HTTP wants it."""
    headers = {"authorization": "Bearer svc-emulator"}

    reply = service.reply(Request(method=method, path=path, headers=headers))

    assert reply.headers.get("allow") == allow

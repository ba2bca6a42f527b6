"""Statuses and error bodies as errors with a way on."""

import json
from pathlib import Path

import pytest

from svc_notebook.errors import (
    AuthError,
    BadRequestError,
    RateLimitError,
    ServerFaultError,
    ServiceError,
    UnknownModelError,
)
from svc_notebook.service.error_messages import Fault, to_error

ERRORS = json.loads(
    (Path(__file__).parents[1] / "document" / "errors.json").read_text("utf-8")
)
KINDS: dict[int, tuple[type[ServiceError], str]] = {
    400: (BadRequestError, "Change what the message names"),
    401: (AuthError, "Use a valid one"),
    403: (AuthError, "permission"),
    404: (UnknownModelError, "model id"),
    429: (RateLimitError, "Wait"),
    500: (ServerFaultError, "Ask again"),
    408: (ServerFaultError, "Ask again"),
    418: (BadRequestError, "Change"),
    529: (ServerFaultError, "Ask again"),
    200: (ServerFaultError, "Ask again"),
}


@pytest.mark.parametrize("status", KINDS)
def test_each_status_is_an_error_with_a_way_on(status: int) -> None:
    """A status gives its class, and the message says what to do."""
    error = to_error(Fault(message="Because."), status=status)

    kind, way_on = KINDS[status]
    assert type(error) is kind
    assert way_on in str(error)
    assert f"status {status}: Because." in str(error)


@pytest.mark.parametrize("case", ERRORS["bodies"])
def test_transcribed_error_bodies(case: dict[str, dict[str, str]]) -> None:
    """The document's error bodies are in the attributes, verbatim."""
    fault = Fault(**case["body"]["error"])  # type: ignore[arg-type]  # its fields

    error = to_error(fault, status=int(str(case["status"])), retry_after_s=3.0)

    assert (error.type, error.param, error.code) == (
        fault.type,
        fault.param,
        fault.code,
    )
    assert (error.retry_after_s, fault.message in str(error)) == (3.0, True)


def test_long_texts_are_cut() -> None:
    """However long the service's words are, the message stays under 4 kB."""
    fault = Fault(message="x" * 10**6, param="y" * 10**6)

    assert len(str(to_error(fault, status=400))) < 4000


def test_an_error_without_words() -> None:
    """An error body without words gives the message "no message"."""
    assert "no message" in str(to_error(Fault(message=" "), status=500))


def test_the_fields_of_an_error_are_bounded() -> None:
    """Type, parameter and code are kept to their first 1000 characters."""
    long = "x" * 200_000

    error = to_error(Fault(type=long, param=long, code=long), status=400)

    assert (error.type, error.param, error.code) == (long[:1000],) * 3

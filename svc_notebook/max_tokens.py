"""max_tokens as a user gives it: a number, `fit`, or `service` (doc: Request body)."""

from typing import Final

import msgspec

from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import must_be
from svc_notebook.service.params import check
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import MaxTokens, in_force

FIT: Final = "fit"
WORDS = (FIT, "service")
ALLOWED = (
    "an integer from 1 to 8192, fit (what the prompt leaves of 8192) or service (send "
    "none, so that 150 applies)"
)


def check_max_tokens(value: object) -> MaxTokens:
    """Return a max_tokens, or refuse it if it is not allowed; None is `service`."""
    if value is None or (isinstance(value, str) and value in WORDS):
        return value  # type: ignore[return-value]  # one of the words
    try:
        return check("max_tokens", value)  # type: ignore[return-value]  # an integer
    except ParameterError:
        refused = must_be("max_tokens", ALLOWED, value, hint="(doc: Request body)")
    raise refused


def with_max_tokens(
    request: CompletionRequest, max_tokens: object
) -> CompletionRequest:
    """Return the request with the max_tokens that is asked for, if it is allowed."""
    asked = check_max_tokens(max_tokens)
    number = in_force(asked, request.messages, request.tools)
    params = {**request.params, "max_tokens": number}
    if number is None:
        del params["max_tokens"]
    return msgspec.structs.replace(request, params=params, is_fitted=asked == FIT)


def refitted(request: CompletionRequest) -> CompletionRequest:
    """Compute max_tokens again if it is `fit`, after messages or tools have changed."""
    return with_max_tokens(request, FIT) if request.is_fitted else request


def more_room(request: CompletionRequest) -> str:
    """Say how a reply to this request that was cut could be longer."""
    if request.is_fitted:
        return (
            "It had all the room that the prompt left; shorten the prompt, or ask for "
            "less"
        )
    return "Pass a larger max_tokens, such as max_tokens='fit'"

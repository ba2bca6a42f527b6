"""How many choices came and how they count: from 0, and as many as were asked for.

Whether what came whole is a reply at all is said here, too. Rules: pure; a service
that counts from 1 is read as if it counted from 0, since a
record's first choice is choice 0; fewer choices than were asked for, or one without
its finish reason, are never a success, and what came is kept (doc: Completion,
choices).
"""

import msgspec

from svc_notebook.errors import DocumentError, ServiceError
from svc_notebook.service.completion import CompletionBody
from svc_notebook.service.fault import Fault, to_error
from svc_notebook.service.text import printable

_OK = 200
Problem = DocumentError | ServiceError | None


def from_zero(body: CompletionBody) -> CompletionBody:
    """Return a whole reply whose lowest choice is choice 0."""
    lowest = body.choices[0].index if body.choices else 0
    if lowest == 0:
        return body
    choices = tuple(
        msgspec.structs.replace(each, index=each.index - lowest)
        for each in body.choices
    )
    return msgspec.structs.replace(body, choices=choices)


def too_few(
    n_came: int, n_asked: int, content_type: str, *, status: int = _OK
) -> DocumentError:
    """Build the error for fewer choices than were asked for (doc: Request body, n)."""
    return DocumentError(
        f"The service gave {n_came} of the {n_asked} choices that were asked for "
        f"(n={n_asked}). What came is kept as the error's `partial`. Ask again with a "
        f"smaller n, or ask {n_asked} times (doc: Request body).",
        status=status,
        content_type=content_type,
    )


_CALLING = frozenset({"tool_calls", "function_call"})
_SHOWN_CHARS = 700


def no_reply(body: CompletionBody, content_type: str, *, refusal: str) -> Problem:
    """Build the error for a whole reply that is none; None if it is one.

    Args:
        body: The reply, with a finish reason on every choice.
        content_type: As sent.
        refusal: The words of a field of its own in which it declines, "" if none.
    """
    if refusal:
        return _declined(refusal, content_type)
    if any(each.finish_reason == "error" for each in body.choices):
        said = Fault(message="the reply ends with finish_reason 'error'")
        return to_error(said, status=_OK)
    if any(
        each.finish_reason in _CALLING and not each.text and not each.tool_calls
        for each in body.choices
    ):
        return _lost_calls(content_type)
    return None


def _lost_calls(content_type: str) -> DocumentError:
    return DocumentError(
        "The service gave a reply that ends by calling tools and holds neither a call "
        "nor text. Ask again; if it stays so, check that the base address speaks this "
        "interface (doc: Tool call).",
        status=_OK,
        content_type=content_type,
    )


def _declined(refusal: str, content_type: str) -> DocumentError:
    return DocumentError(
        "The service declined to answer, in a field that is no part of the reply's "
        f"text: {printable(refusal[:_SHOWN_CHARS])[:_SHOWN_CHARS]}\nWhat text came is "
        "kept as the error's `partial`. Change the prompt, or ask another model "
        "(doc: Completion, choices).",
        status=_OK,
        content_type=content_type,
    )


def unfinished(content_type: str, *, status: int = _OK) -> DocumentError:
    """Build the error for a reply in one piece that has no finish reason.

    The document shows one on every choice of such a reply, so nothing says that a
    reply without it came to its end.
    """
    return DocumentError(
        "The service gave a reply without a finish reason, so it may have been cut "
        "short. What came is kept as the error's `partial`; ask again for a whole "
        "reply (doc: Completion, choices).",
        status=status,
        content_type=content_type,
    )

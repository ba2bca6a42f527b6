"""The recorded request that is nearest to one that was not recorded.

Rules: pure; what is said of a request fits a line and never holds a whole prompt.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from svc_notebook.service.request import CompletionRequest

_SHOWN_CHARS = 60
_COMPARED_CHARS = 2000  # comparing is quadratic
_COMPARED = 200


def nearest(
    request: CompletionRequest, others: Sequence[CompletionRequest]
) -> CompletionRequest | None:
    """Return the request most like another; None if there are none to choose from."""
    # the cheap likeness first, since the dear one is for a few hundred only
    ranked = sorted(others, key=lambda other: -_shared(request, other))[:_COMPARED]
    return max(ranked, key=lambda other: _likeness(request, other), default=None)


def describe(request: CompletionRequest) -> str:
    """Return a request in a line: model, prompt, parameters."""
    fields = {"model": request.model, "prompt": request.prompt, **request.params}
    return ", ".join(f"{name}={_short(value)}" for name, value in fields.items())


def difference(one: CompletionRequest, other: CompletionRequest) -> str:
    """Say in what two requests differ, the first's value first; empty if in nothing."""
    mine, theirs = _fields(one), _fields(other)
    names = [*mine, *(name for name in theirs if name not in mine)]
    return ", ".join(
        f"{name} ({_shown(mine, name)} there, {_shown(theirs, name)} here)"
        for name in names
        if mine.get(name) != theirs.get(name)
    )


def _fields(request: CompletionRequest) -> dict[str, Any]:
    before = [message for message in request.messages if message.role != "system"]
    return {
        "model": request.model,
        "prompt": request.prompt,
        "system": request.system,
        "messages": len(before),
        **{k: v for k, v in sorted(request.params.items()) if k != "user"},
        "tools": len(request.tools),
        **request.extra,
    }


def _shared(one: CompletionRequest, other: CompletionRequest) -> int:
    mine, theirs = _fields(one), _fields(other)
    return sum(theirs.get(name) == value for name, value in mine.items())


def _likeness(one: CompletionRequest, other: CompletionRequest) -> float:
    mine, theirs = one.prompt[:_COMPARED_CHARS], other.prompt[:_COMPARED_CHARS]
    return SequenceMatcher(None, mine, theirs).ratio() * 10 + _shared(one, other)


def _shown(fields: dict[str, Any], name: str) -> str:
    return _short(fields[name]) if fields.get(name) is not None else "none"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 3] + "..."

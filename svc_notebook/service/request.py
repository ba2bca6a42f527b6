"""One request for a completion, checked (doc: POST /v1/chat/completions)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError

from .catalogue import DEFAULT_MODEL
from .checks import shown
from .message import Message, Prompt, check_text, to_messages
from .params import PARAM_NAMES, check_all


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is asked of the service.

    Attributes:
        model: Id of the model (doc: Model ids); ids that are not listed are allowed.
        messages: The whole history, oldest first.
        params: Parameters that are sent, by the document's names.
        tools: Tool definitions (doc: Tool definition).
        extra: Fields that the document does not show, sent as they are.
    """

    model: str
    messages: tuple[Message, ...]
    params: dict[str, Any] = {}
    tools: tuple[dict[str, Any], ...] = ()
    extra: dict[str, Any] = {}

    @property
    def system(self) -> str | None:
        """The text of the first message, if it is a system message."""
        first = self.messages[0]
        return first.content if first.role == "system" else None

    @property
    def prompt(self) -> str:
        """The text of the newest user message; "" if there is none."""
        users = (each for each in reversed(self.messages) if each.role == "user")
        newest = next(users, None)
        return (newest.content or "") if newest else ""


def build_request(
    prompt: Prompt,
    *,
    model: str,
    system: str | None = None,
    extra: Mapping[str, Any] | None = None,
    params: Mapping[str, object] | None = None,
) -> CompletionRequest:
    """Check everything and make the request.

    Args:
        prompt: A text, or messages as `Message` or mappings.
        model: Id of the model.
        system: The text of a system message that comes first.
        extra: Fields that the document does not show.
        params: Parameters by the document's names, and `tools`.

    Raises:
        ParameterError: Something is not allowed; nothing was sent.
    """
    checked = check_all(params or {})
    tools = checked.pop("tools", ())
    return CompletionRequest(
        model=check_model(model),
        messages=to_messages(prompt, system=system),
        params=checked,
        tools=tuple(dict(tool) for tool in tools),  # type: ignore[attr-defined]  # checked
        extra=check_extra(extra),
    )


def check_model(model: object) -> str:
    """Return a model id; ids that are not listed are allowed (doc: Model ids).

    Raises:
        ParameterError: It is empty, or not a text.
    """
    if not isinstance(model, str) or not model.strip():
        raise ParameterError(
            f"model must be a model id such as {DEFAULT_MODEL!r}; got {shown(model)} "
            "(doc: Model ids).",
            param="model",
        )
    return check_text(model.strip(), param="model")


_OWN_FIELDS = frozenset({"model", "messages", "stream", "tools", *PARAM_NAMES})


def check_extra(extra: object) -> dict[str, Any]:
    """Return fields that the document does not show, by name.

    Raises:
        ParameterError: It is not a mapping, or names a field of the document.
    """
    if extra is None:
        return {}
    if not isinstance(extra, Mapping):
        raise ParameterError(
            f"extra must be a mapping of names to values, such as extra={{'name': 1}}; "
            f"got {shown(extra)}.",
            param="extra",
        )
    hidden = [name for name in extra if name in _OWN_FIELDS]
    if hidden:
        raise ParameterError(
            f"extra contains {hidden[0]!r}, which is a parameter of the service; give "
            "it by its own name, so that it is checked (doc: Request body).",
            param=hidden[0],
        )
    return dict(extra)

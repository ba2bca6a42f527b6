"""Servers of other makers, played: each answers with a list of models, then in turn."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.faults.server import RawServer


class Server:
    """A server of somebody's, which keeps the bodies that it is sent."""

    def __init__(self, raw: RawServer) -> None:
        self.raw = raw
        self.base_url = raw.base_url

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was asked of it, without requests for its models."""
        posts = (each for each in self.raw.requests if each.startswith(b"POST"))
        return [json.loads(each.partition(b"\r\n\r\n")[2]) for each in posts]


def written(body: Mapping[str, Any], status: int = 200) -> list[bytes]:
    """Return an answer as bytes."""
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
    return [head.encode() + b"Content-Length: %d\r\n\r\n" % len(text) + text]


def reply(text: str = "Yes.", *, tokens: int = 2, **message: Any) -> list[bytes]:  # noqa: ANN401 - JSON
    """Return a reply that ended by itself, with its reported tokens."""
    usage = {"prompt_tokens": 4, "completion_tokens": tokens}
    said = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "finish_reason": "stop", "message": said}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    return written({**head, "choices": [choice], "usage": usage})


def listed(*models: Mapping[str, Any]) -> list[bytes]:
    """Return a list of models."""
    return written({"object": "list", "data": list(models)})


NO_LIST = written({"error": {"message": "Not Found"}}, 404)


Serve = Callable[..., Server]

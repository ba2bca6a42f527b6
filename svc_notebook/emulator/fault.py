"""Refusals as the document writes them: a status and an error body.

What it is not: it decides nothing; `rules`, `keys` and `app` decide.

Rules for this file:
- only the two error types that the document shows are written, whatever the
  status, since the full list is not shown (doc: Errors);
- `param` is always null, as in the document's typical bodies (doc: Errors);
- a message names the parameter and what is allowed, and repeats nothing that
  the caller sent, so that a key sent in the wrong place is never repeated.
"""

import json
from dataclasses import dataclass

INVALID_REQUEST = "invalid_request_error"
AUTHENTICATION = "authentication_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A refusal (doc: Error body).

    Attributes:
        status: HTTP status, 400 to 429.
        message: What was wrong and what is allowed.
        type: `error.type`.
        code: `error.code`, null but for an invalid key.
    """

    status: int
    message: str
    type: str = INVALID_REQUEST
    code: str | None = None

    def to_bytes(self) -> bytes:
        """Write the error body."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": None,
            "code": self.code,
        }
        return write_json({"error": error})


class RuleError(Exception):
    """A rule of the document is broken; carried to where the fault is made."""


def write_json(value: object) -> bytes:
    """Write JSON as UTF-8 without needless blanks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")

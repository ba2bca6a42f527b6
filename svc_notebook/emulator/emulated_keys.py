"""Checks API keys: accepted, revoked and forbidden ones.

No message and no record contains a key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .http_values import FORBIDDEN, UNAUTHORIZED, RuleError

KEY = "svc-emulator"
REVOKED_KEY = "svc-emulator-revoked"
FORBIDDEN_KEY = "svc-emulator-forbidden"
HIDDEN = "[key]"
# from this length on, a key is not an ordinary word
_LONG_ENOUGH = 8


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one emulator.

    Revoked and unknown keys are answered with 401, forbidden ones with 403.
    """

    valid: tuple[str, ...] = field(default=(KEY,), repr=False)
    revoked: tuple[str, ...] = field(default=(REVOKED_KEY,), repr=False)
    forbidden: tuple[str, ...] = field(default=(FORBIDDEN_KEY,), repr=False)

    def hide(self, text: str, headers: Mapping[str, str]) -> str:
        """Replace every key in a text: the known keys, and the key of the request.

        A short key, as used in tests, may be a part of ordinary words, so it is only
        replaced as a whole word.
        """
        keys = {sent_key(headers), *self.valid, *self.revoked, *self.forbidden} - {""}
        for key in sorted(keys, key=len, reverse=True):  # one may begin with another
            if len(key) >= _LONG_ENOUGH:
                text = text.replace(key, HIDDEN)
            else:
                text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", HIDDEN, text)
        return text


_NO_KEY = "No API key was found. Send it in the header Authorization as Bearer API_KEY."
_WRONG_KEY = "The API key is invalid or was revoked. Create a key in the dashboard."
_NO_PERMISSION = "The API key has no permission for the requested resource."


def check_key(headers: Mapping[str, str], keys: Keys) -> None:
    """Refuse a request without a key, or with a revoked or unknown one (401)."""
    key = sent_key(headers)
    if not key:
        raise RuleError(_NO_KEY, UNAUTHORIZED)
    if key not in (*keys.valid, *keys.forbidden):
        raise RuleError(_WRONG_KEY, UNAUTHORIZED)


def check_permission(headers: Mapping[str, str], keys: Keys) -> None:
    """Refuse a key without the permission for the request (403)."""
    if sent_key(headers) in keys.forbidden:
        raise RuleError(_NO_PERMISSION, FORBIDDEN)


def sent_key(headers: Mapping[str, str]) -> str:
    """Read the key of a request; empty if it has none in the bearer scheme."""
    scheme, _, key = headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""

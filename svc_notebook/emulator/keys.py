"""Which keys this emulator knows, and what each may do.

What it is not: it does not read requests' bodies or paths.

Rules for this file: a key is never repeated, in no message and no record
(doc: Authentication). A key counts only in the header `Authorization` with the
bearer scheme.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .fault import AUTHENTICATION, Fault

KEY = "svc-emulator"
REVOKED_KEY = "svc-emulator-revoked"
FORBIDDEN_KEY = "svc-emulator-forbidden"
HIDDEN = "[key]"
# From so many letters on a key is no ordinary word.
_LONG_ENOUGH = 8

_NO_KEY = Fault(
    status=401,
    type=AUTHENTICATION,
    code="invalid_api_key",
    message=(
        "No API key was found. Send it in the header Authorization as Bearer API_KEY."
    ),
)
_WRONG_KEY = Fault(
    status=401,
    type=AUTHENTICATION,
    code="invalid_api_key",
    message="The API key is invalid or was revoked. Create a key in the dashboard.",
)
_NO_PERMISSION = Fault(
    status=403,
    type=AUTHENTICATION,
    message="The API key has no permission for the requested resource.",
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one emulator.

    Attributes:
        valid: Keys that are served.
        revoked: Keys that were deleted: 401, as for keys never created.
        forbidden: Valid keys without permission: 403.
    """

    valid: tuple[str, ...] = (KEY,)
    revoked: tuple[str, ...] = (REVOKED_KEY,)
    forbidden: tuple[str, ...] = (FORBIDDEN_KEY,)

    def fault_of(self, headers: Mapping[str, str]) -> Fault | None:
        """Say why a request with these headers (names in lower case) is refused."""
        key = sent_key(headers)
        if not key:
            return _NO_KEY
        if key in self.valid:
            return None
        return _NO_PERMISSION if key in self.forbidden else _WRONG_KEY

    def hide(self, text: str, headers: Mapping[str, str]) -> str:
        """Take every key out of a text: the known ones and the one sent."""
        return _without(
            text, (sent_key(headers), *self.valid, *self.revoked, *self.forbidden)
        )


def sent_key(headers: Mapping[str, str]) -> str:
    """Read the key of a request; empty if there is none in the bearer scheme."""
    scheme, _, key = headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _without(text: str, keys: Iterable[str]) -> str:
    """Replace keys, longest first, since one may begin with another.

    A short key, as people choose for tests, is replaced where it stands alone only:
    as part of other words it would make records unreadable and gives nothing away.
    """
    for key in sorted({key for key in keys if key}, key=len, reverse=True):
        if len(key) >= _LONG_ENOUGH:
            text = text.replace(key, HIDDEN)
        else:
            text = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", HIDDEN, text)
    return text

"""The page at the emulator's root: what this is, in words.

What it is not: no part of the service; its document shows one operation only.
"""

PAGE = """\
This is an emulator of a chat completion service, running on this machine only.

It answers POST /v1/chat/completions as the service's document says: it checks
keys, parameters and limits, and writes whole and streamed replies. Its texts come
from a very small language model that knows nothing; no reply is a real answer,
nothing leaves this machine, and nothing is paid for. Every response carries the
header x-svc-emulator: 1.
"""


def write_page() -> bytes:
    """Write the page as plain text."""
    return PAGE.encode()

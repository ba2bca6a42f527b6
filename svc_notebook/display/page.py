"""HTML that a model wrote, shown in a frame that it cannot leave.

The frame's sandbox allows nothing: no script, no form, no pop-up, no look at the
notebook, no leaving for another address by itself; its policy lets nothing be
fetched, since fetching tells its address to someone. Rules for this file: the text
reaches the page only as the escaped value of one attribute.
"""

import re
from html import escape

from .markup import to_text

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="'
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
    '"><meta name="color-scheme" content="light">'
)
# A policy does not hold back hints to connect, nor Chromium from connecting for a
# frame that it then refuses; a base makes others of the addresses that a reader sees.
# Under other names they are no elements of HTML.
_ACTING = re.compile(
    r"<(?=(?:link|meta|base|i?frame|frameset|fencedframe|object|embed|portal)[\s/>])",
    re.IGNORECASE,
)
_FRAME = (
    "display:block;width:100%;height:22em;box-sizing:border-box;resize:vertical;"
    "overflow:auto;border:1px solid #bdbdbd;border-radius:4px;background:#fff;"
    "color-scheme:light"
)
_SOURCE = "white-space:pre-wrap;overflow-wrap:anywhere"


def page_html(source: str) -> str:
    """Draw a page in a sandboxed frame, its source folded below.

    Args:
        source: HTML of unknown origin, a whole page or a piece of one.

    Returns:
        HTML; hosts that allow no frames show the folded source alone.
    """
    inside = "<!doctype html>" + _POLICY + _ACTING.sub("<x-", source)
    return (
        f'<iframe sandbox="" referrerpolicy="no-referrer" title="HTML of the reply" '
        f'srcdoc="{escape(inside)}" style="{_FRAME}"></iframe>'
        f"<details><summary>HTML source</summary>"
        f'<pre style="{_SOURCE}">{to_text(source)}</pre></details>'
    )

"""Show HTML that a model wrote (`--format html`) in a sandboxed frame."""

import re
from html import escape

from .escape import to_text, without_blank_lines
from .html_styles import PLAIN_CODE, WRAPPED

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="'
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
    '"><meta name="color-scheme" content="light">'
)
# The policy does not stop hints to connect, nor does it keep Chromium from connecting
# for a frame that it then refuses; a base element changes the addresses that a reader
# sees. So these elements are renamed, which makes them do nothing.
_ACTIVE_ELEMENTS = re.compile(
    r"<(?=(?:link|meta|base|i?frame|frameset|fencedframe|object|embed|portal)[\s/>])",
    re.IGNORECASE,
)
_FRAME = (
    "display:block;width:100%;height:22em;max-height:60em;box-sizing:border-box;resize:vertical;"
    "overflow:auto;border:1px solid #bdbdbd;border-radius:4px;background:#fff;"
    "color-scheme:light"
)


# Makes the frame as high as its content plus the border. Only a frame of the same
# origin can be measured, but scripts do not run in the sandbox. Links are not followed,
# since they would be opened with the reader's cookies.
_MEASURE = (
    "let d=this.contentDocument,n=d.documentElement.offsetHeight;"
    "if(n)this.style.height=n+2+'px';"
    "d.addEventListener('click',e=>e.preventDefault(),true)"
)


def page_html(source: str) -> str:
    """Return HTML of unknown origin in a sandboxed frame, with its source folded below.

    Hosts that do not allow frames show only the folded source.
    """
    inside = "<!doctype html>" + _POLICY + _ACTIVE_ELEMENTS.sub("<x-", source)
    return (
        f"<iframe sandbox=allow-same-origin referrerpolicy=no-referrer "
        f'title="HTML of the reply" onload="{_MEASURE}" '
        f'srcdoc="{without_blank_lines(escape(inside))}" style="{_FRAME}"></iframe>'
        f"<details><summary>HTML source</summary>"
        f'<pre style="{WRAPPED}">{PLAIN_CODE}{to_text(source)}</code></pre></details>'
    )

"""HTML that a model wrote (`--format html`), drawn in a sandboxed frame."""

import re
from html import escape

from .escape import to_text, without_blank_lines
from .html_styles import PLAIN_CODE, WRAPPED

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="'
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
    '"><meta name="color-scheme" content="light">'
)
# A policy does not stop hints to connect, nor Chromium from connecting for a frame that
# it then refuses; a base changes the addresses that a reader sees. Renamed, they do
# nothing.
_ACTING = re.compile(
    r"<(?=(?:link|meta|base|i?frame|frameset|fencedframe|object|embed|portal)[\s/>])",
    re.IGNORECASE,
)
_FRAME = (
    "display:block;width:100%;height:22em;max-height:60em;box-sizing:border-box;resize:vertical;"
    "overflow:auto;border:1px solid #bdbdbd;border-radius:4px;background:#fff;"
    "color-scheme:light"
)


# As high as its content, with the border. Only a frame of the same origin can be
# measured; the sandbox lets nothing in it run, and no link is followed: it would be
# opened with the reader's cookies.
_MEASURE = (
    "let d=this.contentDocument,n=d.documentElement.offsetHeight;"
    "if(n)this.style.height=n+2+'px';"
    "d.addEventListener('click',e=>e.preventDefault(),true)"
)


def page_html(source: str) -> str:
    """Draw HTML of unknown origin in a sandboxed frame, its source folded below.

    Hosts that allow no frames show the folded source alone.
    """
    inside = "<!doctype html>" + _POLICY + _ACTING.sub("<x-", source)
    return (
        f"<iframe sandbox=allow-same-origin referrerpolicy=no-referrer "
        f'title="HTML of the reply" onload="{_MEASURE}" '
        f'srcdoc="{without_blank_lines(escape(inside))}" style="{_FRAME}"></iframe>'
        f"<details><summary>HTML source</summary>"
        f'<pre style="{WRAPPED}">{PLAIN_CODE}{to_text(source)}</code></pre></details>'
    )

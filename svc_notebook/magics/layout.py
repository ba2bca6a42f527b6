"""`--format`: how a reply is drawn. The Completion keeps the text as it came.

Rules: pure; `text` and `json` are shown as they are, `json` set out if it is JSON,
and a note says so if it is not.
"""

import json
from dataclasses import replace

from svc_notebook.display.reply import Final


def lay_out(final: Final, layout: str | None) -> Final:
    """Return the final form drawn as asked for.

    Args:
        final: As Markdown.
        layout: markdown, text or json; None for markdown.
    """
    if layout in {None, "markdown"}:
        return final
    if layout == "text":
        return replace(final, is_verbatim=True)
    set_out = [_set_out(text) for text in final.texts]
    is_json = all(text is not None for text in set_out)
    texts = tuple(
        text if new is None else new
        for text, new in zip(final.texts, set_out, strict=True)
    )
    footer = final.footer if is_json else f"{final.footer} · not JSON"
    return replace(final, texts=texts, footer=footer, is_verbatim=True)


def _set_out(text: str) -> str | None:
    """Return JSON with its parts on lines of their own; None if it is none."""
    inner = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        value = json.loads(inner)
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, ensure_ascii=False, indent=2)

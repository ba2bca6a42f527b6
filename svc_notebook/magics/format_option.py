"""`--format`: shows a reply as Markdown, text, code, JSON or HTML."""

import json
import re
from dataclasses import replace

import msgspec

from svc_notebook.display.markdown import only_block, read_json
from svc_notebook.display.reply_display import Final, Mode

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def lay_out(final: Final, layout: str | None, mode: Mode) -> Final:
    """Return the final form in a layout of `options.LAYOUTS`; None means markdown."""
    if layout == "text":
        return replace(final, is_verbatim=True)
    if layout == "json":
        return _as_json(final)
    if layout == "html" and mode is not Mode.PLAIN:
        texts = tuple(only_block(text, {"html"}) for text in final.texts)
        return replace(final, texts=texts, is_page=True)
    return replace(final, is_verbatim=layout == "html")


def _as_json(final: Final) -> Final:
    formatted = [_json_of(text) for text in final.texts]
    texts = tuple(text for text, _ in formatted)
    final_with_notes = final.with_notes(*(reason for _, reason in formatted))
    return replace(final_with_notes, texts=texts, is_verbatim=True)


def _json_of(text: str) -> tuple[str, str]:
    """Return indented JSON and ""; or the text unchanged, and why it is not JSON."""
    try:
        read_json(text)
    except ValueError as error:
        return text, str(error)
    return _indented(only_block(text, {"json", ""})), ""


def _indented(source: str) -> str:
    """Indent valid JSON without changing numbers; escaped letters become letters."""
    return _STRING.sub(
        lambda string: json.dumps(json.loads(string[0]), ensure_ascii=False),
        msgspec.json.format(source, indent=2),
    )

"""`--format`: how a reply is drawn. The Completion keeps the text as it came.

Rules: pure; `text` is shown as it is; `json` is set out without a change to what it
says, and where it is no JSON the reason stands in the footer; `html` is drawn in a
sandboxed frame, or as text where there are none; `code` is drawn as Markdown (what
goes into the next cell is `next_cell`'s).
"""

import json
import re
from dataclasses import replace

from svc_notebook.display.fences import Fence, fences
from svc_notebook.display.reply import Final
from svc_notebook.display.stream import Mode

_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")
_SPACED = {":": ": "}
_INDENT = "  "


def lay_out(final: Final, layout: str | None, mode: Mode) -> Final:
    """Return the final form drawn as asked for.

    Args:
        final: As Markdown.
        layout: One of `options.LAYOUTS`; None for markdown.
        mode: Where it is drawn.
    """
    if layout == "text":
        return replace(final, is_verbatim=True)
    if layout == "json":
        return _as_json(final)
    if layout == "html" and mode is not Mode.PLAIN:
        texts = tuple(_block(text, {"html"}) for text in final.texts)
        return replace(final, texts=texts, is_page=True)
    return replace(final, is_verbatim=layout == "html")


def _as_json(final: Final) -> Final:
    found = [_json_of(text) for text in final.texts]
    problems = [f" · {why}" for _, why in found if why]
    return replace(
        final,
        texts=tuple(text for text, _ in found),
        footer=final.footer + "".join(problems),
        is_verbatim=True,
    )


def _json_of(text: str) -> tuple[str, str]:
    """Return JSON set out; else the text as it is, and why it is none."""
    source = _block(text, {"json", ""})
    try:
        json.loads(source, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        return text, f"not JSON: {error.msg}, line {error.lineno} column {error.colno}"
    except (ValueError, RecursionError) as error:
        return text, f"not JSON that can be read: {error}"
    return _set_out(source), ""


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _block(text: str, languages: set[str]) -> str:
    """Return the one block of these languages if there is just one; else the text."""
    found: list[Fence] = [each for each in fences(text) if each.language in languages]
    return found[0].code if len(found) == 1 else text


def _set_out(source: str) -> str:
    """Give each part of valid JSON a line of its own; numbers and keys stay."""
    out: list[str] = []
    depth = 0
    parts = _PART.findall(source)
    for part, follows in zip(parts, [*parts[1:], ""], strict=True):
        if part in _CLOSING:
            depth -= 1
            is_empty = out[-1] in _OPENING
            out.append(part if is_empty else f"\n{_INDENT * depth}{part}")
            continue
        depth += part in _OPENING
        out.append(_SPACED.get(part) or _readable(part))
        if part == "," or (part in _OPENING and follows not in _CLOSING):
            out.append("\n" + _INDENT * depth)
    return "".join(out)


def _readable(part: str) -> str:
    """Write letters for their escapes in a text."""
    is_text = part.startswith('"')
    return json.dumps(json.loads(part), ensure_ascii=False) if is_text else part

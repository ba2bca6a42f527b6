"""Notebooks as VS Code and Colab show them: which output they choose, and its page.

Written down from what their public sources and issue threads say; neither of them runs
here. Both load ipywidgets' style sheet when a widget is shown.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

# Of a theme: the class of the body, or Colab's theme, and the variables that it sets.
THEMES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "host_themes.json").read_text("utf-8")
)
VSCODE = [name for name, theme in THEMES.items() if "classes" in theme]
COLAB = [name for name, theme in THEMES.items() if "theme" in theme]
# VS Code shows one of an output's forms: the first of these that it has.
PREFERRED = (
    *("application/vnd.", "text/html", "text/latex", "text/markdown", "image/png"),
    *("image/svg+xml", "image/jpeg", "application/json", "text/plain"),
)
FALLBACKS = {"text/html", "text/markdown", "text/plain"}
# What ipywidgets' style sheet sets, whatever the host's theme is.
_WIDGETS = """
--jp-ui-font-color1:rgba(0,0,0,.8);--jp-ui-font-color2:rgba(0,0,0,.5);
--jp-content-font-color1:black;--jp-layout-color1:white;--jp-border-color2:#e0e0e0;
--jp-cell-editor-background:#f7f7f7;--jp-brand-color1:#2196f3;
--jp-error-color1:#f44336;--jp-ui-font-size1:13px;--jp-code-font-family:monospace;
"""
_VSCODE = """
body{background:var(--vscode-editor-background);color:var(--vscode-editor-foreground)}
a,a code{color:var(--vscode-textLink-foreground)}
code{color:var(--vscode-textPreformat-foreground);padding:1px 3px;border-radius:4px;
background-color:var(--vscode-textPreformat-background)}
pre code{padding:0}
blockquote{background:var(--vscode-textBlockQuote-background);
border-color:var(--vscode-textBlockQuote-border)}
table,thead,tr,th,td,tbody{border:none!important;border-collapse:collapse}
table{width:100%}table,th,tr{text-align:left!important}th,td{padding:4px 8px}
thead{background:rgba(130,130,130,.16)}
tr:nth-child(even){background:rgba(130,130,130,.08)}
"""
# Its widget manager gives one of JupyterLab's variables Colab's colour, not the ground.
_COLAB = """
:root{--jp-ui-font-color1:var(--colab-primary-text-color)}
html[theme=dark]{color-scheme:dark}
body{background:var(--colab-primary-surface-color);
color:var(--colab-primary-text-color)}
"""
_BARE = "body{background:light-dark(#fff,#121212)}:root{color-scheme:light dark}"
_PAGE = """<!doctype html><html lang="en" {theme}><head><title>Outputs</title><style>
{style}
body{{margin:0;padding:0 20px;font:13px sans-serif}}
.output{{padding:4px 8px;overflow-x:auto}}.text{{font-family:monospace;white-space:pre}}
</style></head><body {body}><main id="at">{outputs}</main></body></html>"""
_ESCAPES = re.compile(r"\x1b\[[\d;]*m")


@dataclass
class Shown:
    """An output of a cell: its forms by their kinds, or what was printed."""

    forms: dict[str, Any]
    stream: str = ""

    @property
    def kind(self) -> str:
        """Which form VS Code shows."""
        return next(
            kind
            for wanted in PREFERRED
            for kind in self.forms
            if kind.startswith(wanted)
        )

    def html(self) -> str:
        """Draw it; what the host draws itself, such as a widget, is named."""
        text = self.forms[self.kind]
        if self.kind == "text/html":
            return f'<div class="output">{text}</div>'
        if self.kind == "text/plain":
            return f'<div class="output text">{escape(text)}</div>'
        return f'<div class="output">({self.kind})</div>'


@dataclass
class HostNotebook:
    """The outputs of a notebook's cells, from the kernel's messages."""

    cells: list[list[Shown]] = field(default_factory=list)
    _named: dict[str, Shown] = field(default_factory=dict)

    def add_cell(self, messages: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Show what a cell published; an update may belong to a cell above."""
        outputs: list[Shown] = []
        self.cells.append(outputs)
        is_cleared = False
        for kind, content in messages:
            name = content.get("transient", {}).get("display_id", "")
            if kind == "update_display_data":
                if name in self._named:
                    self._named[name].forms = dict(content["data"])
            elif kind == "clear_output":
                is_cleared = True
            elif shown := _shown(kind, content):
                if is_cleared:
                    outputs.clear()
                is_cleared = False
                self._append(outputs, shown)
                self._named[name] = shown

    def _append(self, outputs: list[Shown], shown: Shown) -> None:
        if shown.stream and outputs and outputs[-1].stream == shown.stream:
            outputs[-1].forms["text/plain"] += shown.forms["text/plain"]
        else:
            outputs.append(shown)

    @property
    def outputs(self) -> list[Shown]:
        """All outputs, from top to bottom."""
        return [shown for cell in self.cells for shown in cell]


def _shown(kind: str, content: Mapping[str, Any]) -> Shown | None:
    if kind in {"display_data", "execute_result"}:
        return Shown(dict(content["data"]))
    if kind == "stream":
        return Shown({"text/plain": content["text"]}, stream=content["name"])
    if kind == "error":
        lines = "\n".join(content["traceback"])
        return Shown({"text/plain": _ESCAPES.sub("", lines)})
    return None


def throttled(
    messages: Sequence[tuple[str, dict[str, Any]]], every: int
) -> list[tuple[str, dict[str, Any]]]:
    """Leave out updates as a slow host does: of each output, the last one arrives."""
    names = [
        content["transient"]["display_id"] if kind == "update_display_data" else ""
        for kind, content in messages
    ]
    last = {name: at for at, name in enumerate(names)}
    n_updates: dict[str, int] = defaultdict(int)
    kept = []
    for at, (name, message) in enumerate(zip(names, messages, strict=True)):
        n_updates[name] += 1
        if not name or at == last[name] or n_updates[name] % every == 0:
            kept.append(message)
    return kept


def page_html(outputs: Iterable[Shown] = (), *, theme: str, css: str = "") -> str:
    """Draw outputs below each other on a page of a host; the page may be empty.

    `css` is a widget's. A theme that is not known is a page that sets no variable, in
    the colours that the browser prefers.
    """
    named = THEMES.get(theme, {})
    variables = named.get("variables", {}).items()
    values = "".join(f"{name}:{value};" for name, value in variables)
    values += _WIDGETS if named else ""
    style = _VSCODE if "classes" in named else _COLAB if named else _BARE
    classes = named.get("classes", "")
    return _PAGE.format(
        theme=f'theme="{named["theme"]}"' if "theme" in named else "",
        style=f":root{{{values}}}{style}{css}",
        body=f'class="{classes}" data-vscode-theme-kind="{classes}"' if classes else "",
        outputs="".join(shown.html() for shown in outputs),
    )

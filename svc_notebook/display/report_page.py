"""A report as one file: an HTML page that loads and runs nothing, or Markdown.

A report has sections, and a section has parts; each part can write itself as HTML and
as Markdown. Texts of models and users are never markup in either.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from .escape import to_text, visible
from .html_styles import details_html, verbatim_html
from .interval_chart import IntervalChart
from .text_table import ComparisonTable

_MOST_TEXT_CHARS = 8_000  # of one prompt
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_STYLE = """\
:root{color-scheme:light dark;--page:#fff;--ink:#1c1c1c;--quiet:#595959;--line:#ccc;
--soft:#f4f6f9;--warn:#9a4a00;--link:#0b57a4}
@media screen and (prefers-color-scheme:dark){:root{--page:#16181b;--ink:#e6e6e6;
--quiet:#a3a3a3;--line:#454a50;--soft:#20242a;--warn:#f0a868;--link:#7db8f0}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);overflow-wrap:break-word;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Noto Sans Thai",
sans-serif}
main{max-width:58rem;margin:0 auto;padding:1.5rem 1.25rem 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:.2em 0 .4em}
h2{font-size:1.15rem;margin:2.2em 0 .5em;padding-bottom:.2em;
border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2em 0 .3em}
main>section:first-of-type{background:var(--soft);border-left:4px solid #3b82c4;
padding:.9em 1.1em;margin:1em 0;border-radius:0 4px 4px 0}
main>section:first-of-type h2{margin:0 0 .3em;border:0;padding:0;font-size:.85rem;
font-weight:600;color:var(--quiet)}
.lead{font-size:1.15rem;font-weight:600}
p{margin:.4em 0}ul{margin:.4em 0;padding-left:1.3em}li{margin:.3em 0}
a{color:var(--link)}pre{tab-size:4}
.warn{color:var(--warn);font-weight:600}.quiet{color:var(--quiet);font-size:.9em}
.wide{overflow-x:auto;margin:.5em 0}
.wide table{border-collapse:collapse;font-size:.9em}
.wide th,.wide td{text-align:left;vertical-align:top;padding:.3em .9em .3em 0;
border-bottom:1px solid var(--line)}
.wide td{font-variant-numeric:tabular-nums}
.facts th{font-weight:400;color:var(--quiet);white-space:nowrap}
.facts td{overflow-wrap:anywhere}
.box{background:var(--soft);border:1px solid var(--line);border-radius:4px;
padding:.6em .8em;margin:.3em 0 .8em}
@media(max-width:36rem){main{padding:1rem .8rem 2rem}.facts,.facts tbody,.facts tr,
.facts th,.facts td{display:block}.facts th{border:0;padding-bottom:0}}
@page{margin:16mm 14mm}
@media print{:root{color-scheme:light}body{font-size:10pt}
main{max-width:none;padding:0}h2,h3{break-after:avoid}
tr,li,.box,main>section:first-of-type,tbody:has(>tr>th[scope=rowgroup]){
break-inside:avoid}tr:has(>th[scope=rowgroup]){break-after:avoid}
thead{display:table-header-group}
.wide,div{overflow:visible!important}.wide table{width:100%;font-size:8.5pt}
table{min-width:0!important}th,td{overflow-wrap:anywhere}
details::details-content{content-visibility:visible;display:block;block-size:auto}
.screen{display:none}}"""


class ReportPart(Protocol):
    """A part of a section."""

    def html(self) -> str:
        """Return the part as HTML."""

    def markdown(self) -> str:
        """Return the part as Markdown."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences, each as a paragraph or as an item of a list."""

    lines: Sequence[str]
    is_list: bool = False
    style: str = ""  # `lead`, `warn` or `quiet`

    def html(self) -> str:
        """Return paragraphs, or a list."""
        mark = f' class="{self.style}"' if self.style else ""
        tag = "li" if self.is_list else "p"
        body = "".join(
            f"<{tag}{mark}>{_sentence_html(line)}</{tag}>" for line in self.lines
        )
        return f"<ul>{body}</ul>" if self.is_list and body else body

    def markdown(self) -> str:
        """Return paragraphs, or a list."""
        lines = [line for line in map(to_markdown, self.lines) if line]
        if self.is_list:
            return "\n".join(f"- {line}" for line in lines)
        stars = "**" if self.style in {"lead", "warn"} else ""
        return "\n\n".join(f"{stars}{line}{stars}" for line in lines)


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """Facts about a run: labels, each with a text; empty texts are left out."""

    lines: Sequence[tuple[str, str]]

    def html(self) -> str:
        """Return a table of two columns."""
        rows = "".join(
            f"<tr><th scope=row>{to_text(label)}</th><td>{to_text(text)}</td></tr>"
            for label, text in self.lines
            if text
        )
        return (
            f'<div class=wide><table class="facts"><tbody>{rows}</tbody></table></div>'
        )

    def markdown(self) -> str:
        """Return a list."""
        return "\n".join(
            f"- {to_markdown(label)}: {to_markdown(text)}"
            for label, text in self.lines
            if text
        )


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A small table of texts."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        """Return a table whose head is repeated on each printed page."""
        heads = "".join(f"<th scope=col>{to_text(head)}</th>" for head in self.heads)
        rows = "".join(
            f"<tr>{''.join(f'<td>{_sentence_html(text)}</td>' for text in row)}</tr>"
            for row in self.rows
        )
        return (
            f"<div class=wide><table><thead><tr>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )

    def markdown(self) -> str:
        """Return a table with pipes."""
        rows = [self.heads, ["---"] * len(self.heads), *self.rows]
        written = [
            [text if n == 1 else to_markdown(text) for text in row]
            for n, row in enumerate(rows)
        ]
        return "\n".join(f"| {' | '.join(row)} |" for row in written)


@dataclass(frozen=True, slots=True)
class Drawings:
    """Charts of values with their intervals."""

    charts: Sequence[IntervalChart]

    def html(self) -> str:
        """Return the charts as HTML."""
        return "".join(chart.html() for chart in self.charts)

    def markdown(self) -> str:
        """Return the charts in characters, as code."""
        return "\n\n".join(_as_code(chart.text()) for chart in self.charts)


@dataclass(frozen=True, slots=True)
class ReportReplies:
    """A heading, and replies below it, each alone or several side by side."""

    heading: str
    table: ComparisonTable

    def html(self) -> str:
        """Return them as a cell shows them, with Markdown rendered."""
        head = f"<h3>{to_text(self.heading)}</h3>" if self.heading else ""
        return head + self.table.html()

    def markdown(self) -> str:
        """Return them as written, in code, so that nothing in them is Markdown."""
        head = f"### {to_markdown(self.heading)}\n\n" if self.heading else ""
        return f"{head}{_as_code(repr(self.table))}"


@dataclass(frozen=True, slots=True)
class Folded:
    """Parts below a line that opens them; only on a screen, since they are details."""

    title: str
    parts: Sequence[ReportPart]

    def html(self) -> str:
        """Return the line, with the parts folded below it."""
        body = "".join(part.html() for part in self.parts)
        return f"<div class=screen>{details_html(self.title, body)}</div>"

    def markdown(self) -> str:
        """Say what is left out, because Markdown cannot fold."""
        return f"{to_markdown(self.title)}; a report that ends with .html has them."


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A name, and below it a text as it was sent."""

    name: str
    text: str

    def html(self) -> str:
        """Return the text with its lines and spaces."""
        body = f"<div class=box>{verbatim_html(to_text(self._text()))}</div>"
        return f"<h3>{to_text(self.name)}</h3>{body}"

    def markdown(self) -> str:
        """Return the text as code."""
        return f"### {to_markdown(self.name)}\n\n{_as_code(self._text())}"

    def _text(self) -> str:
        n_more = len(self.text) - _MOST_TEXT_CHARS
        if n_more <= 0:
            return self.text
        return f"{self.text[:_MOST_TEXT_CHARS]}... ({n_more:,} more characters)"


@dataclass(frozen=True, slots=True)
class FileInside:
    """A file that is embedded in the page and can be saved from it."""

    name: str
    kind: str  # such as text/csv
    content: bytes

    def html(self) -> str:
        """Return a link that saves the file."""
        data = b64encode(self.content).decode()
        size = f"{max(len(self.content) // 1000, 1):,} kB"
        return (
            f'<p class=screen><a download="{escape(visible(self.name))}" '
            f'href="data:{self.kind};base64,{data}">{to_text(self.name)}</a> '
            f"({size}, inside this page)</p>"
        )

    def markdown(self) -> str:
        """Return the file's name; Markdown cannot embed files."""
        return to_markdown(self.name)


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A heading, and the parts below it."""

    title: str
    parts: Sequence[ReportPart]

    def html(self) -> str:
        """Return the section."""
        body = "".join(part.html() for part in self.parts)
        return f"<section><h2>{to_text(self.title)}</h2>{body}</section>"

    def markdown(self) -> str:
        """Return the section."""
        parts = [f"## {to_markdown(self.title)}"]
        parts += [part.markdown() for part in self.parts]
        return "\n\n".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A report: its title, a line below it, and its sections, the answer first."""

    title: str
    subtitle: str
    sections: Sequence[ReportSection]

    def html(self) -> str:
        """Return a whole page, which loads nothing and runs nothing."""
        body = "\n".join(section.html() for section in self.sections)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="referrer" content="no-referrer">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(visible(_in_a_line(self.title)))}</title>\n"
            f"<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<main>\n"
            f"<h1>{to_text(self.title)}</h1>\n"
            f"<p class=quiet>{to_text(self.subtitle)}</p>\n"
            f"{body}\n"
            "</main>\n</body>\n</html>\n"
        )

    def markdown(self) -> str:
        """Return the report as Markdown, with all texts as they were written."""
        parts = [f"# {to_markdown(self.title)}", to_markdown(self.subtitle)]
        parts += [section.markdown() for section in self.sections]
        return "\n\n".join(filter(None, parts)) + "\n"


# all signs with a meaning in Markdown, or on a site that renders it
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~$&!@^])")
_FIRST = re.compile(r"^([-+=:]|\d+(?=[.)](?:\s|$)))")
_LINKS = re.compile(r"(?<=\w):(?=//)|(?<=\bwww)\.", re.IGNORECASE)


def to_markdown(text: str) -> str:
    """Write a text as one line of Markdown, escaped so that nothing is markup."""
    plain = _SIGNS.sub(r"\\\1", visible(_in_a_line(text)))
    plain = _LINKS.sub(r"\\\g<0>", plain)
    first = _FIRST.match(plain)
    if first is None:
        return plain
    # the backslash goes before a sign such as "-", but after the digits of "1."
    position = first.end() if first[0][0].isdigit() else 0
    return f"{plain[:position]}\\{plain[position:]}"


# in "93 % (87 to 97)", a line must not break before "%" or within the interval
_UNBREAKABLE = re.compile(r"(?<=\d) (?=%)|(?<=\d) (?=to -?\d)|(?<=\d to) (?=-?\d)")


def _sentence_html(text: str) -> str:
    """Escape a text for HTML, with no-break spaces within numbers and intervals."""
    return _UNBREAKABLE.sub("\N{NO-BREAK SPACE}", to_text(text))


def _as_code(text: str) -> str:
    """Indent every line, so that Markdown shows the text as code."""
    return "\n".join(f"    {line}" for line in visible(text).splitlines())


def _in_a_line(text: str) -> str:
    return " ".join(text.split())

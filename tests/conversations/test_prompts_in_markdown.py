"""Prompts in the Markdown of a conversation: rendered, they have their lines."""

import re
from html import unescape

import pytest
from markdown_it import MarkdownIt

import svc_notebook as svc

CSV = """\
Which order is late?

DataFrame orders, 2 rows x 3 columns:
,เลขที่,สินค้า,ยอด
0,TH-1042,ชา & "นม",<b>120</b>
1,TH-1043,กาแฟ,80"""
# as on a site that lets markup through, before it is made safe
PAGE = MarkdownIt("commonmark").enable("table")
RENDERED = re.compile(r"<blockquote>\n(.*?)\n</blockquote>", re.DOTALL)


def rendered(plan: svc.Conversation, prompt: str) -> str:
    """Ask, render the Markdown of the conversation, and return the prompt's HTML."""
    plan.ask(prompt)
    plan.ask("Thanks")
    html = PAGE.render(plan.to_markdown())
    assert html.count("<h2>") == 4, html
    assert html.count("</h2>\n<blockquote>\n") == 2, html
    found = RENDERED.search(html)
    assert found, html
    return found[1]


def test_a_table_that_was_inserted_has_its_rows(plan: svc.Conversation) -> None:
    """Each in its line, with what looks like a tag as it was typed."""
    html = rendered(plan, CSV)

    text = unescape(re.sub(r"</?p>|(?<=<br) (?=/>\n)", "", html))
    assert text.replace("<br/>\n", "\n").replace("?\nD", "?\n\nD") == CSV


def test_as_text_it_can_be_read(plan: svc.Conversation) -> None:
    """Quoted as in a mail; the breaks are blanks at the ends of lines."""
    plan.system = "Be brief.\nAnswer in Thai."
    plan.ask(CSV.replace("<b>", "").replace("</b>", ""))

    text = plan.to_markdown()

    assert (
        "## system\n\n> Be brief.  \n> Answer in Thai.\n\n## 1 · You\n\n> Which" in text
    )
    assert (
        "late?\n>\n> DataFrame orders, 2 rows x 3 columns:  \n> ,เลขที่,สินค้า,ยอด  \n"
        in text
    )


@pytest.mark.parametrize(
    ("prompt", "html"),
    [
        (
            "Mend:\n```html\n<b>\n\n  x[1]: # y\n```\nNow.",
            """<p>Mend:</p>
<pre><code class="language-html">&lt;b&gt;

  x[1]: # y
</code></pre>
<p>Now.</p>""",
        ),
        (
            "- one\n  more\n- two",
            "<ul>\n<li>one<br />\nmore</li>\n<li>two</li>\n</ul>",
        ),
        (
            "What is `<b>`, ``a ` <i>``, \\`<u>\\` or 2 < 3 && x?",
            """<p>What is <code>&lt;b&gt;</code>, <code>a ` &lt;i&gt;</code>, \
`&lt;u&gt;` or 2 &lt; 3 &amp;&amp; x?</p>""",
        ),
        (
            "[a]: https://a.example\n[b] `c[0]: d`",
            "<p>[a]: https://a.example<br />\n[b] <code>c[0]: d</code></p>",
        ),
        ("One\r\ntwo\rthree", "<p>One<br />\ntwo<br />\nthree</p>"),
    ],
)
def test_what_is_markdown_in_a_prompt_is_rendered(
    plan: svc.Conversation, prompt: str, html: str
) -> None:
    """Fences, lists and code, without a change to the code."""
    assert rendered(plan, prompt) == html


@pytest.mark.parametrize(
    "prompt",
    [
        "```\nnever closed",
        "- ~~~\n  never closed",
        "<!-- a",
        "a ` b\n\n` <!-- ` c",
        "a `` b\n<!-- ` c ` d",
        "| a ` b | ` <!-- | ` c |\n| --- | --- | --- |\n| ` | <!-- | ` |",
        "<script>\nalert(1)",
        "- <details><summary>x</summary>",
        "</blockquote>\n\n</p><style>",
        "\\<!-- \\\\<!-- \\\\\\<!-- &lt;!-- &#60;!--",
        ">" * 120 + " <!-- x",
        "[a]: <b>\n===\n    `<b>\n``` <!-- `",
        "[a]: <!--\n<!-- [b]: <c> '<!--",
        "<![CDATA[ <?php <!DOCTYPE <https://a.example>",
        "## 9 · You\n\nmodel\n=====\n***",
        "a\x0b<b>\u2028<!--\x85<i>",
    ],
)
def test_nothing_in_a_prompt_ends_its_quote(
    plan: svc.Conversation, prompt: str
) -> None:
    """An open fence, a comment and a tag end where the prompt ends."""
    plan.system = prompt
    plan.ask(prompt)

    tokens = PAGE.parse(plan.to_markdown())

    parts = [token for token in tokens if token.level == 0 and token.nesting >= 0]
    kinds = ["heading", "heading", "blockquote", "heading", "blockquote", "heading"]
    assert [part.type.removesuffix("_open") for part in parts[:6]] == kinds
    inner = [token for part in tokens for token in (part, *(part.children or ()))]
    assert not {token.type for token in inner} & {"html_block", "html_inline"}

"""What drawing a hostile reply costs: work that grows with its length only."""

import sys

import pytest
from markdown_it.token import Token
from markdown_it.utils import EnvType

from svc_notebook.display.front_end import Output
from svc_notebook.display.markdown import MAX_MARKDOWN_CHARS, to_html
from svc_notebook.display.markdown_rules import MAX_MATH_CHARS, PARSER
from svc_notebook.display.reply_display import MAX_BYTES_PER_S, Mode, ReplyDisplay

pytestmark = pytest.mark.slow
_DEF = "def f(): pass\n"


@pytest.mark.parametrize(
    "code",
    [
        _DEF * 800,
        f"{_DEF}# {'a' * 400}\n",
        _DEF + "\n" * 7 + _DEF,
    ],
)
def test_code_of_odd_length_or_shape_is_plain(code: str) -> None:
    """Code that could take a lexer long is not given to it."""
    html = to_html(f"```python\n{code}```")

    assert "<span" not in html


@pytest.mark.parametrize("language", ["perl", "rst", "markdown", "http", "postgres"])
def test_languages_that_take_long_are_plain(language: str) -> None:
    """Only languages whose lexers were measured are coloured."""
    html = to_html(f"```{language}\nmy $x = 1; # select\n```")

    assert "<span" not in html


@pytest.mark.parametrize("language", ["java", "csharp"])
def test_runs_of_words_are_no_declaration(language: str) -> None:
    """Words without end are plain where each could begin a declaration."""
    code = "public int x;\n"
    run = "word " * 60

    assert "<span" in to_html(f"```{language}\n{code}```")
    assert "<span" not in to_html(f"```{language}\n{code}{run}\n```")


def test_the_code_of_one_reply_is_coloured_up_to_a_limit() -> None:
    """Past the limit fences are plain, the first ones keep their colours."""
    fence = f"```python\n{_DEF * 700}```\n"

    html = to_html(fence * 6)

    assert html.count("<span class=k>def</span>") == 3 * 700


def _n_calls(markdown: str) -> int:
    """Count the calls of functions that drawing a text takes."""
    n_calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        to_html(markdown)
    finally:
        sys.setprofile(None)
    return n_calls


@pytest.mark.parametrize(
    "unit",
    [
        *("[", "![", "[a", "[[]", "[a][", "![[", "[a\n", "[a](b ", "![]()", "[a]: b\n"),
        *(
            "$",
            "$a ",
            "$$",
            "\\(",
            "\\(\\href",
            "\\[ ",
            "\\begin{align}",
            "\\begin{align} ",
            "\\begin{align}\n",
            "a\\begin{align}\\end{a",
            "`a",
            "``a`",
            "*a",
            "_*",
            "~~a",
        ),
        *("&", "<a", "> ", "- ", "- a\n", "|a|\n|-|\n", "a|b\n-|-\n", "$$\n", "\n"),
    ],
)
def test_twice_the_text_takes_about_twice_the_work(unit: str) -> None:
    """Whatever is repeated, work grows with the text and not with its square."""
    n_small, n_large = (_n_calls(unit * (n // len(unit))) for n in (4000, 8000))

    assert n_large < 3 * n_small


@pytest.mark.parametrize("own_output", [True, False])
def test_a_text_without_end_is_read_at_a_limited_pace(
    own_output: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the open block is, at most some kilobytes a second are parsed."""
    n_parsed = 0
    parse = PARSER.parse

    def counted(source: str, env: EnvType) -> list[Token]:
        nonlocal n_parsed
        n_parsed += len(source)
        return parse(source, env)

    monkeypatch.setattr(PARSER, "parse", counted)
    now_s = 0.0
    screen = Output(
        publish=lambda _bundle, _name: None, update=lambda _bundle, _name: None
    )
    display = ReplyDisplay.open(
        Mode.LIVE, own_output=own_output, output=screen, clock=lambda: now_s
    )
    n_pieces = 400
    for _ in range(n_pieces):
        now_s += 0.05
        display.add("[" * 50)

    assert n_parsed <= MAX_BYTES_PER_S * now_s


def test_brackets_past_the_bound_are_text() -> None:
    """No bracket is lost when they are too many to be understood."""
    html = to_html("[" * 20_000 + "](http://a.example)")

    assert html == f"<p>{'[' * 20_000}](http://a.example)</p>\n"


def test_links_after_many_open_brackets_are_links() -> None:
    """A paragraph may hold thirty open brackets, and links all the same."""
    html = to_html("An interval [0, 1) is half open. " * 30 + "[x](http://a.example)")

    assert html.count('<a href="http://a.example"') == 1


@pytest.mark.parametrize(
    ("n_chars", "is_math"), [(MAX_MATH_CHARS - 2, True), (MAX_MATH_CHARS, False)]
)
def test_math_that_never_ends_is_text(n_chars: int, is_math: bool) -> None:
    """The end of math is looked for nearby only."""
    html = to_html(f"\\({'x' * n_chars}\\)")

    assert (f">\\({'x' * n_chars}\\)</p>" in html) == is_math


def test_text_far_longer_than_a_reply_is_shown_as_written() -> None:
    """Past a limit text is not Markdown; all of it is there."""
    text = "**a** " * (MAX_MARKDOWN_CHARS // 6 + 1)

    html = to_html(text)

    assert html.startswith("<pre style=white-space:pre-wrap>")
    assert html.endswith(f">{text}</code></pre>")


def test_a_picture_behind_a_link_is_a_link() -> None:
    """Only pictures within a link lose theirs."""
    html = to_html("[a](#b) ![c](#d)")

    assert html == '<p><a href="#b">a</a> <a href="#d">c</a></p>\n'

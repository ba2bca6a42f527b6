"""Finished blocks and the tail of text that grows; fenced code."""

from html.parser import HTMLParser
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_notebook.display.growing_markdown import (
    Block,
    Blocks,
    block_html,
    tail_html,
)
from svc_notebook.display.markdown import Fence, fences, plain_text, to_html

_LINES = (
    *("# h", "para one", "", "- a", "  more", "  - nested", "1. x", "10) z", "\t- t"),
    *("```py", "```", "  ```", "~~~", "    ind", "|a|b|", "|-|-|", "> q", "===", "---"),
    *("***", "* * *", "$$", "   $$", "$$x$$ is", "\\[", "\\]", "text **b**"),
    *("\\begin{align}", "x &= 1 \\\\", "\\end{align}", "\\end{align} is", "$$ is"),
    "[x](http://a.example)",
)
_texts = st.lists(
    st.tuples(st.sampled_from(_LINES), st.sampled_from(["\n", "\n", "\r\n", "\r", ""])),
    max_size=14,
).map(lambda lines: "".join(line + end for line, end in lines))
_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def _split(text: str, sizes: list[int]) -> list[str]:
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces


def _fed(blocks: Blocks, pieces: list[str]) -> list[str]:
    """Feed the pieces; give the source and Markdown of blocks and tail."""
    taken: list[Block] = []
    for piece in pieces:
        blocks.feed(piece)
        taken += blocks.take()
    return [block.markdown for block in taken]


@pytest.mark.slow
@given(_texts, _sizes)
def test_finished_blocks_never_change(text: str, sizes: list[int]) -> None:
    """Blocks drawn one by one, split anywhere, are what the whole text draws."""
    blocks = Blocks(max_tail_bytes=10**9)

    drawn = [to_html(markdown) for markdown in _fed(blocks, _split(text, sizes))]

    whole = text.removesuffix("\r")
    assert "".join(drawn) + to_html(blocks.tail.markdown) == to_html(whole)


@pytest.mark.slow
@given(_texts, _sizes, st.integers(1, 60))
def test_no_text_is_lost(text: str, sizes: list[int], max_tail_bytes: int) -> None:
    """Sources and tail together are the text, however short tails are kept."""
    blocks = Blocks(max_tail_bytes=max_tail_bytes)
    sources: list[str] = []

    for piece in _split(text, sizes):
        blocks.feed(piece)
        sources += [block.source for block in blocks.take()]

    whole = text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n")
    assert "".join(sources) + blocks.tail.source == whole


@pytest.mark.slow
@given(_texts, _sizes, st.integers(1, 60))
def test_tails_stay_short(text: str, sizes: list[int], max_tail_bytes: int) -> None:
    """After taking, no tail is longer than its limit, or than one character."""
    blocks = Blocks(max_tail_bytes=max_tail_bytes)

    _fed(blocks, _split(text, sizes))

    tail = blocks.tail.source
    assert len(tail) == 1 or len(tail.encode()) <= max_tail_bytes


_CLUSTERS = (
    *(
        "น้ำ",
        "ที่",
        "ผู้",
        "เ",
        "ก",
        "กำ",
        "ນຳ້",
        "é",
        "e\u0301\u0323",
        "क्षि",
        "ガ",
        "ｶﾞ",
        "각",
    ),
    *(
        "👩\u200d👩\u200d👧\u200d👦",
        "👍🏽",
        "🇹🇭",
        "🇩🇪",
        "❤️",
        "1️⃣",
        "🏴\U000e0067\U000e0062\U000e007f",
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("opener", ["", "> ", "- ", "```\n", "|a|\n|-|\n|", "# "])
@given(
    clusters=st.lists(st.sampled_from(_CLUSTERS), max_size=80),
    sizes=_sizes,
    max_tail_bytes=st.integers(40, 448),
)
def test_no_letter_is_parted_from_its_marks(
    opener: str, clusters: list[str], sizes: list[int], max_tail_bytes: int
) -> None:
    """Without blanks, text is cut between letters, emoji and flags, never in one."""
    blocks = Blocks(max_tail_bytes=max_tail_bytes)
    text = opener + "".join(clusters)
    starts = set(accumulate(map(len, clusters), initial=len(opener)))
    cuts: list[int] = []

    for piece in _split(text, sizes):
        blocks.feed(piece)
        cuts += [len(block.source) for block in blocks.take()]
        assert len(blocks.tail.source.encode()) <= max_tail_bytes

    assert set(accumulate(cuts)) <= {*starts, *range(len(opener) + 1)}


def test_thai_without_blanks_is_whole_at_every_cut() -> None:
    """Fed by the character, no block and no tail ever begins with a vowel or a tone."""
    blocks, begins = Blocks(max_tail_bytes=448), set()

    for char in "ผู้ที่นี่กำลังทำน้ำแข็งให้เพื่อนๆ" * 40:
        blocks.feed(char)
        begins |= {block.source[0] for block in blocks.take()}
        begins.add(blocks.tail.source[0])

    assert not begins & set("ัำิีึืุู็่้๊๋์")


def test_marks_without_end_are_cut() -> None:
    """A hostile run of marks on one letter does not make the tail grow."""
    blocks = Blocks(max_tail_bytes=100)

    _fed(blocks, ["a", *["\u0301"] * 5_000])

    assert len(blocks.tail.source.encode()) <= 100


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("# Title\n", ["# Title\n"]),
        ("One.\n", []),
        ("One.\n\n", ["One.\n\n"]),
        ("One.\n\nTw", ["One.\n\n"]),
        ("- a\n\n", []),
        ("- a\n\nNext\n", ["- a\n\n"]),
        ("- a\n\n1", []),
        ("```\na\n\nb\n", []),
        ("```\na\n```\n", ["```\na\n```\n"]),
        ("|a|\n|-|\n|1|\n", []),
        ("|a|\n|-|\n|1|\n\n", ["|a|\n|-|\n|1|\n\n"]),
        ("    code\n\n", []),
    ],
)
def test_blocks_finish_when_nothing_can_change_them(
    text: str, finished: list[str]
) -> None:
    """A block is given once, as soon as its last line settles it."""
    got = _fed(Blocks(), [text])

    assert got == finished


def test_long_code_is_cut_between_lines() -> None:
    """The rest of a long fence is a fence of the same language."""
    blocks = Blocks(max_tail_bytes=30)

    got = _fed(blocks, ["```python\n", "first = 1\n", "second = 2\n", "third"])

    assert (got, blocks.tail.markdown) == (
        ["```python\nfirst = 1\nsecond = 2\n"],
        "```python\nthird",
    )


def test_code_in_a_list_stays_code_when_cut() -> None:
    """The rest of a long fence in a list is in the same item, up to its end."""
    blocks = Blocks(max_tail_bytes=29)

    got = _fed(
        blocks,
        [
            "1. Do:\n   ```sh\n   ls -l\n   pw",
            "d\n   whoami\n",
            "   ```\n",
            "Done.\n\n",
        ],
    )

    assert got == [
        "1. Do:\n   ```sh\n   ls -l\n",
        "1. ___\n   ```sh\n   pwd\n   whoami\n   ```\nDone.\n\n",
    ]


class _Levels(HTMLParser):
    """Reads in which lists each word is; `uo` is an ordered list in another."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lists, self.words = "", list[tuple[str, str]]()
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Open a list, in which there are items only."""
        del attrs
        assert self._open[-1:] not in (["ul"], ["ol"]) or tag == "li"
        self._open += [tag] if tag not in ("br", "hr") else []
        self.lists += tag[0] if tag in ("ul", "ol") else ""

    def handle_endtag(self, tag: str) -> None:
        """Close a list."""
        assert self._open.pop() == tag
        self.lists = self.lists[:-1] if tag in ("ul", "ol") else self.lists

    def handle_data(self, data: str) -> None:
        """Note the words; none are in a list outside its items."""
        assert not data.strip() or self._open[-1:] not in (["ul"], ["ol"])
        self.words += [(word, self.lists) for word in data.split()]


def _assert_nests_as_the_whole(text: str, max_tail_bytes: int, step: int) -> None:
    """Feed the text; compare what is drawn with the whole's HTML at each prefix."""
    blocks = Blocks(max_tail_bytes=max_tail_bytes)
    drawn = ""
    for at in range(0, len(text), step):
        blocks.feed(text[at : at + step])
        drawn += "".join(map(block_html, blocks.take()))
        shown = _Levels(drawn + tail_html(blocks.tail)).words
        assert shown == _Levels(to_html(text[: at + step])).words


def test_nested_points_keep_their_level_when_cut() -> None:
    """Points within one long point are drawn within it while they grow."""
    text = f"- {'Long words. ' * 40}\n" + "".join(
        f"  - nested {n} is here.\n" for n in range(20)
    )

    _assert_nests_as_the_whole(text + "- top\n\nDone.\n", 448, 7)


def test_a_cut_list_goes_on_counting() -> None:
    """The point after cut nested ones has its number, without an empty point."""
    blocks = Blocks(max_tail_bytes=30)

    _fed(blocks, ["4. four\n   - nested words\n   - more\n", "5. five"])

    assert tail_html(blocks.tail).replace("\n", "") == (
        '<ol start="4"><li style="list-style:none"><ul><li>more</li></ul></li>'
        "<li>five</li></ol>"
    )


@st.composite
def _list_texts(draw: st.DrawFn) -> str:
    """Write a list of up to three levels, whose points have several words."""
    kinds = draw(st.lists(st.sampled_from(["- ", "1. "]), min_size=3, max_size=3))
    depth, lines = 0, list[str]()
    for n in range(draw(st.integers(3, 9))):
        depth = draw(st.integers(0, min(depth + 1, 2))) if n else 0
        indent = " " * sum(map(len, kinds[:depth]))
        words = " ".join(["word"] * draw(st.integers(1, 12)))
        lines.append(f"{indent}{kinds[depth]}p{n} {words}\n")
    return "".join(lines)


@pytest.mark.slow
@settings(max_examples=60)
@given(_list_texts(), st.integers(30, 90), st.integers(1, 9))
def test_lists_nest_alike_however_they_are_cut(
    text: str, max_tail_bytes: int, step: int
) -> None:
    """Each word is in the same lists as in the whole text, at each prefix."""
    _assert_nests_as_the_whole(text, max_tail_bytes, step)


def test_long_tables_keep_their_head() -> None:
    """The rest of a long table is drawn under the same head."""
    blocks = Blocks(max_tail_bytes=24)

    got = _fed(blocks, ["|a|b|\n|-|-|\n", "|1|2|\n|3|4|\n|5|"])

    assert (got, blocks.tail.markdown) == (
        ["|a|b|\n|-|-|\n|1|2|\n|3|4|\n"],
        "|a|b|\n|-|-|\n|5|",
    )


def test_finds_blocks_wherever_they_stand() -> None:
    """Blocks in lists and quotations count, in order; inline code does not."""
    reply = (
        "Use `x`:\n\n```Python title\nprint('ก')\n```\n\n"
        "- then\n\n  ~~~sh\n  ls\n  ~~~\n"
        "\n> ```\n> a\n> ```\n"
    )

    found = fences(reply)

    assert found == (
        Fence(language="python", code="print('ก')\n", is_closed=True),
        Fence(language="sh", code="ls\n", is_closed=True),
        Fence(language="", code="a\n", is_closed=True),
    )


def test_a_block_without_end_says_so() -> None:
    """A reply that was cut inside a block ends in an unclosed one."""
    assert fences("```py\nx = 1") == (
        Fence(language="py", code="x = 1\n", is_closed=False),
    )
    assert fences("```py") == (Fence(language="py", code="", is_closed=False),)


def test_plain_text_has_the_words_without_the_marks() -> None:
    """Blocks become lines; links and pictures become their labels."""
    text = (
        "# Tea\n\n- **warm** the [pot](https://a.example)\n1. `brew`\n\n"
        "> 3 *min* \n\n```py\ntea()\n```\n\n| a | b |\n|---|---|\n"
        "| 1 | ![c](https://d.example) |\n"
    )

    assert plain_text(text) == "Tea\nwarm the pot\nbrew\n3 min\ntea()\na\nb\n1\nc"
    assert plain_text("2 * 3 is 6, and 2_a stays.") == "2 * 3 is 6, and 2_a stays."

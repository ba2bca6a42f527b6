"""Finished blocks and the tail of text that grows; fenced code."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.display.growing_markdown import Block, Blocks
from svc_notebook.display.markdown import Fence, fences, to_html

_LINES = (
    *("# h", "para one", "", "- a", "  more", "  - nested", "1. x", "10) z", "\t- t"),
    *("```py", "```", "  ```", "~~~", "    ind", "|a|b|", "|-|-|", "> q", "===", "---"),
    *("***", "* * *", "$$", "   $$", "$$x$$ is", "\\[", "\\]", "text **b**"),
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
    """The rest of a long fence in a list loses its indent and ends where it ended."""
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
        "```sh\npwd\nwhoami\n```\n",
        "Done.\n\n",
    ]


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

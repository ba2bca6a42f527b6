"""The seam of a reply and its rest: repetitions are dropped, code blocks go on."""

import re
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.conversations.continuation import OverlapRemover, join_text

LONG = "A whole line of prose is long enough, so that nobody writes it twice by chance."
FENCE = "Here it is:\n\n```python\nfor n in range(3):\n    pri"


@pytest.mark.parametrize(
    ("old", "new", "whole"),
    [
        ("one, tw", "o, three.", "one, two, three."),
        ("The quick bro", "brown fox", "The quick brown fox"),
        ("It ends in the", "the end", "It ends in the end"),
        ("he had", " had a boat", "he had had a boat"),
        ("one, tw", "two, three.", "one, two, three."),
        ("One.\nThe last li", "The last line.\nMore.", "One.\nThe last line.\nMore."),
        ("One.\nThe last li", "\n\nThe last line.", "One.\nThe last line."),
        ("One.\nTwo.\nThree.\n", "Two.\nThree.\nEnd", "One.\nTwo.\nThree.\nEnd"),
        (f"One. {LONG}\n", f"One. {LONG}\nTwo", f"One. {LONG}\nTwo"),
        ("- **One**: 1\n- **", "- **Two**: 2", "- **One**: 1\n- **Two**: 2"),
        ("1. One\n2. ", "2. Two", "1. One\n2. Two"),
        ("0, 0, 0, 0", ", 0, 0, 0]", "0, 0, 0, 0, 0, 0, 0]"),
        ("0.333", "333", "0.333333"),
        ("x", "xy", "xxy"),
        ("ban", "ana", "banana"),
        ("", "Hello", "Hello"),
        ("Hello", "", "Hello"),
    ],
)
def test_what_the_rest_repeats_is_dropped(old: str, new: str, whole: str) -> None:
    """A line or a word that is begun again; not what only looks alike."""
    assert join_text(old, new) == whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a,b\n2024-01-01,0\n", "2024-01-01,0\n2024-01-02,1\n"),
        ("| a | b |\n|---|---|\n| one | two |\n", "| one | two |\n| 3 | 4 |\n"),
        ("| one | two |", "\n| one | two |\n| 3 | 4 |\n"),
        ("```python\n    if x:\n        return 1\n", "        return 1\n"),
        ("```python\nax.plot(x)\n", "ax.plot(x)\nax.plot(y)\n```"),
        ("```python\nax.plot(x)", "\nax.plot(x)\n```"),
        ("x = [1.5, 2.5, ", "1.5, 2.5, 3.5]"),
        ("word", "word"),
    ],
)
def test_what_may_be_meant_is_kept(old: str, new: str) -> None:
    """Rows and lines of code may be equal; a loss would not be seen."""
    assert join_text(old, new) == old + new


@pytest.mark.parametrize(
    ("old", "new", "whole"),
    [
        ("วันนี้เรากำลังเดินทา", "งไปเชียงใหม่", "วันนี้เรากำลังเดินทางไปเชียงใหม่"),
        ("วันนี้เรากำลังเดินทา", "เดินทางไปเชียงใหม่", "วันนี้เรากำลังเดินทางไปเชียงใหม่"),
        ("ข้อ 1\nฉันชอบกินข้", "ฉันชอบกินข้าว", "ข้อ 1\nฉันชอบกินข้าว"),
        ("มีของนา", "นาชนิด", "มีของนานาชนิด"),
    ],
)
def test_thai_is_joined_without_repetitions(old: str, new: str, whole: str) -> None:
    """Words without blanks between them, cut before a vowel or a tone mark."""
    assert join_text(old, new) == whole


@pytest.mark.parametrize(
    ("new", "whole"),
    [
        ("nt(n)\n```\nDone.", FENCE + "nt(n)\n```\nDone."),
        ("```python\nnt(n)\n```\nDone.", FENCE + "nt(n)\n```\nDone."),
        ("\n```python\n    print(n)\n```", FENCE + "nt(n)\n```"),
        ("```\n    print(n)\n```", FENCE + "nt(n)\n```"),
        ("```\nDone.", FENCE + "\n```\nDone."),
        ("    print(n)\n```", FENCE + "nt(n)\n```"),
    ],
)
def test_a_code_block_goes_on(new: str, whole: str) -> None:
    """The opening line that the rest repeats is dropped; a closing line is not."""
    assert join_text(FENCE, new) == whole


@pytest.mark.parametrize(
    ("old", "new", "whole"),
    [
        ("x=1\n", "Here is the rest:\n\n```python\ny=2\n```", "x=1\ny=2\n```"),
        ("x=1\ny", "ต่อจากเดิม\n```python\nx=1\ny=2\n```", "x=1\ny=2\n```"),
        ("x=1\ny= ", "```\nx=1\ny=2\n```", "x=1\ny= 2\n```"),
        ("x=1\n", "```\nThen:\n```python\ny=2\n", "x=1\n```\nThen:\n```python\ny=2\n"),
        ("x=1\n", "Path\nx = 2\n```", "x=1\nPath\nx = 2\n```"),
    ],
)
def test_a_block_that_is_opened_again_has_no_prose(
    old: str, new: str, whole: str
) -> None:
    """A remark before it goes with the opening line; what closes a block does not."""
    before, after, shown = f"```python\n{old}", f"```python\n{whole}", ""
    seam = OverlapRemover(before)
    shown = "".join([*map(seam.feed, new), seam.end()])

    assert join_text(before, new) == before + shown == after


def test_indented_code_begins_its_own_line() -> None:
    """After a whole line, a block that is opened again goes on in the next line."""
    old = "```python\nfor n in range(3):"

    assert join_text(old, "```python\n    print(n)\n") == f"{old}\n    print(n)\n"
    assert (
        join_text(f"{old}\n", "```python\n    print(n)\n") == f"{old}\n    print(n)\n"
    )


WORDS = st.lists(st.from_regex(r"[a-zก-ฮ]{3,9}", fullmatch=True), unique=True)


@pytest.mark.slow
@given(words=WORDS, data=st.data())
def test_any_long_repetition_is_dropped(words: list[str], data: st.DataObject) -> None:
    """However much of the end the rest begins with, the text is there once."""
    text = " ".join(f"{word}-{n}" for n, word in enumerate(words))
    starts = [found.start() for found in re.finditer(r"\b\w", text)]
    starts = [each for each in starts if each + 8 <= len(text)]
    start = data.draw(st.sampled_from([*starts, len(text)]))
    cut = data.draw(st.integers(min(start + 8, len(text)), len(text)))

    assert join_text(text[:cut], text[start:]) == text


TEXTS = st.text(st.sampled_from("ab กา\n`-,0่"), max_size=40)


@pytest.mark.slow
@given(old=TEXTS, new=TEXTS, data=st.data())
def test_while_it_arrives_the_text_is_the_same(
    old: str, new: str, data: st.DataObject
) -> None:
    """Wherever the rest is split, what is shown adds up to the joined text."""
    cuts = data.draw(st.lists(st.integers(1, 6), max_size=40))
    ends = [0, *accumulate(cuts), len(new)]
    pieces = [new[a:b] for a, b in pairwise(ends)]
    seam = OverlapRemover(old)

    shown = "".join([*map(seam.feed, pieces), seam.end()])

    assert old + shown == join_text(old, new)


@pytest.mark.slow
@given(old=TEXTS, new=TEXTS)
def test_nothing_but_a_repetition_is_dropped(old: str, new: str) -> None:
    """The old text stays; of the new one only its beginning can be missing."""
    added = join_text(old, new).removeprefix(old)

    assert join_text(old, new).startswith(old)
    assert new.endswith(added.removeprefix("\n"))
    assert join_text(old, f"{new}") == join_text(old, new)

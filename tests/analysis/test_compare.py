"""Replies of any frame side by side: labels, marks, differences, size."""

from typing import Any

import pandas as pd
import pytest

from svc_notebook.analysis.compare import compare, find
from svc_notebook.analysis.text_diff import difference, tokens
from svc_notebook.display.text_table import (
    ComparedText,
    ComparisonTable,
    DiffPart,
)
from svc_notebook.errors import ParameterError
from tests.analysis.make import LARGE, SMALL, replies

HOSTILE = "<img src=x onerror=alert(1)>\"'</td><script>x()</script> \u202e $x$"


def _drawn(table: ComparisonTable) -> str:
    return table._repr_mimebundle_()["text/html"]


def _entries(table: ComparisonTable) -> list[ComparedText]:
    return [each for _, fields in table.rows for field in fields for each in field]


def _warm(n_repeats: int = 1) -> pd.DataFrame:
    return replies(
        {"prompt": prompt, "model": model, "temperature": heat, "text": f"at {heat}"}
        for prompt in ("a", "b")
        for model in (SMALL, LARGE)
        for heat in (0, 0.7)
        for _ in range(n_repeats)
    )


def test_what_varies_makes_the_columns() -> None:
    """Rows are prompts, columns all factors, unless something else is asked for."""
    table = compare(_warm())

    assert table.row_names == ("prompt",)
    assert table.column_names == ("model", "temperature")
    assert table.heads[1] == (SMALL, "0.7")
    assert not any(each.label for each in _entries(table))


def test_a_long_table_names_its_columns_in_each_row() -> None:
    """The headings at the top scroll away; a short table has only these."""
    frame = replies(
        {"prompt": f"p{row}", "model": model, "text": "x"}
        for row in range(6)
        for model in (SMALL, LARGE)
    )

    long, short = _drawn(compare(frame)), _drawn(compare(frame[:6]))

    assert (long.count(SMALL), short.count(SMALL)) == (6, 1)


def test_a_stacked_reply_says_what_still_varies() -> None:
    """Replies of several temperatures in one field say which is which."""
    table = compare(_warm(), columns="model")

    labels = [each.label for each in table.rows[0][1][0]]
    assert labels == ["temperature 0", "temperature 0.7"]
    assert "temperature 0.7:\n    at 0.7" in str(table)


def test_prompts_in_one_field_are_told_apart() -> None:
    """A field with several prompts says which one a reply is for."""
    table = compare(_warm(), rows="temperature", columns="model")

    assert [each.label for each in table.rows[0][1][0]] == ["prompt a", "prompt b"]


@pytest.mark.slow
def test_everything_can_be_in_one_column() -> None:
    """With no columns, each row has one field with all its replies."""
    table = compare(_warm(), columns=())

    assert table.heads == ((),)
    assert [each.label for each in table.rows[0][1][0]][-1] == (
        f"model {LARGE} · temperature 0.7"
    )


@pytest.mark.slow
def test_equal_repeats_are_counted_once() -> None:
    """Equal texts are one entry with its number, others say which repeat they are."""
    frame = replies(
        {"repeat": number, "text": text} for number, text in enumerate("xxxyz")
    )

    labels = [each.label for each in _entries(compare(frame))]

    assert labels == ["3 times", "repeat 3", "repeat 4"]


@pytest.mark.parametrize(
    ("row", "marks", "text"),
    [
        ({"is_cut": True, "finish_reason": "length"}, ("cut",), "Hello"),
        (
            {"status": "error", "http_status": 400, "error_type": "BadRequestError"},
            ("refused", "BadRequestError"),
            "No.",
        ),
        (
            {"status": "error", "error_type": "TimedOutError"},
            ("failed", "TimedOutError"),
            "No.",
        ),
        ({"status": "cancelled", "text": "Hel"}, ("interrupted",), "Hel"),
        ({"status": "planned", "text": None}, ("not sent yet",), ""),
        ({"status": "not_run", "text": None}, ("not run",), ""),
        ({"text": " "}, ("empty",), " "),
        ({"finish_reason": "content_filter"}, ("content_filter",), "Hello"),
    ],
)
def test_what_is_no_whole_reply_is_marked_in_words(
    row: dict[str, Any], marks: tuple[str, ...], text: str
) -> None:
    """Cut, failed, refused and missing replies say so, with the reason."""
    if row.get("status") == "error":
        row = {"text": None, "error_message": "No.", **row}

    [entry] = _entries(compare(replies([row])))

    assert (entry.marks, entry.text) == (marks, text)


def test_a_combination_that_was_not_asked_is_said() -> None:
    """A field without a reply has words, too."""
    frame = _warm().iloc[:-1]

    assert "not asked" in _drawn(compare(frame))


def test_markdown_is_rendered_or_raw() -> None:
    """Markdown of a reply is rendered safely, or shown as written."""
    frame = replies([{"text": "**bold** <b>x</b>"}])

    rendered, raw = _drawn(compare(frame)), _drawn(compare(frame, markdown=False))

    assert "<strong>bold</strong> &lt;b&gt;" in rendered
    assert "**bold** &lt;b&gt;" in raw


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"markdown": False}, {"diff": True}])
def test_hostile_texts_stay_texts(how: dict[str, Any]) -> None:
    """Replies, prompts, labels, errors and names of columns are escaped everywhere."""
    name = f"{HOSTILE}_label"
    failed = {"text": None, "status": "error", "error_message": HOSTILE}
    frame = replies(
        [
            {"prompt": HOSTILE, name: HOSTILE, "text": f"{HOSTILE} one two three"},
            {"prompt": HOSTILE, name: "b", "text": f"{HOSTILE} one two four"},
            {"prompt": "b", name: HOSTILE, **failed},
        ],
        middle=[name],
    )

    for columns in (name, ()):
        html = _drawn(compare(frame, columns=columns, **how))
        assert "<img" not in html
        assert "<script" not in html
        assert html.count("<table") == html.count("</table>") == 1
        assert "\u202e" not in html


@pytest.mark.slow
def test_a_long_text_is_folded() -> None:
    """Of a long text the beginning is shown; the rest unfolds, without a script."""
    words = " ".join(f"word{number}" for number in range(300))
    code = "x = 1  # a line of code\n" * 60
    fence = f"```python\n{code}```"

    for text in (words, fence, "- item\n" * 300):
        html = _drawn(compare(replies([{"text": text}])))
        before, folded = html.split("<details>")
        assert "more characters</summary>" in folded
        assert len(before) < 3500
    assert "word299" in _drawn(compare(replies([{"text": words}])))
    assert _drawn(compare(replies([{"text": fence}]))).count("<pre") == 2


@pytest.mark.slow
@pytest.mark.parametrize("diff", [False, True])
def test_ten_thousand_replies_stay_small(diff: bool) -> None:
    """10 000 long replies are under 2 MB, with a note of what was left out."""
    frame = replies(
        {"prompt": f"p{row}", "temperature": heat, "text": f"{row} {heat} ก*b* " * 400}
        for row in range(500)
        for heat in range(20)
    )

    bundle = compare(frame, diff=diff)._repr_mimebundle_()

    assert sum(len(each.encode()) for each in bundle.values()) < 2_000_000
    assert "more rows are not shown" in bundle["text/html"]
    assert "8 more columns are not shown" in bundle["text/html"]


def test_a_full_field_counts_the_rest() -> None:
    """A field shows the first different replies and says how many more there are."""
    frame = replies({"text": str(number)} for number in range(20))

    table = compare(frame)

    assert len(_entries(table)) == 12
    assert "8 more replies of these rows are not shown" in str(table)


def test_words_that_differ_are_marked() -> None:
    """In the later columns, added and missing words are marked; equal texts say so."""
    frame = replies(
        {"model": model, "text": text}
        for model, text in (
            ("a", "The sea is calm and blue."),
            ("b", "The sea is rough and blue."),
            ("c", "The sea is calm and blue."),
            ("d", "Nothing else at all"),
        )
    )

    table = compare(frame, diff=True)

    marks = [each.marks for each in _entries(table)]
    assert marks == [("reference",), (), ("same",), ("differs throughout",)]
    assert "The sea is [-calm -]{+rough +}and blue." in str(table)
    assert "<del" in _drawn(table)


def test_thai_is_compared_by_characters_as_people_see_them() -> None:
    """A vowel or tone mark is never separated from its consonant."""
    assert tokens("น้ำดี") == ["น้ำ", "ดี"]
    assert tokens("👩‍🔬é") == ["👩‍🔬", "é"]

    parts = difference(tokens("น้ำดีมาก"), tokens("น้ำดำมาก"))

    assert parts == (
        DiffPart("same", "น้ำ"),
        DiffPart("gone", "ดี"),
        DiffPart("added", "ดำ"),
        DiffPart("same", "มาก"),
    )


def test_texts_that_take_too_long_to_compare_say_so() -> None:
    """Repeated words in long texts are not compared."""
    frame = replies(
        [{"model": "a", "text": "a " * 999}, {"model": "b", "text": "a b " * 999}]
    )

    table = compare(frame, diff=True)

    assert _entries(table)[1].marks == ("not compared: too long",)


def test_rows_of_a_template_are_named_by_what_fills_it() -> None:
    """Where templates vary, a row has its number and its own columns."""
    frame = replies(
        (
            {"row": row, "topic": topic, "prompt_template": way, "prompt": way + topic}
            for row, topic in enumerate(("tea", "sea"))
            for way in ("On ", "About ")
        ),
        middle=["topic"],
    )

    table = compare(frame)

    assert table.row_names == ("row", "topic")
    assert table.column_names == ("prompt_template",)
    assert [key for key, _ in table.rows] == [("0", "tea"), ("1", "sea")]


@pytest.mark.slow
def test_a_reply_is_found_by_its_conditions() -> None:
    """Conditions that name one exchange find it; otherwise what varies is listed."""
    frame = _warm().assign(exchange_id=[f"id-{number}" for number in range(8)])

    assert find(frame, {"prompt": "a", "model": LARGE, "temperature": 0.7}) == "id-3"
    with pytest.raises(
        ParameterError, match=r"2 replies match.*temperature is 0.0, 0.7"
    ):
        find(frame, {"prompt": "a", "model": LARGE})
    with pytest.raises(
        ParameterError, match=r"No reply has temperature=2; .* is 0.0, 0"
    ):
        find(frame, {"temperature": 2})
    with pytest.raises(ParameterError, match="Did you mean model"):
        find(frame, {"modle": LARGE})


def test_what_was_not_sent_cannot_be_returned() -> None:
    """A planned request is no reply, and the error says how to get one."""
    with pytest.raises(ParameterError, match=r"not sent yet\). Call run.run\(\)"):
        find(replies([{"status": "planned", "exchange_id": None}]), {})


def test_a_reply_has_its_scores() -> None:
    """Right or not right, a grade or a label; a missing score is not shown."""
    frame = replies(
        {"row": 0, "prompt": "a", "model": model, "text": "yes"} | scores
        for model, scores in (
            (SMALL, {"score_right": 0, "score_grade": 0.5, "score_all": 0}),
            (LARGE, {"score_right": 1, "score_all": 1, "score_tone": "warm"}),
        )
    )

    labels = [entry.label for entry in _entries(compare(frame))]

    assert labels == [
        "not right · grade 0.5 · all is false",
        "right · all is true · tone warm",
    ]


def test_equal_replies_with_other_scores_are_shown_apart() -> None:
    """They are counted together only if their scores are equal, too."""
    frame = replies(
        {"row": 0, "prompt": "a", "repeat": repeat, "text": "yes", "score_right": value}
        for repeat, value in enumerate([True, True, False])
    )

    labels = [entry.label for entry in _entries(compare(frame))]

    assert labels == ["right · 2 times", "not right · repeat 2"]

"""Variables in a prompt."""

from contextlib import suppress

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.conversations.attachments import CAP_TOKENS
from svc_notebook.errors import ParameterError
from svc_notebook.magics.interpolation import Filled, interpolate


def test_puts_values_in() -> None:
    """Texts go in as they are, other values by `str`."""
    text, items, _ = interpolate("{{a}} and {{b}}{{a}}", {"a": "ก {{b}}", "b": 3})

    assert text == "ก {{b}} and 3ก {{b}}"
    assert [item.name for item in items] == ["a", "b"]


def test_thai_names_are_names() -> None:
    """A variable may be named in Thai, vowel and tone signs included."""
    text, *_ = interpolate("{{ข้อความ}} {{สระอำ}}", {"ข้อความ": "ก", "สระอํา": "ข"})

    assert text == "ก ข"


def test_escaped_mark_is_literal() -> None:
    """A backslash keeps a mark as plain text."""
    assert interpolate(r"\{{a}}", {"a": 1}) == Filled("{{a}}")


class Row:
    """A value with attributes, one of which fails."""

    text = "the text"

    @property
    def broken(self) -> str:
        """Raise, as a property that reads a closed file does."""
        raise OSError("private words")

    def total(self) -> int:
        """Return something."""
        return 1


NAMES: dict[str, object] = {
    "name": "N",
    "key": "a b",
    "i": -1,
    "d": {"a b": [10, 20], 1: "one", 1.5: "more", "k": {"x": Row()}},
    "row": Row(),
    "df": pd.DataFrame({"text": ["first", "second"]}),
}


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (" name ", "N"),
        ("row.text", "the text"),
        ("d['a b'][0]", "10"),
        ('d["a b"][-1]', "20"),
        ("d[key][i]", "20"),
        ("d[1]", "one"),
        ("d[1.5]", "more"),
        ("d['k']['x'].text", "the text"),
        ("df.text[0]", "first"),
        ("df['text'][1]", "second"),
        ("\td [ 'k' ] [ 'x' ] . text ", "the text"),
    ],
)
def test_parts_of_a_value_are_put_in(inner: str, text: str) -> None:
    """Attributes and items of a variable are filled in, blanks do not count."""
    filled = interpolate(f"<{{{{{inner}}}}}>", NAMES)

    assert filled.text == f"<{text}>"
    assert [item.name for item in filled.items] == [inner.strip()]
    assert filled.as_typed == ()


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ("df.head()", "(`value = df.head()`, then {{value}})"),
        ("len(name)", "(`value = len(name)`, then {{value}})"),
        ("df.head().text[0]", "a prompt cannot call functions"),
        ("name + str(i)", "a prompt cannot call functions"),
        ("df.head", "(`value = df.head()`, then {{value}})"),
        ("row.total", "(`value = row.total()`, then {{value}})"),
        ("name.upper", "(`value = name.upper()`, then {{value}})"),
        ("row.txt", "row.txt raised AttributeError. Did you mean text?"),
        ("row.broken.x", "row.broken raised OSError. Correct it"),
        ("df['txt'][0]", "df['txt'] raised KeyError. Did you mean text?"),
        ("d['k'].x", "d['k'].x raised AttributeError. Correct it"),
        ("d[key][7]", "d[key][7] raised IndexError. Correct it"),
        ("name[key]", "name[key] raised TypeError. Correct it"),
        ("nmae.text", "this notebook has no variable nmae. Did you mean name?"),
        ("d[kye]", "this notebook has no variable kye. Did you mean key?"),
        (" nmae ", "this notebook has no such variable. Did you mean name?"),
    ],
)
def test_what_cannot_be_put_in_is_refused(inner: str, said: str) -> None:
    """Calls, wrong parts and unknown names are refused; the part at fault is named."""
    with pytest.raises(ParameterError) as refused:
        interpolate(f"<{{{{{inner}}}}}>", NAMES)

    assert said in str(refused.value)
    assert f"write \\{{{{{inner}}}}} for the plain text" in str(refused.value)
    assert "private words" not in str(refused.value)


@pytest.mark.parametrize(
    "inner",
    [
        "name + 1",
        "1a",
        "d[True]",
        "d[0:1]",
        "d[0, 1]",
        "name!r",
        "name:.2f",
        "a 'b",
        "'",
        "d['a'",
        "name if i else key",
        "-" * 150,
        "(" * 150,
        "name." * 900 + "x",
        "d['{x}']",
        "{'a': 1}['a']",
    ],
)
def test_other_marks_go_as_typed(inner: str) -> None:
    """What is neither a part of a variable nor a call is text, and is pointed out."""
    mark = f"{{{{{inner}}}}}"

    assert interpolate(f"{mark} {mark}", NAMES) == Filled(f"{mark} {mark}", (), (mark,))


def test_unknown_name_is_refused_with_near_ones() -> None:
    """A misspelt name is refused, the near names are shown."""
    with pytest.raises(ParameterError) as refused:
        interpolate("{{artcle}}", {"article": 1, "_hidden": 2})

    assert "Did you mean article?" in str(refused.value)
    assert r"\{{artcle}}" in str(refused.value)


@pytest.mark.slow
@given(st.text())
def test_text_without_marks_is_unchanged(text: str) -> None:
    """Any text without a mark comes back as it is."""
    if "{{" not in text:
        assert interpolate(text, {}) == Filled(text)


@pytest.mark.slow
@given(st.text(alphabet="{}nd.[]'0 ()+"))
def test_any_prompt_is_filled_or_refused(text: str) -> None:
    """No prompt ends in anything but a text or our error."""
    with suppress(ParameterError):
        assert isinstance(interpolate(text, {"n": 1, "d": {"n": 0}}).text, str)


def test_a_table_is_cut_by_its_likely_size() -> None:
    """What is likely below the cap goes whole; a cut table nearly fills it."""
    rows = ["The app crashed twice while I was paying"] * 200
    whole, cut = (
        interpolate("{{table}}", {"table": pd.DataFrame({"text": rows[:n]})}).items[0]
        for n in (100, 200)
    )

    assert whole.kind == "DataFrame 100 rows"
    assert "cut to the first" in cut.kind
    assert CAP_TOKENS * 0.9 < cut.n_tokens <= CAP_TOKENS

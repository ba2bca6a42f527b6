"""The template mark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.template import fill, names_in


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{a}} and {{b}} and {{a}}", ("a", "b")),
        ("{{ข้อความ}} {{ชื่อ}} {{คำ}}", ("ข้อความ", "ชื่อ", "คำ")),
        (r"\{{a}} {{b}}", ("b",)),
        ("{{ a }} {a} {{a.b}} {{1}} {{a}", ()),
        ("{{{a}}}", ("a",)),
        ("{{a}}{{b}}", ("a", "b")),
        ("{{class}}", ("class",)),
        ("", ()),
    ],
)
def test_finds_plain_names_only(template: str, expected: tuple[str, ...]) -> None:
    """A mark is two braces around a name without blanks; an escaped one is none."""
    assert names_in(template) == expected


def test_what_is_put_in_is_not_looked_at_again() -> None:
    """A value that looks like a mark stays as it is."""
    assert fill(r"{{a}} \{{a}}", lambda _: "{{a}}") == "{{a}} {{a}}"


@pytest.mark.slow
@given(st.text())
def test_all_other_text_goes_byte_for_byte(text: str) -> None:
    """Without marks a text is unchanged, braces and dollars included."""
    if "{{" not in text:
        assert fill(text, str.upper) == text

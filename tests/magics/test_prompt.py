"""Variables in a prompt."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import ParameterError
from svc_notebook.magics.prompt import interpolate


def test_puts_values_in() -> None:
    """Texts go in as they are, other values by `str`."""
    text, items = interpolate("{{a}} and {{b}}{{a}}", {"a": "ก {{b}}", "b": 3})

    assert text == "ก {{b}} and 3ก {{b}}"
    assert [item.name for item in items] == ["a", "b"]


def test_thai_names_are_names() -> None:
    """A variable may be named in Thai, vowel and tone signs included."""
    text, _ = interpolate("{{ข้อความ}} {{สระอำ}}", {"ข้อความ": "ก", "สระอํา": "ข"})

    assert text == "ก ข"


def test_escaped_mark_is_literal() -> None:
    """A backslash keeps a mark as plain text."""
    assert interpolate(r"\{{a}}", {"a": 1}) == ("{{a}}", ())


@pytest.mark.parametrize(
    "text",
    ["{a}", "{{ a }}", "{{a.b}}", "{{a[0]}}", "${a}", "{{}}", "{{1a}}", "f'{x}'", "{%"],
)
def test_other_braces_are_text(text: str) -> None:
    """Only a plain name in double braces without blanks is a mark."""
    assert interpolate(text, {}) == (text, ())


def test_unknown_name_is_refused_with_near_ones() -> None:
    """A misspelt name is refused, the near names are shown."""
    with pytest.raises(ParameterError) as refused:
        interpolate("{{artcle}}", {"article": 1, "_hidden": 2})

    assert "Did you mean article?" in str(refused.value)
    assert r"\{{artcle}}" in str(refused.value)


@given(st.text())
def test_text_without_marks_is_unchanged(text: str) -> None:
    """Any text without a mark comes back as it is."""
    if any(name.isidentifier() for name in re.findall(r"\{\{([^{}]*)\}\}", text)):
        return

    assert interpolate(text, {}) == (text, ())

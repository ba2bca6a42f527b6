"""Checks of arguments: one wording for all of them."""

from typing import Any

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import (
    check_flag,
    check_int,
    check_number,
    did_you_mean,
    shorten,
)

RIGHT: list[tuple[object, dict[str, Any]]] = [
    (0, {"minimum": 0}),
    (-5, {}),
    (7, {"minimum": 7}),
]
WRONG: list[tuple[object, dict[str, Any], str]] = [
    ("x", {"minimum": 0}, "k must be an integer >= 0; got 'x'."),
    (1.0, {}, "k must be an integer; got 1.0."),
    (True, {}, "k must be an integer; got True."),
    (None, {}, "k must be an integer; got None."),
    (
        -1,
        {"minimum": 0, "otherwise": "or None to never ask"},
        "k must be an integer >= 0, or None to never ask; got -1.",
    ),
]


@pytest.mark.parametrize(("value", "bounds"), RIGHT)
def test_an_integer_within_its_bound(value: object, bounds: dict[str, Any]) -> None:
    """An integer on or above its bound is returned."""
    assert check_int("k", value, **bounds) == value


@pytest.mark.parametrize(("value", "bounds", "message"), WRONG)
def test_what_is_not_such_an_integer(
    value: object, bounds: dict[str, Any], message: str
) -> None:
    """The message says what is allowed, and what was given."""
    with pytest.raises(ParameterError) as caught:
        check_int("k", value, **bounds)

    assert (str(caught.value), caught.value.param) == (message, "k")


def test_a_number_above_a_bound() -> None:
    """Seconds may be a fraction, but not 0, infinite, a text or a flag."""
    assert check_number("s", 0.5, above=0) == 0.5
    for value in (0, -1, float("nan"), float("inf"), "5", True, None):
        with pytest.raises(ParameterError, match="s must be a number > 0; got "):
            check_number("s", value, above=0)


def test_a_flag_is_true_or_false() -> None:
    """A text is no flag, whatever it says."""
    check_flag("raw", False)  # noqa: FBT003 - the value that is checked
    with pytest.raises(ParameterError, match="raw must be True or False; got 'no'"):
        check_flag("raw", "no")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("txt", " Did you mean text?"),
        ("te", " Did you mean text, temper?"),
        ("zzz", ""),
    ],
)
def test_the_nearest_names(name: str, hint: str) -> None:
    """Names that begin so, or else the nearest ones, are suggested."""
    assert did_you_mean(name, ["text", "label", "temper"]) == hint


def test_a_long_text_is_shortened() -> None:
    """A text is at most as long as asked for, the dots included."""
    assert (shorten("abcdef", 6), shorten("abcdefg", 6)) == ("abcdef", "abc...")

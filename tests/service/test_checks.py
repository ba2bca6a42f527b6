"""Checks of arguments: one wording for all of them."""

from typing import Any

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import (
    check_int,
    did_you_mean,
)

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


@pytest.mark.parametrize(("value", "bounds", "message"), WRONG)
def test_what_is_not_such_an_integer(
    value: object, bounds: dict[str, Any], message: str
) -> None:
    """The message says what is allowed, and what was given."""
    with pytest.raises(ParameterError) as caught:
        check_int("k", value, **bounds)

    assert (str(caught.value), caught.value.param) == (message, "k")


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

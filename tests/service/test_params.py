"""The table of parameters, and the checks that are read from it."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import ParameterError
from svc_notebook.service.params import (
    PARAM_NAMES,
    PARAMS,
    Param,
    Params,
    check,
    check_all,
)

TRANSCRIBED = Path(__file__).parents[1] / "document" / "parameters.json"
NUMBERS = [param for param in PARAMS if param.kind in {"integer", "float"}]


def test_the_table_holds_the_documents_parameters() -> None:
    """Every parameter of the document is there, and nothing else."""
    document = json.loads(TRANSCRIBED.read_text("utf-8"))

    names = {*PARAM_NAMES, "model", "messages", "stream", "tools"}

    assert names == {row["name"] for row in document["parameters"]}
    assert set(get_type_hints(Params)) == {*PARAM_NAMES, "tools", "extra"}


def ids(param: Param) -> str:
    """Return a test's id."""
    return param.name


@pytest.mark.parametrize("param", NUMBERS, ids=ids)
def test_bounds_are_allowed_and_what_is_beyond_is_not(param: Param) -> None:
    """A number on its bound passes unchanged; one beyond is refused by name."""
    for bound, beyond in ((param.minimum, -1), (param.maximum, 1)):
        if bound is None:
            continue
        assert check(param.name, bound) is bound
        with pytest.raises(ParameterError, match=param.name) as caught:
            check(param.name, bound + beyond)
        assert caught.value.param == param.name
        assert f"{bound:g}" in str(caught.value)


WRONG: list[Any] = [
    *(float("nan"), float("inf"), -float("inf"), "0.5", True, None, [1], b"1", 1j),
    Decimal(1),
]


@pytest.mark.parametrize("param", NUMBERS, ids=ids)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_what_is_no_number_is_refused(param: Param, value: Any) -> None:  # noqa: ANN401
    """Texts, flags, nan and infinity are no numbers."""
    with pytest.raises(ParameterError, match=param.name):
        check(param.name, value)


def test_numpy_scalars_are_numbers() -> None:
    """A scalar of numpy passes as the plain number it is."""
    numpy = pytest.importorskip("numpy")

    got = [check("n", numpy.int64(2)), check("temperature", numpy.float32(0.5))]

    assert got == [2, 0.5]
    assert [type(each) for each in got] == [int, float]
    with pytest.raises(ParameterError):
        check("n", numpy.bool_(1))
    with pytest.raises(ParameterError):
        check("temperature", numpy.array([0.5]))


SHOWN = [
    (3, "3."),
    (True, "True."),
    ("0.5", "'0.5'."),
    ("hot", "'hot'."),
    ("sk-1 of a user", "a text of 14 characters."),
    ("x" * 25, "a text of 25 characters."),
    (10**5000, "an integer of 16610 bits."),
    (["sk-1"], "a value of type list."),
]


@pytest.mark.parametrize(("value", "shown"), SHOWN, ids=range(len(SHOWN)))
def test_a_refusal_shows_numbers_and_short_words_only(
    value: object, shown: str
) -> None:
    """A text that may be a key or a prompt is described by its length."""
    with pytest.raises(ParameterError) as caught:
        check("temperature", value)

    prefix = "temperature must be a number from 0 to 2; got "
    assert str(caught.value).startswith(prefix + shown)


@pytest.mark.parametrize(
    "value",
    ["", [], ["a"] * 5, [1], ["a", ""], 5, {"a": 1}, ["\ud800"], b"x"],
    ids=repr,
)
def test_what_are_no_stops(value: Any) -> None:  # noqa: ANN401 - anything
    """More than four, none, or what is no text is refused."""
    with pytest.raises(ParameterError) as caught:
        check("stop", value)

    assert caught.value.param == "stop"


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """A misspelt parameter is refused with the nearest name and how to send it."""
    with pytest.raises(ParameterError, match=r"temperature\?(.|\n)*extra=") as caught:
        check("temprature", 1)

    assert caught.value.param == "temprature"


def test_none_is_not_sent() -> None:
    """A parameter that is None is left out; an unknown one is refused all the same."""
    got = check_all({"n": None, "tools": None, "temperature": 0, "user": "ก"})

    assert got == {"temperature": 0, "user": "ก"}
    with pytest.raises(ParameterError):
        check_all({"nope": None})


@pytest.mark.parametrize(
    "value", ["text", {"type": "function"}, [1], [{}], 5], ids=repr
)
def test_what_are_no_tools(value: Any) -> None:  # noqa: ANN401 - anything
    """Tools are a list of definitions in the document's outline."""
    with pytest.raises(ParameterError) as caught:
        check_all({"tools": value})

    assert caught.value.param == "tools"


@pytest.mark.slow
@given(
    st.sampled_from([*PARAM_NAMES, "tools", "x"]),
    st.none() | st.text() | st.integers() | st.floats() | st.lists(st.text()),
)
def test_any_value_passes_unchanged_or_is_refused(name: str, value: Any) -> None:  # noqa: ANN401
    """A check returns what it was given, or one of our errors that can be shown."""
    try:
        got = check_all({name: value})
    except ParameterError as error:
        assert str(error).encode()  # noqa: PT017 - either way is right
    else:
        sent = tuple(value) if isinstance(value, list) else value
        assert list(got.values()) in ([], [sent])

"""The tables of parameters and of models, and the checks that are read from them."""

import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import DEFAULT_MODEL, MODELS, limit_of
from svc_notebook.service.params import (
    PARAM_NAMES,
    Param,
    Params,
    check,
    check_all,
    check_int,
    check_positive,
)

TRANSCRIBED = Path(__file__).parents[1] / "document" / "parameters.json"


def test_the_table_holds_the_documents_parameters() -> None:
    """Every parameter of the document is there, and nothing else."""
    document = json.loads(TRANSCRIBED.read_text("utf-8"))

    names = {*PARAM_NAMES, "model", "messages", "stream", "tools"}

    assert names == {row["name"] for row in document["parameters"]}
    assert set(get_type_hints(Params)) == {*PARAM_NAMES, "tools", "extra"}


def ids(param: Param) -> str:
    """Return a test's id."""
    return param.name


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


def test_the_types_of_a_sweep_are_no_parameter() -> None:
    """`answer=`, which sweeps have, is refused with the verb for one reply."""
    with pytest.raises(ParameterError, match=r"svc\.extract\(TYPE, prompt\)"):
        check_all({"answer": str})


def test_none_is_not_sent() -> None:
    """A parameter that is None is left out; an unknown one is refused all the same."""
    got = check_all({"n": None, "tools": None, "temperature": 0, "user": "ก"})

    assert got == {"temperature": 0, "user": "ก"}
    with pytest.raises(ParameterError):
        check_all({"nope": None})


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


MODELS_JSON = Path(__file__).parents[1] / "document" / "models.json"


def test_limits_are_the_documents() -> None:
    """Listed models have their two limits, all others none."""
    got = {model.id: limit_of(model.id) for model in MODELS}

    shown = {
        name: (limit.per_second, limit.per_minute)
        for name, limit in got.items()
        if limit
    }
    assert shown == {
        "svc-v1.5-instruct": (20, 150),
        "svc-v1.5x-70b-instruct": (5, 50),
        "svc-v2-8b-instruct": (5, 50),
        "svc-v2-70b-instruct": (5, 50),
    }
    assert limit_of("svc-v9-instruct") is None


def test_every_transcribed_model_is_listed() -> None:
    """Every id that appears in the document is known, the default among them."""
    text = MODELS_JSON.read_text("utf-8")

    assert [model.id for model in MODELS if f'"{model.id}"' not in text] == []
    assert DEFAULT_MODEL in {model.id for model in MODELS}
    assert json.loads(text)


STOPS = [("x", "x"), (["x"], ("x",)), (("a", "b", "c", "d"), ("a", "b", "c", "d"))]


@pytest.mark.parametrize(("value", "sent"), STOPS)
def test_stops(value: Any, sent: object) -> None:  # noqa: ANN401 - any stops
    """One text or up to four are stops."""
    assert check("stop", value) == sent


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


def test_a_number_above_a_bound() -> None:
    """Seconds may be a fraction, but not 0, infinite, a text or a flag."""
    assert check_positive("s", 0.5) == 0.5
    for value in (0, -1, float("nan"), float("inf"), "5", True, None):
        with pytest.raises(ParameterError, match="s must be a number > 0; got "):
            check_positive("s", value)

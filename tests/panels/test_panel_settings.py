"""The settings of a panel: the table's ranges, and what is sent."""

from typing import Any

import pytest

from svc_notebook.errors import ParameterError
from svc_notebook.panels.actions import check_system
from svc_notebook.panels.state import OFFERED, Settings, fields
from svc_notebook.service.params import PARAMS


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("temperature", "0.3", {"temperature": 0.3}),
        ("temperature", 1, {"temperature": 1}),
        ("n", "2", {"n": 2}),
        ("stop", "END\n\\n\\n\n", {"stop": ("END", "\n\n")}),
        ("stop", "a\\\\nb", {"stop": ("a\\nb",)}),
        ("top_p", " ", {}),
        ("presence_penalty", None, {}),
    ],
)
def test_what_is_typed_becomes_a_parameter(
    name: str, value: object, expected: dict[str, Any]
) -> None:
    """Numbers and lines are read; nothing typed is nothing sent."""
    assert Settings().setting(name, value).params == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("fit", "fit"), ("", "fit"), ("Service", "service"), ("200", 200), (5, 5)],
)
def test_max_tokens_takes_words_too(value: object, expected: object) -> None:
    """`fit` is what holds where nothing is typed."""
    assert Settings().setting("max_tokens", value).max_tokens == expected


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("temperature", "3", "0 to 2"),
        ("temperature", "warm", "0 to 2"),
        ("temperature", "nan", "0 to 2"),
        ("n", "1.5", "integer"),
        ("max_tokens", "9000", "8192"),
        ("stop", "a\nb\nc\nd\ne", "up to 4"),
        ("other", "1", "is not a parameter"),
        ("api_key", "1", "is not a parameter"),
    ],
)
def test_what_is_not_allowed_is_refused_as_everywhere(
    name: str, value: object, remedy: str
) -> None:
    """The message is the table's own."""
    with pytest.raises(ParameterError, match=remedy):
        Settings().setting(name, value)


def test_a_setting_can_be_taken_back() -> None:
    """Emptied, it is not sent any more."""
    set_once = Settings().setting("temperature", 1).setting("n", 2)

    assert set_once.setting("temperature", "").params == {"n": 2}


def test_a_model_that_is_not_listed_is_taken() -> None:
    """Ids may grow; nothing typed is the session's."""
    other = Settings().setting("model", "svc-new")

    assert other.values(model="svc-instruct", system=None)["model"] == "svc-new"
    back = other.setting("model", "")
    assert back.values(model="svc-instruct", system=None)["model"] == "svc-instruct"


def test_stop_sequences_are_shown_as_typed() -> None:
    """One a line, line ends escaped, so that they come back the same."""
    settings = Settings().setting("stop", "END\n\\n\na\\\\b")

    shown = settings.values(model="m", system=None)["stop"]

    assert shown == "END\n\\n\na\\\\b"
    assert Settings().setting("stop", shown) == settings


def test_the_fields_carry_the_documents_ranges() -> None:
    """Each offered parameter has the bounds and the default of the table."""
    by_name = {each["name"]: each for each in fields(model="svc-instruct")}
    table = {param.name: param for param in PARAMS}

    bounds = {n: (by_name[n]["minimum"], by_name[n]["maximum"]) for n in OFFERED}

    assert bounds == {n: (table[n].minimum, table[n].maximum) for n in OFFERED}
    assert list(by_name) == ["model", "system", *OFFERED]
    assert by_name["max_tokens"]["default"] == "fit"
    assert by_name["temperature"]["default"] == "0.7"


def test_an_empty_system_message_is_none() -> None:
    """Blanks are no message; text stays as typed."""
    assert [check_system(each) for each in ("", " \n", None, " a ")] == [
        None,
        None,
        None,
        " a ",
    ]


def test_a_field_says_its_range() -> None:
    """The document's bounds can be read before a value is refused."""
    helps = {each["name"]: each["help"] for each in fields(model="svc-instruct")}

    assert (
        helps["temperature"]
        == "0 to 2; higher is more random, lower more deterministic"
    )
    assert helps["presence_penalty"].startswith("-2 to 2; ")
    assert helps["repetition_penalty"].startswith("1 to 2; ")
    assert helps["n"] == "at least 1; number of choices"
    assert helps["top_p"].startswith("nucleus sampling")
    assert helps["max_tokens"].startswith(
        "1 to 8192, fit (what is left) or service (none"
    )

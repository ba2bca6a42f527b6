"""What an emulator is made of is checked when it is made."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from svc_notebook.emulator.server import Emulator
from svc_notebook.errors import SettingsError

BODY = {
    "model": "svc-v2-8b-instruct",
    "messages": [{"role": "user", "content": "Tell me about rain."}],
}
MODEL = "svc-v2-8b-instruct"


def _fails() -> float:
    raise OSError


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"port": "x"}, "port='x' is not a port; give 0 to 65535."),
    ({"port": True}, "port=True is not a port"),
    ({"port": 70000}, "Port 70000 cannot be used"),
    ({"tokens_per_s": "fast"}, "tokens_per_s='fast' has to be a number above 0, or No"),
    ({"tokens_per_s": math.nan}, "tokens_per_s=nan has to be"),
    ({"tokens_per_s": -1}, "tokens_per_s=-1 has to be"),
    ({"tokens_per_s": 0}, "None for no waiting"),
    ({"first_token_s": "x"}, "first_token_s='x' has to be a number of seconds, 0 or"),
    ({"first_token_s": -1}, "first_token_s=-1 has to be"),
    ({"first_token_s": math.inf}, "first_token_s=inf has to be"),
    ({"keep_alive_s": -1}, "keep_alive_s=-1 has to be a number of seconds, more than"),
    ({"keep_alive_s": 0}, "keep_alive_s=0 has to be"),
    ({"seed": object()}, "has to be an integer."),
    ({"seed": True}, "seed=True has to be an integer."),
    ({"clock": lambda: None}, "clock has to be a function that tells a finite number"),
    ({"clock": 5}, "clock has to be a function"),
    ({"clock": _fails}, "clock has to be a function"),
    ({"now": lambda: math.nan}, "now has to be a function"),
    ({"models": "svc-x"}, "models='svc-x' has to be a list of model ids"),
    ({"models": [""]}, "none empty"),
    ({"models": [5]}, "has to be a list of model ids"),
    ({"limits": 5}, "limits=5 has to be True, False, or model ids with (requests"),
    ({"limits": "x"}, "limits='x' has to be"),
    ({"limits": {MODEL: 5}}, "has to be True, False"),
    ({"limits": {MODEL: (1,)}}, "has to be True, False"),
    ({"limits": {MODEL: ("a", "b")}}, "has to be True, False"),
    ({"limits": {MODEL: (1, -1)}}, "has to be True, False"),
    ({"limits": {"x": (1, 1)}}, "limits names 'x', which is not served; served are"),
    ({"keys": "abc"}, "keys has to be a list of keys, also for a single one."),
    ({"keys": []}, "at least one key, none empty"),
    ({"keys": ["a", ""]}, "at least one key, none empty"),
    ({"keys": ["a b"]}, "keys[0] cannot be sent in a header"),
    ({"revoked": ["a", "b\n"]}, "revoked[1] cannot be sent in a header"),
    ({"keys": ["a"], "revoked": ["a"]}, "keys and revoked share a key"),
    ({"revoked": ["a"], "forbidden": ["a"]}, "revoked and forbidden share a key"),
    ({"script": 5}, "A script must be a list of entries, or a path."),
    ({"script": {"text": "x"}}, "A script must be a list of entries, or a path."),
]


@pytest.mark.parametrize(("keywords", "words"), WRONG)
def test_a_wrong_argument_is_found_when_the_emulator_is_made(
    keywords: dict[str, Any], words: str
) -> None:
    """The error names the argument and what is allowed."""
    with pytest.raises(SettingsError) as caught:
        Emulator(**keywords)

    assert words in str(caught.value)


def test_no_error_shows_a_key() -> None:
    """Keys are counted, not repeated."""
    with pytest.raises(SettingsError) as caught:
        Emulator(keys=["secret one"])

    assert "secret" not in str(caught.value)


def test_limits_can_be_for_a_model_of_ones_own() -> None:
    """Models served besides the documented ones may have limits; 0 admits none."""
    emulator = Emulator(models=["mine"], limits={"mine": (0, 0)})

    assert repr(emulator) == "<Emulator: not running>"


@pytest.fixture
def stopping_clock() -> Callable[[], float]:
    """A clock that tells the time three times."""
    times: Iterator[float] = iter((1.0, 2.0, 3.0))
    return lambda: next(times)


def test_a_clock_that_fails_later_is_answered_in_the_documents_shape(
    stopping_clock: Callable[[], float],
) -> None:
    """The last resort is an error body that says where to look."""
    with (
        Emulator(clock=stopping_clock, tokens_per_s=None, first_token_s=0) as emulator,
        httpx.Client(
            headers={"Authorization": f"Bearer {emulator.api_key}"}, trust_env=False
        ) as client,
    ):
        url = f"{emulator.base_url}/chat/completions"
        answers = [client.post(url, json=BODY) for _ in range(2)]

    assert [each.status_code for each in answers] == [200, 500]
    assert answers[1].json() == {
        "error": {
            "message": "The emulator could not answer (StopIteration); look at the "
            "clock and the script it was given.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }

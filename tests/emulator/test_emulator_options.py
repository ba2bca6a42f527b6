"""The arguments of `Emulator` are checked when it is made."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import SettingsError

BODY = {
    "model": "svc-v2-8b-instruct",
    "messages": [{"role": "user", "content": "Tell me about rain."}],
}
MODEL = "svc-v2-8b-instruct"


def _fails() -> float:
    raise OSError


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"port": "x"}, "port='x': port must be an integer from 0 to 65535; 0 takes"),
    ({"port": True}, "port=True: port must be"),
    ({"port": 70000}, "port=70000: port must be"),
    ({"tokens_per_s": "fast"}, "tokens_per_s must be a number greater than 0, or None"),
    ({"tokens_per_s": math.nan}, "tokens_per_s=nan: "),
    ({"tokens_per_s": 0}, "tokens_per_s=0: "),
    ({"first_token_s": -1}, "first_token_s must be a number of seconds, 0 or more."),
    ({"first_token_s": math.inf}, "first_token_s=inf: "),
    ({"keep_alive_s": 0}, "keep_alive_s must be a number of seconds, greater than 0."),
    ({"seed": object()}, "seed must be an integer."),
    ({"seed": True}, "seed=True: seed must be an integer."),
    ({"clock": lambda: None}, "clock must be a function that returns a finite number"),
    ({"clock": 5}, "clock must be a function"),
    ({"clock": _fails}, "clock must be a function"),
    ({"now": lambda: math.nan}, "now must be a function"),
    ({"models": "svc-x"}, "models='svc-x': models must be a list of model ids."),
    ({"models": [""]}, "models must be a list of model ids."),
    ({"limits": 5}, "limits=5: limits must be True, False, or a mapping of model ids"),
    ({"limits": {MODEL: 5}}, "limits must be True, False"),
    ({"limits": {MODEL: (1,)}}, "limits must be True, False"),
    ({"limits": {MODEL: (1, -1)}}, "limits must be True, False"),
    ({"limits": {"x": (1, 1)}}, "limits is given for the model 'x', but the emulator"),
    ({"contexts": {MODEL: 0}}, "contexts must be a mapping of model ids to tokens"),
    ({"has_model_list": 1}, "has_model_list must be True or False."),
    ({"needs_key": None}, "needs_key must be True or False."),
    ({"text": "prose"}, "text='prose': text must be 'answers' or 'filler'."),
    ({"keys": "abc"}, "keys must be a list of API keys; a key consists of letters, di"),
    ({"keys": []}, "at least one is needed"),
    ({"keys": ["a", ""]}, "keys must be a list of API keys"),
    ({"keys": ["a b"]}, "keys must be a list of API keys"),
    ({"revoked": ["a", "b\n"]}, "revoked must be a list of API keys"),
    ({"keys": ["a"], "revoked": ["a"]}, "keys and revoked have a key in common"),
    (
        {"revoked": ["a"], "forbidden": ["a"]},
        "revoked and forbidden have a key",
    ),
    ({"script": 5}, "The script must be a list of entries, or {"),
    ({"script": {"text": "x"}}, "The script has the unknown key 'text'."),
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
    """A wrong key is not repeated."""
    with pytest.raises(SettingsError) as caught:
        Emulator(keys=["secret one"])

    assert "secret" not in str(caught.value)


def test_attributes_do_not_show_the_keys() -> None:
    """Looking at the attributes of an emulator shows no key."""
    emulator = Emulator(keys=["served-secret"], revoked=["old-secret"])

    assert "secret" not in repr(vars(emulator))


@pytest.mark.parametrize("has_list", [False, True])
def test_models_are_listed_only_if_asked_for(has_list: bool) -> None:
    """The document shows no list of models; other servers have one."""
    with (
        Emulator(
            models=["mine"],
            contexts={"mine": 99},
            has_model_list=has_list,
            needs_key=False,
        ) as emulator,
        httpx.Client(trust_env=False) as client,
    ):
        found = client.get(f"{emulator.base_url}/models")

    model = {"id": "mine", "object": "model", "owned_by": "emulator"}
    listed = {"object": "list", "data": [{**model, "max_model_len": 99}]}
    assert found.status_code == (200 if has_list else 404)
    assert (found.json() == listed) is has_list


def test_a_context_of_its_own_is_the_limit_of_a_model() -> None:
    """Its refusal names the context, as other servers do."""
    with (
        Emulator(contexts={MODEL: 99}, needs_key=False) as emulator,
        httpx.Client(trust_env=False) as client,
    ):
        url = f"{emulator.base_url}/chat/completions"
        found = client.post(url, json={**BODY, "max_tokens": 95})

    assert found.status_code == 400
    assert "maximum context length is 99 tokens" in found.json()["error"]["message"]


@pytest.fixture
def stopping_clock() -> Callable[[], float]:
    """A clock that fails when it is read for the fourth time."""
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
            "message": "The emulator failed (StopIteration); check the clock and the "
            "script that it was started with.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }

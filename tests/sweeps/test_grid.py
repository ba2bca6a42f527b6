"""The grid: the product of all lists, checked before anything is sent."""

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.errors import ParameterError
from svc_notebook.service.request import build_request, user
from svc_notebook.sweeps.grid import Grid, Predicate, request_key_of
from svc_notebook.sweeps.plan import build_grid

MODEL = "svc-v2-8b-instruct"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}

axes = st.fixed_dictionaries(
    {"model": st.lists(st.sampled_from("abcd"), min_size=1, unique=True)},
    optional={
        "system": st.lists(st.sampled_from(["x", "y", None]), min_size=1, unique=True),
        "temperature": st.lists(st.floats(0, 2), min_size=1, max_size=4, unique=True),
        "n": st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
        "user": st.just("u"),
    },
)


def _asked(grid: Grid) -> list[dict[str, Any]]:
    """Return what varies, trial by trial."""
    return [
        {
            "prompt": trial.request.prompt,
            "model": trial.request.model,
            **({"system": trial.request.system} if trial.request.system else {}),
            **trial.request.params,
        }
        for trial in grid
    ]


@pytest.mark.slow
@given(axes, st.lists(st.sampled_from("pqr"), min_size=1, unique=True))
def test_is_the_product_in_the_order_as_written(
    varied: dict[str, Any], prompts: list[str]
) -> None:
    """Every combination is there once; the last list varies fastest."""
    grid = build_grid(prompts, varied=varied)

    expected: list[dict[str, Any]] = [{"prompt": prompt} for prompt in prompts]
    for name, values in varied.items():
        several = values if isinstance(values, list) else [values]
        expected = [
            combination | ({} if value is None else {name: value})
            for combination in expected
            for value in several
        ]
    assert _asked(grid) == expected


@pytest.mark.slow
@given(axes, st.integers(1, 4))
def test_repeats_stand_side_by_side(varied: dict[str, Any], repeats: int) -> None:
    """Each combination comes so many times, with one request_key and numbers from 0."""
    once = build_grid("p", varied=varied)

    grid = build_grid("p", varied=varied, repeats=repeats)

    assert [trial.key for trial in grid] == [
        (trial.request_key, repeat) for trial in once for repeat in range(repeats)
    ]


@pytest.mark.slow
@given(axes)
def test_no_two_trials_have_the_same_key(varied: dict[str, Any]) -> None:
    """What tells trials apart is unique in a grid."""
    grid = build_grid(["p", "q"], varied=varied, repeats=2)

    assert len({trial.key for trial in grid}) == len(grid)


@pytest.mark.slow
@given(axes, st.randoms())
def test_trial_ids_do_not_depend_on_the_grid(
    varied: dict[str, Any], random: Random
) -> None:
    """A combination has the same request_key in whatever grid and order it stands."""
    names = list(varied)
    random.shuffle(names)

    one = build_grid(["p", "q"], varied=varied)
    other = build_grid(["q", "p"], varied={name: varied[name] for name in names})

    assert {trial.request_key for trial in one} == {
        trial.request_key for trial in other
    }


@pytest.mark.slow
@given(axes, st.integers(1, 2), st.sampled_from([None, lambda c: c["row_id"] != 1]))
def test_the_key_of_a_trial_is_known_without_its_request(
    varied: dict[str, Any], repeats: int, where: Predicate | None
) -> None:
    """Frames find the reply of a trial by the key that it was sent with."""
    rows = [{"row_id": at, "text": text} for at, text in enumerate("abab")]
    prompts = ["Say {{text}}", "Sing {{text}}, \\{{a}}", "{{text}} {{row_id}}"]
    grid = build_grid(prompts, varied=varied, rows=rows, repeats=repeats, where=where)

    places = list(grid.places())

    assert [key for key, _ in places] == [trial.key for trial in grid]
    assert len({key for key, _ in places}) == len(grid)
    shown = [(columns["row"], columns["prompt_template"]) for _, columns in places]
    sent = [(trial.row, trial.columns["prompt_template"]) for trial in grid]
    assert shown == sent


def test_the_trial_id_stays_what_it_is() -> None:
    """A request_key means the same tomorrow: ledgers are full of them."""
    request = build_request("Hi", model=MODEL, params={"temperature": 0, "n": 2})

    assert request_key_of(request) == "c0bc42ff61d0b0d4"


def test_the_ids_of_filled_trials_stay_what_they_are() -> None:
    """Templates, labels and equal rows are part of a key, always in the same way."""
    conditions = [{"model": MODEL, "temperature": 0, "tone": "dry"}]
    grid = build_grid(
        "{{tone}} {{text}}", varied={}, conditions=conditions, rows=["a", "b", "a"]
    )

    assert [trial.request_key for trial in grid] == [
        "03a3fb2cd94fe1b8",
        "05a538df7a9063cb",
        "03a3fb2cd94fe1b8-2",
    ]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"temperature": 0}, {"temperature": 0.0}, True),
        ({"temperature": 0, "n": 2}, {"n": 2, "temperature": 0}, True),
        ({"stop": ["a"]}, {"stop": ("a",)}, True),
        ({"stop": ["a"]}, {"stop": "a"}, False),
        ({}, {"temperature": 0.7}, False),
        ({"n": 1}, {"n": 2}, False),
        ({"tools": [TOOL]}, {}, False),
    ],
)
def test_the_trial_id_is_of_what_is_sent(
    one: dict[str, Any], other: dict[str, Any], is_same: bool
) -> None:
    """The same request has the same key, however it was written; others differ."""
    ids = [
        request_key_of(build_request("Hi", model=MODEL, params=params))
        for params in (one, other)
    ]

    assert (ids[0] == ids[1]) is is_same


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("stop", "END", ["END"]),
        ("stop", ["a", "b"], [("a", "b")]),
        ("stop", [["a", "b"], ["c"]], [("a", "b"), ("c",)]),
        ("stop", [None, ["c"], "d"], [None, ("c",), "d"]),
        ("temperature", 0.5, [0.5]),
        ("temperature", [0, None], [0, None]),
        ("temperature", (0, 1), [0, 1]),
        ("temperature", np.array([0.0, 0.5]), [0.0, 0.5]),
        ("temperature", pd.Series([0.0, 0.5]), [0.0, 0.5]),
        ("temperature", np.float64(0.5), [0.5]),
        ("n", range(1, 3), [1, 2]),
    ],
)
def test_tells_a_list_of_values_from_a_value(
    name: str, value: object, expected: list[object]
) -> None:
    """A list varies a parameter; a list of texts is one value of stop."""
    grid = build_grid("p", varied={"model": MODEL, name: value})

    assert [trial.request.params.get(name) for trial in grid] == expected


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([TOOL], [(TOOL,)]),
        ([[TOOL], []], [(TOOL,), ()]),
        ([None, [TOOL]], [(), (TOOL,)]),
    ],
)
def test_tells_tools_from_lists_of_tools(
    tools: object, expected: list[tuple[object, ...]]
) -> None:
    """A list of definitions is one value of tools; a list of lists varies it."""
    grid = build_grid("p", varied={"model": MODEL, "tools": tools})

    assert [trial.request.tools for trial in grid] == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("one", ["one"]),
        (["one", "two"], ["one", "two"]),
        (pd.Series(["one", "two"]), ["one", "two"]),
        ([user("one")], ["one"]),
        ([{"role": "user", "content": "one"}], ["one"]),
        ([[user("one")], "two"], ["one", "two"]),
    ],
)
def test_tells_prompts_from_messages(prompt: object, expected: list[str]) -> None:
    """A list of texts is several prompts, a list of messages is one."""
    grid = build_grid(prompt, varied={"model": MODEL})

    assert [trial.request.prompt for trial in grid] == expected


@pytest.mark.parametrize(
    ("varied", "said"),
    [
        ({"temperature": [0, 3]}, "temperature must be a number from 0 to 2; got 3"),
        ({"temperature": [0, 3]}, "combination temperature=3; nothing was sent"),
        ({"model": ["a", ""], "n": [1]}, "combination model=''"),
        ({"temperature": []}, "temperature is an empty list"),
        ({"temperature": {0, 1}}, "a set, which has no order"),
        ({"temprature": [0]}, "Did you mean temperature?"),
        ({"temperature": [0, 0.0]}, "temperature=0 and temperature=0.0"),
        ({"temperature": [0, 0.0]}, "use repeats=2"),
        ({"stop": [["a"] * 5, "b"]}, "up to 4 texts"),
        ({"tools": "add"}, "got str"),
    ],
)
def test_refuses_before_anything_is_sent(varied: dict[str, Any], said: str) -> None:
    """What is not allowed is refused, with the combination and the way on."""
    with pytest.raises(ParameterError) as caught:
        build_grid("p", varied={"model": MODEL, **varied})

    assert said in str(caught.value)


@pytest.mark.parametrize("prompt", [[], 5, None, "half \ud83d", [[]]])
def test_refuses_what_is_no_prompt(prompt: object) -> None:
    """A prompt that cannot be sent is refused."""
    with pytest.raises(ParameterError):
        build_grid(prompt, varied={"model": MODEL})


@pytest.mark.parametrize("repeats", [0, -1, 1.5, True, "2", None])
def test_refuses_repeats_that_are_no_count(repeats: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """Repeats is an integer of at least 1."""
    with pytest.raises(ParameterError, match="must be an integer >= 1"):
        build_grid("p", varied={"model": MODEL}, repeats=repeats)

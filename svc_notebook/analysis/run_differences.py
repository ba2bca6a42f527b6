"""What differs between two runs besides their replies: prompts, settings, tools."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from svc_notebook.ledger.reply_columns import EXTRA
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import PARAM_NAMES, printable, shorten

from .reply_factors import LABEL, TEMPLATE, coded, in_words

_TEXTS = {"prompt": "prompt", "system": "system message"}
_SHOWN_CHARS = 30
_SHOWN_VALUES = 3


class RunFacts(NamedTuple):
    """What a run knows that its replies do not say.

    Attributes:
        scores: A digest of the function of each score, by name; "" if it is not known.
        tools: The names of the offered tools, and their definitions as text.
    """

    scores: Mapping[str, str]
    tools: tuple[str, str]


def run_differences(
    runs: Mapping[str, pd.DataFrame], facts: Mapping[str, RunFacts], on: str
) -> list[str]:
    """Say what differs between two runs, such as "max_tokens (10 in a, 20 in b)".

    Values that both runs have are compared with each other. So a factor differs only if
    they share none of its values, or if a label has other values in the other run.

    Args:
        runs: The replies of two runs, by the name of the run.
        facts: What else is known of some of the runs, by name.
        on: The column that is compared.
    """
    first, second = runs.values()
    settings = [
        name
        for name in map(str, first.columns)
        if name in second and (name in ("model", *PARAM_NAMES) or _is_extra(name))
    ]
    differences = [
        *(line for name in _TEXTS for line in _text_difference(name, runs)),
        *(line for name in settings for line in _setting_difference(name, runs)),
    ]
    if all(name in facts for name in runs):
        differences += _fact_differences({name: facts[name] for name in runs}, on)
    return differences


def only_in_one_run(
    runs: Mapping[str, pd.DataFrame], factors: Iterable[str]
) -> list[str]:
    """Say which values of factors are left out, because one run does not have them."""
    lines = []
    for name in factors:
        first, second = ({*map(str, coded(df[name])[1])} for df in runs.values())
        if not first & second:
            continue  # then whole rows are compared
        lines += [
            f"{name} {shorten(printable(value), _SHOWN_CHARS)}, which only {run} has"
            for run, alone in zip(runs, (first - second, second - first), strict=True)
            for value in sorted(alone)
        ]
    return lines


def _is_extra(name: str) -> bool:
    return name.startswith(EXTRA)


def _text_difference(name: str, runs: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Say that a text differs, and under which labels.

    Templates are compared, or without them the texts of each row. A prompt without a
    row differs nowhere, because replies are paired by it.
    """
    frames = list(runs.values())
    column, keys = f"{name}{TEMPLATE}", _label_columns(name, frames)
    if not _all_have(column, frames):
        column = name
        if _all_have("row", frames):
            keys.append("row")
        elif name == "prompt":
            return
    old, new = (_values_by_key(column, keys, frame) for frame in frames)
    differing = [key for key in old if key in new and old[key] != new[key]]
    if not differing:
        return
    if not _all_have(column, frames):
        [run] = [run for run, frame in runs.items() if _all_have(column, [frame])]
        yield f"the {_TEXTS[name]} (only {run} has one)"
    elif keys and keys[0] != "row":
        labels = dict.fromkeys(shorten(str(key[0]), _SHOWN_CHARS) for key in differing)
        listed = ", ".join(f"`{printable(label)}`" for label in labels)
        yield f"the text of {name} {listed}"
    else:
        yield f"the text of the {_TEXTS[name]}"


def _label_columns(name: str, frames: Iterable[pd.DataFrame]) -> list[str]:
    label = f"{name}{LABEL}"
    return [label] if _all_have(label, frames) else []


def _all_have(column: str, frames: Iterable[pd.DataFrame]) -> bool:
    return all(column in frame and frame[column].notna().any() for frame in frames)


def _values_by_key(
    column: str, keys: Sequence[str], frame: pd.DataFrame
) -> dict[tuple[Any, ...], set[str]]:
    """Return the values of a column in words, by the values of other columns."""
    parts = [frame[key].astype(object).tolist() for key in keys]
    values: dict[tuple[Any, ...], set[str]] = {}
    words = (in_words(column, value) for value in frame[column].astype(object))
    for *key, text in zip(*parts, words, strict=True):
        values.setdefault(tuple(key), set()).add(text)
    return values


def _setting_difference(name: str, runs: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Say that two runs share no value of a setting, also where labels are the same."""
    keys = _label_columns(name, runs.values())
    old, new = (_values_by_key(name, keys, frame) for frame in runs.values())
    shared = [key for key in old if key in new]
    if any(old[key].isdisjoint(new[key]) for key in shared):
        values = [_values_in_words(name, frame) for frame in runs.values()]
        listed = ", ".join(
            f"{value} in {run}" for value, run in zip(values, runs, strict=True)
        )
        yield f"{name} ({listed})"


def _values_in_words(name: str, frame: pd.DataFrame) -> str:
    texts = [
        shorten(printable(in_words(name, value)), _SHOWN_CHARS)
        for value in coded(frame[name])[1]
    ]
    more = " and others" if len(texts) > _SHOWN_VALUES else ""
    return "/".join(texts[:_SHOWN_VALUES]) + more


def _fact_differences(facts: Mapping[str, RunFacts], on: str) -> Iterator[str]:
    first, second = facts.values()
    if first.tools != second.tools:
        names = [of_run.tools[0] or "none" for of_run in facts.values()]
        if names[0] == names[1]:
            yield f"the definitions of the tools ({names[0]})"
        else:
            listed = ", ".join(map("{} in {}".format, names, facts))
            yield f"tools ({listed})"
    score = on.removeprefix(PREFIX)
    functions = [of_run.scores.get(score) for of_run in facts.values()]
    if all(functions) and functions[0] != functions[1]:
        yield f"the function that scores `{score}`"

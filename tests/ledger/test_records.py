"""An exchange and its row."""

from collections.abc import Callable
from datetime import UTC
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.exchange import Exchange, Failure, Origin
from svc_notebook.ledger.exchange_rows import Outline, from_row, to_row
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import (
    CompletionRequest,
    FunctionCall,
    Message,
    ToolCall,
    build_request,
)

MakeExchange = Callable[..., Exchange]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
maybe_texts = st.none() | texts
counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e6)
instants = st.datetimes().map(lambda instant: instant.replace(tzinfo=UTC, fold=0))
calls = st.builds(
    ToolCall, id=texts, function=st.builds(FunctionCall, name=texts, arguments=texts)
)
choices = st.builds(
    Choice,
    index=counts,
    text=maybe_texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    finish_reason=maybe_texts,
)
bodies = st.builds(
    CompletionBody,
    id=maybe_texts,
    created=st.none() | counts,
    model=maybe_texts,
    choices=st.lists(choices, max_size=3).map(tuple),
    usage=st.none() | st.builds(Usage, prompt_tokens=st.none() | counts),
)
requests = st.builds(
    CompletionRequest,
    model=texts,
    messages=st.tuples(st.builds(Message, role=st.just("user"), content=texts)),
    params=st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 2) | st.integers(0, 2),
            "stop": texts | st.lists(texts, min_size=1, max_size=4).map(tuple),
        },
    ),
    extra=st.dictionaries(texts, texts | counts, max_size=2),
)
exchanges = st.builds(
    Exchange,
    exchange_id=texts,
    origin=st.builds(
        Origin,
        kind=st.sampled_from(["magic", "panel", "sweep", "frame", "python"]),
        run=maybe_texts,
        columns=st.dictionaries(texts, maybe_texts | counts | st.booleans()),
    ),
    endpoint=texts,
    request=requests,
    body=st.none() | bodies,
    status=st.sampled_from(["ok", "error", "cancelled"]),
    failure=st.none() | st.builds(Failure, type=texts, message=texts),
    queue_s=seconds,
    first_text_s=st.none() | seconds,
    started_at=instants,
    ended_at=instants,
)


@pytest.mark.slow
@given(exchanges)
def test_comes_back_equal(told: Exchange) -> None:
    """Every exchange is read back equal, types of its values included."""
    row = to_row(told, "s")

    got = from_row(
        row["record"].encode(), row["record_crc32"], exchange_id=b"x", place="here"
    )

    assert repr(got) == repr(told)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),  # noqa: FBT003 - the value
        (pd.Timestamp("2026-01-01", tz="UTC"), "2026-01-01T00:00:00+00:00"),
        (pd.NA, None),
        (pd.NaT, None),
        (float("nan"), None),
        (complex(1, 2), "(1+2j)"),
        ("half \ud83d", "half ?"),
        ({"a": ["\ud83d"]}, {"a": ["?"]}),
        ({(1, 2): {None: 3}}, {"(1, 2)": {"None": 3}}),
    ],
)
def test_keeps_any_template_value(
    make: MakeExchange,
    value: Any,  # noqa: ANN401 - anything a user's frame holds
    kept: object,
) -> None:
    """A template column of any type is kept as the nearest thing JSON has."""
    row = to_row(make(origin=Origin(columns={"v": value})), "s")

    got = from_row(
        row["record"].encode(), row["record_crc32"], exchange_id=b"x", place="here"
    )

    assert got.origin.columns == {"v": kept}


def test_a_text_of_a_row_is_in_the_record_once(make: MakeExchange) -> None:
    """A template column that the prompt was filled from is not written again."""
    text = "ชา and coffee, " * 10
    request = build_request(f"Translate: {text}!", model="m")
    columns = {"text": text, "label": "short", "other": "not in the prompt " * 4}
    row = to_row(make(request=request, origin=Origin(columns=columns)), "s")

    got = from_row(
        row["record"].encode(), row["record_crc32"], exchange_id=b"x", place="here"
    )

    assert row["record"].count("and coffee") == 10
    assert got.origin.columns == columns
    assert list(got.origin.columns) == list(columns)


@pytest.mark.slow
@given(exchanges)
def test_an_outline_is_the_exchange_without_its_texts(told: Exchange) -> None:
    """Without texts an exchange has everything else, as it was."""
    row = to_row(told, "s")
    request = msgspec.structs.replace(told.request, messages=(), tools=())
    origin = msgspec.structs.replace(told.origin, columns={})
    body = told.body and msgspec.structs.replace(
        told.body,
        choices=tuple(msgspec.structs.replace(c, text=None) for c in told.choices),
    )

    got = from_row(
        row["record"].encode(),
        row["record_crc32"],
        exchange_id=b"x",
        place="here",
        texts=False,
    )

    assert isinstance(got, Outline)
    expected = msgspec.structs.replace(told, request=request, origin=origin, body=body)
    assert msgspec.to_builtins(got) == {
        **msgspec.to_builtins(expected),
        "origin": _renamed(expected.origin, columns="-"),
        "request": _renamed(expected.request, messages="-", tools="-tools"),
        "body": None if body is None else _outline_of(body),
    }


def _renamed(value: msgspec.Struct, **names: str) -> dict[str, Any]:
    plain = msgspec.to_builtins(value)
    return {names.get(name, name): each for name, each in plain.items()}


def _outline_of(body: CompletionBody) -> dict[str, Any]:
    choices = tuple(_renamed(choice, text="-") for choice in body.choices)
    return {**msgspec.to_builtins(body), "choices": choices}

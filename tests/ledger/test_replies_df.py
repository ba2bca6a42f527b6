"""The frame of replies: one schema, stated dtypes, no two columns of one name."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Failure, Origin
from svc_notebook.ledger.column_meanings import describe
from svc_notebook.ledger.reply_columns import dtype_of, template_columns
from svc_notebook.ledger.reply_frames import (
    put_score,
    replies_frame,
    select_columns,
    to_array,
)
from svc_notebook.service.chunk import Choice, CompletionBody, Usage
from svc_notebook.service.request import FunctionCall, ToolCall, build_request

MakeExchange = Callable[..., Exchange]

SCHEMA = {
    "model": "string",
    "temperature": "Float64",
    "text": "string",
    "answer": "string",
    "answer_ok": "boolean",
    "answer_error": "string",
    "prompt": "string",
    "system": "string",
    "max_tokens": "Int64",
    "top_p": "Float64",
    "n": "Int64",
    "stop": "string",
    "presence_penalty": "Float64",
    "frequency_penalty": "Float64",
    "repetition_penalty": "Float64",
    "user": "string",
    "repeat": "Int64",
    "choice_index": "Int64",
    "n_tool_calls": "Int64",
    "tool_calls": "string",
    "reasoning": "string",
    "n_rounds": "Int64",
    "n_tool_runs": "Int64",
    "error_type": "string",
    "http_status": "Int64",
    "error_code": "string",
    "error_param": "string",
    "error_message": "string",
    "n_attempts": "Int64",
    "n_refused": "Int64",
    "origin": "string",
    "conversation": "string",
    "run": "string",
    "endpoint": "string",
    "is_emulated": "boolean",
    "emulator_note": "string",
    "is_reused": "boolean",
    "is_streamed": "boolean",
    "model_returned": "string",
    "created_at": "datetime64[us, UTC]",
    "request_key": "string",
    "exchange_id": "string",
    "completion_id": "string",
    "continues": "string",
    "est_prompt_tokens": "Int64",
    "est_completion_tokens": "Int64",
    "est_low_tokens": "Int64",
    "est_high_tokens": "Int64",
    "usage_source": "string",
    "cost_source": "string",
    "first_text_s": "Float64",
    "queue_s": "Float64",
    "retry_wait_s": "Float64",
    "n_chunks": "Int64",
    "started_at": "datetime64[us, UTC]",
    "ended_at": "datetime64[us, UTC]",
    "status": "string",
    "finish_reason": "string",
    "is_cut": "boolean",
    "prompt_tokens": "Int64",
    "completion_tokens": "Int64",
    "total_tokens": "Int64",
    "cost": "Float64",
    "latency_s": "Float64",
}


def _failed(make: MakeExchange) -> Exchange:
    failure = Failure(
        type="BadRequestError", message="No.", http_status=400, code="c", param="p"
    )
    return make(1, body=None, status="error", failure=failure, latency_s=None)


def _cancelled(make: MakeExchange) -> Exchange:
    body = CompletionBody(choices=(Choice(text="Hel"),))
    return make(2, body=body, status="cancelled", failure=Failure(type="Cancelled"))


def _dtypes(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def _row(frame: pd.DataFrame) -> dict[str, Any]:
    """Return what a row holds, without its missing values."""
    row = frame.iloc[0]
    return {
        str(name): value for name, value in row.to_dict().items() if not pd.isna(value)
    }


@pytest.mark.parametrize("kinds", ["", "o", "f", "c", "ofc", "ff"])
def test_has_the_same_dtypes_whatever_is_in_it(make: MakeExchange, kinds: str) -> None:
    """No rows, only good, only failed, only cancelled ones: the dtypes are the same."""
    one = {"o": make(), "f": _failed(make), "c": _cancelled(make)}

    frame = replies_frame(one[kind] for kind in kinds)

    assert _dtypes(frame) == SCHEMA
    assert len(frame) == len(kinds)


def test_shows_a_good_exchange_whole(make: MakeExchange) -> None:
    """A good exchange fills the columns of what was asked and what came."""
    request = build_request(
        "Say hello.",
        model="svc-v2-8b-instruct",
        system="Be brief.",
        params={"temperature": 0, "stop": ["a", "b"], "max_tokens": 20, "user": "u"},
    )
    origin = Origin(kind="sweep", run="r", request_key="c", repeat=1)

    row = _row(replies_frame([make(request=request, origin=origin)]))

    assert row == {
        "exchange_id": "x0000",
        "completion_id": "c0",
        "origin": "sweep",
        "run": "r",
        "request_key": "c",
        "repeat": 1,
        "choice_index": 0,
        "endpoint": "https://service.test/v1",
        "is_emulated": False,
        "is_reused": False,
        "is_streamed": False,
        "model": "svc-v2-8b-instruct",
        "model_returned": "svc-v2-8b-instruct",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "temperature": 0.0,
        "max_tokens": 20,
        "stop": '["a","b"]',
        "user": "u",
        "system": "Be brief.",
        "prompt": "Say hello.",
        "text": "Hello.",
        "finish_reason": "stop",
        "is_cut": False,
        "n_tool_calls": 0,
        "status": "ok",
        "n_attempts": 1,
        "n_refused": 0,
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "total_tokens": 12,
        "est_prompt_tokens": 8,
        "est_completion_tokens": 3,
        "usage_source": "reported",
        "queue_s": 0.0,
        "retry_wait_s": 0.0,
        "latency_s": 0.5,
        "n_chunks": 0,
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "ended_at": datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC),
    }


def test_shows_why_a_request_failed(make: MakeExchange) -> None:
    """A failed exchange has one row with the error and no text."""
    row = _row(replies_frame([_failed(make)]))

    names = ("status", "error_type", "http_status", "error_code", "error_param")
    assert [row[name] for name in names] == ["error", "BadRequestError", 400, "c", "p"]
    assert row["error_message"] == "No."
    assert row["usage_source"] == "missing"
    assert row["choice_index"] == 0
    assert "text" not in row


def test_tells_an_empty_reply_from_none(make: MakeExchange) -> None:
    """An empty reply is "", a reply with tool calls alone has no text."""
    call = ToolCall(id="t", function=FunctionCall(name="f", arguments="{}"))
    choices = (
        Choice(index=0, text="", finish_reason="stop"),
        Choice(index=1, text=None, tool_calls=(call,), finish_reason="stop"),
    )

    frame = replies_frame([make(body=CompletionBody(choices=choices))])

    assert frame["text"].isna().tolist() == [False, True]
    assert frame["text"][0] == ""
    assert frame["n_tool_calls"].tolist() == [0, 1]
    assert frame["tool_calls"][1] == (
        '[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]'
    )


def test_numbers_of_the_request_stand_on_its_first_choice(make: MakeExchange) -> None:
    """Sums and means over choices are those over requests."""
    choices = tuple(Choice(index=at, text="t", finish_reason="stop") for at in range(3))
    usage = Usage(prompt_tokens=10, completion_tokens=6, total_tokens=16)
    many = make(1, body=CompletionBody(choices=choices, usage=usage), latency_s=2.0)

    frame = replies_frame([make(0), many])

    assert frame["choice_index"].tolist() == [0, 0, 1, 2]
    assert frame["total_tokens"].sum() == 12 + 16
    assert frame["latency_s"].mean() == (0.5 + 2.0) / 2
    assert frame["est_prompt_tokens"].count() == 2
    assert frame["model"].count() == 4


def test_puts_template_columns_in_front(make: MakeExchange) -> None:
    """Template columns come first, with a dtype that holds their values."""
    first: dict[str, Any] = {
        "word": "a",
        "size": 1,
        "share": 1,
        "is_new": True,
        "text": "b",
    }
    second = {"size": None, "share": 0.5, "mixed": 3}
    rows = [
        make(0, origin=Origin(columns=first)),
        make(1, origin=Origin(columns=second)),
        make(2, origin=Origin(columns={"mixed": "three"})),
    ]

    frame = replies_frame(rows)

    expected = pd.DataFrame(
        {
            "word": pd.array(["a", None, None], dtype="string"),
            "size": pd.array([1, None, None], dtype="Int64"),
            "share": pd.array([1.0, 0.5, None], dtype="Float64"),
            "is_new": pd.array([True, None, None], dtype="boolean"),
            "var_text": pd.array(["b", None, None], dtype="string"),
            "mixed": pd.array([None, "3", "three"], dtype="string"),
        }
    )
    assert_frame_equal(frame.iloc[:, :6], expected)
    assert frame.columns[6:].tolist() == list(SCHEMA)


def test_a_clash_never_makes_two_columns_of_one_name(make: MakeExchange) -> None:
    """A template column var_text beside text leaves every name unique."""
    columns = {"text": "one", "var_text": "two"}

    frame = replies_frame([make(origin=Origin(columns=columns))])

    assert frame.columns.is_unique
    assert frame["var_text"][0] == "two"
    assert frame["var_var_text"][0] == "one"


@pytest.mark.parametrize("created", [10**18, -(10**18), None])
def test_leaves_out_what_no_column_can_hold(
    make: MakeExchange, created: int | None
) -> None:
    """A creation time or a count that is out of this world is missing, not a crash."""
    body = CompletionBody(
        created=created,
        choices=(Choice(text="\ud83d", finish_reason="stop"),),
        usage=Usage(prompt_tokens=2**64),
    )

    row = _row(replies_frame([make(body=body)]))

    assert "created_at" not in row
    assert "prompt_tokens" not in row
    assert row["text"] == "?"


def test_describes_only_frames() -> None:
    """What is no frame is refused."""
    anything: Any = "replies"

    with pytest.raises(ParameterError, match="takes a DataFrame"):
        describe(anything)


def test_a_narrow_frame_has_what_differs(make: MakeExchange) -> None:
    """It has neither empty nor constant columns, but for the text and scores."""
    rows = [make(at, origin=Origin(columns={"word": "ab"[at]})) for at in range(2)]
    frame = replies_frame(rows).assign(score_right=1, user=pd.array(["x", None]))
    frame["answer_error"] = "No label."

    narrow = select_columns(frame, "narrow")

    kept = {"word", "user", "text", "answer_error", "score_right", "started_at"}
    assert kept <= set(narrow)
    assert not {"model", "temperature", "status", "answer", "run"} & set(narrow)


def test_a_narrow_frame_fits_a_page(make: MakeExchange) -> None:
    """It has what people compare: no ids, no estimates beside reports, no waits."""
    rows = [
        make(
            at,
            request=build_request(f"Say {at}", model="ab"[at]),
            body=CompletionBody(
                choices=(Choice(text=f"t {at}", finish_reason=("stop", "length")[at]),),
                usage=Usage(
                    prompt_tokens=5 + at, completion_tokens=9 + at, total_tokens=14
                ),
            ),
            origin=Origin(run=f"run {at}", conversation=f"talk {at}"),
            latency_s=0.5 + at,
            queue_s=0.1 + at,
        )
        for at in range(2)
    ]
    frame = replies_frame(rows).assign(
        cost=[0.1, 0.2], est_prompt_tokens=[5, 7], est_completion_tokens=[9, 8]
    )

    assert list(select_columns(frame, "narrow")) == [
        *("model", "text", "prompt", "conversation", "run", "started_at"),
        *("finish_reason", "is_cut", "prompt_tokens", "completion_tokens"),
        *("cost", "latency_s"),
    ]
    frame["prompt_tokens"] = to_array([None, None], "Int64")
    unreported = select_columns(frame, "narrow")
    assert "est_prompt_tokens" in unreported
    assert "est_completion_tokens" not in unreported


@pytest.mark.parametrize("n_own", [0, 3, 4, 12])
@pytest.mark.parametrize("columns", [None, "narrow"])
def test_a_frame_begins_with_what_pandas_shows(
    make: MakeExchange, columns: Literal["narrow"] | None, n_own: int
) -> None:
    """Labels, text, answer and a score are in the first ten, however wide the rows."""
    own = dict.fromkeys((f"own_{n}" for n in range(n_own)), "x")
    template = {**own, "model_label": "small"}
    rows = [make(at, origin=Origin(columns=template)) for at in range(2)]
    frame = replies_frame(rows)
    changed = {name: ["a", "b"] for name in (*template, "prompt", "model", "answer")}
    frame = frame.assign(**changed)
    put_score(frame, "score_right", to_array([1, 0], "Int64"))

    names = list(select_columns(frame, columns))

    first = {"model_label", "model", "text", "answer", "score_right"}
    assert first | {*list(own)[:4]} <= {*names[:10]}
    assert {*own, "prompt"} <= {*names}
    if columns is None:
        assert {*names} == {*frame}
        assert names[-2:] == ["cost", "latency_s"]


def test_pandas_shows_text_answer_and_score(make: MakeExchange) -> None:
    """A cell shows them with pandas' usual limit of 20 columns."""
    rows = [make(at, origin=Origin(columns={"label": "spam"})) for at in range(2)]
    frame = replies_frame(rows)
    put_score(frame, "score_right", to_array([1, 0], "Int64"))

    shown = select_columns(frame, None).to_html(max_cols=20)

    for name in ("label", "model", "text", "answer", "score_right", "latency_s"):
        assert f"<th>{name}</th>" in shown


def test_a_frame_has_the_columns_that_are_named(make: MakeExchange) -> None:
    """They come in the order of the names; an unknown one is refused."""
    frame = replies_frame([make()])

    assert list(select_columns(frame, ["text", "model"])) == ["text", "model"]
    with pytest.raises(ParameterError, match="Did you mean model"):
        select_columns(frame, ["modle"])
    with pytest.raises(ParameterError, match="or 'narrow' for what differs"):
        select_columns(frame, "wide")


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "string"),
        ([None], "string"),
        ([1, None], "Int64"),
        ([1, 0.5], "Float64"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        ([2**63], "string"),
        ([NOON], "datetime64[us, UTC]"),
        ([NOON.replace(tzinfo=None)], "string"),
        (["a", 1], "string"),
        ([[1, 2]], "string"),
    ],
)
def test_states_one_dtype_for_all_values(values: list[object], expected: str) -> None:
    """A dtype that holds every value unchanged, or else text."""
    assert dtype_of(values) == expected


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.text(), st.integers())), st.sets(st.text()))
def test_template_columns_never_share_a_name(
    found: list[dict[str, int]], taken: set[str]
) -> None:
    """However they are called, template columns clash with no other column."""
    columns = template_columns(found, taken)

    names = [column.name for column in columns]
    assert len({*names, *taken}) == len(names) + len(taken)
    assert len(columns) == len({name for each in found for name in each})

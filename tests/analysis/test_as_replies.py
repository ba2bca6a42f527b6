"""Replies that were made elsewhere, as frames that all verbs take."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest

import svc_notebook as svc
from svc_notebook.ledger.reply_frames import replies_frame


def _outputs(n: int = 6) -> pd.DataFrame:
    """Return what a script may have kept: two engines, each asked every question."""
    return pd.DataFrame(
        {
            "id": [f"q{i}" for i in range(n) for _ in range(2)],
            "language": ["th" if i % 2 else "en" for i in range(n) for _ in range(2)],
            "engine": ["old", "new"] * n,
            "output": ["สวัสดี", "hello"] * n,
            "correct": [i % 3 == 0 or side for i in range(n) for side in (False, True)],
            "wait": [0.5, 0.25] * n,
        }
    )


def _replies() -> pd.DataFrame:
    known = {"model": "engine", "row": "id", "latency_s": "wait"}
    return svc.as_replies(_outputs(), "output", scores="correct", **known)


def test_a_frame_of_few_columns_has_the_schema_of_replies() -> None:
    """All columns of `replies_df` are there in its order and its dtypes."""
    empty = replies_frame([])
    replies = _replies()

    shared = [name for name in replies if name in empty]
    assert shared == list(empty)
    assert (replies[shared].dtypes == empty.dtypes).all()
    assert list(replies)[:3] == ["row", "language", "model"]
    assert replies["score_correct"].tolist()[:4] == [True, True, False, True]
    assert replies["status"].tolist() == ["ok"] * 12


@pytest.mark.slow
def test_every_verb_takes_it() -> None:
    """Summary, contrast, sample size and table are about these replies."""
    replies = _replies()

    summary = svc.summary_df(replies, "model").set_index("model")
    assert summary["correct"].round(3).to_dict() == {"old": 0.333, "new": 1.0}
    assert summary["latency_p50_s"].to_dict() == {"old": 0.5, "new": 0.25}
    contrast = svc.contrast_df(replies, "model", "correct", against="old")
    assert contrast["n_prompts"].tolist() == [6]
    assert contrast["difference"].round(3).tolist() == [0.667]
    assert svc.how_many(0.1, pilot=replies, factor="model").n_prompts > 20
    assert "row: q0" in str(svc.compare(replies))
    assert "สวัสดี" in json.dumps(
        svc.plot(replies, "correct", by="model").chart.to_dict(), ensure_ascii=False
    )


class _ArrowOnly:
    """What Polars, DuckDB and others give: nothing but a stream of Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self._table.__arrow_c_stream__(schema)


@pytest.mark.parametrize("wrap", [lambda table: table, _ArrowOnly])
def test_arrow_and_polars_give_the_same_frame(
    wrap: Callable[[pa.Table], object],
) -> None:
    """A frame is read through its stream of Arrow, gaps in integers included."""
    source = _outputs().assign(tokens=pd.array([7, None] * 6, dtype="Int64"))
    known = {"model": "engine", "row": "id", "completion_tokens": "tokens"}

    table = pa.Table.from_pandas(source)
    read = svc.as_replies(wrap(table), "output", **known)

    expected = svc.as_replies(source, "output", **known)
    pd.testing.assert_frame_equal(read, expected, check_dtype=False)
    assert read["completion_tokens"].tolist()[:2] == [7, pd.NA]
    assert read["completion_tokens"].dtype == "Int64"


def test_names_that_are_ours_need_not_be_given() -> None:
    """Columns with the names of `replies_df` are taken as they are."""
    source = pd.DataFrame(
        {"prompt": ["a", "b"], "model": ["x", "x"], "text": ["1", "2"], "cost": [1, 2]}
    )

    replies = svc.as_replies(source)

    assert replies["text"].tolist() == ["1", "2"]
    assert replies["cost"].dtype == "Float64"
    assert "row" not in replies


def test_a_column_of_the_source_gives_way_to_ours() -> None:
    """The source's own `text`, here the question, gets `var_` in front."""
    source = pd.DataFrame({"text": ["Q", "Q"], "output": ["A", "B"], "id": [1, 1]})

    replies = svc.as_replies(source, "output", row="id")

    assert replies["text"].tolist() == ["A", "B"]
    assert replies["var_text"].tolist() == ["Q", "Q"]


def test_repeats_are_counted_within_prompt_and_condition() -> None:
    """Without `repeat`, the replies to one prompt under one condition are numbered."""
    twice = pd.concat([_outputs(2), _outputs(2)])

    replies = svc.as_replies(twice, "output", model="engine", row="id")

    assert replies["repeat"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_named_factors_are_kept_equal() -> None:
    """A factor of theirs is one for contrasts; an outcome that is not named is none."""
    source = pd.concat(
        [_outputs().assign(version=version, stars=range(12)) for version in "AB"]
    )
    replies = svc.as_replies(
        source, "output", model="engine", row="id", factors="version", scores="correct"
    )

    names = list(replies)
    assert names.index("version") < names.index("text") < names.index("stars")
    assert svc.contrast_df(replies, "version", "correct")["difference"].tolist() == [0]
    summary = svc.summary_df(replies)
    assert list(summary)[:2] == ["version", "model"]
    assert summary["n_prompts"].tolist() == [6] * 4


def test_failures_and_cuts_are_told_by_what_is_there() -> None:
    """No text, or an error, is a failure; a finish reason of length is a cut."""
    source = pd.DataFrame(
        {
            "id": range(4),
            "output": ["a", None, "b", "c"],
            "problem": [None, None, "timeout", None],
            "end": ["stop", None, None, "max_tokens"],
        }
    )

    replies = svc.as_replies(
        source, "output", row="id", error_message="problem", finish_reason="end"
    )

    assert replies["status"].tolist() == ["ok", "error", "error", "ok"]
    assert replies["is_cut"].tolist() == [False, pd.NA, pd.NA, True]


def test_ids_are_those_of_the_content() -> None:
    """The same file gives the same ids; equal rows have different ones."""
    source = pd.concat([_outputs(), _outputs()])

    first, second = (
        svc.as_replies(source, "output", row="id", model="engine") for _ in range(2)
    )

    assert first["exchange_id"].is_unique
    assert first["exchange_id"].tolist() == second["exchange_id"].tolist()


def test_runs_of_which_only_rows_are_known_are_paired_by_row() -> None:
    """Two runs without prompts are paired by their row, not taken as one prompt."""
    replies = svc.as_replies(
        _outputs().assign(model="m"), "output", run="engine", row="id", scores="correct"
    )

    contrast = svc.contrast_df(replies, "run", "correct")
    assert contrast["n_prompts"].tolist() == [6]


def test_they_can_be_scored() -> None:
    """`svc.score` and `svc.scores` work on them; the frame gets the columns."""
    replies = svc.as_replies(_outputs().assign(label="hello"), "output", row="id")

    svc.score(replies, right=svc.scores.exact("label"))

    assert replies["score_right"].tolist() == [False, True] * 6


def test_an_index_with_a_name_is_a_column() -> None:
    """The ids may be the index."""
    replies = svc.as_replies(_outputs().set_index("id"), "output", row="id")

    assert replies["row"].tolist()[:3] == ["q0", "q0", "q1"]


def test_no_rows_give_an_empty_frame_with_all_columns() -> None:
    """An empty frame has the same columns."""
    replies = svc.as_replies(_outputs(0), "output", model="engine", row="id")

    assert len(replies) == 0
    assert {"row", "model", "text", "exchange_id"} <= {*replies}
    assert len(svc.summary_df(replies, "model")) == 0


def test_without_rows_and_prompts_nothing_is_paired(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each reply is its own prompt, a line says so, and a contrast names the way."""
    replies = svc.as_replies(_outputs(), "output", model="engine", scores="correct")

    assert "Name the column that says which replies answer" in capsys.readouterr().err
    assert svc.summary_df(replies, "model")["n_prompts"].tolist() == [6, 6]
    with pytest.raises(svc.errors.ParameterError, match="so there are no pairs"):
        svc.contrast_df(replies, "model", "correct")


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("reply='outputs' is not a column.* Did you mean output", {"reply": "outputs"}),
        ("modle is not a column of replies. Did you mean model", {"modle": "engine"}),
        ("model='engin' is not a column of the frame", {"model": "engin"}),
        ("scores='rihgt' is not a column", {"scores": "rihgt"}),
        ("'correct' is used as model, which must be text", {"model": "correct"}),
        ("'engine' is used as latency_s, which must be numb", {"latency_s": "engine"}),
        ("'wait' is used as repeat, which must be whole", {"repeat": "wait"}),
        ("'engine' is used as is_cut, which must be True and", {"is_cut": "engine"}),
        ("'engine' is used as ended_at, which must be inst", {"ended_at": "engine"}),
        ("status has 'new'; it must be one of", {"status": "engine"}),
        ("'gap' is used as row.* 6 of its values are missing", {"row": "gap"}),
    ],
)
def test_what_does_not_fit_is_refused_by_name(said: str, known: dict[str, str]) -> None:
    """The message names the column, what it must hold, and how to make it so."""
    source = _outputs().assign(gap=pd.array([None, 1] * 6, dtype="Int64"))
    with pytest.raises(svc.errors.ParameterError, match=said):
        svc.as_replies(source, **{"reply": "output", "row": "id", **known})


@pytest.mark.parametrize("df", [5, [{"output": "a"}], "replies.csv"])
def test_what_is_no_frame_is_refused(df: object) -> None:
    """Anything without rows and columns is refused by its type."""
    with pytest.raises(svc.errors.ParameterError, match=f"type {type(df).__name__}"):
        svc.as_replies(df)


def test_a_verb_names_what_it_lacks() -> None:
    """A contrast of models, or of seconds, says that there are none."""
    bare = svc.as_replies(_outputs(), "output", row="id", scores="correct")

    with pytest.raises(svc.errors.ParameterError, match="model has only not sent"):
        svc.contrast(bare, "model", "correct")
    silent = svc.as_replies(_outputs(), row="id", scores="correct")
    with pytest.raises(svc.errors.ParameterError, match="No reply of the frame has"):
        svc.compare(silent)
    with pytest.raises(
        svc.errors.ParameterError, match=r"into one with svc.as_replies"
    ):
        svc.compare(_outputs())


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_made_in_a_few_seconds() -> None:
    """Work is by column: no row costs a call of Python but for its id and texts."""
    n = 100_000
    source = pd.DataFrame(
        {"id": np.arange(n) // 2, "model": ["a", "b"] * (n // 2), "output": "x"}
    )

    replies = svc.as_replies(source, "output", row="id")

    assert len(replies) == n
    assert replies["repeat"].eq(0).all()

"""Frames of Polars, Arrow and DuckDB: taken wherever a frame is, and given back."""

import datetime as dt
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from polars.testing.parametric import dataframes

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ConfigError, ParameterError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.pandas import FrameAccessor
from svc_notebook.session import isolated


@pytest.fixture
def emulated(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ask an emulator in a session of this test."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    with isolated():
        yield


KINDS = (
    pl.Boolean,
    pl.Int8,
    pl.Int64,
    pl.UInt8,
    pl.UInt64,
    pl.Float32,
    pl.Float64,
    pl.String,
    pl.Binary,
    pl.Date,
    pl.Time,
    pl.Datetime,
    pl.Duration,
    pl.Decimal,
    pl.Categorical,
    pl.Enum,
    pl.List(pl.String),
    pl.List(pl.Struct({"a": pl.Int64, "b": pl.String})),
    pl.Array(pl.Int16, 2),
    pl.Struct({"text": pl.String, "at": pl.Date, "many": pl.List(pl.Int64)}),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    dataframes(
        allowed_dtypes=KINDS, max_cols=6, min_size=1, allow_null=True, allow_nan=False
    )
)
def test_what_polars_has_survives(frame: pl.DataFrame) -> None:
    """Types and values come back: dates, decimals, enums, lists, structs, nulls."""
    back = svc.to_polars(to_pandas(frame))

    assert_frame_equal(back, frame, categorical_as_str=True)


@pytest.mark.slow
@settings(deadline=None)
@given(dataframes(allowed_dtypes=KINDS, max_cols=6, max_size=0))
def test_an_empty_frame_keeps_its_types(frame: pl.DataFrame) -> None:
    """Without a row the types are those of one with rows; enums lose their values."""
    back = svc.to_polars(to_pandas(frame))

    def kinds(schema: pl.Schema) -> list[object]:
        is_enum = (pl.Enum, pl.Categorical)
        return [pl.Categorical if k in is_enum else k for k in schema.values()]

    assert back.columns == frame.columns
    assert kinds(back.schema) == kinds(frame.schema)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.text("กขค่้าabc\n{}", max_size=8), st.sampled_from(["ดี", "แย่"])),
        min_size=1,
        max_size=5,
    )
)
def test_texts_and_labels_of_any_script_survive(rows: list[tuple[str, str]]) -> None:
    """Thai text and the order of categories come back from Arrow and from Polars."""
    texts, labels = zip(*rows, strict=True)
    frame = pd.DataFrame(
        {
            "text": pd.array(texts, dtype="string"),
            "label": pd.Categorical(labels, ["แย่", "ดี"], ordered=True),
        }
    )

    for other in (svc.to_arrow(frame), svc.to_polars(frame)):
        back = to_pandas(other)
        assert back["text"].tolist() == list(texts)
        assert back["label"].tolist() == list(labels)
        assert back["label"].cat.categories.tolist() == ["แย่", "ดี"]
        assert back["label"].cat.ordered


def test_dtypes_follow_from_types_and_not_from_values() -> None:
    """A number may be missing later, so its dtype allows for it from the start."""
    arrow = pa.table(
        {
            "whole": pa.array([1, 2], pa.int32()),
            "gap": pa.array([1.5, None]),
            "nan": pa.array([float("nan"), 1.0]),
            "flag": [True, False],
            "long": pa.array(["a", "b"], pa.large_string()),
            "view": pa.array(["a", None], pa.string_view()),
            "nothing": pa.nulls(2),
            "half": pa.array([np.float16(0.5), None], pa.float16()),
        }
    )

    frame = to_pandas(arrow)

    assert list(map(str, frame.dtypes)) == [
        *("Int32", "Float64", "Float64", "boolean", "string", "string", "string"),
        "Float32",
    ]
    assert frame["nan"].isna().tolist() == [True, False]


def test_pandas_is_not_copied() -> None:
    """A frame of pandas is taken as it is, and so is what is no frame."""
    frame = pd.DataFrame({"a": [1]})

    assert to_pandas(frame) is frame
    assert to_pandas("a") == "a"


@pytest.mark.usefixtures("emulated")
def test_rows_of_other_kinds_make_the_same_prompts() -> None:
    """Polars, Arrow and pandas rows give the same plan, and their types are kept."""
    rows = pl.DataFrame(
        {
            "text": ["แปล", "sum"],
            "label": pl.Series(["ham", "spam"], dtype=pl.Enum(["spam", "ham"])),
            "day": [dt.date(2026, 1, 2), None],
            "price": [Decimal("1.50"), None],
            "tags": [["a", None], []],
            "at": pl.Series(
                [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None],
                dtype=pl.Datetime("us", "Asia/Bangkok"),
            ),
        }
    )
    prompt = "{{text}} {{label}}"

    of_polars = svc.sweep(prompt, rows=rows).run().replies_df()
    of_arrow = svc.sweep(prompt, rows=rows.to_arrow()).plan_df()
    of_pandas = svc.sweep(prompt, rows=to_pandas(rows)).plan_df()

    assert of_polars["prompt"].tolist() == ["แปล ham", "sum spam"]
    assert of_arrow["prompt"].tolist() == of_polars["prompt"].tolist()
    assert of_pandas["prompt"].tolist() == of_polars["prompt"].tolist()
    shown = svc.to_polars(of_polars).rename({"var_text": "own"}, strict=False)
    own = shown.select(*[n for n in rows.columns if n != "text"])
    assert_frame_equal(own, rows.select(own.columns))


@pytest.mark.usefixtures("emulated")
def test_a_prompt_takes_dates_and_decimals_of_polars() -> None:
    """They are written as Python writes them."""
    rows = pl.DataFrame({"day": [dt.date(2026, 1, 2)], "price": [Decimal("1.50")]})

    plan = svc.sweep("{{day}}: {{price}}", rows=rows).plan_df()

    assert plan["prompt"].tolist() == ["2026-01-02: 1.50"]


@pytest.mark.usefixtures("emulated")
def test_a_named_run_of_polars_rows_is_opened_again() -> None:
    """A run under a name knows its rows by their values, also after a restart."""
    rows = pl.DataFrame({"text": ["a", "b"], "tags": [["x"], ["y"]]})
    svc.sweep("Say {{text}}.", rows=rows, name="of polars").run()

    again = svc.sweep("Say {{text}}.", rows=rows, name="of polars")
    opened = svc.run("of polars").replies_df()

    assert again.n_todo == 0
    assert opened["tags"].tolist() == [["x"], ["y"]]


@pytest.mark.usefixtures("emulated")
def test_a_gap_in_rows_of_polars_is_refused_as_in_pandas() -> None:
    """A null is a missing value; the message names the row."""
    with pytest.raises(ParameterError, match="no value in row 1"):
        svc.sweep("{{text}}", rows=pl.DataFrame({"text": ["a", None]}))


@pytest.mark.usefixtures("emulated")
def test_series_of_polars_and_columns_of_arrow_are_rows() -> None:
    """A series is the column of its name; one without a name is `text`."""
    named = svc.sweep("{{word}}", rows=pl.Series("word", ["a"])).plan_df()
    plain = svc.sweep("{{text}}", rows=pa.chunked_array([["b"]])).plan_df()

    assert [*named["prompt"], *plain["prompt"]] == ["a", "b"]


@pytest.mark.usefixtures("emulated")
def test_conditions_are_a_frame_of_any_library() -> None:
    """`conditions=` takes what `rows=` takes."""
    conditions = pl.DataFrame({"temperature": [0.0, 1.0], "style": ["dry", "wild"]})

    plan = svc.sweep("Hi.", conditions=conditions).plan_df()

    assert plan["temperature"].tolist() == [0.0, 1.0]
    assert plan["style"].tolist() == ["dry", "wild"]


@pytest.mark.usefixtures("emulated")
def test_a_lazy_frame_is_refused_with_what_to_do() -> None:
    """A query has no rows yet."""
    lazy = pl.LazyFrame({"text": ["a"]})
    for use in (
        lambda: svc.sweep("{{text}}", rows=lazy),
        lambda: svc.as_replies(lazy, "text"),
        lambda: svc.summary_df(lazy),  # type: ignore[arg-type]  # refused
        lambda: svc.to_arrow(lazy),
    ):
        with pytest.raises(ParameterError, match=r"Call \.collect\(\) first"):
            use()


def _replies() -> pd.DataFrame:
    return svc.as_replies(
        pl.DataFrame(
            {
                "id": [1, 1, 2, 2, 3, 3],
                "engine": ["old", "new"] * 3,
                "output": ["4", "four", "9", "9", "1", "2"],
                "correct": [True, False, True, True, True, False],
            }
        ),
        "output",
        model="engine",
        row="id",
        scores="correct",
    )


@pytest.mark.slow
@pytest.mark.parametrize("convert", [svc.to_polars, svc.to_arrow])
def test_every_verb_takes_back_what_it_gave(convert: object, tmp_path: Path) -> None:
    """Replies that were in Polars or Arrow give the same as those of pandas."""
    assert callable(convert)
    replies, verbs = _replies(), svc
    other = convert(replies)
    of_frames: tuple[Callable[[Any], pd.DataFrame], ...] = (
        lambda df: verbs.summary_df(df, "model"),
        lambda df: verbs.contrast(df, "model", "correct").df,
        lambda df: verbs.contrast_df(df, "model", "correct"),
        lambda df: verbs.contrast([df, df], "run", "correct").df,
        lambda df: verbs.agreement_df(df, "model", "correct", k=1),
        lambda df: verbs.repeats_df(df, "correct"),
        lambda df: verbs.confusion_df(df, "text", by="model"),
        lambda df: verbs.read_answers(df, int),
        lambda df: verbs.describe(df)[["name", "meaning"]],
        lambda df: verbs.read_parquet(verbs.export(df, tmp_path / "a.parquet")),
    )
    for verb in of_frames:
        pd.testing.assert_frame_equal(verb(other), verb(replies))
    assert str(verbs.compare(other)) == str(verbs.compare(replies))
    needed = verbs.how_many(0.1, pilot=other, factor="model", on="correct")
    same = verbs.how_many(0.1, pilot=replies, factor="model", on="correct")
    assert needed.n_prompts == same.n_prompts
    chart = verbs.plot(other, "correct", by="model").chart.to_dict()
    assert chart == verbs.plot(replies, "correct", by="model").chart.to_dict()


@pytest.mark.usefixtures("emulated")
def test_the_schema_of_replies_comes_back_from_polars() -> None:
    """A frame of replies that was in Polars has the dtypes it had."""
    run = svc.sweep("Say {{text}}.", rows=["a", "b"], temperature=[0, 1]).run()
    replies = run.replies_df()

    pd.testing.assert_frame_equal(to_pandas(svc.to_polars(replies)), replies)
    pd.testing.assert_frame_equal(to_pandas(svc.to_arrow(run)), replies)
    empty = to_pandas(svc.to_arrow(replies.head(0)))
    assert (empty.dtypes == replies.dtypes).all()


@pytest.mark.usefixtures("emulated")
def test_usage_and_messages_are_frames_of_polars_too() -> None:
    """`to_polars` takes every frame of the package."""
    conversation = svc.conversation("polars")
    conversation.ask("Say hello.")

    messages = svc.to_polars(conversation.to_df())
    usage = svc.to_polars(svc.usage_df(include_emulated=True))

    assert messages["role"].to_list() == ["user", "assistant"]
    assert usage["n_requests"].to_list() == [1]


@pytest.mark.usefixtures("emulated")
def test_scores_of_a_polars_frame_are_kept_in_the_ledger(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The frame cannot get columns, and a line says where the scores are."""
    run = svc.sweep("Say {{text}}.", rows=["a", "b"]).run()

    frame: Any = svc.to_polars(run)

    n_kept = svc.score(frame, long=lambda row: len(row.text) > 3)

    assert n_kept == 2
    assert "were not added to this frame" in capsys.readouterr().err
    assert run.replies_df()["score_long"].notna().all()


@pytest.mark.usefixtures("emulated")
def test_a_run_is_exported_as_its_replies(tmp_path: Path) -> None:
    """As everywhere else, a run stands for its replies."""
    run = svc.sweep("Say {{text}}.", rows=["a", "b"]).run()

    file = svc.export(run, tmp_path / "replies.parquet")

    pd.testing.assert_frame_equal(svc.read_parquet(file), run.replies_df())


@pytest.mark.usefixtures("emulated")
def test_df_svc_can_be_registered_with_polars() -> None:
    """`df.svc.complete` of Polars returns what becomes a column there."""
    register = pl.api.register_dataframe_namespace("svc_here")
    register(FrameAccessor)
    frame = pl.DataFrame({"text": ["a", "b"]})

    replies = frame.svc_here.complete("Say {{text}}.")  # type: ignore[attr-defined]  # just registered

    assert replies.index.tolist() == [0, 1]
    assert frame.with_columns(reply=pl.Series(replies))["reply"].null_count() == 0


def test_nested_values_are_lists_and_structs_if_that_changes_nothing() -> None:
    """Dicts of different keys would get more keys, so they are JSON texts."""
    frame = pd.DataFrame(
        {
            "alike": [{"a": 1}, {"a": 2}],
            "other": [{"a": 1}, {"b": [2]}],
            "lists": [["ก"], []],
        }
    )

    arrow = svc.to_arrow(frame)

    assert arrow.to_pylist() == [
        {"alike": {"a": 1}, "other": '{"a":1}', "lists": ["ก"]},
        {"alike": {"a": 2}, "other": '{"b":[2]}', "lists": []},
    ]


def test_an_index_with_names_becomes_columns() -> None:
    """As in files, so that nothing is lost where there is no index."""
    frame = pd.DataFrame({"a": [1]}, index=pd.Index(["x"], name="key"))

    assert svc.to_polars(frame).columns == ["key", "a"]


def test_a_column_of_several_types_is_refused() -> None:
    """The message names the column and the way out."""
    with pytest.raises(ParameterError, match=r"'a' holds int, str.*map\(str\)"):
        svc.to_arrow(pd.DataFrame({"a": [1, "x"]}))


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("package", ["pyarrow", "polars"])
def test_a_missing_package_is_named_as_pip_calls_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said with the command that installs it."""
    frame = pl.DataFrame({"a": [1]})
    pandas = pd.DataFrame({"a": [1]})
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConfigError, match=f"pip install {package}"):
        svc.to_polars(pandas)
    if package == "pyarrow":
        with pytest.raises(ConfigError, match="pip install pyarrow"):
            svc.sweep("{{a}}", rows=frame)


def test_types_of_arrow_come_back_from_a_parquet_file(tmp_path: Path) -> None:
    """Also those whose names pandas cannot read: lists, structs, decimals."""
    frame = to_pandas(
        pl.DataFrame(
            {
                "tags": [["a"], None],
                "price": [Decimal("1.50"), None],
                "both": [{"x": 1, "y": "ก"}, None],
                "day": [dt.date(2026, 1, 2), None],
            }
        )
    )
    for part in (frame, frame.head(0)):
        read = svc.read_parquet(svc.export(part, tmp_path / "a.parquet"))

        pd.testing.assert_frame_equal(read, part)
        assert read.attrs == {}


@pytest.mark.usefixtures("emulated")
def test_relations_of_duckdb_are_frames() -> None:
    """A query is rows and a frame of replies, and DuckDB reads what Arrow has."""
    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.sql("select unnest(['a', 'b']) as text, date '2026-01-02' as day")

    run = svc.sweep("Say {{text}} on {{day}}.", rows=rows).run()
    replies = svc.to_arrow(run)  # DuckDB finds it by its name
    assert replies.num_rows == 2
    counted = duckdb.sql("select model, count(*) as n from replies group by model")

    assert run.plan_df()["prompt"].tolist() == [
        "Say a on 2026-01-02.",
        "Say b on 2026-01-02.",
    ]
    assert counted.fetchall() == [("svc-v2-8b-instruct", 2)]
    assert len(svc.summary_df(duckdb.sql("from replies"))) == 1


@pytest.mark.usefixtures("emulated")
def test_rows_of_a_dataset_may_have_been_in_polars() -> None:
    """What was chosen there is replayed: `rows=` takes the frame back."""
    svc.complete("Say hello.")
    svc.complete("Say goodbye.")
    rows: Any = svc.to_polars(svc.dataset()).head(1)

    plan = svc.replay(model="svc-instruct", rows=rows).plan_df()

    assert plan["row"].tolist() == [0, 0]  # one question, then and now

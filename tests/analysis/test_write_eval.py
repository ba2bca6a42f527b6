"""Runs as logs of inspect-ai: what is written is what is read."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.analysis.write_eval import write_eval
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import isolated


@pytest.fixture
def _emulated(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ask an emulator in a session of this test."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    with isolated():
        yield


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the files here, also where inspect-ai is installed."""
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)


def _run() -> svc.Run:
    """Return a run of two conditions, two repeats, with scores and one failure."""
    rows = pd.DataFrame({"text": ["ฝากเงิน", "b", "c"], "label": ["ham", "spam", "ham"]})
    rows = rows.astype("string")
    run = svc.sweep(
        {"plain": "Say {{text}}.", "kind": "Say {{text}}, please."},
        rows=rows,
        system="Be brief.",
        repeats=2,
        temperature=[0, 0.5],
        stop=["§"],
        repetition_penalty=1.1,
        user="u1",
        max_tokens=50,
    ).run()
    run.score(long=lambda row: len(row.text) / 10, tone=lambda _: "flat")
    return run


COMPARED = (
    *("row", "label", "prompt_label", "repeat", "model", "temperature", "max_tokens"),
    *("stop", "repetition_penalty", "user", "system", "prompt", "text", "status"),
    *("is_cut", "error_type", "prompt_tokens", "completion_tokens", "total_tokens"),
    *("model_returned", "latency_s", "exchange_id", "score_long", "score_tone"),
)


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    columns = [name for name in COMPARED if name in frame]
    return frame[columns].sort_values("exchange_id", ignore_index=True)


@pytest.mark.slow
@pytest.mark.usefixtures("_emulated", "by_hand")
def test_a_run_comes_back_from_its_logs(tmp_path: Path) -> None:
    """Texts, factors, repeats, scores, usage and parameters are the same."""
    run = _run()

    files = run.to_eval(tmp_path / "log.eval", target="label")
    read = svc.read_eval(*files)

    assert [file.name for file in files] == [f"log-{n}.eval" for n in (1, 2, 3, 4)]
    assert read["target"].tolist() == read["label"].tolist()
    pd.testing.assert_frame_equal(_sorted(read), _sorted(run.replies_df()))
    for factor in ("prompt", "temperature"):
        before = svc.contrast_df(run.replies_df(), factor, "long")
        after = svc.contrast_df(read, factor, "long", pair_by="row")
        assert after["n_prompts"].tolist() == [3]
        difference = before["difference"].tolist()
        assert after["difference"].tolist() == pytest.approx(difference)


@pytest.mark.usefixtures("_emulated", "by_hand")
def test_one_condition_is_one_file(tmp_path: Path) -> None:
    """Its name is the one given, and an old file is replaced."""
    run = svc.sweep("Say {{text}}.", rows=["a", "b"]).run()

    for _ in range(2):
        assert run.to_eval(tmp_path / "log.eval") == [tmp_path / "log.eval"]

    assert len(svc.read_eval(tmp_path / "log.eval")) == 2


@pytest.mark.usefixtures("_emulated", "by_hand")
def test_failures_and_calls_of_tools_are_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error keeps its class; a call is one that inspect-ai understands."""
    script: list[dict[str, Any]] = [
        {"status": 400, "error": {"message": "ไม่ได้"}, "times": 1},
        {"tool_calls": [{"id": "c", "name": "add", "arguments": '{"a": 1}'}]},
    ]
    with Emulator(script=script, tokens_per_s=None, first_token_s=0) as emulator:
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        run = svc.sweep("Say {{text}}.", rows=["a", "b"]).run()

    (file,) = run.to_eval(tmp_path / "log.eval")

    read = svc.read_eval(file)
    replies = run.replies_df().set_index("exchange_id")
    there = read.set_index("exchange_id").loc[replies.index]
    assert there["status"].tolist() == replies["status"].tolist()
    assert there["error_type"].tolist() == replies["error_type"].tolist()
    with ZipFile(file) as archive:
        written = [archive.read(name).decode() for name in archive.namelist()]
    assert any('"function": "add", "arguments": {"a": 1}' in text for text in written)


@pytest.mark.usefixtures("_emulated")
def test_a_plan_has_nothing_to_write(tmp_path: Path) -> None:
    """Nothing was sent yet, so there is no log."""
    run = svc.sweep("Say {{text}}.", rows=["a"])

    with pytest.raises(ParameterError, match=r"no replies to write.*run\(\)"):
        run.to_eval(tmp_path / "log.eval")
    with pytest.raises(ParameterError, match=r"such as 'log\.eval'"):
        run.to_eval(tmp_path / "log.json")


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["ที่นี่", "a\u2028b", "\x00", "attachment", "<b>"]
)
_NOT_A_NUMBER = st.sampled_from(["ดี", "bad", "so so", ""])


@st.composite
def _frames(draw: st.DrawFn) -> pd.DataFrame:
    """Return replies as other programs have them: repeats, scores, failures, gaps."""
    n_rows, n_repeats = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    ids = draw(
        st.lists(st.integers(0, 999), min_size=n_rows, max_size=n_rows, unique=True)
        | st.lists(
            st.text("abกข/ .", min_size=1, max_size=5),
            min_size=n_rows,
            max_size=n_rows,
            unique=True,
        )
    )
    questions = {row: draw(_TEXTS) for row in ids}
    records = []
    for model in draw(st.sampled_from([["one"], ["one", "two"]])):
        for row in ids:
            for repeat in range(n_repeats):
                is_ok = draw(st.booleans())
                records.append(
                    {
                        "row": row,
                        "repeat": repeat,
                        "model": model,
                        "prompt": questions[row],
                        "text": draw(_TEXTS) if is_ok else None,
                        "error_message": None if is_ok else draw(_TEXTS),
                        "error_type": None if is_ok else "BadRequestError",
                        "prompt_tokens": draw(st.none() | st.integers(0, 9_000)),
                        "completion_tokens": 7,
                        "score_right": draw(st.none() | st.floats(-1e9, 1e9)),
                        "score_tone": draw(_NOT_A_NUMBER),
                    }
                )
    return svc.as_replies(pd.DataFrame(records))


@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(frame=_frames())
def test_any_replies_come_back(
    frame: pd.DataFrame, tmp_path: Path, by_hand: None
) -> None:
    """Whatever texts, ids, scores and gaps there are, the log has them."""
    del by_hand
    names = [
        *("row", "repeat", "model", "prompt", "text", "status", "error_type"),
        *("score_right", "score_tone", "exchange_id"),
    ]
    read = svc.read_eval(*write_eval(frame, tmp_path / "log.eval"))

    def comparable(replies: pd.DataFrame) -> list[dict[Any, Any]]:
        shown = replies.reindex(columns=names).astype(object)
        known = shown.where(shown.notna(), None)
        return sorted(known.to_dict("records"), key=lambda row: row["exchange_id"])

    assert comparable(read) == comparable(frame)
    has_all = frame["total_tokens"].notna()
    counted = read.set_index("exchange_id")["total_tokens"]
    for exchange_id, total in zip(
        frame["exchange_id"][has_all], frame["total_tokens"][has_all], strict=True
    ):
        assert counted[exchange_id] == total


@pytest.mark.usefixtures("_emulated")
def test_inspect_itself_reads_the_log(tmp_path: Path) -> None:
    """Its reader takes header, samples and summaries, and checks every field."""
    log = pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed")
    run = _run()
    replies = run.replies_df()

    for file in run.to_eval(tmp_path / "log.eval", target="label"):
        read = log.read_eval_log(str(file))
        header = log.read_eval_log(str(file), header_only=True)
        summaries = log.read_eval_log_sample_summaries(str(file))
        one = log.read_eval_log_sample(str(file), id=0, epoch=2)

        assert header.eval.model == "svc-v2-8b-instruct"
        assert header.eval.config.epochs == 2
        assert header.results.completed_samples == 6
        assert len(read.samples) == len(summaries) == 6
        assert one.output.completion in set(replies["text"])
    pd.testing.assert_frame_equal(
        _sorted(svc.read_eval(tmp_path)), _sorted(run.replies_df())
    )

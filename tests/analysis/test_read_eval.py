"""Logs of inspect-ai: what it wrote with its mock model is in `data`."""

import json
import re
import sys
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pandas as pd
import pytest

import svc_notebook as svc

DATA = Path(__file__).parent / "data"
OLD, NEW = DATA / "old.eval", DATA / "new.eval"
FAILING = DATA / "failing.json"


@pytest.fixture(autouse=True)
def _without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the files here, also where inspect-ai is installed."""
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)


def _deflated(folder: Path, *, header: str = "header.json") -> Path:
    """Write the new log as earlier versions did: an archive, deflated."""
    log = json.loads((DATA / "new.json").read_text())
    path = folder / "new.eval"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for number, sample in enumerate(log.pop("samples")):
            archive.writestr(f"samples/{number}.json", json.dumps(sample))
        archive.writestr(header, json.dumps(log))
    return path


def test_a_row_is_a_sample_of_an_epoch() -> None:
    """Ids, epochs, model, texts, usage and cost are where frames have them."""
    replies = svc.read_eval(OLD)

    names = ["row", "repeat", "model", "target", "language", "temperature", "text"]
    assert replies[names].iloc[2].tolist() == [
        *("q2", 0, "mockllm/old", "ham", "th", 0.5, "spam or ham")
    ]
    assert replies["row"].tolist() == ["q0", "q1", "q2", "q3"] * 2
    assert replies["repeat"].tolist() == [0] * 4 + [1] * 4
    assert replies["system"].unique().tolist() == ["Answer with one word."]
    assert replies["prompt"].iloc[0] == "Is this spam? 0: เจอกันตอนห้าโมงนะ"
    numbers = ["prompt_tokens", "completion_tokens", "total_tokens", "cost"]
    assert replies[numbers].iloc[0].tolist() == [25, 2, 27, 0.001]
    assert set(replies["run"]) == {"old"}
    assert replies.select_dtypes(object).empty


def test_scores_are_what_inspect_makes_of_them() -> None:
    """Correct is 1, partial 0.5, incorrect and no answer 0; labels stay labels."""
    replies = svc.read_eval(OLD)

    answers = ["ham", "ham", "spam or ham", "spam", "ham", "", "spam", "spam"]
    assert replies["text"].tolist() == answers
    assert replies["score_graded"].tolist() == [1, 0, 0.5, 1, 1, 0, 0, 1]
    assert replies["score_fields_label"].tolist() == [1, 0, 0, 1, 1, 0, 0, 1]
    assert replies["score_fields_n"].tolist() == [3, 3, 11, 4, 3, 0, 4, 4]
    assert replies["score_tone"].tolist()[:4] == ["brief", "brief", "long", "brief"]
    assert replies["answer_ok"].dtype == "boolean"


def test_both_formats_give_the_same_frame(tmp_path: Path) -> None:
    """The same evaluation as an archive and as JSON is read as the same frame."""
    archive, as_json = svc.read_eval(NEW), svc.read_eval(DATA / "new.json")
    pd.testing.assert_frame_equal(archive, as_json)

    deflated = svc.read_eval(_deflated(tmp_path))
    pd.testing.assert_frame_equal(deflated, archive)


def test_two_logs_are_compared_by_sample() -> None:
    """A contrast pairs the samples of two logs; a folder is all its logs."""
    replies = svc.read_eval(OLD, NEW)

    contrast = svc.contrast_df(replies, "model", "graded", against="mockllm/old")
    assert contrast["n_prompts"].tolist() == [4]
    assert contrast["difference"].tolist() == [0.4375]
    runs = svc.read_eval(DATA)["run"].tolist()
    files = ("failing.json", "new.eval", "new.json", "old.eval")
    assert {Path(run).name: runs.count(run) for run in runs} == dict(
        zip(files, (2, 8, 8, 8), strict=True)
    )


def test_errors_and_cuts_come_along() -> None:
    """A sample that failed is an error; one that met max_tokens is cut."""
    replies = svc.read_eval(FAILING)

    assert replies["status"].tolist() == ["ok", "error"]
    assert replies["error_type"].tolist() == [pd.NA, "ValueError"]
    assert "no such <b>tool</b>" in replies["error_message"].iloc[1]
    assert replies["is_cut"].tolist() == [True, pd.NA]
    assert replies["row"].tolist() == [1, 2]
    assert replies["prompt"].tolist() == ["What is this?", "Two"]
    assert replies["target"].tolist() == ["a, b", "b"]
    assert replies["score_match"].tolist() == [1, pd.NA]
    sent = ["max_tokens", "stop", "n"]
    assert replies[sent].iloc[0].tolist() == [20, '["x"]', 2]


def test_a_metadata_column_gives_way_to_ours() -> None:
    """The metadata `text` of the samples is in `var_text`."""
    assert svc.read_eval(OLD)["var_text"].tolist() == [0, 1, 2, 3] * 2


def test_a_log_that_was_not_finished_is_read_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its header, what the journal has is read."""
    replies = svc.read_eval(_deflated(tmp_path, header="_journal/start.json"))

    assert len(replies) == 8
    assert replies["model"].unique().tolist() == ["mockllm/new"]
    assert "may be incomplete: its status is started" in capsys.readouterr().err


def test_a_long_text_that_a_log_keeps_apart_is_put_back(tmp_path: Path) -> None:
    """`attachment://` in a text stands for what the sample has under that name."""
    log = json.loads(FAILING.read_text())
    sample = log["samples"][0]
    sample["attachments"] = {"abc": "a long text"}
    sample["output"]["choices"][0]["message"]["content"] = "attachment://abc"
    path = tmp_path / "long.json"
    path.write_text(json.dumps(log))

    assert svc.read_eval(path)["text"].iloc[0] == "a long text"


def test_other_values_of_scores(tmp_path: Path) -> None:
    """Lists are JSON text, NaN is missing, words are read as inspect reads them."""
    log = json.loads(FAILING.read_text())
    values: tuple[tuple[str, Any], ...] = (
        ("list", ["a"]),
        ("nan", float("nan")),
        ("word", "yes"),
        ("number", "0.25"),
        ("flag", True),
    )
    log["samples"][0]["scores"] = {name: {"value": value} for name, value in values}
    path = tmp_path / "values.json"
    path.write_text(json.dumps(log))

    first = svc.read_eval(path).iloc[0]

    read = [first[f"score_{name}"] for name, _ in values]
    assert read == ['["a"]', pd.NA, 1.0, 0.25, True]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is not a log of inspect-ai"),
        (b'{"a": 1}', "it is not a log of inspect-ai"),
        (b"[1]", "it is not a log of inspect-ai"),
        (b'{"eval": 5, "samples": [5]}', "it is not a log of inspect-ai"),
        (b'{"eval": {}, "samples": [{}]}', "it is not a log of inspect-ai"),
        (b"PK\x03\x04 broken", "File is not a zip file"),
        (None, "there is no such file"),
    ],
)
def test_what_is_no_log_is_refused(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    """A file that is none, is damaged, or holds something else is named."""
    path = tmp_path / "log.json"
    if content is not None:
        path.write_bytes(content)

    wanted = f"{re.escape(str(path))}.* cannot be read: {said}"
    with pytest.raises(svc.errors.ParameterError, match=wanted):
        svc.read_eval(path)


@pytest.mark.slow
def test_every_damaged_byte_is_refused_in_words(tmp_path: Path) -> None:
    """An archive that was cut anywhere ends in our own error."""
    path, whole = tmp_path / "cut.eval", OLD.read_bytes()
    for n in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:n] + b"\0" * 50 + whole[n + 50 :])
        try:
            svc.read_eval(path)
        except svc.errors.ParameterError as problem:
            assert "cannot be read" in str(problem)  # noqa: PT017 - most cuts do no harm


def test_places_without_logs_are_refused(tmp_path: Path) -> None:
    """No path, an empty folder, and a far address say what to give."""
    for said, paths in (
        ("read_eval needs the path", []),
        ("has no logs", [tmp_path]),
        ("not on this machine", ["s3://bucket/log.eval"]),
        ("path is int", [5]),
    ):
        with pytest.raises(svc.errors.ParameterError, match=said):
            svc.read_eval(*paths)


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="zipfile reads zstd from 3.14 on"
)
def test_without_pyarrow_zstd_is_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(
        svc.errors.ConfigError, match=r"zstd, need pyarrow.* install pyarrow$"
    ):
        svc.read_eval(OLD)


def test_the_package_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With inspect-ai installed, its reader gives the same frames."""
    monkeypatch.delitem(sys.modules, "inspect_ai.log")
    pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed")
    by_package = [svc.read_eval(path) for path in (OLD, NEW, FAILING)]
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)

    by_hand = [svc.read_eval(path) for path in (OLD, NEW, FAILING)]

    for package, hand in zip(by_package, by_hand, strict=True):
        pd.testing.assert_frame_equal(package, hand)

"""`svc-notebook ledger`: where it is, how large, export and forget it."""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from svc_notebook.cli import main
from svc_notebook.errors import LedgerError, ParameterError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger import deletion
from svc_notebook.ledger.ledger import (
    Ledger,
    path_in_words,
    size_in_words,
)
from svc_notebook.service.request import build_request

MakeExchange = Callable[..., Exchange]


def _fill(path: Path, make: MakeExchange, n: int = 3) -> None:
    with Ledger(path) as ledger:
        for number in range(n):
            request = build_request(f"secret {number}", model="m")
            ledger.add(make(86400 * number, exchange_id=f"x{number}", request=request))


def test_says_where_it_is(path: Path, make: MakeExchange) -> None:
    """The path is whole, with who named it and whether it is there."""
    assert path_in_words(str(path)) == f"{path} (default; not created yet)"
    assert path_in_words(":memory:", source="SVC_LEDGER").startswith("in memory")

    _fill(path, make)

    assert path_in_words(str(path), source="SVC_LEDGER") == f"{path} (SVC_LEDGER)"


def test_says_how_large_it_is(path: Path, make: MakeExchange) -> None:
    """The size is exchanges, sessions, bytes and days; looking makes no file."""
    assert size_in_words(str(path)) == "nothing is kept"
    assert not path.parent.exists()
    Ledger(path).check()
    assert size_in_words(str(path)).startswith("no exchanges")

    _fill(path, make)
    with Ledger(path) as other:
        other.add(make(9))

    said = size_in_words(str(path))
    assert said.startswith("4 exchanges of 2 sessions, ")
    assert said.endswith(" kB, from 2026-01-01 to 2026-01-03")


def test_exports_its_replies(
    path: Path,
    make: MakeExchange,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The suffix is the format; texts and what is older can be left out."""
    _fill(path, make)
    monkeypatch.setenv("SVC_LEDGER", str(path))
    whole, recent = path.with_name("all.jsonl"), path.with_name("recent.csv")

    assert main(["ledger", "export", str(whole)]) == 0
    since = ["--since", "2026-01-02T00:00:00+00:00", "--no-texts"]
    assert main(["ledger", "export", str(recent), *since]) == 0

    assert capsys.readouterr().out == (f"3 replies: {whole}\n2 replies: {recent}\n")
    assert whole.read_text(encoding="utf-8").count("secret") == 3
    assert "secret" not in recent.read_text(encoding="utf-8-sig")
    assert main(["ledger", "export", "replies.txt"]) == 1
    assert ".csv" in capsys.readouterr().err


def test_an_export_of_nothing_leaves_the_file_alone(
    path: Path,
    make: MakeExchange,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A misspelt run does not replace an earlier export by an empty one."""
    _fill(path, make)
    monkeypatch.setenv("SVC_LEDGER", str(path))
    file = path.with_name("replies.csv")
    file.write_text("of yesterday", encoding="utf-8")

    status = main(["ledger", "export", str(file), "--run", "nope"])

    assert status == 1
    assert "No reply in the ledger fits" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "of yesterday"


def test_a_deletion_that_fails_deletes_nothing(path: Path, make: MakeExchange) -> None:
    """If anything is wrong half-way, everything is as it was."""
    _fill(path, make)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE requests")
    connection.close()

    with pytest.raises(LedgerError):
        deletion.forget(str(path))

    with Ledger(path) as ledger:
        assert ledger.count() == 3


def test_forgets_without_a_trace(path: Path, make: MakeExchange) -> None:
    """Afterwards no file holds anything of what was said."""
    _fill(path, make)

    said = deletion.forget(str(path))

    assert said == f"3 exchanges deleted from {path}"
    left = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert b"secret" not in left


def test_forgets_what_is_old(path: Path, make: MakeExchange) -> None:
    """With a day, what started before it is forgotten, the rest stays."""
    _fill(path, make)

    deletion.forget(str(path), deletion.select(before="2026-01-02T00:00:00+00:00"))

    with Ledger(path) as ledger:
        assert [each.exchange_id for each in ledger.read(scope="all")] == ["x1", "x2"]


def test_refuses_a_day_that_is_none(path: Path, make: MakeExchange) -> None:
    """A word that is no instant deletes nothing."""
    _fill(path, make)

    with pytest.raises(ParameterError, match=r"before must be .*'yesterday'"):
        deletion.select(before="yesterday")

    with Ledger(path) as ledger:
        assert ledger.count() == 3


def test_leaves_another_programs_file_alone(tmp_path: Path) -> None:
    """What is no ledger is neither measured nor forgotten."""
    path = tmp_path / "notes.txt"
    path.write_text("my notes " * 100, encoding="utf-8")

    with pytest.raises(LedgerError, match="not a ledger"):
        size_in_words(str(path))
    with pytest.raises(LedgerError, match="not a ledger"):
        deletion.forget(str(path))

    assert path.read_text(encoding="utf-8") == "my notes " * 100


def test_forgetting_must_be_confirmed(
    path: Path,
    make: MakeExchange,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a second word the error says what would be lost, and how to say so."""
    _fill(path, make)
    monkeypatch.setenv("SVC_LEDGER", str(path))

    assert main(["ledger", "forget"]) == 1
    assert re.search(r"3 exchanges .*--yes", capsys.readouterr().err)

    assert main(["ledger", "forget", "--yes"]) == 0
    assert capsys.readouterr().out == f"3 exchanges deleted from {path}\n"


def test_the_preview_counts_what_would_be_deleted(
    path: Path,
    make: MakeExchange,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`forget --before DAY` without --yes names the day and counts what is older."""
    _fill(path, make)
    monkeypatch.setenv("SVC_LEDGER", str(path))
    before = "2026-01-02T00:00:00+00:00"

    status = main(["ledger", "forget", "--before", before])

    said = capsys.readouterr().err
    assert status == 1
    assert f"deletes 1 exchange that started before {before} from {path}" in said
    assert "holds 3 exchanges" in said
    assert main(["ledger", "forget", "--before", "yesterday"]) == 1
    assert "before must be" in capsys.readouterr().err


def test_nothing_to_forget_needs_no_confirming(path: Path) -> None:
    """Where nothing is kept nobody is asked to say so twice."""
    assert deletion.preview(str(path), deletion.select()) == ""
    assert deletion.forget(str(path)) == "nothing was kept"

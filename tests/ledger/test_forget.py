"""`svc-notebook ledger forget`: one exchange, one conversation or one run."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import svc_notebook as svc
from svc_notebook.cli import main
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated
from svc_notebook.sweeps.run_lock import lock_run

pytestmark = pytest.mark.slow

SCRIPT = [
    {"when": {"contains": word}, "text": f"{word}-answer"}
    for word in ("alpha", "beta", "gamma", "delta")
]
Forget = Callable[..., tuple[int, str, str]]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose replies can be told apart."""
    with Emulator(script=SCRIPT, tokens_per_s=None, first_token_s=0) as running:
        yield running


@pytest.fixture
def place(
    tmp_path: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A ledger with two conversations, a run and a single exchange; it stays open."""
    path = tmp_path / "folder" / "ledger.sqlite"
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", str(path))
    monkeypatch.setenv("SVC_MODEL", "svc-instruct")  # no limit, so nothing waits
    with isolated():
        svc.conversation("plan").ask("alpha-one")
        svc.conversation("trip").ask("beta-one")
        svc.conversation("plan").ask("alpha-two")
        svc.conversation("plan").pin(1)
        svc.sweep("gamma {{n}}", rows=[{"n": "1"}, {"n": "2"}], name="grid").run()
        svc.complete("delta-one")
        frame = svc.replies_df(scope="all")
        svc.score(frame.assign(score_good=1))
        yield path


@pytest.fixture
def forget(capsys: pytest.CaptureFixture[str]) -> Forget:
    """Return what runs the command."""

    def run(*words: str) -> tuple[int, str, str]:
        status = main(["ledger", "forget", *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def prompts() -> list[str]:
    """Return the prompts in the ledger, sorted."""
    return sorted(each.request.prompt for each in current().ledger.read(scope="all"))


def bytes_of(path: Path) -> bytes:
    """Return the bytes of all files of the ledger."""
    return b"".join(each.read_bytes() for each in sorted(path.parent.iterdir()))


FORGET = ["ledger", "forget", "--conversation", "trip"]
ALL = ["alpha-one", "alpha-two", "beta-one", "delta-one", "gamma 1", "gamma 2"]


@pytest.mark.parametrize(
    ("words", "shown", "word", "n_left"),
    [
        (["--conversation", "plan"], "2 exchanges, 2 scores of the", "alpha", 4),
        (["--run", "grid"], "2 exchanges, 2 scores of the run 'grid'", "gamma", 4),
    ],
)
def test_what_has_a_name_leaves_no_byte(
    place: Path, forget: Forget, words: list[str], shown: str, word: str, n_left: int
) -> None:
    """The texts are gone from every file, the name too; all the rest stays."""
    status, _, said = forget(*words)
    assert status == 1
    assert f"permanently deletes {shown}" in said
    assert said.endswith("Confirm with --yes.\n")
    assert (f"`%svc reset {words[1]}`" in said) is (words[0] == "--conversation")
    assert prompts() == ALL

    status, said, _ = forget(*words, "--yes")

    assert (status, said.splitlines()[-1]) == (0, f"2 exchanges deleted from {place}")
    assert (f"`%svc reset {words[1]}`" in said) is (words[0] == "--conversation")
    assert prompts() == [each for each in ALL if word not in each]
    left = bytes_of(place)
    assert word.encode() not in left
    assert words[1].encode() not in left
    for other in {"alpha", "beta", "gamma", "delta"} - {word}:
        assert other.encode() in left
    assert svc.replies_df(scope="all")["score_good"].sum() == n_left


def test_one_exchange_is_removed(place: Path, forget: Forget) -> None:
    """Its id names it; the session that asked it goes on."""
    chosen = svc.replies_df(scope="all")["exchange_id"].iloc[-1]

    status, said, _ = forget("--exchange", chosen, "--yes")

    assert (status, said.splitlines()[-1]) == (0, f"1 exchange deleted from {place}")
    assert b"delta" not in bytes_of(place)
    svc.complete("beta-two")
    assert prompts() == sorted(set(ALL) - {"delta-one"} | {"beta-two"})


def test_tool_calls_go_with_their_exchange(place: Path, forget: Forget) -> None:
    """What a tool was given and returned is text of the exchange."""

    def clock(zone: str) -> str:
        """Tell the time."""
        return f"nine-in-{zone}"

    reply = svc.complete("Call clock.", tools=[clock])
    chosen = str(svc.tool_calls_df()["exchange_id"].iloc[0])

    _, _, said = forget("--exchange", chosen)
    forget("--exchange", chosen, "--yes")
    forget("--exchange", reply.exchange.exchange_id, "--yes")

    assert "deletes 1 exchange, 1 tool call (" in said
    assert "1 other has the same prompt or reply" in said
    assert b"nine-in-" not in bytes_of(place)
    assert len(svc.tool_calls_df(scope="all")) == 0


def test_ratings_go_with_their_exchange(place: Path, forget: Forget) -> None:
    """What a rater wrote is gone, too, and the score that it made."""
    run = svc.run("grid")
    rating = run.rate("kind", rater="ann")
    while rating.card() is not None:
        rating.rate(1, note="epsilon-note")
    assert b"epsilon-note" in bytes_of(place)

    _, _, said = forget("--run", "grid")
    forget("--run", "grid", "--yes")

    assert "deletes 2 exchanges, 4 scores, 2 ratings of the run" in said
    assert b"epsilon-note" not in bytes_of(place)
    assert b"rated_kind" not in bytes_of(place)


def test_a_rating_of_a_pair_goes_with_either_reply(place: Path, forget: Forget) -> None:
    """It says something of the other one, and compares with nothing."""
    models = ["svc-v2-8b-instruct", "svc-v2-70b-instruct"]
    run = svc.sweep("Describe the sea.", model=models, name="sea").run()
    run.rate(pairs="model", rater="ann").rate("left", note="epsilon-note")
    right = run.ratings_df()["other_exchange_id"].iloc[0]

    forget("--exchange", right, "--yes")

    assert len(run.ratings_df()) == 0
    assert b"epsilon-note" not in bytes_of(place)


@pytest.mark.usefixtures("place")
def test_it_says_where_the_text_is_too(forget: Forget) -> None:
    """Later turns sent it again, and re-used replies are copies: both stay."""
    svc.complete("delta-one", reuse=True)
    frame = svc.replies_df(scope="all").set_index("prompt")["exchange_id"]

    for prompt in ("alpha-one", "delta-one"):
        chosen = frame[[prompt]].iloc[0]
        _, _, said = forget("--exchange", chosen)
        assert "1 other has the same prompt or reply, sent again or reused" in said
    _, _, said = forget("--exchange", frame["beta-one"])

    assert "will stay" not in said


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--conversation", "plam"], "Did you mean --conversation plan?"),
        (["--run", "plan"], "Did you mean --conversation plan?"),
        (["--conversation", "gri"], "Did you mean --run grid?"),
        (["--exchange", "zzz"], "no exchange 'zzz'; nothing was deleted.\n"),
        (["--exchange", ""], "no exchange ''; nothing was deleted.\n"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--yes"]])
@pytest.mark.usefixtures("place")
def test_an_unknown_name_is_refused(
    forget: Forget, words: list[str], hint: str, more: list[str]
) -> None:
    """Nothing is deleted, and near names are shown, those of another kind too."""
    status, _, said = forget(*words, *more)

    assert status == 1
    assert hint in said
    assert prompts() == ALL


def test_an_id_may_be_found_by_its_beginning(place: Path, forget: Forget) -> None:
    """A part of an id deletes nothing, but leads to the whole one."""
    assert place.exists()
    chosen = str(svc.replies_df(scope="all")["exchange_id"].iloc[0])

    _, _, said = forget("--exchange", chosen[:-3], "--yes")

    assert f"--exchange {chosen}" in said
    assert prompts() == ALL


@contextmanager
def held(program: str, place: Path) -> Iterator[None]:
    """Let another process run a program on the ledger until the end of the block."""
    with subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", program, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield
        other.communicate("")


def test_a_run_in_progress_is_refused(place: Path, forget: Forget) -> None:
    """What a kernel is sending now is not taken away under its hands."""
    holding = (
        "import sys; from svc_notebook.sweeps.run_lock import lock_run; "
        "from svc_notebook.ledger.ledger import Ledger; "
        "lock = lock_run(Ledger(sys.argv[1]), 'grid'); print('held', flush=True); "
        "sys.stdin.read(); lock.release()"
    )
    with held(holding, place):
        status, _, said = forget("--run", "grid", "--yes")

    assert status == 1
    assert "in progress in another kernel" in said
    assert "Nothing was deleted. Stop the run there, or wait" in said
    assert prompts() == ALL
    assert forget("--run", "grid", "--yes")[0] == 0
    lock_run(current().ledger, "grid").release()


def test_a_forgotten_run_can_be_sent_anew(place: Path, forget: Forget) -> None:
    """Under the same name its plan is whole again, in this kernel and in others."""
    run = svc.sweep("gamma {{n}}", rows=[{"n": "1"}, {"n": "2"}], name="grid")
    assert run.n_todo == 0
    forget("--run", "grid", "--yes")

    again = svc.sweep("gamma {{n}}", rows=[{"n": "1"}, {"n": "2"}], name="grid")
    again.run()

    assert place.exists()
    assert list(again.replies_df()["status"]) == ["ok", "ok"]
    assert len(svc.replies_df(run="grid", scope="all")) == 2


@pytest.mark.usefixtures("place")
def test_one_thing_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Two choices, or a name without its option, are mistakes of usage."""
    for words in (["--run", "a", "--before", "2026-01-01"], ["plan"]):
        with pytest.raises(SystemExit) as ended:
            main(["ledger", "forget", *words])

        assert ended.value.code == 2
        assert capsys.readouterr().err
    assert prompts() == ALL


@pytest.mark.parametrize(
    ("typed", "status", "n_left"), [("yes\n", 0, 5), ("y\n", 1, 6), ("\x04", 1, 6)]
)
def test_at_a_terminal_it_asks(
    place: Path, typed: str, status: int, n_left: int
) -> None:
    """There the question is shown, and only `yes` deletes."""
    leader, follower = pty.openpty()
    with closing(os.fdopen(leader, "wb", buffering=0)) as keys:
        keys.write(typed.encode())
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "svc_notebook", *FORGET],
            stdin=follower,
            capture_output=True,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "JPY_PARENT_PID"},
            timeout=120,
            check=False,
        )
        os.close(follower)

    assert place.exists()
    assert "deletes 1 exchange, 1 score of the conversation 'trip'" in done.stdout
    assert "Type yes to do it" in done.stdout
    assert ("Nothing was deleted." in done.stdout) is bool(status)
    assert done.returncode == status
    assert len(prompts()) == n_left


def test_a_reader_that_holds_the_file_is_named(place: Path, forget: Forget) -> None:
    """While another program reads, the WAL cannot be emptied, which is said."""
    current().ledger.flush()
    reading = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN'); "
        "c.execute('SELECT count(*) FROM exchanges').fetchone(); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with held(reading, place):
        status, said, _ = forget("--conversation", "trip", "--yes")

    assert status == 0
    assert "the -wal file may still hold the deleted texts" in said
    assert "beta-one" not in prompts()

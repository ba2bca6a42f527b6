"""`df.svc`: a column from a template."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import svc_notebook  # noqa: F401 - registers df.svc, as pandas is loaded
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import ParameterError
from svc_notebook.session import isolated


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator without limits that refuses whatever says bad or, once, secret."""
    script = [
        {
            "when": {"contains": word},
            "status": status,
            "times": times,
            "error": {"message": "No."},
        }
        for word, status, times in (("bad", 400, None), ("secret", 403, 1))
    ]
    with Emulator(
        tokens_per_s=None, first_token_s=0, limits=False, script=script, text="filler"
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _session(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    with isolated():
        yield


def _frame(texts: list[str], index: list[int]) -> Any:  # noqa: ANN401 - df.svc is no stub's
    return pd.DataFrame({"text": texts, "n": range(len(texts))}, index=index)


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        "import pandas as pd, svc_notebook as svc",
        "import svc_notebook as svc, pandas as pd; svc.errors",
        "import pandas as pd, svc_notebook.pandas",
        "import pandas as pd, svc_notebook as svc, svc_notebook.pandas",
    ],
)
def test_frames_have_it_without_another_import(imports: str) -> None:
    """It is there with pandas and the package, and its module loads when it is used."""
    program = (
        f"{imports}; import sys; is_named = 'svc_notebook.pandas' in {imports!r};"
        "assert ('svc_notebook.pandas' in sys.modules) == is_named;"
        "import svc_notebook;"
        "assert type(pd.DataFrame({'a': [1]}).svc).__name__ == 'FrameAccessor';"
        "assert type(pd.Series([1]).svc).__name__ == 'FrameAccessor';"
        "import svc_notebook.pandas"
    )

    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)  # noqa: S603 - ours


@pytest.mark.slow
def test_gives_a_series_with_the_frames_own_index(emulator: Emulator) -> None:
    """Replies have the index of their rows, also with duplicates."""
    frame = _frame(["one", "two", "one"], [7, 7, 3])

    replies = frame.svc.complete("Say {{text}}!", max_tokens="fit")

    assert replies.index.tolist() == [7, 7, 3]
    assert replies.dtype == "string"
    assert replies.notna().all()
    prompts = [request.json["messages"][-1]["content"] for request in emulator.requests]
    assert sorted(prompts) == ["Say one!", "Say one!", "Say two!"]


def test_says_how_many_replies_were_cut() -> None:
    """The service's default cuts long replies; a warning says so and what to pass."""
    frame = _frame(["Tea?", "Rain?"], [1, 0])

    with pytest.warns(UserWarning, match=r"^2 of 2 replies were cut\. .*='fit'\.$"):
        frame.svc.complete("{{text}}", model="svc-v2-70b-instruct", temperature=0)


def test_gives_a_reply_for_each_value_of_a_series(emulator: Emulator) -> None:
    """A Series fills `{{value}}` and gives a Series with its own index."""
    series: Any = pd.Series(["one", "two"], index=["x", "y"], name="my text")

    replies = series.svc.complete("Say {{value}}!", max_tokens=300)

    assert (replies.index.tolist(), str(replies.dtype)) == (["x", "y"], "string")
    prompts = [request.json["messages"][-1]["content"] for request in emulator.requests]
    assert sorted(prompts) == ["Say one!", "Say two!"]


@pytest.mark.parametrize(
    ("values", "template", "params", "said"),
    [
        (["a", None], "{{text}}", {}, "df.dropna(subset=['text'])"),
        (["a", b"b"], "{{text}}", {}, "df['text'].map(your_function)"),
        (["a", " "], "{{text}}", {}, "The prompt is empty for row 'y'."),
        (["a", "b"], "Hi", {}, "Write {{text}} where the column goes."),
        (["a", "b"], "{{txt}}", {}, "For the plain text write \\{{txt}}. Nothing"),
        (["a", "b"], "{{text}}", {"answer": int}, "(..., rows=df, answer=...).run()"),
        (["a", "b"], "{{text}}", {"repeat": 2}, "'repeat' is not a parameter of"),
        (["a", "b"], "{{text}}", {"retrys": True}, "Did you mean retry?"),
    ],
)
def test_advises_what_a_frame_can_do(
    values: list[object], template: str, params: dict[str, Any], said: str
) -> None:
    """Messages name rows by the index, and arguments that df.svc takes."""
    frame: Any = pd.DataFrame({"text": values}, index=["x", "y"])

    with pytest.raises(ParameterError) as caught:
        frame.svc.complete(template, **params)

    assert said in str(caught.value)
    assert "raw=" not in str(caught.value)


@pytest.mark.parametrize("gap", [None, b"b"])
def test_advises_what_a_series_can_do(gap: object) -> None:
    """Messages call a Series series."""
    series: Any = pd.Series(["a", gap])

    with pytest.raises(ParameterError, match=r"series\.(dropna\(\)|map\(your)"):
        series.svc.complete("{{value}}")


@pytest.mark.slow
def test_expands_to_a_frame() -> None:
    """With expand the outcome of each row comes too."""
    frame = _frame(["one", "bad"], [1, 0])

    with pytest.warns(UserWarning, match="1 of 2 rows have no reply"):
        replies = frame.svc.complete("{{text}}", expand=True)

    assert replies.index.tolist() == [1, 0]
    assert replies["status"].tolist() == ["ok", "error"]
    assert replies["error_type"].tolist()[1] == "BadRequestError"


def test_a_warning_that_is_an_error_loses_no_reply(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where warnings are errors the column is returned, and stderr says the rest."""
    replies = _frame(["one", "bad"], [0, 1]).svc.complete("{{text}}")

    assert replies.notna().tolist() == [True, False]
    assert "1 of 2 rows have no reply" in capsys.readouterr().err


@pytest.mark.slow
def test_a_name_asks_only_what_is_missing(emulator: Emulator) -> None:
    """The same call sends nothing again; retry sends what failed, but no 400."""
    frame = _frame(["one", "secret", "bad"], [0, 1, 2])
    for _ in range(2):
        with pytest.warns(UserWarning, match="2 of 3 rows have no reply"):
            frame.svc.complete("{{text}}", name="n")
    n_before = len(emulator.requests)

    with pytest.warns(UserWarning, match=r"refused as invalid \(400\)"):
        replies = frame.svc.complete("{{text}}", name="n", retry=True)

    assert (n_before, len(emulator.requests)) == (3, 4)
    assert replies.notna().tolist() == [True, True, False]


@pytest.mark.slow
def test_a_named_run_goes_on_with_fewer_rows(emulator: Emulator) -> None:
    """Rows that have their reply may be left out, and all of them may."""
    frame = _frame(["one", "secret", "three"], [0, 1, 2])
    with pytest.warns(UserWarning, match="1 of 3 rows have no reply"):
        frame["out"] = frame.svc.complete("{{text}}", name="n")
    left = frame[frame["out"].isna()]

    replies = left.svc.complete("{{text}}", name="n", retry=True)

    assert replies.index.tolist() == [1]
    assert replies.notna().all()
    assert len(emulator.requests) == 4
    assert len(frame[:0].svc.complete("{{text}}", name="n")) == 0


@pytest.mark.parametrize(
    "changed", [{"template": "Say {{text}}"}, {"system": "Hi"}, {"max_tokens": 9}]
)
def test_another_template_of_the_same_name_is_refused(
    emulator: Emulator, changed: dict[str, Any]
) -> None:
    """Fewer rows are the same run; another template or parameter is another one."""
    frame = _frame(["one", "two"], [0, 1])
    frame.svc.complete("{{text}}", name="n")

    with pytest.raises(ParameterError, match='since run "n" was started'):
        frame[:1].svc.complete(**{"template": "{{text}}", "name": "n", **changed})

    assert len(emulator.requests) == 2


def test_a_frame_without_rows_gives_none(emulator: Emulator) -> None:
    """An empty frame gives an empty Series, and nothing is sent."""
    frame = _frame([], [])

    replies = frame.svc.complete("{{text}}")

    assert (len(replies), replies.dtype) == (0, "string")
    assert len(emulator.requests) == 0


@pytest.mark.parametrize(
    ("template", "params", "said"),
    [
        ("{{txt}}", {}, "Did you mean text?"),
        ("{{ text }}", {}, "Did you mean {{text}}?"),
        ("{{text}} {{n+1}}", {}, "{{n+1}} is not a column"),
        ("{{text}}", {"temperature": [0, 1]}, "one reply for each row"),
        ("{{text}}", {"n": 2}, "one reply for each row"),
        ("{{text}}", {"temperature": 3}, "temperature must be a number from 0 to 2"),
        ("text", {}, "No prompt uses a column"),
    ],
)
def test_refuses_before_anything_is_sent(
    emulator: Emulator, template: str, params: dict[str, Any], said: str
) -> None:
    """The message says what is wrong and what to do; nothing is sent."""
    frame = _frame(["one", "two"], [0, 1])

    with pytest.raises(ParameterError) as caught:
        frame.svc.complete(template, **params)

    assert said in str(caught.value)
    assert len(emulator.requests) == 0


def milk(cups: int) -> str:
    """Order milk.

    Args:
        cups: How many.
    """
    return f"{cups} cups"


def test_functions_are_run_for_each_row() -> None:
    """The text is that of the last reply."""
    frame = _frame(["Order milk, please"], [0])

    assert "milk answered" in frame.svc.complete("{{text}}", tools=[milk]).iloc[0]


def test_calls_of_tools_that_are_not_run_are_told() -> None:
    """A row whose reply is a call has it in `tool_calls`, and a warning says so."""
    frame = _frame(["Order milk, please"], [0])

    with pytest.warns(UserWarning, match="1 of 1 rows called tools"):
        replies = frame.svc.complete(
            "{{text}}", tools=[milk], expand=True, run_tools=False
        )

    assert '"name":"milk"' in replies["tool_calls"].iloc[0]

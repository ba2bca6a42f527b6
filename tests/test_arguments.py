"""What the public functions are given by mistake is refused in our own words."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import svc_notebook as svc
import svc_notebook.pandas  # registers df.svc

FIVE: Any = 5  # of no type that is wanted anywhere below
ADDRESS: Any = "https://svc.example/v1"
TEMP: Any = {"temp": 5}
MAX: Any = {"max": 5}
EMULATOR: Any = "emulator"
MODEL: Any = "svc-v1"
WHERE: Any = lambda: 1  # noqa: E731 - as a user writes it
TWINS = pd.DataFrame([[1, 2]], columns=["text", "text"])
MESSAGE: Any = svc.Message
FRAME = pd.DataFrame({"text": ["a"]})
REPLIES = svc.sweep("a").plan_df()


@pytest.fixture(autouse=True)
def _asked_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that got past the checks would end at a port that nobody serves."""
    monkeypatch.setenv("SVC_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("SVC_API_KEY", "sk-test")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("extra must be a mapping", lambda: svc.complete("a", extra=FIVE)),
        ("extra must be a map", lambda: svc.sweep("a", extra=FIVE)),
        ("No model is chosen", lambda: svc.complete("a", model="")),
        ("mean temperature?", lambda: svc.complete("a", **TEMP)),
        ("mean max_tokens?", lambda: svc.complete("a", **MAX)),
        ("A conversation cannot be named 5", lambda: svc.conversation(FIVE)),
        ("cannot be named 5", lambda: svc.panel(FIVE)),
        ("be named 'a\\x00b'; use up", lambda: svc.conversation("a\x00b")),
        ("be named 'plan\\u200b'; use up", lambda: svc.conversation("plan\u200b")),
        ("characters, without spaces around them", lambda: svc.conversation("\u200d")),
        ("system message must be a text", lambda: svc.conversation("a", system=FIVE)),
        ("user message must be a text", lambda: svc.conversation("a").ask(FIVE)),
        ("model is chosen, and the", lambda: svc.conversation("a").ask("b", model="")),
        ("'a' has no turns yet", lambda: svc.conversation("a").choose(1, FIVE)),
        ("prompt is int; give a text", lambda: svc.sweep(FIVE)),
        ("tied is int; give a list", lambda: svc.sweep("a", tied=FIVE)),
        ("svc.use(endpoint='emulator')", lambda: svc.use(EMULATOR)),
        ("svc.use(model='svc-v1')", lambda: svc.use(MODEL)),
        ("settings is str; give", lambda: svc.Client(ADDRESS)),
        ("settings is int; give", lambda: svc.AsyncClient(FIVE)),
        ("base address is int", lambda: svc.Client(base_url=FIVE)),
        ("The API key from an argument is int", lambda: svc.Client(api_key=FIVE)),
        ("template is int", lambda: FRAME.svc.complete(FIVE)),
        ("Message takes its fields by name: role, content", MESSAGE),
        ("role is needed", lambda: MESSAGE(content="a")),
        ("Message(role='user', content='...')", lambda: MESSAGE("user", "Hi")),
        ("takes its fields by name", lambda: MESSAGE(role="user", temp=5)),
        ("role must be one of system", lambda: MESSAGE(role=FIVE)),
        ("conversation contains half", lambda: svc.conversation("a\ud800")),
        ("name contains half", lambda: svc.sweep("a", name="a\ud800")),
        ("name contains half of", lambda: svc.run("a\ud800")),
        ("name must be a text", lambda: svc.run(FIVE)),
        ("scope must be 'session'", lambda: svc.runs_df(scope=FIVE)),
        ("rows must be a frame of svc.dataset", lambda: svc.replay(FIVE, model="a")),
        ("no column 'asked_id'", lambda: svc.replay(FRAME, model="a")),
        ("No question is left to ask", lambda: svc.replay(model="a")),
        ("since must be", lambda: svc.dataset(since="30 days")),
        ("search must be a text", lambda: svc.conversations_df(FIVE)),
        ("search contains half", lambda: svc.conversations_df("a\ud800")),
        ("be named 5; use up to", lambda: svc.conversation("a").rename(FIVE)),
        ("run contains half", lambda: svc.replies_df(run="a\ud800")),
        ("model contains half", lambda: svc.usage_df(model=["b", "a\ud800"])),
        ("where is called with one", lambda: svc.sweep("a", where=WHERE)),
        ("path is int; give the path", lambda: svc.export_answers(FIVE)),
        ("path is int; give", lambda: svc.read_parquet(FIVE)),
        ("'nope' cannot be read: there is no", lambda: svc.read_parquet("nope")),
        ("are called 'text'", lambda: svc.export(TWINS, "twins.parquet")),
        ("Two columns of the frame", lambda: svc.export(TWINS, "twins.jsonl")),
        ("df must be a DataFrame", lambda: svc.compare(FIVE)),
        ("lacks choice_index, model", lambda: svc.compare(FRAME)),
        ("diff must be True or False", lambda: svc.compare(REPLIES, diff=FIVE)),
        ("no exchange 5", lambda: svc.reply(FIVE)),
        ("df must be a DataFrame of replies", lambda: svc.summary_df(FIVE)),
        ("The frame lacks choice_index", lambda: svc.contrast_df(FRAME, "model")),
        ("difference must be a number > 0", lambda: svc.how_many(-1, pilot=FRAME)),
        ("df must be a pandas or Polars DataFrame", lambda: svc.as_replies(FIVE)),
        ("path is int; give the", lambda: svc.read_eval(FIVE)),
        ("describe takes a DataFrame", lambda: svc.describe(FIVE)),
        ("'wide' is not a column", lambda: svc.replies_df(["wide"])),
        ("answer must be a Literal such", lambda: svc.sweep("a", answer=FIVE)),
        ("read_answers takes a Data", lambda: svc.read_answers(FIVE, bool)),
        ("Only a frame of replies can be", lambda: svc.score(FIVE, right=len)),
        ("contains needs either", lambda: svc.scores.contains("a", text="b")),
        ("not a valid regular expression", lambda: svc.scores.regex("(")),
        ("must be a JSON schema or a", lambda: svc.scores.json_schema(FIVE)),
        ("not a valid JSON schema", lambda: svc.scores.json_schema({"type": 5})),
        ("unit must be 'char", lambda: svc.scores.length(FIVE)),
        ("repeats is an argument", lambda: FRAME.svc.complete("{{text}}", repeats=2)),
    ],
)
def test_a_wrong_value_is_refused_in_words(
    said: str, call: Callable[[], object]
) -> None:
    """No exception from inside comes out, and nothing is sent."""
    with pytest.raises(svc.SvcError) as caught:
        call()

    assert said in str(caught.value)

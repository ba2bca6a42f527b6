"""What is said of columns is true of the frames."""

from typing import Literal

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.api import frame_columns
from svc_notebook.magics.conversation_commands import (
    CONVERSATION_LIST,
    conversations_df,
)
from svc_notebook.magics.models_command import MODEL_LIST, models_df
from svc_notebook.magics.settings_command import SETTING_LIST, settings_df
from svc_notebook.magics.tools_command import TOOL_LIST, tools_df
from svc_notebook.session import current
from svc_notebook.tools.consent import Remembered, deny_all

HAS_MORE = {  # also what they are grouped by, columns of rows, scores, or labels
    "replies_df",
    "summary_df",
    "contrast_df",
    "agreement",
    "agreement_df",
    "repeats_df",
    "confusion_df",
    "Run.categories",
}


def _dtypes(df: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in df.dtypes.items()}


def _frames() -> dict[str, pd.DataFrame]:
    """Return a frame of each kind, after a conversation and a run."""
    talk = svc.conversation("plan")
    talk.ask("Where to begin?")
    run = svc.sweep(
        "Classify: {{text}}",
        rows=["a", "b", "c"],
        model=["svc-v2-8b-instruct", "svc-v2-70b-instruct"],
        answer=Literal["spam", "ham"],
    ).run()
    run.rate().rate(1, note="too long")
    run.score(right=lambda row: row.answer == "spam", even=lambda row: row.row != 1)
    replies = svc.replies_df()
    judge = run.judge("Is it good?", model="svc-instruct").run()
    return {
        "replies_df": replies,
        "usage_df": svc.usage_df(by=[], include_emulated=True),
        "summary_df": run.summary_df(),
        "contrast_df": run.contrast_df("model", "right"),
        "agreement": run.agreement("right", "even").df,
        "judgements_df": run.judgements_df(),
        "Judge.probes_df": judge.probes_df(),
        "agreement_df": run.agreement_df(by="model"),
        "repeats_df": run.repeats_df(),
        "confusion_df": run.confusion_df("prompt", by="model"),
        "Run.ratings_df": run.ratings_df(),
        "Run.categories": run.categories({"long": "long"}),
        "tool_calls_df": svc.tool_calls_df(),
        "runs_df": svc.runs_df(),
        "conversations_df": svc.conversations_df(),
        "dataset": svc.dataset(),
        "Conversation.to_df": talk.to_df(),
        "describe": svc.describe(run.replies_df()),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_columns_have_the_dtypes_that_are_said() -> None:
    """Each frame has the columns of its table, with their dtypes."""
    frames = _frames()

    assert frames.keys() == frame_columns().keys()
    for kind, columns in frame_columns().items():
        found = _dtypes(frames[kind])
        said = {column.name: str(column.dtype) for column in columns}
        in_both = found.keys() & said.keys()
        assert {name: found[name] for name in in_both} == {
            name: said[name] for name in in_both
        }
        if kind != "summary_df":  # it has what can be known
            assert found.keys() >= said.keys()
        if kind not in HAS_MORE:
            assert found.keys() <= said.keys()


@pytest.mark.slow
@pytest.mark.usefixtures("session")
def test_describe_knows_every_frame() -> None:
    """No column of the package is taken for one of the user's."""
    own = "a column of your own"

    for kind, df in _frames().items():
        meanings = svc.describe(df).set_index("name")["meaning"]
        assert list(meanings.index[meanings.str.startswith(own)]) == [], kind


@pytest.mark.usefixtures("session")
def test_listings_of_the_magic_have_the_columns_that_are_said() -> None:
    """The first column of such a frame is its index."""
    svc.conversation("plan").ask("Where to begin?")
    session = current()
    frames = {
        MODEL_LIST: models_df(session),
        CONVERSATION_LIST: conversations_df(session),
        SETTING_LIST: settings_df(session, ()),
        TOOL_LIST: tools_df({}, (), Remembered(deny_all)),
    }

    for columns, df in frames.items():
        said = {column.name: str(column.dtype) for column in columns}
        assert _dtypes(pd.DataFrame(df).reset_index()) == said

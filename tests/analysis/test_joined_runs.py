"""A run against an earlier one: paired by row, with what regressed first."""

import pandas as pd
import pytest

import svc_notebook as svc
from svc_notebook.errors import ParameterError
from tests.analysis.make import replies

N_ROWS = 40
OLD_WRONG, NEW_WRONG = (3, 7), (7, 9, 20, 31)


def asked(run: str, wrong: tuple[int, ...], template: str = "Say {}") -> pd.DataFrame:
    """Return the replies of a run to rows, wrong for some."""
    return replies(
        (
            {
                "row": row,
                "run": run,
                "prompt": template.format(row),
                "text": f"{run} {row}",
                "score_right": row not in wrong,
                "page": f"page {row}",
            }
            for row in range(N_ROWS)
        ),
        middle=["page"],
    )


def test_rows_are_paired_although_the_prompt_changed() -> None:
    """The later run less the earlier one, over all rows of both."""
    old, new = asked("old", OLD_WRONG), asked("new", NEW_WRONG, "Please say {}")

    compared = svc.contrast([old, new], "run", on="right")

    row = compared.df.iloc[0]
    assert (row["level"], row["against"], row["n_prompts"]) == ("new", "old", N_ROWS)
    assert row["difference"] == pytest.approx(-2 / N_ROWS)
    assert compared.pair_by == ["row"]


@pytest.mark.slow
def test_what_regressed_comes_first() -> None:
    """The drawing and the frame have the rows that only the earlier run gets right."""
    compared = svc.contrast(
        [asked("old", OLD_WRONG), asked("new", NEW_WRONG)], "run", on="right"
    )

    flips = compared.flips()

    assert flips.df["row"].tolist() == [9, 20, 31, 3]
    assert flips.df["better"].tolist() == ["old"] * 3 + ["new"]
    assert [head for head, _ in flips.tables] == [
        "Regressed: only old is right: 3 rows",
        "Improved: only new is right: 1 row",
    ]
    assert "Regressed: only old is right in 3 of 40 rows" in repr(compared)
    html = compared._repr_mimebundle_()["text/html"]
    assert html.index("Regressed") < html.index("Improved")
    assert "old 9" in html


def _says(old: pd.DataFrame, new: pd.DataFrame) -> str:
    [sentence] = svc.contrast([old, new], "run", on="right").says
    return sentence


def _worse(run: str, template: str, **more: float) -> pd.DataFrame:
    """Return a run that is wrong more often than `asked("old", OLD_WRONG)`."""
    replies = asked(run, tuple(range(20)), template)
    return replies.assign(**more).astype(
        {name: replies.dtypes.get(name, "Int64") for name in more}
    )


def test_everything_that_differs_between_runs_is_named_once() -> None:
    """The texts of prompts are compared row by row, settings by their values."""
    old = asked("old", OLD_WRONG).assign(max_tokens=10)
    new = _worse("new", "Please say {}", max_tokens=20, temperature=0.0)

    says = _says(old, new)

    assert says.endswith(
        "But the runs differ in the text of the prompt, temperature (not sent in old, "
        "0 in new) and max_tokens (10 in old, 20 in new), so any of these may be the "
        "cause."
    )


def test_a_label_with_another_text_is_named() -> None:
    """The wording differs although its label is the same."""
    old, new = asked("old", OLD_WRONG), _worse("new", "Please say {}")
    for frame in (old, new):
        frame.insert(0, "prompt_label", ["long"] * N_ROWS)

    assert _says(old, new).endswith(
        "But the runs differ in the text of prompt `long`, which may be the cause."
    )


def test_runs_that_sent_the_same_differ_in_nothing() -> None:
    """Only the replies differ, so no other cause is named."""
    assert "But" not in _says(asked("old", OLD_WRONG), _worse("new", "Say {}"))


def test_a_value_that_only_one_run_has_is_left_out() -> None:
    """Only the same wordings are compared, and the sentence says so."""
    frames = []
    for run, label in (("old", "short"), ("new", "terse")):
        frame = pd.concat([asked(run, OLD_WRONG)] * 2, ignore_index=True)
        frame.insert(0, "prompt_label", ["long"] * N_ROWS + [label] * N_ROWS)
        frames.append(frame)

    assert _says(*frames).endswith(
        "Left out: prompt_label short, which only old has; prompt_label terse, which "
        "only new has."
    )


def test_too_few_rows_are_called_rows() -> None:
    """Replies are paired by row, so the note does not speak of prompts."""
    old, new = asked("old", (0,)), asked("new", (1,))

    compared = svc.contrast([old[:2], new[:2]], "run", on="right")

    assert "needs at least 3 rows" in compared.notes[0]
    assert "prompt" not in repr(compared)


def test_runs_have_names() -> None:
    """Of a mapping, or their own; runs of one name, or none, are numbered."""
    old, new = asked("tea", OLD_WRONG), asked("tea", NEW_WRONG)

    by_name = svc.contrast({"before": old, "after": new}, "run", on="right")
    numbered = svc.contrast([old, new], "run", on="right")

    pairs = [tuple(x.df[["level", "against"]].iloc[0]) for x in (by_name, numbered)]
    assert pairs == [("after", "before"), ("run 2", "run 1")]


def test_the_id_of_a_run_without_a_name_is_not_its_name() -> None:
    """Sentences call it by its place, and a run with a name by its name."""
    old, new = asked("run-dadc0123beef", OLD_WRONG), asked("tea", NEW_WRONG)

    compared = svc.contrast([old, new], "run", on="right")

    assert tuple(compared.df[["level", "against"]].iloc[0]) == ("tea", "run 1")
    assert "run-" not in repr(compared)


@pytest.mark.slow
def test_replies_that_were_made_elsewhere_are_compared() -> None:
    """Two frames of another tool are paired by their row; their text without one."""
    source = pd.DataFrame(
        {"id": range(9), "question": [f"q {n}" for n in range(9)], "output": "x"}
    )
    old, new = (
        svc.as_replies(
            source.assign(ok=[n != wrong for n in range(9)]),
            "output",
            row="id",
            prompt="question",
            scores="ok",
        )
        for wrong in (2, 5)
    )

    by_row = svc.contrast([old, new], "run", on="ok")
    by_text = svc.contrast([frame.drop(columns="row") for frame in (old, new)], "run")

    for compared in (by_row, by_text):
        assert compared.df["n_prompts"].tolist() == [9]
        assert len(compared.flips()) == 2
    assert by_text.pair_by == ["prompt"]


def test_rows_that_are_others_are_refused() -> None:
    """A row number alone does not make a pair; the message says what does."""
    old, new = asked("old", OLD_WRONG), asked("new", NEW_WRONG)
    new.loc[new["row"] == 5, "page"] = "another"

    with pytest.raises(ParameterError, match="Row 5 is not the same in old and"):
        svc.contrast([old, new], "run", on="right")
    compared = svc.contrast([old, new], "run", on="right", pair_by="page")
    assert compared.df["n_prompts"].tolist() == [N_ROWS - 1]


def test_one_run_is_not_enough() -> None:
    """The message shows how two are given."""
    with pytest.raises(ParameterError, match=r"contrast\(\[old, new\], 'run'\)"):
        svc.contrast([asked("old", ())], "run", on="right")

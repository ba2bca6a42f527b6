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
        "regressed: only old is right: 3 rows",
        "improved: only new is right: 1 row",
    ]
    assert "regressed: only old is right in 3 of 40 rows" in repr(compared)
    html = compared._repr_mimebundle_()["text/html"]
    assert html.index("regressed") < html.index("improved")
    assert "old 9" in html


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

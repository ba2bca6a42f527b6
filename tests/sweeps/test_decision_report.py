"""The report of a run: one file that is read without a script, and its replies."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import svc_notebook as svc
from svc_notebook.display.interval_chart import Interval, IntervalChart
from svc_notebook.display.report_page import (
    Drawings,
    FileInside,
    ReportFacts,
    ReportPage,
    ReportPart,
    ReportReplies,
    ReportSection,
    ReportTable,
    Sentences,
    Verbatim,
)
from svc_notebook.display.text_table import ComparedText, ComparisonTable
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import BadRequestError, ParameterError
from svc_notebook.ledger.prices import Price, Prices
from svc_notebook.session import Session
from svc_notebook.sweeps.run import Run, plan_run
from svc_notebook.sweeps.stored_runs import stored_run
from tests.display.test_markdown_to_html import ATTACKS
from tests.sweeps.conftest import LARGE, SMALL, answering
from tests.sweeps.world import priced_run

pytestmark = pytest.mark.slow

THIRD = "svc-v2-8b-instruct"
MODELS = {"8b": SMALL, "70b": LARGE}
ATTACK = "<img src=x onerror=alert(1)>\"'</td></style><script>x()</script> \u202e $x$"
BLOCKS = frozenset({"p", "h1", "h2", "h3", "li", "tr", "td", "th", "pre", "div"})
TAGS = BLOCKS | {
    *("html", "head", "meta", "title", "style", "body", "main", "section"),
    *("h4", "h5", "h6", "ul", "ol", "span", "table", "thead", "tbody"),
    *("code", "details", "summary", "svg", "line", "circle", "rect"),
    *("a", "strong", "em", "s", "blockquote", "hr", "br"),
}
ROWS = pd.DataFrame(
    {
        "mail": [f"win {n}" if n % 2 else f"hi {n}" for n in range(12)],
        "label": ["spam" if n % 2 else "ham" for n in range(12)],
    }
)
RIGHT = {"right": svc.scores.exact("label")}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator whose small model says ham to everything, and fails on a word."""
    with answering(
        {"when": {"contains": "<prompt "}, "judge": "fair"},
        {"when": {"contains": "break"}, "status": 400},
        {"when": {"contains": "attack"}, "text": ATTACK},
        {"when": {"model": SMALL}, "text": "ham"},
        {"when": {"contains": "win"}, "text": "spam"},
        {"text": "ham"},
    ) as running:
        yield running


def _planned(session: Session, prompt: Any = "{{mail}}", **how: Any) -> Run:  # noqa: ANN401 - any arguments
    arguments: dict[str, Any] = {"rows": ROWS, "model": MODELS, "seed": 3}
    return plan_run(session, prompt, **{**arguments, "scores": RIGHT, **how})


class _Page(HTMLParser):
    """What a browser reads in a page: its tags, what acts in them, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag or an attribute that no report has."""
        self.texts.append(" " * (tag in BLOCKS))
        if tag not in TAGS:
            self.faults.append(f"<{tag}>")
        for name, value in attrs:
            link = (value or "").lower()
            if name.startswith("on") or name in {"src", "srcset", "action", "srcdoc"}:
                self.faults.append(name)
            if name == "href" and not re.match(r"https?:|mailto:|#|data:", link):
                self.faults.append(link)
            if name == "href" and link.startswith("data:"):
                kinds = ("data:text/csv;", "data:application/vnd.apache.parquet;")
                self.faults += [] if link.startswith(kinds) else [link]
            if name == "style" and "url(" in link:
                self.faults.append(link)

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All of it, in one line."""
        return " ".join("".join(self.texts).split())


def _read(path: Path) -> str:
    return _Page(path.read_text("utf-8")).text


def test_one_file_has_the_answer_and_what_it_is_based_on(
    session: Session, tmp_path: Path
) -> None:
    """A small run is one page, with its replies inside and nothing to load."""
    run = _planned(session, system="Be brief.", temperature=0.2, name="mails").run()

    (file,) = run.report(tmp_path / "decision.html")

    html = file.read_text("utf-8")
    page = _Page(html)
    assert page.faults == []
    assert "default-src 'none'" in html
    headings = re.findall("<h2>(.*?)</h2>", html)
    assert headings == [
        "The answer",
        "Differences",
        "The figures",
        "What the data cannot tell",
        "Where only one is right",
        "The worst replies",
        "Replies at random",
        "What was asked",
        "Costs",
        "To repeat the study",
    ]
    assert "70b is right more often than 8b: 100 % against 50 %" in page.text
    assert "Only 70b is right in 6 of 12 rows" in page.text
    assert "10 of 24 replies, drawn at random." in page.text
    assert "6 of 6 replies that are not right" in page.text
    assert "Be brief." in page.text
    assert "An emulator answered" in page.text
    assert session.ledger.plans("mails")[-1].digest in page.text
    assert html.count("download=") == 2


def test_a_report_is_written_for_others(session: Session, tmp_path: Path) -> None:
    """It has no code, no names of columns of the frame, and each figure once."""
    prompts = {"terse": "{{mail}}", "careful": "Careful: {{mail}}"}
    run = _planned(session, prompts, name="mails").run()

    for ending in ("html", "md"):
        file, *_ = run.report(tmp_path / f"a.{ending}", title="Which one?")
        text = file.read_text("utf-8").replace("\\_", "_")
        if ending == "html":
            text = _Page(text).text
        for code in ("_label", ".flips", "(Holm)", "run.decide", "right_low"):
            assert code not in text.split("To repeat the study")[0], code
    heads = next(line for line in text.splitlines() if line.startswith("| prompt |"))
    assert heads == "| prompt | model | right | rows | replies | median seconds |"
    assert re.findall(r"\| (?:\d\.\d{1,3}|under 0\.001) \|\n", text)
    assert not re.findall(r"\| 0\.\d{4,} \|\n", text)
    assert (
        "Question: do the prompt and the model change how often the reply is right?"
        in text
    )
    assert "All 48 requests that were planned have a reply." in text
    assert "more rows are not shown\n" in text
    assert "not right:" in text
    assert "difference in how often the reply is right by prompt" in text
    end = text[text.index("## To repeat the study") :]
    assert "rows came from: a table in the program that made the run" in end
    assert "comparisons: 2, corrected together (Holm)" in end


def test_a_report_names_the_file_of_the_rows(session: Session, tmp_path: Path) -> None:
    """It does so for a CSV file, too, also after a restart."""
    file = tmp_path / "mails.csv"
    pd.DataFrame({"mail": ["win", "hi"], "label": ["spam", "ham"]}).to_csv(file)
    scores = {"right": svc.scores.exact("label")}
    plan_run(
        session, "{{mail}}", rows=str(file), name="mails", model=SMALL, scores=scores
    ).run()

    report, *_ = stored_run(session, "mails").report(tmp_path / "a.md")

    end = report.read_text("utf-8").split("## To repeat the study")[1]
    assert "rows came from: mails.csv (2 rows); its ledger has all of them" in end


def test_a_margin_of_a_decision_is_in_points(session: Session, tmp_path: Path) -> None:
    """The report asks what was decided as one would say it."""
    prompts = {"terse": "{{mail}}", "careful": "Careful: {{mail}}"}
    run = _planned(session, prompts, name="mails", model=SMALL)
    run.decide(["model", "prompt"], on="right", margin=0.05)

    (file,) = run.report(tmp_path / "a.html")

    html = file.read_text("utf-8")
    assert (
        "Question: which combination of model and prompt is right most often? One that "
        "costs less may be at most 5 points worse."
    ) in _Page(html).text
    lead = re.findall('<p class="lead">(.*?)</p>', html)[0]
    assert lead.replace("\xa0", " ").startswith("Cannot tell with all rows: ")
    assert lead.endswith(" requests) in all would tell.")


def test_a_report_is_split_by_a_column_of_the_rows(
    session: Session, tmp_path: Path
) -> None:
    """The answer is over all rows, and each language has its figures below it."""
    rows = pd.concat([ROWS] * 4, ignore_index=True)
    rows["language"] = ["th" if n % 4 < 2 else "en" for n in range(len(rows))]
    run = _planned(session, rows=rows, name="mails").run()

    file, *_ = run.report(tmp_path / "a.md", by="language")

    text = file.read_text("utf-8")
    part = text[text.index("## By language") : text.index("## What the data cannot")]
    assert "| language | model | right | rows |" in part
    assert "| th | 70b | 100 % (85 to 100) | 24 |" in part
    assert "- With language th, 70b is right more often than 8b: " in part
    assert "No clear difference between values of language: 1 pair." in part
    assert "1 comparison that is not clear; a report that ends with .html" in part
    assert "70b is right more often than 8b: 100 % against 50 %" in text.split(part)[0]
    with pytest.raises(ParameterError, match="lang"):
        run.report(tmp_path / "b.md", by="lang")


def _two_scores(session: Session) -> Run:
    """Return a run of two system prompts: one is right, the other is short."""
    rows = pd.concat([ROWS[["mail"]]] * 2, ignore_index=True)
    rows["topic"] = [f"topic {n % 4}" for n in range(len(rows))]
    scores = {
        "fits": lambda row: row["system_label"] == "short" or row["row"] % 4 == 0,
        "polite": lambda row: row["system_label"] == "kind" or row["row"] == 1,
    }
    system = {"kind": "Be kind.", "short": "Be short."}
    return _planned(session, rows=rows, model=SMALL, system=system, scores=scores)


def test_the_answer_has_the_clear_result_of_each_score(
    session: Session, tmp_path: Path
) -> None:
    """Both are in the lead, and the question names the system prompt."""
    run = _two_scores(session).run()

    (file,) = run.report(tmp_path / "a.html")

    html = file.read_text("utf-8")
    leads = re.findall('<p class="lead">(.*?)</p>', html)
    assert [lead.partition(" for ")[0] for lead in leads] == [
        "polite is true more often",
        "fits is true more often",
    ]
    text = _Page(html).text
    assert "Question: does the system prompt change how often fits is true" in text
    assert "comparisons" not in text.split("Differences")[0]
    assert "fits is true more often for short than for kind" in " ".join(
        repr(run).split()
    )


def test_subgroups_in_which_nothing_is_clear_are_folded(
    session: Session, tmp_path: Path
) -> None:
    """The overall figures come first, and a sentence says that nothing is clear."""
    run = _two_scores(session).run()

    (file,) = run.report(tmp_path / "a.html", by="topic")

    html = file.read_text("utf-8")
    assert _Page(html).faults == []
    headings = re.findall("<h2>(.*?)</h2>", html)
    assert headings.index("The figures") < headings.index("By topic")
    part = html[html.index("By topic</h2>") : html.index("What the data cannot")]
    shown, _, folded = part.partition("<details>")
    assert "Cannot tell yet" not in shown
    assert "No clear difference between values of topic: 12 pairs." in shown
    assert "topic 0: short minus kind" not in shown
    assert "cannot tell yet" in folded
    assert "may be up to 200 points" in folded


def _many_rows() -> pd.DataFrame:
    rows = pd.concat([ROWS] * 7, ignore_index=True)
    rows["language"] = ["th" if n % 4 < 2 else "en" for n in range(len(rows))]
    return rows


def test_a_decision_is_split_by_a_column_of_the_rows(
    session: Session, tmp_path: Path
) -> None:
    """The answer is that of decide; the parts have intervals for one look."""
    run = _planned(session, rows=_many_rows(), name="mails")
    decision = run.decide("model", margin=0.05)

    file, *_ = run.report(tmp_path / "decide.md", by="language")

    text = file.read_text("utf-8")
    assert decision.headline in text
    part = text[text.index("## By language") : text.index("## What the data cannot")]
    assert "| language | model | right |" in part
    assert "These figures describe parts of the rows; the answer is" in part
    assert "Their ranges are for one look" in part
    assert "looks='any'" not in part


@pytest.mark.parametrize(("n_rows", "margin"), [(84, 0.05), (84, None), (12, 0.05)])
def test_a_decision_is_the_only_answer(
    n_rows: int, margin: float | None, session: Session, tmp_path: Path
) -> None:
    """No other sentence says that it cannot tell, or how many rows would."""
    rows = _many_rows()[:n_rows]
    # the two models are equally good, so nothing is clear without a margin
    rows["label"] = ["ham" if n % 4 < 2 else "spam" for n in range(len(rows))]
    run = _planned(session, rows=rows, name="mails")
    decision = run.decide("model", margin=margin)

    (file,) = run.report(tmp_path / "a.html")

    text = _read(file)
    assert decision.says in text
    other = text.replace(decision.says, "").lower()
    assert "would tell" not in other
    assert "cannot tell yet" not in other
    assert ("What follows is without the margin" in text) is (margin is not None)


@pytest.mark.parametrize("margin", [0.05, None])
def test_a_report_has_the_margin_of_its_decision(
    margin: float | None, session: Session, tmp_path: Path
) -> None:
    """Another one is refused, unless the report is without the decision."""
    run = _planned(session, rows=_many_rows(), name="mails")
    run.decide("model", on="right", margin=margin)
    file, other = tmp_path / "a.html", 0.1

    with pytest.raises(ParameterError, match=rf"margin=0\.1 .* decision.*{margin}"):
        run.report(file, margin=other)
    assert not file.exists()
    run.report(file)
    without = _read(file)
    run.report(file, margin=margin)
    assert _read(file) == without
    run.report(file, margin=other, factor="model")
    assert "of the decision, with its margin" not in _read(file)


def test_a_model_with_few_rows_does_not_lead_the_answer(
    session: Session, tmp_path: Path
) -> None:
    """It is listed as having too few rows, and figures have their counts."""
    _planned(session, rows=_many_rows(), name="mails").run()
    models = {**MODELS, "third": THIRD}
    third = _planned(session, rows=_many_rows(), name="mails", model=models)
    third.run(first=12)

    for margin in (0.05, None):
        (file,) = third.report(
            tmp_path / "a.html", factor="model", on="right", margin=margin
        )
        text = _read(file)
        answer = text[text.index("The answer") : text.index("The figures")]
        assert "Too few rows yet: third (4 of 84); left out of the answer." in answer
        assert "third" not in answer.replace("third (4 of 84)", "")
        assert "84 rows" in text
        assert ", 4 rows" in text


def test_the_same_run_gives_the_same_report(session: Session, tmp_path: Path) -> None:
    """The replies are drawn by the seed of the run, so a report can be made again."""
    run = _planned(session).run()

    files = [run.report(tmp_path / f"{n}.md")[0] for n in (1, 2)]

    first, second = (file.read_text("utf-8") for file in files)
    assert first.replace("1.replies", "2.replies") == second


def test_a_markdown_report_has_its_replies_in_files(
    session: Session, tmp_path: Path
) -> None:
    """The replies are next to it, and no text in the CSV is a formula."""
    rows = ROWS.assign(note="=1+1")
    run = _planned(session, rows=rows).run()

    report, csv, parquet = run.report(tmp_path / "decision.md")

    assert "70b is right more often" in report.read_text("utf-8")
    assert csv.name == "decision.replies.csv"
    assert "'=1+1" in csv.read_text("utf-8")
    assert svc.read_parquet(parquet)["note"].tolist() == ["=1+1"] * 24


def test_a_large_run_has_its_replies_in_files(session: Session, tmp_path: Path) -> None:
    """The page does not grow with the run: it counts, and shows a few replies."""
    rows = ROWS.loc[[*range(12)] * 20].reset_index(drop=True)
    rows["page"] = [f"{n} " + "x" * 9_000 for n in range(240)]
    run = _planned(session, rows=rows).run()

    report, csv, parquet = run.report(tmp_path / "decision.html")

    assert report.stat().st_size < 200_000
    assert csv.stat().st_size > 4_000_000
    assert len(svc.read_parquet(parquet)) == 480


def test_a_run_that_decided_has_its_decision(session: Session, tmp_path: Path) -> None:
    """A report has what decide said, also in another kernel, and sends nothing."""
    run = _planned(session, name="mails", rows=pd.concat([ROWS] * 20))
    decision = run.decide("model", on="right")
    n_sent = len(run.replies_df().query("status == 'ok'"))

    (file,) = stored_run(session, "mails").report(tmp_path / "decision.html")

    text = _read(file)
    assert decision.says in text
    assert "Question: which model is right most often?" in text
    assert run.manifest["decision"]["digest"] in text
    assert "not complete" not in text
    assert len(run.replies_df().query("status == 'ok'")) == n_sent


def test_a_margin_is_against_the_best(session: Session, tmp_path: Path) -> None:
    """With a margin, each value is compared with the one that scores highest."""
    run = _planned(session).run()

    (file,) = run.report(tmp_path / "a.html", factor="model", on="right", margin=0.1)

    assert "8b is worse than 70b" in _read(file)


def test_a_margin_is_about_one_factor(session: Session, tmp_path: Path) -> None:
    """With several factors, the error says to name one."""
    run = _planned(session, temperature=[0, 1]).run()

    with pytest.raises(ParameterError, match=r"temperature\. Name one with"):
        run.report(tmp_path / "a.html", margin=0.1)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"scores": None}, "no reply has a score, so nothing says which is better"),
        ({"model": SMALL}, "There is one condition, so there is nothing to compare"),
        ({"prompt": "break {{mail}}"}, "There is no answer: no request has a reply."),
        ({"rows": None, "prompt": "hi", "scores": None}, "no reply has a score"),
    ],
)
def test_what_is_missing_is_said(
    how: dict[str, Any], said: str, session: Session, tmp_path: Path
) -> None:
    """A run without scores, of one condition, or of failures says so."""
    run = _planned(session, **how)
    with suppress(BadRequestError):
        run.run()

    for ending in ("html", "md"):
        file, *_ = run.report(tmp_path / f"decision.{ending}")
        assert said in file.read_text("utf-8")


def test_the_answer_has_a_sentence_for_each_factor(
    session: Session, tmp_path: Path
) -> None:
    """The clearest factor first, and how many comparisons are below; and in a cell."""
    prompts = {
        "terse": "{{mail}}",
        "careful": "Careful: {{mail}}",
        "kind": "Hi, {{mail}}",
    }
    run = _planned(session, prompts).run()

    (file,) = run.report(tmp_path / "a.html")

    answer = _read(file).split("Differences")[0]
    first = "70b is right more often than 8b: 100 % against 50 %"
    assert answer.index(first) < answer.index(" is seen between ")
    assert "And 2 more comparisons below." in answer
    said = " ".join(repr(run).split())
    assert first in said
    assert " is seen between " in said
    assert "(2 more: run.contrast(['prompt_label', 'model_label'], on='right'))" in said


def test_faults_of_labels_and_answers_are_limits(
    session: Session, tmp_path: Path
) -> None:
    """A report has those of the whole run that its end has said, and what to do."""
    rows = ROWS.assign(label=[*ROWS["label"][:9], "SPAM", "eggs", "SPAM"])
    how = {"rows": rows, "answer": Literal["spam", "eggs"], "name": "mails"}
    _planned(session, **how).run()

    for ending in ("html", "md"):
        file, *_ = stored_run(session, "mails").report(tmp_path / f"a.{ending}")
        text = _read(file).replace("\\_", "_")
        answer, limits = text.split("What the data cannot tell")
        never = (
            "14 of 24 replies have a label that can never be the answer, such as 'ham':"
        )
        assert never in answer
        assert never in limits
        assert "Correct the label of these rows, or leave the rows out." in limits
        assert "18 of 24 answers could not be read. The first: None of the" in limits
        assert "The column answer_error of all replies, below, says why" in limits


def test_each_factor_has_the_difference_that_would_be_found(
    session: Session, tmp_path: Path
) -> None:
    """One number for all would be too small for the factor that is known less well."""
    prompts = {"terse": "{{mail}}", "careful": "Careful: {{mail}}"}
    run = _planned(session, prompts, rows=pd.concat([ROWS] * 3), scores=RIGHT).run()

    (file,) = run.report(tmp_path / "a.html")
    (one,) = run.report(tmp_path / "b.html", factor="model")

    said = "In 36 rows, differences in how often the reply is right would often be "
    said += "missed if they are less than "
    by_factor = "8 points between values of prompt or 27 points between values of model"
    assert f"{said}{by_factor}." in _read(file)
    assert re.search(rf"{said}\d+ points\.", _read(one))


def test_figures_have_the_cost_of_a_reply(session: Session, tmp_path: Path) -> None:
    """By condition, in the currency of the price table; what is not known is empty."""
    run = _planned(session).run()
    (file,) = run.report(tmp_path / "a.html")
    assert "cost of a reply" not in _read(file)
    prices = Prices(
        as_of=date(2026, 1, 31),
        currency="USD",
        models={LARGE: Price(prompt=2.0, completion=6.0)},
        source="prices.toml",
    )

    priced = priced_run(session, prices, "{{mail}}", rows=ROWS, model=MODELS, seed=3)
    priced.run().score(right=svc.scores.exact("label"))
    file, *_ = priced.report(tmp_path / "a.md")

    lines = file.read_text("utf-8").splitlines()
    (heads,) = (line for line in lines if line.startswith("| model | right |"))
    assert heads.endswith("| cost of a reply (USD) |")
    (small,) = (line for line in lines if line.startswith("| 8b | 50 %"))
    (large,) = (line for line in lines if line.startswith("| 70b | 100 %"))
    assert small.endswith("|  |")
    assert float(large.split("|")[-2]) > 0


def test_an_unfinished_run_says_so(session: Session, tmp_path: Path) -> None:
    """Before its first request and after some, a report counts what is missing."""
    run = _planned(session)

    (file,) = run.report(tmp_path / "planned.html")
    assert "24 of 24 requests have no reply yet." in _read(file)
    run.run(first=8)
    (file,) = run.report(tmp_path / "some.html")
    assert "16 of 24 requests have no reply yet." in _read(file)


def test_a_judge_is_measured_against_people(session: Session, tmp_path: Path) -> None:
    """With ratings there is the agreement; without, that it is not known."""
    run = _planned(session).run()
    run.score(judge_good=lambda row: row["text"] == "spam" or row["row"] == 2)

    (file,) = run.report(tmp_path / "a.html")
    assert "judge_good is what a model says about replies." in _read(file)

    run.score(rated_good=lambda row: row["text"] == "spam" if row["row"] < 4 else None)
    (file,) = run.report(tmp_path / "a.html")
    text = _read(file)
    assert "judge_good agrees with rated_good on 75 %" in text
    assert "2 of 2 replies on which they differ" in text
    assert "is what a model says" not in text


def test_ratings_correct_the_answer_of_a_judge(
    session: Session, tmp_path: Path
) -> None:
    """The answer is about the labels, and below it is what the judge gets wrong."""
    run = _planned(session).run()
    judge = run.judge("Is it right?", model=SMALL).run()
    run.score(judge_good=lambda row: row["text"] == "spam")
    rating = run.rate(first="random", rater="ann")
    while (card := rating.card()) is not None:
        rating.rate(int(card.replies[0].text == "ham"))

    (file,) = run.report(tmp_path / "a.html", on="judge_good")
    text = _read(file)

    assert "from 24 labels alone: judge_good adds nothing to them" in text
    assert "rated_good is true more often for 8b than for 70b" in text
    assert f"judge_good was asked of {SMALL}: Is it right?" in text
    assert "itself: asked again, it says the same" in text
    assert f"{SMALL} for judge_good {len(judge.judgements_df())} " in text


def test_labels_that_were_not_drawn_at_random_are_counted(
    session: Session, tmp_path: Path
) -> None:
    """The report says of its labels what run.agreement says of them."""
    run = _planned(session).run()
    run.score(judge_good=lambda row: row["text"] == "spam")
    rating = run.rate(rater="ann")
    for _ in range(4):
        rating.rate(1)

    (file,) = run.report(tmp_path / "a.html")

    note = run.agreement("judge_good", "rated_good").notes[-1]
    assert "were rated because they differ" in note
    assert note.split(" labels")[0] in _read(file)
    assert "were rated because they differ" in _read(file)


def test_a_title_is_a_text(session: Session, tmp_path: Path) -> None:
    """Anything else is refused like other arguments."""
    run = _planned(session).run()

    with pytest.raises(ParameterError, match="title must be a text; got 5"):
        run.report(tmp_path / "a.html", title=5)  # type: ignore[arg-type]  # wrong


def test_a_wrong_path_or_score_is_refused(session: Session, tmp_path: Path) -> None:
    """The error names what is allowed, and an old file stays as it was."""
    run = _planned(session).run()
    old = tmp_path / "old.html"
    old.write_text("old", "utf-8")

    with pytest.raises(ParameterError, match=r"end with \.html or \.md"):
        run.report(tmp_path / "decision.pdf")
    with pytest.raises(ParameterError, match="the scores are right"):
        run.report(old, on="rihgt")
    with pytest.raises(ParameterError, match="in a folder that exists"):
        run.report(tmp_path / "none" / "decision.html")

    assert old.read_text("utf-8") == "old"
    assert run.report(old) == [old]
    assert "The answer" in old.read_text("utf-8")
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_a_key_in_a_column_is_hidden(
    emulator: Emulator, session: Session, tmp_path: Path
) -> None:
    """A column that no prompt uses may hold the key; neither file shows it."""
    rows = ROWS.assign(
        note=emulator.api_key, kind=pd.Categorical([emulator.api_key] * 12)
    )
    run = _planned(session, rows=rows).run()

    files = run.report(tmp_path / "a.html") + run.report(tmp_path / "a.md")

    for file in files:
        assert emulator.api_key.encode() not in file.read_bytes()
    assert "[key]" in (tmp_path / "a.replies.csv").read_text("utf-8")
    assert set(svc.read_parquet(tmp_path / "a.replies.parquet")["note"]) == {"[key]"}


def test_hostile_texts_are_inert(session: Session, tmp_path: Path) -> None:
    """Prompts, labels, columns, values, names of scores and replies are texts."""
    rows = pd.DataFrame(
        {"mail": [f"{text} attack" for text in ATTACKS], ATTACK: ATTACKS}
    )
    run = _planned(
        session,
        {ATTACK: f"{ATTACK} {{{{mail}}}}", "b": "{{mail}}"},
        rows=rows,
        model=SMALL,
        system=ATTACK,
        scores=None,
    ).run()
    scored: dict[str, Any] = {ATTACK: lambda row: row["row"] % 2 == row["repeat"]}
    run.score(**scored)

    html = run.report(tmp_path / "a.html", title=ATTACK)[0].read_text("utf-8")
    markdown = run.report(tmp_path / "a.md", title=ATTACK)[0].read_text("utf-8")

    assert _Page(html).faults == []
    assert "\u202e" not in html + markdown
    assert _of_markdown(markdown) <= MARKDOWN_TAGS


MARKDOWN_TAGS = frozenset(
    {
        *("h1", "h2", "h3", "p", "ul", "li", "strong", "pre", "code"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
)


def _of_markdown(text: str) -> set[str]:
    """Return the tags of a text for readers that let HTML through."""
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return set(re.findall(r"</?([a-zA-Z!?][\w-]*)", html))


_BITS = st.sampled_from(
    (*ATTACKS, "\n", "\n\n", "- ", "1. ", "|", "`", "http://x.y", "$")
)
_ANY = st.lists(_BITS | st.text(max_size=8), max_size=8).map("".join)


@pytest.mark.slow
@given(_ANY, _ANY)
def test_no_text_becomes_markup(text: str, other: str) -> None:
    """Each part of a report takes any text, in HTML and in Markdown."""
    chart = IntervalChart(intervals=[Interval(name=text, value=1.0, numbers=other)])
    table = ComparisonTable(
        title=text,
        row_names=(other,),
        column_names=(),
        heads=((),),
        rows=(((text,), ((ComparedText(text=other, is_markdown=True),),)),),
    )
    parts: list[ReportPart] = [
        *(Sentences([text, other], style=style) for style in ("", "lead", "warn")),
        Sentences([text, other], is_list=True),
        ReportFacts([(text, other), (other, text)]),
        ReportTable([text, other], [[other, text]]),
        Drawings([chart]),
        ReportReplies(text, table),
        Verbatim(text, other),
        FileInside(text, "text/csv", other.encode("utf-8", "replace")),
    ]
    page = ReportPage(title=text, subtitle=other, sections=[ReportSection(text, parts)])

    assert _Page(page.html()).faults == []
    assert _of_markdown(page.markdown()) <= MARKDOWN_TAGS


@pytest.mark.slow
def test_the_command_writes_a_report(session: Session, tmp_path: Path) -> None:
    """It needs no key and prints the files; a run that does not exist is an error."""
    _planned(session, name="tea/shop").run()
    session.ledger.flush()

    def command(*words: str) -> "subprocess.CompletedProcess[str]":
        env = {k: v for k, v in os.environ.items() if not k.startswith("SVC_")}
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "svc_notebook", "report", *words],
            env={**env, "SVC_LEDGER": str(tmp_path / "ledger.sqlite")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    plain = command("tea/shop")
    other = command("tea/shop", "--out", "b.md")
    unknown = command("tea-shop")

    assert (plain.returncode, plain.stdout) == (0, "tea-shop.html\n"), plain.stderr
    assert other.stdout.split() == ["b.md", "b.replies.csv", "b.replies.parquet"]
    assert unknown.returncode == 1
    assert "Did you mean tea/shop?" in unknown.stderr
    assert "The answer" in (tmp_path / "tea-shop.html").read_text("utf-8")

"""Verbs on any frame of replies. pandas loads at the first call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from svc_notebook.completion import Completion
from svc_notebook.display.comparison_table import ComparisonTable
from svc_notebook.session import current

from . import scorers
from .scoring import OnError, score_replies

scores = scorers  # public: svc.scores

if TYPE_CHECKING:  # importing the package must not load pandas
    import pandas as pd
    import polars as pl

    from svc_notebook.ledger.prices import Prices

    from .contrast import Contrast
    from .judge_agreement import JudgeAgreement
    from .missing import Missing
    from .plot import Plot
    from .ranking import Ranking
    from .repeats import Similarity
    from .sample_size import Needed
    from .statistics import Weight
    from .trend import Trend


@runtime_checkable
class Replies(Protocol):
    """Anything that has a frame of replies, such as a run."""

    def replies_df(self) -> "pd.DataFrame":
        """Return the frame."""


def compare(
    df: "pd.DataFrame",
    *,
    rows: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    markdown: bool = True,
    diff: bool = False,
) -> ComparisonTable:
    """Show the replies of any frame side by side in a table.

    Args:
        df: Replies: `run.replies_df()`, `svc.replies_df()`, several of them
            concatenated, or what `read_parquet` returned.
        rows: Columns whose values become the table's rows; the prompt, or its row and
            what fills it, if None.
        columns: Columns whose values become the table's columns; what else varies if
            None.
        markdown: Whether replies are rendered; False shows them as written.
        diff: Mark what differs from the first reply of each row, in the texts as
            written: words, or characters where a script has no blanks, as Thai.

    Returns:
        A table that displays itself. Each reply says what else varies, and equal ones
        are shown once. Long texts are folded, and what does not fit is counted.

    Raises:
        ParameterError: The frame lacks columns of replies, or a column does not exist.

    Example:
        >>> table = svc.compare(pd.concat([a, b]), columns="run", diff=True)
    """
    from .compare import compare as arrange  # noqa: PLC0415 - pandas

    return arrange(df, rows=rows, columns=columns, markdown=markdown, diff=diff)


def plot(  # noqa: PLR0913 - one for each thing that can be drawn or counted otherwise
    df: "pd.DataFrame",
    on: str,
    *,
    by: str | Sequence[str] | None = None,
    x: str | None = None,
    against: str | None = None,
    unit: str | Sequence[str] | None = None,
    weight: "Weight" = "prompts",
    missing: "Missing" = "drop",
    width: int = 340,
) -> "Plot":
    """Draw a score of the replies of any frame, by group.

    The mean of each group is a point, with its interval where that is known; single
    replies are dots behind it, and the mouse shows their text. What replies are missing
    stands below.

    Args:
        df: Replies, as in `compare`; or a frame of `usage_df`, which makes a bar of
            each row.
        on: A score by its name, or another column of numbers or of True and False,
            such as `latency_s`.
        by: The columns to group by: the first one down the side, others as colours;
            what varies if None.
        x: A column of numbers, such as `temperature`: the means along it are a curve
            with a band, one for each group of `by`.
        against: Another column to measure, such as `cost` or `latency_s`: groups are
            drawn by both, and a line joins those that no other beats (a higher score
            for less; the Pareto front). With a setting there is no such line.
        unit: What belongs together, as in `summary_df`.
        weight: What counts the same, as in `summary_df`.
        missing: What becomes of replies without a score, as in `summary_df`.
        width: In pixels.

    Returns:
        A chart that displays itself, without a network; `save("plot.png")` writes a
        picture, `chart` is the Altair chart to change further. With
        vl-convert-python, a saved notebook holds a picture, too.

    Raises:
        ConfigError: Altair is missing; the message names the command.
        ParameterError: A column does not exist or has no numbers, or the groups are too
            many.

    Example:
        >>> chart = svc.plot(replies, "right", by="model", against="latency_s")
    """
    from .plot import plot as draw  # noqa: PLC0415 - pandas

    return draw(
        df,
        on,
        by=by,
        x=x,
        against=against,
        unit=unit,
        weight=weight,
        missing=missing,
        width=width,
    )


def reply(exchange_id: str) -> Completion:
    """Return one reply of the ledger, with the request that was sent for it.

    Args:
        exchange_id: As in `replies_df`.

    Raises:
        ParameterError: The ledger has no such exchange.
        LedgerError: The ledger cannot be read.

    Example:
        >>> svc.reply(replies["exchange_id"][0]).text
        'spam'
    """
    return current().context().reply(exchange_id)


def summary_df(  # noqa: PLR0913 - one for each way to count
    df: "pd.DataFrame",
    by: str | Sequence[str] | None = None,
    on: str | Sequence[str] | None = None,
    *,
    unit: str | Sequence[str] | None = None,
    weight: "Weight" = "prompts",
    missing: "Missing" = "drop",
    prices: "Prices | Mapping[str, Any] | str | Path | None" = None,
    include_emulated: bool = False,
) -> "pd.DataFrame":
    """Sum up replies by group, each score with an interval (0.95).

    A score is the mean over prompts, and its interval is over prompts, because repeats
    of one do not tell about others: Student's t corrected for skew, or Wilson with the
    effective n. Without SciPy (the extra `stats`) intervals are missing, and a line on
    stderr says so. Other lines say what failed or has no score: 38 of 48 replies.

    Args:
        df: A frame of replies, or several as one.
        by: Columns to group by; what varies if None.
        on: Scores, or other columns of numbers; all scores if None.
        unit: Columns that say which prompts belong together, such as a document or a
            customer. Intervals are then over these; values stay.
        weight: "replies" counts each reply the same, not each prompt.
        missing: What failed or has no score is left out ("drop"), counts 0 ("wrong"),
            or low takes it as 0 and high as 1 ("bounds"), for scores within 0 and 1.
        prices: A price table, as for `svc.use(prices=...)`, instead of the costs in
            the frame.
        include_emulated: Count the emulator's replies as if they were paid.

    Returns:
        One row for each group: counts (`n_scored`: replies with a score), rates of
        failures, refusals (400) and cuts; for each score `NAME`, `NAME_low`,
        `NAME_high`; tokens; quantiles of latency_s; cost of a reply and of one that is
        right; how much repeats agree.

    Raises:
        ParameterError: A name does not exist, or `df` is not a frame of replies.
        SettingsError: The price table cannot be used.

    Example:
        >>> summary = svc.summary_df(replies, by="model", on="right")
    """
    from svc_notebook.analysis.summary import summary_df as frame  # noqa: PLC0415

    if prices is None and include_emulated:
        prices = current().context().prices
    return frame(
        df,
        by,
        on,
        unit=unit,
        weight=weight,
        missing=missing,
        prices=prices,
        include_emulated=include_emulated,
    )


def trend(
    df: "pd.DataFrame",
    factor: str,
    on: str | None = None,
    *,
    unit: str | Sequence[str] | None = None,
    missing: Literal["drop", "wrong"] = "drop",
) -> "Trend":
    """Tell how a score changes along a setting that is a number: one slope, one p.

    The slope is a straight line's within each prompt, with other factors kept equal,
    and its interval is over prompts: Student's t, as `contrast` has it for two values.

    Args:
        df: A frame of replies, or several as one.
        factor: A column of numbers with several values for a prompt, such as
            `temperature`.
        on: A score or another column of numbers; the only score if None.
        unit: Columns that say which prompts belong together, as in `summary_df`.
        missing: "wrong" counts what failed or has no score as 0.

    Returns:
        `slope` for 1 of the setting, its `low` and `high` (0.95), `p`, and counts. It
        is shown as a sentence, which also says where the curve bends. Without SciPy
        the interval and p are NaN. `plot(on, x=factor)` draws the curve.

    Raises:
        ParameterError: The factor is no number or does not vary within prompts, or
            `on` is not a score.

    Example:
        >>> heats = svc.sweep("{{text}}", rows=df, temperature=[0, 0.5, 1]).run()
        >>> slope = svc.trend(heats.replies_df(), "temperature", "completion_tokens")
    """
    from .trend import trend as tell  # noqa: PLC0415 - pandas

    return tell(df, factor, on, unit=unit, missing=missing)


def contrast(  # noqa: PLR0913 - a study is described in many words
    df: "pd.DataFrame | Sequence[Any] | Mapping[str, Any]",
    factor: str | Sequence[str],
    on: str | Sequence[str] | None = None,
    *,
    against: object = ...,
    by: str | Sequence[str] | None = None,
    unit: str | Sequence[str] | None = None,
    weight: Literal["prompts", "replies"] = "prompts",
    missing: Literal["drop", "wrong", "bounds"] = "drop",
    paired: bool = True,
    pair_by: str | Sequence[str] | None = None,
    margin: float | None = None,
    mistake_costs: float | None = None,
    level: float = 0.95,
    correct: Literal["holm", "bonferroni"] | None = "holm",
    looks: Literal["one", "any"] = "one",
    labels: str | None = None,
) -> "Contrast":
    """Compare the values of factors in pairs, over the prompts that have both.

    Other factors are kept equal. Intervals are Student's t over prompts; seconds,
    tokens and cost are corrected for skew. A call's comparisons share a correction.

    Args:
        df: A frame of replies; or a list of runs or frames, the earlier one first, or a
            dict of them by name, whose factor is `run`.
        factor: What is compared, such as `model`; several are compared one by one.
        on: Scores or columns of numbers, or `field_*`; the only score if None.
        against: Compare with this value only, None being the one that is not sent; a
            dict has one for each factor. All pairs if left out.
        by: Columns of subgroups, such as `language`. Rows for each two of them test
            whether their differences differ.
        unit: Columns such as `document` that say which prompts belong together.
        weight: What counts the same in a mean: each prompt, or each reply.
        missing: Replies without a value are left out ("drop"), count as 0 ("wrong"), or
            may be 0 and 1 ("bounds").
        paired: False compares different prompts (Newcombe for rates, Welch for others).
        pair_by: What pairs replies instead of the prompt: "row" for two wordings.
        margin: How much worse than `against` a value may be: 0.03 is 3 points. More
            seconds, tokens or cost are worse.
        mistake_costs: What a mistake costs, in the currency of `cost`.
        level: The level of the intervals.
        correct: By Holm each interval is that of its step of the test: alone it holds
            the truth as often as `level` says; by Bonferroni all do at once. p is below
            1 - `level` exactly where the interval leaves out 0, or the margin.
        looks: "any" has wider intervals that hold however often one looks while replies
            are added (confidence sequences). Each unit counts the same.
        labels: A score that few replies have, such as one of people, drawn at random:
            all scores in `on` are corrected by it, and what is compared are labels.

    Returns:
        What is read at the end of a cell; `df` has the numbers, `says` the sentences.

    Raises:
        ParameterError: A name does not exist, or there is nothing to compare.

    Example:
        >>> compared = svc.contrast(replies, "model", on="right")
    """
    from svc_notebook.analysis.contrast import contrast as compared  # noqa: PLC0415

    from .joined_runs import is_several, joined  # noqa: PLC0415 - pandas

    frame: Any = df
    if is_several(df):
        frame, _, pair_by = joined(df, pair_by)
    return compared(
        frame,
        factor,
        on,
        against=against,
        by=by,
        unit=unit,
        weight=weight,
        missing=missing,
        paired=paired,
        pair_by=pair_by,
        margin=margin,
        mistake_costs=mistake_costs,
        level=level,
        correct=correct,
        looks=looks,
        labels=labels,
    )


def ranking(
    df: "pd.DataFrame",
    by: str = "model",
    *,
    unit: str | list[str] | None = None,
    level: float = 0.95,
) -> "Ranking":
    """Rank models, or other candidates, by which one was preferred in comparisons.

    Strengths are those of Bradley and Terry, with ties as Davidson (1970) has them;
    intervals are robust to comparisons of one unit that depend on each other, with
    Student's t. They need SciPy and 20 units (statistics.md).

    Args:
        df: A frame of replies with picks of the panel, such as `svc.replies_df()`; or
            one row for each comparison, with the columns `left` and `right`, two
            candidates, and `winner`: "left", "right", "tie" or a candidate's name.
        by: What is ranked by picks, such as `temperature`.
        unit: Columns that say which comparisons belong together, such as `rater` or
            `conversation`. If None: each turn of picks; of pairs each value of the
            column `row`, or each comparison if the frame has no such column.
        level: The level of the intervals, between 0 and 1.

    Returns:
        What is read at the end of a cell; `df` has the numbers, `best` those that
        cannot be told apart from the first, `says` the answer as a sentence.

    Raises:
        ParameterError: Nothing was compared, a winner is not one of the two, or no
            comparison joins two groups of candidates.

    Example:
        >>> pairs = pd.DataFrame({"left": ["a", "b"], "right": ["b", "a"]})
        >>> svc.ranking(pairs.assign(winner="a")).df["candidate"].tolist()
        ['a', 'b']
    """
    from svc_notebook.analysis.ranking import ranking as ranked  # noqa: PLC0415

    return ranked(df, by, unit=unit, level=level)


def contrast_df(
    df: "pd.DataFrame",
    factor: str | Sequence[str],
    on: str | Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401 - those of `contrast`
) -> "pd.DataFrame":
    """Return the numbers of `svc.contrast`, with the same arguments: its `df`.

    Args:
        df: As in `svc.contrast`.
        factor: As in `svc.contrast`.
        on: As in `svc.contrast`.
        **options: All others of `svc.contrast`.

    Returns:
        One row for each comparison: means; `difference` with `low`, `high` and `p`,
        which are corrected for the rows of the call; the smallest difference that would
        be found 8 of 10 times; what it costs; and `says`, all this as a sentence. With
        subgroups, their columns have the subgroup, or "Thai less English" where
        `is_between_groups`.

    Raises:
        ParameterError: As in `svc.contrast`.

    Example:
        >>> pairs = svc.contrast_df(replies, "model", "right")
    """
    from svc_notebook.analysis.contrast import contrast_df as frame  # noqa: PLC0415

    return frame(df, factor, on, **options)


def agreement_df(  # noqa: PLR0913 - a study is described in many words
    df: "pd.DataFrame",
    by: str | Sequence[str] | None = None,
    on: str | None = None,
    *,
    similarity: "Literal['exact'] | Similarity" = "exact",
    k: int | Sequence[int] | None = None,
    unit: str | Sequence[str] | None = None,
    missing: "Missing" = "drop",
) -> "pd.DataFrame":
    """Say how much the repeats of a prompt agree, and how often all or any are right.

    Repeats are replies to one prompt under one condition. Answers are compared, or the
    texts where nothing was read as an answer. Prompts count the same, and intervals
    are over prompts, or over units of them.

    Args:
        df: A frame of replies, or several as one.
        by: Columns to group by; what varies if None.
        on: A score of True and False for `all_of_k` and `any_of_k`; the only one if
            None.
        similarity: How alike two replies are: `exact` is 1 for the same answer and 0
            for others. A function takes two replies, as in `score`, and returns a
            number from 0 to 1, or True or False.
        k: How many replies must all be right (`all_of_k`, pass^k), or at least one of
            them (`any_of_k`, pass@k). Several make a row each. What nine of ten prompts
            have if None. More repeats than k make the figures surer; they have no bias.
        unit: Columns that say which prompts belong together, such as a document.
        missing: What failed or has no score counts as in `summary_df` for `all_of_k`
            and `any_of_k`. `equal` and `alpha` are about the replies there are.

    Returns:
        One row for each group and k: `equal` (share of the pairs of repeats that are
        equal, or their mean similarity), `alpha` (Krippendorff's, for labels),
        `all_of_k` and `any_of_k`, each with `_low` and `_high` (0.95), and counts.

    Raises:
        ParameterError: A name does not exist, `on` is not a score of True and False, k
            is more than any prompt has, or the function failed.

    Example:
        >>> steady = svc.agreement_df(replies, by="model", on="right")
    """
    from svc_notebook.analysis.agreement import agreement_df as frame  # noqa: PLC0415

    return frame(df, by, on, similarity=similarity, k=k, unit=unit, missing=missing)


def agreement(
    df: "pd.DataFrame",
    judge: str,
    labels: str,
    *,
    by: str | Sequence[str] | None = None,
    unit: str | Sequence[str] | None = None,
) -> "JudgeAgreement":
    """Say whether a judge, or any automatic score, says what people say.

    Replies that have both are compared. Each counts the same; intervals (0.95) are over
    prompts, or over units of them. Next to each figure is what a guess would reach that
    is always the same: a judge that agrees on 90 % is useless if 90 % are True.

    Args:
        df: A frame of replies, or several as one.
        judge: A score of True and False.
        labels: Another one, which people gave to some replies.
        by: Columns to group by, such as `model`: whether it favours one of them. All
            replies together if None.
        unit: Columns that say which prompts belong together, such as a document.

    Returns:
        Sentences at the end of a cell; `df` has kappa, the share of what is labelled
        True that the judge calls True, and that of False, with intervals, and
        `disagreements` has the replies on which they differ, side by side.

    Raises:
        ParameterError: A name does not exist or is not a score of True and False, or no
            reply has both.

    Example:
        >>> replies["score_rated"] = replies["row"] != 2  # by hand
        >>> trust = svc.agreement(replies, judge="right", labels="rated")
    """
    from .judge_agreement import judge_agreement  # noqa: PLC0415 - pandas

    return judge_agreement(df, judge, labels, by=by, unit=unit)


def repeats_df(
    df: "pd.DataFrame",
    on: str | None = None,
    *,
    similarity: "Literal['exact'] | Similarity" = "exact",
) -> "pd.DataFrame":
    """List each prompt that was asked several times, the least agreement first.

    Args:
        df: A frame of replies, or several as one.
        on: A score of True and False; the only one if None.
        similarity: As in `agreement_df`.

    Returns:
        One row for each prompt and condition: what varies, the prompt, how many replies
        and how many different ones, `equal`, the share that is right, and `replies`,
        such as "2x ham, 1x spam". Among equals, those that are right least come first.

    Raises:
        ParameterError: As in `agreement_df`.

    Example:
        >>> worst = svc.repeats_df(replies).head(10)
    """
    from svc_notebook.analysis.agreement import repeats_df as frame  # noqa: PLC0415

    return frame(df, on, similarity=similarity)


def confusion_df(
    df: "pd.DataFrame",
    label: str = "label",
    by: str | Sequence[str] | None = None,
    *,
    unit: str | Sequence[str] | None = None,
    missing: Literal["drop", "wrong"] = "drop",
) -> "pd.DataFrame":
    """Count which labels are answered for which, with precision, recall and F1.

    Answers are compared with what is right as in `svc.scores.exact`: a reply without a
    valid answer is not right; what failed is not counted as a reply, or see `missing`.
    Without answers, the texts are compared. Prompts count the same however many
    replies they have, so figures may differ from quotients of the counts. Intervals
    are over prompts, or over units of them.

    Args:
        df: A frame of replies, or several as one.
        label: The column that has what is right; at most 30 different values.
        by: Columns to group by; what varies if None.
        unit: Columns that say which prompts belong together, such as a document.
        missing: "wrong" takes requests that failed as replies without an answer, so
            that recall and F1 are lower; the counts stay.

    Returns:
        One row for each label in each group. `n_as_LABEL` counts the replies that
        answer with each label; `n_no_answer` those whose answer is missing, unreadable
        or no label; `n_failed` requests without a reply. `precision`, `recall` and `f1`
        have `_low` and `_high` (0.95). The last row of a group, `macro average`, has
        the sums of the counts and the means of the figures over the labels that are
        right for some prompt; a precision that is missing is left out of the mean.

    Raises:
        ParameterError: A column does not exist, or `label` has too many values.

    Example:
        >>> confusion = svc.confusion_df(replies, "label", by="model")
    """
    from svc_notebook.analysis.confusion import confusion_df as frame  # noqa: PLC0415

    return frame(df, label, by, unit=unit, missing=missing)


def how_many(  # noqa: PLR0913 - a study is described in many words
    difference: float,
    *,
    pilot: "Replies | pd.DataFrame",
    factor: str | None = None,
    on: str | None = None,
    margin: bool = False,
    power: float = 0.8,
    level: float = 0.95,
    against: object = ...,
    unit: str | Sequence[str] | None = None,
    labels: str | None = None,
) -> "Needed":
    """Plan how many prompts and repeats a comparison needs, from a small pilot.

    It is a plan for a new run. To look at a run again and again, and to add prompts
    until a difference shows, doubles the false alarms.

    Args:
        difference: The smallest one that would matter: 0.05 is 5 points of a rate.
        pilot: A run, or its replies, with both values of the factor.
        factor: What will be compared; the only one that varies if None.
        on: The score; the only one if None.
        margin: Whether to rule out that a value is so much worse, as
            `contrast(margin=...)` does, if in fact it is the same.
        power: How often the study is to succeed, if the difference is there.
        level: Of the intervals of the study: 0.95 allows 5 % of false alarms.
        against: Compare with this value only, as in `contrast`; all pairs share the
            correction.
        unit: Columns that say which prompts belong together, such as a document. New
            ones are taken to be as large.
        labels: The labels that will correct `on`, as in `contrast`; the pilot has
            some, better for 30 prompts or more. Then it says how many prompts to
            have scored, and how many of them to label.

    Returns:
        `n_prompts`, which is as of TTestPower and G*Power; `n_prompts_low` and
        `n_prompts_high` (0.95), since a pilot knows roughly how much replies vary;
        `n_requests`; and `options`, the prompts for each number of repeats. With
        labels, `n_labelled` of the prompts need them, and `options` has other
        combinations, the last one with labels alone. `df` has the options as a frame.
        It is shown as sentences.

    Raises:
        ConfigError: SciPy is missing; the message names the command.
        ParameterError: The pilot is too small, or has no such factor or score; or a
            number is out of range.

    Example:
        >>> needed = svc.how_many(0.05, pilot=run, factor="model", on="right")
    """
    from svc_notebook.analysis.sample_size import how_many as plan  # noqa: PLC0415

    frame = pilot.replies_df() if isinstance(pilot, Replies) else pilot
    return plan(
        difference,
        frame,
        factor,
        on,
        margin=margin,
        power=power,
        level=level,
        against=against,
        unit=unit,
        labels=labels,
    )


def read_answers(df: "pd.DataFrame", type_: Any) -> "pd.DataFrame":  # noqa: ANN401 - a type, a regex or a function
    """Read answers from the replies of any frame; nothing is sent.

    Args:
        df: A frame with a column `text`, such as `replies_df()` or a file of one. It
            is not changed.
        type_: What a reply is read as, also `answer` in `sweep`. `Literal["spam",
            "ham"]`: it must have just one of the labels, as a whole word; case and
            Markdown make no difference. One that is negated, as in "It isn't spam", is
            not an answer (English and Thai). An Enum: its values or names, as the
            value. bool: yes or no. int, float: just one number. str: all of the text.
            A compiled regex: its first group. A function of the text. A dataclass, a
            TypedDict or a pydantic model: a sweep offers it as a tool, as `extract`
            does. With `| None`, or as Optional, "none" is an answer, which is missing.

    Returns:
        The frame with the columns `answer`, `answer_ok`, `answer_error`, and
        `answer_*` for fields. Rows without a good reply have none of them.

    Raises:
        ParameterError: There is no column `text`, or answers cannot be read as this.

    Example:
        >>> replies = svc.read_answers(replies, Literal["spam", "ham"])
    """
    from .read_answers import read_answers as read  # noqa: PLC0415 - pandas

    return read(df, type_)


def score(
    frame: "pd.DataFrame",
    /,
    *,
    on_error: OnError = "missing",
    **scores: Callable[[Any], object] | None,
) -> int:
    """Score replies; the ledger keeps the scores, and frames of them have the columns.

    Without functions, the columns `score_*` of the frame are kept: numbers, True or
    False (as 1 and 0), or texts. A new score replaces the old one; a missing value is
    not kept.

    Args:
        frame: Rows of `replies_df()`. With functions it gets their columns, also of
            replies that are not in this ledger; a frame of Polars or Arrow gets none.
        on_error: The score of a reply for which the function raises: `missing` for
            none, 0, or `raise` to stop and save nothing. How many raised is said, and
            the column `score_right_error` says why.
        **scores: By name, a function of a row, or one of `svc.scores`; None removes
            the score. `right` makes the column `score_right`. The function reads
            columns as `row.label` or `row["label"]`, with None for what is missing, and
            returns a number, True or False, a text, None for no score, or a dict of
            these (`score_right_KEY`). Only good replies are scored.

    Returns:
        How many scores were kept.

    Raises:
        ParameterError: There is no such column, a value cannot be kept, a score has
            texts and numbers (in this call, or with the rest of the run), a function
            failed for all replies, `exact` compares with values that no answer can be,
            or a row has no reply in the ledger in use; nothing was kept.
        LedgerError: The ledger cannot be written.

    Example:
        >>> svc.score(replies, right=svc.scores.exact("label"))
        12
    """
    from svc_notebook.ledger.scores import keep_scores  # noqa: PLC0415 - pandas

    if scores:
        return score_replies(current().ledger, frame, scores, on_error=on_error)
    return keep_scores(current().ledger, frame)


def export(frame: "pd.DataFrame", path: str | Path) -> Path:
    """Write a frame into a file; the suffix of its name sets the format.

    `read_parquet` returns an identical frame, and JSON lines have unchanged values. CSV
    and Excel are safe in a spreadsheet: no text is a formula, Thai is readable, and a
    warning names texts that are too long for a cell. An index that has a name, or is
    more than 0, 1, 2 and so on, is kept in the first columns.

    Args:
        frame: Such as `replies_df()`.
        path: Ends with .parquet, .csv, .jsonl or .xlsx; an old file is replaced.

    Returns:
        The file.

    Raises:
        ConfigError: A package is missing; the message names the command.
        ParameterError: The name has another suffix, two columns have the same name, a
            workbook cannot hold so many rows, or the file cannot be written.

    Example:
        >>> path = svc.export(svc.replies_df(), "replies.xlsx")
    """
    from svc_notebook.ledger.frame_export import (  # noqa: PLC0415 - pandas
        export as write,
    )

    return write(frame, path)


def read_parquet(path: str | Path) -> "pd.DataFrame":
    """Read a frame that `export` wrote into a Parquet file, dtypes included.

    Args:
        path: The file.

    Returns:
        The frame, equal to the one that was written.

    Raises:
        ConfigError: pyarrow is missing; the message names the command.
        ParameterError: The file cannot be read.

    Example:
        >>> replies = svc.read_parquet("replies.parquet")
    """
    from svc_notebook.ledger.frame_export import read_parquet as read  # noqa: PLC0415

    return read(path)


def to_polars(frame: Any) -> "pl.DataFrame":  # noqa: ANN401 - of pandas, or a run
    """Return a frame as one of Polars, with the types of its columns.

    Every function that takes a frame takes it back: `svc.summary_df(polars_frame)`.

    Args:
        frame: Such as `replies_df()`, `usage_df()` or `conversation.to_df()`; or a run,
            for its replies.

    Returns:
        The columns as `to_arrow` has them. Categories with an order are an `Enum`,
        others a `Categorical`.

    Raises:
        ConfigError: polars or pyarrow is missing; the message names the command.
        ParameterError: As in `to_arrow`.

    Example:
        >>> replies = svc.to_polars(run)
    """
    from svc_notebook.ledger.frame_interchange import (  # noqa: PLC0415 - as `export`
        to_polars as convert,
    )

    made: pl.DataFrame = convert(frame)
    return made


def to_arrow(frame: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return a frame as a table of Arrow, which DuckDB and others read.

    Args:
        frame: Such as `replies_df()`, `usage_df()` or `conversation.to_df()`; or a run,
            for its replies.

    Returns:
        A `pyarrow.Table` with the types of a Parquet file of `export`: texts are
        `large_string`, instants are in UTC, categories are dictionaries. Lists and
        dicts are lists and structs, or JSON texts if their kinds differ. An index that
        is more than 0, 1, 2 and so on is in the first columns.

    Raises:
        ConfigError: pyarrow is missing; the message names the command.
        ParameterError: It is no frame, two columns have the same name, or a column has
            values of several types.

    Example:
        >>> replies = svc.to_arrow(run)
    """
    from svc_notebook.ledger.frame_interchange import (  # noqa: PLC0415 - as `export`
        to_arrow as convert,
    )

    return convert(frame)


def as_replies(
    df: Any,  # noqa: ANN401 - pandas, Polars or Arrow
    reply: str | None = None,
    *,
    scores: str | Iterable[str] = (),
    factors: str | Iterable[str] = (),
    **columns: str,
) -> "pd.DataFrame":
    """Make a frame of replies of anybody's, so that all verbs work on it.

    Args:
        df: A row for each reply, in pandas, Polars or Arrow. It is not changed.
        reply: The column with the texts.
        scores: Columns that say how good a reply is: numbers, True and False, labels.
            A column `correct` becomes `score_correct`; `score_*` are scores anyway.
        factors: Columns with what was varied between the replies to one prompt, such as
            a version, if `columns` has no name for it.
        **columns: Columns by their name in `replies_df`: `model="engine"`. `row` says
            which replies answer the same question, and is what they are paired by;
            without it the `prompt` is. Labels are `prompt_label` and `system_label`.
            Columns that have these names already need not be given.

    Returns:
        A frame with all columns of `replies_df`, in its dtypes. Other columns stay as
        they are. What is not there is missing, but: `repeat` counts the replies to one
        prompt under one condition; `status` is ok, or error where there is no text or
        an error; `is_cut` goes by `finish_reason`; `total_tokens` is a sum.

    Raises:
        ConfigError: pyarrow is missing, for Polars and Arrow; the message names the
            command.
        ParameterError: A column does not exist or holds something else.

    Example:
        >>> df["id"] = range(len(df))
        >>> replies = svc.as_replies(df, reply="text", row="id")
    """
    from .as_replies import as_replies as make  # noqa: PLC0415 - pandas

    return make(df, reply, scores=scores, factors=factors, columns=columns)


def read_eval(*paths: str | Path) -> "pd.DataFrame":
    """Read logs of inspect-ai as a frame of replies, with their scores.

    The package inspect-ai reads them if it is installed. Without it, `.eval` files that
    are compressed with zstd need pyarrow, or Python 3.14.

    Args:
        *paths: Files that end with .eval or .json, or folders of them.

    Returns:
        A row for each sample of each epoch, with the columns of `replies_df`. `row` is
        the sample's id, `repeat` its epoch from 0, `run` the name of the file, `prompt`
        the sample's input. Tokens and cost are all that the sample used of the model,
        `latency_s` is the last call. `task`, `task_arg_*`, `target` and the metadata
        come first. `score_NAME` is 1 for C, 0.5 for P, 0 for I and N; a score with
        several values is `score_NAME_KEY`. `answer` is that of the first score.

    Raises:
        ConfigError: pyarrow is missing; the message names the command.
        ParameterError: A file cannot be read.

    Example:
        >>> replies = svc.read_eval("old.eval", "new.eval")
    """
    from .read_eval import read_eval as read  # noqa: PLC0415 - pandas

    return read(*paths)

"""The public functions on frames of replies; pandas is loaded at the first call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from svc_notebook.completion import Completion
from svc_notebook.display.text_table import ComparisonTable
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
    from .run_differences import RunFacts
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
    rows: str | Sequence[str] | None = None,
    *,
    columns: str | Sequence[str] | None = None,
    markdown: bool = True,
    diff: bool = False,
) -> ComparisonTable:
    """Show the replies of any frame side by side in a table.

    Args:
        df: Replies: `run.replies_df()`, `svc.replies_df()`, several of them
            concatenated, or what `read_parquet` returned.
        rows: Columns whose values become the table's rows. If None: the prompt, or the
            row's number and its values if a row has several prompts.
        columns: Columns whose values become the table's columns. If None: all other
            columns that vary.
        markdown: Whether replies are rendered; False shows them as written.
        diff: Mark the differences from the first reply of each row, in the texts as
            written: by words, or by characters in scripts without spaces, such as Thai.

    Returns:
        A table that displays itself. Each reply is labelled with other values that
        vary, and equal replies are shown once. Long texts are folded; if there are too
        many rows, columns or replies, the table says how many are left out.

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
    width: int = 480,
) -> "Plot":
    """Draw a score of the replies of any frame, by group.

    Each group has a point for its mean, with an interval if it is known. Single replies
    are dots behind the points; hover over a dot to read the text. A caption says which
    replies are missing.

    Args:
        df: Replies, as in `compare`; or a frame of `usage_df`, which makes one bar for
            each row.
        on: A score by its name, or another column of numbers or of True and False,
            such as `latency_s`.
        by: The columns to group by: the first one down the side, others as colours; all
            factors if None.
        x: A column of numbers, such as `temperature`: the means along it are a curve
            with a band, one for each group of `by`.
        against: Another column, such as `cost` or `latency_s`, for the horizontal axis.
            A line joins the groups that no other beats with a higher score for less
            (the Pareto front). If the column is a setting, there is no such line.
        unit: Columns that say which prompts belong together, as in `summary_df`.
        weight: Whether each prompt or each reply counts the same, as in `summary_df`.
        missing: How replies without a score are treated, as in `summary_df`.
        width: The width in pixels.

    Returns:
        A chart that displays itself, without a network. `save("plot.png")` writes a
        picture; `chart` is the Altair chart, to change it further. With
        vl-convert-python installed, a saved notebook also contains a picture.

    Raises:
        ConfigError: Altair is missing; the message names the command.
        ParameterError: A column does not exist or has no numbers, or there are too many
            groups.

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
        exchange_id: The id of the exchange, as in `replies_df`.

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

    The sample is the prompts, because repeats of one prompt say nothing about other
    prompts: a score is a mean over prompts, with an interval by Student's t corrected
    for skew, or for rates by Wilson with the effective n. Without SciPy (the extra
    `stats`) there are no intervals, and a note says so. Further notes say how
    many replies failed or have no score, such as 38 of 48.

    Args:
        df: A frame of replies, or several as one.
        by: Columns to group by; all factors if None.
        on: Scores, or other columns of numbers; all scores if None.
        unit: Columns that say which prompts belong together, such as a document or a
            customer. Intervals are then over these units; the values do not change.
        weight: "replies" gives each reply the same weight, instead of each prompt.
        missing: Failed requests and replies without a score are left out ("drop"), or
            count as 0 ("wrong"), or as 0 in low and as 1 in high ("bounds"); the last
            two are for scores from 0 to 1.
        prices: A price table, as for `svc.use(prices=...)`, instead of the costs in
            the frame.
        include_emulated: Count the emulator's replies as if they were paid.

    Returns:
        One row for each group: for each score `NAME`, `NAME_low`, `NAME_high`; counts
        (`n_scored`: replies with a score; `n_units`: what intervals are over), which a
        score of other replies has as `n_scored_NAME` and `n_units_NAME`; rates of
        failures, refusals (400) and cuts; tokens; quantiles of latency_s; the cost of a
        reply, and of a right reply among those with a score; how much repeats agree.

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
    """Measure how a score changes with a numeric setting: one slope, one p.

    The slope is that of a straight line within each prompt, with other factors kept
    equal. Its interval is over prompts: Student's t, as in `contrast`.

    Args:
        df: A frame of replies, or several as one.
        factor: A column of numbers with several values for a prompt, such as
            `temperature`.
        on: A score or another column of numbers; the only score if None.
        unit: Columns that say which prompts belong together, as in `summary_df`.
        missing: "wrong" counts failed requests and replies without a score as 0.

    Returns:
        `slope` for each 1 of the setting, its `low` and `high` (0.95), `p`, and counts.
        It is shown as a sentence, which also says where the curve bends. Without SciPy
        the interval and p are NaN. `plot(on, x=factor)` draws the curve.

    Raises:
        ParameterError: The factor is not a number or does not vary within prompts, or
            `on` is not a score.

    Example:
        >>> heats = svc.sweep("{{text}}", rows=df, temperature=[0, 0.5, 1]).run()
        >>> slope = svc.trend(heats.replies_df(), "temperature", "completion_tokens")
    """
    from .trend import trend as tell  # noqa: PLC0415 - pandas

    return tell(df, factor, on, unit=unit, missing=missing)


def contrast(  # noqa: PLR0913 - a study has many options
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

    Other factors are kept equal. Intervals are Student's t over prompts, corrected for
    skew for seconds, tokens and cost. A call's comparisons are corrected together.
    Without `against` the higher mean comes first, of two runs the later one.

    Args:
        df: A frame of replies; or a list of runs or frames, the earlier one first, or a
            dict of them by name, whose factor is `run`.
        factor: The column to compare, such as `model`; several are compared separately.
        on: Scores or columns of numbers, or `field_*`; the only score if None.
        against: Compare with this value only, where None is the value "not sent"; a
            dict has one for each factor. All pairs if left out.
        by: Columns of subgroups, such as `language`; further rows compare those.
        unit: Columns such as `document` that say which prompts belong together.
        weight: Whether each prompt or each reply counts the same in a mean.
        missing: Replies without a value are left out ("drop"), count as 0 ("wrong"), or
            may be anything from 0 to 1 ("bounds").
        paired: False compares different prompts (Newcombe for rates, Welch for others).
        pair_by: Columns to pair by instead of the prompt: "row" for two wordings.
        margin: How much worse than `against` a value may be: 0.03 is 3 points. For
            seconds, tokens and cost, more is worse.
        mistake_costs: The cost of a mistake, in the currency of `cost`.
        level: The level of the intervals.
        correct: With Holm each interval alone contains the truth as often as `level`
            says; with Bonferroni all together do. p is below 1 - `level` exactly where
            the interval excludes 0, or the margin.
        looks: "any" has wider intervals that hold at any number of looks while replies
            are added (confidence sequences). Each unit counts the same.
        labels: A score that few replies, drawn at random, have, such as one by people.
            It corrects the scores in `on`, and the comparison is about the labels.

    Returns:
        A comparison that displays itself; `df` has the numbers, `says` the sentences.

    Raises:
        ParameterError: A name does not exist, or there is nothing to compare.

    Example:
        >>> compared = svc.contrast(replies, "model", on="right")
    """
    from svc_notebook.analysis.contrast import contrast as compared  # noqa: PLC0415

    from .joined_runs import is_several, joined  # noqa: PLC0415 - pandas

    frame: Any = df
    facts: Mapping[str, RunFacts] = {}
    if is_several(df):
        frame, _, pair_by, facts = joined(df, pair_by)
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
        facts=facts,
    )


def ranking(
    df: "pd.DataFrame",
    by: str = "model",
    *,
    unit: str | list[str] | None = None,
    level: float = 0.95,
) -> "Ranking":
    """Rank models, or other candidates, by which one was preferred in comparisons.

    Strengths follow the model of Bradley and Terry, with ties as in Davidson (1970).
    Intervals are Student's t, robust to comparisons of one unit that depend on each
    other. They need SciPy and 20 units (statistics.md).

    Args:
        df: A frame of replies with picks of the panel, such as `svc.replies_df()`; or
            one row for each comparison, with the columns `left` and `right`, two
            candidates, and `winner`: "left", "right", "tie" or a candidate's name.
        by: The column whose values are ranked by picks, such as `temperature`.
        unit: Columns that say which comparisons belong together, such as `rater` or
            `conversation`. If None: for picks each turn; for pairs each value of the
            column `row`, or each comparison if the frame has no such column.
        level: The level of the intervals, between 0 and 1.

    Returns:
        A ranking that displays itself; `df` has the numbers, `best` the candidates that
        cannot be told apart from the first, `says` the answer as a sentence.

    Raises:
        ParameterError: Nothing was compared, a winner is not one of the two, or there
            is no comparison between two groups of candidates.

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
        **options: The other arguments of `svc.contrast`.

    Returns:
        One row for each comparison: means; `difference` with `low`, `high` and `p`,
        which are corrected for the comparisons of the call; the smallest difference
        that would be found 8 of 10 times; costs; and `says`, the comparison as a
        sentence. The columns of `by` name the subgroup, or two of them, such as "Thai
        minus English", where `is_between_groups`.

    Raises:
        ParameterError: As in `svc.contrast`.

    Example:
        >>> pairs = svc.contrast_df(replies, "model", "right")
    """
    from svc_notebook.analysis.contrast import contrast_df as frame  # noqa: PLC0415

    return frame(df, factor, on, **options)


def agreement_df(  # noqa: PLR0913 - a study has many options
    df: "pd.DataFrame",
    by: str | Sequence[str] | None = None,
    on: str | None = None,
    *,
    similarity: "Literal['exact'] | Similarity" = "exact",
    k: int | Sequence[int] | None = None,
    unit: str | Sequence[str] | None = None,
    missing: "Missing" = "drop",
) -> "pd.DataFrame":
    """Measure how much repeats of a prompt agree, and how often all or any are right.

    Repeats are replies to one prompt under one condition. Their answers are compared;
    if no answers were read, their texts. All prompts count the same, and intervals are
    over prompts, or over units of them.

    Args:
        df: A frame of replies, or several as one.
        by: Columns to group by; all factors if None.
        on: A score of True and False for `all_of_k` and `any_of_k`; the only one if
            None.
        similarity: How similar two replies are: `exact` is 1 for the same answer and 0
            for others. A function takes two replies, as in `score`, and returns a
            number from 0 to 1, or True or False.
        k: The number of replies of which all (`all_of_k`, pass^k), or at least one
            (`any_of_k`, pass@k), must be right. Several make one row each. If None, a
            number that nine of ten prompts reach. The estimates have no bias, and are
            more precise if there are more repeats than k.
        unit: Columns that say which prompts belong together, such as a document.
        missing: How `all_of_k` and `any_of_k` treat failed requests and replies without
            a score, as in `summary_df`. `equal` and `alpha` are about existing replies.

    Returns:
        One row for each group and k: `equal` (share of the pairs of repeats that are
        equal, or their mean similarity), `alpha` (Krippendorff's, for labels),
        `all_of_k` and `any_of_k`, each with `_low` and `_high` (0.95), and counts.

    Raises:
        ParameterError: A name does not exist, `on` is not a score of True and False, no
            prompt has k replies, or the function failed.

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
    """Measure how far a judge, or any automatic score, agrees with people's labels.

    Replies that have both are compared. Each counts the same; intervals (0.95) are over
    prompts, or over units of them. For comparison there is the agreement of a guess
    that is always the same: a judge that agrees on 90 % is useless if 90 % are True.

    Args:
        df: A frame of replies, or several as one.
        judge: A score of True and False.
        labels: Another score of True and False, which people gave to some replies.
        by: Columns to group by, such as `model`, to see whether the judge favours one.
            All replies together if None.
        unit: Columns that say which prompts belong together, such as a document.

    Returns:
        An agreement that is shown as sentences. `df` has kappa and, of the replies
        labelled True, the share that the judge calls True, and likewise for False, with
        intervals. `disagreements` has the replies on which they differ.

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
    """List each prompt that has several replies, the least agreement first.

    Args:
        df: A frame of replies, or several as one.
        on: A score of True and False; the only one if None.
        similarity: As in `agreement_df`.

    Returns:
        One row for each prompt and condition: the factors, the prompt, how many replies
        and how many different ones, `equal`, the share that is right, and `replies`,
        such as "2x ham, 1x spam". Of prompts with the same agreement, those with the
        smallest share of right replies come first.

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
    """Count the answers for each correct label (confusion matrix), with F1 and more.

    Answers are compared with the correct labels as in `svc.scores.exact`: a reply
    without a valid answer is not right; failed requests are not counted as replies, but
    see `missing`. Without answers, the texts are compared. All prompts count the same
    however many replies they have, so the figures may differ from quotients of the
    counts. Intervals are over prompts, or over units of them.

    Args:
        df: A frame of replies, or several as one.
        label: The column of correct labels; at most 30 different values.
        by: Columns to group by; all factors if None.
        unit: Columns that say which prompts belong together, such as a document.
        missing: "wrong" counts failed requests as replies without an answer, which
            makes recall and F1 lower; the counts do not change.

    Returns:
        One row for each label in each group. `n_as_LABEL` counts the replies that
        answer with each label; `n_no_answer` those whose answer is missing, unreadable
        or not a label; `n_failed` requests without a reply. `precision`, `recall` and
        `f1` have `_low` and `_high` (0.95). The last row of a group, `macro average`,
        has the sums of the counts and the means of the figures over the labels that are
        correct for some prompt; a precision that is missing is left out of the mean.

    Raises:
        ParameterError: A column does not exist, or `label` has too many values.

    Example:
        >>> confusion = svc.confusion_df(replies, "label", by="model")
    """
    from svc_notebook.analysis.confusion import confusion_df as frame  # noqa: PLC0415

    return frame(df, label, by, unit=unit, missing=missing)


def how_many(  # noqa: PLR0913 - a study has many options
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

    This is a plan for a new run. To add prompts to a run, and look again, until a
    difference shows would double the false alarms.

    Args:
        difference: The smallest difference that matters: 0.05 is 5 points of a rate.
        pilot: A run, or its replies, with both values of the factor.
        factor: The column to compare; the only factor if None.
        on: The score; the only one if None.
        margin: True plans to rule out that a value is worse by `difference`, as
            `contrast(margin=...)` does, assuming that both are in fact equal.
        power: The chance that the study finds the difference, if it exists.
        level: The level of the study's intervals: 0.95 allows 5 % of false alarms.
        against: Compare with this value only, as in `contrast`; otherwise all pairs are
            compared, and corrected together.
        unit: Columns that say which prompts belong together, such as a document. New
            units are assumed to be as large as those of the pilot.
        labels: The labels that will correct `on`, as in `contrast`. The pilot must have
            some, better for 30 prompts or more. The plan then says how many prompts to
            score, and how many of them to label.

    Returns:
        `n_prompts`, the same as TTestPower and G*Power give; `n_prompts_low` and
        `n_prompts_high` (0.95), since a pilot shows only roughly how much replies vary;
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
        type_: The type to read a reply as, also `answer` in `sweep`. `Literal["spam",
            "ham"]`: it must contain exactly one of the labels, as a whole word; case
            and Markdown make no difference. A negated label, as in "It isn't spam", is
            not an answer (English and Thai). An Enum: one of its values or names; the
            answer is the value. bool: yes or no. int, float: exactly one number. str:
            the whole text. A compiled regex: its first group. A function of the text. A
            dataclass, a TypedDict or a pydantic model: a sweep offers it as a tool, as
            `extract` does. With `| None`, or as Optional, a reply may answer "none",
            which makes a valid answer that is missing.

    Returns:
        The frame with the columns `answer`, `answer_ok`, `answer_error`, and
        `answer_*` for fields. In rows without a good reply they are missing.

    Raises:
        ParameterError: There is no column `text`, or `type_` is not a supported type.

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
    """Score replies, and save the scores in the ledger; frames then have their columns.

    Without functions, the columns `score_*` of the frame are saved: numbers, True or
    False (as 1 and 0), or texts. A new score replaces the old one; a missing value is
    not saved.

    Args:
        frame: Rows of `replies_df()`. With functions, new columns are added to this
            frame, also for replies that are not in this ledger; a frame of Polars or
            Arrow is not changed.
        on_error: The score of a reply for which the function raises: `missing` for
            none, 0, or `raise` to stop and save nothing. A message says how often it
            raised, and the column `score_right_error` says why.
        **scores: By name, a function of a row, or one of `svc.scores`; None removes
            the score. `right` makes the column `score_right`. The function reads
            columns as `row.label` or `row["label"]`, with None for a missing value, and
            returns a number, True or False, a text, None for no score, or a dict of
            these (`score_right_KEY`). Only good replies are scored.

    Returns:
        How many scores were saved. After functions, a cell shows the rate or mean of
        each score, of how many replies, and the name of its column.

    Raises:
        ParameterError: There is no such column, a value cannot be saved, a score has
            texts and numbers (in this call, or with the rest of the run), a function
            failed for all replies, `exact` compares with values that no answer can
            equal, or a row has no reply in the ledger in use. Nothing was saved.
        LedgerError: The ledger cannot be written.

    Example:
        >>> svc.score(replies, right=svc.scores.exact("label"))
        12
    """
    from svc_notebook.ledger.scores import keep_scores  # noqa: PLC0415 - pandas

    if scores:
        return score_replies(current().ledger, frame, scores, on_error=on_error)
    return keep_scores(current().ledger, frame)


def export(frame: "pd.DataFrame | Replies", path: str | Path) -> Path:
    """Write a frame into a file; the suffix of its name sets the format.

    From Parquet, `read_parquet` returns an identical frame; JSON lines keep all values.
    CSV and Excel are safe to open in a spreadsheet: no text runs as a formula, Thai is
    readable, and a warning names texts that are too long for a cell. An index that has
    a name, or is not just 0, 1, 2 and so on, is written as the first columns.

    Args:
        frame: A frame, such as `replies_df()`; or a run, for its replies.
        path: Ends with .parquet, .csv, .jsonl or .xlsx; an old file is replaced.

    Returns:
        The path of the file.

    Raises:
        ConfigError: A package is missing; the message names the command.
        ParameterError: The name has another suffix, two columns have the same name,
            there are too many rows for a workbook, or the file cannot be written.

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
    """Convert a frame to a Polars DataFrame with the same column types.

    Every function that takes a frame also accepts it: `svc.summary_df(polars_frame)`.

    Args:
        frame: A frame such as `replies_df()`, `usage_df()` or `conversation.to_df()`;
            or a run, for its replies.

    Returns:
        The columns with the types of `to_arrow`. Ordered categories become an `Enum`,
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

    polars_frame: pl.DataFrame = convert(frame)
    return polars_frame


def to_arrow(frame: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Convert a frame to an Arrow table, which DuckDB and others read.

    Args:
        frame: A frame such as `replies_df()`, `usage_df()` or `conversation.to_df()`;
            or a run, for its replies.

    Returns:
        A `pyarrow.Table` with the same types as a Parquet file of `export`: texts are
        `large_string`, instants are in UTC, categories are dictionaries. Lists and
        dicts are lists and structs, or JSON texts if their types differ. An index that
        is not just 0, 1, 2 and so on becomes the first columns.

    Raises:
        ConfigError: pyarrow is missing; the message names the command.
        ParameterError: The argument is not a frame, two columns have the same name, or
            a column has values of several types.

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
    """Turn replies from anywhere into a frame of replies that all functions accept.

    Args:
        df: One row for each reply, in pandas, Polars or Arrow. It is not changed.
        reply: The column with the texts.
        scores: Columns that say how good a reply is: numbers, True and False, labels.
            A column `correct` becomes `score_correct`; `score_*` are always scores.
        factors: Columns that vary between the replies to one prompt, such as a version,
            and are not in `columns`.
        **columns: Your columns by their name in `replies_df`: `model="engine"`. `row`
            says which replies answer the same question, and replies are paired by it;
            without it they are paired by `prompt`. Labels are `prompt_label` and
            `system_label`. Columns that have these names already need not be given.

    Returns:
        A frame with all columns and dtypes of `replies_df`. Other columns are kept as
        they are. Columns that you do not have are missing values, except these:
        `repeat` numbers the replies to one prompt under one condition; `status` is ok,
        or error if there is no text or an error message; `is_cut` follows from
        `finish_reason`; `total_tokens` is the sum.

    Raises:
        ConfigError: pyarrow is missing, for Polars and Arrow; the message names the
            command.
        ParameterError: A column does not exist or holds values of another type.

    Example:
        >>> df["id"] = range(len(df))
        >>> replies = svc.as_replies(df, reply="text", row="id")
    """
    from .as_replies import as_replies as make  # noqa: PLC0415 - pandas

    return make(df, reply, scores=scores, factors=factors, columns=columns)


def read_eval(*paths: str | Path) -> "pd.DataFrame":
    """Read logs of inspect-ai as a frame of replies, with their scores.

    If the package inspect-ai is installed, it reads the files. Without it, `.eval`
    files that are compressed with zstd need pyarrow, or Python 3.14.

    Args:
        *paths: Files that end with .eval or .json, or folders of them.

    Returns:
        One row for each sample and epoch, with the columns of `replies_df`. `row` is
        the sample's id, `repeat` its epoch from 0, `run` the name of the file, `prompt`
        the sample's input. Tokens and cost are sums over all calls of the model for the
        sample; `latency_s` is that of the last call. `task`, `task_arg_*`, `target` and
        the metadata come first. `score_NAME` is 1 for C, 0.5 for P, 0 for I and N; a
        score with several values is `score_NAME_KEY`. `answer` is from the first score.

    Raises:
        ConfigError: pyarrow is missing; the message names the command.
        ParameterError: A file cannot be read.

    Example:
        >>> replies = svc.read_eval("old.eval", "new.eval")
    """
    from .read_eval import read_eval as read  # noqa: PLC0415 - pandas

    return read(*paths)

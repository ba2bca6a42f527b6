"""The public verbs that read the ledger, and write frames to files.

Rules: a verb is thin; pandas loads when a frame is asked for. The names are public
through the package alone.
"""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from svc_notebook.service.check import check_flag
from svc_notebook.session import current

if TYPE_CHECKING:  # pandas must not load with the package; no schema is made of these
    import pandas as pd


def replies_df(
    *,
    scope: Literal["session", "all"] = "session",
    since: date | str | None = None,
    conversation: str | Sequence[str] | None = None,
    run: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    texts: bool = True,
) -> "pd.DataFrame":
    """List the replies in the ledger.

    Args:
        scope: `session` for what this kernel asked, `all` for the whole ledger.
        since: Only exchanges started at or after this instant or day; text is ISO 8601.
        conversation: Only this conversation, or any of several.
        run: Only this run of a sweep, or any of several.
        model: Only this model, or any of several.
        texts: False leaves out system, prompt, text, tool calls and template columns,
            which a ledger of very many exchanges is read faster without.

    Returns:
        One row a choice, oldest exchange first; numbers of the request stand on the
        row with choice_index 0 only. dtypes are fixed, also for no rows. Scores, if
        there are any (see `score`), are the last columns.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter is not one that could be meant.

    Example:
        >>> svc.replies_df(scope="all", since="2026-01-31")  # doctest: +SKIP
    """
    from svc_notebook.ledger.reading import replies_df as frame  # noqa: PLC0415

    check_flag("texts", texts)
    session = current()
    return frame(
        session.ledger,
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        texts=texts,
        prices=session.prices,
    )


def usage_df(  # noqa: PLR0913 - one argument a filter
    *,
    by: str | Sequence[str] = ("model",),
    scope: Literal["session", "all"] = "session",
    since: date | str | None = None,
    conversation: str | Sequence[str] | None = None,
    run: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    include_emulated: bool = False,
    include_reused: bool = False,
) -> "pd.DataFrame":
    """Sum up requests, tokens, waits and costs in the ledger.

    Args:
        by: Columns of `replies_df` to group by, template columns included.
        scope: `session` for what this kernel asked, `all` for the whole ledger.
        since: Only exchanges started at or after this instant or day; text is ISO 8601.
        conversation: Only this conversation, or any of several.
        run: Only this run of a sweep, or any of several.
        model: Only this model, or any of several.
        include_emulated: Count answers of the emulator too; they cost nothing.
        include_reused: Count answers that were given back from the ledger too.

    Returns:
        One row a group; reported and estimated tokens stand apart, the latter with
        an interval. Costs come from your price table alone (SVC_PRICES).

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter or column is not one that could be meant.

    Example:
        >>> svc.usage_df(by=["model", "run"], scope="all")  # doctest: +SKIP
    """
    from svc_notebook.ledger.reading import usage_df as frame  # noqa: PLC0415

    check_flag("include_emulated", include_emulated)
    check_flag("include_reused", include_reused)
    session = current()
    return frame(
        session.ledger,
        by=by,
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        include_emulated=include_emulated,
        include_reused=include_reused,
        prices=session.prices,
    )


def tool_calls_df(
    *,
    scope: Literal["session", "all"] = "session",
    since: date | str | None = None,
    conversation: str | Sequence[str] | None = None,
    run: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    name: str | Sequence[str] | None = None,
) -> "pd.DataFrame":
    """List the tool calls in the ledger that were answered here.

    Args:
        scope: `session` for what this kernel asked, `all` for the whole ledger.
        since: Only calls of exchanges started at or after this instant; text is
            ISO 8601.
        conversation: Only this conversation, or any of several.
        run: Only this run of a sweep, or any of several.
        model: Only this model, or any of several.
        name: Only this tool, or any of several.

    Returns:
        One row a call, in the order in which they were run: arguments, result,
        error, seconds. A call that was refused or denied has a row too. dtypes are
        fixed, also for no rows.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter is not one that could be meant.

    Example:
        >>> svc.tool_calls_df(name="cups_sold")  # doctest: +SKIP
    """
    from svc_notebook.ledger.reading import tool_calls_df as frame  # noqa: PLC0415

    return frame(
        current().ledger,
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        name=name,
    )


def score(frame: "pd.DataFrame") -> int:
    """Keep scores of replies in the ledger: the columns `score_*` of a frame.

    Frames of these replies have the columns from then on, wherever they are read. A
    score that is kept again replaces the one before; a missing value is no score.

    Args:
        frame: Rows of `replies_df()`, of a run or of the ledger, with columns of your
            own whose names begin with `score_`: numbers, True or False (kept as 1 and
            0), or texts.

    Returns:
        How many scores were kept.

    Raises:
        ParameterError: There is no such column, a value cannot be kept, or a row has
            no reply in the ledger in use; nothing was kept.
        LedgerError: The ledger cannot be written.

    Example:
        >>> replies = run.replies_df()  # doctest: +SKIP
        >>> replies["score_right"] = replies["text"] == "spam"  # doctest: +SKIP
        >>> svc.score(replies)  # doctest: +SKIP
        24
    """
    from svc_notebook.ledger.scores import keep_scores  # noqa: PLC0415 - pandas

    return keep_scores(current().ledger, frame)


def export(frame: "pd.DataFrame", path: str | Path) -> Path:
    """Write a frame into a file of the kind that its name says.

    In CSV and Excel no text is a formula and Thai stays Thai; Parquet comes back
    identical from `read_parquet`; JSON lines hold every value as it is.

    Args:
        frame: Such as `replies_df()`.
        path: Ends with .parquet, .csv, .jsonl or .xlsx; replaced if there is one.

    Returns:
        The file.

    Raises:
        ConfigError: A package is missing; the message names the command.
        ParameterError: The name says no kind, or the file cannot be written.

    Example:
        >>> svc.export(svc.replies_df(), "replies.xlsx")  # doctest: +SKIP
    """
    from svc_notebook.ledger.exports import export as write  # noqa: PLC0415 - pandas

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
        >>> svc.read_parquet("replies.parquet")  # doctest: +SKIP
    """
    from svc_notebook.ledger.exports import read_parquet as read  # noqa: PLC0415

    return read(path)


def export_answers(
    path: str | Path, *, scope: Literal["session", "all"] = "session"
) -> int:
    """Write the good answers of the ledger into a file to run notebooks from.

    With SVC_ANSWERS naming the file a notebook needs neither key nor network. The
    file holds requests and answers, and nothing of who asked.

    Args:
        path: The file; replaced if there is one.
        scope: `session` for what this kernel asked, `all` for the whole ledger.

    Returns:
        How many answers were written.

    Raises:
        ParameterError: The file cannot be written.
        LedgerError: The ledger cannot be read.

    Example:
        >>> svc.export_answers("answers.jsonl")  # doctest: +SKIP
    """
    from svc_notebook.ledger.answers import export_answers as write  # noqa: PLC0415

    return write(path, current().ledger.read(scope=scope))

"""`%svc usage` and `%svc replies`: the requests of a kernel or of all, as tables."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from svc_notebook.display.number_words import cost_in_words, count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger.exchange_rows import Filters, since_sql
from svc_notebook.session import Session

if TYPE_CHECKING:
    import pandas as pd


_USAGE_COLUMNS = (
    *("n_requests", "n_exchanges", "n_failed", "n_cut"),
    *("prompt_tokens", "completion_tokens"),
    *("estimated_prompt_tokens", "estimated_completion_tokens"),
    *("estimated_low_tokens", "estimated_high_tokens"),
)
_COSTS = ("cost", "estimated_cost", "cost_source")
_REPLY_COLUMNS = (
    *("origin", "conversation", "model", "temperature", "prompt", "text"),
    *("finish_reason", "is_cut", "status", "error_type", "latency_s"),
)


USAGE_WORDS = "[all|today|7d|2026-01-31] [emulated]"
_ALL, _EMULATED = "all", "emulated"


def fits_usage(words: Sequence[str]) -> bool:
    """Whether words can follow `%svc usage`: one time or `all`, and `emulated`."""
    n_emulated = words.count(_EMULATED)
    return n_emulated <= 1 and len(words) - n_emulated <= 1


def usage_df(session: Session, *words: str) -> "pd.DataFrame":
    """Sum up requests, tokens and costs: one row per model, emulated or not.

    They are those of this kernel; with `all` or a time among the words, of all kernels.
    The emulator's answers are only counted if "emulated" is among them.
    """
    from svc_notebook.ledger.usage import say_left_out, say_unpriced  # noqa: PLC0415 - pandas
    from svc_notebook.ledger.usage import usage_df as frame  # noqa: PLC0415 - pandas

    from .summary_table import listing  # noqa: PLC0415 - pandas

    filters = _to_filters(words)
    prices = session.context().prices
    usage = frame(
        session.ledger,
        by=("model", "is_emulated"),
        include_emulated=_EMULATED in words,
        prices=prices,
        **filters,
    )
    n_emulated = int(usage.loc[usage["is_emulated"], "n_left_out"].sum())
    is_in_sentence = usage["n_left_out"].sum() == n_emulated
    notes: list[str] = []
    dropped: list[str] = []
    usage = say_left_out(
        usage, hint="", say=(dropped if is_in_sentence else notes).append
    )
    say_unpriced(usage, say=notes.append)
    if prices and usage["is_emulated"].any():
        notes.append(
            "The emulator is free; the costs are what the service would charge."
        )
    shown = [*_USAGE_COLUMNS, *(_COSTS if prices else ())]
    rows = [
        _usage_row(row, has_cost=prices is not None) for row in usage.to_dict("records")
    ]
    return listing(
        usage.set_index(["model", "is_emulated"])[shown],
        _sentence(usage, filters, prices.currency if prices else "")
        + _uncounted(n_emulated, words)
        + " Prompt and reply are tokens; ~ is an estimate." * bool(rows),
        _USAGE_HEADS,
        rows,
        note="\n".join(notes),
    )


def _to_filters(words: Sequence[str]) -> Filters:
    """Return which requests the words mean; refuse others."""
    since = [word for word in words if word not in {_ALL, _EMULATED}]
    with suppress(ParameterError):
        if not since:
            return {"scope": "all" if _ALL in words else "session"}
        if len(since) == 1:
            since_sql(since[0])
            return {"scope": "all", "since": since[0]}
    raise ParameterError(
        f"%svc usage {' '.join(words)}: the command is `%svc usage {USAGE_WORDS}`. "
        "Without a word it is about this kernel, else about all kernels.",
        param="line",
    )


_USAGE_HEADS = (*("model", "requests", "failed", "cut", "prompt", "reply", "cost"),)


def _sentence(usage: "pd.DataFrame", filters: Filters, currency: str) -> str:
    """Return how many requests were sent, since when, and what they cost if known."""
    n_requests = int(usage["n_requests"].sum())
    senders = "This kernel" if filters["scope"] == "session" else "All kernels"
    sentence = f"{senders} sent {count_in_words(n_requests, 'requests')}"
    if since := filters.get("since"):
        instant = datetime.fromisoformat(since_sql(since)).astimezone()
        sentence += f" since {instant:%Y-%m-%d %H:%M}"
    if not currency or not n_requests or usage["n_unpriced"].any():
        return sentence
    about = "~" if usage["estimated_cost"].any() else ""
    return f"{sentence}, for {about}{cost_in_words(usage['cost'].sum())} {currency}"


def _uncounted(n_emulated: int, words: Sequence[str]) -> str:
    """Return the end of the sentence: how many emulated answers are left out."""
    if not n_emulated:
        return "."
    answers, them = ("answer", "it") if n_emulated == 1 else ("answers", "them")
    command = " ".join(("%svc usage", *words, _EMULATED))
    return (
        f", not counting {n_emulated:,} {answers} of the emulator. `{command}`, or "
        f"`svc.usage_df(include_emulated=True)`, counts {them}."
    )


def _usage_row(row: Mapping[Hashable, Any], *, has_cost: bool) -> list[str]:
    """Return the texts of a row; figures that are estimated in part have a ~."""
    import pandas as pd  # noqa: PLC0415 - slow to load

    def total(name: str, in_words: Callable[[Any], str] = "{:,}".format) -> str:
        value, estimated = row[name], row[f"estimated_{name}"]
        about = "" if pd.isna(estimated) or not estimated else "~"
        return f"{about}{in_words(0 if pd.isna(value) else value)}"

    cost = "not known" if row["n_unpriced"] else total("cost", cost_in_words)
    return [
        f"{row['model']}{' (emulator)' if row['is_emulated'] else ''}",
        *(
            f"{0 if pd.isna(row[name]) else row[name]:,}"
            for name in ("n_requests", "n_failed", "n_cut")
        ),
        total("prompt_tokens"),
        total("completion_tokens"),
        cost if has_cost else "",
    ]


def replies_df(session: Session) -> "pd.DataFrame":
    """List this kernel's replies: the columns of `svc.replies_df` that fit a screen."""
    from svc_notebook.ledger.reply_frames import replies_df as frame  # noqa: PLC0415 - pandas

    return frame(session.ledger)[list(_REPLY_COLUMNS)]

"""`%svc usage` and `%svc replies`: the requests of this kernel, as tables."""

from collections.abc import Hashable, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from svc_notebook.errors import ParameterError
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


def usage_df(session: Session, word: str = "") -> "pd.DataFrame":
    """Sum up the requests of this kernel: one row per model, emulated or not.

    The emulator's answers are only counted if `word` is "emulated".
    """
    from svc_notebook.ledger.usage import say_left_out  # noqa: PLC0415 - pandas
    from svc_notebook.ledger.usage import usage_df as frame  # noqa: PLC0415 - pandas

    from .summary_table import listing  # noqa: PLC0415 - pandas

    if word not in {"", "emulated"}:
        raise ParameterError(
            f"%svc usage {word}: write `%svc usage`, or `%svc usage emulated` to count "
            "the emulator's answers too.",
            param="line",
        )
    prices = session.context().prices
    usage = frame(
        session.ledger,
        by=("model", "is_emulated"),
        include_emulated=bool(word),
        prices=prices,
    )
    n_emulated = int(usage.loc[usage["is_emulated"], "n_left_out"].sum())
    is_in_sentence = usage["n_left_out"].sum() == n_emulated
    notes, dropped = StringIO(), StringIO()
    usage = say_left_out(usage, hint="", file=dropped if is_in_sentence else notes)
    if prices and usage["is_emulated"].any():
        notes.write(
            "The emulator is free; the costs are what the service would charge.\n"
        )
    shown = [*_USAGE_COLUMNS, *(_COSTS if prices else ())]
    if not prices:
        usage = usage.drop(columns=list(_COSTS))
    rows = [_usage_row(row) for row in usage.fillna(0).to_dict("records")]
    n_requests = int(usage["n_requests"].sum())
    return listing(
        usage.set_index(["model", "is_emulated"])[shown],
        f"This kernel sent {n_requests} request{'s'[: n_requests != 1]}"
        + _uncounted(n_emulated)
        + " Prompt and reply are tokens; ~ is an estimate." * bool(rows),
        _USAGE_HEADS,
        rows,
        note=notes.getvalue().strip(),
    )


_USAGE_HEADS = (*("model", "requests", "failed", "cut", "prompt", "reply", "cost"),)


def _uncounted(n_emulated: int) -> str:
    """Return the end of the sentence: how many emulated answers are left out."""
    if not n_emulated:
        return "."
    answers, them = "answer of the emulator is", "it"
    if n_emulated > 1:
        answers, them = "answers of the emulator are", "them"
    return (
        f" that count. {n_emulated} {answers} not counted; `%svc usage emulated`, or "
        f"svc.usage_df(include_emulated=True), counts {them}."
    )


def _usage_row(row: Mapping[Hashable, Any]) -> list[str]:
    """Return the texts of a row; reported and estimated figures are added up."""

    def total(name: str, places: str = "") -> str:
        estimated = row.get(f"estimated_{name}", 0)
        about = "~" if estimated else ""
        return f"{about}{row.get(name, 0) + estimated:,{places}}"

    return [
        f"{row['model']}{' (emulator)' if row['is_emulated'] else ''}",
        *(f"{row[name]:,}" for name in ("n_requests", "n_failed", "n_cut")),
        total("prompt_tokens"),
        total("completion_tokens"),
        total("cost", ".4g") if "cost" in row else "",
    ]


def replies_df(session: Session) -> "pd.DataFrame":
    """List this kernel's replies: the columns of `svc.replies_df` that fit a screen."""
    from svc_notebook.ledger.reply_frames import replies_df as frame  # noqa: PLC0415 - pandas

    return frame(session.ledger)[list(_REPLY_COLUMNS)]

"""Ratings in a spreadsheet: a frame of replies to rate, and reading it when filled in.

The sheet does not show what made a reply. `svc.export` writes it to a file.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.ratings import RatedValue
from svc_notebook.service.params import shorten

from .rating import Rating, Scale

ID, SCALE, RATING, NOTE = "rate_id", "scale", "rating", "note"
FIRST = "first"  # the order in which the sheet was made, as in `Run.rate`
_SHOWN = 5  # most rows that an error names


def to_sheet(rating: Rating) -> pd.DataFrame:
    """Return the replies that are not rated yet: see `Run.to_rate`."""
    sides = ("left", "right") if rating.is_pairs else ("reply",)
    scale = _in_words(rating.scale)
    rows = []
    for card_id, card in rating.open_cards().items():
        texts = [reply.text for reply in card.replies]
        values = card.values  # noqa: PD011 - not a frame
        rows.append(
            {
                ID: card_id,
                **{f"var_{name}": text for name, text in values.items()},
                "prompt": _in_one_cell(card.prompts),
                **dict(zip(sides, texts, strict=True)),
                SCALE: scale,
                RATING: None,
                NOTE: None,
                FIRST: rating.chosen,
            }
        )
    return pd.DataFrame(rows).astype("string")


def _in_one_cell(prompts: Mapping[str, str]) -> str:
    """Return the one prompt; of several, each with its title."""
    if len(prompts) == 1:
        return next(iter(prompts.values()))
    return "\n\n".join(f"{title}: {prompt}" for title, prompt in prompts.items())


def read_sheet(sheet: Any) -> pd.DataFrame:  # noqa: ANN401 - a frame or a path
    """Read a sheet of `to_rate` that was filled in, as texts.

    Raises:
        ParameterError: The sheet cannot be read, or lacks columns of `to_rate`.
    """
    if isinstance(sheet, str | Path):
        path = Path(sheet)
        read = pd.read_excel if path.suffix in {".xlsx", ".xls"} else pd.read_csv
        try:
            # texts such as NA and None may be labels
            sheet = read(path, dtype="string", keep_default_na=False)
        except (OSError, ValueError, ImportError) as problem:
            raise ParameterError(
                f"The sheet {str(path)!r} cannot be read: {problem}. Give a CSV or "
                "Excel file, or a frame.",
                param="sheet",
            ) from None
    df: pd.DataFrame = to_pandas(sheet)
    columns = [*getattr(df, "columns", ())]
    missing = [name for name in (ID, RATING) if name not in columns]
    if missing:
        raise ParameterError(
            f"The sheet lacks {', '.join(missing)}. Give what run.to_rate() made, with "
            "the column rating filled in.",
            param="sheet",
        )
    return df.reset_index(drop=True)


def first_of(df: pd.DataFrame) -> dict[str, str]:
    """Return the order in which a sheet was made, as an option of `Run.rate`."""
    orders = set(df[FIRST].dropna()) if FIRST in df.columns else set[str]()
    return {"first": orders.pop()} if len(orders) == 1 else {}


def take_sheet(df: pd.DataFrame, rating: Rating) -> int:
    """Save the ratings in a sheet: see `Run.take_ratings`."""
    _check_scale(df, rating.scale)
    known = rating.card_ids()
    ratings: dict[str, tuple[RatedValue | None, str]] = {}
    lines = dict[str, int]()  # the line of each card that was read
    problems = list[str]()
    notes = df[NOTE] if NOTE in df.columns else pd.Series("", index=df.index)
    for number, (card_id, cell, note) in enumerate(
        zip(df[ID], df[RATING], notes, strict=True), start=2
    ):
        text = "" if pd.isna(note) else str(note)
        if _is_empty(cell) and not (rating.notes and text):
            continue
        value = None if rating.notes else _value_of(cell, rating.scale)
        own_id, value = _to_own_card(str(card_id), value, known)
        if own_id not in known:
            problems.append(f"line {number} has a rate_id that is not of this run")
        elif value is None and not rating.notes:
            problems.append(f"line {number} has {shorten(repr(str(cell)), 20)}")
        elif ratings.setdefault(own_id, (value, text)) != (value, text):
            problems.append(
                f"lines {lines[own_id]} and {number} rate the same card differently"
            )
        lines.setdefault(own_id, number)
    _refuse(problems, rating.scale)
    rating.take(ratings)
    return len(ratings)


def _in_words(scale: Scale) -> str:
    return " / ".join(step.label for step in scale)


def _check_scale(df: pd.DataFrame, scale: Scale) -> None:
    """Refuse a sheet with another scale: 1 of 5 must not be read as yes."""
    if SCALE not in df.columns:
        return
    own = " ".join(_in_words(scale).split())
    for text in df[SCALE].dropna().astype(str).unique():
        cell = " ".join(
            text.removeprefix("'").split()
        )  # svc.export puts ' before formulas
        if cell and cell != own.removeprefix("'"):
            raise ParameterError(
                f"The sheet was made with the scale {shorten(cell, 60)}, but "
                f"take_ratings was called with {shorten(own, 60)}. Give it the same "
                "scale and pairs as to_rate. Nothing was kept.",
                param="scale",
            )


def _to_own_card(
    card_id: str, value: RatedValue | None, known: Collection[str]
) -> tuple[str, RatedValue | None]:
    """Return the id and the value as this rater would see the card.

    In a sheet that was made for another rater, the replies of a pair may have changed
    sides.
    """
    turned = " ".join(card_id.split()[::-1])
    if card_id not in known and turned in known:
        return turned, {"left": "right", "right": "left"}.get(str(value), value)
    return card_id, value


def _refuse(problems: Sequence[str], scale: Scale) -> None:
    if problems:
        allowed = " or ".join(step.label.lower() for step in scale)
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ParameterError(
            f"{'; '.join(problems[:_SHOWN])}{more}. A rating is {allowed}, or empty. "
            "Nothing was kept.",
            param="sheet",
        )


def _is_empty(cell: Any) -> bool:  # noqa: ANN401 - of any frame
    return bool(pd.isna(cell)) or not str(cell).strip()


def _value_of(cell: object, scale: Scale) -> RatedValue | None:
    """Return the value that a cell means; None if the scale does not have it."""
    text = str(cell).strip().casefold()
    # spreadsheets turn 1 into 1.0, and yes and no may be TRUE and FALSE
    numbers: Mapping[str, str] = {"true": "1", "false": "0"}
    text = numbers.get(text, text.removesuffix(".0"))
    for step in scale:
        if text in {step.key, step.label.casefold(), str(step.value).casefold()}:
            return step.value
    return None

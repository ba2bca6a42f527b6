"""`%svc settings`: every setting in force, and where it came from."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from svc_notebook.errors import MissingKeyError
from svc_notebook.service.params import shorten
from svc_notebook.session import Session
from svc_notebook.settings import ENV_NAMES, read_env

from .column_list import indexed_frame, listed

if TYPE_CHECKING:
    import pandas as pd


_VALUE_CHARS = 60  # of one that is shown
SETTING_LIST = listed(
    "string",
    setting="its name",
    value="in force; missing if there is none; of a key only whether it was found",
    source="where it was set",
)


def settings_df(
    session: Session, magic: Iterable[tuple[str, object, str]]
) -> "pd.DataFrame":
    """List every setting in force, those of the magic too, and where it came from.

    Shown are those that have a value; the frame has all, and each value whole.
    """
    from .summary_table import listing  # noqa: PLC0415 - pandas

    rows = [
        (name, None if value is None else str(value), source)
        for name, value, source in (*_settings(session), _key(session), *magic)
    ]
    without = ", ".join(name for name, value, _ in rows if value is None)
    return listing(
        indexed_frame(SETTING_LIST, rows),
        "The settings in force, and where each was set.",
        ("setting", "value", "source"),
        [
            (name, shorten(" ".join(value.split()), _VALUE_CHARS), source)
            for name, value, source in rows
            if value is not None
        ],
        note=f"Without a value: {without}.",
    )


def _settings(session: Session) -> list[tuple[str, object, str]]:
    settings, unusable = session.settings, read_env(os.environ)[1]
    rows = []
    for name, env in ENV_NAMES.items():
        source = settings.sources.get(name, "default")
        if env in unusable:
            source = f"{source}; {env} cannot be used"
        if name == "timeouts":
            waits = sorted(asdict(settings.timeouts).items())
            rows += [(wait, seconds, source) for wait, seconds in waits]
        else:
            rows.append((name, getattr(settings, name), source))
    return rows


def _key(session: Session) -> tuple[str, object, str]:
    try:
        return "key", "found, never shown", session.key().source
    except MissingKeyError:
        return "key", None, "default"

"""`%svc settings`: every setting, its value, and where it was set."""

import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from svc_notebook.errors import MissingKeyError
from svc_notebook.service.params import shorten
from svc_notebook.session import Session
from svc_notebook.settings import ENV_NAMES, read_env

from .column_list import columns_of, indexed_frame

if TYPE_CHECKING:
    import pandas as pd


_VALUE_CHARS = 60  # of a shown value
SETTING_LIST = columns_of(
    "string",
    setting="its name",
    value="its value; missing if it has none; for a key only whether it was found",
    source="where it was set",
)


def settings_df(
    session: Session, magic: Iterable[tuple[str, object, str]]
) -> "pd.DataFrame":
    """List every setting, also those of the magic, and where it was set.

    The cell shows only settings with a value, and shortens long values; the frame has
    all of them in full.
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
            timeouts = sorted(asdict(settings.timeouts).items())
            rows += [
                (timeout_name, seconds, source) for timeout_name, seconds in timeouts
            ]
        else:
            rows.append((name, getattr(settings, name), source))
    return rows


def _key(session: Session) -> tuple[str, object, str]:
    try:
        return "key", "found, never shown", session.key().source
    except MissingKeyError:
        return "key", None, "default"

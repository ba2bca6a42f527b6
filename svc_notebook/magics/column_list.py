"""Small frames with documented columns, for the lists that `%svc` shows."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from svc_notebook.ledger.reply_columns import Column, Dtype

if TYPE_CHECKING:  # pandas loads when a frame is asked for
    import pandas as pd


def indexed_frame(
    columns: Sequence[Column], rows: Iterable[Sequence[object]]
) -> "pd.DataFrame":
    """Make a small frame of rows, indexed by its first column."""
    import pandas as pd  # noqa: PLC0415 - loads when a frame is asked for

    dtypes: dict[str, Any] = {column.name: column.dtype for column in columns}
    frame = pd.DataFrame(list(rows), columns=list(dtypes), dtype=object)
    return frame.astype(dtypes).set_index(columns[0].name)


def columns_of(dtype: Dtype, **docs: str) -> tuple[Column, ...]:
    """Return columns of one dtype, from their names and descriptions."""
    return tuple(Column(name, dtype, name, doc) for name, doc in docs.items())

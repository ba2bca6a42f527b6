"""A table of a reply as a DataFrame, assigned to a variable of the notebook.

It is read from the reply's Markdown. A column becomes numbers if all its cells are
plain numbers; no text is evaluated.
"""

import builtins
import re
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

from svc_notebook.conversations.history import Turn
from svc_notebook.display.markdown import tables
from svc_notebook.errors import ParameterError
from svc_notebook.template import as_variable

from .attach_menu import Shell
from .browser_messages import BrowserMessage
from .view import reply_texts

# longer numbers are often ids, and a float would change their last digits
MAX_DIGITS = 15
MAX_CODE_ROWS = 50  # more would be a long cell
# not with a leading zero, which codes and postcodes have
_NUMBER = re.compile(
    r"[+-]?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:,[0-9]{3})+)(?:\.[0-9]+)?"
)
_EXAMPLE = "Use letters, digits and _, as in teas_2"


def make_frame(
    message: BrowserMessage, turn: Turn, shell: Shell | None
) -> dict[str, Any]:
    """Assign a table of a reply to a variable; return the answer for the page.

    An existing variable is replaced only if the message says so.
    """
    name = as_variable(message.name)
    answer: dict[str, Any] = {"t": "framed", "id": message.question_id, "name": name}
    answer |= {"text": "", "problem": "", "is_taken": False, "code": ""}
    try:
        rows = _rows(message, turn)
        names = _names(shell)
        check_name(name, shell)
    except ParameterError as error:
        return {**answer, "problem": str(error)}
    is_taken = name in names or hasattr(builtins, name)
    if is_taken and not message.is_on:
        kind = type(names.get(name, getattr(builtins, name, None))).__name__
        problem = f"{name} is taken: it is a {kind}. Replace it, or type another name."
        return {**answer, "problem": problem, "is_taken": True}
    frame = to_frame(rows)
    names[name] = frame
    n_rows, n_columns = frame.shape
    rows_word, columns_word = (
        "row" + "s" * (n_rows != 1),
        "column" + "s" * (n_columns != 1),
    )
    size = f"{n_rows:,} {rows_word} × {n_columns} {columns_word}"  # noqa: RUF001 - a size
    return {**answer, "text": f"{name} = {size}", "code": to_code(name, frame)}


def _rows(message: BrowserMessage, turn: Turn) -> Sequence[Sequence[str]]:
    texts = reply_texts(turn)
    reply_tables = tables(texts[message.number]) if message.number < len(texts) else ()
    if not 0 <= message.table < len(reply_tables):
        raise ParameterError(
            "This table is no longer in the reply, so no DataFrame was made.",
            param="panel",
        )
    return reply_tables[message.table]


def _names(shell: Shell | None) -> dict[str, Any]:
    if shell is None:
        raise ParameterError("There is no notebook with variables here.", param="panel")
    return shell.user_ns


def check_name(name: str, shell: Shell | None) -> None:
    """Refuse names that cannot be variables, and names that IPython itself uses."""
    if not name.isidentifier():
        raise ParameterError(
            f"{name!r} cannot be a variable's name. {_EXAMPLE}; it must not begin with "
            "a digit.",
            param="name",
        )
    if iskeyword(name):
        raise ParameterError(
            f"{name} is a keyword of Python. Type another name.", param="name"
        )
    hidden = shell.user_ns_hidden if shell else {}
    if name in hidden or name.startswith("__"):
        raise ParameterError(
            f"IPython uses {name} itself. Type another name.", param="name"
        )


def to_frame(rows: Sequence[Sequence[str]]) -> Any:  # noqa: ANN401 - a DataFrame
    """Make a DataFrame from the rows of a table; the first row has the headings.

    Columns of plain ASCII numbers (`12`, `-0.5`, `1,234`) are int64 or float64, with
    missing values for empty cells (Int64 for whole numbers). All other columns stay
    text: percentages, dates, numbers with a leading zero or more than 15 digits, and
    numerals of other scripts. Equal headings get a number, empty ones a name.
    """
    import pandas as pd  # noqa: PLC0415 - not before a table is wanted

    headings, *cells = rows
    columns = zip(*cells, strict=True) if cells else [()] * len(headings)
    series = [_series(column, pd) for column in columns]
    return pd.DataFrame(dict(zip(_unique_headings(headings), series, strict=True)))


def to_code(name: str, frame: Any) -> str:  # noqa: ANN401 - a DataFrame
    """Write a cell that makes a frame of `to_frame` again, or "" for a long frame.

    It holds the values, so it needs neither the panel nor the ledger.
    """
    if len(frame) > MAX_CODE_ROWS:
        return ""
    columns = "".join(
        f"        {heading!r}: {_series_code(frame[heading])},\n" for heading in frame
    )
    return f"import pandas as pd\n\n{name} = pd.DataFrame(\n    {{\n{columns}    }}\n)"


def _series_code(series: Any) -> str:  # noqa: ANN401 - pandas
    cells = zip(series.tolist(), series.isna(), strict=True)
    values = [None if is_missing else value for value, is_missing in cells]
    return f"pd.Series({values!r}, dtype={str(series.dtype)!r})"


def _series(column: Sequence[str], pd: Any) -> Any:  # noqa: ANN401 - pandas
    values = [cell for cell in column if cell]
    if not values or not all(map(_is_number, values)):
        return pd.Series(column, dtype="string")
    plain = [cell.replace(",", "") for cell in column]
    if any("." in cell for cell in plain):
        return pd.Series([float(cell or "nan") for cell in plain])
    is_whole = len(values) == len(column)
    numbers = [int(cell) if cell else None for cell in plain]
    return pd.Series(numbers, dtype="int64" if is_whole else "Int64")


def _is_number(cell: str) -> bool:
    n_digits = sum(letter in "0123456789" for letter in cell)
    return n_digits <= MAX_DIGITS and _NUMBER.fullmatch(cell) is not None


def _unique_headings(headings: Sequence[str]) -> list[str]:
    """Number equal headings, and name empty ones by their position."""
    unique: list[str] = []
    for place, heading in enumerate(headings, start=1):
        name = heading or f"column_{place}"
        stem, n = name, 1
        while name in unique:
            n += 1
            name = f"{stem}_{n}"
        unique.append(name)
    return unique

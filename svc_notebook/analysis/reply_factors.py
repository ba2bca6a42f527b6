"""The roles of columns in a frame of replies: factors, prompts, units and scores.

Frames come from `replies_df`, a concatenation of such frames, or a file. Their index is
ignored, and they are never changed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.reply_columns import ANSWER, EXTRA, NUMBERS, REPLIES, as_names
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.ledger.usage import group_codes
from svc_notebook.service.params import PARAM_NAMES, did_you_mean, printable, shorten

NEEDED = ("choice_index", "model", "prompt", "status")
"""Columns without which a frame cannot be read as replies."""
SENT = ("model", "prompt", "system", "tools", *PARAM_NAMES)
OF_REQUESTS = frozenset(column.name for column in NUMBERS)
"""Seconds, tokens, costs and the like: only the first choice of a request has them."""
LABEL, TEMPLATE = "_label", "_template"
_KNOWN = frozenset(column.name for column in REPLIES)
_SHOWN_CHARS = 40
_SHOWN_NAMES = 12


def check_replies(df: Any) -> pd.DataFrame:  # noqa: ANN401 - not checked yet
    """Return the frame, without its index, if it has the columns of `replies_df`.

    Raises:
        ParameterError: It is not a DataFrame, lacks columns that every frame of replies
            has, has two columns of the same name, or one whose name is not a text.
    """
    df = to_pandas(df)
    if not isinstance(df, pd.DataFrame):
        raise ParameterError(
            f"df must be a DataFrame of replies, such as run.replies_df(); got a value "
            f"of type {type(df).__name__}.",
            param="df",
        )
    if missing := [name for name in NEEDED if name not in df.columns]:
        raise ParameterError(
            f"The frame lacks {', '.join(missing)}, which every frame of replies has. "
            "Use run.replies_df() or svc.replies_df() without columns='narrow' and "
            "texts=False, or turn another frame into one with svc.as_replies.",
            param="df",
        )
    check_column_names(df.columns)
    names: list[object] = [*df.columns]
    if other := [name for name in names if not isinstance(name, str)]:
        raise ParameterError(
            f"The frame has a column called {other[0]!r}, but names must be texts. "
            "Convert them with df.set_axis(df.columns.map(str), axis='columns').",
            param="df",
        )
    return df.reset_index(drop=True)


def check_column_names(names: Iterable[object]) -> None:
    """Refuse two columns of the same name."""
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise ParameterError(
            f"The frame has several columns called {twice[0]!r}; rename all but one.",
            param="df",
        )


def factors(df: pd.DataFrame) -> list[str]:
    """Return the factors, the columns that vary between conditions, in frame order.

    These are model, system, tools, templates, parameters and labels of conditions, if
    they have more than one value. A column of labels, such as `system_label`, replaces
    its factor. The prompt is a factor only through its template or labels; otherwise
    replies are paired by it: see `unit`.
    """
    varied = [name for name in _candidates(df) if len(coded(df[name])[1]) > 1]
    hidden = {"prompt"}
    for name in varied:
        for ending in (LABEL, TEMPLATE):
            if (whole := name.removesuffix(ending)) != name:
                hidden |= {whole, whole + TEMPLATE} - {name}
    return [name for name in varied if name not in hidden]


def unit(df: pd.DataFrame) -> list[str]:
    """Return the columns that identify a prompt, by which replies are paired.

    If the frame has `row`, a prompt is a row of the source, otherwise it is the text.
    In a frame of several runs it is the row within its run if a row has several texts;
    otherwise it is the text, so that two runs over the same rows are paired.
    """
    if "row" not in df.columns or df["row"].isna().any():
        return ["prompt"]
    if "run" not in df.columns or len(df["run"].unique()) <= 1:
        return ["row"]
    if df["prompt"].isna().all():  # imported without prompts
        return ["row"]
    n_texts = df.groupby(["run", "row"], dropna=False)["prompt"].nunique(dropna=False)
    return ["prompt"] if (n_texts == 1).all() else ["run", "row"]


def column_of(df: pd.DataFrame, on: Any, *, param: str = "on") -> str:  # noqa: ANN401 - not checked yet
    """Return the column that `on` names: a score by its name, or any column.

    Raises:
        ParameterError: There is no such column.
    """
    if isinstance(on, str):
        for name in (PREFIX + on, on):
            if name in df.columns:
                return name
    score_columns = scores(df)
    short = [name.removeprefix(PREFIX) for name in score_columns]
    more = [name for name in _numeric(df) if name not in score_columns]
    allowed = (
        f"its scores are {', '.join(short)}"
        if score_columns
        else "it has no scores yet; run.score(right=...) adds one"
    )
    raise ParameterError(
        f"{param}={shorten(repr(on), _SHOWN_CHARS)} is not a score or a column of the "
        f"frame.{did_you_mean(str(on), [*short, *more], n=1)} It must name a column of "
        f"numbers or of True and False: {allowed}; others are {_some(more)}.",
        param=param,
    )


def measure(df: pd.DataFrame, on: str) -> pd.Series:
    """Return a score or another column as floats: True is 1, missing is NaN.

    Args:
        df: A frame of replies.
        on: The name of a score, such as `right` for the column `score_right`; or of a
            column of numbers or of True and False, such as `cost` or `answer_ok`.

    Raises:
        ParameterError: There is no such column, or it holds texts or infinite values.
    """
    name = column_of(df, on)
    values = df[name]
    if values.dtype == object:
        values = values.convert_dtypes()
    is_real = values.dtype.kind != "c"
    if not (is_real and pd.api.types.is_numeric_dtype(values.dtype)):
        if values.isna().all():
            return pd.Series(np.nan, index=df.index, name=name)
        examples = list(dict.fromkeys(map(str, values.dropna())))
        raise ParameterError(
            f"{name} holds {_kind(values)} such as {_some(examples, 3)}, so it has no "
            f"mean. {_usable_columns(df)}. For labels, score whether they are right: "
            "run.score(right=svc.scores.exact('label')).",
            param="on",
        )
    floats = values.astype("Float64").to_numpy(dtype="float64", na_value=np.nan)
    if np.isinf(floats).any():
        raise ParameterError(
            f"{name} has infinite values; make them missing, for example with "
            f"df[{name!r}].replace([np.inf, -np.inf], pd.NA).",
            param="on",
        )
    return pd.Series(floats, index=df.index, name=name)


def is_rate(df: pd.DataFrame, on: str) -> bool:
    """Say whether a score is a rate: its values are only True and False, or 1 and 0.

    Tokens, seconds and costs are not rates, even if they are all 1.
    """
    if column_of(df, on) in OF_REQUESTS:
        return False
    values = measure(df, on).dropna()
    return bool(len(values)) and bool(values.isin([0.0, 1.0]).all())


def scores(df: pd.DataFrame) -> list[str]:
    """Return the columns `score_*` in frame order, without `score_*_error`."""
    names = [str(name) for name in df.columns if str(name).startswith(PREFIX)]
    errors = {f"{name}_error" for name in names}
    return [name for name in names if name not in errors]


def named(df: pd.DataFrame, names: Any, *, param: str = "by") -> list[str]:  # noqa: ANN401 - not checked yet
    """Return the columns with these names, each once; labels replace their factor.

    If the frame has values in `prompt_label`, that column is returned for `prompt`, and
    likewise for other factors with labels.

    Raises:
        ParameterError: A column does not exist.
    """
    columns = []
    for name in as_names(names):
        if name not in df.columns:
            known = [str(column) for column in df.columns]
            raise ParameterError(
                f"{shorten(repr(name), _SHOWN_CHARS)} is not a column of the frame."
                f"{did_you_mean(str(name), known)} The columns that vary are: "
                f"{', '.join(factors(df)) or 'none'}. list(run.replies_df()) has "
                "all names.",
                param=param,
            )
        label = f"{str(name).removesuffix(TEMPLATE)}{LABEL}"
        is_labelled = label in df.columns and df[label].notna().any()
        columns.append(label if is_labelled else str(name))
    return list(dict.fromkeys(columns))


def attributes(df: pd.DataFrame) -> list[str]:
    """Return the columns of the user's rows, such as a language.

    They have one value for each prompt.
    """
    taken = {*_candidates(df)}
    return [
        name
        for name in row_and_condition_columns(df)
        if name not in taken and name != "tools"
    ]


def _candidates(df: pd.DataFrame) -> list[str]:
    """Return the columns that may be factors: sent parameters, and labels.

    Labels of conditions are columns of `row_and_condition_columns` that differ within a
    prompt.
    """
    names = [str(name) for name in df.columns]
    before = row_and_condition_columns(df)
    sent = [name for name in before if name == "tools" or name.startswith(EXTRA)]
    unclear = [name for name in before if not _is_label(name) and name not in sent]
    # these belong to the rows, unless they differ within a prompt
    of_rows = {*unclear}
    if "system" in names and "system_template" not in names:
        of_rows.add("system")
    allowed = {*SENT, *before} - of_rows
    allowed |= {*_differing(df, of_rows & {*names})}
    return [name for name in names if name in allowed]


def row_and_condition_columns(df: pd.DataFrame) -> list[str]:
    """Return the columns of rows and conditions, and the fields of `extra`.

    They come before `prompt` and `text`, or between them and `repeat`. Columns that a
    user added come after these.
    """
    names = [str(name) for name in df.columns]
    last = [names.index(name) for name in ("text", "prompt", "repeat") if name in names]
    own = names[: max(last, default=0)] if "text" in names else []
    of_replies = (PREFIX, f"{ANSWER.name}_")
    return [
        name
        for name in own
        if name not in _KNOWN and name != "row" and not name.startswith(of_replies)
    ]


def _is_label(name: str) -> bool:
    return any(name == f"{factor}{end}" for factor in SENT for end in (LABEL, TEMPLATE))


def spoken(name: str) -> str:
    """Return a column as a sentence names it: `model_label` labels the model."""
    plain = name.removesuffix(LABEL) if _is_label(name) else name
    return "system prompt" if plain == "system" else plain


def in_words(name: str, value: Any) -> str:  # noqa: ANN401 - any column's
    """Write a value of a column as text; a missing one is "not sent" or "missing"."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        is_sent = name.removesuffix(TEMPLATE) in SENT or name.startswith(EXTRA)
        return "not sent" if is_sent else "missing"
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting_name(values: Iterable[str]) -> str:
    """Return the name of a setting, which combines values: "small/terse".

    Not joined by commas, because lists of names have commas between the names.
    """
    return "/".join(values)


def coded(values: pd.Series) -> tuple[Any, Any]:
    """Return a code for each value, and the different values.

    Values that cannot be hashed, such as lists, become texts.
    """
    try:
        codes, kinds = pd.factorize(values, use_na_sentinel=False)
    except TypeError:  # not hashable
        codes, kinds = pd.factorize(values.astype(str), use_na_sentinel=False)
    return codes, kinds


def varying_along(
    df: pd.DataFrame,
    others: Sequence[str],
    level: Any,  # noqa: ANN401 - codes
) -> list[str]:
    """Return the factors that always vary along with the levels; [] if all of them do.

    Pairs cannot have equal values of these, but they can of the others.
    """
    along = []
    for name in others:
        value = coded(df[name])[0]
        values_with_levels = set(zip(value.tolist(), level.tolist(), strict=True))
        if len(values_with_levels) == len(set(value.tolist())):
            along.append(name)
    return along if len(along) < len(others) else []


def prompt_codes(df: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return the code of each row's prompt, from 0."""
    return group_codes(df[unit(df)])[0]


def unit_codes(df: pd.DataFrame, names: Any) -> Any:  # noqa: ANN401 - not checked yet
    """Return the code of each row's unit; None if `names` is None.

    Args:
        df: A frame of replies.
        names: The columns that say which prompts belong together, such as a document.

    Raises:
        ParameterError: A column does not exist, has missing values, or has several
            values for one prompt.
    """
    if names is None:
        return None
    columns = named(df, names, param="unit")
    for name in columns:
        if n := int(df[name].isna().sum()):
            raise ParameterError(
                f"{name} is missing in {n:,} of {len(df):,} replies, so their unit is "
                "not known. Fill in the values, or remove these replies.",
                param="unit",
            )
    if several := _differing(df, columns):
        raise ParameterError(
            "unit must be a column that says which prompts belong together, such as a "
            f"document, but {several[0]} has several values for one of the "
            f"{counted(df)}. Give a column with one value for each of them"
            f"{_such_as(attributes(df))}.",
            param="unit",
        )
    coded_columns = {name: coded(df[name])[0] for name in columns}
    return group_codes(pd.DataFrame(coded_columns, index=df.index))[0]


def _such_as(names: Sequence[str]) -> str:
    return f", such as {_some(names, 3)}" if names else ""


def counted(df: pd.DataFrame, names: Any = None) -> str:  # noqa: ANN401 - as in unit_codes
    """Return the plural of the units of a study, such as "rows" or "prompts"."""
    if names is not None and as_names(names) != ["row"]:
        return f"values of {' and '.join(named(df, names, param='unit'))}"
    return "prompts" if unit(df) == ["prompt"] else "rows"


def _differing(df: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """Return the columns that have several values for one prompt."""
    if not (names := list(names)):
        return []
    prompt = prompt_codes(df)
    code_of_prompt = np.zeros(prompt.max(initial=-1) + 1, dtype=np.int64)
    differing = []
    for name in names:
        codes, _ = coded(df[name])
        code_of_prompt[prompt] = codes  # the code of the prompt's last row remains
        differing += [name] if (code_of_prompt[prompt] != codes).any() else []
    return differing


def _numeric(df: pd.DataFrame) -> list[str]:
    return [
        str(name)
        for name in df.columns
        if pd.api.types.is_numeric_dtype(df[name].dtype) and df[name].notna().any()
    ]


def _usable_columns(df: pd.DataFrame) -> str:
    usable = [
        name.removeprefix(PREFIX) for name in _numeric(df) if name in scores(df)
    ] or _numeric(df)
    return f"Give a column of numbers or of True and False, such as {_some(usable)}"


def _kind(values: pd.Series) -> str:
    return "labels" if pd.api.types.is_string_dtype(values.dtype) else "values"


def _some(names: Iterable[str], n: int = _SHOWN_NAMES) -> str:
    """Return the first names, and how many more there are, for a message."""
    names = [shorten(printable(name), _SHOWN_CHARS) for name in names]
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return (", ".join(names[:n]) or "none") + more


def column(df: pd.DataFrame, name: str) -> pd.Series:
    """Return a column; if the frame lacks it, one of missing values."""
    if name in df.columns:
        return df[name]
    return pd.Series(pd.NA, index=df.index, dtype="string")


def has(df: pd.DataFrame, name: str, value: str) -> Any:  # noqa: ANN401 - an array
    """Return which rows have this value in a column; missing values do not."""
    return (column(df, name) == value).to_numpy(dtype=bool, na_value=False)


def has_flag(df: pd.DataFrame, name: str) -> Any:  # noqa: ANN401 - an array
    """Return in which rows a column is True; missing values count as False."""
    if name not in df.columns:
        return np.zeros(len(df), dtype=bool)
    return df[name].to_numpy(dtype=bool, na_value=False)


def is_request(df: pd.DataFrame) -> Any:  # noqa: ANN401 - an array
    """Return which rows are first choices, which have the numbers of their request."""
    return df["choice_index"].to_numpy(dtype="float64", na_value=0.0) == 0.0

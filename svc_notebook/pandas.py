r"""`df.svc` and `series.svc`: one reply for each row, from a template.

    import pandas as pd
    import svc_notebook as svc

    df["summary"] = df.svc.complete("Summarise: {{text}}", max_tokens=60)
    df["text"].svc.complete("Summarise: {{value}}")

`import svc_notebook` registers them if pandas is loaded, and so does importing this
module.
"""

from functools import partial
from typing import Any

import pandas as pd

from svc_notebook.errors import ParameterError, warn
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.service.params import check_flag, with_params
from svc_notebook.session import current
from svc_notebook.sweeps.plan import check_params
from svc_notebook.sweeps.rows import read_rows
from svc_notebook.sweeps.run import Run, plan_run

EXPANDED = (
    "text",
    "finish_reason",
    "is_cut",
    "tool_calls",
    "status",
    "error_type",
    "error_message",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "latency_s",
    "exchange_id",
)
"""Columns of `complete(..., expand=True)`; they mean what they mean in `replies_df`."""


class FrameAccessor:
    """The verbs of the service on a DataFrame or a Series: `df.svc`, `series.svc`.

    Args:
        frame: The frame, which is not changed. A Series becomes the column `value`;
            frames of Polars or Arrow are converted.
    """

    def __init__(self, frame: pd.DataFrame | pd.Series) -> None:
        self._called = "df"
        frame = to_pandas(frame)
        if isinstance(frame, pd.Series):
            frame, self._called = frame.to_frame("value"), "series"
        self._frame = frame

    @with_params
    def complete(  # noqa: PLR0913 - the arguments of `sweep`
        self,
        template: str,
        *,
        model: str | None = None,
        system: str | None = None,
        expand: bool = False,
        name: str | None = None,
        retry: bool = False,
        reuse: bool | None = None,
        confirm_above: int | None = None,
        run_tools: bool = True,
        **params: Any,  # noqa: ANN401 - any parameter of the service
    ) -> pd.Series | pd.DataFrame:
        r"""Return one reply for each row.

        Args:
            template: The prompt; `{{name}}` is a column, `{{value}}` the value of a
                Series, `\{{name}}` is plain text.
            model: One model id; the session's model if None.
            system: The system message; a template too.
            expand: Whether to return the columns `EXPANDED` instead of only the texts.
            name: A name for the run. With it, only rows without a reply are sent, also
                after a restart. Without a name, every call sends all rows.
            retry: Send failed rows of this name again, except those that the service
                refused as invalid (400).
            reuse: Whether the ledger may answer; None follows SVC_REUSE.
            confirm_above: Ask you before sending more requests than this.
            run_tools: False leaves calls of the functions in `tools` to you.
            **params: Parameters of the service, one value each. If `max_tokens` is left
                out, it is not sent, and 150 applies; `fit` uses what each prompt
                leaves.

        Returns:
            The texts as a Series of dtype `string` with the frame's index. The texts of
            failed rows are missing, with a warning; another warning says how many
            were cut. With `expand`, a DataFrame with the same index and the columns
            `EXPANDED`.

        Raises:
            ParameterError: A column does not exist, has gaps or has values that are
                not text, or a parameter is not allowed; nothing was sent.
            SvcError: No further request could succeed; see `Run.run`.

        Example:
            >>> df["summary"] = df.svc.complete("Summarise: {{text}}")
        """
        if not isinstance(template, str):
            raise ParameterError(
                f"template is {type(template).__name__}; give a text such as "
                "'Summarise: {{text}}'.",
                param="prompt",
            )
        check_flag("expand", expand)
        check_flag("retry", retry)
        check_params(params, own=[*(FrameAccessor.complete.__kwdefaults__ or ())])
        run = plan_run(
            current(),
            template,
            rows=read_rows(self._frame, called=self._called),
            model=model,
            system=system,
            name=name,
            confirm_above=confirm_above,
            reuse=reuse,
            origin="frame",
            run_tools=run_tools,
            **params,
        )
        replies = _replies_of(run, self._frame, called=self._called, is_retried=retry)
        aligned = replies.set_axis(self._frame.index, axis="index")
        return aligned[list(EXPANDED)] if expand else aligned["text"]


for _kind in (pd.DataFrame, pd.Series):
    if "svc" in vars(_kind):  # that of the package, which would load this module again
        delattr(_kind, "svc")
pd.api.extensions.register_dataframe_accessor("svc")(FrameAccessor)
pd.api.extensions.register_series_accessor("svc")(FrameAccessor)


def _replies_of(
    run: Run, frame: pd.DataFrame, *, called: str, is_retried: bool
) -> pd.DataFrame:
    n_choices = int(run.grid[0].request.params.get("n", 1)) if len(run) else 1
    if len(run) != len(frame) or n_choices != 1:
        raise ParameterError(
            f"{called}.svc.complete returns one reply for each row; give each "
            "parameter one value, and n=1. For several, use svc.sweep(..., rows=df)."
        )
    (run.retry if is_retried else run.run)()
    replies = run.replies_df()
    warn_user = partial(warn, category=UserWarning)
    bad = replies[replies["status"] != "ok"]
    if len(bad):
        reasons = "".join(f"\n  {reason}" for reason in run.reasons)
        warn_user(
            f"{len(bad):,} of {len(replies):,} rows have no reply:{reasons}\n"
            "expand=True shows the errors. With a name, retry=True sends failed rows "
            "again, except those refused as invalid (400)."
        )
    if cut_note := run.cut_note:
        warn_user(cut_note)
    if n_called := int((replies["n_tool_calls"].fillna(0) > 0).sum()):
        warn_user(
            f"{n_called:,} of {len(replies):,} rows called tools that were not run: "
            "expand=True shows the calls. Functions are run unless run_tools=False."
        )
    return replies

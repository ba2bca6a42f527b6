"""A line with several values (`-t 0,1`, `--repeats`): replies side by side."""

from typing import TYPE_CHECKING

from svc_notebook.errors import CutError, ParameterError
from svc_notebook.exchange import is_cut
from svc_notebook.session import Session

from .cell_context import CellContext
from .cell_request import CellPrompt, to_prompt
from .options import SvcOptions

if TYPE_CHECKING:
    from svc_notebook import Run  # loads only for several replies


def ask_several(context: CellContext, options: SvcOptions, text: str) -> object:
    """Send every combination of the values, and show the replies side by side."""
    from svc_notebook.sweeps.side_by_side import run_side_by_side  # noqa: PLC0415 - at first use

    _check_options(options)
    prompt = to_prompt(context, options, text)
    run = _to_run(context.session, options, prompt)
    context.say_above(is_dry=options.is_dry)
    if options.is_dry:
        return context.show(run, options.output)
    context.put(options.output, run)
    context.is_sending = True
    note = " · ".join(prompt.notes)
    run_side_by_side(run, mode=context.mode, is_streamed=options.is_streamed, note=note)
    if options.is_strict:
        _refuse_cut_replies(run)
    return None


def _check_options(options: SvcOptions) -> None:
    """Refuse options that only make sense for one reply."""
    layout = options.layout if options.layout != "markdown" else None
    for flag, value, param, meaning in (
        ("-c", options.conversation, "conversation", "continues one conversation"),
        ("--format", layout, "format", "draws one reply"),
        ("--tools", ",".join(options.tools or ()), "tools", "runs tools for one reply"),
    ):
        if value:
            raise ParameterError(
                f"{flag} {value} {meaning}, but this line asks for several replies. "
                f"Leave {flag} out, or give one value each.",
                param=param,
            )


def _to_run(session: Session, options: SvcOptions, prompt: CellPrompt) -> "Run":
    """Plan the requests of a line with several values; nothing is sent."""
    from svc_notebook.sweeps.run import plan_run  # noqa: PLC0415 - at first use

    return plan_run(
        session,
        prompt.text,
        model=[model.strip() for model in prompt.model.split(",")],
        system=prompt.system or None,
        repeats=options.repeats,
        raw=True,
        reuse=options.is_reused,
        origin="magic",
        max_tokens=prompt.max_tokens,
        **prompt.params,
    )


def _refuse_cut_replies(run: "Run") -> None:
    """Raise if replies were cut; all replies are shown and kept already."""
    n_cut = sum(
        reply.exchange is not None
        and reply.choice is not None
        and is_cut(reply.exchange, reply.choice)
        for reply in run.replies()
    )
    if n_cut:
        raise CutError(
            f"{n_cut:,} of the replies were cut and --strict asks for whole ones. Give "
            "them more room with --max-tokens, or ask for less."
        )

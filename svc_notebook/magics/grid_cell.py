"""Several values on one line: the same cell asked for every combination.

Rules: the machinery is the sweep's; the line only says which lists there are; the
variables are put in once, before.
"""

from svc_notebook.errors import CutError, ParameterError
from svc_notebook.service.message import to_messages
from svc_notebook.session import Session
from svc_notebook.sweeps.plan import plan
from svc_notebook.sweeps.run import Run
from svc_notebook.tokens import estimate_prompt_tokens, in_force

from .options import SvcOptions
from .prompt import Wanted


def is_several(options: SvcOptions) -> bool:
    """Say whether a line asks for more than one combination."""
    has_list = any(isinstance(value, list) for value in options.params.values())
    return has_list or options.repeats > 1 or "," in (options.model or "")


def to_run(session: Session, options: SvcOptions, wanted: Wanted) -> Run:
    """Plan what a line with several values asks for; nothing is sent.

    Raises:
        ParameterError: A combination is not allowed, or a conversation is to go on
            in several ways.
    """
    if options.conversation:
        raise ParameterError(
            f"-c {options.conversation} continues one conversation and cannot take "
            "several answers. Leave -c out, or give one value each.",
            param="conversation",
        )
    messages = to_messages(wanted.text, system=wanted.system or None)
    max_tokens = in_force(wanted.max_tokens, estimate_prompt_tokens(messages))
    return plan(
        session,
        wanted.text,
        model=[each.strip() for each in wanted.model.split(",")],
        system=wanted.system or None,
        repeats=options.repeats,
        raw=True,
        reuse=options.is_reused,
        origin="magic",
        varied={**wanted.params, "max_tokens": max_tokens},
    )


def check_one_answer(options: SvcOptions) -> None:
    """Refuse what has a meaning for one answer only.

    Raises:
        ParameterError: Such an option is on the line.
    """
    if options.layout not in {None, "markdown"}:
        raise ParameterError(
            f"--format {options.layout} draws one answer, and this line asks for "
            "several. Leave --format out, or give one value each.",
            param="format",
        )
    if options.tools:
        raise ParameterError(
            "--tools runs rounds for one answer, and this line asks for several. Leave "
            "--tools out, or give one value each.",
            param="tools",
        )


def check_whole(run: Run) -> None:
    """Refuse cut replies.

    Raises:
        CutError: At least one was cut; all are shown and kept.
    """
    n_cut = sum(
        reply.exchange is not None
        and reply.choice is not None
        and reply.exchange.is_cut(reply.choice)
        for reply in run.replies()
    )
    if n_cut:
        raise CutError(
            f"{n_cut} of the replies were cut and --strict asks for whole ones. Give "
            "them more room with --max-tokens, or ask for less (doc: Limits)."
        )

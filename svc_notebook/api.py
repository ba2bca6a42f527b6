"""The package's functions, such as `complete`; each uses this kernel's session."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from svc_notebook.client.exchange_record import Answerer
from svc_notebook.client.request_pipeline import print_wait, to_request
from svc_notebook.client.sync_client import CompletionStream
from svc_notebook.completion import Completion
from svc_notebook.conversations.conversation import Conversation
from svc_notebook.display.front_end import write_note
from svc_notebook.endpoints import Endpoint
from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.params import OtherParams, check_flag, with_params
from svc_notebook.service.request import CompletionRequest, Prompt
from svc_notebook.session import Context, current, take_tools
from svc_notebook.sweeps.run import Run
from svc_notebook.tokens import FIT, MaxTokens, refitted, with_max_tokens
from svc_notebook.tools.rounds import ToolParams
from svc_notebook.tools.toolbox import to_offer
from svc_notebook.tools.typed_answer import MAX_TRIES, asking_for, to_form
from svc_notebook.tools.typed_answer import extract as extract_with

Value = TypeVar("Value")


@with_params
def complete(
    prompt: Prompt | CompletionRequest,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: MaxTokens = "fit",
    reuse: bool | None = None,
    run_tools: bool = True,
    **params: Unpack[ToolParams],
) -> Completion:
    """Ask for a reply in one piece (doc: POST /v1/chat/completions).

    Functions in `tools` that the model calls are run, and their results are sent back,
    until the model answers. The returned completion has the calls in `tool_runs`.

    Args:
        prompt: A text; messages, as `Message` or mappings; or a `CompletionRequest`.
        model: Id of the model; the session's model if None (see `use`).
        system: A text that is sent first, as a system message.
        max_tokens: A number; `fit` for what the prompt leaves of 8192; or `service` or
            None for the service's default of 150.
        reuse: Whether the ledger may answer; None follows SVC_REUSE.
        run_tools: False leaves calls to you: see `tool_calls` and `messages`.
        tools: Functions, `svc.tool`s, a `Toolbox` or definitions.
        extra: Fields that the document does not show.
        confirm: True asks before every call, False never, None before calls of tools
            made with `confirm=True`; or a function that decides on each call.
        max_rounds: Most requests, at least 2 (default 8); the last offers no tools.
        tool_timeout_s: Seconds for a call of a tool without its own limit (default 60).
        total_s: Seconds for all rounds (default 600), without waits for your consent.
        **params: Other parameters, by the document's names; None is not sent.

    Raises:
        SvcError: `AskError` if nothing was sent; the others are in `svc.errors`.

    Example:
        >>> svc.complete("Say hello.", max_tokens=20).text
        'Hello!'
    """
    check_flag("run_tools", run_tools)
    context = current().context()
    send = partial(context.ask, answers=_answers(context, reuse=reuse))
    arguments: dict[str, Any] = {"model": model, "system": system, **params}
    tool_runner = take_tools(arguments, run_tools=run_tools, context=context)
    request = _request(context, prompt, max_tokens, arguments)
    if tool_runner is None:
        return send(request, Origin())
    return tool_runner(request, Origin(), send)


def _request(
    context: Context,
    prompt: Prompt | CompletionRequest,
    max_tokens: MaxTokens,
    arguments: Mapping[str, Any],
) -> CompletionRequest:
    is_whole = isinstance(prompt, CompletionRequest)  # it has its own parameters
    if is_whole:
        arguments = {
            **arguments,
            "max_tokens": None if max_tokens == FIT else max_tokens,
        }
    settings = context.settings
    request = to_request(
        prompt,
        default_model=settings.model,
        arguments=arguments,
        info_of=settings.endpoint.info_of,
    )
    return refitted(request) if is_whole else with_max_tokens(request, max_tokens)


def _answers(context: Context, *, reuse: bool | None) -> Answerer | None:
    return context.reused if context.is_reusing(reuse) else None


@with_params
def extract(
    type_: type[Value],
    prompt: Prompt | CompletionRequest,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: MaxTokens = "fit",
    max_tries: int = MAX_TRIES,
    **params: Unpack[OtherParams],
) -> Value:
    """Extract a value of a type from a text (doc: Tool-calling flow).

    The type is offered as the only tool, and a sentence at the end of the prompt asks
    the model to call it. A value that does not fit is sent back with the reasons. Each
    try is an exchange; with SVC_REUSE, the ledger may answer.

    Args:
        type_: A dataclass, a TypedDict or a pydantic model; `list[Invoice]` extracts
            all invoices in the text. `Literal["good", "bad"]`, or an Enum, extracts
            one of these labels: from the call, or, as in a sweep, from a text that has
            one label as a whole word.
        prompt: A text, messages or a `CompletionRequest`, as in `complete`.
        model: Id of the model; the session's model if None (see `use`).
        system: A text that is sent first, as a system message.
        max_tokens: A number, `fit`, or `service` or None to send none.
        max_tries: Most requests, at least 1.
        **params: Parameters by the document's names, without `tools` and `n`.

    Returns:
        An object of the type.

    Raises:
        ToolSchemaError: The type cannot be described.
        CutError: A reply was cut before the value was complete.
        ToolCallError: No value fitted; `partial` is the last completion.
        SvcError: A request failed, as with `complete`.

    Example:
        >>> svc.extract(Invoice, "Invoice 7, 120 EUR")
        Invoice(number=7, total=120.0)
    """
    for name in ("tools", "n"):
        if params.pop(name, None) is not None:  # type: ignore[misc]  # names above
            raise ParameterError(
                f"extract has no argument {name}: it offers one tool and reads one "
                f"choice. Leave {name} out.",
                param=name,
            )
    from svc_notebook.analysis.read_answers import label_reader  # noqa: PLC0415 - rare

    form = to_form(type_, read_label=label_reader(type_))
    session = current()
    context = session.context()
    arguments = {"model": model, "system": system, **params}
    request = _request(context, prompt, max_tokens, arguments)
    return extract_with(
        form,
        asking_for(form, request),
        Origin(),
        send=partial(context.ask, answers=_answers(context, reuse=None)),
        max_tries=max_tries,
        keep=session.tool_record,
    )


@with_params
def stream(
    prompt: Prompt | CompletionRequest,
    *,
    model: str | None = None,
    system: str | None = None,
    max_tokens: MaxTokens = "fit",
    reuse: bool | None = None,
    **params: Unpack[OtherParams],
) -> CompletionStream:
    """Ask for a reply that arrives while it is generated (doc: Response, streamed).

    Args:
        prompt: A text, messages or a `CompletionRequest`, as in `complete`.
        model: Id of the model; the session's model if None (see `use`).
        system: A text that is sent first, as a system message.
        max_tokens: A number, `fit`, or `service` or None to send none.
        reuse: Whether the ledger may answer, as in `complete`.
        **params: Parameters by the document's names, checked against its ranges; a
            parameter that is left out is not sent. Calls of `tools` are not run: the
            stream's `completion` has them.

    Returns:
        A stream: iterate it for pieces of text, then read `.completion`. Its usage is
        estimated, since streams do not report it.

    Raises:
        AskError: Something is not allowed; nothing was sent.
        ConfigError: The API key or the base address is missing.

    Example:
        >>> for text in svc.stream("Tell a story."):
        ...     print(text, end="")
        Once upon a time.
    """
    context = current().context()
    answers = _answers(context, reuse=reuse)
    offer = to_offer(params.pop("tools", None), run_tools=False)
    arguments = {"model": model, "system": system, "tools": offer.definitions, **params}
    request = _request(context, prompt, max_tokens, arguments)
    return context.client.stream(request, watch=print_wait, answers=answers)


def conversation(
    name: str, *, system: str | None = None, messages: object = None
) -> Conversation:
    """Return the conversation of this name; `%%svc -c NAME` continues the same one.

    Args:
        name: Up to 100 printable characters; a new name begins a new conversation.
        system: The system message of every request from now on; None changes nothing.
        messages: Turns to begin with, such as examples: messages as in `complete`; a
            frame of `to_df()` or of replies, or its file (.jsonl, .parquet) written
            by `export`; or a .json file of `to_json()`. The next turn records them.

    Returns:
        The conversation; the same object for the same name. If the ledger has earlier
        turns of that name, a warning says so; `restore` brings them back. A cell with
        `-c NAME` restores them, as the panel does.

    Raises:
        ParameterError: The name is not allowed, the messages are not turns
            (doc: Tool-calling flow), or the conversation has other turns.

    Example:
        >>> svc.conversation("plan").ask("Where to begin?").text
        'With the map.'
    """
    conversation_ = current().conversations.named(name)
    conversation_.warn_of_older()
    if messages is not None:
        conversation_.begin(messages)
    if system is not None:
        conversation_.system = system
    return conversation_


def last() -> Completion | None:
    """Return this kernel's newest completion, even a partial one, or None.

    Example:
        >>> completion = svc.complete("Say hello.")
        >>> svc.last().text
        'Hello!'
    """
    return current().context().last()


if TYPE_CHECKING:  # importing the package must not load pandas
    import pandas as pd

    from svc_notebook.ledger.reply_columns import Column


def replies_df(  # noqa: PLR0913 - each argument is a filter
    columns: Literal["narrow"] | Sequence[str] | None = None,
    *,
    scope: Literal["session", "all"] = "session",
    since: date | str | None = None,
    conversation: str | Sequence[str] | None = None,
    run: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    texts: bool = True,
) -> "pd.DataFrame":
    """List the replies in the ledger.

    Args:
        columns: `narrow` leaves out columns that are empty, or the same in all rows,
            and details such as ids, estimates and waits; or the names of columns; all
            of them if None.
        scope: `session` for the requests of this kernel, `all` for the whole ledger.
        since: Only exchanges started at or after this instant or day; text is ISO
            8601, or how long ago, such as `30d`.
        conversation: Only this conversation, or any of several.
        run: Only this run of a sweep, or any of several.
        model: Only this model, or any of several.
        texts: False leaves out system, prompt, text, tool calls and template columns;
            a large ledger is read faster without them.

    Returns:
        One row for each choice, in the order in which replies ended. The order of the
        columns is fixed: columns of a sweep's rows, request, reply with answer and
        scores, numbers, ids. `describe` says what each column means. Numbers of a
        request are only on the row of its first choice, so that sums are right. dtypes
        are fixed, also without rows.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter has a value that cannot match.

    Example:
        >>> replies = svc.replies_df(scope="all", since="2026-01-31")
    """
    from svc_notebook.analysis.read_answers import with_kept_answers  # noqa: PLC0415
    from svc_notebook.ledger.reply_frames import replies_df as frame  # noqa: PLC0415
    from svc_notebook.ledger.reply_frames import select_columns  # noqa: PLC0415 - pandas

    check_flag("texts", texts)
    context = current().context()
    replies = frame(
        context.ledger,
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        texts=texts,
        prices=context.prices,
        joined=partial(_with_rows, context.settings.endpoint),
        answers=with_kept_answers,
    )
    return select_columns(replies, columns)


def usage_df(  # noqa: PLR0913 - each argument is a filter
    *,
    by: str | Sequence[str] = ("model",),
    scope: Literal["session", "all"] = "session",
    since: date | str | None = None,
    conversation: str | Sequence[str] | None = None,
    run: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    include_emulated: bool = False,
    include_reused: bool = False,
    priced_as: str | None = None,
) -> "pd.DataFrame":
    """Sum up requests, tokens, waits and costs in the ledger.

    Args:
        by: Columns of `replies_df` to group by, also columns of a sweep's rows.
        scope: `session` for the requests of this kernel, `all` for the whole ledger.
        since: Only exchanges started at or after this instant or day; text is ISO
            8601, how long ago, such as `30d`, or `today`.
        conversation: Only this conversation, or any of several.
        run: Only this run of a sweep, or any of several.
        model: Only this model, or any of several.
        include_emulated: Count answers of the emulator, too. They were free; their
            costs are what the service would charge for the same tokens.
        include_reused: Count answers that were read from the ledger, too.
        priced_as: Use the price of this model for all tokens. The model itself would
            have needed other numbers of tokens for the same questions; `replay` asks
            it.

    Returns:
        One row for each group: `n_requests` counts all requests with their retries,
        `n_exchanges` counts the questions. Tokens and `cost` are those of all of them:
        reported, or estimated where the service reported none, as for streamed replies.
        The `estimated_…` columns say which part is estimated, and its interval. Costs
        are computed with your price table (SVC_PRICES); a cost is missing if any part
        of it has no price. Notes say how many exchanges are left out, and how
        many have no price.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter cannot match, or `by` has a column that cannot be used.

    Example:
        >>> today = svc.usage_df(by=["model", "run"], scope="all", since="today")
    """
    from svc_notebook.ledger.usage import say_left_out, say_unpriced  # noqa: PLC0415
    from svc_notebook.ledger.usage import usage_df as frame  # noqa: PLC0415

    check_flag("include_emulated", include_emulated)
    check_flag("include_reused", include_reused)
    context = current().context()
    usage = frame(
        context.ledger,
        by=by,
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        include_emulated=include_emulated,
        include_reused=include_reused,
        prices=context.prices,
        priced_as=priced_as,
        joined=partial(_with_rows, context.settings.endpoint),
    )
    say_unpriced(usage, say=write_note)
    if not include_emulated:
        hint = "; include_emulated=True counts the emulator's"
        return say_left_out(usage, hint=hint, say=write_note)
    return usage


def _with_rows(
    endpoint: Endpoint, ledger: Ledger, exchanges: Iterable[Exchange]
) -> Iterable[Exchange]:
    """Add the columns of a sweep's rows to its exchanges, if there are any runs."""
    if not ledger.plans(is_whole=False):
        return exchanges
    from svc_notebook.sweeps.stored_runs import with_rows  # noqa: PLC0415

    return with_rows(endpoint, ledger, exchanges)


def runs_df(
    *, scope: Literal["session", "all"] = "all", since: date | str | None = None
) -> "pd.DataFrame":
    """List the runs of sweeps in the ledger.

    Args:
        scope: `all` for the whole ledger, `session` for the requests of this kernel.
        since: Only requests sent at or after this instant or day; text is ISO 8601.

    Returns:
        One row for each run, oldest first: name, times, number of requests and how they
        ended, models, address and cost. dtypes are fixed.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter has a value that cannot match.

    Example:
        >>> runs = svc.runs_df(since="2026-01-31")
    """
    from svc_notebook.sweeps.stored_runs import runs_df as frame  # noqa: PLC0415

    session = current()
    return frame(
        session.ledger, scope=scope, since=since, prices=session.context().prices
    )


def run(
    name: str, *, confirm_above: int | None = None, reuse: bool | None = None
) -> Run:
    """Return a run from the ledger as it was planned, also after a restart.

    Args:
        name: The name of the run, or its id if it has no name: see the column `run`.
        confirm_above: Ask before sending more requests than this; never if None.
        reuse: Whether the ledger may answer identical requests; None follows SVC_REUSE.

    Returns:
        The run, with its plan, rows and replies; `run()` sends what is missing.

    Raises:
        ParameterError: The ledger has no such run, or does not have its plan.
        LedgerError: The ledger cannot be read.

    Example:
        >>> summary = svc.run("labels").summary_df()
    """
    from svc_notebook.sweeps.stored_runs import stored_run  # noqa: PLC0415

    return stored_run(current(), name, confirm_above=confirm_above, reuse=reuse)


def tool_calls_df(
    *,
    scope: Literal["session", "all"] = "session",
    since: date | str | None = None,
    conversation: str | Sequence[str] | None = None,
    run: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    name: str | Sequence[str] | None = None,
) -> "pd.DataFrame":
    """List the tool calls in the ledger that this package handled.

    Args:
        scope: `session` for the requests of this kernel, `all` for the whole ledger.
        since: Only calls of exchanges started at or after this instant; text is
            ISO 8601.
        conversation: Only this conversation, or any of several.
        run: Only this run of a sweep, or any of several.
        model: Only this model, or any of several.
        name: Only this tool, or any of several.

    Returns:
        One row for each call, also for refused or denied calls, in the order in which
        they were run: arguments, result, error, seconds. `arguments` are those that
        the tool ran with, missing if it did not run; `asked_arguments` are what the
        model asked for. dtypes are fixed.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter has a value that cannot match.

    Example:
        >>> calls = svc.tool_calls_df(name="cups_sold")
    """
    from svc_notebook.ledger.reply_frames import tool_calls_df as frame  # noqa: PLC0415

    return frame(
        current().ledger,
        scope=scope,
        since=since,
        conversation=conversation,
        run=run,
        model=model,
        name=name,
    )


def conversations_df(search: str = "") -> "pd.DataFrame":
    """List the conversations in the ledger, also those of other kernels.

    Args:
        search: Only conversations whose name, prompts or replies contain this text;
            upper and lower case letters from a to z are the same.

    Returns:
        One row for each conversation, the newest first: its name, turns, models, when
        it was last asked, and the beginning of the newest prompt.
        `svc.conversation(NAME).restore()` brings its turns back.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: `search` is not a text.

    Example:
        >>> found = svc.conversations_df("picnic")
    """
    from svc_notebook.conversations.conversation_list import (  # noqa: PLC0415
        CONVERSATIONS,
        read_list,
    )
    from svc_notebook.ledger.reply_frames import to_frame  # noqa: PLC0415

    return to_frame(read_list(current().ledger, search)[0], CONVERSATIONS)


def export_answers(
    path: str | Path, *, scope: Literal["session", "all"] = "session"
) -> int:
    """Write the successful answers in the ledger to a file that can replay them.

    With SVC_ANSWERS set to the file, a notebook needs neither key nor network. The file
    has requests and answers, but nothing about who asked. Repeated requests get their
    answers in the same order, and each trial of a run gets its own. So restart the
    kernel and run the notebook once before you export.

    Args:
        path: The file. An existing file is replaced; the file in SVC_ANSWERS only if no
            answer is lost.
        scope: `session` for the requests of this kernel, `all` for the whole ledger.

    Returns:
        The number of answers written; a cell shows a sentence about it.

    Raises:
        ParameterError: The file cannot be written, or answers would be lost.
        LedgerError: The ledger cannot be read.

    Example:
        >>> n_answers = svc.export_answers("answers.jsonl")
    """
    from svc_notebook.ledger.recordings import export_answers as write  # noqa: PLC0415

    session = current()
    exchanges = session.ledger.read(scope=scope)
    return write(path, exchanges, in_use=session.settings.answers)


def describe(df: "pd.DataFrame") -> "pd.DataFrame":
    """Say what the columns of a frame mean, such as replies, usage or tool calls.

    Args:
        df: A frame of this package, such as `replies_df()` or `run.summary_df()`.

    Returns:
        One row for each column, in its order: name, dtype, unit, meaning.

    Raises:
        ParameterError: `df` is not a DataFrame.

    Example:
        >>> meanings = svc.describe(run.replies_df())
    """
    from svc_notebook.ledger.column_meanings import (  # noqa: PLC0415 - pandas
        describe as frame,
    )

    return frame(df, frame_columns().values())


def frame_columns() -> "dict[str, tuple[Column, ...]]":
    """Return the columns of each kind of frame, by the function that returns it."""
    from svc_notebook.analysis.agreement import AGREEMENT, REPEATS  # noqa: PLC0415
    from svc_notebook.analysis.confusion import CONFUSION  # noqa: PLC0415
    from svc_notebook.analysis.contrast import CONTRAST  # noqa: PLC0415 - pandas
    from svc_notebook.analysis.judge_agreement import JUDGE_AGREEMENT  # noqa: PLC0415
    from svc_notebook.analysis.judge_probes import PROBES  # noqa: PLC0415 - pandas
    from svc_notebook.analysis.note_categories import CATEGORIES  # noqa: PLC0415
    from svc_notebook.analysis.rated import RATINGS  # noqa: PLC0415
    from svc_notebook.analysis.summary import SUMMARY  # noqa: PLC0415
    from svc_notebook.analysis.verdicts import JUDGEMENTS  # noqa: PLC0415 - pandas
    from svc_notebook.conversations.conversation_list import CONVERSATIONS  # noqa: PLC0415
    from svc_notebook.conversations.messages_frame import MESSAGES  # noqa: PLC0415
    from svc_notebook.ledger.column_meanings import MEANINGS  # noqa: PLC0415
    from svc_notebook.ledger.reply_columns import REPLIES  # noqa: PLC0415
    from svc_notebook.ledger.tool_calls import TOOL_CALLS  # noqa: PLC0415
    from svc_notebook.ledger.usage import USAGE  # noqa: PLC0415
    from svc_notebook.sweeps.replay import DATASET  # noqa: PLC0415
    from svc_notebook.sweeps.stored_runs import RUNS  # noqa: PLC0415

    return {
        "replies_df": REPLIES,
        "usage_df": USAGE,
        "summary_df": SUMMARY,
        "contrast_df": CONTRAST,
        "agreement": JUDGE_AGREEMENT,
        "judgements_df": JUDGEMENTS,
        "Judge.probes_df": PROBES,
        "agreement_df": AGREEMENT,
        "repeats_df": REPEATS,
        "confusion_df": CONFUSION,
        "Run.ratings_df": RATINGS,
        "Run.categories": CATEGORIES,
        "tool_calls_df": TOOL_CALLS,
        "runs_df": RUNS,
        "conversations_df": CONVERSATIONS,
        "dataset": DATASET,
        "Conversation.to_df": MESSAGES,
        "describe": MEANINGS,
    }

"""The public verbs: ask, stream, converse, sweep; each one call of a part.

Rules: a verb is thin; it takes this kernel's session and hands on; what it means is
decided by the part. The names are public through the package alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from svc_notebook.chat.conversation import Conversation
from svc_notebook.client.signature import with_params
from svc_notebook.client.sync import CompletionStream
from svc_notebook.client.waiting import say
from svc_notebook.completion import Completion
from svc_notebook.service.message import Prompt
from svc_notebook.service.params import Params
from svc_notebook.service.request import check_model
from svc_notebook.session import current
from svc_notebook.sweeps.planning import plan
from svc_notebook.sweeps.run import Run


@with_params
def complete(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    reuse: bool = False,
    **params: Unpack[Params],
) -> Completion:
    """Ask for a reply in one piece (doc: POST /v1/chat/completions).

    Args:
        prompt: A text, which becomes one user message, or messages as `Message` or
            as mappings with role and content, oldest first.
        model: Id of the model; the session's model if None (see `use`).
        system: A text put in front as a system message.
        reuse: Give back the ledger's newest answer to this very request, marked with
            its date; ask only if there is none.
        **params: Parameters by the document's names, checked against its ranges; one
            that is left out is not sent, so the service's default applies (150
            tokens for max_tokens). `extra` sends fields the document does not show.

    Returns:
        The completion, with usage as the service reported it.

    Raises:
        AskError: Something is not allowed; nothing was sent.
        ConfigError: The API key or the base address is missing.
        ServiceError: The service refused or failed, after bounded tries.
        TransportError: No whole answer came; `partial` holds what had come.

    Example:
        >>> svc.complete("Say hello.", max_tokens=20).text  # doctest: +SKIP
    """
    session = current()
    model = model or session.settings.model
    return session.client.complete(
        prompt,
        model=model,
        system=system,
        watch=say,
        answers=session.reused if reuse else None,
        **params,
    )


@with_params
def stream(
    prompt: Prompt,
    *,
    model: str | None = None,
    system: str | None = None,
    reuse: bool = False,
    **params: Unpack[Params],
) -> CompletionStream:
    """Ask for a reply that comes as it is generated (doc: Response, streamed).

    Args:
        prompt: As for `complete`.
        model: As for `complete`.
        system: As for `complete`.
        reuse: As for `complete`.
        **params: As for `complete`.

    Returns:
        A stream: iterate it for pieces of text, then read `.completion`. Its usage is
        estimated, since streams report none.

    Raises:
        AskError: Something is not allowed; nothing was sent.
        ConfigError: The API key or the base address is missing.

    Example:
        >>> for text in svc.stream("Tell a story."):  # doctest: +SKIP
        ...     print(text, end="")
    """
    session = current()
    model = model or session.settings.model
    return session.client.stream(
        prompt,
        model=model,
        system=system,
        watch=say,
        answers=session.reused if reuse else None,
        **params,
    )


def conversation(name: str, *, system: str | None = None) -> Conversation:
    """Return the conversation of this name; `%%svc -c NAME` continues the same one.

    Args:
        name: A word without blanks; a new name begins a new conversation.
        system: Becomes the system message in front of every request; None leaves it.

    Raises:
        ParameterError: The name is empty or has blanks.

    Example:
        >>> svc.conversation("plan").ask("Where to begin?")  # doctest: +SKIP
    """
    found = current().conversations.named(name)
    if system is not None:
        found.system = system
    return found


def last() -> Completion | None:
    """Return the newest completion of this kernel, a partial one included.

    Returns:
        The completion; None if nothing was answered yet.
    """
    return current().last


def use(what: str) -> None:
    """Choose where requests go, or which model they name by default.

    Args:
        what: `emulator` starts an emulator of the service for this kernel; `service`
            goes to SVC_BASE_URL with SVC_API_KEY; anything else is a model id.

    Raises:
        ConfigError: The service's key or address is missing.
        ParameterError: It is no model id.
    """
    if what == "emulator":
        current().use_emulator()
    elif what == "service":
        current().use_service()
    else:
        current().use_model(check_model(what), source="use")


def sweep(  # noqa: PLR0913 - varied is described as one; what a sweep is made of
    prompt: object = None,
    *,
    model: str | Sequence[str] | None = None,
    system: str | Sequence[str | None] | None = None,
    rows: object = None,
    cells: object = None,
    tied: Sequence[str] | Sequence[Sequence[str]] = (),
    where: Callable[[Mapping[str, Any]], object] | None = None,
    repeats: int = 1,
    name: str | None = None,
    seed: int | None = None,
    confirm_above: int | None = None,
    raw: bool = False,
    extra: Mapping[str, Any] | None = None,
    **varied: Any,  # noqa: ANN401 - a value, or a list of values, of any parameter
) -> Run:
    r"""Plan a grid of requests: every combination of what is given as a list.

    Nothing is sent until `.run()` is called on the plan.

    Args:
        prompt: A text or messages, or a list of such. `{{name}}` is a column of the
            rows, `\{{name}}` the plain text.
        model: One model id, or a list; the session's model if None.
        system: One system text, or a list; None is no system message.
        rows: A DataFrame, a Series, a list of mappings or texts to fill prompts from.
        cells: Combinations that are no product: a DataFrame or a list of mappings.
        tied: Names whose lists go side by side instead of being multiplied.
        where: Whether to keep a combination, told by a mapping of its values.
        repeats: How many times each combination is asked.
        name: Name of the run; a run of this name goes on, also after a restart.
        seed: Of the order; made from the name if None, or at random without one.
        confirm_above: Ask before sending more requests than this; never if None.
        raw: Whether prompts are sent as they are, without templates.
        extra: Fields the document does not show, sent with every request.
        **varied: Any parameter of the service, as one value or a list of values.
            `stop` as a list of texts is one value; a list of lists varies it.

    Returns:
        The run: look at it for the plan, then `.run()` and `.replies_df()`.

    Raises:
        ParameterError: A combination is not allowed; it is named. Or a run of this
            name asked what this grid has not.
        LedgerError: A name was given and the ledger cannot be read.

    Example:
        >>> run = svc.sweep("Greet.", temperature=[0, 1])  # doctest: +SKIP
        >>> run.run().replies_df()  # doctest: +SKIP
    """
    return plan(
        current(),
        prompt,
        model=model,
        system=system,
        rows=rows,
        cells=cells,
        tied=tied,
        where=where,
        repeats=repeats,
        name=name,
        seed=seed,
        confirm_above=confirm_above,
        raw=raw,
        extra=extra,
        varied=varied,
    )

"""From the stream to the cell: one loop that the main thread runs.

Rules: an interrupt lands here, closes the connection and keeps what had come; the
final form is drawn once, also when it failed.
"""

from collections.abc import Callable

from svc_notebook.client.sync import CompletionStream
from svc_notebook.client.waiting import Waiting
from svc_notebook.completion import Completion
from svc_notebook.display.reply import Final
from svc_notebook.display.stream import Growing
from svc_notebook.errors import SvcError
from svc_notebook.service.chunk import Delta

from .edge import Interrupted

POLL_S = 0.05


def show(
    stream: CompletionStream,
    growing: Growing,
    *,
    draw: Callable[[Completion], Final] = Completion.final,
) -> Completion:
    """Show a reply as it comes, and once in its final form.

    Args:
        stream: Under way.
        growing: Where it is shown.
        draw: Makes the final form.

    Raises:
        Interrupted: The user stopped it; the partial reply is shown and marked.
        SvcError: It failed; what had come is shown and marked.
    """

    def settle(completion: object) -> None:
        has_text = isinstance(completion, Completion) and completion.choices
        growing.settle(draw(completion) if has_text else None)  # type: ignore[arg-type]  # just tested

    try:
        completion = follow(stream, growing)
    except Interrupted as stopped:
        settle(stopped.partial)
        raise
    except SvcError as error:
        settle(error.partial)
        raise
    settle(completion)
    return completion


def follow(
    stream: CompletionStream,
    growing: Growing,
    *,
    take: Callable[[Delta], None] | None = None,
) -> Completion:
    """Show a reply as it comes, and leave the final form to the caller.

    Args:
        stream: Under way.
        growing: Where it is shown.
        take: Shows a piece of the first choice; its text is shown if None.

    Raises:
        Interrupted: The user stopped it.
        SvcError: It failed.
    """
    try:
        while not stream.is_done:
            for item in stream.poll(POLL_S):
                if isinstance(item, Waiting):
                    growing.note(f"waiting {item.wait_s:.0f} s: {item.reason}")
                elif item.index == 0:
                    (take or _adding(growing))(item)
            growing.flush()
        completion = stream.completion
    except KeyboardInterrupt:
        raise Interrupted(stream.cancel()) from None
    return completion


def _adding(growing: Growing) -> Callable[[Delta], None]:
    return lambda delta: growing.add(delta.text or "")

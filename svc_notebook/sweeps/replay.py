"""Asks past questions again: `svc.dataset` lists them, `svc.replay` plans a run.

A question is a request from a cell, a panel or Python, with its whole history. The run
has the recorded replies, too: the ledger answers these requests, at no cost.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from random import Random
from typing import Any

import msgspec
import pandas as pd

from svc_notebook.display.front_end import write_note
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.cache import hash_request
from svc_notebook.ledger.exchange_rows import Scope
from svc_notebook.ledger.frame_interchange import to_pandas
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.reply_columns import Batch, Column
from svc_notebook.ledger.reply_frames import to_frame
from svc_notebook.service.params import check_int, did_you_mean, must_be
from svc_notebook.service.request import Message, build_request
from svc_notebook.session import Context, Session, current
from svc_notebook.tokens import with_max_tokens

from .run import Run, plan_run

_ASKED_BY = ("magic", "panel", "python")
_MODEL, _ID, _HISTORY = "asked_model", "asked_id", "history"
_SHOWN_NAMES = 4
Where = Callable[[Mapping[str, Any]], object]
"""Returns whether to keep a question, given its row of `dataset`."""


@dataclass(frozen=True, slots=True)
class PastQuestion:
    """An earlier exchange: a distinct request, with its reply."""

    exchange: Exchange

    @property
    def history(self) -> str:
        """The conversation of the exchange; if it has none, the id of the exchange."""
        return self.exchange.origin.conversation or self.exchange.exchange_id

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that were sent, as mappings."""
        return [_as_mapping(message) for message in self.exchange.request.messages]

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters of the request, as arguments of `sweep`."""
        request = self.exchange.request
        extra = {"extra": request.extra} if request.extra else {}
        return {**request.asked_params, **extra}


def _as_mapping(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content, **message.other}


def _as_json(read: Callable[[PastQuestion], object]) -> Callable[[Batch], list[str]]:
    return lambda batch: [msgspec.json.encode(read(row)).decode() for row in batch.rows]


DATASET = (
    Column(_HISTORY, "string", "history", "the conversation, else the exchange's id"),
    Column(
        "asked_at", "datetime64[us, UTC]", "exchange.started_at", "when it was asked"
    ),
    Column(_MODEL, "string", "exchange.request.model", "the model that was asked"),
    Column("system", "string", "exchange.request.system", "the system message"),
    Column("question", "string", "exchange.request.prompt", "the newest prompt"),
    Column("reply", "string", lambda batch: _replies(batch.rows), "the reply"),
    Column(
        "n_messages",
        "Int64",
        lambda batch: _sizes(batch.rows),
        "messages in the request",
    ),
    Column(
        "messages",
        "string",
        _as_json(lambda row: row.messages),
        "all messages, as JSON",
    ),
    Column(
        "params",
        "string",
        _as_json(lambda row: row.arguments),
        "parameters as asked, as JSON",
    ),
    Column(_ID, "string", "exchange.exchange_id", "id of the exchange"),
)
"""The columns of `dataset`."""


def _replies(rows: Iterable[PastQuestion]) -> list[str | None]:
    return [
        row.exchange.choices[0].text if row.exchange.choices else None for row in rows
    ]


def _sizes(rows: Iterable[PastQuestion]) -> list[int]:
    return [len(row.exchange.request.messages) for row in rows]


def dataset(
    *,
    since: date | str | None = None,
    scope: Scope = "all",
    conversation: str | Sequence[str] | None = None,
    model: str | Sequence[str] | None = None,
    where: Where | None = None,
) -> pd.DataFrame:
    """List the questions that you asked, as a test set: one row per distinct request.

    These are questions from cells, panels and Python to this address. A note
    says how many are left out: failed, emulated, forgotten, with tools, asked twice.

    Args:
        since: Only what was asked at or after this instant or day; text is ISO 8601, or
            how long ago, such as `30d`.
        scope: `all` for the whole ledger, `session` for what this kernel asked.
        conversation: Only this conversation, or any of several.
        model: Only what this model was asked, or any of several.
        where: A function of a row, a mapping of these columns, that says whether to
            keep it.

    Returns:
        One row for each question, the oldest first: conversation, time, model, system,
        question, reply, all messages and parameters as JSON. dtypes are fixed.

    Raises:
        LedgerError: The ledger cannot be read.
        ParameterError: A filter has a value that cannot match.

    Example:
        >>> questions = svc.dataset(since="30d")
    """
    reader = _QuestionReader(current().context())
    reader.read(scope=scope, since=since, conversation=conversation, model=model)
    frame = to_frame(_where_keeps(reader, where), DATASET)
    reader.say(count_in_words(len(frame), "questions"))
    return frame


def replay(  # noqa: PLR0913 - one argument for each filter
    rows: pd.DataFrame | None = None,
    *,
    model: str | Sequence[str],
    since: date | str | None = None,
    scope: Scope = "all",
    conversation: str | Sequence[str] | None = None,
    where: Where | None = None,
    max_requests: int | None = None,
    name: str | None = None,
    seed: int = 0,
    confirm_above: int | None = None,
    scores: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    in_flight: int | None = None,
) -> Run:
    """Plan to ask another model what you asked before; nothing is sent until `.run()`.

    Each question is sent with its whole history and its parameters, as it was then. The
    recorded replies are in the run, too, at no cost: the ledger answers them. Tools are
    never run again. A note says what is left out.

    Args:
        rows: Rows of `dataset()`, such as those that you picked; all if None.
        model: The model to ask, or several.
        since: Only what was asked at or after this instant or day; text is ISO 8601, or
            how long ago, such as `30d`.
        scope: `all` for the whole ledger, `session` for what this kernel asked.
        conversation: Only this conversation, or any of several.
        where: A function of a row of `dataset()` that says whether to keep it.
        max_requests: Most requests to send; of more, some are drawn at random.
        name: Name of the run, under which it continues after a restart.
        seed: The seed of the draw, and of the order of sending.
        confirm_above: Ask before sending more requests than this; never if None.
        scores: By name, functions that score each reply (see `Run.score`).
        limits: Lower limits for this run, as in `sweep`.
        in_flight: Most requests in flight for one model.

    Returns:
        A run. Its factor is the model; turns of one conversation are one unit.

    Raises:
        ParameterError: No question is left, or something is not allowed.
        LedgerError: The ledger cannot be read.

    Example:
        >>> reply = svc.complete("Say hello.", model="svc-v2-70b-instruct")
        >>> again = svc.replay(since="30d", model="svc-v2-8b-instruct").run()
        >>> table = again.compare(columns="model")
    """
    session = current()
    models = [model] if isinstance(model, str) else list(model)
    reader = _QuestionReader(session.context())
    reader.read(scope=scope, since=since, conversation=conversation, ids=_ids_of(rows))
    questions = _where_keeps(reader, where)
    questions = [row for row in questions if reader.can_ask(row, models)]
    questions = _draw(reader, questions, models, max_requests, seed)
    if not questions:
        raise ParameterError(
            f"No question is left to ask again{reader.reasons}. svc.dataset() lists "
            "what you asked.",
            param="rows",
        )
    reader.say(_summary_in_words(questions))
    return _plan_replay(
        session,
        questions,
        models,
        name=name,
        seed=seed,
        confirm_above=confirm_above,
        scores=scores,
        limits=limits,
        in_flight=in_flight,
    )


class _QuestionReader:
    """Reads the questions in a ledger, and counts why others are left out."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._left_out = Counter[str]()
        self._rows: dict[str, PastQuestion] = {}

    def __iter__(self) -> Iterator[PastQuestion]:
        return iter(self._rows.values())

    def leave_out(self, why: str) -> None:
        """Count a question that is left out, by the reason."""
        self._left_out[why] += 1

    def read(self, *, ids: frozenset[str] | None = None, **filters: Any) -> None:  # noqa: ANN401 - those of `Ledger.read`
        """Read the newest exchange of each distinct request."""
        ledger = self._context.ledger
        forgotten = _Forgotten(ledger)
        for exchange in ledger.read(origin=_ASKED_BY, **filters):
            if ids is not None and exchange.exchange_id not in ids:
                continue
            if why := self._why_not(exchange, forgotten):
                self.leave_out(why)
                continue
            request_hash = hash_request(exchange.request)
            if self._rows.pop(request_hash, None) is not None:
                self.leave_out("asked twice")
            self._rows[request_hash] = PastQuestion(exchange)

    def _why_not(self, exchange: Exchange, forgotten: "_Forgotten") -> str:
        """Return why an exchange is left out; "" if it is not."""
        request = exchange.request
        is_elsewhere = exchange.endpoint != self._context.settings.base_url
        has_tools = request.tools or any(
            message.tool_calls for message in request.messages
        )
        reasons = {
            "failed": exchange.status != "ok" or not exchange.choices,
            "emulated": exchange.is_emulated and is_elsewhere,
            "at another address": is_elsewhere,
            "forgotten": exchange in forgotten,
            "with tools": has_tools,
            "continued": exchange.origin.continues is not None,
        }
        return next((why for why, applies in reasons.items() if applies), "")

    def can_ask(self, row: PastQuestion, models: Sequence[str]) -> bool:
        """Return whether the models can be asked a question; count it if not."""
        request = row.exchange.request
        new = [model for model in models if model != request.model]
        if not new:
            self.leave_out("already asked of this model")
            return False
        try:
            again, *_ = [self._request(row, model) for model in (request.model, *new)]
        except SvcError:
            self.leave_out("too long for the model, or not allowed now")
            return False
        # a request that is not the same now would not be answered by the ledger
        if hash_request(again) != hash_request(request):
            self.leave_out("not asked in the same form now")
            return False
        return True

    def _request(self, row: PastQuestion, model: str) -> Any:  # noqa: ANN401 - a request
        arguments = row.arguments
        max_tokens = arguments.pop("max_tokens", None)
        info_of = self._context.settings.endpoint.info_of
        request = build_request(
            row.messages, model=model, params=arguments, info_of=info_of
        )
        return with_max_tokens(request, max_tokens)

    @property
    def reasons(self) -> str:
        """Why questions are left out, with counts; "" if none are."""
        counts = ", ".join(f"{n:,} {why}" for why, n in self._left_out.items())
        return f"; left out: {counts}" if counts else ""

    def say(self, first: str) -> None:
        """Write how many questions there are, and how many are left out."""
        write_note(f"{first}{self.reasons}.")


class _Forgotten:
    """The exchanges that a user deleted: turns, versions or whole conversations."""

    def __init__(self, ledger: Ledger) -> None:
        self._marks = ledger.marks()

    def __contains__(self, exchange: Exchange) -> bool:
        origin = exchange.origin
        if origin.turn_id is None:
            return False
        if origin.conversation is None:  # the conversation was deleted
            return True
        marks = self._marks.get((origin.conversation, origin.turn_id))
        if marks is None:
            return False
        return marks.is_deleted or exchange.exchange_id in marks.gone


def _ids_of(rows: object) -> frozenset[str] | None:
    if rows is None:
        return None
    rows = to_pandas(rows)
    if not isinstance(rows, pd.DataFrame):
        raise must_be("rows", "a frame of svc.dataset()", rows)
    if _ID not in rows.columns:
        raise ParameterError(
            f"rows has no column {_ID!r}, which says what was asked; give rows of "
            f"svc.dataset().{did_you_mean(_ID, [*map(str, rows.columns)])}",
            param="rows",
        )
    return frozenset(map(str, rows[_ID].dropna()))


def _where_keeps(reader: _QuestionReader, where: Where | None) -> list[PastQuestion]:
    """Return the questions that `where` keeps; count the others."""
    questions = list(reader)
    if where is None:
        return questions
    if not callable(where):
        raise must_be("where", "a function of a row of svc.dataset()", where)
    frame = to_frame(questions, DATASET)
    records: list[Any] = (
        frame.astype(object).where(frame.notna(), None).to_dict("records")
    )
    kept = []
    for question, record in zip(questions, records, strict=True):
        if where(record):
            kept.append(question)
        else:
            reader.leave_out("by where")
    return kept


def _draw(
    reader: _QuestionReader,
    questions: list[PastQuestion],
    models: Sequence[str],
    max_requests: int | None,
    seed: int,
) -> list[PastQuestion]:
    """Draw as many questions at random as may be sent, and keep their order."""
    if max_requests is None:
        return questions
    n_left = check_int("max_requests", max_requests, minimum=1)
    drawn = []
    for position in Random(seed).sample(range(len(questions)), len(questions)):  # noqa: S311 - no secret
        old_model = questions[position].exchange.request.model
        n_new = sum(model != old_model for model in models)
        if n_new <= n_left:
            n_left -= n_new
            drawn.append(position)
        else:
            reader.leave_out("not drawn (max_requests)")
    return [questions[position] for position in sorted(drawn)]


def _plan_replay(
    session: Session,
    questions: list[PastQuestion],
    models: Sequence[str],
    **more: Any,  # noqa: ANN401 - those of `sweep`
) -> Run:
    """Plan a run that sends each question to its old model and to the new ones."""
    frame = to_frame(questions, DATASET)[[_HISTORY, "asked_at", _MODEL, _ID]]
    names = dict.fromkeys(name for row in questions for name in row.arguments)
    varied: dict[str, Any] = {
        name: _by_row(name, [row.arguments for row in questions]) for name in names
    }
    old_models = [name for name in dict.fromkeys(frame[_MODEL]) if name not in models]
    return plan_run(
        session,
        [row.messages for row in questions],
        model=[*old_models, *models],
        rows=frame,
        tied=["prompt", "rows", *varied],
        where=lambda point: point["model"] in {*models, point[_MODEL]},
        unit=_HISTORY,
        raw=True,
        reuse=True,
        **varied,
        **more,
    )


def _by_row(name: str, arguments: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the value of a parameter for each question; None is not sent."""
    values = [of_question.get(name) for of_question in arguments]
    if name == "stop":  # one text would be read as a list of values
        return [[value] if isinstance(value, str) else value for value in values]
    return values


def _summary_in_words(questions: Sequence[PastQuestion]) -> str:
    names = Counter(
        row.exchange.origin.conversation
        for row in questions
        if row.exchange.origin.conversation
    )
    summary = f"{count_in_words(len(questions), 'questions')} will be asked again"
    if not names:
        return summary
    shown = ", ".join(f"{name} {n}" for name, n in names.most_common(_SHOWN_NAMES))
    n_more = len(names) - _SHOWN_NAMES
    rest = f" and {n_more} more" if n_more > 0 else ""
    return f"{summary}, by conversation: {shown}{rest}"

"""A typed answer to a prompt: the type is offered to the model as a tool to call.

No function is run. A call that does not fit the type is sent back with the error, a few
times. A reply that was cut within the call raises an error. A value that the model
writes as JSON text, without a call, is read too.
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypedDict, TypeVar, get_args, get_origin

import msgspec

from svc_notebook.client.request_pipeline import SendRequest
from svc_notebook.completion import Completion
from svc_notebook.errors import ToolCallError, ToolSchemaError
from svc_notebook.exchange import Origin
from svc_notebook.service.params import check_int, shorten
from svc_notebook.service.request import (
    CompletionRequest,
    FunctionCall,
    Message,
    ToolCall,
)
from svc_notebook.tokens import check_budget, refitted

from .call import ToolRun, check_whole, cut_error, failed_run, parse_arguments
from .rounds import RunSink, follow_on
from .signature import texts_of

Value = TypeVar("Value")
ReadLabel = Callable[[str], Any]
"""Takes a text and returns the label in it; raises ToolCallError if there is none."""
MAX_TRIES = 3
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_OBJECT = re.compile(r'\{\s*["}]|\[\s*\{')
_LIST = re.compile(r'\{\s*["}]|\[\s*["{\[\]\d-]')
_TITLE_CHARS = 60
_TEXT_CHARS = 200  # of the last reply, in an error
_ITEMS = "items"  # the field of the arguments that has a list
_LABEL = "label"  # the tool for one of a few labels, and the field that has it
_TAKEN = "Taken."
_UNUSED = "Only one call was asked for; this one was not used."


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(Generic[Value]):
    """A type as a tool, with the definition that is sent (doc: Tool definition)."""

    type_: type[Value]
    # of the call's arguments: `type_`, or a class with the field `field`
    sent_type: Any
    name: str
    definition: dict[str, Any]
    field: str = ""  # of the arguments, with the value; "" if they are the value
    title: str = ""  # the type as a person writes it
    read_label: ReadLabel | None = None  # reads a label in a text without JSON

    @property
    def is_list(self) -> bool:
        """Whether the value is a list; the arguments have it in the field `items`."""
        return self.field == _ITEMS

    @property
    def order(self) -> str:
        """The last sentence of the prompt, since the service cannot force a call."""
        return f"Answer by calling the tool {self.name} once, with nothing made up."


def _build(type_: type[Value], value: object) -> Value:
    from .schema import build  # noqa: PLC0415 - pydantic loads with the first type

    return build(type_, value)


def to_form(
    type_: type[Value], *, title: str = "", read_label: ReadLabel | None = None
) -> Form[Value]:
    """Make the tool definition for a type.

    `title` is the name of the type in messages. `read_label` reads a label in a text;
    it is used for a Literal and an Enum.
    """
    from .schema import schema_of  # noqa: PLC0415 - pydantic loads with the first type

    type_ = getattr(type_, "__value__", type_)  # of `type Label = ...`
    target: object = type_
    if not isinstance(target, type) and get_origin(target) is None:
        raise ToolSchemaError(
            f"This is a value of type {type(target).__name__}; extract takes a type: a "
            "dataclass, a TypedDict or a pydantic model, a list of one, or a Literal."
        )
    schema = schema_of(type_)
    name, description = _name(type_), texts_of(type_).description
    sent_type: Any = type_
    field = ""
    if get_origin(type_) is Literal or _is_enum(type_):
        field = name = _LABEL
        sent_type = TypedDict(name, {field: type_})  # type: ignore[misc, no-redef]  # made here
        schema = schema_of(sent_type)
    elif schema.get("type") == "array":  # arguments are an object (doc: Tool call)
        item = next(map(_name, get_args(type_)), "value")
        name, description = f"{item}_list", f"Take down every {item}."
        field = _ITEMS
        sent_type = TypedDict(name, {field: type_})  # type: ignore[misc, no-redef]  # made here
        schema = schema_of(sent_type)
    if schema.get("type") != "object" or "properties" not in schema:
        raise ToolSchemaError(
            f"{getattr(type_, '__name__', type_)} has no named fields. Give a "
            "dataclass, a TypedDict or a pydantic model, a list of one, or labels "
            "such as `Literal['good', 'bad']`."
        )
    description = description or f"Take down a {name}."
    function = {"name": name, "description": description, "parameters": schema}
    return Form(
        type_=type_,
        sent_type=sent_type,
        name=name,
        definition={"type": "function", "function": function},
        field=field,
        title=title or _title(type_),
        read_label=read_label if field == _LABEL else None,
    )


def _title(type_: object) -> str:
    if get_origin(type_) is Literal:
        return shorten(
            f"Literal[{', '.join(map(repr, get_args(type_)))}]", _TITLE_CHARS
        )
    if get_origin(type_) is list:
        return f"list[{', '.join(map(_title, get_args(type_)))}]"
    return str(getattr(type_, "__name__", type_))


def _is_enum(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, Enum)


def _name(type_: object) -> str:
    name = str(getattr(type_, "__name__", "value"))
    return name if name.isidentifier() else _NOT_IN_NAMES.sub("_", name)  # Page[int]


def extract(
    form: Form[Value],
    request: CompletionRequest,
    origin: Origin,
    *,
    send: SendRequest,
    max_tries: int = MAX_TRIES,
    keep: RunSink | None = None,
) -> Value:
    """Send the request of `asking_for`, until the model calls with a fitting value."""
    check_int("max_tries", max_tries, minimum=1)
    attempt = request
    before: Completion | None = None
    for _ in range(max_tries):
        attempt = refitted(attempt)
        check_budget(attempt)
        sent = send(attempt, follow_on(origin, before))
        completion = before = sent.following(before)
        check_whole(completion)
        runs = _read_calls(form, completion.tool_calls)
        for run in runs:
            if keep is not None:
                keep(completion.exchange, run)
        all_runs = runs or [_read_text(form, completion.text)]
        fitting_runs = [run for run in all_runs if run.error is None]
        if fitting_runs:
            return _build(form.type_, _joined(form, fitting_runs))
        if completion.is_cut:
            raise cut_error(completion, f"before it gave a whole {form.name}")
        reason = next(run.error for run in all_runs if run.error)
        correction = Message(role="user", content=f"{reason} {form.order}")
        answers = [run.message for run in runs] or [correction]
        messages = (*attempt.messages, completion.reply, *answers)
        attempt = msgspec.structs.replace(attempt, messages=messages)
    raise _no_value(form, completion, reason, n_tries=max_tries)


def read_value(form: Form[Value], calls: Sequence[ToolCall], text: str) -> Value:
    """Return the value in a reply: in its calls, or else in its text.

    Raises:
        ToolCallError: The reply has no value that fits.
    """
    runs = _read_calls(form, calls) or [_read_text(form, text)]
    fitting_runs = [run for run in runs if run.error is None]
    if not fitting_runs:
        has_nothing = not calls and not runs[0].arguments
        raise ToolCallError(
            f"The reply neither calls {form.name} nor has JSON."
            if has_nothing
            else next(run.error for run in runs if run.error)
        )
    return _build(form.type_, _joined(form, fitting_runs))


def asking_for(form: Form[Value], request: CompletionRequest) -> CompletionRequest:
    """Offer the tool, and request its call at the end of the newest user message."""
    return msgspec.structs.replace(
        request,
        messages=with_order(form, request.messages),
        tools=(form.definition,),
    )


def with_order(form: Form[Value], history: Sequence[Message]) -> tuple[Message, ...]:
    """Request the call at the end of the newest user message."""
    messages = list(history)
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    if users:
        index = users[-1]
        content = f"{messages[index].content}\n\n{form.order}"
        messages[index] = Message(role="user", content=content)
    else:
        messages.append(Message(role="user", content=form.order))
    return tuple(messages)


def _read_calls(form: Form[Value], calls: Sequence[ToolCall]) -> list[ToolRun]:
    """Check the calls of a reply; lists are joined, of other values one is used.

    If the calls contradict each other, none is used.
    """
    runs = [_read_call(form, call) for call in calls]
    fitting_runs = [run for run in runs if run.error is None]
    fault = _contradiction(form, runs, fitting_runs) if fitting_runs else ""
    unused = fitting_runs if fault else fitting_runs[1:] if not form.is_list else []
    reason = f"{fault} {form.order}" if fault else _UNUSED
    return [
        failed_run(call, reason) if run in unused else run
        for call, run in zip(calls, runs, strict=True)
    ]


def _contradiction(
    form: Form[Value], runs: list[ToolRun], fitting_runs: list[ToolRun]
) -> str:
    """Return why the calls of a reply cannot be used together; "" if they can."""
    if not form.is_list:
        is_same = all(run.value == fitting_runs[0].value for run in fitting_runs)
        return "" if is_same else "The calls gave different values."
    if any(run.error for run in runs if run.name == form.name):
        return "Another call of this reply did not fit."
    try:
        _build(form.type_, _joined(form, fitting_runs))
    except ToolCallError as problem:
        return str(problem)
    return ""


def _joined(form: Form[Value], fitting_runs: list[ToolRun]) -> object:
    """Return the value of the fitting calls; lists are joined."""
    if form.is_list:
        return [item for run in fitting_runs for item in run.value]
    return fitting_runs[0].value


def _read_call(form: Form[Value], call: ToolCall) -> ToolRun:
    if call.function.name != form.name:
        return failed_run(call, f"There is no such tool; call {form.name}.")
    text = call.function.arguments
    if form.is_list and text.lstrip().startswith("["):  # the list alone
        text = f'{{"{_ITEMS}": {text}}}'
    try:
        arguments = parse_arguments(
            text, schema=form.definition["function"]["parameters"]
        )
        _build(form.sent_type, arguments)
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    return ToolRun(
        call_id=call.id,
        name=form.name,
        arguments=arguments,
        asked_arguments=call.function.arguments,
        result=_TAKEN,
        value=arguments[form.field] if form.field else arguments,
    )


def _read_text(form: Form[Value], text: str) -> ToolRun:
    """Read the first JSON value in a text, plain or fenced, like a call.

    Without one, a label is read as in the answers of a sweep.
    """
    run = _read_json(form, text)
    if form.read_label is None or run.error is None:
        return run
    call = ToolCall(id="", function=FunctionCall(name=form.name, arguments=""))
    try:
        label = form.read_label(text)
        arguments = {_LABEL: label}
        _build(form.sent_type, arguments)
    except ToolCallError as problem:
        return failed_run(call, str(problem))
    return ToolRun(
        call_id="",
        name=form.name,
        arguments=arguments,
        asked_arguments=json.dumps(arguments),
        result=_TAKEN,
        value=label,
    )


def _read_json(form: Form[Value], text: str) -> ToolRun:
    fenced = _FENCED.search(text)
    text = (fenced[1] if fenced else text).strip()
    start = (_LIST if form.is_list else _OBJECT).search(text)
    text = text[start.start() :] if start else ""
    with suppress(ValueError, RecursionError):  # `_read_call` refuses what is not JSON
        text = text[: json.JSONDecoder().raw_decode(text)[1]]
    call = ToolCall(id="", function=FunctionCall(name=form.name, arguments=text))
    if text.startswith(("{", "[") if form.is_list else "{"):
        return _read_call(form, call)
    return failed_run(
        call,
        f"You did not call {form.name}. Its arguments as plain JSON are accepted, too.",
    )


def _no_value(
    form: Form[Value], completion: Completion, reason: str, *, n_tries: int
) -> ToolCallError:
    tries = "one try" if n_tries == 1 else f"{n_tries} tries"
    error = ToolCallError(
        f"The model gave no valid {form.title} in {tries}. The last error: {reason}",
        type_name=form.title,
    )
    text = completion.text and f", {shorten(repr(completion.text), _TEXT_CHARS)}"
    error.remedy = (
        f"svc.last() is the last reply{text}; `svc.tool_calls_df()` lists its calls. "
        "Add what is missing to the prompt, or allow more tries with max_tries."
    )
    error.partial = completion
    error.exchange_id = completion.exchange.exchange_id
    return error

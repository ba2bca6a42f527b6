"""`--as TYPE`: the reply as a value of a type that the notebook defines."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_origin

from IPython.lib.pretty import pretty

from svc_notebook.display.number_words import count_in_words
from svc_notebook.display.reply_display import Final, ReplyDisplay
from svc_notebook.errors import ParameterError, ToolCallError
from svc_notebook.exchange import Exchange
from svc_notebook.service.params import did_you_mean
from svc_notebook.tokens import check_budget, refitted
from svc_notebook.tools.call import ToolRun
from svc_notebook.tools.typed_answer import Form, asking_for, extract, to_form

from .cell_context import CellContext, HiddenResult
from .cell_reply import Result, RoundsCell, final_form, to_start
from .cell_request import CellPrompt, CellRequest, single_request, to_prompt
from .dry_run import dry_run
from .options import SvcOptions

_REMEDY = (
    "The replies are above; svc.last() is the last one. Add what is missing to the "
    "prompt, or ask another model with -m."
)
_NAMED = re.compile(r"(?P<list>list\[)?(?P<name>\w+)(?(list)\])")


def ask_for_value(context: CellContext, options: SvcOptions, text: str) -> object:
    """Ask for a value of a type, show it, and return it as the cell's value."""
    form = to_named_form(options.type_name or "", context.names())
    cell_request = value_request(options, to_prompt(context, options, text), form)
    if options.is_dry:
        return dry_run(context, options, cell_request)
    check_budget(cell_request.request)
    context.say_above()
    display = ReplyDisplay.open(
        context.mode, own_output=False, is_verbatim=True, is_late=True
    )
    draw = partial(final_form, options, cell_request, context)
    place = context.memory.places.here(display, draw, options.output)
    value = ValueCell(context, to_start(context, options), place).ask(
        form, cell_request
    )
    context.put(options.output, value)
    HiddenResult(context.shell, value)
    return value


def to_named_form(text: str, names: Mapping[str, object]) -> Form[Any]:
    """Find the type that `--as` names among the notebook's variables."""
    named = _NAMED.fullmatch(text.replace(" ", ""))
    name = named["name"] if named else text
    if named is None or name not in names:
        hint = did_you_mean(name, dict(known_types(names)))
        raise ParameterError(
            f"--as {text}: this notebook has no type of that name.{hint} Give the name "
            "of a dataclass, a TypedDict, a pydantic model, an Enum or a Literal, "
            "or list[NAME].",
            param="as",
        )
    type_: Any = names[name]
    type_ = list[type_] if named["list"] else type_
    from svc_notebook.analysis.read_answers import label_reader  # noqa: PLC0415 - rare

    return to_form(type_, title=text, read_label=label_reader(type_))


def known_types(names: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the names of types, each with the first line of its docstring, for Tab."""
    return tuple(
        (name, (getattr(value, "__doc__", "") or "").partition("\n")[0])
        for name, value in names.items()
        if not name.startswith("_")
        and (isinstance(value, type) or get_origin(value) is not None)
    )


def value_request(
    options: SvcOptions, prompt: CellPrompt, form: Form[Any]
) -> CellRequest:
    """Build the request for a value; refuse options that do not fit `--as`."""
    for flag, is_set, reason in (
        ("-c", options.conversation, "a value belongs to no conversation"),
        ("--tools", options.tools, "the type is the only tool that is offered"),
        ("--format", options.layout, "the value is shown as Python writes it"),
        ("-n", prompt.params.get("n", 1) != 1, "one reply gives the value"),
    ):
        if is_set:
            raise ParameterError(
                f"--as does not go with {flag}: {reason}. Leave one of them out.",
                param="as",
            )
    if options.is_several:
        raise _several_values(options)
    cell_request = single_request(prompt)
    return replace(
        cell_request, request=refitted(asking_for(form, cell_request.request))
    )


def _several_values(options: SvcOptions) -> ParameterError:
    """Refuse several values of an option, with the sweep that takes them."""
    models = [model.strip() for model in (options.model or "").split(",")]
    given: dict[str, object] = {"model": models} if len(models) > 1 else {}
    given |= {
        name: value for name, value in options.params.items() if isinstance(value, list)
    }
    given |= {"repeats": options.repeats} if options.repeats > 1 else {}
    flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
    verb = "has" if len(given) == 1 else "have"
    arguments = "".join(f"{name}={value!r}, " for name, value in given.items())
    return ParameterError(
        f"--as gives the value of one reply, but {flags} {verb} several values. For a "
        f"value of each reply, write svc.sweep(PROMPT, {arguments}"
        f"answer={options.type_name}).run().replies_df().",
        param="as",
    )


class ValueCell(RoundsCell):
    """The tries of one cell to get a value of the type."""

    def ask(self, form: Form[Result], cell_request: CellRequest) -> Result:
        """Ask until the reply fits the type, and show the value."""
        request, origin = cell_request.request, cell_request.origin
        try:
            value = self.attempt(
                lambda send: extract(form, request, origin, send=send, keep=self._keep)
            )
        except ToolCallError as error:
            error.remedy = _REMEDY
            raise
        replies = count_in_words(len(self._texts), "replies")
        note = f"{replies} before it did not fit" if self._texts else ""
        last = self._newest.final() if self._newest else Final(texts=())
        final = replace(last, texts=(_to_text(value),), is_verbatim=True, tool_runs=())
        self._display.finish(final.with_notes(*cell_request.notes, note))
        return value

    def _keep(self, exchange: Exchange, run: ToolRun) -> None:
        """Record a call; show it if it does not fit."""
        self._session.tool_record(exchange, run)
        if run.error is not None:
            self._tool_runs = (*self._tool_runs, run)
            self._display.tool_run(run)


def _to_text(value: object) -> str:
    try:
        return str(pretty(value))
    except Exception:  # noqa: BLE001 - `__repr__` of a user's class may raise
        return f"<a {type(value).__name__} that cannot be displayed>"

"""A cell with `--as`: the reply is read as a value of a type of the notebook."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_origin

from IPython.lib.pretty import pretty

from svc_notebook.display.reply import Final
from svc_notebook.errors import ParameterError
from svc_notebook.service.checks import did_you_mean
from svc_notebook.tokens import refitted
from svc_notebook.tools.extract import Form, asking_for, extract, to_form

from .options import SvcOptions
from .prompt import CellPrompt, CellRequest, single_request
from .tool_cell import RoundsCell

Value = TypeVar("Value")
_NAMED = re.compile(r"(?P<list>list\[)?(?P<name>\w+)(?(list)\])")


def to_named_form(text: str, names: Mapping[str, object]) -> Form[Any]:
    """Find the type that `--as` names."""
    found = _NAMED.fullmatch(text.replace(" ", ""))
    name = found["name"] if found else text
    if found is None or name not in names:
        hint = did_you_mean(name, dict(known_types(names)))
        raise ParameterError(
            f"--as {text}: this notebook has no such type.{hint} Give the name of a "
            "dataclass, a TypedDict or a pydantic model, or list[NAME].",
            param="as",
        )
    type_: Any = names[name]
    return to_form(list[type_] if found["list"] else type_)


def known_types(names: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the names of types with a note on each, for Tab."""
    return tuple(
        (name, (getattr(value, "__doc__", "") or "").partition("\n")[0])
        for name, value in names.items()
        if not name.startswith("_")
        and (isinstance(value, type) or get_origin(value) is not None)
    )


def value_request(
    options: SvcOptions, prompt: CellPrompt, form: Form[Any]
) -> CellRequest:
    """Build the request for a value; options that do not go with it are refused."""
    for flag, is_given, why in (
        ("-c", options.conversation, "a value belongs to no conversation"),
        ("--tools", options.tools, "the type is the only tool that is offered"),
        ("--format", options.layout, "the value is shown as Python writes it"),
        ("-n", prompt.params.get("n", 1) != 1, "one reply gives the value"),
        ("several values", options.is_several, "one reply gives the value"),
    ):
        if is_given:
            raise ParameterError(
                f"--as does not go with {flag}: {why}. Leave one of them out.",
                param="as",
            )
    asked = single_request(prompt)
    return replace(asked, request=refitted(asking_for(form, asked.request)))


class ValueCell(RoundsCell):
    """The tries of one cell to get a value; a view of each reply."""

    def ask(self, form: Form[Value], asked: CellRequest) -> Value:
        """Ask until a value fits, and show it."""
        keep = self._session.tool_record
        value = self.attempt(
            lambda send: extract(
                form, asked.request, asked.origin, send=send, keep=keep
            )
        )
        n_tries = len(self._texts) + 1
        note = f"the last of {n_tries} tries" if n_tries > 1 else ""
        last = self._newest.final() if self._newest else Final(texts=())
        final = replace(last, texts=(_written(value),), is_verbatim=True, tool_runs=())
        self._display.finish(final.with_notes(*asked.notes, note))
        return value


def _written(value: object) -> str:
    try:
        return str(pretty(value))
    except Exception:  # noqa: BLE001 - a class of the user may write itself
        return f"<a {type(value).__name__} that cannot be written>"

"""Records: objects with named fields, as a function's parameters or a class have.

Rules: every field is there once, with its description and whether it is required; no
other is allowed (doc: Tool definition, `required` and `additionalProperties`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from .faults import Faults, inside, short
from .kinds import Kind, Schema

MAX_DEFAULT_CHARS = 200
NO_DEFAULT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One named value.

    Attributes:
        name: As JSON has it.
        kind: What it may be.
        is_required: Whether it has to be there.
        description: For the model; empty if there is none.
        default: What holds when it is left out, as JSON; `NO_DEFAULT` if unsaid.
    """

    name: str
    kind: Kind
    is_required: bool = True
    description: str = ""
    default: object = NO_DEFAULT

    @property
    def schema(self) -> Schema:
        """The schema of the value, with its description and default."""
        rest = self.kind.schema
        own = rest.pop("description", "")
        schema: Schema = {"type": rest.pop("type")} if "type" in rest else {}
        if self.description or own:
            schema["description"] = self.description or own
        schema |= rest
        return schema if self.default is NO_DEFAULT else schema | self._default()

    def _default(self) -> Schema:
        is_short = len(str(self.default)) <= MAX_DEFAULT_CHARS
        return {"default": self.default} if is_short else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An object of fields.

    Attributes:
        fields: In their order.
        make: Turns the values by name into what is wanted.
        description: What it is, for the model; empty if unsaid.
    """

    fields: tuple[Field, ...]
    make: Callable[[dict[str, Any]], object] = dict
    description: str = ""
    wanted = "an object"

    @property
    def schema(self) -> Schema:
        """The JSON schema, in the shape that the document shows."""
        about = {"description": self.description} if self.description else {}
        return {
            "type": "object",
            **about,
            "properties": {field.name: field.schema for field in self.fields},
            "required": [field.name for field in self.fields if field.is_required],
            "additionalProperties": False,
        }

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Read every field, and refuse what is none."""
        if not isinstance(value, Mapping):
            return faults.wrong(at or "The value", value, self.wanted)
        inner = Faults()
        for name in value:
            self._check_name(str(name), at, inner)
        found = {}
        for field in self.fields:
            here = inside(at, field.name)
            if field.name in value:
                found[field.name] = field.kind.read(value[field.name], here, inner)
            elif field.is_required:
                inner.add(f"{here} is missing; it has to be {field.kind.wanted}.")
        return faults.take(inner) if inner else self._made(found, at, faults)

    def _check_name(self, name: str, at: str, faults: Faults) -> None:
        names = [field.name for field in self.fields]
        if name in names:
            return
        near = get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        allowed = f"the names are {', '.join(names)}" if names else "there are none"
        faults.add(f"{inside(at, short(name))} is not known; {allowed}.{hint}")

    def _made(self, found: dict[str, Any], at: str, faults: Faults) -> object:
        try:
            return self.make(found)
        except Exception as problem:  # noqa: BLE001 - the class may raise anything
            reason = short(f"{type(problem).__name__}: {problem}", 300)
        return faults.add(f"{at or 'The value'} cannot be made: {reason}.")

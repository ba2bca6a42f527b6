"""pydantic models as kinds, where pydantic is installed.

Rules: pydantic is never imported here, since a type can only be a model once its user
has imported it; JSON is checked against the model's schema first, so that a text is
not taken for a number, and then by the model's own rules.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

from svc_notebook.errors import ToolSchemaError

from .faults import Faults, inside, short
from .kinds import Schema
from .ready import add_faults

MAX_DEPTH = 32
_DATA = ("const", "default", "enum", "examples")  # values, not schemas
_LEFT_OUT = ("$defs", "discriminator", "title")  # of references, or of no use


def is_model(annotation: object) -> bool:
    """Say whether a type is a pydantic model."""
    loaded = sys.modules.get("pydantic")
    model = getattr(loaded, "BaseModel", None)
    return (
        isinstance(model, type)
        and isinstance(annotation, type)
        and issubclass(annotation, model)
    )


@dataclass(frozen=True, slots=True)
class Model:
    """An object that a pydantic model describes."""

    model: Any
    text: str  # the schema as JSON: frozen, and copied by reading it
    wanted = "an object"

    @classmethod
    def of(cls, model: Any, where: str) -> "Model":  # noqa: ANN401 - pydantic's class
        """Read a model's schema.

        Raises:
            ToolSchemaError: It has none, or one that holds itself.
        """
        try:
            whole = model.model_json_schema()
            schema = _inlined(whole, whole.get("$defs", {}), MAX_DEPTH)
            return cls(model, json.dumps(schema, allow_nan=False))
        except RecursionError:
            reason = "holds itself, which has no end as a schema"
        except Exception as problem:  # noqa: BLE001 - a model may raise anything
            reason = f"has no schema ({short(str(problem), 200)})"
        raise ToolSchemaError(
            f"{where} is the model {model.__name__}, which {reason}; use fields of "
            "simple types."
        )

    @property
    def schema(self) -> Schema:
        """The JSON schema of it, without references."""
        schema: Schema = json.loads(self.text)
        return schema

    def read(self, value: object, at: str, faults: Faults) -> object:
        """Check the value and build the model."""
        inner = Faults()
        add_faults(self.schema, value, at, inner)
        if inner:
            return faults.take(inner)
        try:
            return self.model.model_validate_json(json.dumps(value))
        except Exception as problem:  # noqa: BLE001 - validators may raise anything
            _explain(problem, at, faults)
        return None


def _explain(problem: Exception, at: str, faults: Faults) -> None:
    """Add what a model says is wrong, a fault each where it tells them apart."""
    told = getattr(problem, "errors", None)
    if not callable(told):
        reason = short(f"{type(problem).__name__}: {problem}", 300)
        faults.add(f"{at or 'The value'} cannot be made: {reason}.")
        return
    for each in told():
        place = at
        for part in each.get("loc", ()):
            place = f"{place}[{part}]" if isinstance(part, int) else inside(place, part)
        faults.add(f"{place or 'The value'}: {short(str(each.get('msg')), 200)}.")


def _inlined(schema: Any, known: dict[str, Any], depth: int) -> Any:  # noqa: ANN401
    """Put what references name in their places; the document shows none."""
    if depth <= 0:
        raise RecursionError
    if isinstance(schema, list):
        return [_inlined(each, known, depth - 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        named = known[schema["$ref"].rsplit("/", 1)[-1]]
        rest = {name: each for name, each in schema.items() if name != "$ref"}
        return _inlined({**named, **rest}, known, depth - 1)
    kept = {
        name: _inlined_word(name, each, known, depth)
        for name, each in schema.items()
        if name not in _LEFT_OUT
    }
    if kept.get("type") == "object" and "properties" in kept:
        kept.setdefault("required", [])
        kept.setdefault("additionalProperties", False)
    return kept


def _inlined_word(name: str, value: Any, known: dict[str, Any], depth: int) -> Any:  # noqa: ANN401 - JSON
    if name in _DATA:
        return value
    if name == "properties":
        return _inlined_names(value, known, depth)
    return _inlined(value, known, depth - 1)


def _inlined_names(
    properties: dict[str, Any], known: dict[str, Any], depth: int
) -> dict[str, Any]:
    """A property may be called `title` or `$ref` itself: names are kept."""
    return {name: _inlined(each, known, depth - 1) for name, each in properties.items()}

"""The one table of request parameters (doc: Request body, Limits).

Flags, keyword arguments, checks (`check.py`), help and completion are read from
`PARAMS`. Rules: every number here has a section of the document; what the
document does not show is None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from .catalogue import BUDGET_TOKENS

MAX_STOPS = 4  # doc: Limits, stop sequences
DEFAULT_MAX_TOKENS = 150  # doc: Limits, max_tokens default

Kind = Literal["integer", "float", "string", "stops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One row of the document's request table.

    Attributes:
        name: As the document spells it.
        kind: What values it takes.
        minimum, maximum: Bounds, both allowed; None where the document has none.
        default: What the service uses when none is sent; None where none is given.
        doc: What it does, for help texts.
    """

    name: str
    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    default: float | None = None
    doc: str

    @property
    def flag(self) -> str:
        """The option's spelling in a magic line."""
        return "--" + self.name.replace("_", "-")

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.kind == "stops":
            return f"a text or up to {MAX_STOPS} texts"
        if self.kind == "string":
            return "a text"
        kind = "an integer" if self.kind == "integer" else "a number"
        if self.minimum is not None and self.maximum is not None:
            return f"{kind} from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"{kind} of at least {self.minimum:g}"
        return kind


PARAMS = (
    Param(
        name="max_tokens",
        kind="integer",
        minimum=1,
        maximum=BUDGET_TOKENS,
        default=DEFAULT_MAX_TOKENS,
        doc="most tokens to generate; prompt and reply share 8192",
    ),
    Param(
        name="temperature",
        kind="float",
        minimum=0,
        maximum=2,
        default=0.7,
        doc="higher is more random, lower more deterministic",
    ),
    Param(
        name="top_p",
        kind="float",  # the document gives no range
        default=1,
        doc="nucleus sampling; change this or temperature, not both",
    ),
    Param(
        name="n",
        kind="integer",
        minimum=1,
        default=1,
        doc="number of choices",
    ),
    Param(
        name="stop",
        kind="stops",
        doc="up to 4 sequences at which generation stops",
    ),
    Param(
        name="presence_penalty",
        kind="float",
        minimum=-2,
        maximum=2,
        default=0,
        doc="positive values penalize tokens that have already appeared",
    ),
    Param(
        name="frequency_penalty",
        kind="float",
        minimum=-2,
        maximum=2,
        default=0,
        doc="positive values penalize tokens by how often they have appeared",
    ),
    Param(
        name="repetition_penalty",
        kind="float",
        minimum=1,
        maximum=2,
        default=1,
        doc="penalizes repeated tokens; 1.05 is suggested when output repeats",
    ),
    Param(
        name="user",
        kind="string",
        doc="identifier of the end user, for monitoring and abuse detection",
    ),
)
PARAM_NAMES = tuple(param.name for param in PARAMS)


class Params(TypedDict, total=False):
    """The parameters of a request by the document's names (doc: Request body).

    Leave one out, or give None, and it is not sent: the service's default applies.
    """

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    n: int | None
    stop: str | Sequence[str] | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    user: str | None
    tools: Any  # definitions; the verbs take functions and toolboxes too
    extra: Mapping[str, Any] | None

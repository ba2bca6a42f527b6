"""A cell: one combination, in one of its repetitions.

Rules: pure; the same combination has the same cell_id in whatever grid and order it
stands, today and tomorrow, since ledgers are full of them.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from svc_notebook.service.params import PARAMS
from svc_notebook.service.request import CompletionRequest
from svc_notebook.tokens import estimate_prompt_tokens
from svc_notebook.wire.encode import encode

_FLOATS = frozenset(param.name for param in PARAMS if param.kind == "float")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination, in one of its repetitions: one row of the plan.

    Attributes:
        cell_id: Hash of all that affects the reply; repetitions share it.
        repeat: Which repetition, from 0.
        request: What is sent.
        row: Position of the row that was put into the prompt; None without rows.
        columns: The columns that were put in, as in the source; kept with the reply.
    """

    cell_id: str
    repeat: int
    request: CompletionRequest
    row: int | None = None
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """What tells this cell from the others of its grid."""
        return self.cell_id, self.repeat

    @property
    def model(self) -> str:
        """Id of the model to ask."""
        return self.request.model

    @property
    def est_prompt_tokens(self) -> int:
        """Estimated tokens of the prompt."""
        return estimate_prompt_tokens(self.request.messages, self.request.tools)


def cell_id_of(
    request: CompletionRequest, *, templates: object = None, n_before: int = 0
) -> str:
    """Return the hash of all that affects the reply: 16 hexadecimal digits.

    It does not depend on the order of the parameters, nor on whether a number was
    written 0 or 0.0.

    Args:
        request: What is sent.
        templates: What the prompt was made of, where there are rows: two templates
            may read the same in one row, and are two cells all the same.
        n_before: Rows before this one that read the same; each is a cell, and from
            the second on its id says which.

    Raises:
        ParameterError: A value in `tools` or `extra` has no JSON form.
    """
    params = {
        name: float(value) if name in _FLOATS else value
        for name, value in sorted(request.params.items())
    }
    same = msgspec.structs.replace(request, params=params)
    hashed = blake2b(encode(same, is_streamed=False), digest_size=8)
    if templates is not None:
        hashed.update(msgspec.json.encode(templates))
    return hashed.hexdigest() + (f"-{n_before + 1}" if n_before else "")

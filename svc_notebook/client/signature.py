"""Makes `?` and Tab show the service's parameters by name.

Rules: the names and types are read from the one table; nothing else changes.
"""

import inspect
from collections.abc import Callable
from typing import TypeVar, get_type_hints

from svc_notebook.service.params import Params

Verb = TypeVar("Verb", bound=Callable[..., object])


def with_params(verb: Verb) -> Verb:
    """Give a verb that takes `**params` a signature that lists them.

    Args:
        verb: A function whose last parameter is `**params: Unpack[Params]`.
    """
    signature = inspect.signature(verb)
    own = [
        each
        for each in signature.parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    listed = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint
        )
        for name, hint in get_type_hints(Params).items()
        if name not in signature.parameters
    ]
    shown = signature.replace(parameters=[*own, *listed])
    verb.__signature__ = shown  # type: ignore[attr-defined]  # what inspect looks for
    return verb

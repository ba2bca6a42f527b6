"""Makes `?` and Tab show the service's parameters by name.

Rules: the names and types are read from the one table; nothing else changes.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_type_hints

from svc_notebook.service.params import Params

Verb = TypeVar("Verb", bound=Callable[..., object])


def with_params(verb: Verb) -> Verb:
    """Give a verb that takes `**params` a signature that lists them.

    Args:
        verb: A function whose last parameter is `**params: Unpack[Params]`, or of
            more than `Params`; or, where a value may also be a list of values,
            `**params: Any`.
    """
    signature = inspect.signature(verb)
    *own, last = signature.parameters.values()
    is_any = last.annotation is Any
    (taken,) = (Params,) if is_any else get_args(last.annotation)
    listed = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Any if is_any else hint,
        )
        for name, hint in get_type_hints(taken).items()
        if name not in signature.parameters
    ]
    shown = signature.replace(parameters=[*own, *listed])
    verb.__signature__ = shown  # type: ignore[attr-defined]  # what inspect looks for
    return verb

"""A hosted chat-completion service in Jupyter: magic, sweeps, DataFrames.

    %load_ext svc_notebook

    %%svc --temperature 0.2 -o answer
    Explain server-sent events in two sentences.

Every public name is in `__init__.pyi`, with where it comes from. It is imported when
it is first used, so that importing the package loads next to nothing.
"""

from typing import Any

import lazy_loader

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["load_ipython_extension", "unload_ipython_extension"]
__all__.sort()

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name in __all__:
        return _load(name)
    from svc_notebook.service.checks import did_you_mean  # noqa: PLC0415 - rarely

    near = "" if name.startswith("_") else did_you_mean(name, __all__, n=1)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}" + (near and f".{near}"),
        name=name,
    )


def __dir__() -> list[str]:
    """Let the Tab key offer what is meant to be used, and no part behind it."""
    return [*__all__, "__version__"]


def load_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Register `%svc` and `%%svc` (`%load_ext svc_notebook`)."""
    from svc_notebook.magics.extension import load  # noqa: PLC0415 - IPython only here

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Take `%svc` and `%%svc` away again."""
    from svc_notebook.magics.extension import unload  # noqa: PLC0415 - IPython only here

    unload(ipython)

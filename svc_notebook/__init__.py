"""A hosted chat-completion service in Jupyter: a magic, a chat panel, sweeps.

    import svc_notebook as svc
    %load_ext svc_notebook

    %%svc --temperature 0.2
    Explain server-sent events in two sentences.

No key yet? `%svc use emulator` answers on this machine. `%svc?` shows the options of
the magic, `svc.complete?` describes a function.

Settings       use (address, key, model, files, limits); Emulator
Questions      complete, stream, extract; Completion, CompletionStream, Message
Conversations  conversation, panel, conversations_df; Conversation
Tools          tool, Toolbox, tool_calls_df
Sweeps         sweep, run, runs_df, replay, dataset; Run; df.svc
Results        replies_df, usage_df, summary_df, contrast, contrast_df, trend,
               how_many, agreement, agreement_df, repeats_df, confusion_df, ranking,
               compare, plot, score, scores, read_answers, describe, estimate_tokens;
               Contrast, Decision, Judge, Recheck, Tokens
Files          export, read_parquet, export_answers; as_replies and read_eval for
               replies that were made elsewhere; to_polars, to_arrow
The ledger     last, reply
Clients        Client, AsyncClient, AsyncCompletionStream
Errors         SvcError is the base of all; the others are in `svc.errors`

Each name is imported when it is first used, so importing the package is quick.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def _homes() -> dict[str, str]:
    """Return the module of each public name, read from the stub for type checkers.

    An empty module means that the name is itself a module.
    """
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    return {
        alias.name: node.module or ""
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


_HOMES = _homes()
__all__ = sorted([*_HOMES, "load_ipython_extension", "unload_ipython_extension"])  # noqa: PLE0605 - computed

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    _offer_accessor()  # pandas may have been imported since
    if name in _HOMES:
        home = _HOMES[name]
        module = import_module(f"{__name__}.{home or name}")
        return getattr(module, name) if home else module
    from svc_notebook import errors  # noqa: PLC0415 - rarely
    from svc_notebook.service.params import did_you_mean  # noqa: PLC0415 - rarely

    message = f"module {__name__!r} has no attribute {name!r}"
    if hasattr(errors, name) and name.endswith("Error"):
        place = f"Errors are in {errors.__name__}: write svc.errors.{name}."
        raise AttributeError(f"{message}. {place}", name=name)
    near = "" if name.startswith("_") else did_you_mean(name, __all__, n=1)
    raise AttributeError(message + (near and f".{near}"), name=name)


def __dir__() -> list[str]:
    """Let Tab offer only the public names."""
    return [*__all__, "__version__"]


def _frame_accessor(frame: Any) -> object:  # noqa: ANN401 - pandas may not be there
    from svc_notebook.pandas import FrameAccessor  # noqa: PLC0415 - loads the sweeps

    return FrameAccessor(frame)


def _offer_accessor() -> None:
    """Register `df.svc` with pandas if pandas is loaded; its module loads when used."""
    pandas = sys.modules.get("pandas")
    extensions = getattr(getattr(pandas, "api", None), "extensions", None)
    if extensions is None or hasattr(pandas.DataFrame, "svc"):  # type: ignore[union-attr]  # a module
        return
    extensions.register_dataframe_accessor("svc")(_frame_accessor)
    extensions.register_series_accessor("svc")(_frame_accessor)


def _show_rating(rating: Any) -> None:  # noqa: ANN401 - loads with the sweeps
    from svc_notebook.panels.open_panel import show_rating  # noqa: PLC0415 - rarely

    show_rating(rating)


def _join_shell() -> None:
    """In IPython, register the short display of errors, and the panel for ratings.

    A `Rating` belongs to the sweeps, a lower layer than the panels. So it is registered
    by the name of its class, and neither module is loaded here.
    """
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_shell is not None and (shell := get_shell()) is not None:
        from svc_notebook.magics.short_errors import register  # noqa: PLC0415 - IPython only here

        register(shell)
        shell.display_formatter.ipython_display_formatter.for_type_by_name(
            "svc_notebook.sweeps.rating", "Rating", _show_rating
        )


_join_shell()
_offer_accessor()


def load_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Register `%svc` and `%%svc` (`%load_ext svc_notebook`)."""
    from svc_notebook.magics.ipython_extension import load  # noqa: PLC0415 - IPython only here

    _join_shell()  # the package may have been imported before the shell existed
    _offer_accessor()
    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:  # noqa: ANN401 - IPython's shell
    """Remove `%svc` and `%%svc` again."""
    from svc_notebook.magics.ipython_extension import unload  # noqa: PLC0415 - IPython only here

    unload(ipython)

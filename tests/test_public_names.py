"""The public names, written down: adding one is a decision that somebody reviews."""

import inspect
import re
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import svc_notebook

NAMES = [
    "AsyncClient",
    "AsyncCompletionStream",
    "Client",
    "Completion",
    "CompletionStream",
    "Contrast",
    "Conversation",
    "Decision",
    "Emulator",
    "Judge",
    "Message",
    "Recheck",
    "Run",
    "SvcError",
    "Tokens",
    "Toolbox",
    "agreement",
    "agreement_df",
    "as_replies",
    "compare",
    "complete",
    "confusion_df",
    "contrast",
    "contrast_df",
    "conversation",
    "conversations_df",
    "dataset",
    "describe",
    "errors",
    "estimate_tokens",
    "export",
    "export_answers",
    "extract",
    "how_many",
    "last",
    "load_ipython_extension",
    "panel",
    "plot",
    "ranking",
    "read_answers",
    "read_eval",
    "read_parquet",
    "repeats_df",
    "replay",
    "replies_df",
    "reply",
    "run",
    "runs_df",
    "score",
    "scores",
    "stream",
    "summary_df",
    "sweep",
    "to_arrow",
    "to_polars",
    "tool",
    "tool_calls_df",
    "trend",
    "unload_ipython_extension",
    "usage_df",
    "use",
]


def test_the_public_names_are_these() -> None:
    """`svc_notebook.__all__` is sorted and holds the names listed here."""
    assert svc_notebook.__all__ == NAMES


def test_the_tab_key_offers_these_alone() -> None:
    """What `svc.<Tab>` lists holds no part behind the public names."""
    assert dir(svc_notebook) == sorted(["__version__", *NAMES])


def test_every_public_name_is_there_and_explains_itself() -> None:
    """Each public name can be had and has a docstring that `?` shows."""
    silent = [name for name in NAMES if not inspect.getdoc(getattr(svc_notebook, name))]

    assert silent == []


def test_the_help_of_the_package_names_everything() -> None:
    """`svc?` lists each public name, grouped, and fits a screen."""
    shown = inspect.getdoc(svc_notebook) or ""
    words = set(re.findall(r"\w+", shown))
    magics = {"load_ipython_extension", "unload_ipython_extension"}

    assert set(NAMES) - magics - words == set()
    assert len(shown.splitlines()) <= 40


@pytest.mark.slow
def test_what_a_question_mark_shows_fits_a_screen() -> None:
    """A `?` prints at most 55 lines, and more only where it lists many parameters."""
    shell: Any = InteractiveShell.instance()
    InteractiveShell.clear_instance()
    shell.push({"svc": svc_notebook})
    shown = {name: shell.object_inspect_text(f"svc.{name}") for name in NAMES}

    assert "Plan a sweep" in shown["sweep"]
    n_lines = {name: shown[name].count("\n") for name in NAMES}
    most_lines = {"sweep": 68, "use": 60, "contrast": 62}
    too_long = {n for n in n_lines if n_lines[n] > most_lines.get(n, 55)}
    assert too_long == set()
    sweeps = re.sub("\x1b[^m]*m", "", shown["sweep"]).splitlines()
    assert max(map(len, sweeps)) <= 88


def test_an_unknown_name_is_refused_as_usual_with_a_near_one() -> None:
    """A slip in a public name gets Python's own wording and the name meant."""
    with pytest.raises(AttributeError) as caught:
        _ = svc_notebook.compleet  # type: ignore[attr-defined]  # a slip

    assert str(caught.value) == (
        "module 'svc_notebook' has no attribute 'compleet'. Did you mean complete?"
    )


def test_the_other_errors_are_in_errors() -> None:
    """An error's name without `errors` is refused with the place where it is."""
    with pytest.raises(AttributeError) as caught:
        _ = svc_notebook.AuthError  # type: ignore[attr-defined]  # a slip

    assert str(caught.value) == (
        "module 'svc_notebook' has no attribute 'AuthError'. Errors are in "
        "svc_notebook.errors: write svc.errors.AuthError."
    )
    assert issubclass(svc_notebook.errors.AuthError, svc_notebook.SvcError)


def test_parameters_are_listed_by_name() -> None:
    """Tab and `?` show the service's parameters, not `**params`."""
    shown = list(inspect.signature(svc_notebook.complete).parameters)

    assert {"model", "temperature", "max_tokens", "stop"} <= set(shown)

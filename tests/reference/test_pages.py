"""The site's reference names all that the package has."""

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import svc_notebook as svc
from svc_notebook.api import frame_columns
from svc_notebook.cli import build_parser
from svc_notebook.endpoints import ENDPOINT_KEYS, MODEL_KEYS
from svc_notebook.magics.config_traits import SvcTraits
from svc_notebook.magics.options import OPTIONS
from svc_notebook.magics.subcommands import COMMANDS
from svc_notebook.pandas import EXPANDED
from svc_notebook.service.params import PARAM_NAMES
from svc_notebook.settings import ENV_NAMES


def _errors() -> list[type[BaseException]]:
    found = filter(inspect.isclass, vars(svc.errors).values())
    return [each for each in found if issubclass(each, BaseException)]


@pytest.mark.slow
def test_every_public_name_has_a_section(pages: dict[str, str]) -> None:
    """Functions, classes and scores are on the pages of Python."""
    whole = "\n".join(pages.values())
    names = {each for each in svc.__all__ if not inspect.ismodule(getattr(svc, each))}
    names -= {each.__name__ for each in _errors()}
    names |= {f"scores.{each}" for each in svc.scores.__all__}

    assert [each for each in names if f"\n## `svc.{each}`\n" not in whole] == []


def test_every_method_of_a_public_class_has_a_section(pages: dict[str, str]) -> None:
    """A method that is inherited is there, too."""
    whole = "\n".join(pages.values())

    assert "\n### `Run.replies_df`\n" in whole
    assert "\n### `Client.complete`\n" in whole
    assert "\n### `Completion.text`\n" in whole
    assert "\n### `Conversation.from_json`\n" in whole


def test_every_function_is_listed_by_task_with_a_sentence(
    reference: ModuleType, pages: dict[str, str]
) -> None:
    """The index has each public name once, and the methods of a run."""
    rows = re.findall(r"^\| \[?`([\w.]+)`.* \| (.+) \|$", pages["index"], re.MULTILINE)
    names = [name.removeprefix("svc.") for name, _ in rows if name.startswith("svc.")]

    assert sorted(names) == sorted(reference.public_names())
    assert "Sum up replies by group" in dict(rows)["svc.summary_df"]
    assert "run.contrast" in dict(rows)


def test_every_page_has_a_line_in_the_index(pages: dict[str, str]) -> None:
    """Its title leads to it, with what it is for."""
    lines = dict(
        re.findall(r"^- \[.+\]\((\w+)\.md\): (.+)$", pages["index"], re.MULTILINE)
    )

    assert set(lines) == set(pages) - {"index"}


def test_every_option_and_command_is_there(pages: dict[str, str]) -> None:
    """The page of the magic is made from the table that its parser reads."""
    page = pages["magic"].replace("\\|", "|")
    said = [each.usage for each in OPTIONS]
    said += [each.usage for each in COMMANDS]
    said += [
        f"%config SvcMagics.{name}" for name in SvcTraits.class_trait_names(config=True)
    ]

    assert [each for each in said if f"| `{each}` |" not in page] == []


def test_every_setting_is_there(pages: dict[str, str]) -> None:
    """Variables, keys of the file of endpoints, and parameters of a request."""
    settings, parameters = pages["settings"], pages["parameters"]
    said = ["SVC_API_KEY", *ENV_NAMES.values(), *ENDPOINT_KEYS, *MODEL_KEYS, "idle_s"]

    assert [each for each in said if f"| `{each}` |" not in settings] == []
    assert [each for each in PARAM_NAMES if f"| `{each}` |" not in parameters] == []


def test_every_error_says_what_it_means_and_what_to_do(pages: dict[str, str]) -> None:
    """The docstring of an error is its meaning, then the next step."""
    for each in _errors():
        meaning, *more = (inspect.getdoc(each) or "").split("\n\n")

        assert f"\n## `{each.__name__}`\n\n{meaning}\n" in pages["errors"]
        assert more, each
        assert not more[0].startswith("Attributes:"), each


def test_every_column_is_there(pages: dict[str, str]) -> None:
    """Each kind of frame has a table of its columns."""
    page = pages["columns"]

    for name, columns in frame_columns().items():
        _, _, section = page.partition(f"\n## `{name}`\n")
        section, _, _ = section.partition("\n## ")
        for column in columns:
            assert f"| `{column.name}` | `{column.dtype}` | " in section
    replies = {column.name for column in frame_columns()["replies_df"]}
    assert set(EXPANDED) <= replies


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action.choices, dict):
            for each in action.choices.values():
                yield from _parsers(each)


def test_every_command_of_the_terminal_is_there(pages: dict[str, str]) -> None:
    """`svc-notebook ledger forget --before DAY` is, for one."""
    commands = [each.prog for each in _parsers(build_parser())]

    assert "svc-notebook ledger forget" in commands
    assert [
        each for each in commands if f"\n## `{each}`\n" not in pages["command"]
    ] == []
    assert "| `--before DAY` |" in pages["command"]


@pytest.mark.slow
def test_a_name_that_is_not_placed_has_a_page(
    reference: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new public name is in the reference before somebody chooses its page."""
    monkeypatch.setattr(reference, "PYTHON", {"Tools": ("Call", "tool")})

    pages = reference.pages()

    assert "\n## `svc.tool`\n" in pages["tools"]
    assert "\n## `svc.Run`\n" in pages["more"]


def test_pages_do_not_show_where_they_were_made(pages: dict[str, str]) -> None:
    """No address in memory and no path of this machine, so pages stay the same."""
    whole = "\n".join(pages.values())

    assert " at 0x" not in whole
    assert str(Path(svc.__file__).parents[1]) not in whole


@pytest.mark.slow
def test_writing_again_changes_nothing(reference: ModuleType, tmp_path: Path) -> None:
    """Sphinx then reads only what is new; a page that is no longer made goes."""
    reference.write(tmp_path)
    before = {each: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
    (tmp_path / "old.md").write_text("# Old\n")

    reference.write(tmp_path)

    assert {each: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before

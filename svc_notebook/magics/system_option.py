"""`-s`: refuses a name or path that would be sent in place of what it names."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from svc_notebook.errors import ParameterError
from svc_notebook.template import as_variable


def check_system(value: str, names: Mapping[str, object]) -> None:
    """Refuse one word that names a file or a variable: only the word would be sent."""
    word = value.strip()
    if not word or len(word.split()) > 1 or "{{" in word:
        return
    plain = word.removeprefix("@").removeprefix("$").removeprefix("{").removesuffix("}")
    is_marked, variable = plain != word, as_variable(plain)
    has_variable = variable in names and (is_marked or isinstance(names[variable], str))
    if plain.isidentifier() and has_variable:
        raise _refusal(word, "this is the name of a variable", f"-s {{{{{plain}}}}}")
    is_file = False
    with suppress(OSError, ValueError, RuntimeError):  # no file can have such a name
        is_file = Path(plain).expanduser().is_file()
    if is_file:
        way = f"from pathlib import Path; system = Path({plain!r}).read_text('utf-8')"
        raise _refusal(
            word, "this is a file", "-s {{system}}", f"`{way}` in a cell, then "
        )
    if word[0] in "@$":
        reason = f"{word[0]} fetches nothing, and there is no such variable or file"
        raise _refusal(word, reason, "-s {{name}}")


def _refusal(word: str, reason: str, mark: str, before: str = "") -> ParameterError:
    return ParameterError(
        f"-s {word}: {reason}. Only the word itself would be sent. Write {before}"
        f"`{mark}`.",
        param="system",
    )

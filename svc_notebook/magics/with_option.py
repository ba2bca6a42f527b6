"""`--with`: finds variables, cells, outputs, the last error and text files."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from svc_notebook.conversations.attachments import PromptItem, find_item, read_text_file
from svc_notebook.errors import ParameterError
from svc_notebook.template import as_variable, is_path, to_expression

from .interpolation import near_name, with_value


def find_context(
    name: str, names: Mapping[str, Any], own_names: Iterable[str]
) -> PromptItem:
    """Find what `--with` names: a variable, In[3], Out[-1], Err or a text file.

    An error may suggest one of `own_names`.
    """
    if (variable := as_variable(name)) in names:
        with_value(variable, names)
    if item := find_item(name, names, mark="--with "):
        return item
    path, is_file, is_folder, known = Path(name), False, False, list(own_names)
    with suppress(OSError, ValueError, RuntimeError):  # no file can have such a name
        path = path.expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
        if not name.isidentifier():
            known = [other.name for other in path.parent.iterdir()]
    if is_file:
        return read_text_file(path, name, mark="--with ")
    expression = to_expression(name)
    root = re.split(r"[\[.]", name, maxsplit=1)[0].strip()
    if expression and is_path(expression) and root in names:
        raise ParameterError(
            f"--with {name}: only whole variables can be added. For a part of one, "
            f"write {{{{{name}}}}} into the prompt.",
            param="with",
        )
    if is_folder:
        raise ParameterError(
            f"--with {name}: this is a folder. Name a text file in it.", param="with"
        )
    raise ParameterError(
        f"--with {name}: there is no such variable or file."
        f"{near_name(path.name, known)} Give variables, In[3], Out[-1], Err and text "
        f"files, separated by commas; this kernel runs in {Path.cwd()}.",
        param="with",
    )

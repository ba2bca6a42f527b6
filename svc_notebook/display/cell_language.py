"""Which code of a reply can be a cell: Python, and what a cell magic can run."""

from .front_end import running_shell

_PYTHON = frozenset({"", "python", "python3", "py", "py3", "ipython", "ipython3"})
# A list, since the text of a model must not choose `%%writefile` or `%%svc`.
_MAGICS = {
    **{name: name for name in ("bash", "sh", "cmd", "powershell", "sql", "html")},
    **{name: name for name in ("javascript", "latex", "markdown", "svg")},
    **{name: name for name in ("perl", "ruby", "cython", "julia")},
    "shell": "bash",
    "js": "javascript",
    "md": "markdown",
    "r": "R",
}
SHELLS = frozenset({"bash", "sh", "cmd", "powershell"})


def cell_magic(language: str) -> str | None:
    """Return the cell magic that runs a language: "" for Python, None if none does."""
    if language.lower() in _PYTHON:
        return ""
    shell = running_shell()
    magic = _MAGICS.get(language.lower())
    return magic if magic and shell and shell.find_cell_magic(magic) else None

"""Writes the page of this folder: one line a fault, and what the user sees.

`python -m tests.faults.page` writes README.md from the tables, and from the
docstrings of the tests of faults that do not fit into a table.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.faults.dialogues import DIFFERENCES
from tests.faults.tables import CASES

PATH = Path(__file__).with_name("README.md")
TESTS = Path(__file__).parents[1]
SECTIONS = {
    "A": ("Wire and SSE", ("client/test_response_faults.py",)),
    "B": ("HTTP bodies and statuses", ("client/test_inflate.py",)),
    "C": (
        "Network",
        (
            "client/test_network_faults.py",
            "client/test_client_processes.py",
            "client/test_proxy.py",
            "client/test_client.py",
        ),
    ),
    "D": (
        "Limits and retries",
        (
            "client/test_rate_limit.py",
            "client/test_rate_windows.py",
            "client/test_retry.py",
        ),
    ),
    "E": ("Parameters", ()),
    "F": ("Unicode", ()),
    "I": (
        "Secrets",
        (
            "client/test_secrets.py",
            "endpoints/test_key_rules.py",
        ),
    ),
}
HEAD = """\
# What goes wrong, and what a user sees

`python -m tests.faults.page` writes this page from the tests; a test checks that it
is up to date. A server sends exactly the bytes of each line of a table over a real
socket, once to `Client` and once to `AsyncClient`. Each time it is checked that

- only a complete reply is a success; an error is one of ours, says what to do next, is
  shorter than 4 kB, and contains no control character;
- it ends, after as many requests as the table says;
- the exchange is recorded once, with its outcome;
- the key is in no object, traceback, pickle or log line;
- the connections are closed, and the same client's next request is answered.
"""


DIALOGUES = """\
## Where httpx's own transport ends otherwise

500 random dialogues of odd heads, chunks, trailers, cuts, resets, early answers and
kept connections are played through our connections and through httpx's transport
(`test_dialogues.py`). They end in the same way, but for these:

| what comes | ours | httpx's transport |
|---|---|---|
"""

LIMITS = """
## What HTTP/1.1 does not let us see

An answer has no mark of its request. Bytes that come on an idle connection are seen
before it is used, and it is closed. But bytes that a broken server sends in the moment
when the next request is being written are read as the answer to it. That takes a server
that answers twice. Connections are idle for at most 15 s, and a connection whose reply
did not end as its head said is not used again.
"""


def page() -> str:
    """Return the page."""
    lines = [
        f"| {_shown(known.fault)} | {known.ours} | {known.httpx} |\n"
        for known in DIFFERENCES
    ]
    return "\n".join([HEAD, *_sections(), DIALOGUES + "".join(lines) + LIMITS])


def _sections() -> Iterator[str]:
    for letter, (name, files) in SECTIONS.items():
        yield f"## {letter}. {name}\n"
        lines = [
            f"| {_shown(case.fault)} | {_shown(case.seen)} |"
            for case in CASES
            if case.section == letter
        ]
        if lines:
            yield "\n".join(["| fault | what the user sees |", "|---|---|", *lines, ""])
        facts = [f"- {fact}" for file in files for fact in _facts(TESTS / file)]
        if facts:
            yield "\n".join(["And:\n" if lines else "", *facts, ""]).lstrip("\n")


def _facts(path: Path) -> Iterator[str]:
    """Return what the tests of a file promise: the first lines of their docstrings."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield (ast.get_docstring(node) or "").splitlines()[0]


def _shown(text: str) -> str:
    """Return a text as a cell of a table shows it."""
    short = text if len(text) <= 100 else text[:97] + "..."
    return short.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PATH.write_text(page(), "utf-8")

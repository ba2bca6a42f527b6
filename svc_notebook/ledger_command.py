"""The command `svc-notebook ledger`: where it is, how large; export and delete."""

import argparse
import contextlib
import os
import sys

from svc_notebook import export, replies_df
from svc_notebook.display.number_words import count_in_words
from svc_notebook.errors import ParameterError
from svc_notebook.ledger import deletion
from svc_notebook.ledger.ledger import Ledger, path_in_words, size_in_words
from svc_notebook.settings import Settings
from svc_notebook.sweeps.run_lock import lock_run

FAILED = 1  # exit status


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add the verbs of `ledger` and their options to its parser."""
    parser.description = (
        "The ledger is the file that keeps every prompt and reply. Set SVC_LEDGER to "
        "another path, or to :memory: to store nothing."
    )
    parser.set_defaults(run=_ledger)
    verbs = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="verb", required=True
    )
    description = "show the path of the file, and what sets it"
    verbs.add_parser(
        "path", help=description, description=f"{description.capitalize()}."
    )
    description = "show how many exchanges it has, and its size"
    verbs.add_parser(
        "size", help=description, description=f"{description.capitalize()}."
    )
    export_ = verbs.add_parser(
        "export",
        help="write the replies into a file",
        description="Write the replies into a file, one row for each, as the frame of "
        "svc.replies_df() has them. Nothing is sent, and no key is needed.",
    )
    export_.add_argument(
        "file",
        metavar="FILE",
        help="a .csv, .jsonl, .parquet or .xlsx file; an existing file is replaced",
    )
    export_.add_argument("--run", metavar="NAME", dest="of_run", help="only this run")
    export_.add_argument(
        "--since",
        metavar="WHEN",
        help="only what started at or after this day, such as 2026-01-31, or 30d",
    )
    export_.add_argument(
        "--no-texts",
        action="store_true",
        help="leave out prompts, replies and columns of templates",
    )
    forget = verbs.add_parser(
        "forget",
        help="delete all exchanges, or some",
        description="Delete all exchanges (requests with their replies), or some. The "
        "command says how many, and asks first.",
        usage="%(prog)s [--exchange ID | --conversation NAME |\n"
        "                                  --run NAME | --before DAY] [--yes]",
    )
    filters = forget.add_mutually_exclusive_group()
    for kind in deletion.KINDS:
        value = "ID" if kind == "exchange" else "NAME"
        help_ = f"delete this {kind} only"
        filters.add_argument(f"--{kind}", dest=f"of_{kind}", metavar=value, help=help_)
    filters.add_argument(
        "--before",
        metavar="DAY",
        help="delete only exchanges that started before this day, such as 2026-01-31",
    )
    forget.add_argument("--yes", action="store_true", help="do not ask")


def _ledger(arguments: argparse.Namespace) -> int:
    settings = Settings.from_env()
    place = settings.ledger
    if arguments.verb == "path":
        text = path_in_words(place, source=settings.sources.get("ledger", "default"))
    elif arguments.verb == "size":
        text = size_in_words(place)
    elif arguments.verb == "export":
        text = _export(arguments)
    else:
        return _forget(place, arguments)
    sys.stdout.write(f"{text}\n")
    return 0


def _export(arguments: argparse.Namespace) -> str:
    frame = replies_df(
        scope="all",
        since=arguments.since,
        run=arguments.of_run,
        texts=not arguments.no_texts,
    )
    if frame.empty:  # an empty file would replace an earlier export
        raise ParameterError(
            "No reply in the ledger fits, so nothing was written. Check --run and "
            "--since; `svc-notebook ledger path` says which ledger is in use.",
            param="run",
        )
    path = export(frame, arguments.file)
    return f"{count_in_words(len(frame), 'replies')}: {path}"


def _forget(place: str, arguments: argparse.Namespace) -> int:
    """Delete exchanges once the user has agreed; meanwhile, a run is locked."""
    names = {kind: getattr(arguments, f"of_{kind}") for kind in deletion.KINDS}
    chosen = deletion.select(before=arguments.before, **names)
    question = deletion.preview(place, chosen)
    if question and not (arguments.yes or _agrees(question)):
        sys.stdout.write("Nothing was deleted.\n")
        return FAILED
    if question and arguments.yes and chosen.kind:
        sys.stdout.write(f"{question}\n")  # the question says where texts remain
    with contextlib.ExitStack() as stack:
        if question and names["run"] is not None:
            advice = "Nothing was deleted. Stop the run there, or wait for its end."
            lock = lock_run(Ledger(place), names["run"], advice=advice)
            stack.callback(lock.release)
        sys.stdout.write(f"{deletion.forget(place, chosen)}\n")
    return 0


def _agrees(question: str) -> bool:
    """Ask at a terminal; after `!` in a cell nobody can type an answer."""
    if not sys.stdin.isatty() or "JPY_PARENT_PID" in os.environ:
        raise ParameterError(f"{question} Confirm with --yes.", param="yes")
    with contextlib.suppress(EOFError):
        return input(f"{question} Type yes to do it: ").strip().lower() == "yes"
    return False

"""The command `svc-notebook`: its arguments and its exit status.

A failure is one short message on stderr, without a traceback, and an exit status: 2 if
the command or a setting is wrong, 1 if the command failed, 130 after Ctrl-C. The status
of `recheck` is its answer: see `_STATUS`.
"""

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap
from typing import Any

from svc_notebook import Emulator, run
from svc_notebook.errors import ConfigError, SvcError
from svc_notebook.ledger_command import FAILED, add_ledger

STOPPED = 130
WRONG = 2
_PORT_MAX = 65535
_STATUS = {"as before": 0, "changed": 1, "cannot tell": 2}  # exit status of recheck


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv`, by default `sys.argv`; return its exit status."""
    _escape_unprintable()
    arguments = _read(build_parser(), sys.argv[1:] if argv is None else argv)
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:
        # The reader is gone. Without this, Python's last flush would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except SvcError as error:
        print(f"svc-notebook: {error}", file=sys.stderr)  # noqa: T201 - stderr
        if arguments.run is _recheck:
            if arguments.json:
                result = {"check": None, "verdict": None, "says": str(error)}
                sys.stdout.write(json.dumps(result) + "\n")
            return _STATUS["cannot tell"]
        return WRONG if isinstance(error, ConfigError) else FAILED
    return status


def _read(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(WRONG)
    arguments, unknown = parser.parse_known_args(words)
    if unknown and arguments.run is _lab:
        parser.error(
            f"{unknown[0]!r} is not an option of lab; put options of JupyterLab after "
            f"--: svc-notebook lab -- {shlex.join(unknown)}"
        )
    if unknown:
        parser.error(f"unrecognized arguments: {shlex.join(unknown)}")
    return arguments


class _Help(argparse.HelpFormatter):
    """Help that breaks lines at blanks only: `svc-notebook` can be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = self._split_lines(text, width - len(indent))
        return "\n".join(indent + line for line in lines)


class _Parser(argparse.ArgumentParser):
    """A parser with our help; the parsers of its commands have the same class."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - argparse's settings
        super().__init__(**settings, formatter_class=_Help)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; the reference page uses it, too."""
    parser = _Parser(
        prog="svc-notebook",
        description=(
            "Try svc_notebook, a hosted chat-completion service in Jupyter notebooks, "
            "without a key, and look after the ledger."
        ),
        epilog="Start with: svc-notebook demo (it needs no key and no address)",
    )
    parser.add_argument(
        "--version", action="version", version=f"svc-notebook {version('svc-notebook')}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add = commands.add_parser
    _add_demo(add("demo", help="run the quickstart notebook in this terminal"))
    _add_emulate(add("emulate", help="start an emulator of the service"))
    _add_lab(add("lab", help="open the lessons in JupyterLab"))
    add_ledger(add("ledger", help="show where replies are kept; export or delete some"))
    _add_recheck(add("recheck", help="say whether a model still answers as in a run"))
    _add_report(add("report", help="write a report of a run, to attach to a decision"))
    return parser


def _add_recheck(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Send some rows of a run again, compare the replies with those of the run and "
        "of earlier checks, and say whether the model has changed. The exit status is "
        "0 for as before, 1 for changed, 2 for cannot tell, also because of an error."
    )
    parser.add_argument("name", metavar="NAME", help="name of the run, or its id")
    parser.add_argument(
        "--rows",
        type=int,
        default=40,
        metavar="N",
        help="how many rows to send (default: 40)",
    )
    parser.add_argument(
        "--on", metavar="SCORE", help="the score (default: the only one)"
    )
    parser.add_argument(
        "--margin",
        type=float,
        metavar="SHARE",
        help="how much the score may differ and still be as before (default: 0.05, "
        "which is 5 points)",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.set_defaults(run=_recheck)


def _recheck(arguments: argparse.Namespace) -> int:
    recheck = run(arguments.name).recheck(
        arguments.rows, arguments.on, margin=arguments.margin
    )
    text = recheck.to_json() if arguments.json else repr(recheck)
    sys.stdout.write(f"{text}\n")
    return _STATUS[recheck.verdict]


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a report of a run into one file: the answer, what the data cannot tell, "
        "replies, plan, prompts and costs. Nothing is sent, and no key is needed."
    )
    parser.add_argument("name", metavar="NAME", help="name of the run, or its id")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a .html or .md file; an existing file is replaced (default: NAME.html)",
    )
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    written = run(arguments.name)
    out = arguments.out or Path(f"{_NOT_IN_A_NAME.sub('-', arguments.name)}.html")
    for path in written.report(out):
        sys.stdout.write(f"{path}\n")
    return 0


_NOT_IN_A_NAME = re.compile(r"[^\w.-]+")  # of a file


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run the quickstart notebook in this terminal and show its outputs as they "
        "come. The notebook is written into the folder svc-notebook-demo. An emulator "
        "on this machine answers, unless you give --service."
    )
    parser.add_argument(
        "--service",
        action="store_true",
        help="ask the real service (SVC_BASE_URL, SVC_API_KEY); this spends tokens",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the notebook (default: svc-notebook-demo, a new one)",
    )
    parser.add_argument("--no-color", action="store_true", help="use no colours")
    parser.set_defaults(run=_demo)


def _add_emulate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Start an emulator of the service on this machine (127.0.0.1) and print its "
        "address and key, for any program that uses the service. It checks keys, "
        "parameters and limits, but has no model. Ctrl-C ends it."
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="N",
        help="port to listen on (default: any free port)",
    )
    parser.add_argument(
        "--tokens-per-s",
        type=_speed,
        metavar="N",
        help="how fast replies arrive; 0 for no delay (default: reading speed)",
    )
    parser.add_argument(
        "--script",
        type=Path,
        metavar="FILE",
        default=(),
        help="JSON file with answers; python -m pydoc svc_notebook.emulator.script "
        "describes it",
    )
    parser.add_argument(
        "--text",
        choices=("answers", "filler"),
        default="answers",
        help="replies to other prompts: answers (default) says that it has none, "
        "filler is made-up prose",
    )
    parser.set_defaults(run=_emulate)


def _add_lab(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Copy the lessons into a folder and open them in JupyterLab. An emulator on "
        "this machine answers. `svc-notebook lab -- --no-browser` is for a server "
        "without a browser: it prints the address to open."
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="folder for the lessons (default: svc-notebook-tour)",
    )
    parser.add_argument(
        "options", nargs="*", metavar="OPTION", help="options of JupyterLab, after --"
    )
    parser.set_defaults(run=_lab)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(
            f"the port must be an integer from 0 to {_PORT_MAX}; got {text!r}"
        )
    return int(text)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise argparse.ArgumentTypeError(
            f"the speed must be a number >= 0; got {text!r}"
        )
    return speed


def _demo(arguments: argparse.Namespace) -> int:
    from svc_notebook.demo.terminal_demo import run_demo  # noqa: PLC0415 - for this command only

    return run_demo(
        is_service=arguments.service,
        out=arguments.out,
        is_coloured=not arguments.no_color and may_colour(os.environ),
    )


def _lab(arguments: argparse.Namespace) -> int:
    from svc_notebook.demo.lab import open_lab  # noqa: PLC0415 - for this command only

    return open_lab(arguments.dir, arguments.options)


def _emulate(arguments: argparse.Namespace) -> int:
    _end_like_ctrl_c()
    with contextlib.suppress(KeyboardInterrupt), _emulator(arguments) as emulator:
        print(  # noqa: T201 - the command's answer
            "An emulator of the service, on this machine. No model answers.\n\n"
            f"  export SVC_BASE_URL={emulator.base_url}\n"
            f"  export SVC_API_KEY={emulator.api_key}\n\n"
            "Ctrl-C ends it.",
            flush=True,
        )
        while True:
            time.sleep(3600)
    return 0


def _end_like_ctrl_c() -> None:
    """Make a closed terminal or a plain `kill` end the command like Ctrl-C."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        # a signal that nohup ignores stays ignored
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _emulator(arguments: argparse.Namespace) -> Emulator:
    start = partial(
        Emulator, port=arguments.port, script=arguments.script, text=arguments.text
    )
    speed = arguments.tokens_per_s
    if speed is None:
        return start()
    return (
        start(tokens_per_s=speed)
        if speed
        else start(tokens_per_s=None, first_token_s=0)
    )


def may_colour(environ: Mapping[str, str]) -> bool:
    """Say whether colours are wanted and can be shown (see no-color.org)."""
    is_wanted = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return is_wanted and sys.stdout.isatty()


def _escape_unprintable() -> None:
    """Print the code of a character that the terminal cannot show, without failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

"""Read a magic line: options by a shell's quoting rules, then text as typed.

Rules: pure, without IPython; an option that is not in the table is refused with the
nearest one; from the first word that is no option on, nothing is touched; behind
`ask` options still count, and then the text is whatever follows.
"""

import re
import shlex
from dataclasses import replace
from difflib import get_close_matches

from svc_notebook.errors import ParameterError

from .options import OPTIONS, Option, SvcOptions, to_number
from .subcommands import ASK

_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}
_LONG_FLAGS = {flag for flag in _BY_FLAG if flag.startswith("--")}
_REPEATABLE = {"--stop", "--with"}
_DASH = re.compile(
    "^[\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{EM DASH}"
    "\N{MINUS SIGN}-]+(?=([\\w-]+))"
)


def parse_options(line: str) -> SvcOptions:
    """Read a magic line by a shell's quoting rules, up to the first word.

    Args:
        line: What stands behind `%%svc` or `%svc`.

    Returns:
        The options; from the first word that is none, the rest is `text`, as typed.

    Raises:
        ParameterError: An option is unknown (the nearest is named), lacks its value,
            stands there twice or behind the text, or a quote is not closed.
    """
    options, rest, taken = SvcOptions(), line.strip(), set[str]()
    if rest in {"-h", "--help"}:
        return replace(options, text="help")
    while rest and _is_flag(rest.split()[0]):
        options, rest = _take(options, rest, taken)
    is_asked, behind = _behind_ask(rest)
    while is_asked and behind and _flag_of(behind.split()[0]) in _BY_FLAG:
        options, behind = _take(options, behind, taken)
    if is_asked:
        rest = f"{ASK} {behind}".rstrip()
    _check_text(rest)
    return replace(options, text=rest)


def _take(options: SvcOptions, rest: str, taken: set[str]) -> tuple[SvcOptions, str]:
    """Take an option and its value off the line, into the options."""
    token, rest = _next_word(rest)
    flag, has_value, value = token.partition("=")
    option = _BY_FLAG.get(flag) or _refuse(flag)
    name = option.flags[-1]
    if name in taken and name not in _REPEATABLE:
        raise ParameterError(f"{name} stands there twice; leave one out.", param=flag)
    taken.add(name)
    if not option.value and has_value:
        raise ParameterError(f"{flag} is a switch and takes no value.", param=flag)
    if option.value and not has_value:
        value, rest = _next_value(rest, flag, option)
    return option.take(options, value), rest


def _flag_of(word: str) -> str:
    return word.partition("=")[0]


def _behind_ask(rest: str) -> tuple[bool, str]:
    """Say whether the word `ask` comes first, and what stands behind it."""
    first = rest.split(maxsplit=1)[:1]
    return first == [ASK], rest.removeprefix(ASK).lstrip()


def _check_text(text: str) -> None:
    """Refuse a text that was meant as options; `ask` sends what follows as typed."""
    words = text.split()
    if not words:
        return
    meant = _DASH.sub(_hyphens, words[0])
    if meant != words[0] and _flag_of(meant) in _BY_FLAG:
        raise ParameterError(
            f"{words[0]!r} begins with a dash that is no hyphen, as word processors "
            f"write it. Type {meant}.",
            param="line",
        )
    late = [word for word in words if _flag_of(word) in _LONG_FLAGS]
    if late and words[0] != ASK:
        raise ParameterError(
            f"{late[0]} stands behind the text and would be sent with it. Nothing was "
            "sent. Options come first; to ask with these very words, write "
            f"`%svc ask {text}`.",
            param="line",
        )


def _hyphens(dash: re.Match[str]) -> str:
    return "-" if len(dash[1]) == 1 else "--"


_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)


def _next_word(text: str) -> tuple[str, str]:
    """Split off a word by a shell's quoting rules."""
    found = _WORD.match(text)
    if found is None or not (
        text[found.end() :][:1].isspace() or found.end() == len(text)
    ):
        raise ParameterError(
            f"The line cannot be read from here on: {text!r}. A quote is opened and "
            "not closed: close it, or put a backslash before it.",
            param="line",
        )
    return "".join(shlex.split(found[0])), text[found.end() :].lstrip()


def _is_flag(token: str) -> bool:
    is_dashed = token.startswith("-") and token != "-"  # noqa: S105 - a lone dash
    return is_dashed and to_number(token) is None


def _next_value(rest: str, flag: str, option: Option) -> tuple[str, str]:
    first = rest.split(maxsplit=1)[0] if rest else ""
    if not first or (_is_flag(first) and first.partition("=")[0] in _BY_FLAG):
        raise ParameterError(
            f"{flag} needs a value: {flag} {option.value} ({option.doc}).", param=flag
        )
    return _next_word(rest)


def _refuse(flag: str) -> Option:
    near = get_close_matches(flag, _BY_FLAG, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ParameterError(
        f"{flag} is not an option; {hint}`%svc help` lists them all.", param=flag
    )

"""Read a magic line: options by a shell's quoting rules, then text as typed.

Rules: pure, without IPython; an option that is not in the table is refused with the
nearest one; from the first word that is no option on, nothing is touched.
"""

import re
import shlex
from dataclasses import replace
from difflib import get_close_matches

from svc_notebook.errors import ParameterError

from .options import OPTIONS, Option, SvcOptions, to_number

_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}


def parse_options(line: str) -> SvcOptions:
    """Read a magic line by a shell's quoting rules, up to the first word.

    Args:
        line: What stands behind `%%svc` or `%svc`.

    Returns:
        The options; from the first word that is none, the rest is `text`, as typed.

    Raises:
        ParameterError: An option is unknown (the nearest is named), lacks its value,
            or a quote is not closed.
    """
    options = SvcOptions()
    rest = line.strip()
    if rest in {"-h", "--help"}:
        return replace(options, text="help")
    while rest and _is_flag(rest.split()[0]):
        token, rest = _next_word(rest)
        flag, has_value, value = token.partition("=")
        option = _BY_FLAG.get(flag) or _refuse(flag)
        if not option.value and has_value:
            raise ParameterError(f"{flag} is a switch and takes no value.", param=flag)
        if option.value and not has_value:
            value, rest = _next_value(rest, flag, option)
        options = option.take(options, value)
    return replace(options, text=rest)


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

"""The seam of a reply and its rest: two texts joined, and two exchanges.

A model that is asked to go on often begins with what it has written: the last line,
the word it was in, or the opening line of a code block.
"""

import re
from typing import Any
from unicodedata import category

from msgspec.structs import replace

from svc_notebook.display.markdown import fences
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.store import Ledger
from svc_notebook.service.chunk import Choice, CompletionBody, Usage

WINDOW_CHARS = 4000  # of the old text, in which a repetition is looked for
# A repetition is longer than what two texts may have in common by chance. Thai and
# other letters from there on are written without blanks, and say more each.
_LEAST_CHARS, _LEAST_THAI_CHARS, _THAI = 8, 5, "\u0e00"
_LEAST_LETTERS = 2  # of a word that is begun again; few words double their first two
_OPENER = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*([^\s`][^\n`]*)?\n")
_PART_OF_OPENER = re.compile(r"\s*(?:`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^\n`]{0,80})\Z")


def joined(old: str, new: str) -> str:
    """Return a text with its rest, without what the rest repeats of it.

    A code block that the text is in goes on, although the rest opens it again.
    """
    return old + _rest(old, new)


class Seam:
    """Joins a text and its rest while the rest arrives, to the same text as `joined`.

    It holds back the beginning of the rest for as long as that may be a repetition.
    """

    def __init__(self, old: str) -> None:
        self._old = old
        self._held = ""
        self._is_open = True

    def feed(self, text: str) -> str:
        """Take a piece of the rest; return what can be shown."""
        if not self._is_open:
            return text
        self._held += text
        return "" if _may_repeat(self._old, self._held) else self.end()

    def end(self) -> str:
        """Return what is held back."""
        held, self._held, self._is_open = self._held, "", False
        return _rest(self._old, held)


def _rest(old: str, new: str) -> str:
    opener, found = _OPENER.match(new), fences(old)
    is_in_fence = bool(found) and not found[-1].is_closed
    code = new[opener.end() :] if opener and is_in_fence else new
    # "had" and " had" may both be meant; "the" and "the" are one word
    for begun, is_direct in ((new, True), (new.lstrip(), False), (code, True)):
        if n_chars := _overlap(old, begun, is_direct=is_direct):
            return begun[n_chars:]
    is_line = not old or old.endswith("\n")
    if code is not new and opener and opener[1]:  # else it may as well close the block
        return "\n" * (not is_line and code.startswith(("  ", "\t", "\n"))) + code
    is_fence = not is_in_fence and new.lstrip(" ").startswith(("```", "~~~"))
    return "\n" * (is_fence and not is_line) + new


def _may_repeat(old: str, new: str) -> bool:
    """Whether more text can change what of the new text is a repetition."""
    window, opener = old[-WINDOW_CHARS:], _OPENER.match(new)
    begun = (new, new.lstrip(), new[opener.end() :] if opener else new)
    is_known = all(each.strip() and each not in window for each in begun)
    return not is_known or _PART_OF_OPENER.match(new) is not None


def _overlap(old: str, new: str, *, is_direct: bool) -> int:
    """Count the characters at the end of a text with which its rest begins again."""
    for n_chars in range(min(len(old), len(new), WINDOW_CHARS), 0, -1):
        end = new[:n_chars]
        if old.endswith(end) and _is_repeated(old[:-n_chars], end, is_direct):
            return n_chars
    return 0


def _is_repeated(before: str, end: str, is_direct: bool) -> bool:  # noqa: FBT001 - as above
    """Whether the end of a text, which also begins its rest, is there by mistake.

    It is not where the text is periodic by itself, such as `0, 0, 0`.
    """
    periods = range(1, len(end) // 2 + 1)
    if before.endswith(end) or any(end[n:] == end[:-n] for n in periods):
        return False
    least = _LEAST_THAI_CHARS if end[0] >= _THAI else _LEAST_CHARS
    if len(end) >= least and any(map(str.isalnum, end)):
        return True
    if "\n" in end or not end.strip():
        return False
    has_word = sum(map(str.isalpha, end)) >= _LEAST_LETTERS
    if not before or before.endswith("\n"):  # a line, such as "- "
        return has_word or not (len(end) == 1 or end.isalnum())
    is_word = _is_in_word(end[0]) and not _is_in_word(before[-1])
    return has_word and is_word and is_direct


def _is_in_word(char: str) -> bool:
    return char.isalnum() or category(char).startswith("M")


_TOKENS = ("est_prompt_tokens", "est_completion_tokens", "est_low_tokens")
_SUMS = (*_TOKENS, "est_high_tokens", "latency_s")


def join(exchange: Exchange, ledger: Ledger) -> Exchange:
    """Return an exchange that continues a reply as one that has all of the reply.

    Its text is joined; its tokens, also the most that were allowed, and its seconds are
    those of all parts that the ledger has; its messages are those before the reply.
    Everything else is as in the last part.
    """
    if exchange.origin.continues is None:
        return exchange
    *sent, so_far, _ = exchange.request.messages
    body = exchange.body or CompletionBody(choices=(Choice(),))
    text = joined(so_far.content or "", body.choices[0].text or "")
    choices = (replace(body.choices[0], text=text),)
    whole = replace(
        exchange,
        request=replace(exchange.request, messages=tuple(sent)),
        body=replace(body, choices=choices),
    )
    found = ledger.last(scope="all", exchange_id=exchange.origin.continues)
    if found is None or found.exchange_id >= exchange.exchange_id:  # ids are by time
        return whole
    before = join(found, ledger)
    max_tokens = before.max_tokens + exchange.max_tokens
    params = {**whole.request.params, "max_tokens": max_tokens}
    usages = before.body and before.body.usage, body.usage
    usage = Usage(**_sums(*usages, Usage.__struct_fields__)) if all(usages) else None
    return replace(
        whole,
        request=replace(whole.request, params=params),
        body=replace(body, choices=choices, usage=usage),
        **_sums(before, exchange, _SUMS),
    )


def _sums(first: object, last: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Add up fields; a sum is None if a number is."""
    both = {name: (getattr(first, name), getattr(last, name)) for name in names}
    return {name: None if None in pair else sum(pair) for name, pair in both.items()}

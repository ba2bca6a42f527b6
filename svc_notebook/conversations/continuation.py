"""The text of a continued reply: what asks for the rest, and how the rest is joined.

The service has no way to continue a reply (doc: Request body), so a user message after
the text so far asks for the rest. A model often begins the rest with what it has
written: the last line, the word it was in, or the opening line of a code block.
"""

import re
from typing import Any
from unicodedata import category

from msgspec.structs import replace

from svc_notebook.display.markdown import Fence, fences
from svc_notebook.exchange import Exchange
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.chunk import Choice, CompletionBody, Usage

GO_ON = (
    "Your last message stopped before its end. Go on exactly where it stopped, with "
    "the very next character: repeat nothing, add no remark, keep language and format."
)

# of the old text, in which a repetition is looked for
WINDOW_CHARS = 4000

# A repetition is longer than what two texts may have in common by chance. Thai and
# other letters from there on are written without blanks, and each letter carries more.
_LEAST_CHARS, _LEAST_THAI_CHARS, _THAI = 8, 5, "\u0e00"

# of a word that is begun again: few words repeat their first two
_LEAST_LETTERS = 2

# of one whole line: rows of a table and lines of code may be equal
_LONG_CHARS = 80

_OPENER = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*([^\s`][^\n`]*)?\n")

_PART_OF_OPENER = r"\s*(?:`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^\n`]{0,80})\Z"

# Sentences before a block is opened again; a line of code seldom looks like one.
_SENTENCE = r"\s*[^\Wa-z\d_][^\n=()\[\]{};#<>`~]{0,200}"

_REMARK = re.compile(rf"(?:{_SENTENCE}\n){{1,3}}(?={_OPENER.pattern})")

_PART = re.compile(
    rf"(?:{_SENTENCE}\n){{0,3}}(?:{_PART_OF_OPENER}|{_SENTENCE}\Z|\s*\Z)"
)


def join_text(old: str, new: str) -> str:
    """Return a text with its rest, without what the rest repeats of it.

    A code block that the text is in goes on, although the rest opens it again.
    """
    return old + _rest(old, new)


class OverlapRemover:
    """Leaves out what the rest of a reply repeats, while the rest arrives.

    It holds back the beginning of the rest for as long as that may be a repetition. The
    result is the same as that of `join_text`.
    """

    def __init__(self, old: str) -> None:
        self._old = old
        self._held = ""
        self._is_open = True
        self.note = ""  # what is left out of the rest, in words

    def feed(self, text: str) -> str:
        """Take a piece of the rest; return what can be shown."""
        if not self._is_open:
            return text
        self._held += text
        return "" if _may_repeat(self._old, self._held) else self.end()

    def end(self) -> str:
        """Return what is held back."""
        held, self._held, self._is_open = self._held, "", False
        rest = _rest(self._old, held)
        if (n_chars := len(held) - len(rest)) > 0:
            self.note = f"a repetition of {n_chars} characters left out"
        return rest


def _rest(old: str, new: str) -> str:
    block, new = _open_block(old), _without_remark(old, new)
    opener = _OPENER.match(new)
    code = new[opener.end() :] if opener and block else new
    # "had" and " had" may both be meant; "the" and "the" are one word
    for begun, is_direct in ((new, True), (new.lstrip(), False), (code, True)):
        if n_chars := _overlap(old, begun, is_direct=is_direct):
            return begun[n_chars:]
    bare = old.rstrip(" \t")  # of a line that goes on after a blank
    if bare != old and (n_chars := _overlap(bare, code, is_direct=True)):
        return code[n_chars:].lstrip(" \t")
    is_line = not old or old.endswith("\n")
    if code is not new and opener and opener[1]:  # else it may as well close the block
        return "\n" * (not is_line and code.startswith(("  ", "\t", "\n"))) + code
    is_fence = new.lstrip(" ").startswith(("```", "~~~"))
    return "\n" * (is_fence and not is_line) + new


def _open_block(old: str) -> Fence | None:
    return next((fence for fence in fences(old)[-1:] if not fence.is_closed), None)


def _without_remark(old: str, new: str) -> str:
    """Leave out a remark before the open code block is opened again."""
    block, remark = _open_block(old), _REMARK.match(new)
    language = remark and block and (remark[1] or "").split()[:1]
    is_again = language and block and language[0].lower() == block.language
    return new[remark.end() :] if remark and is_again else new


def _may_repeat(old: str, new: str) -> bool:
    """Whether more text can change what of the new text is left out."""
    if _PART.match(new) and _open_block(old):
        return True
    new = _without_remark(old, new)
    window, opener = old[-WINDOW_CHARS:], _OPENER.match(new)
    begun = (new, new.lstrip(), new[opener.end() :] if opener else new)
    is_known = all(start.strip() and start not in window for start in begun)
    return not is_known or re.match(_PART_OF_OPENER, new) is not None


def _overlap(old: str, new: str, *, is_direct: bool) -> int:
    """Count the characters at the end of a text with which its rest begins again."""
    for n_chars in range(min(len(old), len(new), WINDOW_CHARS), 0, -1):
        end, before, after = new[:n_chars], old[:-n_chars], new[n_chars:]
        if old.endswith(end) and _is_repeated(before, end, after, is_direct):
            return n_chars
    return 0


def _is_repeated(before: str, end: str, after: str, is_direct: bool) -> bool:  # noqa: FBT001 - as above
    """Whether the end of a text, which also begins its rest, is surely a repetition.

    It is not sure if the text itself is periodic, such as `0, 0, 0`, or if a whole line
    comes again, such as a row of a table.
    """
    periods = range(1, len(end) // 2 + 1)
    if before.endswith(end) or any(end[n:] == end[:-n] for n in periods):
        return False
    is_line = not before or before.endswith("\n")
    if "\n" in end:
        n_lines = sum(map(bool, map(str.strip, end.splitlines())))
        is_long = end.endswith("\n") and len(end) >= _LONG_CHARS
        return is_line and (n_lines > 1 or is_long)
    if not is_direct and after[:1] in {"", "\n"}:
        return False  # the next line may be equal
    least = _LEAST_THAI_CHARS if end[0] >= _THAI else _LEAST_CHARS
    has_word = sum(map(str.isalpha, end)) >= _LEAST_LETTERS
    is_long = len(end) >= least
    if is_line and (is_long or after):  # a line, such as "- "
        return has_word or not (len(end) == 1 or end.isalnum())
    is_word = _is_in_word(end[0]) and not _is_in_word(before[-1:])
    if is_long and (end[0] >= _THAI or is_word or not _is_in_word(end[0])):
        return has_word
    return bool(end.strip() and after) and has_word and is_word and is_direct


def _is_in_word(char: str) -> bool:
    return char.isalnum() or (char != "" and category(char).startswith("M"))


_TOKENS = ("est_prompt_tokens", "est_completion_tokens", "est_low_tokens")

_SUMS = (*_TOKENS, "est_high_tokens", "latency_s")


def join_exchange(exchange: Exchange, ledger: Ledger) -> Exchange:
    """Return an exchange that continues a reply as one that has all of the reply.

    Its text is joined; its tokens, also the most that were allowed, and its seconds are
    those of all parts that the ledger has; its messages are those before the reply.
    Everything else is as in the last part.
    """
    if exchange.origin.continues is None:
        return exchange
    *sent, so_far, _ = exchange.request.messages
    body = exchange.body or CompletionBody(choices=(Choice(),))
    text = join_text(so_far.content or "", body.choices[0].text or "")
    choices = (replace(body.choices[0], text=text),)
    whole = replace(
        exchange,
        request=replace(exchange.request, messages=tuple(sent)),
        body=replace(body, choices=choices),
    )
    earlier = ledger.last(scope="all", exchange_id=exchange.origin.continues)
    if (
        earlier is None or earlier.exchange_id >= exchange.exchange_id
    ):  # ids are by time
        return whole
    before = join_exchange(earlier, ledger)
    thought = [choice.reasoning for choice in (*before.choices[:1], *choices)]
    choices = (replace(choices[0], reasoning="\n\n".join(filter(None, thought))),)
    params = dict(whole.request.params)
    if before.max_tokens is not None and exchange.max_tokens is not None:
        params["max_tokens"] = before.max_tokens + exchange.max_tokens
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

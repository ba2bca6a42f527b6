"""The text of a continued reply: how to ask for the rest, and how to join it.

The service cannot continue a reply (doc: Request body), so the text so far is sent with
a user message that asks for the rest. Models often begin the rest by repeating the end
of that text: the last line, the unfinished word, or the first line of a code block.
"""

import re
from unicodedata import category

from msgspec.structs import replace

from svc_notebook.display.markdown import Fence, fences
from svc_notebook.exchange import Charge, Exchange, add_up
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.service.chunk import Choice, CompletionBody, Usage

GO_ON = (
    "Your last message stopped before its end. Go on exactly where it stopped, with "
    "the very next character: repeat nothing, add no remark, keep language and format."
)

# of the old text: repetitions are searched in them
WINDOW_CHARS = 4000

# A shorter overlap may be chance. Fewer characters are enough in Thai, and in the
# scripts after it in Unicode: there each character says more.
_MIN_CHARS, _MIN_THAI_CHARS, _THAI = 8, 5, "\u0e00"

# of an unfinished word that the rest begins with: few words begin with their last two
_MIN_LETTERS = 2

# A single repeated line must be this long: rows of a table or lines of code may be
# equal.
_LONG_CHARS = 80

_OPENER = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*([^\s`][^\n`]*)?\n")

_PART_OF_OPENER = r"\s*(?:`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^\n`]{0,80})\Z"

# A sentence before the code block is opened again; code rarely looks like one.
_SENTENCE = r"\s*[^\Wa-z\d_][^\n=()\[\]{};#<>`~]{0,200}"

_REMARK = re.compile(rf"(?:{_SENTENCE}\n){{1,3}}(?={_OPENER.pattern})")

_PART = re.compile(
    rf"(?:{_SENTENCE}\n){{0,3}}(?:{_PART_OF_OPENER}|{_SENTENCE}\Z|\s*\Z)"
)


def join_text(old: str, new: str) -> str:
    """Join a text and its rest, leaving out what the rest repeats.

    If the text ends in an open code block and the rest opens the block again, the block
    simply continues.
    """
    return old + _without_repetition(old, new)


class OverlapRemover:
    """Leaves out what the rest of a reply repeats, while the rest is streamed.

    It holds back the beginning of the rest as long as it may be a repetition. The
    result is the same as that of `join_text`.
    """

    def __init__(self, old: str) -> None:
        self._old = old
        self._held = ""
        self._is_open = True
        self.note = ""  # a sentence on what was left out

    def feed(self, text: str) -> str:
        """Take a piece of the rest; return what can be shown."""
        if not self._is_open:
            return text
        self._held += text
        return "" if _may_repeat(self._old, self._held) else self.end()

    def end(self) -> str:
        """Return what is held back."""
        held, self._held, self._is_open = self._held, "", False
        rest = _without_repetition(self._old, held)
        if (n_chars := len(held) - len(rest)) > 0:
            self.note = f"a repetition of {n_chars} characters left out"
        return rest


def _without_repetition(old: str, new: str) -> str:
    """Return the rest of a text without what it repeats at its beginning."""
    block, new = _open_block(old), _without_remark(old, new)
    opener = _OPENER.match(new)
    code = new[opener.end() :] if opener and block else new
    # the rest may begin with a blank, or open the code block again
    for start, is_direct in ((new, True), (new.lstrip(), False), (code, True)):
        if n_chars := _overlap(old, start, is_direct=is_direct):
            return start[n_chars:]
    bare = old.rstrip(" \t")  # the text may end in blanks that the rest leaves out
    if bare != old and (n_chars := _overlap(bare, code, is_direct=True)):
        return code[n_chars:].lstrip(" \t")
    is_line = not old or old.endswith("\n")
    # without a language, it may close the block instead
    if code is not new and opener and opener[1]:
        return "\n" * (not is_line and code.startswith(("  ", "\t", "\n"))) + code
    is_fence = new.lstrip(" ").startswith(("```", "~~~"))
    return "\n" * (is_fence and not is_line) + new


def _open_block(old: str) -> Fence | None:
    return next((fence for fence in fences(old)[-1:] if not fence.is_closed), None)


def _without_remark(old: str, new: str) -> str:
    """Leave out a remark before the rest opens the code block again."""
    block, remark = _open_block(old), _REMARK.match(new)
    language = remark and block and (remark[1] or "").split()[:1]
    is_again = language and block and language[0].lower() == block.language
    return new[remark.end() :] if remark and is_again else new


def _may_repeat(old: str, new: str) -> bool:
    """Whether more text could change what is left out of the rest."""
    if _PART.match(new) and _open_block(old):
        return True
    new = _without_remark(old, new)
    window, opener = old[-WINDOW_CHARS:], _OPENER.match(new)
    begun = (new, new.lstrip(), new[opener.end() :] if opener else new)
    is_known = all(start.strip() and start not in window for start in begun)
    return not is_known or re.match(_PART_OF_OPENER, new) is not None


def _overlap(old: str, new: str, *, is_direct: bool) -> int:
    """Count the characters at the end of a text that its rest repeats."""
    for n_chars in range(min(len(old), len(new), WINDOW_CHARS), 0, -1):
        end, before, after = new[:n_chars], old[:-n_chars], new[n_chars:]
        if old.endswith(end) and _is_repeated(before, end, after, is_direct):
            return n_chars
    return 0


def _is_repeated(before: str, end: str, after: str, is_direct: bool) -> bool:  # noqa: FBT001 - as above
    """Whether text that ends the old text and begins its rest is surely a repetition.

    It is not sure if the text is periodic, such as `0, 0, 0`, or if a whole line may
    occur twice, such as a row of a table.
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
        return False  # a new line that happens to be equal
    least = _MIN_THAI_CHARS if end[0] >= _THAI else _MIN_CHARS
    has_word = sum(map(str.isalpha, end)) >= _MIN_LETTERS
    is_long = len(end) >= least
    if is_line and (is_long or after):  # a whole line, or its beginning such as "- "
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
    """Join a continuation with the reply that it continues, as one exchange.

    The texts are joined. Tokens, `max_tokens` and seconds are added up over all parts
    in the ledger. The messages are those before the reply. Everything else is taken
    from the last part.
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
    # ids sort by time
    if earlier is None or earlier.exchange_id >= exchange.exchange_id:
        return whole
    before = join_exchange(earlier, ledger)
    reasonings = [choice.reasoning for choice in (*before.choices[:1], *choices)]
    choices = (replace(choices[0], reasoning="\n\n".join(filter(None, reasonings))),)
    params = dict(whole.request.params)
    if before.max_tokens is not None and exchange.max_tokens is not None:
        params["max_tokens"] = before.max_tokens + exchange.max_tokens
    usages = before.body and before.body.usage, body.usage
    usage = Usage(**add_up(*usages, Usage.__struct_fields__)) if all(usages) else None
    return replace(
        whole,
        request=replace(whole.request, params=params),
        body=replace(body, choices=choices, usage=usage),
        **add_up(before, exchange, _SUMS),
    )


def charge_of(exchange: Exchange, ledger: Ledger) -> Charge:
    """Add up what a reply was charged for: its rounds, tries and parts in the ledger.

    A request that is not in the ledger any more adds nothing.
    """
    charge = Charge.of(exchange)
    while before_id := exchange.origin.continues or exchange.origin.follows:
        earlier = ledger.last(scope="all", exchange_id=before_id)
        # ids sort by time
        if earlier is None or earlier.exchange_id >= exchange.exchange_id:
            break
        exchange, charge = earlier, Charge.of(earlier) + charge
    return charge

"""What is wrong with a value that a model wrote, in words for the model.

Rules: every fault is one sentence that names the place, what stands there and what is
allowed, so that the model can mend it; what the model wrote is shown short and
printable.
"""

import json

from svc_notebook.service.message import printable

MAX_SHOWN_CHARS = 60
MAX_FAULTS = 8
MAX_ALLOWED = 40
_JSON_WORDS = {
    dict: "an object",
    list: "an array",
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


UNREAD = object()
"""What a reading returns after a fault; it is never used."""


class Faults:
    """A growing list of faults; only the first few are kept."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.n_more = 0

    def __bool__(self) -> bool:
        return bool(self.sentences)

    def add(self, sentence: str) -> object:
        """Take a fault in."""
        if len(self.sentences) < MAX_FAULTS:
            self.sentences.append(sentence)
        else:
            self.n_more += 1
        return UNREAD

    def wrong(self, at: str, value: object, wanted: str) -> object:
        """Take in that a value is not what it has to be."""
        return self.add(f"{at} is {shown(value)}; it has to be {wanted}.")

    def take(self, others: "Faults") -> object:
        """Take in what another list holds."""
        for sentence in others.sentences:
            self.add(sentence)
        self.n_more += others.n_more
        return UNREAD

    def told(self) -> tuple[str, ...]:
        """Return the faults as sentences, the number left out among them."""
        more = (f"There are {self.n_more} more faults.",) if self.n_more else ()
        return (*self.sentences, *more)


def shown(value: object) -> str:
    """Show a JSON value short: its kind, and itself where that says more."""
    kind = _JSON_WORDS.get(type(value), type(value).__name__)
    if isinstance(value, dict | list) or value is None:
        return kind
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # an integer of thousands of digits
        return kind
    return f"{kind}, {short(text)}"


def short(text: str, n_chars: int = MAX_SHOWN_CHARS) -> str:
    """Return a text on one line, printable, its end cut off where it is long."""
    return printable(text if len(text) <= n_chars else f"{text[: n_chars - 3]}...")


def inside(at: str, name: str) -> str:
    """Name a place inside another: `location.city`."""
    return f"{at}.{short(name)}" if at else short(name)


def listed(values: tuple[object, ...]) -> str:
    """Write allowed values as JSON, in a row."""
    texts = [short(json.dumps(value, ensure_ascii=False)) for value in values]
    more = len(texts) - MAX_ALLOWED
    if more > 0:
        texts = [*texts[:MAX_ALLOWED], f"... ({more} more)"]
    return ", ".join(texts)

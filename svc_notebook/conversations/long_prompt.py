"""Which prompts are so long that they are folded, and what of one stays in sight."""

from unicodedata import category

from svc_notebook.display.number_words import count_in_words

ROW_CHARS = 80  # of a long line; the panel's prompts are as wide, if there is room
MAX_ROWS = 12  # of a prompt that is not folded
SHOWN_ROWS = 8  # of a folded prompt; chat.css has the same number


def whole_label(text: str) -> str:
    """Return the line that opens a long text; "" if the text is not folded."""
    lines = text.rstrip("\n").split("\n")
    if sum(map(_n_rows, lines)) <= MAX_ROWS:
        return ""
    if len(lines) > SHOWN_ROWS:
        return f"All {count_in_words(len(lines), 'lines')}"
    return f"All {count_in_words(len(text), 'characters')}"


def split_long(text: str) -> tuple[str, str]:
    """Return the first rows of a text, and the rest; a short text has no rest.

    The first rows end with a line, or with a word of a very long line.
    """
    if not whole_label(text):
        return text, ""
    end = n_rows = 0
    for line in text.split("\n"):
        if n_rows + _n_rows(line) > SHOWN_ROWS:
            break
        n_rows += _n_rows(line)
        end += len(line) + 1
    if n_rows < SHOWN_ROWS // 2:
        end += ROW_CHARS * (SHOWN_ROWS - n_rows)
        end = text.rfind(" ", end - ROW_CHARS, end) + 1 or end
    # Marks stay with their letter. HTML drops a line end at the start of <pre>.
    while end < len(text) and (text[end] == "\n" or category(text[end])[0] == "M"):
        end += 1
    return text[:end], text[end:]


def rest_words(shown: str, rest: str) -> str:
    """Say how much the rest of a long text is, such as "55 more lines"."""
    if shown.endswith("\n"):
        return count_in_words(len(rest.rstrip("\n").split("\n")), "more lines")
    return count_in_words(len(rest), "more characters")


def _n_rows(line: str) -> int:
    return len(line) // ROW_CHARS + 1

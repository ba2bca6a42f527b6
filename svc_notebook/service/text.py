"""Text that can be sent, and text that can be shown.

Rules: every text of a request must have a UTF-8 form; what a service said is shown
with everything that could steer a terminal, or hide itself, as an escape.
"""

from svc_notebook.errors import ParameterError


def check_text(text: str, *, param: str) -> str:
    """Return the text unchanged if UTF-8 can carry it.

    Raises:
        ParameterError: It holds half of a surrogate pair.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        where = problem.start
    else:
        return text
    raise ParameterError(
        f"{param} holds half of a surrogate pair at position {where}, which UTF-8 "
        "cannot carry; remove it, for example with "
        "text.encode('utf-8', 'replace').decode().",
        param=param,
    )


def printable(text: str) -> str:
    """Return the text with everything that is not printable as an escape.

    Control characters, marks of writing direction and invisible ones are such.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text.encode("utf-8", "replace").decode()
    )

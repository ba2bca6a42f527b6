"""Asking before a large run.

Rules: nobody is asked twice in one go; where nobody can answer, nothing is sent.
"""

from svc_notebook.errors import ParameterError


def check_threshold(confirm_above: object) -> None:
    """Refuse what is no number of requests.

    Raises:
        ParameterError: It is none.
    """
    is_number = isinstance(confirm_above, int) and not isinstance(confirm_above, bool)
    if confirm_above is not None and not (is_number and confirm_above >= 0):  # type: ignore[operator]  # just tested
        raise ParameterError(
            f"confirm_above={confirm_above!r} is no number of requests; give one of at "
            "least 0, or None to be asked never.",
            param="confirm_above",
        )


def confirmed(question: str) -> bool:
    """Ask whoever sits there, and say whether they agree.

    Raises:
        ParameterError: Nobody can answer; nothing was sent.
    """
    try:
        answer = input(f"{question} [y/N] ")
    except (EOFError, NotImplementedError):  # IPython's refusal is one of the latter
        pass
    else:
        return answer.strip().lower() in {"y", "yes"}
    raise ParameterError(
        f"{question} Nobody can answer here, so nothing was sent; plan it with a "
        "larger confirm_above, or None.",
        param="confirm_above",
    )

"""What the document advises, said where it helps and never enforced.

Rules: pure; a word of advice names its section; nothing is refused here.
"""

import re
import warnings
from collections import Counter
from collections.abc import Mapping

BOTH_CHANGED = (
    "temperature and top_p are both changed; the document advises to change one of "
    "them (doc: Request body)"
)
REPEATS = (
    "the reply repeats itself; --repetition-penalty 1.05 is suggested then "
    "(doc: Request body)"
)
_MIN_CHARS = 12
_TIMES = 4
_PIECE = re.compile(r"[^.!?\n。ฯ]+[.!?\n。ฯ]*")


def on_params(params: Mapping[str, object]) -> str | None:
    """Say what the document advises about these parameters; None for nothing.

    Args:
        params: As sent, by the document's names.
    """
    is_both = {"temperature", "top_p"} <= {
        name for name, value in params.items() if value is not None
    }
    return BOTH_CHANGED if is_both else None


def warn_on_params(params: Mapping[str, object], *, stacklevel: int = 2) -> None:
    """Warn of what the document advises about these parameters.

    Args:
        params: As sent, by the document's names.
        stacklevel: Whose line is named: 2 is the caller's caller.
    """
    advice = on_params(params)
    if advice is not None:
        warnings.warn(advice, UserWarning, stacklevel=stacklevel + 1)


def on_reply(text: str, params: Mapping[str, object]) -> str | None:
    """Say what the document suggests for such a reply; None for nothing.

    Args:
        text: The reply.
        params: As sent; a repetition penalty above 1 is advice taken.
    """
    penalty = params.get("repetition_penalty")
    has_penalty = isinstance(penalty, (int, float)) and penalty > 1
    return REPEATS if not has_penalty and repeats_itself(text) else None


def repeats_itself(text: str) -> bool:
    """Say whether the same sentence or line comes again and again."""
    pieces = (piece.strip() for piece in _PIECE.findall(text))
    counts = Counter(piece for piece in pieces if len(piece) >= _MIN_CHARS)
    return bool(counts) and max(counts.values()) >= _TIMES

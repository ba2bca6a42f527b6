"""Why requests of a run failed: a line an error, with how often it came.

Rules: pure; failures that differ only in numbers are one; an error's own words say
what to do.
"""

import re
from collections import Counter
from collections.abc import Iterable

from svc_notebook.exchange import Failure

SHOWN = 5
_REASON_CHARS = 480  # the way out stands at the end
_NUMBER = re.compile(r"\d+")


def reasons_of(failures: Iterable[Failure]) -> list[str]:
    """Return the reasons, the most frequent first; beyond some they are counted."""
    counts: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], Failure] = {}
    for failure in failures:
        plain = _NUMBER.sub("0", failure.message)
        mark = failure.type, failure.http_status, failure.code, failure.param, plain
        counts[mark] += 1
        first.setdefault(mark, failure)
    lines = [_line(first[mark], n) for mark, n in counts.most_common(SHOWN)]
    n_more = len(counts) - len(lines)
    return [*lines, f"{n_more} more reasons are in replies_df()"] if n_more else lines


def _line(failure: Failure, n: int) -> str:
    message = " ".join(failure.message.split())
    if len(message) > _REASON_CHARS:
        message = message[: _REASON_CHARS - 3] + "..."
    status = "" if failure.http_status is None else f" ({failure.http_status})"
    return f"{n} x {failure.type}{status}: {message}"

"""What nobody foresaw, as an error of ours.

Rules: the foreign error's own words and frames are left out, since nobody knows what
they hold; where it arose is said, so that it can be mended.
"""

from pathlib import Path

from svc_notebook.errors import SvcError


def unforeseen(problem: Exception) -> SvcError:
    """Build the error for something that should not have happened."""
    trace = problem.__traceback__
    place = ""
    while trace is not None:
        name = Path(trace.tb_frame.f_code.co_filename).name
        place = f" in {name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return SvcError(
        f"The package failed by itself ({type(problem).__name__}{place}). The request "
        "was not asked again, since it may have been paid for. Ask again; if it stays "
        "so, please report this line."
    )

"""A file written whole, or left as it was.

Rules: what is written lies beside its place until it is complete; a failure leaves
what was there, and is an error of ours.
"""

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from svc_notebook.errors import ParameterError, SvcError


def write_whole(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Have a file written, and put it in its place when it is complete.

    Args:
        path: Its place; `~` is the user's home.
        write: Writes the file that it is given.

    Returns:
        The place.

    Raises:
        ParameterError: The file cannot be written.
    """
    try:
        place = Path(path).expanduser()
        part = place.with_name(f".{place.name}.{uuid4().hex[:8]}.part")
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            write(part)
            if place.exists():
                part.chmod(place.stat().st_mode & 0o777)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except SvcError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
    else:
        return place
    raise ParameterError(
        f"{str(path)!r} cannot be written: {reason}. What was there is as it was; name "
        "a file in a folder that exists and that you can write.",
        param="path",
    )

"""`.env`: the service's address and its key, from a file in the notebook's folder.

    SVC_BASE_URL=https://HOST/v1
    SVC_API_KEY=...

The environment comes first. The folder may be somebody else's, so its address is used
only with the key beside it, and only if the environment has neither. Other settings
are not read from it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import StringIO
from pathlib import Path
from stat import S_ISREG

ENV_FILE = ".env"
ADDRESS, KEY = "SVC_BASE_URL", "SVC_API_KEY"
IN_FILE = f" in {ENV_FILE}"
ADDRESS_IN_FILE, KEY_IN_FILE = ADDRESS + IN_FILE, KEY + IN_FILE  # where a value is from
_MOST_BYTES = 100_000  # more is not a file of settings


@dataclass(frozen=True, slots=True)
class EnvFile:
    """What a `.env` file says; it never shows a value.

    Attributes:
        values: Its variables; those that are empty are left out.
        problem: Why it cannot be read; "" if it can.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    problem: str = ""

    def value(self, name: str) -> str:
        """Return a variable's value; "" if it has none."""
        return self.values.get(name, "")

    def address(self, environ: Mapping[str, str]) -> str:
        """Return the address to use; "" if there is none, or it must not be used."""
        is_whole = bool(self.value(ADDRESS) and self.value(KEY))
        is_alone = not any(environ.get(name, "").strip() for name in (ADDRESS, KEY))
        return self.value(ADDRESS) if is_whole and is_alone else ""

    def completed(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with the address and the key that it takes from here.

        They are for another process, whose working folder may be another.
        """
        found = dict(environ)
        if address := self.address(environ):
            return found | {ADDRESS: address, KEY: self.value(KEY)}
        if self.value(KEY) and not (self.value(ADDRESS) or found.get(KEY, "").strip()):
            found[KEY] = self.value(KEY)
        return found

    def note(self, environ: Mapping[str, str]) -> str:
        """Say why the file or its address is not used; "" if that needs no words."""
        if self.problem:
            return f"The file {ENV_FILE} in this folder is not read: {self.problem}."
        if environ.get(ADDRESS, "").strip() or not self.value(ADDRESS):
            return ""
        if not self.value(KEY):
            return (
                f"{ADDRESS} in {ENV_FILE} is not used, since {KEY} is not in that "
                "file: a key from elsewhere is not sent to a file's address. Write "
                f"both into {ENV_FILE}, or choose the address: `%svc use ADDRESS`."
            )
        if not environ.get(KEY, "").strip():
            return ""
        return (
            f"{ADDRESS} in {ENV_FILE} is not used, since {KEY} is set outside it: that "
            f"key is not sent to a file's address. Unset {KEY} to use the file, or "
            "choose the address: `%svc use ADDRESS`."
        )


def read_env_file() -> EnvFile:
    """Read the file in the working folder, if there is one and it has changed."""
    try:
        path = os.path.join(os.getcwd(), ENV_FILE)  # noqa: PTH118, PTH109 - each request asks
        found = os.stat(path)  # noqa: PTH116 - as above
    except OSError:  # there is none, or the folder is gone
        return EnvFile()
    if not S_ISREG(found.st_mode):  # such as a virtual environment of this name
        return EnvFile()
    if found.st_size > _MOST_BYTES:
        return EnvFile(problem=f"it has more than {_MOST_BYTES} bytes")
    return _read(path, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=4)
def _read(path: str, _stamp: object) -> EnvFile:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as problem:
        return EnvFile(problem=problem.strerror or "it cannot be opened")
    except UnicodeDecodeError:
        return EnvFile(problem="it is not UTF-8")
    from dotenv import dotenv_values  # noqa: PLC0415 - only where there is a file

    # Nothing is expanded: "$" is an ordinary letter of a key.
    found = dotenv_values(stream=StringIO(text), interpolate=False)
    given = {name: (value or "").strip() for name, value in found.items()}
    return EnvFile({name: value for name, value in given.items() if value})

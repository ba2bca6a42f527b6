"""The types of the panel's messages, as the scripts of `static/` document them."""

import re
from pathlib import Path

from svc_notebook import panels

Fields = dict[str, str]
_SCRIPTS = sorted(Path(panels.__path__[0], "static").glob("*.js"))
_SOURCE = "".join(each.read_text("utf-8") for each in _SCRIPTS)
_TYPE = re.compile(r"@typedef \{\{(.*?)\}\} (\w+)", re.DOTALL)


def _fields(body: str) -> Fields:
    words = " ".join(body.replace("*", " ", body.count("\n *")).split())
    return dict(re.findall(r"(\w+): ([^,]+)", words))


TYPES: dict[str, Fields] = {
    name: _fields(body) for body, name in _TYPE.findall(_SOURCE)
}
"""The fields of each type, with the type of each."""


def of_kind(ending: str) -> dict[str, Fields]:
    """Return the messages whose type's name ends so, by what `t` is."""
    return {
        fields["t"].strip('"'): fields
        for name, fields in TYPES.items()
        if name.endswith(ending)
    }

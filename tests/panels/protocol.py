"""The types of a panel's messages, as the scripts of `static/` document them."""

import re
from functools import cache
from pathlib import Path

from svc_notebook import panels

Fields = dict[str, str]
_STATIC = Path(panels.__path__[0], "static")
_TYPE = re.compile(r"@typedef \{\{(.*?)\}\} (\w+)", re.DOTALL)


def _fields(body: str) -> Fields:
    words = " ".join(body.replace("*", " ", body.count("\n *")).split())
    return dict(re.findall(r"(\w+): ([^,]+)", words))


@cache
def types_of(panel: str) -> dict[str, Fields]:
    """Return the fields of each type of a kind of panel, with the type of each."""
    paths = [*_STATIC.glob("*.js"), *(_STATIC / panel).glob("*.js")]
    source = "".join(path.read_text("utf-8") for path in sorted(paths))
    return {name: _fields(body) for body, name in _TYPE.findall(source)}


def of_kind(ending: str, panel: str = "chat") -> dict[str, Fields]:
    """Return the messages whose type's name ends so, by what `t` is."""
    return {
        fields["t"].strip('"'): fields
        for name, fields in types_of(panel).items()
        if name.endswith(ending)
    }

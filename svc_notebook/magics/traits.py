"""The defaults of the magic as traits, for `%config SvcMagics`.

Rules: one trait a parameter of the document, made from the one table; a value is
checked by the check that requests meet, when it is set.
"""

from typing import Any

from traitlets import Any as AnyTrait
from traitlets import Bool, HasTraits, TraitError, Unicode
from traitlets.config import Configurable

from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import DEFAULT_MODEL
from svc_notebook.service.check import check
from svc_notebook.service.params import PARAMS

KEYWORDS = {"fit", "service"}


class ParamTrait(AnyTrait):
    """A parameter of a request; None sends none."""

    def validate(self, _: HasTraits, value: object) -> object:
        """Refuse what the service document does not allow."""
        if value is None or (self.name == "max_tokens" and value in KEYWORDS):
            return value
        try:
            return check(str(self.name), value)
        except ParameterError as error:
            reason = str(error)
        raise TraitError(reason)


def _trait(name: str, text: str) -> ParamTrait:
    default = "fit" if name == "max_tokens" else None
    return ParamTrait(default, allow_none=True, help=text).tag(config=True)


class SvcTraits(Configurable):
    """What applies where a magic line does not say."""

    model = Unicode(DEFAULT_MODEL, help="model to ask").tag(config=True)
    system = Unicode("", help="system message in front").tag(config=True)
    show_traceback = Bool(
        default_value=False, help="show the full traceback of an error"
    ).tag(config=True)
    locals().update({param.name: _trait(param.name, param.doc) for param in PARAMS})

    def defaults(self) -> dict[str, Any]:
        """Return the defaults by name; those that are None are left out."""
        names = ("model", "system", *(param.name for param in PARAMS))
        values = {name: getattr(self, name) for name in names}
        return {
            name: value for name, value in values.items() if value not in (None, "")
        }

"""The defaults of the magic as traits, for `%config SvcMagics`.

A value is checked when it is set, by the same checks as in a request.
"""

from collections.abc import Callable, MutableMapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from traitlets import Any as AnyTrait
from traitlets import Bool, Enum, HasTraits, TraitError, Unicode, validate
from traitlets.config import Configurable

from svc_notebook.errors import ConfigError, LedgerError, ParameterError
from svc_notebook.service.params import PARAMS, check, check_extra
from svc_notebook.service.request import check_model

if TYPE_CHECKING:  # loads most of the package, which `%load_ext` does without
    from svc_notebook.session import Session

CONFIRMATIONS = ("marked", "all", "none")


def _session() -> "Session":
    from svc_notebook.session import current  # noqa: PLC0415 - `%load_ext` needs no session

    return current()


class ParamTrait(AnyTrait):
    """A parameter of a request; None leaves it out."""

    def validate(self, _: HasTraits, value: object) -> object:
        """Refuse what the service document does not allow."""
        from svc_notebook.tokens import check_max_tokens  # noqa: PLC0415 - as above

        info = _session().info_of(_session().settings.model)
        try:
            if self.name == "max_tokens":
                return check_max_tokens(value, info)
            return None if value is None else check(str(self.name), value, info)
        except ParameterError as error:
            raise TraitError(str(error)) from None


class ExtraTrait(AnyTrait):
    """Fields that the document does not show; None for none."""

    def validate(self, _: HasTraits, value: object) -> object:
        """Refuse what is not JSON, and fields that have their own trait."""
        from svc_notebook.wire.encode import encodable  # noqa: PLC0415 - as above

        try:
            return encodable(check_extra(value)) or None
        except ParameterError as error:
            raise TraitError(str(error)) from None


class ModelTrait(AnyTrait):
    """The model of this kernel's session, however it was chosen."""

    info_text = "the id of a model"

    def get(self, _: HasTraits, cls: object = None) -> str:  # noqa: ARG002 - traitlets calls it so
        """Return the model in use."""
        return _session().settings.model

    def validate(self, _: Any, value: object) -> str:  # noqa: ANN401 - traitlets'
        """Refuse what cannot be the id of a model."""
        try:
            return check_model(value)
        except ParameterError as error:
            raise TraitError(str(error)) from None

    def set(self, obj: HasTraits, value: Any) -> None:  # noqa: ANN401 - as typed
        """Use another model from now on; refuse what cannot be a model id."""
        from svc_notebook.svc_use import use_model  # noqa: PLC0415 - as above

        old = _session().settings.model
        model = self.validate(obj, value)
        if model != old:
            use_model(_session(), model, source="%config SvcMagics.model")
            obj._notify_trait(str(self.name), old, model)  # noqa: SLF001 - as traitlets' own set


class PathTrait(AnyTrait):
    """A file of this kernel's session; empty or None means the environment's file."""

    info_text = "a path, or '' for the path that the environment sets"

    def get(self, _: HasTraits, cls: object = None) -> str:  # noqa: ARG002 - traitlets calls it so
        """Return the path of the file in use; empty if there is none."""
        return getattr(_session().settings, str(self.name)) or ""

    def set(self, obj: HasTraits, value: Any) -> None:  # noqa: ANN401 - as typed
        """Use another file from now on; refuse one that cannot be used."""
        from svc_notebook.svc_use import use_path  # noqa: PLC0415 - as above

        if not isinstance(value, (str, PathLike, type(None))):
            self.error(obj, value)
        name, path = str(self.name), "" if value is None else str(value).strip()
        try:
            source = f"%config SvcMagics.{name}"
            use_path(_session(), name, path or None, source=source)
        except (ConfigError, LedgerError) as error:
            raise TraitError(str(error)) from None


class ReuseTrait(AnyTrait):
    """Whether recorded replies are reused, in this kernel's session."""

    info_text = "True or False"

    def get(self, _: HasTraits, cls: object = None) -> bool:  # noqa: ARG002 - as above
        """Return the setting in force."""
        return _session().settings.reuse

    def set(self, obj: HasTraits, value: Any) -> None:  # noqa: ANN401 - as typed
        """Change the setting for cells, verbs, sweeps and frames from now on."""
        from svc_notebook.svc_use import use_reuse  # noqa: PLC0415 - as above

        if not isinstance(value, bool):
            self.error(obj, value)
        use_reuse(_session(), reuse=value, source="%config SvcMagics.reuse")


class TracesTrait(AnyTrait):
    """What this kernel's session sends to OpenTelemetry."""

    info_text = "'off', 'on' or 'content'"

    def get(self, _: HasTraits, cls: object = None) -> str:  # noqa: ARG002 - as above
        """Return the setting in force."""
        return _session().settings.traces

    def set(self, obj: HasTraits, value: Any) -> None:  # noqa: ANN401 - as typed
        """Set it from now on, if OpenTelemetry is installed."""
        from svc_notebook.svc_use import use_traces  # noqa: PLC0415 - as above

        if not isinstance(value, (str, bool)):
            self.error(obj, value)
        try:
            use_traces(_session(), value, source="%config SvcMagics.traces")
        except (ConfigError, ParameterError) as error:
            raise TraitError(str(error)) from None


def _trait(name: str, text: str) -> ParamTrait:
    default = "fit" if name == "max_tokens" else None
    if name == "max_tokens":
        text += "; in cells only, for every verb: svc.use(max_reply=...)"
    return ParamTrait(default, allow_none=True, help=text).tag(config=True)


class SvcTraits(Configurable):
    """The defaults of a magic line: values for options that it does not set."""

    model = ModelTrait(help="model to ask").tag(config=True)
    system = Unicode("", help="system message of every request").tag(config=True)
    show_traceback = Bool(
        default_value=False, help="show the full traceback of an error"
    ).tag(config=True)
    ledger = PathTrait(help="file that keeps every exchange, or ':memory:'").tag(
        config=True
    )
    reuse = ReuseTrait(
        help="give back the ledger's answer to an identical request"
    ).tag(config=True)
    traces = TracesTrait(help="OpenTelemetry spans: off, on, content (with texts)").tag(
        config=True
    )
    prices = PathTrait(help="file with your price table, for costs").tag(config=True)
    tools = Unicode("", help="variables whose tools are offered in every cell").tag(
        config=True
    )
    confirm_tools = Enum(
        CONFIRMATIONS, "marked", help="which calls of tools ask you first"
    ).tag(config=True)
    extra = ExtraTrait(
        None,
        allow_none=True,
        help="fields that the document does not show, in cells; for every verb: "
        "svc.use(extra=...)",
    ).tag(config=True)
    locals().update({param.name: _trait(param.name, param.doc) for param in PARAMS})

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 - traitlets'
        super().__init__(**kwargs)
        if "model" in self.config.get("SvcMagics", {}):
            from svc_notebook.svc_use import use_model  # noqa: PLC0415 - as above

            use_model(_session(), self.model, source="configuration")

    @validate("system", "tools", "extra", *(param.name for param in PARAMS))
    def _without_key(self, proposal: Any) -> object:  # noqa: ANN401 - traitlets'
        """Refuse a value with an API key: the list of settings would show it."""
        from svc_notebook.credentials import refuse_keys  # noqa: PLC0415 - as above

        name = proposal["trait"].name
        try:
            refuse_keys([proposal["value"]], of=name, param=name)
        except ParameterError as error:
            raise TraitError(str(error)) from None
        return proposal["value"]

    def own_settings(self) -> list[tuple[str, object, str]]:
        """Return name, value and source of each default that only the magic has."""
        elsewhere = {"model", "ledger", "prices", "reuse", "traces"}
        names = sorted(set(self.trait_names(config=True)) - elsewhere)
        rows = []
        for name in names:
            value = getattr(self, name)
            is_default = value == self.trait_defaults(name)
            source = "default" if is_default else "%config SvcMagics"
            rows.append((name, None if value == "" else value, source))
        return rows

    def defaults(self) -> dict[str, Any]:
        """Return the magic's own defaults by name, without those that are not set."""
        names = ("system", *(param.name for param in PARAMS), "extra")
        values = {name: getattr(self, name) for name in names}
        return {
            name: value for name, value in values.items() if value not in (None, "")
        }


def remove_unusable(configured: MutableMapping[str, Any]) -> list[tuple[str, str]]:
    """Remove unusable defaults from the configuration; return their names and why.

    IPython keeps a refused value in its configuration, and a single unusable value
    would prevent the magics from loading.
    """
    removed = []
    for name, trait in SvcTraits.class_traits(config=True).items():
        if name in configured:
            # a setting of the session is checked where it is set
            check: Callable[..., object] = getattr(trait, "validate", trait.set)
            try:
                check(None, configured[name])
            except TraitError as error:
                removed.append((name, str(error)))
                del configured[name]
    return removed

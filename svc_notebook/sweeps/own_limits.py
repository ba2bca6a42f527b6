"""Limits of the user's own for a run: `limits` of `svc.sweep`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from svc_notebook.endpoints import SERVICE, Endpoint
from svc_notebook.errors import ParameterError
from svc_notebook.service.catalogue import Limit
from svc_notebook.service.checks import check_int, did_you_mean, must_be

PACE_KEYS = ("per_second", "per_minute", "in_flight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The user's own limits for one model; None where only the service's apply."""

    per_second: int | None = None
    per_minute: int | None = None
    in_flight: int | None = None

    @property
    def given(self) -> dict[str, int]:
        """The limits that were given, by name."""
        found = ((name, getattr(self, name)) for name in PACE_KEYS)
        return {name: each for name, each in found if each is not None}

    def limit(self, known: Limit | None) -> Limit | None:
        """Return the limit in force: the user's, or else the known one."""
        if self.per_second is None and self.per_minute is None:
            return known
        known = known or Limit(per_second=None, per_minute=None)
        return Limit(
            per_second=self.per_second or known.per_second,
            per_minute=self.per_minute or known.per_minute,
            in_flight=known.in_flight,
        )


Paces = Mapping[str, Pace]
"""By model."""


def paces_of(
    limits: object, models: Iterable[str], endpoint: Endpoint = SERVICE
) -> Paces:
    """Read `limits` of `svc.sweep`: numbers for all models, or by model."""
    if limits is None:
        return {}
    allowed = ', such as {"per_second": 2, "in_flight": 4}, or such by model'
    if not isinstance(limits, Mapping) or not limits:
        raise must_be("limits", f"a mapping{allowed}", limits)
    models = list(models)
    if not any(isinstance(each, Mapping) for each in limits.values()):
        limits = dict.fromkeys(models, limits)
    for model, given in limits.items():
        if model not in models:
            raise ParameterError(
                f"limits has {model!r}, which this run does not ask."
                f"{did_you_mean(str(model), [*models, *PACE_KEYS])} Its models are "
                f"{', '.join(models)}.",
                param="limits",
            )
        if not isinstance(given, Mapping) or not set(given) <= set(PACE_KEYS):
            allowed = f"a mapping with some of {', '.join(PACE_KEYS)}"
            raise must_be(f"limits of {model}", allowed, given)
    known = {model: endpoint.limit_of(model) for model in limits}
    return {
        model: _pace_of(model, each, known[model]) for model, each in limits.items()
    }


def _pace_of(model: str, given: Mapping[str, object], known: Limit | None) -> Pace:
    pace = Pace(
        **{
            name: check_int(f"{name} in limits", value, minimum=1)
            for name, value in given.items()
        }
    )
    for name in PACE_KEYS:
        most, wanted = getattr(known, name, None), getattr(pace, name)
        if None not in (most, wanted) and wanted > most:
            raise ParameterError(
                f"{name}={wanted} in limits is above the service's limit for {model}, "
                f"which always applies; give at most {most}.",
                param="limits",
            )
    return pace

"""The trials of a plan, numbered; each is made only when it is looked at."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from hashlib import blake2b
from inspect import signature
from math import prod
from typing import Any

import msgspec

from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.exchange import Origin, OriginKind
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.checks import did_you_mean
from svc_notebook.service.params import PARAMS
from svc_notebook.service.request import CompletionRequest, build_request
from svc_notebook.tokens import Tokens, estimate_prompt_tokens, with_max_tokens
from svc_notebook.wire.encode import encode

from .dimensions import FACTORS, TOOLS, Dimension, short, tool_names
from .source import ROW, Source, columns_in, filled

_FLOATS = frozenset(param.name for param in PARAMS if param.kind == "float")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One request of the plan: a row, a condition and a repeat, counted from 0.

    Attributes:
        request_key: Hash of all that is sent; repeats share it.
        row: Position of the row that fills the prompt; None without rows.
        columns: The row's values in the prompt, and labels; kept with the reply.
    """

    request_key: str
    repeat: int
    request: CompletionRequest
    row: int | None = None
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the trial in its grid."""
        return self.request_key, self.repeat

    @property
    def model(self) -> str:
        """Id of the model to ask."""
        return self.request.model

    @property
    def prompt_tokens(self) -> Tokens:
        """Estimated tokens of the prompt."""
        return estimate_prompt_tokens(self.request.messages, self.request.tools)


def value_of(request: CompletionRequest, name: str) -> Any:  # noqa: ANN401 - any factor
    """Return what a request has for a factor; None or () if it is not sent."""
    return request.asked_params.get(name, getattr(request, name, None))


def request_key_of(
    request: CompletionRequest, *, templates: object = None, n_before: int = 0
) -> str:
    """Return the hash of all that is sent: 16 hexadecimal digits.

    The order of the parameters makes no difference, nor whether a number is written
    as 0 or 0.0. Two templates that give the same text for one row are two trials; so
    are rows that give the same request: with `n_before` 1, the key ends in "-2".
    """
    params = {
        name: float(value) if name in _FLOATS else value
        for name, value in sorted(request.asked_params.items())
    }
    same = msgspec.structs.replace(request, params=params)
    hashed = blake2b(encode(same, is_streamed=False), digest_size=8)
    if templates is not None:
        hashed.update(msgspec.json.encode(templates))
    return hashed.hexdigest() + (f"-{n_before + 1}" if n_before else "")


Where = Callable[[Mapping[str, Any]], object]
"""Says whether to keep a combination, given its values and its row's columns."""
_N_RECENT = 64  # trials kept for reuse: enough for a small run to be read back


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All trials of a plan.

    A combination is a row with a condition. Trials are numbered in the order of the
    plan: rows vary slowest, then the dimensions in their order, then the repeats.

    Attributes:
        dimensions: What was given; the last varies fastest.
        repeats: How many times each combination is sent.
        extra: Fields the document does not show, sent with every request.
        is_raw: Whether prompts are sent as they are, without filling templates.
        kept: Numbers of the combinations that `where` kept; None for all.
    """

    dimensions: tuple[Dimension, ...]
    source: Source | None = None
    repeats: int = 1
    extra: Mapping[str, Any] = field(default_factory=dict)
    is_raw: bool = False
    kept: Sequence[int] | None = None

    def __len__(self) -> int:
        return self.n_combinations * self.repeats

    def __iter__(self) -> Iterator[Trial]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Trial:
        """Return a trial by its number in the plan."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        combination, repeat = divmod(position, self.repeats)
        return self.trial(combination, repeat)

    @property
    def n_combinations(self) -> int:
        """How many combinations are kept."""
        return self.n_product if self.kept is None else len(self.kept)

    @property
    def n_product(self) -> int:
        """How many combinations there are, including those that `where` left out."""
        n_rows = 1 if self.source is None else len(self.source)
        return n_rows * prod(len(each.points) for each in self._multiplied)

    @cached_property
    def _multiplied(self) -> tuple[Dimension, ...]:
        return tuple(each for each in self.dimensions if not each.is_by_row)

    @cached_property
    def n_by_model(self) -> dict[str, int]:
        """How many requests each model gets, in the order of the plan."""
        counts = Counter(map(self.model_of, range(self.n_combinations)))
        return {model: n * self.repeats for model, n in counts.items()}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names in conditions that are not sent: columns of prompts, and labels."""
        names = (name for each in self.dimensions for name in each.names)
        return tuple(dict.fromkeys(name for name in names if name not in FACTORS))

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns that this grid adds to a frame of replies."""
        templates = [f"{name}_template" for name in self.templates]
        offered = [TOOLS] if TOOLS in self.varied else []
        joined = () if self.source is None else (ROW, *self.source.shown)
        return tuple(dict.fromkeys((*templates, *offered, *self.labels, *joined)))

    @property
    def varied(self) -> tuple[str, ...]:
        """The names that take more than one value, without the columns of rows."""
        return tuple(
            name
            for dimension in self.dimensions
            if len(dimension.points) > 1
            for name in dimension.names
        )

    def trial(self, combination: int, repeat: int) -> Trial:
        """Return a trial by its combination, counted among those kept."""
        first = self._recent(combination)
        return replace(first, repeat=repeat) if repeat else first

    @cached_property
    def _recent(self) -> Callable[[int], Trial]:
        return lru_cache(maxsize=_N_RECENT)(self._first_repeat)

    def _first_repeat(self, combination: int) -> Trial:
        row, point = self._point(self._number(combination))
        named = (*columns_in(point.get("prompt")), *columns_in(point.get("system")))
        columns = () if self.is_raw else tuple(dict.fromkeys(named))
        values, labels = self._row_of(row, point), _labels(point)
        request = self._request(point, values)
        templates: object = None
        n_before = 0
        if row is not None or columns or labels:
            own = {name: str(value) for name, value in labels.items()}
            given = (point.get("prompt"), point.get("system"))
            templates = (*given, own) if own else given
            n_before = self._n_before(columns).get(row or 0, 0)
        return Trial(
            request_key=request_key_of(request, templates=templates, n_before=n_before),
            repeat=0,
            request=request,
            row=row,
            columns=self._kept_columns(point, values, columns),
        )

    def model_of(self, combination: int) -> str:
        """Return the model of a combination, without making its request."""
        _, point = self._point(self._number(combination))
        return str(point["model"]).strip()

    def factors(self, combination: int) -> dict[str, Any]:
        """Return the values of a combination, with all columns of its row."""
        row, point = self._point(self._number(combination))
        names = (name for dimension in self.dimensions for name in dimension.names)
        return {**dict.fromkeys(names), **self._row_of(row, point), **point}

    def source_columns(self, trial: Trial) -> dict[str, Any]:
        """Return the labels and source columns of a trial's row in a frame."""
        if trial.row is None or not self.source:
            return trial.columns
        mine = self.source.columns
        kept = {name: each for name, each in trial.columns.items() if name not in mine}
        return {**kept, **self.source.joined(trial.row)}

    def request_at(self, row: int, point: Mapping[str, Any]) -> CompletionRequest:
        """Return the request of any point, also of one that `where` leaves out."""
        if self.source is not None and not self.source:
            return self._request(point, None)  # no row to fill it from
        return self._request(point, self._row_of(row, point))

    def _number(self, combination: int) -> int:
        return combination if self.kept is None else self.kept[combination]

    def _point(self, number: int) -> tuple[int | None, dict[str, Any]]:
        point: dict[str, Any] = {}
        for dimension in reversed(self._multiplied):
            number, digit = divmod(number, len(dimension.points))
            point = {**dimension.points[digit], **point}
        if self.source is None:
            return None, point
        for dimension in self.dimensions:
            if dimension.is_by_row:
                point |= dimension.points[number]
        return number, point

    def _row_of(self, row: int | None, point: Mapping[str, Any]) -> dict[str, Any]:
        columns = {} if self.source is None or row is None else self.source.row(row)
        return {**columns, **_labels(point)}

    def _request(
        self, point: Mapping[str, Any], values: Mapping[str, Any] | None
    ) -> CompletionRequest:
        """Make a request; its templates are filled if there are values."""
        params = {name: value for name, value in point.items() if name in FACTORS}
        prompt, system = params.pop("prompt", None), params.pop("system", None)
        if values is not None and not self.is_raw:
            prompt, system = filled(prompt, values), filled(system, values)
        max_tokens = params.pop("max_tokens", None)
        request = build_request(
            prompt,
            model=params.pop("model"),
            system=system,
            extra=self.extra,
            params=params,
        )
        return with_max_tokens(request, max_tokens)

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """Which of prompt and system vary and are filled: they get template columns."""
        if self.is_raw:
            return ()
        return tuple(
            name
            for name in ("prompt", "system")
            if name in self.varied and any(map(columns_in, self.values_of(name)))
        )

    def values_of(self, name: str) -> Iterator[Any]:
        """Return the values that prompt, system or a parameter takes, without None."""
        points = (point for each in self.dimensions for point in each.points)
        return (point[name] for point in points if point.get(name) is not None)

    def _kept_columns(
        self,
        point: Mapping[str, Any],
        values: Mapping[str, Any],
        columns: Sequence[str],
    ) -> dict[str, Any]:
        templates = {
            f"{name}_template": point.get(name)
            for name in self.templates
            if columns and isinstance(point.get(name), str)
        }
        if TOOLS in self.varied:  # the replies have no column that says which
            templates[TOOLS] = tool_names(point.get(TOOLS))
        used = {name: values[name] for name in columns}
        return {**templates, **used, **_labels(point)}

    @cached_property
    def _n_before(self) -> Callable[[tuple[str, ...]], Mapping[int, int]]:
        """Returns how many earlier rows give the same texts, for rows where some do."""
        return cache(partial(_repeated, self.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a run sends, and under which name; for the fields see `Run`."""

    grid: Grid
    name: str | None
    run_id: str
    seed: int
    origin: OriginKind = "sweep"
    prices: Prices | None = None

    def origin_of(self, trial: Trial) -> Origin:
        """Return the origin of a trial's exchange."""
        return Origin(
            kind=self.origin,
            run=self.run_id,
            request_key=trial.request_key,
            repeat=trial.repeat,
            columns=trial.columns,
        )


class Factors(dict[str, Any]):
    """The values of a combination, as `where` gets them."""

    def __missing__(self, name: str) -> object:
        raise ParameterError(
            f"where uses {name!r}, which is not in the combinations."
            f"{did_you_mean(str(name), self)} They have {', '.join(self)}.",
            param="where",
        )


def keep(grid: Grid, where: Where) -> Sequence[int]:
    """Return the numbers of the combinations that `where` keeps."""
    if not callable(where):
        raise ParameterError(
            f"where is {type(where).__name__}; give a function that takes a "
            "combination, such as lambda c: c['temperature'] < 1.",
            param="where",
        )
    try:
        signature(where).bind({})
    except ValueError:
        pass  # some built-in functions have no signature
    except TypeError as problem:
        raise ParameterError(
            f"where is called with one argument, a combination ({problem}); write it "
            "like lambda c: c['temperature'] < 1.",
            param="where",
        ) from None
    return array("Q", (at for at in range(grid.n_product) if _is_kept(grid, at, where)))


def _is_kept(grid: Grid, at: int, where: Where) -> bool:
    factors = Factors(grid.factors(at))
    try:
        return bool(where(factors))
    except SvcError:
        raise
    except Exception as problem:  # the user's own, which stays what it is
        shown = ", ".join(f"{name}={short(value)}" for name, value in factors.items())
        problem.add_note(f"This was the combination {shown}; nothing was sent.")
        raise


def _labels(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name not in FACTORS}


def _repeated(source: Source | None, columns: Sequence[str]) -> Mapping[int, int]:
    if source is None:
        return {}
    n_seen: Counter[int] = Counter()
    found: dict[int, int] = {}
    values = [source.columns[name] for name in columns if name in source.columns]
    for row in range(len(source)):
        # hashes, not texts: a million rows must not be held twice
        mark = hash(tuple(str(each[row]) for each in values))
        if n_seen[mark]:
            found[row] = n_seen[mark]
        n_seen[mark] += 1
    return found

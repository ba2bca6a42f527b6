"""Planning a run: what was given becomes a grid, a name and a seed.

Rules: nothing is sent; a name is looked up in the ledger, so that a run goes on after
a restart, and so that another grid of the same name is refused at once.
"""

from collections.abc import Mapping, Sequence
from secrets import randbits
from typing import Any
from uuid import uuid4

from svc_notebook.errors import ParameterError
from svc_notebook.exchange import Door
from svc_notebook.ledger.prices import Prices
from svc_notebook.service.check import check_flag
from svc_notebook.session import Session

from .building import build_grid
from .confirm import check_threshold
from .dimension import Tied
from .grid import Where
from .order import seed_of
from .run import Run


def plan(  # noqa: PLR0913 - what a sweep is made of
    session: Session,
    prompt: object = None,
    *,
    model: str | Sequence[str] | None = None,
    system: str | Sequence[str | None] | None = None,
    rows: object = None,
    cells: object = None,
    tied: Tied = (),
    where: Where | None = None,
    repeats: int = 1,
    name: str | None = None,
    seed: int | None = None,
    confirm_above: int | None = None,
    raw: bool = False,
    reuse: bool = False,
    door: Door = "sweep",
    prices: Prices | None = None,
    extra: Mapping[str, Any] | None = None,
    varied: Mapping[str, Any] | None = None,
) -> Run:
    r"""Plan a sweep: every combination of what is given as a list.

    Args:
        session: Whose settings and key are used, and whose ledger keeps.
        prompt: A text or messages; or a list of such prompts. `{{name}}` is a column
            of the rows, `\{{name}}` the plain text.
        model: One model id or a list; the session's model if None.
        system: One system text or a list; None is no system message.
        rows: A DataFrame, a Series, a list of mappings or texts to fill prompts from.
        cells: Combinations that are not a product: a DataFrame or a list of mappings.
        tied: Names whose lists go side by side instead of being multiplied; `rows`
            among them gives each row a value of its own.
        where: Whether to keep a combination, told by a mapping of its values.
        repeats: How many times each combination is asked.
        name: Name of the run; a run of this name goes on, also after a restart.
        seed: Of the order; made from the name if None, or at random without one.
        confirm_above: Ask before sending more requests than this; never if None.
        raw: Whether prompts are sent as they are, without templates.
        reuse: Whether the ledger's answer to an identical request, of the same
            repetition, is given back instead of asking.
        door: Who asks, for the record.
        prices: The price table for costs; the session's, if it has one, if None.
        extra: Fields the document does not show, sent with every request.
        varied: Parameters, each one value or a list of values. `stop` as a list of
            texts is one value; a list of lists varies it; so for `tools`, which are
            offered and not run.

    Raises:
        ParameterError: Something or some combination is not allowed; it is named. Or
            a run of this name asked what this grid has not.
        ToolSchemaError: A function in `tools` cannot be offered.
        LedgerError: A name was given and the ledger cannot be read.
        SettingsError: The session's price table cannot be used.
    """
    check_flag("raw", raw)
    check_flag("reuse", reuse)
    model = session.settings.model if model is None else model
    given = {"model": model, "system": system, **(varied or {})}
    grid = build_grid(
        prompt,
        varied={key: each for key, each in given.items() if each is not None},
        rows=rows,
        cells=cells,
        tied=tied,
        where=where,
        extra=extra,
        repeats=repeats,
        is_raw=raw,
    )
    check_threshold(confirm_above)
    found = _name(name)
    run = Run(
        grid,
        session=session,
        name=found,
        run_id=found or f"run-{uuid4().hex[:12]}",
        seed=_seed(seed, found),
        door=door,
        prices=session.prices if prices is None else prices,
    )
    run.confirm_above = confirm_above
    run.is_reusing = reuse
    if found:
        run.bind()
    return run


def _name(name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str) or not name.strip():
        raise ParameterError(f"name={name!r} is not a name; give a text.", param="name")
    return name.strip()


def _seed(seed: object, name: str | None) -> int:
    if seed is None:
        return randbits(32) if name is None else seed_of(name)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ParameterError(
            f"seed={seed!r} is not an integer; give one, or leave it out.", param="seed"
        )
    return seed

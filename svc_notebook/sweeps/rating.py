"""Ratings by hand: the next card to rate, the ratings so far, and how raters agree.

The ledger is the only record: a rating that is begun again, in another kernel or
tomorrow, continues where the rater stopped. `panels/rating_panel` has the panel.
"""

import getpass
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from svc_notebook.display.escape import to_terminal
from svc_notebook.display.front_end import fitted_to_terminal, shows_values
from svc_notebook.errors import ParameterError, write_line
from svc_notebook.ledger.exchange_rows import to_sortable
from svc_notebook.ledger.ledger import Ledger
from svc_notebook.ledger.ratings import (
    NO_OTHER,
    RATED,
    Chosen,
    RatedValue,
    ReplyRating,
    keep_ratings,
    read_ratings,
    take_back,
)
from svc_notebook.ledger.reply_columns import as_names
from svc_notebook.service.params import as_number, check_int, check_text, must_be

from .rows import columns_in

if TYPE_CHECKING:  # pandas loads when a rating is begun
    from svc_notebook.analysis.rater_agreement import RaterAgreement
    from svc_notebook.analysis.rating_order import (
        First,
        RatingItem,
        RatingOrder,
        ReplyKey,
    )

    from .run_outcome import RunResult

NAME = "good"
"""Default name of ratings; for pairs it is `pairs`, for notes alone `notes`."""
MAX_LABELS = 9
"""Most labels of a scale, because each label has a digit as its key."""
SHORT_LINES = 10
"""Most lines of a prompt that is in sight at first beside its reply."""
LINE_CHARS = 80
"""Characters that are counted as one line of a prompt."""
HIDDEN_PROMPTS = (
    "These replies have different prompts, which are hidden because they would show "
    "which reply is whose. blind=False shows them."
)
"""Stands for the prompts of a pair in a blind rating, if they differ."""


class ScaleStep(NamedTuple):
    """A value that a rater can choose, with its label and its key."""

    key: str
    label: str
    value: RatedValue | None


PAIR_SCALE = (
    ScaleStep("l", "Left", "left"),
    ScaleStep("t", "Tie", "tie"),
    ScaleStep("r", "Right", "right"),
)
NOTE_SCALE = (ScaleStep("k", "Keep note", None),)


class RatedReply(NamedTuple):
    """A reply on a card; `candidate` is what made it, "" if that is hidden."""

    text: str
    exchange_id: str
    choice_index: int
    candidate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingCard:
    """A card with the reply, or the pair of replies, that is rated now.

    Attributes:
        replies: One reply, or the left and the right one.
        prompts: The prompt as sent, by its title; of a pair with two prompts both, or
            `HIDDEN_PROMPTS` if the rating is blind.
        values: The values that filled the prompt, by name, or those that were named.
        in_prompts: The names of the values that can be read in the prompts.
        value, note: What was said before it was taken back; else None and "".
        number: The number of the card, from 1.
    """

    replies: tuple[RatedReply, ...]
    prompts: Mapping[str, str]
    values: Mapping[str, str]
    in_prompts: frozenset[str]
    value: RatedValue | None
    note: str
    number: int

    @property
    def others(self) -> dict[str, str]:
        """The values that no prompt shows, which are always in sight."""
        return {
            name: text
            for name, text in self.values.items()
            if name not in self.in_prompts
        }

    @property
    def filled(self) -> dict[str, str]:
        """The values that the prompts show: in sight while the prompts are folded."""
        return {
            name: text for name, text in self.values.items() if name in self.in_prompts
        }

    @property
    def is_open(self) -> bool:
        """Whether the prompts are in sight at first.

        Long ones are not, because the instructions are the same for each reply; unless
        nothing else says what is answered.
        """
        lines = [line for text in self.prompts.values() for line in text.split("\n")]
        n_lines = sum(len(line) // LINE_CHARS + 1 for line in lines)
        return n_lines <= SHORT_LINES or not self.filled


Scale = tuple[ScaleStep, ...]


def scale_of(scale: str | Sequence[str], *, pairs: bool, notes: bool) -> Scale:
    """Return the steps of a scale: "yes/no", "1-5" up to "1-9", or labels."""
    if pairs:
        return PAIR_SCALE
    if notes:
        return NOTE_SCALE
    if scale == "yes/no":
        return ScaleStep("y", "Yes", 1), ScaleStep("n", "No", 0)
    if isinstance(scale, str):
        first, _, last = scale.partition("-")
        if first == "1" and last in set("23456789"):
            return tuple(ScaleStep(str(n), str(n), n) for n in range(1, int(last) + 1))
        raise must_be("scale", '"yes/no", "1-5" or a list of labels', scale)
    if not isinstance(scale, Iterable):
        raise must_be("scale", '"yes/no", "1-5" or a list of labels', scale)
    labels = [*dict.fromkeys(map(str, scale))]
    if not 1 < len(labels) <= MAX_LABELS or "" in labels:
        raise must_be("scale", f"2 to {MAX_LABELS} labels, which are texts", scale)
    return tuple(ScaleStep(str(n), label, label) for n, label in enumerate(labels, 1))


class Rating:
    """Ratings of a run by one person: a panel in a notebook, questions in a terminal.

    Each rating is saved in the ledger at once. Begin it again to continue.

    Attributes:
        name: What is rated; the score is `rated_NAME`.
        rater: Who rates.
        scale: The values to choose from, each with its key.
        is_blind: Whether it hides what made the replies.
        notes: Whether only notes are asked for.
        n_total: How many cards there are.

    Example:
        >>> rating = run.rate("helpful", scale="1-5", rater="ann")
        >>> rating.rate(4, seconds_s=3.5)
        >>> rating.n_done
        1
    """

    def __init__(
        self,
        result: "RunResult",
        order: "RatingOrder",
        *,
        scale: Scale,
        is_blind: bool,
        columns: str | Sequence[str] | None = None,
    ) -> None:
        from svc_notebook.analysis.rating_order import rating_items  # noqa: PLC0415 - pandas

        self.name = order.name
        self.rater = order.rater
        self.scale = scale
        self.is_blind = is_blind
        self.notes = scale is NOTE_SCALE
        self._ledger = _ledger_of(result)
        df = result.replies_df()
        self._columns = _shown_columns(result, columns)
        self._used = _used_columns(result, "prompt")
        self._items = rating_items(df, order)
        self._shown_df = df[["prompt", *self._columns.values()]]
        self._position_of = {
            key: position
            for position, key in enumerate(
                zip(df["exchange_id"], df["choice_index"], strict=True)
            )
        }
        self.n_total = len(self._items)
        self._skipped: deque[int] = deque()
        self._history: list[int] = []  # numbers of items that were rated or skipped
        # the value and the note of the card that is shown
        self._draft: tuple[RatedValue | None, str] = (None, "")
        self._reopened: int | None = None  # the item that was taken back comes next
        self._watchers: list[Callable[[], object]] = []
        self._count_as_drawn(0)

    @property
    def n_done(self) -> int:
        """How many cards this rater has rated."""
        return len(self._ratings_by_item())

    @property
    def n_skipped(self) -> int:
        """How many cards were skipped, and come again at the end."""
        return len(self._skipped)

    @property
    def can_undo(self) -> bool:
        """Whether there is something to take back."""
        return bool(self._history or self._ratings_by_item())

    def card(self) -> RatingCard | None:
        """Return the card to rate now; None once every card is rated."""
        item = self._next_item()
        return None if item is None else self._card_of(item)

    def rate(
        self,
        value: RatedValue | None,
        *,
        seconds_s: float | None = None,
        note: str = "",
    ) -> None:
        """Save the rating of the card, and go to the next one.

        Args:
            value: One of the values of the scale.
            seconds_s: How long the rater took.
            note: What the rater wrote; if "", the note of `set_note` is saved.

        Raises:
            ParameterError: The value is not on the scale, the note is not a text, the
                seconds are not a number, or every card is rated.
            LedgerError: The ledger cannot be written. The card stays.
        """
        values = [step.value for step in self.scale]
        if value not in values:
            raise ParameterError(
                f"{value!r} is not on the scale, which has "
                f"{', '.join(map(repr, values))}. Nothing was kept.",
                param="value",
            )
        value = values[values.index(value)]  # SQLite does not take numbers of numpy
        note = note or self._draft[1]
        _check_note(note)
        item = self._next_item()
        if item is None:
            raise ParameterError(
                "Every card is rated; undo() takes the last rating back.",
                param="value",
            )
        kept = self._to_ratings(
            item, value, note=note, seconds_s=_checked_seconds(seconds_s)
        )
        keep_ratings(self._ledger, kept)
        self._count_as_drawn(item.number)
        self._go_on(item)

    def skip(self) -> None:
        """Leave the card for the end."""
        if (item := self._next_item()) is not None:
            if item.number in self._skipped:
                self._skipped.remove(item.number)
            self._skipped.append(item.number)
            self._go_on(item)

    def undo(self) -> None:
        """Take back the last rating or skip, and show its card again."""
        done = self._ratings_by_item()
        if not self._history and done:  # the last rating is of an earlier kernel
            self._history = [max(done, key=lambda number: done[number][0].rated_at)]
        if not self._history:
            return
        number = self._history.pop()
        if number in self._skipped:
            self._skipped.remove(number)
        kept = done.get(number)
        self._draft = (kept[0].value, kept[0].note) if kept else (None, "")
        take_back(self._ledger, kept or [])
        self._reopened = number
        self._call_watchers()

    def set_note(self, text: str) -> None:
        """Set the note of the card, which is saved with its rating."""
        self._draft = self._draft[0], text
        self._call_watchers()

    def watch(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each change.

        Returns:
            A function that stops these calls.
        """
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def counts(self) -> dict[str, int]:
        """Return how many cards have each value, by label, without unused values."""
        rated = self._ratings_by_item().values()
        n_by_value = Counter(ratings[0].value for ratings in rated)
        return {
            step.label: n_by_value[step.value]
            for step in self.scale
            if n_by_value[step.value]
        }

    def lines(self) -> list[str]:
        """Say how far the rating is, and what can be done next."""
        n_done, n_left = self.n_done, self.n_total - self.n_done
        noun = "pairs" if self.is_pairs else "replies"
        count = f"{n_done:,} of {self.n_total:,} {noun}"
        head = f"{count} rated as {self.name} by {self.rater}."
        if n_left:
            return [head, "Run the cell again to go on, or call in_terminal()."]
        agreement = self.agreement()
        return [head, *([agreement.says] if agreement else []), self._next_step()]

    def agreement(self) -> "RaterAgreement | None":
        """Return how far the raters agree; None while no card has two raters."""
        from svc_notebook.analysis.rater_agreement import rater_agreement  # noqa: PLC0415 - numpy

        shown = {_as_replies(*next(item.pairs())) for item in self._items}
        ratings = [
            rating
            for rating in read_ratings(self._ledger, name=self.name)
            if rating.value is not None
        ]
        # a reply on the left for one rater may be on the right for another
        turned = {"left": "right", "right": "left"}
        values = [
            (rating.replies, rating.rater, rating.value)
            if rating.replies in shown
            else (
                rating.replies[::-1],
                rating.rater,
                turned.get(str(rating.value), "tie"),
            )
            for rating in ratings
            if {rating.replies, rating.replies[::-1]} & shown
        ]
        return rater_agreement(*zip(*values, strict=True)) if values else None

    def in_terminal(self) -> "Rating":
        """Ask for ratings with `input`, one after the other; an empty line stops.

        Returns:
            The rating itself, which says how far it is.
        """
        keys = "  ".join(f"{step.key} {step.label}" for step in self.scale)
        keys = f"{keys}  s skip  u undo  p prompt"
        steps = {step.key: step.value for step in self.scale}
        acts = {"s": self.skip, "u": self.undo}
        is_open: bool | None = None  # as the rater has chosen with p
        while (card := self.card()) is not None:
            is_shown = card.is_open if is_open is None else is_open
            write_line(_fitted(_card_as_text(card, self.n_total, is_open=is_shown)))
            try:
                key, _, note = input(f"{keys} > ").strip().partition(" ")
            except (EOFError, NotImplementedError, KeyboardInterrupt):
                break
            if key in steps:
                self.rate(steps[key], note=note.strip())
            elif key in acts:
                acts[key]()
            elif key == "p":
                is_open = not is_shown
            elif not key:
                break
            else:
                write_line(
                    f"There is no key {key!r}. Write a note after a key: 1 my note"
                )
        if not shows_values():
            write_line(str(self))
        return self

    def __repr__(self) -> str:
        return _fitted("\n".join(self.lines()))

    def _next_step(self) -> str:
        if self.notes:
            return "ratings_df() has the notes, and run.categories() sums them up."
        if self.is_pairs:
            return f'run.ranking(on="{RATED}{self.name}") ranks what was compared.'
        step = f"The score is {RATED}{self.name}; run.summary_df() has it."
        return step + " Another person adds theirs with rater=."

    @property
    def is_pairs(self) -> bool:
        """Whether a card has two replies."""
        return self.scale is PAIR_SCALE

    def refuse_other_scale(self) -> None:
        """Refuse a scale without the values of earlier ratings: a score has one scale.

        Raises:
            ParameterError: Earlier ratings of these replies are not on the scale.
        """
        own = {(reply.keys[0],) for item in self._items for reply in item.replies}
        values = {step.value for step in self.scale}
        other = {
            rating.value
            for rating in read_ratings(self._ledger, name=self.name)
            if rating.value is not None and rating.replies in own
        } - values
        if other:
            raise ParameterError(
                f"These replies already have ratings {self.name} that are not on this "
                f"scale: {', '.join(sorted(map(repr, other)))}. Use the scale of those "
                "ratings, or another name.",
                param="scale",
            )

    @property
    def chosen(self) -> Chosen:
        """Whether replies come in random order, or those that differ come first."""
        return self._items[0].chosen

    def card_ids(self) -> set[str]:
        """Return the ids of all cards."""
        return {item.id for item in self._items}

    def open_cards(self) -> dict[str, RatingCard]:
        """Return the cards that are not rated yet, in order, by id."""
        done = self._ratings_by_item()
        return {
            item.id: self._card_of(item)
            for item in self._items
            if item.number not in done
        }

    def take(self, said: Mapping[str, tuple[RatedValue | None, str]]) -> None:
        """Save values and notes of many cards at once, by the ids of the cards."""
        items = {item.id: item for item in self._items}
        kept = list[ReplyRating]()
        for card_id, (value, note) in said.items():
            kept += self._to_ratings(items[card_id], value, note=note)
        keep_ratings(self._ledger, kept)
        self._count_as_drawn(max((items[key].number for key in said), default=0))
        self._call_watchers()

    def _card_of(self, item: "RatingItem") -> RatingCard:
        rows = [self._shown_df.iloc[self._position_of[r.keys[0]]] for r in item.replies]
        value, note = self._draft
        prompts = _shown_prompts(
            [str(row["prompt"]) for row in rows], is_blind=self.is_blind
        )
        values = {name: str(rows[0][column]) for name, column in self._columns.items()}
        return RatingCard(
            replies=tuple(
                RatedReply(
                    reply.text,
                    *reply.keys[0],
                    "" if self.is_blind else " / ".join(reply.candidates),
                )
                for reply in item.replies
            ),
            prompts=prompts,
            values=values,
            in_prompts=frozenset(
                name
                for name, text in values.items()
                if name in self._used
                and all(text in prompt for prompt in prompts.values())
            ),
            value=value,
            note=note,
            number=item.number + 1,
        )

    def _to_ratings(
        self,
        item: "RatingItem",
        value: RatedValue | None,
        *,
        note: str,
        seconds_s: float | None = None,
    ) -> list[ReplyRating]:
        rated_at = to_sortable(datetime.now(UTC))
        return [
            ReplyRating(
                self.name,
                self.rater,
                *key,
                *(other or NO_OTHER),
                value,
                note,
                seconds_s,
                item.chosen,
                rated_at,
            )
            for key, other in item.pairs()
        ]

    def _count_as_drawn(self, number: int) -> None:
        """Count earlier ratings as part of the random sample, up to an item.

        Cards in random order skip those that were rated before, because their replies
        differ. Without this, exactly the replies that differ would be missing in the
        sample. Once every card is rated, all of them count.
        """
        done = self._ratings_by_item()
        reached = number if len(done) < self.n_total else self.n_total
        drawn = [
            rating._replace(chosen="random")
            for item in self._items[:reached]
            for rating in done.get(item.number, ())
            if item.chosen == "random" != rating.chosen
        ]
        if drawn:
            keep_ratings(self._ledger, drawn)

    def _go_on(self, item: "RatingItem") -> None:
        self._history.append(item.number)
        self._reopened, self._draft = None, (None, "")
        self._call_watchers()

    def _call_watchers(self) -> None:
        for callback in [*self._watchers]:
            callback()

    def _ratings_by_item(self) -> dict[int, list[ReplyRating]]:
        """Return what this rater has said, by the number of the item."""
        kept = {
            rating.replies: rating
            for rating in read_ratings(self._ledger, name=self.name, rater=self.rater)
        }
        done = dict[int, list[ReplyRating]]()
        for item in self._items:
            pairs = [_as_replies(*pair) for pair in item.pairs()]
            ratings = [kept[pair] for pair in pairs if pair in kept]
            if len(ratings) == len(pairs):
                done[item.number] = ratings
        return done

    def _next_item(self) -> "RatingItem | None":
        done = self._ratings_by_item()
        if self._reopened is not None and self._reopened not in done:
            return self._items[self._reopened]
        later = set(self._skipped)
        for item in self._items:
            if item.number not in done and item.number not in later:
                return item
        for number in self._skipped:
            if number not in done:
                return self._items[number]
        return None


def begin_rating(  # noqa: PLR0913 - the arguments of `Run.rate`
    result: "RunResult",
    name: str,
    *,
    scale: str | Sequence[str],
    pairs: str | None,
    first: "First",
    n: int | None,
    rater: str | None,
    notes: bool,
    blind: bool,
    columns: str | Sequence[str] | None,
    unsure: frozenset[str],
) -> Rating:
    """Begin or continue the ratings of a run; for the arguments see `Run.rate`.

    `unsure` are the exchanges on which a judge is unsure.
    """
    from svc_notebook.analysis.rating_order import RatingOrder  # noqa: PLC0415 - pandas

    if not str(name).isidentifier():
        raise must_be("name", "a name of letters, digits and _, such as good", name)
    if first not in ("differs", "random"):
        raise must_be("first", '"differs" or "random"', first)
    if pairs is not None and notes:
        raise ParameterError(
            "notes=True asks for notes on single replies, so leave out pairs. The "
            "rating of a pair can have a note, too.",
            param="notes",
        )
    order = RatingOrder(
        name=_rating_name(name, pairs=pairs is not None, notes=notes),
        rater=_user_name() if rater is None else _checked_rater(rater),
        pairs=pairs,
        first=first,
        n=None if n is None else check_int("n", n, minimum=1),
        seed=result.plan.seed,
        unsure=unsure,
    )
    steps = scale_of(scale, pairs=pairs is not None, notes=notes)
    rating = Rating(result, order, scale=steps, is_blind=blind, columns=columns)
    if pairs is None and not notes:
        rating.refuse_other_scale()
    return rating


def _rating_name(name: str, *, pairs: bool, notes: bool) -> str:
    """Return the name; notes alone get another, so they do not count as ratings."""
    if name != NAME:
        return name
    return "pairs" if pairs else "notes" if notes else name


def _shown_columns(
    result: "RunResult", columns: str | Sequence[str] | None
) -> dict[str, str]:
    """Return the names in the frame of the columns of the rows that a rater sees.

    By default only those that fill a prompt: others, such as a label, may say what the
    right reply is. All cards have the same columns, because different ones would show
    which prompt made the reply.
    """
    of_rows = result.frames.row_names()
    if columns is None:
        used = _used_columns(result, "prompt", "system")
        return {name: column for name, column in of_rows.items() if name in used}
    names = as_names(columns)
    if unknown := [name for name in names if name not in of_rows]:
        raise ParameterError(
            f"The rows have no column {unknown[0]!r}; they have "
            f"{', '.join(of_rows) or 'none'}. Name some of these in columns.",
            param="columns",
        )
    return {name: of_rows[name] for name in names}


def _used_columns(result: "RunResult", *factors: str) -> set[str]:
    """Return the columns that fill these factors, which have templates as values."""
    grid = result.plan.grid
    if grid.is_raw:
        return set()
    texts = [text for factor in factors for text in grid.values_of(factor)]
    return {name for text in texts for name in columns_in(text)}


def _shown_prompts(prompts: Sequence[str], *, is_blind: bool) -> dict[str, str]:
    """Return the prompts of a card by their titles."""
    if len(set(prompts)) == 1:
        return {"Prompt": prompts[0]}
    if is_blind:
        return {"Prompt": HIDDEN_PROMPTS}
    return dict(zip(("Left prompt", "Right prompt"), prompts, strict=True))


def _checked_rater(rater: object) -> str:
    if not isinstance(rater, str) or not rater.strip():
        raise must_be("rater", "the name of a person, such as 'ann'", rater)
    return check_text(rater, param="rater")


def _check_note(note: object) -> None:
    if not isinstance(note, str):
        raise must_be("note", "a text", note)
    check_text(note, param="note")


def _checked_seconds(seconds_s: object) -> float | None:
    number = as_number(seconds_s)
    if seconds_s is not None and (number is None or not 0 <= number < inf):
        raise must_be("seconds_s", "a number >= 0", seconds_s, otherwise="or None")
    return number


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user
        return "me"


def _as_replies(key: "ReplyKey", other: "ReplyKey | None") -> "tuple[ReplyKey, ...]":
    return (key,) if other is None else (key, other)


def _fitted(text: str) -> str:
    """Make a text safe for a terminal, and break its lines at blanks."""
    return fitted_to_terminal(to_terminal(text))


def _card_as_text(card: RatingCard, n_total: int, *, is_open: bool) -> str:
    head = f"\n{card.number} of {n_total}"
    shown = card.others | (dict(card.prompts) if is_open else card.filled)
    parts = [f"{name}: {text}" for name, text in shown.items()]
    sides = ("Left", "Right") if len(card.replies) > 1 else ("Reply",)
    replies = [
        f"--- {side}{f' ({reply.candidate})' if reply.candidate else ''}\n{reply.text}"
        for side, reply in zip(sides, card.replies, strict=True)
    ]
    return "\n".join([head, *parts, *replies, "---"])


def _ledger_of(result: "RunResult") -> Ledger:
    if result.ledger is None:
        raise ParameterError(
            "The run has no replies to rate. Call run() first.", param="run"
        )
    return result.ledger

"""`RatingPanel`: the widget that `run.rate()` opens, which `static/rating/` draws.

The `Rating` decides which card is next, and writes ratings to the ledger. To add a key,
add a row to `ACTIONS` here, and describe its message in
`static/rating/rating_panel.js`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

import traitlets
from anywidget import AnyWidget

from svc_notebook.display.escape import to_text
from svc_notebook.display.html_styles import details_html
from svc_notebook.display.markdown import reply_html
from svc_notebook.errors import ParameterError, SvcError
from svc_notebook.service.params import shorten
from svc_notebook.session import current
from svc_notebook.sweeps.rating import Rating, RatingCard

from .browser_messages import BrowserMessage, Comm, read_message
from .static_outputs import StaticOutputs
from .static_transcript import NO_WIDGET, go_on_html
from .widget import script, style, widget_view

MAX_PART_CHARS = 20_000  # of each text that was filled into the prompt
SPOKEN_CHARS = 600  # of a new reply that a screen reader reads out
_GONE = "Another tab or kernel has moved on, so this key had no effect."
_HAS_KEY = (
    "This note contains the API key. It was not kept; remove the key and try again."
)
_log = logging.getLogger(__name__)


def card_id(card: RatingCard) -> str:
    """Return an id of a card that tells a blind rater nothing about its replies."""
    replies = [(reply.exchange_id, reply.choice_index) for reply in card.replies]
    return sha256(repr(replies).encode()).hexdigest()[:16]


def draw_parts(texts: Mapping[str, str]) -> list[dict[str, str]]:
    """Return texts for the browser, each with its name."""
    return [
        {"name": name, "html": f"<pre>{to_text(shorten(text, MAX_PART_CHARS))}</pre>"}
        for name, text in texts.items()
    ]


def draw_card(card: RatingCard, values: list[object]) -> dict[str, Any]:
    """Return a card for the browser; `values` are the values of the scale."""
    is_rated = card.value is not None
    return {
        "id": card_id(card),
        "number": card.number,
        "others": draw_parts(card.others),
        "prompts": draw_parts(card.prompts),
        "filled": draw_parts(card.filled),
        "is_open": card.is_open,
        "replies": [
            {
                "html": reply_html(reply.text),
                "spoken": shorten(reply.text, SPOKEN_CHARS),
                "label": reply.candidate,
            }
            for reply in card.replies
        ],
        "chosen": values.index(card.value) if is_rated else -1,
        "note": card.note,
    }


def draw_summary(rating: Rating) -> str:
    """Return the progress, the counts so far and, once all is rated, the next step."""
    head, *next_steps = (f"<p>{to_text(line)}</p>" for line in rating.lines())
    if rating.n_done < rating.n_total:
        next_steps = []  # `go_on_html` says it where it is needed
    counts = {} if rating.notes else rating.counts()
    rows = "".join(
        f"<tr><td>{to_text(label)}</td><td>{n}</td></tr>" for label, n in counts.items()
    )
    titles = "<thead><tr><th>Rating</th><th>How many</th></tr></thead>"
    table = f"<table>{titles}<tbody>{rows}</tbody></table>" if rows else ""
    return head + table + "".join(next_steps)


class StaticSummary:
    """The ratings so far as static HTML, which a notebook shows without a kernel."""

    def __init__(self) -> None:
        self.outputs = StaticOutputs(f"svc-rating-{uuid4().hex[:12]}")
        self._shown: dict[str, str] = {}
        self._is_folded = False

    def show(self, widget: dict[str, Any], rating: Rating) -> None:
        """Show the widget in this cell, and the ratings so far."""
        self.outputs.show(widget)
        self._shown = self._bundle(rating)
        self.outputs.write(0, self._shown)

    def update(self, rating: Rating) -> None:
        """Replace the ratings so far, wherever the panel is shown."""
        if self._shown and (bundle := self._bundle(rating)) != self._shown:
            self._shown = bundle
            self.outputs.write(0, bundle)

    def fold(self, *, is_folded: bool) -> None:
        """Choose whether the ratings are folded, for hosts that cannot hide them."""
        self._is_folded = is_folded

    def _bundle(self, rating: Rating) -> dict[str, str]:
        html = draw_summary(rating)
        if self._is_folded:
            html = details_html("Ratings so far", html)
        elif rating.n_done < rating.n_total:
            html = go_on_html("rating") + html
        html = f'<div class="svc-static">{html}</div>'
        return {"text/html": html + NO_WIDGET, "text/plain": str(rating)}


class RatingPanel(AnyWidget):
    """A rating, as one widget in one or several tabs."""

    _esm = script("rating")
    _css = style("rating")
    view = traitlets.Dict().tag(sync=True)

    def __init__(self, rating: Rating) -> None:
        self.rating = rating
        self.notice, self.is_problem = "", False
        self.is_fresh = True  # until a page has drawn it; that page may take the focus
        self._main_writes = 0  # how often it was shown while `Comm.is_lost`
        self.to_page = Comm()
        self._static = StaticSummary()
        super().__init__()
        self.to_page = Comm(self)
        self._unwatch = rating.watch(self.show)
        self.on_msg(lambda _, content, __: self.hear(content))

    @property
    def subject(self) -> Rating:
        """The rating that the panel shows."""
        return self.rating

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - ipywidgets'
        """Return the state; if a page asks for all of it, as `Panel` does."""
        state = super().get_state(key, drop_defaults=drop_defaults)
        if key:
            return state
        self._static.outputs.repeat()
        return {**state, "view": self._draw() | self.to_page.numbers}

    def show(self) -> None:
        """Send the view to the pages, and replace the static summary."""
        with self.to_page.lock:
            self._main_writes += self.to_page.is_lost
            self.to_page.put(self._draw())
            self._static.update(self.rating)

    def set_notice(self, notice: str = "", *, is_problem: bool = False) -> None:
        """Set the notice that the panel shows; empty for none."""
        self.notice, self.is_problem = notice, is_problem

    def hear(self, content: object) -> None:
        """Carry out a message from the browser; never raises."""
        try:
            needs = {kind: action.needs for kind, action in ACTIONS.items()}
            message = read_message(content, needs, is_subshelled=self.to_page.hear())
            self._act_on(message)
        except SvcError as error:
            self._show_problem(str(error))
        except Exception as problem:  # noqa: BLE001 - shown in the panel
            _log.exception("The rating panel failed.")
            self._show_problem(f"{type(problem).__name__}: {problem}")
        kind = content.get("t") if isinstance(content, Mapping) else None
        self.to_page.send({"t": "heard", "kind": kind})

    def _show_problem(self, text: str) -> None:
        """Show an error; if even the view cannot be made, send it as a message."""
        self.set_notice(text, is_problem=True)
        try:
            self.show()
        except Exception:  # noqa: BLE001 - the first error says more
            self.to_page.send({"t": "problem", "text": text})

    def _act_on(self, message: BrowserMessage) -> None:
        action = ACTIONS[message.kind]
        if message.kind == "hello":
            action.act(self, message)
            return
        card = self.rating.card()
        if "card" in action.needs and (card is None or card_id(card) != message.card):
            self.set_notice(_GONE)
            self.show()
            return
        if current().key_hider()(message.text) != message.text:
            raise ParameterError(_HAS_KEY, param="note")
        self.set_notice()
        action.act(self, message)

    def greet(self, message: BrowserMessage) -> None:
        """Answer a page that has opened the panel, or may have missed messages."""
        with self.to_page.lock:
            is_current = message.number == self.to_page.n_sent
            self.to_page.send({"t": "ack", "subshell": message.is_subshelled})
            self.is_fresh = False
            if not is_current:
                self.show()
            self._static.fold(is_folded=not message.is_on)

    def rate(self, message: BrowserMessage) -> None:
        """Record a rating; the `Rating` tells all panels which card is next."""
        values = [step.value for step in self.rating.scale]
        if message.number >= len(values):
            raise ParameterError(
                f"The scale has {len(values)} values; reload the page.", param="rating"
            )
        self.rating.rate(
            values[message.number], seconds_s=message.seconds_s, note=message.text
        )

    def _draw(self) -> dict[str, Any]:
        rating = self.rating
        card = rating.card()
        return {
            "title": f"Rate {rating.name}",
            "about": f"{rating.rater}{' · blind' * rating.is_blind}",
            "scale": [{"key": s.key, "label": s.label} for s in rating.scale],
            "has_notes": rating.notes,
            "n_done": rating.n_done,
            "n_total": rating.n_total,
            "n_skipped": rating.n_skipped,
            "card": card and draw_card(card, [s.value for s in rating.scale]),
            "summary": "" if card else draw_summary(rating),
            "can": ["undo"] * rating.can_undo,
            "notice": self.notice,
            "is_problem": self.is_problem,
            "is_fresh": self.is_fresh,
            "main_writes": self._main_writes,
            "is_whole": True,
        }

    def close(self) -> None:
        """Close the panel; the ratings are kept."""
        if self.comm is not None and hasattr(self, "_unwatch"):  # else __init__ failed
            self._unwatch()
        super().close()

    def display(self) -> None:
        """Show the panel in this cell, and the static ratings below it."""
        # exports show this text above the ratings, which say it already
        widget = {**widget_view(self.model_id), "text/plain": ""}
        self._static.show(widget, self.rating)


RatingAct = Callable[[RatingPanel, BrowserMessage], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingAction:
    """An action that the browser can ask for."""

    act: RatingAct
    needs: tuple[str, ...] = ()  # fields that the message must have


ACTIONS: Mapping[str, RatingAction] = {
    "hello": RatingAction(act=RatingPanel.greet),
    "rate": RatingAction(act=RatingPanel.rate, needs=("card", "choice")),
    "skip": RatingAction(act=lambda panel, _: panel.rating.skip(), needs=("card",)),
    "undo": RatingAction(act=lambda panel, _: panel.rating.undo()),
    "note": RatingAction(
        act=lambda panel, message: panel.rating.set_note(message.text),
        needs=("card", "text"),
    ),
    "dismiss": RatingAction(act=lambda panel, _: panel.show()),
}

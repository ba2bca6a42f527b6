"""The quiet line below a reply: its status, then badges, model, tokens and seconds."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from svc_notebook.exchange import CUT_REASONS, Charge, Exchange, is_at_limit, is_empty
from svc_notebook.service.params import shorten

from .escape import to_text
from .html_styles import message_html, quiet_html

_BADGE = (
    "display:inline-block;border:1px solid;border-radius:3px;"
    "padding:0 .4em;margin-right:.6em"
)
# Visible only where a host drops styles, so that badges and text do not run together.
_BETWEEN = "<span style=font-size:0> · </span>"


# The dot is animated by CSS, so that waiting needs no messages.
_DOT = (
    "<style>@media(prefers-reduced-motion:no-preference){.svc-dot{animation:"
    "svc-dot 1s infinite alternate}}@keyframes svc-dot{from{opacity:.2}}</style>"
    "<span class=svc-dot aria-hidden=true>\N{BLACK CIRCLE}</span> "
)
UNFINISHED = "still being written"  # a notebook saved in mid-stream has it, too
WAITING = "waiting for the first words"
WAITING_FOR_ANSWER = "waiting for your answer: "  # nothing is written meanwhile
REASONING = "reasoning"


def live_html(status: str, *, is_waiting: bool) -> str:
    """Return the line below a reply that is still being written."""
    unfinished = "" if status.startswith(WAITING_FOR_ANSWER) else UNFINISHED
    line = " · ".join(filter(None, (status, unfinished)))
    # Where the kernel stops, the extension of the page puts other words in its place.
    return quiet_html(
        f"<span class=svc-live>{_DOT * is_waiting}{message_html(line)}</span>"
    )


def footer(
    exchange: Exchange, charge: Charge | None = None, *, has_model: bool = True
) -> str:
    """Return the footer: model, tokens of prompt and reply, seconds.

    Args:
        exchange: The last request of the reply.
        charge: What the reply was charged for, if that may be more than this request:
            `Completion.charge` and `Version.charge` have it.
        has_model: Whether the line begins with the model.
    """
    charge = charge or Charge.of(exchange)
    parts = [exchange.request.model if has_model else "", _tokens(charge)]
    if charge.latency_s is not None:
        parts.append(f"{charge.latency_s:.1f}\N{NO-BREAK SPACE}s")
    return " · ".join(part for part in parts if part)


def _tokens(charge: Charge) -> str:
    requests = f"{charge.n_requests:,} requests, " if charge.n_requests > 1 else ""
    if charge.source == "missing":
        return f"{requests}no usage"
    tilde = "~" if charge.source == "estimated" else ""
    prompt, reply = map(_count, (charge.prompt_tokens, charge.completion_tokens))
    return f"{requests}{tilde}{prompt} → {tilde}{reply} tokens"


def _count(n_tokens: int | None) -> str:
    return "?" if n_tokens is None else f"{n_tokens:,}"


def estimate_hint(charge: Charge) -> str:
    """Return the details of the footer's estimate; "" where tokens were reported."""
    if charge.source != "estimated":
        return ""
    prompt, reply = map(_count, (charge.prompt_tokens, charge.completion_tokens))
    low, high = charge.low_tokens, charge.high_tokens
    total = "" if low is None or high is None else f", together {low:,} to {high:,}"
    return f"estimated: {prompt} + {reply} tokens{total}"


_SNAPSHOT = re.compile(r"([-@:_.](v?\d[\w.-]*|latest|preview|exp))*")
"""A version after the name of a model, such as `-2024-08-06` or `:latest`."""
_REASON_CHARS = 60
_MODEL_CHARS = 80  # a server may answer with any name


def other_model(model: str, answered: str | None) -> str:
    """Name the model that answered, if it is not the requested one."""
    # Many servers answer with the exact version of the model: that is not another one.
    requested = model.rpartition("/")[2]
    name = (answered or "").rpartition("/")[2]
    version = name.removeprefix(requested)
    is_same = name.startswith(requested) and _SNAPSHOT.fullmatch(version)
    if not answered or is_same:
        return ""
    return f"answered by {shorten(answered, _MODEL_CHARS)}"


PROBABLY_CUT = "probably cut"


def cut_mark(exchange: Exchange) -> str:
    """Return `cut` or `probably cut` if a choice was cut, else ""."""
    if any(choice.finish_reason in CUT_REASONS for choice in exchange.choices):
        return "cut"
    is_probable = any(is_at_limit(exchange, choice) for choice in exchange.choices)
    return PROBABLY_CUT if is_probable else ""


def marks(exchange: Exchange) -> tuple[str, ...]:
    """Return the badges of a reply: cut, empty, another model, interrupted, …."""
    badges = [cut] if (cut := cut_mark(exchange)) else []
    if exchange.status == "ok":
        reasons = {
            choice.finish_reason or "no finish reason" for choice in exchange.choices
        }
        odd = sorted(reasons - CUT_REASONS - {"stop"})
        badges += [reason[:_REASON_CHARS] for reason in odd]
        badges += ["declined"] * any(choice.is_refusal for choice in exchange.choices)
    if exchange.status == "ok" and is_empty(exchange):
        badges.append("empty")
    answered = exchange.body.model if exchange.body else None
    if other := other_model(exchange.request.model, answered):
        badges.append(other)
    if exchange.status == "cancelled":
        badges.append("interrupted")
    elif exchange.status == "error":
        badges.append("incomplete" if exchange.choices else "failed")
    if exchange.is_emulated:
        note = exchange.emulator_note
        badges.append(f"emulator: {note}" if note else "emulator")
    if exchange.is_reused:
        badges.append(_reused(exchange))
    return tuple(badges)


def _reused(exchange: Exchange) -> str:
    """Return the badge of a re-used reply, with the day the service created it."""
    created = exchange.body.created if exchange.body else None
    if created is not None:
        with suppress(OverflowError, OSError, ValueError):  # outside of the calendar
            return f"re-used {datetime.fromtimestamp(created, UTC).date()}"
    return "re-used"


def titled_reasonings(reasonings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the title and text of the reasoning of each choice that has one.

    The title has the size of the text; a terminal shows only the title.
    """
    titled = (
        (f"reasoning{f' of {choice}' * (len(reasonings) > 1)}: {len(text):,}", text)
        for choice, text in enumerate(reasonings, start=1)
    )
    return tuple((f"{title} characters", text) for title, text in titled if text)


def marks_html(marks: Sequence[str], footer: str = "") -> str:
    """Return marks as badges, then a footer."""
    badges = (f'<span style="{_BADGE}">{to_text(mark)}</span>' for mark in marks)
    return _BETWEEN.join((*badges, *([message_html(footer)] if footer else [])))


def marks_text(marks: Sequence[str], footer: str = "") -> str:
    """Return marks in brackets, then a footer."""
    return " ".join((*(f"[{mark}]" for mark in marks), footer)).strip()

"""How far a run is, in parts for people: a line a model.

Rules: pure but for the wall clock it is told; an end is computed from the limits and
called so; what a model waits for is named.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from svc_notebook.display.progress import Part

from .lane import Lane

WAITS_S = 1.5  # a shorter wait is the usual gap between two requests


def parts(
    lanes: Iterable[Lane],
    *,
    now_s: float,
    now_at: datetime,
    is_paused: bool = False,
    is_stopped: bool = False,
) -> tuple[Part, ...]:
    """Return a part a model.

    Args:
        lanes: Of the run.
        now_s: What the clock of the lanes shows.
        now_at: The wall clock, in the zone of whoever reads.
        is_paused: Whether the run was paused.
        is_stopped: Whether nothing more will be sent.
    """
    state = "stopped" if is_stopped else "paused" if is_paused else ""
    return tuple(
        Part(
            name=lane.model,
            n_done=lane.n_ok + lane.n_failed,
            n_total=lane.n_cells,
            note=_note(lane, now_s=now_s, now_at=now_at, state=state),
            is_bad=bool(lane.n_failed or lane.given_up),
        )
        for lane in lanes
    )


def _note(lane: Lane, *, now_s: float, now_at: datetime, state: str) -> str:
    words = [f"{lane.n_tokens:,} tokens"]
    if lane.n_failed:
        words.insert(0, f"{lane.n_failed} failed")
    if lane.given_up:
        words.append(f"given up: {type(lane.given_up).__name__}")
    elif lane.n_ok + lane.n_failed < lane.n_cells:
        words += [state] if state else _lane_outlook(lane, now_s=now_s, now_at=now_at)
    return " · ".join(words)


def _lane_outlook(lane: Lane, *, now_s: float, now_at: datetime) -> list[str]:
    words = []
    due = lane.waits_for
    if due.wait_s > WAITS_S:
        words.append(f"waits {due.wait_s:.0f} s: {due.reason}")
    left_s = lane.ends_after_s(now_s)
    if left_s is not None:
        ends_at = now_at + timedelta(seconds=left_s)
        words.append(f"ends about {ends_at:%H:%M:%S}")
    return words

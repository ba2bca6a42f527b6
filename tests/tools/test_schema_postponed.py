"""Annotations that are texts, as `from __future__ import annotations` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NotRequired, TypedDict

from svc_notebook.tools.schema import build
from svc_notebook.tools.toolbox import tool


@dataclass
class Place:
    """A place."""

    name: str
    near: list[str] | None = None


class Trip(TypedDict):
    """A trip."""

    to: Place
    by: NotRequired[str]


def plan(trip: Trip, n_days: Annotated[int, "How long."] = 3) -> Trip:
    """Plan a trip."""
    del n_days
    return trip


def test_postponed_annotations_are_read() -> None:
    """Annotations written as texts, nested ones too, give the same schema."""
    parameters = tool(plan).definition["function"]["parameters"]

    assert parameters["properties"]["n_days"] == {
        "type": "integer",
        "description": "How long.",
        "default": 3,
    }
    trip = parameters["properties"]["trip"]
    assert trip["required"] == ["to"]
    assert trip["properties"]["to"]["required"] == ["name"]


def test_postponed_annotations_are_built() -> None:
    """A value becomes the objects that the texts name."""
    got = build(Trip, {"to": {"name": "Nan"}})

    assert got == {"to": Place("Nan")}

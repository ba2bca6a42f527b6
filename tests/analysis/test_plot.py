"""Charts of scores: what is drawn, hostile texts, what is missing."""

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from svc_notebook.analysis.plot import Plot, pareto, plot
from svc_notebook.errors import ConfigError, ParameterError
from tests.analysis.make import LARGE, SMALL, replies

MIME = "application/vnd.vegalite.v5+json"
HOSTILE = (
    "datum.x",
    "a.b[0]",
    "'];alert(1)//",
    "<img src=x onerror=alert(1)>",
    "\u202e",
)


def _frame(**more: str) -> pd.DataFrame:
    return replies(
        {"row": row, "prompt": f"p{row}", "model": model, "temperature": heat}
        | {"score_right": row % 2 == 0 or model == LARGE, "latency_s": 1.0 + heat}
        | {"text": f"{row} {model}", **more}
        for row in range(4)
        for model in (SMALL, LARGE)
        for heat in (0, 0.5)
    )


def _spec(chart: Plot) -> dict[str, Any]:
    data, _ = chart._repr_mimebundle_()
    found: dict[str, Any] = json.loads(json.dumps(data[MIME]))
    for part in (found, *found["layer"]):  # Altair keeps some data apart
        if "name" in part.get("data", {}):
            part["data"] = {"values": found["datasets"][part["data"]["name"]]}
    return found


@pytest.mark.slow
def test_each_group_is_a_point_and_each_reply_a_dot() -> None:
    """Means of the groups are drawn before the replies, whose text is a value."""
    spec = _spec(plot(_frame(), "right", by=["model", "temperature"]))

    groups = spec["data"]["values"]
    assert [(each["group"], each["series"], each["value"]) for each in groups] == [
        (SMALL, "temperature 0", 0.5),
        (SMALL, "temperature 0.5", 0.5),
        (LARGE, "temperature 0", 1.0),
        (LARGE, "temperature 0.5", 1.0),
    ]
    dots = spec["layer"][0]["data"]["values"]
    assert (len(dots), dots[0]["reply"]) == (16, f"0 {SMALL}")


@pytest.mark.slow
def test_a_chart_is_a_vega_lite_5_spec_without_addresses() -> None:
    """JupyterLab's own renderer draws it: no HTML, no script, nothing to load.

    A picture is for what draws no charts.
    """
    data, metadata = plot(_frame(), "right")._repr_mimebundle_()

    assert set(data) == {MIME, "image/png", "text/plain"}
    assert b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data[MIME]["$schema"].endswith("/v5.json")
    assert metadata[MIME]["embed_options"]["actions"] is False
    assert "http" not in json.dumps({**data[MIME], "$schema": ""})


@pytest.mark.slow
def test_a_terminal_gets_the_numbers() -> None:
    """In plain text each group is a line."""
    lines = str(plot(_frame(), "right", by="model")).splitlines()

    assert lines == [
        "score_right by model",
        f"  {SMALL}: 50 % (8 to 92), 4 rows, 8 replies",
        f"  {LARGE}: 100 % (28 to 100), 4 rows, 8 replies",
    ]


@pytest.mark.slow
def test_a_score_is_drawn_against_its_price() -> None:
    """Groups have two means, and the front is marked."""
    spec = _spec(plot(_frame(), "right", against="latency_s"))

    values = spec["data"]["values"]
    assert [each["other"] for each in values] == [1.0, 1.5, 1.0, 1.5]
    front = [each["of"] for each in spec["layer"][0]["data"]["values"]]
    assert front == [f"{LARGE}, temperature 0"]


def test_the_front_is_what_no_group_beats() -> None:
    """Of equal price the better one counts, and a dearer one must be better."""
    points = [(0.5, 1.0), (0.7, 1.0), (0.7, 2.0), (0.9, 3.0), (0.8, 4.0)]

    front = pareto([{"value": value, "other": other} for value, other in points])

    assert [(each["value"], each["other"]) for each in front] == [
        (0.7, 1.0),
        (0.9, 3.0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("against", [None, "latency_s"])
def test_hostile_texts_are_values_only(against: str | None) -> None:
    """Names of columns, labels and replies are in no field, key or expression."""
    for text in HOSTILE:
        name, label = f"score_{text}", f"{text}_label"
        frame = _frame(text=text)
        frame.insert(list(frame).index("text"), label, [text, "b"] * 8)
        frame[name] = frame["score_right"]

        spec = _spec(plot(frame, text, by=[label, "model"], against=against))

        encodings = json.dumps([each["encoding"] for each in spec["layer"]])
        for each in spec["layer"]:
            for channel in each["encoding"].values():
                if isinstance(channel, dict):
                    channel.pop("title", None)
        without_titles = json.dumps([each["encoding"] for each in spec["layer"]])
        assert json.dumps(text)[1:-1] not in without_titles
        assert "\\u202e" not in encodings


@pytest.mark.slow
def test_long_labels_stay_apart() -> None:
    """Labels that are equal where they are cut get numbers."""
    long = "A long introduction that all prompts have in common, and then "
    frame = replies(
        {"row": row, "prompt_label": long + end, "score_right": row}
        for row in range(2)
        for end in "abc"
    )

    groups = _spec(plot(frame, "right"))["data"]["values"]

    labels = [each["of"] for each in groups]
    assert [len(labels), len(set(labels))] == [3, 3]
    assert labels[2].endswith("... (3)")


@pytest.mark.slow
def test_many_replies_are_thinned_out() -> None:
    """A chart has some hundred dots at most, and means of all replies."""
    frame = pd.concat([_frame()] * 200)

    chart = plot(frame, "right", by="model")

    assert len(_spec(chart)["layer"][0]["data"]["values"]) == 400
    assert "4 rows, 1,600 replies" in str(chart)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"on": "rihgt"}, "Did you mean right"),
        ({"on": "cost"}, "cost is missing in every reply. Costs need a price table"),
        ({"on": "right", "by": "modle"}, "Did you mean model"),
        ({"on": "right", "width": 5}, "width must be an integer"),
    ],
)
def test_what_cannot_be_drawn_is_refused(how: dict[str, Any], said: str) -> None:
    """The error says what is allowed."""
    with pytest.raises(ParameterError, match=said):
        plot(_frame(), **how)


@pytest.mark.slow
def test_a_frame_of_usage_makes_a_bar_of_each_row() -> None:
    """Sums are drawn from zero, and what is not known is said."""
    usage = pd.DataFrame(
        {"model": [SMALL, LARGE, "own"], "n_requests": [5, 3, 1]}
        | {"cost": [0.000029, 0.000104, None]}
    )

    chart = plot(usage, "cost")

    spec = chart._repr_mimebundle_()[0][MIME]
    assert (spec["mark"]["type"], spec["encoding"]["x"]["scale"]) == (
        "bar",
        {"zero": True},
    )
    assert str(chart) == (
        f"cost by model\n  {SMALL}: 0.000029\n  {LARGE}: 0.000104\n  own: no value"
    )


@pytest.mark.slow
def test_too_many_groups_are_refused() -> None:
    """More groups than a reader can tell apart are counted in the error."""
    frame = replies({"prompt": str(n), "score_right": n} for n in range(61))

    with pytest.raises(ParameterError, match="makes 61 groups; at most 60"):
        plot(frame, "right", by="prompt")


def test_without_altair_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is named with the command that installs it."""
    monkeypatch.setitem(sys.modules, "altair", None)

    with pytest.raises(ConfigError, match="pip install altair"):
        plot(_frame(), "right")


@pytest.mark.slow
def test_a_picture_needs_one_more_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, or with another ending, the error says what to do."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    chart = plot(_frame(), "right")

    with pytest.raises(ConfigError, match="pip install vl-convert-python"):
        chart.save(tmp_path / "plot.png")
    with pytest.raises(ParameterError, match=r"end with .svg or .png; got 'plot.pdf'"):
        chart.save("plot.pdf")


@pytest.mark.slow
def test_a_setting_has_no_front() -> None:
    """Of less temperature nothing is better; of seconds less is."""
    of = {"seconds": "latency_s", "setting": "temperature"}
    charts = {name: plot(_frame(), "right", against=of[name]) for name in of}
    has_front = {name: "is better in both" in str(_spec(charts[name])) for name in of}

    assert has_front == {"seconds": True, "setting": False}


@pytest.mark.slow
def test_a_curve_has_a_band() -> None:
    """Along `x` each group of the others is a line, with a band between its ends."""
    chart = plot(_frame(), "right", x="temperature")

    spec = _spec(chart)
    values = spec["data"]["values"]
    assert [(value["at"], value["series"]) for value in values] == [
        (0.0, SMALL),
        (0.5, SMALL),
        (0.0, LARGE),
        (0.5, LARGE),
    ]
    assert all(value["low"] < value["value"] for value in values)
    assert str(chart).splitlines()[0] == "score_right by temperature, model"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"x": "model"}, "x must be a column of numbers"),
        ({"x": "heat"}, "'heat' is not a column"),
        (
            {"x": "temperature", "against": "latency_s"},
            "x and against cannot be combined",
        ),
        ({"x": "temperature", "by": "row"}, "12 curves; at most 8"),
    ],
)
def test_a_curve_needs_numbers(arguments: dict[str, str], said: str) -> None:
    """What cannot be drawn is refused, naming what could."""
    frame = pd.concat([_frame()] * 3, ignore_index=True)
    frame["row"] += frame.index // 16 * 4

    with pytest.raises(ParameterError, match=said):
        plot(frame, "right", **arguments)  # type: ignore[arg-type]  # names by value


@pytest.mark.slow
def test_a_chart_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """Below the picture stands on which replies it does not stand."""
    frame = _frame()
    frame["score_right"] = frame["score_right"].astype("boolean").mask(frame["row"] < 1)
    said = "4 of 16 replies have no score `right`; the figures leave them out"

    spec = _spec(plot(frame, "right"))

    assert said in " ".join(spec["title"]["text"])
    assert said in capsys.readouterr().err
    assert "title" not in _spec(plot(_frame(), "right"))


@pytest.mark.slow
def test_a_group_whose_replies_all_failed_has_no_replies() -> None:
    """It is named in the text, and has no point and no number."""
    frame = _frame()
    is_failed = frame["model"] == LARGE
    frame["score_right"] = frame["score_right"].astype("boolean").mask(is_failed)

    unscored = str(plot(frame, "right", by="model"))
    frame["status"] = is_failed.map({True: "error", False: "ok"})
    failed = str(plot(frame, "right", by="model"))

    assert f"  {LARGE}: no value" in unscored
    assert f"  {LARGE}: no replies" in failed


@pytest.mark.slow
def test_a_chart_counts_what_its_intervals_are_over() -> None:
    """Rows of two documents are two values, whose interval is not known."""
    frame = _frame()
    frame.insert(2, "document", frame["row"] // 2)

    lines = str(plot(frame, "right", by="model", unit="document")).splitlines()

    assert lines[1] == f"  {SMALL}: 50 %, 2 values of document, 8 replies"

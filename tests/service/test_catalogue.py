"""The models and limits of the document."""

import json
from pathlib import Path

from svc_notebook.service.catalogue import DEFAULT_MODEL, MODELS, limit_of

MODELS_JSON = Path(__file__).parents[1] / "document" / "models.json"


def test_limits_are_the_documents() -> None:
    """Listed models have their two limits, all others none."""
    got = {model.id: limit_of(model.id) for model in MODELS}

    shown = {
        name: (limit.per_second, limit.per_minute)
        for name, limit in got.items()
        if limit
    }
    assert shown == {
        "svc-v1.5-instruct": (20, 150),
        "svc-v1.5x-70b-instruct": (5, 50),
        "svc-v2-8b-instruct": (5, 50),
        "svc-v2-70b-instruct": (5, 50),
    }
    assert limit_of("svc-v9-instruct") is None


def test_every_transcribed_model_is_listed() -> None:
    """Every id that appears in the document is known, the default among them."""
    text = MODELS_JSON.read_text("utf-8")

    assert [model.id for model in MODELS if f'"{model.id}"' not in text] == []
    assert DEFAULT_MODEL in {model.id for model in MODELS}
    assert json.loads(text)

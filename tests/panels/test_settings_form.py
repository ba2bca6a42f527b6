"""What is set in the panel goes into its requests."""

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from tests.panels.conftest import OpenPage


def test_fields_beyond_the_document(open_page: OpenPage, emulator: Emulator) -> None:
    """They are typed as JSON, sent as typed, shown again, and taken away."""
    page = open_page(extra={"seed": 1})
    assert page.view["settings"]["extra"] == '{"seed": 1}'

    page.say("set", name="extra", value='{"seed": 2, "top_k": 40}')
    turn = page.ask("Hello there")
    page.say("set", name="extra", value=" ")
    page.ask("Hello again")

    first, second = emulator.requests[-2].json, emulator.requests[-1].json
    assert (first["seed"], first["top_k"]) == (2, 40)
    assert not {"seed", "top_k", "extra"} & {*second}
    assert page.view["settings"]["extra"] is None
    assert turn["choices"][0]["text"]
    assert svc.replies_df()["extra_seed"].tolist()[0] == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("seed", "extra must be a JSON object"),
        ("[1]", "extra must be a mapping"),
        ('{"temperature": 1}', "'temperature', which is a parameter of the service"),
    ],
)
def test_fields_that_are_refused(open_page: OpenPage, value: str, said: str) -> None:
    """What is no JSON object, or hides a parameter, changes nothing."""
    page = open_page(extra={"seed": 1})

    page.say("set", name="extra", value=value)

    assert said in page.view["notice"]
    assert page.view["settings"]["extra"] == '{"seed": 1}'


def test_settings_are_sent(open_page: OpenPage, emulator: Emulator) -> None:
    """What is set goes into the next request, and nothing else."""
    page = open_page()
    for name, value in (
        ("temperature", "0.3"),
        ("max_tokens", "50"),
        ("stop", "END"),
        ("model", "svc-instruct"),
        ("system", "Be brief"),
    ):
        page.say("set", name=name, value=value)

    page.ask("Hello")

    sent = emulator.requests[-1].json
    assert sent.pop("messages")[0] == {"role": "system", "content": "Be brief"}
    assert sent == {
        "model": "svc-instruct",
        "temperature": 0.3,
        "max_tokens": 50,
        "stop": ["END"],
        "stream": True,
    }
    assert page.view["settings"]["temperature"] == 0.3


@pytest.mark.parametrize(
    ("typed", "system"), [("", None), (" \n", None), (None, None), (" a ", " a ")]
)
def test_an_empty_system_message_is_none(
    open_page: OpenPage, typed: str | None, system: str | None
) -> None:
    """Blanks are no message; text stays as typed."""
    page = open_page(system="Be brief")

    page.say("set", name="system", value=typed)

    assert page.panel.conversation.system == system

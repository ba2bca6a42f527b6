"""What is set in the panel goes into its requests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.session import current, isolated
from tests.panels.conftest import OpenPage, Page

NextDay = Callable[..., Page]
CHANGED: dict[str, Any] = {
    "temperature": 0.3,
    "max_tokens": 50,
    "model": "svc-instruct",
    "stop": "END\n",
    "system": "Be brief",
    "extra": '{"seed": 2}',
    "n": None,
}


@pytest.fixture
def next_day(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> NextDay:
    """Opens the panel of another kernel, after one that had changed its settings."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))

    def open_again(*, changed: dict[str, Any] = CHANGED, **given: Any) -> Page:  # noqa: ANN401 - as panel
        with isolated():
            page = open_page(top_p=0.5)
            for name, value in changed.items():
                page.say("set", name=name, value=value)
            page.ask("Hello")
            page.say("set", name="temperature", value=1.9)  # for a turn never asked
            page.panel.close()
            current().ledger.close()
        return open_page(**given)

    return open_again


def test_settings_come_back_with_the_conversation(
    next_day: NextDay, emulator: Emulator
) -> None:
    """A new kernel sends the settings of the last turn, from the ledger."""
    page = next_day()

    page.ask("And now?")

    before, now = emulator.requests[-2].json, emulator.requests[-1].json
    assert before.pop("messages") == now.pop("messages")[:2]
    assert now == before
    assert (now["temperature"], now["top_p"], now["seed"]) == (0.3, 0.5, 2)
    assert now["model"] == "svc-instruct"
    assert page.view["settings"]["max_tokens"] == 50
    assert page.view["unusable"] == {}
    assert "Not as" not in page.view["notice"]


def test_settings_come_back_from_the_list(next_day: NextDay) -> None:
    """A conversation that is chosen goes on as a panel asked it last."""
    page = next_day(name=None, top_p=0.9)
    assert page.view["settings"]["temperature"] is None
    page.say("open", name="plan")

    view = page.view
    assert (view["settings"]["temperature"], view["settings"]["top_p"]) == (0.3, 0.5)
    assert view["settings"]["model"] == "svc-instruct"
    assert view["notice"] == "The settings are those of its last turn."
    assert page.views[-1]["is_whole"]
    page.say("set", name="temperature", value=0.4)
    page.say("open", name="plan")
    assert page.view["settings"]["temperature"] == 0.4


def test_what_was_used_last_stays_and_the_cells_is_offered(next_day: NextDay) -> None:
    """A cell that runs again changes nothing silently; the page can set the cell's."""
    page = next_day(model="svc-v2-8b-instruct", temperature=0.9, system="Be kind")

    view = page.view
    assert view["settings"]["model"] == "svc-instruct"
    assert (view["settings"]["temperature"], view["settings"]["top_p"]) == (0.3, 0.5)
    assert view["settings"]["system"] == "Be brief"
    assert view["notice"] == (
        "1 turn of plan restored from the ledger. Kept from the last turn: system "
        "prompt, model, temperature. The cell sets system prompt “Be kind”, model "
        "svc-v2-8b-instruct, temperature 0.9."
    )
    assert view["cells"] == {
        "system": "Be kind",
        "model": "svc-v2-8b-instruct",
        "temperature": 0.9,
    }
    for name, value in view["cells"].items():
        page.say("set", name=name, value=value)
    settings = page.view["settings"]
    assert (page.view["notice"], page.view["cells"]) == ("", {})
    assert (settings["system"], settings["temperature"]) == ("Be kind", 0.9)
    assert (settings["top_p"], settings["max_tokens"]) == (0.5, 50)


def test_a_cell_that_sets_what_was_used_last_is_not_noted(next_day: NextDay) -> None:
    """Nor what it leaves to the panel."""
    page = next_day(temperature=0.3, system="Be brief")

    assert page.view["notice"] == "1 turn of plan restored from the ledger."
    assert page.view["cells"] == {}


def test_what_is_offered_ends_with_its_notice(next_day: NextDay) -> None:
    """So another notice has no button for it."""
    page = next_day(temperature=0.9)
    page.ask("And now?")
    page.say("stop")

    assert page.view["notice"] == "There is nothing to stop."
    assert page.view["cells"] == {}


def test_a_removed_system_prompt_stays_removed(next_day: NextDay) -> None:
    """It is a choice as well."""
    page = next_day(changed={}, system="Be kind")

    assert page.view["settings"]["system"] == ""
    assert page.view["cells"] == {"system": "Be kind"}


def test_settings_come_back_after_another_conversation(open_page: OpenPage) -> None:
    """A cell that runs again shows its conversation with what was used last."""
    page = open_page("tea", system="Be kind", temperature=0.2)
    page.say("set", name="temperature", value=1)
    page.say("set", name="system", value="Be brief")
    page.ask("Hello")
    page.say("new")
    new = page.view["settings"]
    again = open_page("tea", system="Be kind", temperature=0.2).view

    assert (new["system"], new["temperature"]) == ("Be brief", 1)
    assert again["settings"]["system"] == "Be brief"
    assert again["settings"]["temperature"] == 1
    assert again["cells"] == {"system": "Be kind", "temperature": 0.2}


BRIEF, BAHT = "You advise a shop. Be short.", "You advise a shop. Be short. Use baht."
EARLIER = (
    "Before, the panel used the system prompt “...Be short. Use baht.”; Add here "
    "brings it back."
)


def run_cells() -> None:
    """Ask what the cells of a notebook ask, from the first one on."""
    shop = svc.conversation("shop")
    shop.system = BRIEF
    shop.ask("Name a tea.")
    shop.ask("And a cup.")


@pytest.fixture
def run_all(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> OpenPage:
    """Opens panels after Run All in a new kernel; before it, a panel asked a turn."""
    monkeypatch.setenv("SVC_LEDGER", str(tmp_path / "ledger.sqlite"))
    with isolated():
        run_cells()
        page = open_page("shop")
        page.say("set", name="temperature", value=0.2)
        page.say("set", name="system", value=BAHT)
        page.ask("The price?")
        page.panel.close()
        current().ledger.close()
    run_cells()
    return open_page


def test_each_of_two_panels_offers_the_system_prompt_after_run_all(
    run_all: OpenPage,
) -> None:
    """Taken in one, it is not offered in the other any more."""
    first, second = run_all("shop"), run_all("shop")
    offered = [page.view["newer"] for page in (first, second)]
    second.say("newer", on=True)

    assert [EARLIER in each for each in offered] == [True, True]
    assert second.view["settings"]["system"] == BAHT
    assert (first.view["newer"], second.view["newer"]) == ("", "")


def test_settings_come_back_after_run_all(
    run_all: OpenPage, emulator: Emulator
) -> None:
    """Cells above have begun the conversation again; it has their system prompt."""
    page = run_all("shop")
    view = page.view
    page.ask("And a pot?")

    assert view["settings"]["temperature"] == 0.2
    assert view["settings"]["system"] == BRIEF
    assert view["notice"] == ""
    assert view["newer"] == (
        f"1 turn that was asked in the panel before the restart is not here. {EARLIER}"
    )
    sent = emulator.requests[-1].json
    assert sent["temperature"] == 0.2
    assert sent["messages"][0]["content"] == BRIEF


def test_after_run_all_the_panels_system_prompt_is_added_with_its_turns(
    run_all: OpenPage, emulator: Emulator
) -> None:
    """Where a panel asks for it; a cell after it sends it, as it did before."""
    page = run_all("shop")
    page.say("newer", on=True)
    view = page.view
    svc.conversation("shop").ask("And a pot?")

    assert (view["settings"]["system"], view["newer"]) == (BAHT, "")
    sent = [each["content"] for each in emulator.requests[-1].json["messages"]]
    assert sent[0] == BAHT
    assert "The price?" in sent


def test_the_panels_system_prompt_is_offered_without_turns_too(
    run_all: OpenPage,
) -> None:
    """Such as after `restore` in a cell; not once it is used again or dismissed."""
    svc.conversation("shop").restore()
    page = run_all("shop")
    offered = page.view["newer"]
    page.say("set", name="system", value=BAHT)
    used = page.view["newer"]
    page.say("set", name="system", value="")
    page.say("newer", on=False)

    assert page.view["settings"]["temperature"] == 0.2
    assert (offered, used, page.view["newer"]) == (EARLIER, "", "")


def test_a_system_prompt_that_the_panel_had_removed_is_noted(
    run_all: OpenPage,
) -> None:
    """To have none was a choice as well."""
    with isolated():
        page = run_all("shop")
        page.say("set", name="system", value="")
        page.ask("The weight?")
        page.panel.close()
        current().ledger.close()
    with isolated():
        run_cells()
        page = run_all("shop")
        offered = page.view["newer"]
        page.say("newer", on=True)
        system = page.view["settings"]["system"]
        page.panel.close()

    assert offered.endswith(
        " Before, the panel used no system prompt; Add here removes this one."
    )
    assert system == ""


def test_what_the_panels_cell_sets_is_not_kept_out_after_run_all(
    run_all: OpenPage,
) -> None:
    """Its system prompt is one of the cells'; its other settings are offered."""
    view = run_all("shop", system="Be kind", temperature=0.9).view

    assert view["settings"]["system"] == "Be kind"
    assert view["settings"]["temperature"] == 0.2
    assert view["cells"] == {"temperature": 0.9}
    assert "used the system prompt “You advise a shop." in view["newer"]


def test_settings_outlive_a_run_all_in_which_no_panel_asks(run_all: OpenPage) -> None:
    """The panel's cell alone, in the kernel after it, has them as well."""
    current().ledger.close()
    with isolated():
        page = run_all("shop")
        view = page.view
        page.panel.close()

    assert [turn["prompt"] for turn in view["turns"]] == ["Name a tea.", "And a cup."]
    assert view["settings"]["temperature"] == 0.2
    assert EARLIER in view["newer"]


def test_settings_of_unrelated_turns_do_not_come(run_all: OpenPage) -> None:
    """Another notebook that uses the name has not asked the turns that are here."""
    with isolated():
        svc.conversation("shop").ask("What is a set?")
        page = run_all("shop")
        view = page.view
        page.panel.close()

    assert view["settings"]["temperature"] is None
    assert "Before, the panel" not in view["newer"]


def test_a_panel_that_begins_empty_has_its_own_settings(next_day: NextDay) -> None:
    """Without the turns, what they were asked with does not come back either."""
    settings = next_day(restore=False).view["settings"]

    assert (settings["temperature"], settings["max_tokens"]) == (None, "fit")


def test_what_fits_no_more_is_said_at_its_field(next_day: NextDay) -> None:
    """The others come back; to set the field, or to dismiss it, ends the message."""

    def dig() -> str:
        """Dig."""
        return "dug"

    page = next_day(changed={"n": 2, "temperature": 0.3}, tools=[dig])
    view = page.view

    assert (view["settings"]["n"], view["settings"]["temperature"]) == (None, 0.3)
    assert [*view["unusable"]] == ["n"]
    assert (
        "The last turn used 2. n must be 1 in a panel with tools"
        in (view["unusable"]["n"])
    )
    assert view["notice"].endswith("Not as in its last turn: n; the field says why.")
    page.say("set", name="n", value=1)
    assert page.view["unusable"] == {}


def test_a_model_that_the_server_lacks_is_not_used(next_day: NextDay) -> None:
    """A server with a list is asked; the session's model is used."""
    models = ["one", "two"]
    with Emulator(models=models, has_model_list=True, needs_key=False) as server:
        svc.use(base_url=server.base_url, key=False, model="one")
        page = next_day()

    assert page.view["settings"]["model"] == "one"
    assert "The last turn used svc-instruct" in page.view["unusable"]["model"]
    page.say("dismiss", name="model")
    assert page.view["unusable"] == {}


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


def test_nothing_is_sent_while_a_refused_value_stands(
    open_page: OpenPage, emulator: Emulator
) -> None:
    """The field keeps it, and the message box says so, until it is changed."""
    page = open_page()
    page.ask("Hello")
    page.say("set", name="temperature", value=3)
    page.say("set", name="max_tokens", value=9000)
    n_sent, turn = len(emulator.requests), page.view["turns"][0]["id"]
    for kind, content in {
        "send": {"text": "And now?"},
        "edit": {"turn": turn, "text": "Hi"},
        "regenerate": {"turn": turn},
    }.items():
        page.say(kind, **content)
        assert page.view["notice"].startswith(
            "Nothing was sent. Refused: temperature 3, max tokens 9000. "
        )
        assert (page.view["state"], page.view["is_problem"]) == ("idle", True)
    values = {name: each["value"] for name, each in page.view["refused"].items()}
    assert values == {"temperature": 3, "max_tokens": 9000}
    assert len(emulator.requests) == n_sent

    page.say("set", name="temperature", value=1)
    page.say("dismiss", name="max_tokens")
    assert (page.view["refused"], page.view["notice"]) == ({}, "")
    page.ask("And now?")
    assert emulator.requests[-1].json["temperature"] == 1


def test_a_refused_value_goes_with_the_settings_of_another_conversation(
    open_page: OpenPage,
) -> None:
    """To close the notice above the message does not take it away."""
    page, other = open_page(), open_page("sea")
    other.ask("Hello")
    page.say("set", name="temperature", value=3)
    page.say("dismiss", name="")
    page.say("find", text="")
    assert [*page.view["refused"]] == ["temperature"]
    page.say("open", name="sea")

    assert page.view["refused"] == {}


def test_a_refused_value_with_a_key_is_kept_in_no_view(
    open_page: OpenPage, emulator: Emulator
) -> None:
    """The page that it was typed in still has it, and nothing is sent."""
    page = open_page()
    page.say("set", name="system", value=f"Be brief {emulator.api_key}")
    assert [*page.view["refused"]["system"]] == ["text"]
    page.say("send", text="Hello")

    assert page.view["notice"].startswith("Nothing was sent. Refused: system prompt. ")
    assert not page.view["turns"]
    assert emulator.api_key not in str(page.comm.published)

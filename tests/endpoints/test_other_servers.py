"""The document's numbers are the service's; others are stated, listed or learnt."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.session import current
from svc_notebook.timeouts import Timeouts

from .conftest import Describe
from .stub_server import Serve, listed, reply, written

# `source` says how sure a wording is: a real server sent it, it was transcribed from
# memory of what is published, or it was made up.
REFUSALS = json.loads(Path(__file__).with_name("refusals.json").read_text("utf-8"))


def test_a_reply_that_ended_by_itself_is_not_cut(serve: Serve) -> None:
    """Nobody knows how long a reply may be where no max_tokens is sent."""
    server = serve(reply("A long one.", tokens=400))
    svc.use(base_url=server.base_url, key=False, model="m")

    completion = svc.complete("Hi", max_tokens=None)
    run = svc.sweep("Hi {{n}}", rows=[{"n": 1}, {"n": 2}])
    plan = " ".join(repr(run).split())
    run.run()

    assert (completion.is_cut, completion.exchange.max_tokens) == (False, None)
    assert "cut" not in repr(completion)
    assert "unknown in replies (max_tokens is not set)" in plan
    assert "150" not in plan
    assert run.replies_df()["is_cut"].tolist() == [False, False]
    assert "cut" not in repr(run)
    assert all("max_tokens" not in body for body in server.bodies)


def test_a_number_that_was_sent_still_tells(serve: Serve) -> None:
    """A reply with all the tokens that were asked for is probably cut."""
    server = serve(reply("A", tokens=20))
    svc.use(base_url=server.base_url, key=False, model="m")

    assert svc.complete("Hi", max_tokens=20).is_cut


def test_fit_sends_nothing_where_nothing_is_known(serve: Serve) -> None:
    """Nor where a context is listed that a reply may not have to itself."""
    server = serve(reply(), models=listed({"id": "m", "context_length": 128000}))
    unknown = serve(reply())

    svc.use(base_url=server.base_url, key=False, model="m")
    svc.complete("Hi")
    svc.use(base_url=unknown.base_url, key=False, model="m")
    svc.complete("Hi")

    assert [*server.bodies[0], *unknown.bodies[0]] == ["model", "messages"] * 2


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ({"max_model_len": 32768}, range(32000, 32768)),
        ({"meta": {"n_ctx": 4096, "n_ctx_train": 131072}}, range(3900, 4096)),
        ({"context_window": 131072, "max_completion_tokens": 8192}, [8192]),
        (
            {
                "context_length": 200000,
                "top_provider": {"max_completion_tokens": 64000},
            },
            [64000],
        ),
    ],
)
def test_the_list_says_how_long_a_reply_may_be(
    serve: Serve,
    model: dict[str, Any],
    sent: Any,  # noqa: ANN401 - numbers
) -> None:
    """The limit of a reply is not the context."""
    server = serve(reply(), models=listed({"id": "m", **model}))
    svc.use(base_url=server.base_url, key=False, model="m")

    svc.complete("Hi")

    assert server.bodies[0]["max_tokens"] in sent


def test_the_settings_say_how_long_a_reply_may_be(
    serve: Serve,
    describe: Describe,
) -> None:
    """For all models or one; a field's other name is sent as it is written."""
    server = serve(reply())
    describe(
        f'[lab]\nbase_url = "{server.base_url}"\nkey = false\nmax_reply = 4000\n'
        'context = 100000\nmax_tokens_field = "max_completion_tokens"\n'
        "[lab.models.m]\nmax_reply = 500\n[lab.models.small]\ncontext = 1000\n"
    )
    svc.use(endpoint="lab", model="other")

    svc.complete("Hi")
    svc.complete("Hi", model="m")
    svc.complete("Hi", max_tokens=20)
    svc.complete("Hi", model="small")
    svc.complete("Hi", extra={"max_completion_tokens": 7})

    sent = [body["max_completion_tokens"] for body in server.bodies]
    assert sent[:3] == [4000, 500, 20]
    assert 900 < sent[3] < 1000
    assert sent[4] == 7
    assert all("max_tokens" not in body for body in server.bodies)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case["of"])
def test_a_refusal_teaches_what_it_names(serve: Serve, case: dict[str, Any]) -> None:
    """A context, the limit of a reply or a field's name, but nothing that is unsure."""
    server = serve(written({"error": case["error"]}, case["status"]), reply())
    svc.use(base_url=server.base_url, key=False, model="m")
    prompt = "What does it mean: max_tokens must be at most 1000?"

    with pytest.raises(svc.errors.ServiceError) as caught:
        svc.complete(prompt, max_tokens=127958)
    info, teaches = current().info_of("m"), case["teaches"]

    assert info.context_tokens == teaches.get("context")
    most = teaches.get("reply") or teaches.get("context")
    assert info.max_reply_tokens == most
    assert info.max_tokens_field == teaches.get("field", "max_tokens")
    assert ("This is known now: ask again" in str(caught.value.remedy)) is bool(teaches)
    svc.complete("Hi")
    if "reply" in teaches:
        assert server.bodies[-1]["max_tokens"] == teaches["reply"]


def test_an_unknown_context_refuses_nothing(serve: Serve) -> None:
    """A prompt above the document's 8192 goes; a very large one with a warning."""
    server = serve(reply())
    svc.use(base_url=server.base_url, key=False, model="m")

    svc.complete("word " * 20_000, max_tokens=30_000)
    with pytest.warns(RuntimeWarning, match=r"context of m is unknown.*context=N"):
        svc.complete("word " * 50_000)
    talk = svc.conversation("long")
    talk.ask("word " * 20_000)
    talk.ask("Again?")

    assert len(server.bodies[-1]["messages"]) == 3


def test_an_error_names_whose_number_it_rests_on(serve: Serve) -> None:
    """It says how to correct the number, for the whole endpoint too."""
    server = serve(reply(), models=listed({"id": "m", "context_length": 1000}))
    svc.use(base_url=server.base_url, key=False, model="m")

    with pytest.raises(svc.errors.OverBudgetError) as caught:
        svc.complete("word " * 2000)
    with pytest.raises(svc.errors.ParameterError, match="server's list of models"):
        svc.complete("Hi", max_tokens=2000)
    svc.use(context=50_000)
    svc.complete("word " * 2000)

    assert "from the server's list of models. If it is wrong" in str(caught.value)
    assert "svc.use(context=N), or context = N in svc_notebook.toml" in str(
        caught.value
    )


def test_a_whole_reply_of_unknown_length_has_time(serve: Serve) -> None:
    """The time-out counts the most that is known, and not 150 tokens."""
    server = serve(["silence"])
    svc.use(base_url=server.base_url, key=False, model="m")
    timeouts = Timeouts(whole_s=0.01, whole_token_s=0.00001, total_s=None)
    client = svc.Client(replace(current().settings, timeouts=timeouts), key=False)

    with pytest.raises(svc.errors.TimedOutError) as caught:
        client.complete("Hi")

    assert caught.value.deadline_s == pytest.approx(0.01 + 8192 * 0.00001)

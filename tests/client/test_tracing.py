"""Spans of OpenTelemetry for requests and tools, and events for scores."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import (
    ConfigError,
    ParameterError,
    SettingsError,
    UnknownModelError,
)
from svc_notebook.session import isolated
from svc_notebook.settings import Settings
from svc_notebook.tools.consent import ConsentDecision

SPANS = InMemorySpanExporter()
EVENTS = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]  # has no types
MODEL = "svc-v2-8b-instruct"


@pytest.fixture(scope="module", autouse=True)
def _providers() -> None:
    """Set up what a program sets up once: where spans and events go."""
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(SPANS))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(EVENTS))
    trace.set_tracer_provider(tracers)
    _logs.set_logger_provider(loggers)


@pytest.fixture(autouse=True)
def traced(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Ask an emulator in a session of this test, with traces on."""
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")
    monkeypatch.setenv("SVC_TRACES", "on")
    SPANS.clear()
    EVENTS.clear()
    with isolated():
        yield emulator


def _spans() -> dict[str, ReadableSpan]:
    """Return the spans by their names, which are all different."""
    spans = SPANS.get_finished_spans()
    by_name = {span.name: span for span in spans}
    assert len(by_name) == len(spans)
    return by_name


def _attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def _id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def _chats() -> list[ReadableSpan]:
    return [span for span in SPANS.get_finished_spans() if span.name[:5] == "chat "]


def test_a_request_is_a_chat_span(traced: Emulator) -> None:
    """It has the attributes of the conventions, with the tokens of the service."""
    completion = svc.complete("Say hello.", temperature=0.5, stop=["§"], max_tokens=200)

    span = _spans()[f"chat {MODEL}"]
    attributes = dict(_attributes(span))
    assert span.kind is trace.SpanKind.CLIENT
    assert span.status.is_unset
    assert attributes.pop("gen_ai.usage.input_tokens") > 0
    assert attributes.pop("gen_ai.usage.output_tokens") > 0
    ours = [name for name in attributes if name.startswith("svc.")]
    assert {name: attributes.pop(name) for name in ours} == {
        "svc.exchange_id": completion.exchange.exchange_id,
        "svc.origin": "python",
        "svc.n_attempts": 1,
        "svc.queue_s": completion.exchange.queue_s,
        "svc.is_emulated": True,
    }
    del attributes["gen_ai.response.time_to_first_chunk"]
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "service",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.stream": False,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 200,
        "gen_ai.request.stop_sequences": ("§",),
        "gen_ai.response.id": completion.exchange.body.id,  # type: ignore[union-attr]  # it is ok
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ("stop",),
        "server.address": "127.0.0.1",
        "server.port": int(traced.base_url.split(":")[2].split("/")[0]),
    }


def test_a_span_is_as_long_as_its_exchange() -> None:
    """It ends when the reply was complete, not when it was kept."""
    exchange = svc.complete("Say hello.").exchange

    (span,) = _chats()
    assert span.end_time == int(exchange.ended_at.timestamp() * 1e6) * 1000


def test_no_text_is_in_a_span_unless_asked() -> None:
    """Prompts, replies, tools and messages of errors stay here."""

    @svc.tool
    def look_up(word: str) -> str:
        """Look up a word."""
        return "SECRET " + word

    svc.complete("SECRET: call look_up", system="SECRET", tools=[look_up])
    with pytest.raises(UnknownModelError):
        svc.complete("SECRET", model="svc-no-such-model")

    spans = SPANS.get_finished_spans()
    assert spans
    assert "SECRET" not in "".join(span.to_json() for span in spans)


def test_with_content_the_messages_are_json_of_the_conventions() -> None:
    """They are lists of roles and parts, and Thai is readable."""
    svc.use(traces="content")

    text = svc.complete("สวัสดี", system="Be kind.").text

    (span,) = _chats()
    attributes = _attributes(span)
    assert "สวัสดี" in attributes["gen_ai.input.messages"]
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]},
        {"role": "user", "parts": [{"type": "text", "content": "สวัสดี"}]},
    ]
    assert json.loads(attributes["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": text}],
            "finish_reason": "stop",
        }
    ]


def test_the_users_own_span_is_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also though requests are sent on the package's own thread, and by sweeps."""
    monkeypatch.setenv("SVC_MODEL", "svc-instruct")  # no limit, so nothing waits
    tracer = trace.get_tracer("test")

    async def ask() -> None:
        async with svc.AsyncClient() as client:
            await client.complete("Say hello.")
            async with client.stream("Say hello.") as stream:
                _ = [piece async for piece in stream]

    with tracer.start_as_current_span("mine") as mine:
        svc.complete("Say hello.")
        "".join(svc.stream("Say hello."))
        svc.conversation("a").ask("Say hello.")
        svc.sweep("Say {{text}}.", rows=["a", "b"]).run()
        asyncio.run(ask())

    parents = {span.parent and span.parent.span_id for span in _chats()}
    assert len(_chats()) == 7
    assert parents == {mine.get_span_context().span_id}


def test_without_a_span_each_request_is_a_trace() -> None:
    """A sweep of many requests is not one endless trace."""
    run = svc.sweep("Say {{text}}.", rows=["a", "b"], repeats=2).run()

    spans = _chats()
    assert [span.parent for span in spans] == [None] * 4
    attributes = [_attributes(span) for span in spans]
    assert {each["svc.run"] for each in attributes} == {run.run_id}
    assert sorted(each["svc.repeat"] for each in attributes) == [0, 0, 1, 1]


def test_a_conversation_is_named_in_its_spans() -> None:
    """The conventions' id of a conversation is its name."""
    svc.conversation("plan").ask("Say hello.")

    (span,) = _chats()
    assert _attributes(span)["gen_ai.conversation.id"] == "plan"


def test_rounds_of_tools_are_one_span() -> None:
    """Requests and calls are below it; the tool runs within the span of its call."""
    inside: list[int] = []

    @svc.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        inside.append(trace.get_current_span().get_span_context().span_id)
        return a + b

    svc.use(traces="content")
    svc.complete("What is 2 + 3? Use add.", tools=[add])

    spans = SPANS.get_finished_spans()
    (agent,) = [span for span in spans if span.name == "invoke_agent"]
    (called,) = [span for span in spans if span.name == "execute_tool add"]
    agent_id = _id(agent)
    below = [span for span in spans if span is not agent]
    assert {span.parent and span.parent.span_id for span in below} == {agent_id}
    assert len(_chats()) == 2
    assert inside == [_id(called)]
    attributes = _attributes(called)
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "add"
    assert attributes["gen_ai.tool.type"] == "function"
    assert attributes["gen_ai.tool.call.id"]
    assert set(json.loads(attributes["gen_ai.tool.call.arguments"])) == {"a", "b"}
    assert attributes["gen_ai.tool.call.result"].strip().lstrip("-").isdigit()


def test_the_span_of_a_call_has_the_arguments_that_ran() -> None:
    """The user may have changed those of the model."""

    @svc.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    changed = ConsentDecision(verdict="approve", arguments={"a": 70, "b": 7})
    svc.use(traces="content")
    svc.complete("What is 2 + 3? Use add.", tools=[add], confirm=lambda _: changed)

    spans = SPANS.get_finished_spans()
    (called,) = [span for span in spans if span.name == "execute_tool add"]
    arguments = _attributes(called)["gen_ai.tool.call.arguments"]
    assert json.loads(arguments) == {"a": 70, "b": 7}


def test_a_tool_that_fails_marks_its_span() -> None:
    """The trace shows which call failed."""

    @svc.tool
    def broken(a: int) -> int:
        """Break."""
        raise ValueError(a)

    svc.complete("Call broken with 1.", tools=[broken])

    spans = SPANS.get_finished_spans()
    (called,) = [span for span in spans if span.name == "execute_tool broken"]
    assert called.status.status_code is trace.StatusCode.ERROR
    assert _attributes(called)["error.type"] == "ToolError"


def test_an_error_is_in_the_span_of_its_request() -> None:
    """Its class and the status of HTTP are there; its message is content."""
    with pytest.raises(UnknownModelError):
        svc.complete("Say hello.", model="svc-no-such-model")

    (span,) = _chats()
    assert _attributes(span)["error.type"] == "UnknownModelError"
    assert _attributes(span)["http.response.status_code"] == 404
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description is None


def test_a_retry_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """The span covers all tries, and says why there were several."""
    script: list[dict[str, Any]] = [
        {"status": 503, "error": {"message": "Later."}, "times": 1},
        {"text": "hello"},
    ]
    with Emulator(script=script, tokens_per_s=None, first_token_s=0) as emulator:
        monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
        monkeypatch.setenv("SVC_API_KEY", emulator.api_key)
        svc.complete("Say hello.")

    (span,) = _chats()
    assert _attributes(span)["svc.n_attempts"] == 2
    (event,) = span.events
    assert event.name == "svc.retry"
    assert (event.attributes or {})["error.type"] == "ServerFaultError"


def test_scores_are_events_below_the_span_of_their_reply() -> None:
    """A number is a value, and a text is a label."""
    run = svc.sweep("Say {{text}}.", rows=["a"]).run()
    replies = run.replies_df()

    run.score(right=lambda row: row.text != "", tone=lambda _: "kind")

    (span,) = _chats()
    records = [data.log_record for data in EVENTS.get_finished_logs()]
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    assert {record.span_id for record in records} == {_id(span)}
    by_name = {
        (record.attributes or {})["gen_ai.evaluation.name"]: record.attributes or {}
        for record in records
    }
    assert by_name["right"]["gen_ai.evaluation.score.value"] == 1.0
    assert by_name["tone"]["gen_ai.evaluation.score.label"] == "kind"
    assert by_name["tone"]["gen_ai.response.id"] == replies["completion_id"][0]


def test_planned_scores_of_a_sweep_are_events_too() -> None:
    """They come while the sweep runs."""
    svc.sweep("Say {{text}}.", rows=["a", "b"], scores={"long": lambda _: 0.5}).run()

    records = [data.log_record for data in EVENTS.get_finished_logs()]
    values = [
        (record.attributes or {})["gen_ai.evaluation.score.value"] for record in records
    ]
    assert values == [0.5, 0.5]


def test_a_reply_of_the_ledger_makes_no_span() -> None:
    """Nothing was sent, and its tokens would count twice."""
    svc.complete("Say hello.", reuse=True)
    svc.complete("Say hello.", reuse=True)

    assert len(_chats()) == 1


def test_a_stream_that_is_closed_ends_its_span() -> None:
    """It was cancelled, which the span says."""
    with svc.stream("Count to a thousand.") as stream:
        next(iter(stream))

    (span,) = _chats()
    assert _attributes(span).get("error.type") in {"Cancelled", None}
    assert _attributes(span)["gen_ai.request.stream"] is True


def test_the_key_is_in_no_span(traced: Emulator) -> None:
    """Not even if a tool reads it from the environment."""
    key = traced.api_key

    @svc.tool
    def leak(a: int) -> str:
        """Leak."""
        return f"{key}{a}"

    svc.use(traces="content")
    svc.complete("Call leak with 1.", tools=[leak])

    spans = "".join(span.to_json() for span in SPANS.get_finished_spans())
    assert "execute_tool leak" in spans
    assert key not in spans


@pytest.mark.parametrize("word", [False, "off"])
def test_traces_can_be_switched_off_again(word: Any) -> None:  # noqa: ANN401 - both kinds
    """Then requests make no span."""
    svc.use(traces=word)

    svc.complete("Say hello.")

    assert SPANS.get_finished_spans() == ()


def test_a_wrong_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the words."""
    with pytest.raises(ParameterError, match="'off', 'on', 'content'"):
        svc.use(traces="yes")  # type: ignore[arg-type]  # refused
    monkeypatch.setenv("SVC_TRACES", "yes")
    with pytest.raises(SettingsError, match="off, on, content"):
        Settings.from_env()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing changes until it is installed."""
    from svc_notebook import tracing  # noqa: PLC0415 - its cache is emptied

    tracing._tracing.cache_clear()  # noqa: SLF001 - as in a new process
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigError, match="pip install opentelemetry-sdk"):
        svc.use(traces=True)


_PROGRAM = """
import sys
import svc_notebook as svc

with svc.Emulator(tokens_per_s=None, first_token_s=0) as emulator:
    svc.use(endpoint=emulator, ledger=":memory:")
    svc.complete("Say hello.")
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    svc.use(traces=True)
    svc.complete("Say hello.")
    svc.complete("Say hello again.")
"""


@pytest.mark.slow
def test_off_imports_nothing_and_on_without_a_provider_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line names what is missing; requests are sent."""
    monkeypatch.delenv("SVC_TRACES")
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )

    assert ended.stderr.count("set_tracer_provider") == 1


def test_settings_show_what_is_traced() -> None:
    """`Settings.traces` is what the variable says."""
    assert Settings.from_env({"SVC_TRACES": "content"}).traces == "content"
    assert Settings.from_env({}).traces == "off"

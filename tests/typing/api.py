"""The public names as a user's typed code would use them; checked, never run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import pandas as pd

import svc_notebook as svc


def ask() -> str:
    """Ask in one piece and read the reply."""
    completion: svc.Completion = svc.complete(
        "Say hello.",
        model="svc-v2-8b-instruct",
        system="Be brief.",
        temperature=0.2,
        stop=["\n\n"],
        max_tokens=20,
        extra={"seed": 1},
    )
    tokens: int | None = completion.usage.total_tokens
    reason: str | None = completion.finish_reason
    return f"{completion.text} {tokens} {reason} {completion.is_cut}"


def ask_with_messages() -> svc.Completion:
    """Ask with a history."""
    svc.complete([{"role": "user", "content": "Say hello."}])
    return svc.complete(
        [
            svc.Message(role="system", content="Be brief."),
            {"role": "user", "content": "Say hello."},
        ],
        max_tokens="service",
    )


def pieces() -> Iterator[str]:
    """Stream a reply."""
    with svc.stream("Tell a story.", temperature=1) as stream:
        yield from stream
    yield str(stream.completion.usage_source)


async def ask_async() -> list[str]:
    """Ask and stream where one can await."""
    async with svc.AsyncClient(base_url="https://host/v1", api_key="key") as client:
        completion = await client.complete("Say hello.", n=2)
        texts = [completion.reasoning, *completion.texts]
        asked = await client.complete("Bonn?", tools=[weather])
        texts += [step.result for step in asked.tool_runs]
        async with client.stream("And again.") as stream:
            async for text in stream:
                texts.append(text)
    return texts


async def ask_through_a_transport() -> str:
    """Ask through a transport of httpx, which the caller closes."""
    async with (
        httpx.AsyncHTTPTransport(retries=1) as transport,
        svc.AsyncClient(transport=transport) as client,
    ):
        return (await client.complete("Say hello.")).text


def compare() -> pd.DataFrame:
    """Sweep and read the frames."""
    run: svc.Run = svc.sweep("Greet.", model=["a", "b"], temperature=[0, 1], repeats=2)
    plan: pd.DataFrame = svc.sweep(manifest=run.manifest).plan_df()
    named = svc.sweep(
        {"a": "Greet.", "b": "Hail."},
        model={"small": "a"},
        in_flight=4,
        limits={"per_second": 2},
        tools=[compare],
        run_tools=True,
        max_rounds=3,
    )
    assert named.grid.labels
    parts: Path = svc.sweep("{{a}}", rows=Path("rows")).write_parquet("replies")
    assert parts.is_dir()
    kept: svc.Run = svc.run(str(svc.runs_df(since="2026-01-31")["run"].iloc[-1]))
    frame: pd.DataFrame = kept.run(first=20).run().replies_df()
    kept.retry(on="auto", workers=2).start(on="ray://head:10001").run(on="ray").wait()
    n_scores: int = svc.score(frame.assign(score_right=frame["text"] == "spam"))
    n_scores += run.score(right=lambda r: r.answer == r.label, long=svc.scores.length())
    n_scores += svc.score(frame, right=svc.scores.exact("label"), long=None)
    assert n_scores >= 0
    tables = [run.compare("prompt", columns=["model"], diff=True)]
    tables.append(svc.compare(frame, columns=(), markdown=False))
    code = run.reply(model="a", repeat=1).as_curl() + svc.reply("id").as_python()
    picture: Path = run.plot("right", against="cost").save("plot.svg")
    svc.plot(frame, "right", by=["model"], width=500)
    print(tables, code, picture)  # noqa: T201 - as a user would
    meanings: pd.DataFrame = svc.describe(run.replies_df(columns="narrow"))
    texts = svc.replies_df(["model", "text"])
    asked = svc.sweep("Spam?", answer=Literal["spam", "ham"]).run().read(Invoice)
    texts = svc.read_answers(asked.replies_df(), bool)
    frame = svc.as_replies(texts, "output", model="engine", scores=["correct"])
    frame = pd.concat([frame, svc.read_eval("old.eval", Path("logs"))])
    return pd.concat([plan, frame, texts, meanings, svc.usage_df(by=["model"])])


def decide(run: svc.Run, frame: pd.DataFrame) -> str:
    """Sum up, compare, and plan the next study."""
    summary: pd.DataFrame = svc.summary_df(frame, by=["model"], on="right")
    pairs: pd.DataFrame = run.contrast_df("model", on="right", against="a")
    pairs = pd.concat([pairs, svc.contrast_df(frame, "temperature"), run.summary_df()])
    compared: svc.Contrast = svc.contrast(frame, "model", "right")
    pairs = pd.concat([pairs, compared.df, run.contrast("model", on="right").df])
    alike = run.agreement_df("model", similarity=lambda a, b: a.text == b.text, k=[2])
    pairs = pd.concat([alike, svc.agreement_df(frame, k=2), run.repeats_df("right")])
    pairs = pd.concat([run.confusion_df("label", by="model"), svc.repeats_df(frame)])
    pairs = pd.concat([pairs, svc.confusion_df(frame, "label", unit=["document"])])
    trust = svc.agreement(frame, judge="judge", labels="rated", by="model")
    pairs = pd.concat([trust.disagreements, run.agreement("judge", "rated").df])
    pairs = pd.concat([pairs, run.contrast("model", "judge", labels="rated").df])
    summary = run.summary_df("model", unit=["customer"], missing="bounds")
    heat: float = run.trend("temperature", on="right", unit="customer").slope
    best: tuple[str, ...] = svc.ranking(frame, "model", unit="conversation").best
    slopes = [heat, float(len(best)), svc.trend(frame, "top_p", missing="wrong").p]
    decision: svc.Decision = run.decide("model", "right", margin=0.03, max_requests=9)
    pairs = pd.concat([pairs, decision.df, run.contrast("model", looks="any").df])
    judge: svc.Judge = run.judge("Is it polite?", model="m", answer=range(1, 6))
    files: list[Path] = run.report("decision.html", on="right", title="Which?")
    checked: svc.Recheck = run.recheck(40, "right", margin=0.05)
    pairs = pd.concat([pairs, checked.df, judge.run().judgements_df()])
    n_prompts: int = svc.how_many(0.05, pilot=run, on="right").n_prompts
    n_prompts += run.how_many(0.03, "model", margin=True, against="a").n_prompts_high
    both = run.how_many(0.1, "model", on="judge", labels="rated")
    pairs, n_prompts = pd.concat([pairs, both.df]), n_prompts + both.n_labelled
    said = f"{decision.says} {decision.value} {checked.says} {checked.is_worse}"
    said += files[0].name
    return f"{len(summary)} {pairs['says'].iloc[0]} {n_prompts} {slopes} {said}"


def talk() -> str | None:
    """Hold a conversation, and handle what may go wrong."""
    try:
        plan: svc.Conversation = svc.conversation("plan", system="Be brief.")
        plan.ask("Where to begin?", max_tokens=50)
        listed: pd.DataFrame = svc.conversations_df("begin")
        listed = svc.dataset(since="30d", where=lambda row: row["n_messages"] > 1)
        svc.replay(listed, model=["a", "b"], max_requests=10).run()
        assert plan.rename("trip").name in set(listed["conversation"])
    except svc.errors.RateLimitError as error:
        wait_s: float | None = error.retry_after_s
        return f"{error.status} {wait_s}"
    except svc.SvcError as error:
        return error.partial.text if error.partial else None
    last = svc.last()
    return last.as_python() + last.as_curl() if last else None


def read_over(plan: svc.Conversation) -> pd.DataFrame:
    """Steer a conversation, open a panel on it, and read it."""
    stop = plan.on_change(lambda: print(plan))  # noqa: T201 - as a user would
    again: svc.Completion = plan.ask_again(1, "Shorter, please", temperature=0.2)
    plan.choose(1, 1)
    plan.pick(1, 2)
    plan.prefer(1, 2)
    if again.is_cut:
        plan.go_on()
    plan.delete(1)
    plan.undo()
    plan.redo()
    stop()
    panel = svc.panel("plan", system="Be brief.", max_tokens=50)
    panel.freeze()
    text: str = plan.to_markdown() + plan.to_json()
    text += "".join(plan.stream("And then?")) + "".join(map(str, plan.saved()))
    plan.stream("And now?").close()
    branch: svc.Conversation = plan.copy("branch", until=1).restore(1)
    svc.conversation("read").from_json(branch.to_json())
    svc.conversation("shots", messages=[svc.Message(role="user", content="hot")])
    svc.conversation("again", messages=svc.export(plan.to_df(), "plan.jsonl"))
    return plan.to_df(versions="all").assign(text=text)


@svc.tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


@dataclass
class Invoice:
    """An invoice."""

    number: int


def run_tools() -> pd.DataFrame:
    """Offer functions, run them, and take a value out of a text."""
    answer: svc.Completion = svc.complete(
        "Weather in Rome?",
        tools=[weather],
        max_rounds=4,
        confirm=lambda call: call.name == "weather",
    )
    results: list[str] = [step.result for step in answer.tool_runs]
    asked = svc.complete("And in Bonn?", tools=svc.Toolbox([weather]), run_tools=False)
    names = [call.function.name for call in asked.tool_calls]
    invoice: Invoice = svc.extract(Invoice, f"{results} {names}", max_tries=2)
    invoices: list[Invoice] = svc.extract(list[Invoice], f"{results}")
    svc.conversation("trip").ask(str(invoice.number + len(invoices)), tools=[weather])
    return svc.tool_calls_df(name="weather")


def emulate() -> str:
    """Use the emulator, and keep what is asked in a file of its own."""
    svc.use(endpoint=svc.Emulator(script={"entries": [{"text": "yes"}]}))
    svc.use(endpoint="emulator", ledger=Path("project.sqlite"))
    svc.use(base_url="http://127.0.0.1:8000/v1", key=False)
    with svc.Emulator(script=[{"text": "Certainly."}]) as emulator:
        client = svc.Client(base_url=emulator.base_url, api_key=emulator.api_key)
        return client.complete("Hello?").text


@svc.tool
def area(width: float, height: float) -> float:
    """Compute an area."""
    return width * height


@svc.tool(name="weather", confirm=True, timeout_s=5, max_result_tokens=200)
async def weather_of(city: str) -> str:
    """Tell the weather."""
    return city


def estimate(texts: list[str]) -> str:
    """Estimate tokens and add them up."""
    total: svc.Tokens = sum(map(svc.estimate_tokens, texts), svc.Tokens())
    best: int = total.best
    return f"{best}: {total.low} to {total.high}"


def offer() -> tuple[str, ...]:
    """Put tools into a toolbox and read what is sent of them."""
    box = svc.Toolbox([area, weather_of, str.upper]) + svc.Toolbox()
    names: list[str] = [each.name for each in box]
    try:
        definition = box.definitions[0]["function"]
    except svc.errors.ToolSchemaError as problem:
        return (str(problem),)
    except svc.errors.ToolCallError as problem:
        return problem.faults
    return (*names, str(definition["name"]), str(box.n_tokens))

"""The public names as a user's typed code would use them; checked, never run."""

from collections.abc import Iterator

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
        ]
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
        texts = list(completion.texts)
        async with client.stream("And again.") as stream:
            async for text in stream:
                texts.append(text)  # noqa: PERF401 - what a user writes
    return texts


def compare() -> pd.DataFrame:
    """Sweep and read the frames."""
    run: svc.Run = svc.sweep("Greet.", model=["a", "b"], temperature=[0, 1], repeats=2)
    plan: pd.DataFrame = run.plan_df()
    frame: pd.DataFrame = run.run().replies_df()
    return pd.concat([plan, frame, svc.replies_df(), svc.usage_df(by=["model"])])


def talk() -> str | None:
    """Hold a conversation, and handle what may go wrong."""
    try:
        plan: svc.Conversation = svc.conversation("plan", system="Be brief.")
        plan.ask("Where to begin?", max_tokens=50)
    except svc.RateLimitError as error:
        wait_s: float | None = error.retry_after_s
        return f"{error.status} {wait_s}"
    except svc.SvcError as error:
        return error.partial.text if error.partial else None
    last = svc.last()
    return last.text if last else None


def emulate() -> str:
    """Use the emulator."""
    svc.use("emulator")
    with svc.Emulator(script=[{"text": "Certainly."}]) as emulator:
        client = svc.Client(base_url=emulator.base_url, api_key=emulator.api_key)
        return client.complete("Hello?").text

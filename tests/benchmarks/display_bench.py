"""What showing a display reply costs: messages, bytes, and time of the processor.

Run `python tests/benchmarks/display_bench.py` for a table. Messages and bytes
are exact and the same on every machine: the messages are built and serialised
as a kernel does, envelope included, under a clock that only the replay moves.
`tests/display/test_display_cost.py` holds them against their limits.

`python tests/benchmarks/display_bench.py --cell HOW PORT` runs one real cell against
the stub at a port, and prints what it took as JSON: see `cell`.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, product
from typing import Any, NamedTuple

from jupyter_client.session import Session

from svc_notebook.display.front_end import Output
from svc_notebook.display.reply_display import Final, Mode, ReplyDisplay

CHUNKS_PER_S = 200
_FLUSH_GAP_S = 0.05

_MIXED = """## Step {n}: clean the table

The column `price` holds **text**, since some rows say "n/a". Turn it into numbers
first, and look at what was lost; see [the manual](https://example.org/to_numeric?n={n}).
In *most* files fewer than 1 % of rows change, and $x^2 + y_{n}$ stays as it is.

- read the file with the right encoding
- turn `price` into numbers, errors into missing values
  - keep the old column for comparison
- count the missing values before and after

```python
import pandas as pd

def clean(df: pd.DataFrame, column: str = "price") -> pd.DataFrame:
    # "n/a" and the like become <NA>
    numbers = pd.to_numeric(df[column], errors="coerce")
    return df.assign(**{{column: numbers}}).dropna(subset=[column])[: {n} * 100]
```

| step | rows | lost |
|:-----|-----:|-----:|
| read | 10{n}0 | 0 |
| clean | 9{n}7 | 1{n} |

> Check the result by eye before you go on.

1. Save the table as `clean_{n}.csv`.
2. Write down how many rows were lost, and why.

"""
_CODE = '''    def step_{n}(self, rows: list[dict[str, object]]) -> int:
        """Count the rows whose "value" is above {n}."""
        total = 0
        for row in rows:  # one pass
            if row.get("value") is not None and int(row["value"]) > {n}:
                total += 1
        return total

'''
_THAI = (
    "การทำความสะอาดข้อมูลเริ่มจากการอ่านไฟล์ด้วยรหัสอักขระที่ถูกต้อง แล้วแปลงคอลัมน์ราคาเป็นตัวเลข "
    "แถวที่แปลงไม่ได้จะกลายเป็นค่าว่าง ควรนับจำนวนก่อนและหลัง **ขั้นที่ {n}** เสมอ\n\n"
    "- อ่านไฟล์\n- แปลงค่า\n- ตรวจผลลัพธ์\n\n"
)
_SENTENCE = "In step {n} the rows are read, and each value is compared with the last. "
_NESTED = "- step {n} is first\n  1. then {n} rows\n     - and `value_{n}` below that\n"


def _repeated(part: str, n_bytes: int) -> str:
    text, n = "", 0
    while len(text.encode()) < n_bytes:
        n += 1
        text += part.format(n=n)
    return text.encode()[:n_bytes].decode(errors="ignore")


def replies(n_bytes: int) -> dict[str, str]:
    """Write one reply of each kind.

    Args:
        n_bytes: Size of each in UTF-8, one character less at most.

    Returns:
        Markdown by the name of its kind.
    """
    items = "- " + _SENTENCE
    return {
        "mixed": _repeated(_MIXED, n_bytes),
        "code": f"```python\nclass Steps:\n{_repeated(_CODE, n_bytes - 40)}\n```\n",
        "thai": _repeated(_THAI, n_bytes),
        "paragraph": _repeated(_SENTENCE, n_bytes),
        "list": _repeated(items + "\n", n_bytes),
        "nested": _repeated(_NESTED, n_bytes),
        "table": "| a | b |\n|--|--|\n" + _repeated("| {n} | word |\n", n_bytes),
        "line": _repeated("{n}ab", n_bytes),
    }


def chunks(text: str, n_chars: tuple[int, int] = (2, 7)) -> Iterator[str]:
    """Cut a reply into pieces of so many characters, the same each time."""
    sizes = random.Random(7)  # noqa: S311 - no secret
    at = 0
    while at < len(text):
        size = sizes.randint(*n_chars)
        yield text[at : at + size]
        at += size


class Cost(NamedTuple):
    """What one replay cost."""

    n_messages: int
    n_bytes: int
    stream_s: float
    n_reply_bytes: int

    @property
    def messages_per_s(self) -> float:
        """Display messages in a second of stream."""
        return self.n_messages / self.stream_s

    @property
    def bytes_per_byte(self) -> float:
        """Bytes sent for a byte of the reply, the final output included."""
        return self.n_bytes / self.n_reply_bytes


class Wire:
    """Counts what a kernel would send."""

    def __init__(self) -> None:
        self._session = Session(key=b"0" * 36, username="user")
        self._parent = self._session.msg("execute_request", {"code": ""})
        self.n_messages = 0
        self.n_bytes = 0

    def _send(self, kind: str, content: Mapping[str, object]) -> None:
        message = self._session.msg(kind, dict(content), parent=self._parent)
        self.n_messages += 1
        self.n_bytes += sum(len(frame) for frame in self._session.serialize(message))

    def show(
        self, kind: str, bundle: Mapping[str, str], display_id: str | None
    ) -> None:
        """Send a display message."""
        transient = {"display_id": display_id} if display_id else {}
        content = {"data": dict(bundle), "metadata": {}, "transient": transient}
        self._send(kind, content)

    def output(self) -> Output:
        """Make a screen whose every act is one message."""
        return Output(
            publish=lambda bundle, name: self.show("display_data", bundle, name),
            update=lambda bundle, name: self.show("update_display_data", bundle, name),
            clear=lambda: self._send("clear_output", {"wait": True}),
            erase=lambda: self._send("clear_output", {"wait": False}),
            write=lambda text: self._send("stream", {"name": "stdout", "text": text}),
        )


def replay(
    text: str, *, own_output: bool = True, n_chars: tuple[int, int] = (2, 7)
) -> Cost:
    """Show a reply as it would come at 200 chunks a second.

    Args:
        text: The whole reply.
        own_output: As in `ReplyDisplay.open`.
        n_chars: The least and the most characters of a piece.

    Returns:
        The exact cost.
    """
    wire, now_s, flushed_s = Wire(), 0.0, 0.0
    display = ReplyDisplay.open(
        Mode.LIVE, own_output=own_output, output=wire.output(), clock=lambda: now_s
    )
    for piece in chunks(text, n_chars):
        now_s += 1 / CHUNKS_PER_S
        display.add(piece)
        if now_s - flushed_s >= _FLUSH_GAP_S:
            display.flush()
            flushed_s = now_s
    display.finish(Final(texts=(text,), footer="svc-v2-8b-instruct · 512 tokens · 4 s"))
    return Cost(wire.n_messages, wire.n_bytes, now_s, len(text.encode()))


N_CELL_CHUNKS = 600
_CELL_MODEL = f"stub-chunks{N_CELL_CHUNKS}-gap{1 / CHUNKS_PER_S}"
UPDATES_PER_S = 25


class CellCost(NamedTuple):
    """What one cell took; the seconds are those of a clock, CPU is the process's."""

    cpu_s: float
    first_text_s: float
    longest_gap_s: float


def cell(how: str, port: int) -> CellCost:
    """Stream a reply into a cell of a shell, whose messages are built and serialised.

    Args:
        how: `svc` is a `%%svc` cell; `markdown` reads the stream with httpx, and
            updates `display(Markdown(...))` 25 times a second.
        port: Of the stub.
    """
    os.environ.update(
        SVC_BASE_URL=f"http://127.0.0.1:{port}/v1",
        SVC_API_KEY="k",
        SVC_DISPLAY="live",
        SVC_LEDGER=":memory:",
    )
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415 - measured alone

    shell: Any = InteractiveShell.instance()
    times_s: list[float] = []
    wire = Wire()

    def publish(data: Mapping[str, str], *_: object, **more: Any) -> None:  # noqa: ANN401 - IPython's
        kind = "update_display_data" if more.get("update") else "display_data"
        transient = more.get("transient") or {}
        wire.show(kind, data, transient.get("display_id"))
        if any("word" in str(text) for text in data.values()):
            times_s.append(time.perf_counter())

    shell.display_pub.publish = publish
    run = _svc_cell(shell) if how == "svc" else _markdown_cell(port)
    run("stub-chunks20")  # what is imported at the first cell is not part of it
    times_s.clear()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    run(_CELL_MODEL)
    cpu_s = time.process_time() - began_cpu_s
    gaps_s = (after - before for before, after in pairwise(times_s))
    return CellCost(cpu_s, times_s[0] - began_s, max(gaps_s))


def _svc_cell(shell: Any) -> Callable[[str], object]:  # noqa: ANN401 - IPython's
    shell.run_line_magic("load_ext", "svc_notebook")
    return lambda model: shell.run_cell_magic("svc", f"--model {model}", "Say hello.")


def _markdown_cell(port: int) -> Callable[[str], object]:
    import httpx  # noqa: PLC0415 - measured alone
    from IPython import display as shows  # noqa: PLC0415 - measured alone

    markdown: Any = shows.Markdown
    display: Any = shows.display
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", timeout=60)
    messages = [{"role": "user", "content": "Say hello."}]

    def run(model: str) -> None:
        text, shown_s = "", 0.0
        body = {"model": model, "messages": messages, "stream": True}
        shown: Any = None
        with client.stream("POST", "/chat/completions", json=body) as reply:
            for line in reply.iter_lines():
                if not line.startswith("data: {"):
                    continue
                delta = json.loads(line[6:])["choices"][0]["delta"]
                text += delta.get("content") or ""
                if time.perf_counter() - shown_s >= 1 / UPDATES_PER_S:
                    shown_s = time.perf_counter()
                    if shown is None:
                        shown = display(markdown(text), display_id=True)
                    else:
                        shown.update(markdown(text))
        shown.update(markdown(text))

    return run


def main() -> None:
    """Print the table, or the cost of a cell."""
    if sys.argv[1:2] == ["--cell"]:
        print(json.dumps(cell(sys.argv[2], int(sys.argv[3]))))  # noqa: T201 - a report
        return
    heads = ("kind", "bytes", "chars", "msg/s", "ratio", "cpu %")
    print("{:10} {:>6} {:>6} {:>6} {:>6} {:>6}".format(*heads))  # noqa: T201 - a report
    for n_bytes, (least, most) in product((6_000, 24_000), ((2, 7), (1, 2))):
        for kind, text in replies(n_bytes).items():
            begun_s = time.process_time()
            cost = replay(text, n_chars=(least, most))
            cpu_s = time.process_time() - begun_s
            print(  # noqa: T201 - a report
                f"{kind:10} {n_bytes:6} {f'{least}-{most}':>6} "
                f"{cost.messages_per_s:6.1f} {cost.bytes_per_byte:6.1f} "
                f"{100 * cpu_s / cost.stream_s:6.1f}"
            )


if __name__ == "__main__":
    main()

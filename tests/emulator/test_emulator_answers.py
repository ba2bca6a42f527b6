"""What the plain emulator answers: our own questions, and all others.

What the pages, docstrings, help and buttons ask is collected from their sources.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.emulator.emulated_service import Service, Setup
from svc_notebook.emulator.http_values import MARK, Reply, Request
from svc_notebook.magics.help import help_on

Fields = Callable[..., dict[str, Any]]
Ask = Callable[..., tuple[str, str]]

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"%%svc[^\n]*\n(.*)", re.DOTALL)
VERBS = {"complete", "stream", "ask", "sweep"}
# Their prompts are for an emulator with a script of its own, or for nobody.
WITH_SCRIPT = re.compile(r"Emulator\((?:script|\s*mod)|pytest\.raises")
I_AM = ("I am the emulator", "ฉันคือโปรแกรมจำลอง")


@pytest.fixture
def ask(
    make_service: Callable[..., Service], post: Callable[..., Reply], fields: Fields
) -> Ask:
    """Ask the plain emulator; return its text and what is said of it."""

    def answer(prompt: str, **more: object) -> tuple[str, str]:
        more = {"max_tokens": 2000} | more
        filler = bool(more.pop("is_filler", False))
        reply = post(make_service(is_filler=filler), fields(prompt, **more))
        body = json.loads(b"".join(piece.data for piece in reply.body))
        text: str = body["choices"][0]["message"]["content"]
        return text, unquote(reply.headers[MARK[0]])

    return answer


def _in_code(code: str) -> Iterator[str]:
    """Yield the prompts that Python code sends, and those of cells of the magic."""
    if cell := CELL.search(code):
        yield cell[1].strip()
        return
    lines = (line for line in code.splitlines() if not line.startswith(("%", "!")))
    for node in ast.walk(ast.parse("\n".join(lines))):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=verb), args=[ast.Constant(str(prompt)), *_]
            ) if verb in VERBS:
                yield prompt


def _in_pages() -> Iterator[str]:
    for path in (*ROOT.glob("notebooks/*.md"), ROOT / "README.md"):
        text = path.read_text("utf-8")
        has_script = path.name in {"README.md", "cookbook.md"}  # the first cell says so
        for language, code in FENCED.findall(text):
            if language in {"", "python", "text"} and not (
                has_script or WITH_SCRIPT.search(code)
            ):
                is_code = language == "python" or code.startswith("%%svc")
                yield from _in_code(code) if is_code else ()
        yield from re.findall(r"`%svc ([a-z' ]+\?)`", text)


def _in_docstrings() -> Iterator[str]:
    for path in (ROOT / "svc_notebook").rglob("*.py"):
        text = path.read_text("utf-8")
        has_example = re.search(r"^ *(>>>|%%svc)", text, re.MULTILINE)
        for node in ast.walk(ast.parse(text)) if has_example else ():
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            doc = ast.get_docstring(node) or ""
            yield from re.findall(r"^ +%%svc[^\n]*\n +(.+)$", doc, re.MULTILINE)
            examples = re.findall(r"^ *(?:>>>|\.\.\.) ?(.*)$", doc, re.MULTILINE)
            yield from (
                prompt
                for line in examples
                for prompt in re.findall(
                    rf"\.(?:{'|'.join(VERBS)})\(\"([^\"]+)\"", line
                )
            )


def _in_help() -> Iterator[str]:
    text = str(help_on("", {}, {}))
    yield from re.findall(r"^%%svc.*\n(\w[^{\n]*\{\{.*?\.)  ", text, re.MULTILINE)
    yield from re.findall(r"^%svc ([a-z ]+\?)", text, re.MULTILINE)


def _on_buttons() -> list[str]:
    text = (ROOT / "svc_notebook/panels/static/chat/suggestions.js").read_text("utf-8")
    lists = re.findall(r"EXAMPLES = \[(.*?)\]", text, re.DOTALL)
    return [words for each in lists for words in re.findall(r'"([^"]+)"', each)]


OURS = sorted({*_in_pages(), *_in_docstrings(), *_in_help(), *_on_buttons()})


def test_the_questions_are_found() -> None:
    """Pages, docstrings, help and buttons are all among the sources."""
    assert {
        "Name three uses of SQLite.",
        "Explain server-sent events in two sentences.",
        "Explain {{name}} in two sentences.",
        "what is a monad?",
        *_on_buttons(),
    } <= set(OURS)
    assert len(_on_buttons()) == 6  # three of them in Thai


@pytest.mark.parametrize("prompt", OURS)
def test_what_we_ask_has_an_answer(ask: Ask, prompt: str) -> None:
    """It was written by hand; what a reader fills in is explained, never made up."""
    text, note = ask(prompt)

    if " good or bad? " in prompt:  # labels, one of which is picked
        assert text in {"good", "bad"}
        assert note == "made up"
    elif "{{" in prompt:
        assert text.startswith(I_AM)
        assert note == "no answer"
    elif prompt.startswith("Use "):  # a tool of that page, which is not offered here
        assert note == "no answer"
    else:
        assert note == "written by hand"


@pytest.mark.parametrize("prompt", ["Hello", "hi!", "  Hello there. ", "สวัสดีครับ"])
def test_a_greeting_is_greeted(ask: Ask, prompt: str) -> None:
    """Capitals, blanks and marks make no difference, and no word is taken for one."""
    text, note = ask(prompt)

    assert re.match(r"Hello|สวัสดี", text)
    assert note == "written by hand"
    assert ask("Hi, what is the price of tea?")[1] == "no answer"


def _n_sentences(text: str) -> int:
    return len(re.findall(r"\.(?:\s|$)", text))


@pytest.mark.parametrize(
    ("wish", "n"),
    [
        ("", 2),
        ("in one sentence", 1),
        ("in three short sentences", 3),
        ("in 12 sentences", 12),
        ("briefly", 1),
        ("in a long essay", 9),
        ("in two paragraphs", 6),
        ("in one or two sentences", 2),
        ("in 500 sentences", 20),
        ("and that I wrote 500 words", 2),
        ("for a report that has 3 paragraphs", 2),
    ],
)
def test_it_explains_itself_at_the_length_that_was_asked_for(
    ask: Ask, wish: str, n: int
) -> None:
    """Without a length it takes two sentences."""
    text, note = ask(f"Tell me about rain {wish}".strip() + ".")

    assert text.startswith(I_AM)
    assert _n_sentences(text) == n
    assert note == "no answer"


@pytest.mark.parametrize(
    ("prompt", "form"),
    [
        ("Name five rivers.", r"(\d\. .+\n){4}5\. .+"),
        ("Sum it up in two bullet points.", r"- .+\n- .+\n- .+|- .+\n- .+"),
        ("A poem in four lines", r"(.+\n){3}.+"),
        ("Write an SQL query for it.", r"```sql\n(-- .+\n)+```"),
        ("Write a Python function.", r"```python\n(# .+\n)+```"),
        (
            "Show the rivers as a table.",
            r"\| \| .+ \|\n\|---\|---\|(\n\| \d \| .+ \|)+",
        ),
        ("Describe rain in one word.", r"\w+"),
        ("Write exactly 5 words.", r"(\S+ ){4}\S+"),
        ("Describe rain in at most 20 words.", r"(\S+ ){1,19}\S+\."),
        ("Return 500 for 380 baht; give 120 baht back.", r"[^\n]+"),
        ("Give me 120 items.", r"(\d+\. .+\n){19}20\. .+"),
        ("ขอเหตุผล 3 ข้อ", r"1\. .+\n2\. .+\n3\. .+"),
        ("มีข้อความ 3 ข้อความ", r"[^\n]+"),
        ("What is it?\n```\nwrite 5 words\n```", r"[^\n]+ [^\n]+\."),
        ("Write a bash script.", r"```bash\n(# .+\n)+```"),
        ("Give me a CSV.", r'line,text(\n\d,"[^\n]+")+'),
        ("What is JSON?", r"[^\n{]+"),
        ("What is rain? Answer in Thai.", rf"{I_AM[1]}.*"),
        ("Translate into French: it rains", rf"{I_AM[0]}.* English and Thai only\."),
        ("Describe rain in 25 words.", r"(\S+ ){24}\S+"),
        ("อธิบายเรื่องฝนในหนึ่งประโยค", rf"{I_AM[1]}\S* [^`]+"),
        ("อธิบายเรื่องฝนสองบรรทัด", r".+\n.+"),
    ],
)
def test_it_keeps_to_the_form_that_was_asked_for(
    ask: Ask, prompt: str, form: str
) -> None:
    """Lists, tables, code, lines and words are what they should be."""
    text, _ = ask(prompt)

    assert re.fullmatch(form, text)


@pytest.mark.parametrize(
    ("prompt", "keys"),
    [
        ("Answer in JSON.", ["answer"]),
        ("JSON with the keys city, country and year", ["city", "country", "year"]),
        ("JSON with the field `name`", ["name"]),
        (
            "Rate it from 1 to 5, as JSON with keys score and reason",
            ["score", "reason"],
        ),
    ],
)
def test_json_can_be_read(ask: Ask, prompt: str, keys: list[str]) -> None:
    """It has the keys that the prompt lists."""
    text, _ = ask(prompt)

    assert list(json.loads(text)) == keys


def test_a_form_may_be_in_the_system_message(ask: Ask) -> None:
    """The newest message goes before it."""
    system = {"role": "system", "content": "Answer in one sentence."}
    plain, wishing = ({"role": "user", "content": x} for x in ("Rain?", "Two lines."))

    assert _n_sentences(ask("", messages=[system, plain])[0]) == 1
    assert ask("", messages=[system, wishing])[0].count("\n") == 1


# words of forms, numbers and labels
WISHES = re.findall(
    r"\S+|\n",
    "0 1 9999 two 2-3 words sentences lines items paragraphs in or of give name JSON "
    "CSV table code as write keys with most ข้อ คำ ประโยค หรือ เป็น : , / | ``` \n A) "
    "rate to from label yes no not",
)


@given(st.lists(st.sampled_from(WISHES)).map(" ".join))
def test_every_prompt_gets_a_reply(prompt: str) -> None:
    """Whatever words of form and number it has, and in whatever order."""
    service = Service(Setup(limits={}, clock=float, now=float))
    body = {
        "model": "svc-instruct",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 2000,
    }
    headers = {
        "authorization": "Bearer svc-emulator",
        "content-type": "application/json",
    }

    reply = service.reply(
        Request(
            method="POST",
            path="/v1/chat/completions",
            headers=headers,
            body=json.dumps(body).encode(),
        )
    )

    assert reply.status == 200
    assert json.loads(reply.body[0].data)["choices"][0]["message"]["content"]


def test_a_system_message_may_exclude_an_answer_written_by_hand(ask: Ask) -> None:
    """Such an answer is English prose, whatever form or language is asked for."""
    system = {"role": "system", "content": "Answer in JSON."}

    text, note = ask("", messages=[system, {"role": "user", "content": "Hello"}])

    assert list(json.loads(text)) == ["answer"]
    assert note == "no answer"


def test_code_that_has_no_answer_is_one_comment(ask: Ask) -> None:
    """It goes into the next cell of a notebook, as after `%svc fix`."""
    text, note = ask("Write the corrected cell as a whole, in one Python code block.")

    assert (
        text
        == f"```python\n# {I_AM[0]}: I play the service and cannot answer this.\n```"
    )
    assert note == "no answer"


@pytest.mark.parametrize("temperature", [0, 0.7, 2])
def test_a_thai_prompt_is_answered_in_thai(ask: Ask, temperature: float) -> None:
    """Only what is typed is in Latin letters."""
    text, _ = ask("ช่วยอธิบายเรื่องฝนตกหนัก", temperature=temperature)

    assert text.startswith(I_AM[1])
    assert not re.search("[a-z]", re.sub("`[^`]*`", "", text))


@pytest.mark.parametrize("prompt", ["Why does it rain?", "ทำไมฝนตก"])
@pytest.mark.parametrize("seed", range(5))
def test_its_second_sentence_says_how_to_get_an_answer(
    ask: Ask, prompt: str, seed: int
) -> None:
    """From the service, from a script or from the filler."""
    text, _ = ask(prompt, seed=seed)

    assert re.search(r"`%svc use service`|script=\[\.\.\.\]|text=\"filler\"", text)


def test_max_tokens_and_stop_cut_it(ask: Ask) -> None:
    """It is cut as any reply is."""
    assert ask("Rain?", max_tokens=3)[0] == "I am the"
    assert ask("Rain?", stop=[":"])[0] == "I am the emulator"


@pytest.mark.parametrize("wish", ["Go on exactly where it stopped.", "continue"])
def test_an_answer_that_was_cut_goes_on(ask: Ask, wish: str) -> None:
    """Asked for the rest, it gives the rest; after anything else it has no answer."""
    question = "Explain server-sent events in two sentences."
    whole, _ = ask(question)
    cut, _ = ask(question, max_tokens=12)
    before = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": cut},
    ]

    rest, note = ask("", messages=[*before, {"role": "user", "content": wish}])

    assert (cut + rest, note) == (whole, "written by hand")
    other = {"role": "user", "content": "Now about rain."}
    assert ask("", messages=[*before, other])[1] == "no answer"


@pytest.mark.parametrize("is_filler", [False, True])
def test_made_up_text_that_goes_on_begins_a_new_word(
    ask: Ask,
    is_filler: bool,
) -> None:
    """It is no rest of the word before it, so a blank parts them."""
    wish = {"role": "user", "content": "Go on exactly where it stopped."}
    for before, gap in (("Write down what", " "), ("A tea.", ""), ("Tea is ", "")):
        told = [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": before},
        ]

        text, _ = ask("", messages=[*told, wish], is_filler=is_filler)
        other, _ = ask("", messages=[*told, {"role": "user", "content": "Rain?"}])

        assert text[: len(text) - len(text.lstrip())] == gap
        assert not other.startswith(" ")


def test_made_up_prose_comes_only_where_it_is_asked_for(ask: Ask) -> None:
    """The filler answers everything, also what has an answer, and is marked."""
    text, note = ask("Hello", is_filler=True)

    assert note == "made up"
    assert not text.startswith(("Hello", *I_AM))

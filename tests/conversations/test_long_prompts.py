"""Long prompts in a transcript: the first rows, and a line that opens the rest."""

import re
from html import unescape

import pytest

import svc_notebook as svc
from svc_notebook.conversations.long_prompt import MAX_ROWS, ROW_CHARS, split_long
from tests.conversations.conftest import answered

LINES = "\n".join(f"{n},Trang,<b>" for n in range(60))
TABLE = f"Which is late?\n\n{LINES}\nAnswer in one line."
THAI = "ลูกค้าแจ้งว่าสินค้ามาถึงช้าและกล่องบุบ" * 60


def drawn(plan: svc.Conversation, heading: str) -> tuple[str, list[str]]:
    """Return the line that opens a prompt, and the texts around it."""
    html = plan._repr_mimebundle_()["text/html"].partition(heading)[2]
    mine = html.partition("svc-v2-8b-instruct")[0]
    opens = re.search(r"<summary[^>]*>(.*?)</summary>", mine)
    texts = re.findall(r"<pre[^>]*>(.*?)</pre>", mine, re.DOTALL)
    return opens[1] if opens else "", list(map(unescape, texts))


@pytest.mark.parametrize(
    ("prompt", "line", "n_shown_lines"),
    [(TABLE, "All 63 lines", 8), (LINES, "All 60 lines", 8)],
)
def test_the_first_lines_of_many_are_shown(
    plan: svc.Conversation, prompt: str, line: str, n_shown_lines: int
) -> None:
    """The rest is folded; together they are what was asked, as the exports have it."""
    plan.ask(prompt)

    opens, texts = drawn(plan, "1 · You")

    assert opens == line
    assert "".join(texts) == prompt
    assert texts[0].splitlines() == prompt.splitlines()[:n_shown_lines]
    assert prompt in plan._repr_mimebundle_()["text/plain"]
    assert plan.to_markdown().count(",Trang,") == 60  # the rows


@pytest.mark.parametrize(
    ("prompt", "n_shown"),
    [("x" * 5000, 640), ("lorem ipsum " * 400, 636), (THAI, 641)],
)
def test_a_long_line_is_folded_within(
    plan: svc.Conversation, prompt: str, n_shown: int
) -> None:
    """Between words if there are any, and never between a letter and its tone."""
    plan.ask(prompt)

    opens, texts = drawn(plan, "1 · You")

    assert opens == f"All {len(prompt):,} characters"
    assert "".join(texts) == prompt
    assert len(texts[0]) == n_shown


@pytest.mark.parametrize(
    "prompt",
    ["Count", "\n".join("abcdefghijkl"), "x" * (MAX_ROWS * ROW_CHARS - 1)],
)
def test_other_prompts_are_whole(plan: svc.Conversation, prompt: str) -> None:
    """A fold that hides only a few lines is of no use."""
    plan.ask(prompt)

    assert drawn(plan, "1 · You") == ("", [prompt])


def test_a_long_system_message_is_folded_too(plan: svc.Conversation) -> None:
    """It is shown as typed, above the first turn."""
    plan.system = TABLE

    assert drawn(plan, "system")[0] == "All 63 lines"


def test_the_rest_begins_with_no_line_end() -> None:
    """HTML drops a line end at the start of `<pre>`; blank lines stay above."""
    shown, rest = split_long("\n".join("abcdefgh") + "\n\n\n" + "rest\n" * 20)

    assert shown.endswith("h\n\n\n")
    assert rest.startswith("rest")


@pytest.mark.parametrize("n_lines", [3, 30])
def test_code_between_fences_has_letters_of_one_width(
    plan: svc.Conversation, n_lines: int
) -> None:
    """Also where it is folded; the text around it has the page's letters."""
    code = "\n".join(f"a{n}   = <{n}>" for n in range(n_lines))
    plan.ask(f"Why?\n```python\n{code}\n```\nIn one line.")

    html = plan._repr_mimebundle_()["text/html"].partition("1 · You")[2]
    coded = unescape("".join(re.findall(r"<code[^>]*>(.*?)</code>", html, re.DOTALL)))

    assert coded.partition("```python\n")[2].startswith(f"{code}\n")
    assert "Why?" not in coded
    assert "In one line." not in coded


@pytest.mark.parametrize(
    ("prompt", "end", "line"),
    [
        (TABLE, "5,Trang,<b>", "(55 more lines)"),
        ("lorem ipsum " * 400, "lorem ipsum", "(4,164 more characters)"),
    ],
)
def test_a_terminal_shows_the_beginning(
    plan: svc.Conversation,
    monkeypatch: pytest.MonkeyPatch,
    prompt: str,
    end: str,
    line: str,
) -> None:
    """It says how much is left out and, once, what shows all; replies are whole."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    with answered({"text": LINES}, {"text": "b"}):
        plan.ask(prompt)
        plan.ask(prompt)

    text = plan._repr_mimebundle_()["text/plain"]

    asked = " ".join(text.partition("1 · You\n")[2].partition("\n\nsvc-")[0].split())
    assert prompt.startswith(text.partition("1 · You\n")[2].partition("\n")[0][:50])
    assert asked.endswith(f"{end} {line}")
    assert LINES in text
    assert text.count("print(svc.conversation('plan').to_markdown()) shows all") == 1


def test_a_terminal_has_nothing_to_say_of_short_prompts(
    plan: svc.Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole is there."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    plan.ask("Count")

    assert "to_markdown" not in plan._repr_mimebundle_()["text/plain"]

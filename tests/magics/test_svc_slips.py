"""Slips and changes of mind: what costs nothing, and what advice holds."""

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.errors import CutError
from tests.magics.conftest import Shell, contents

PROMPT_FILE = (
    "Path('prompts/system.md').read_text('utf-8')` in a cell, then `-s {{system}}`"
)


def sent(emulator: Emulator) -> dict[str, Any]:
    """Return the newest request's body."""
    body: dict[str, Any] = emulator.requests[-1].json
    return body


def sent_before_last(emulator: Emulator) -> str:
    """Return the prompt of the newest request but one."""
    content: str = emulator.requests[-2].json["messages"][-1]["content"]
    return content


def test_the_environment_is_read_when_it_is_needed(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an error advises works: the key and address set afterwards are used."""
    key = emulator.api_key
    monkeypatch.delenv("SVC_BASE_URL")
    monkeypatch.setenv("SVC_API_KEY", "svc-wrong-key")
    no_address = shell.run("%%svc\nHello")
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    refused = shell.run("%%svc\nHello")
    monkeypatch.setenv("SVC_API_KEY", key)

    answered = shell.run("%%svc\nHello")

    assert isinstance(no_address.error, svc.errors.SettingsError)
    assert isinstance(refused.error, svc.errors.AuthError)
    assert answered.error is None


@pytest.mark.parametrize(
    ("name", "value"), [("SVC_BASE_URL", "HOST/v1"), ("SVC_DISPLAY", "livee")]
)
def test_a_wrong_setting_leaves_the_magic_there(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A setting that cannot be used fails the cell that needs it, by name."""
    monkeypatch.setenv(name, value)
    loaded = shell.run("%reload_ext svc_notebook")

    cell = shell.run("%%svc\nHello")
    helped = shell.run("%svc help all")

    assert loaded.error is None
    assert isinstance(cell.error, svc.errors.SettingsError)
    assert name in cell.shown
    assert "--temperature" in helped.shown


def test_a_wrong_address_that_is_not_used_is_no_failure(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, emulator: Emulator
) -> None:
    """A request goes to the address that was chosen instead."""
    monkeypatch.setenv("SVC_BASE_URL", "HOST/v1")
    svc.use(base_url=emulator.base_url, key=emulator.api_key)

    cell = shell.run("%%svc\nHello")

    assert cell.error is None
    svc.use(endpoint="emulator")
    assert shell.run("%%svc --max-tokens 1\nHello").error is None


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("%svc use emulater", "Did you mean `emulator`"),
        ("%svc -c plan\nสรุป", "begin with two percent signs: `%%svc`"),
        ("%svc -t 0\nWhat is a monad?", "begin with two percent signs: `%%svc`"),
        ("%svc\nWhat is a monad?", "begin with two percent signs: `%%svc`"),
        ("%svc --temp 1\nWhat is a monad?", "Did you mean --temperature?"),
        ("%svc -t 0", "no prompt on this line"),
        ("%svc Tell me a joke -t 0", "`%svc -t 0 Tell me a joke`"),
        ("%svc usage -m svc-instruct", "The command is `%svc usage"),
        ("%svc use Emulator", "Did you mean `emulator`"),
        ("%%svc -t 0.5 0.7\nHello", "no blank between them: `-t 0,0.7`"),
        ("%%svc -t 0.5, 0.7\nHello", "no blank between them: `-t 0,0.7`"),
        ("%%svc Explain it\nHello", "Put the prompt below that line"),
        ("%svc -t 0, 1 Tell me a joke", "no blank between them: `-t 0,0.7`"),
        ("%svc --temperature=0 , 1 Tell me", "them: `--temperature 0,0.7`"),
        ("%%svc -m a, b\nHello", "no blank between them: `-m a,b`"),
        ("%svc -m a, b Tell me a joke", "no blank between them: `-m a,b`"),
        ("%svc --with a, b Tell me a joke", "no blank between them: `--with a,b`"),
        ("%%svc -o class\nHello", "-o answer"),
        ("%%svc -o get_ipython\nHello", "-o answer"),
        ("%%svc -o json\nHello", "is a module"),
        ("%%svc -o len\nHello", "this name is Python's own and would be lost"),
        ("%%svc -o display\nHello", "-o answer"),
        ("%%svc\n   \n", "no prompt: write it below the first line"),
        ("%%svc", "no prompt: write it below the first line"),
        ("%%svc --with json\n", "no prompt: write it below the first line"),
        ("%%svc why is the sky blue?", "`%svc why is the sky blue?`"),
        ("%%svc models\n\n", "`%svc models`"),
        ("%%svc --system You are terse\nHello", "quotes around"),
        ("%%svc -s You sort mails --dry-run\nHello", 'quotes: `-s "You sort mails"`'),
    ],
)
def test_slips_cost_nothing(
    shell: Shell, emulator: Emulator, line: str, remedy: str
) -> None:
    """A slip is refused with the remedy; nothing is sent and nothing is lost."""
    shell.run("import json")

    cell = shell.run(line)

    assert isinstance(cell.error, svc.SvcError)
    assert remedy in cell.shown
    assert emulator.requests == ()


@pytest.mark.parametrize("line", ["%%svc\n{{nope}}", "%%svc --with {}\nHello"])
@pytest.mark.parametrize("name", ["nope", "jsno", "oepn"])
def test_only_variables_of_the_user_are_suggested(
    shell: Shell, line: str, name: str
) -> None:
    """`open`, which IPython defines, is not meant, nor is a module."""
    shell.run("import json")
    line = line.replace("nope", name).replace("--with {}", f"--with {name}")

    assert "Did you mean" not in shell.run(line).shown

    shell.run(f"{name}s = None")
    assert f"Did you mean {name}s?" in shell.run(line).shown


def test_a_variable_with_the_name_of_a_function_is_suggested(shell: Shell) -> None:
    """A user who writes `open = ...` means that."""
    shell.run("open = 'the shop is open'")

    assert "Did you mean open?" in shell.run("%%svc\n{{oepn}}").shown


@pytest.mark.slow
@pytest.mark.parametrize("option", ["", "--dry-run", "-t 0,1", "--no-stream"])
def test_marks_that_go_as_typed_are_said_above_the_reply(
    shell: Shell, option: str
) -> None:
    """`{{a + b}}` is text; a line in front of everything else says so."""
    cell = shell.run(f"%%svc {option}\nOf {{{{a + 1}}}}, {{{{a + 1}}}} and {{{{1x}}}}")

    line, rest = cell.shown.split("\n", 1)
    assert line.startswith("Sent as typed: {{a + 1}}, {{1x}} (only variables")
    assert rest.strip()
    assert "as typed" not in shell.run("%%svc --raw\n{{a + 1}}").shown


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("{{d[“a”]}}", "straight quotes: \" or '"),
        ("{{name\n}}", "Sent as typed: {{name }}"),
    ],
)
def test_marks_that_nearly_are_some_go_as_typed(
    shell: Shell, mark: str, said: str
) -> None:
    """Curly quotes and line ends in a mark are said, too."""
    shell.run("d, name = {'a': 1}, 'x'")

    cell = shell.run(f"%%svc --dry-run\nOf {mark}")

    assert said in cell.shown.split("Dry run")[0]


def test_a_name_with_sara_am_is_found_as_it_is_typed(
    shell: Shell, emulator: Emulator
) -> None:
    """Python keeps ำ as two letters in names; pandas keeps it in its columns."""
    shell.run(
        "import pandas as pd\nคำถาม = 'ชาหกค่ะ'\n"
        "df = pd.DataFrame({'จำนวน': ['สามถ้วย']})"
    )

    kept = shell.run("%%svc -o คำตอบ --with คำถาม\nHello {{df.จำนวน[0]}}")
    prompt = sent(emulator)["messages"][-1]["content"]
    shell.run("seen = คำตอบ.text")
    filled = shell.run("%%svc\n{{คำตอบ}}")
    single = shell.run("%%svc\nHello {คำถาม}")

    assert kept.error is None
    assert "ชาหกค่ะ" in prompt
    assert "Hello สามถ้วย" in prompt
    assert filled.error is None
    assert str(shell.names["seen"]) in sent_before_last(emulator)
    assert single.shown.startswith("Sent as typed: {คำถาม}. Write {{คำถาม}}")


def test_a_variable_in_single_braces_is_said_once(shell: Shell) -> None:
    """Each name once in a kernel, so that text that is meant so is left alone."""
    shell.run("from textwrap import dedent; import math\ndf, city = 1, 'Bern'")

    first = shell.run("%%svc\nSummarise {df}. {df}, {{city}} and {name}")
    second = shell.run("%%svc\nSummarise {df} for {city}: '{df}'")
    third = shell.run("%%svc\nSummarise {df} for {city}, {math}, {In}, {print}")

    line = "Sent as typed: {%s}. Write {{%s}} to fill in the variable.\n"
    assert first.shown.startswith(line % ("df", "df"))
    assert second.shown.startswith(line % ("city", "city"))
    assert "as typed" not in third.shown


@pytest.mark.parametrize(
    "prompt",
    [
        'Read {"a": {df}}',
        "Count {1} to {df}",
        "Simplify \\frac{df}{2} and x_{df}",
        "Explain print(f'{df}')",
        "Explain '{df}'.format(df=df)",
        "Explain `{df}` and\n```\n{df}\n```",
        "echo ${df} \\{df}",
        "{{{df}}} {{ {df} }}",
    ],
)
def test_braces_of_code_are_not_remarked_on(shell: Shell, prompt: str) -> None:
    """In JSON, LaTeX, f-strings and shells, single braces have a meaning of their own.

    Nor are they with `--raw`.
    """
    shell.run("df = 1")

    assert "to put in" not in shell.run(f"%%svc --dry-run\n{prompt}").shown
    assert "to put in" not in shell.run("%%svc --dry-run --raw\nOf {df}").shown


def test_all_unknown_names_are_refused_at_once(shell: Shell) -> None:
    """The first with its remedy, the others by name."""
    cell = shell.run("%%svc\n{{one}} {{two.part}} {{three}} {{one}}")

    assert "no such variable" in cell.shown
    assert "Refused as well: {{two.part}}, {{three}}." in cell.shown


def test_marks_of_a_system_message_are_said_too(shell: Shell) -> None:
    """`--system` is a template as well."""
    cell = shell.run("%%svc --system '{{1x}} \x07'\nHello")

    assert cell.shown.startswith("Sent as typed: {{1x}} (only")


@pytest.fixture
def prompt_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel's folder, with a prompt file in a folder of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/system.md").write_text("ตอบเป็นกลอน", encoding="utf-8")


@pytest.mark.usefixtures("prompt_files")
@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("-s prompts/system.md", "this is a file", PROMPT_FILE),
        ("-s @prompts/system.md", "this is a file", PROMPT_FILE),
        ("-s mails", "the name of a variable", "Write `-s {{mails}}`"),
        ("-s $mails", "the name of a variable", "Write `-s {{mails}}`"),
        ("-s '${mails}'", "the name of a variable", "Write `-s {{mails}}`"),
        ('-s "{mails}"', "the name of a variable", "Write `-s {{mails}}`"),
        ("-s @prompts/none.md", "no such variable or file", "`-s {{name}}`"),
        ("--raw -t 0,1 -s mails", "the name of a variable", "Write `-s {{mails}}`"),
    ],
)
def test_a_name_is_not_sent_as_the_system_prompt(
    shell: Shell,
    emulator: Emulator,
    line: str,
    what: str,
    remedy: str,
) -> None:
    """A file or a variable is meant: it is refused, with what to write."""
    shell.run("mails = 'Sort mails.'")

    cell = shell.run(f"%%svc {line}\nHello")

    assert what in cell.shown
    assert remedy in cell.shown
    assert emulator.requests == ()


@pytest.mark.usefixtures("prompt_files")
def test_the_advice_on_a_prompt_file_works(shell: Shell, emulator: Emulator) -> None:
    """Its two lines send the file's text."""
    shown = shell.run("%%svc -s prompts/system.md\nHello").shown
    [line] = re.findall(r"`(from pathlib .*?)`", shown)

    shell.run(line)
    shell.run("%%svc -s {{system}}\nHello")

    assert contents(emulator) == ["ตอบเป็นกลอน", "Hello"]


@pytest.mark.parametrize(
    "words", ["Terse.", "'len'", "count", "'Sort mails'", "{json}"]
)
def test_a_system_prompt_of_few_words_is_sent(
    shell: Shell, emulator: Emulator, words: str
) -> None:
    """What names no text is a prompt; so are several words."""
    shell.run("count = 3; Sort = mails = 'a text'")

    shell.run(f"%%svc -s {words}\nHello")

    assert contents(emulator) == [words.strip("'"), "Hello"]


def test_what_a_system_prompt_inserts_is_named(shell: Shell) -> None:
    """The line below the reply names all that was inserted, each once."""
    shell.run("rules, mail, name = 'Be terse.', 'Hello', 'Noi'")

    cell = shell.run("%%svc -s '{{rules}} {{name}}'\nSort {{mail}} of {{name}}")

    inserted = cell.shown.partition("inserted: ")[2]
    assert re.findall(r"(\w+) \(text", inserted) == ["mail", "name", "rules"]


def test_single_braces_of_a_system_prompt_are_said(shell: Shell) -> None:
    """As for those of the prompt, and the names of both are in one line."""
    shell.run("df, city = 'a', 'b'")

    cell = shell.run("%%svc -s 'You know {city}'\nOf {df}")

    assert cell.shown.startswith("Sent as typed: {city}, {df}. Write {{city}}, {{df}}")


def test_a_dry_run_does_not_use_up_the_note_on_single_braces(shell: Shell) -> None:
    """The note is said once for each name, and again when the prompt is really sent."""
    shell.run("shop = 'Tea House'")

    dry = shell.run("%%svc --dry-run\nHello {shop}")
    sent = shell.run("%%svc\nHello {shop}")
    again = shell.run("%%svc\nHello {shop}")

    note = "Sent as typed: {shop}."
    assert [note in cell.shown for cell in (dry, sent, again)] == [True, True, False]


@pytest.mark.parametrize(
    "refused",
    [
        "--max-tokens 8192",
        "-c plan --max-tokens 8192",
        "--with shop.none",
        "-t 0,1 --format json",
        "--as Kind -n 2",
        "--as Kind --max-tokens 8192",
        "--tools none --max-tokens 8192",
        "--tools look --max-tokens 8192",
    ],
)
def test_a_refused_cell_does_not_use_up_the_note_on_single_braces(
    shell: Shell, emulator: Emulator, refused: str
) -> None:
    """Nor is the note above the refusal, as nothing goes as typed."""
    shell.run(
        "from enum import Enum\nshop = 'Tea'\n"
        "Kind = Enum('Kind', 'tea coffee')\n"
        "def look(place: str) -> str:\n    'Look.'\n    return place"
    )

    words = "word " * 200
    cell = shell.run(f"%%svc {refused}\nHello {{shop}} {{{{1x}}}} {words}")
    sent = shell.run("%%svc\nHello {shop}")

    assert isinstance(cell.error, svc.errors.SvcError)
    assert len(emulator.requests) == 1
    note = "Sent as typed:"
    assert [note in each.shown for each in (cell, sent)] == [False, True]


def test_advice_on_parameters_is_said_with_a_request_that_is_sent(shell: Shell) -> None:
    """It is said once in a kernel; a dry run and a refusal do not count."""
    line = "%%svc -t 0.5 --top-p 0.5"

    dry = shell.run(f"{line} --dry-run\nHello")
    refused = shell.run(f"{line} --max-tokens 8192\n{'word ' * 200}")
    sent = shell.run(f"{line}\nHello")
    again = shell.run(f"{line}\nHello")

    said = ["both changed" in cell.shown for cell in (dry, refused, sent, again)]
    assert said == [True, False, True, False]


def test_a_function_puts_in_its_own_variables(shell: Shell, emulator: Emulator) -> None:
    """In a function `{{city}}`, `--with` and `--tools` take the local variable."""
    shell.run("city, note = 'global', 'global note'")
    shell.run(
        "def ask(city):\n"
        "    note = 'local note'\n"
        "    def find(place: str) -> str:\n"
        "        'Find a place.'\n"
        "        return place\n"
        "    answer = %svc --with note --tools find Where is {{city}}?\n"
        "    return answer"
    )

    cell = shell.run("ask('Chiang Mai')")

    body = sent(emulator)
    assert cell.error is None
    assert body["messages"][0]["content"] == (
        "Where is Chiang Mai?\n\nnote:\n```\nlocal note\n```"
    )
    assert body["tools"][0]["function"]["name"] == "find"
    assert "global" not in str(body)


@pytest.mark.parametrize(
    "function",
    [
        "def ask():\n    if None:\n        city = 'own'\n    x = LINE",
        "def ask():\n    city = 'own'\n    del city\n    x = LINE",
        "def ask():\n    city = 'own'\n    def inner():\n        x = LINE\n    inner()",
    ],
)
@pytest.mark.parametrize("line", ["Where is {{city}}?", "--with city Where?"])
def test_a_name_of_a_function_is_never_a_global(
    shell: Shell, emulator: Emulator, function: str, line: str
) -> None:
    """Not assigned yet, deleted, or an enclosing function's: refused."""
    shell.run("city = 'global'")
    shell.run(function.replace("LINE", f"%svc {line}"))

    cell = shell.run("ask()")

    assert isinstance(cell.error, svc.errors.ParameterError)
    assert "this function's variable city has no value yet" in cell.shown
    assert emulator.requests == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "slip",
    [
        "%%svc --temprature 1\nHello",
        "%%svcc\nHello",
        "%%svc",
        "svc.complete('Hello', temperature=9)",
        "%%svc -m svc-nope\nHello",
    ],
)
def test_err_is_the_users_own_error(
    shell: Shell, emulator: Emulator, slip: str
) -> None:
    """After mistyped magics and refusals, `--with Err` is the user's last error."""
    shell.run("import svc_notebook as svc")
    shell.run("1/0")
    slips = [shell.run(slip), shell.run(slip)]

    cell = shell.run("%%svc --with Err\nExplain")

    assert all(each.error is not None for each in slips)
    assert cell.error is None
    content = sent(emulator)["messages"][0]["content"]
    assert "ZeroDivisionError: division by zero" in content
    assert "svc_notebook" not in content


def test_context_counts_back(shell: Shell, emulator: Emulator) -> None:
    """In[-1] is the cell before, Out[-1] the newest value; both get their number."""
    shell.run("20 + 22")
    shell.run("x = 1")

    shell.run("%%svc --with In[-1],Out[-1],In[-2]\nExplain")

    content = sent(emulator)["messages"][0]["content"]
    assert "In[2]:\n```\nx = 1\n```" in content
    assert "Out[1]:\n```\n42\n```" in content
    assert "In[1]:\n```\n20 + 22\n```" in content


@pytest.mark.parametrize("name", ["In[-9]", "Out[-1]", "In[0]", "Out[7]"])
def test_a_cell_that_is_not_there_is_refused(
    shell: Shell, emulator: Emulator, name: str
) -> None:
    """A cell that was not run, or has no value, is refused by its name."""
    cell = shell.run(f"%%svc --with {name}\nExplain")

    assert f"--with {name}: cell" in cell.shown
    assert emulator.requests == ()


def test_a_text_file_is_added(
    shell: Shell,
    emulator: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--with notes.md` adds a file; a variable of that very name comes first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes.md").write_text("\ufeffข้อความ\r\n```\n", "utf-8")
    (tmp_path / "Makefile").write_text("all:", "utf-8")
    (tmp_path / "x").write_text("the file", "utf-8")
    shell.names["x"] = "the variable"

    cell = shell.run("%%svc --with 'my notes.md',Makefile,x\nExplain")

    content = sent(emulator)["messages"][0]["content"]
    assert "my notes.md:\n````\nข้อความ\n```\n````" in content
    assert "Makefile:\n```\nall:\n```" in content
    assert "the variable" in content
    assert "my notes.md (file, about" in cell.shown


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nots.md", "no such variable or file. Did you mean notes.md?"),
        ("artcle", "Did you mean article?"),
        ("data.bin", "is not text in UTF-8"),
        ("large.txt", "is larger than 1 MB"),
        ("folder", "is a folder"),
        ("x[0]", "write {{x[0]}} into the prompt"),
        ("df.col", "write {{df.col}} into the prompt"),
        ("nowhere/notes.md", "no such variable or file"),
        ("~nobody/notes.md", "no such variable or file"),
    ],
)
def test_a_file_that_cannot_be_added_is_refused(
    shell: Shell,
    emulator: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    said: str,
) -> None:
    """What is no text file is refused; nothing is sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    shell.names.update(x=[1], df={"col": 1}, article="x")
    (tmp_path / "notes.md").write_text("notes", "utf-8")
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.txt").write_text("x" * 1_000_001, "utf-8")

    cell = shell.run(f"%%svc --with {name}\nExplain")

    assert isinstance(cell.error, svc.errors.ParameterError)
    assert said in cell.shown
    assert emulator.requests == ()


@pytest.mark.parametrize("line", ["--help", "-h", "-t 0.2 --help", "help"])
def test_help_with_a_body_shows_the_help(
    shell: Shell, emulator: Emulator, line: str
) -> None:
    """`%%svc --help` above a prompt sends nothing."""
    cell = shell.run(f"%%svc {line}\nHello")

    assert cell.error is None
    assert "--repetition-penalty" in cell.shown
    assert emulator.requests == ()


def test_a_completion_is_a_value_that_travels(shell: Shell) -> None:
    """It can be copied, pickled and formatted."""
    completion = shell.run("%%svc --max-tokens 5\nHello").value

    assert copy.deepcopy(completion) == completion
    assert pickle.loads(pickle.dumps(completion)) == completion  # noqa: S301 - our own
    assert f"{completion:>3}" == str(completion)


@pytest.mark.slow
def test_a_wide_frame_and_a_long_cell_stay_within_the_cap(
    shell: Shell, emulator: Emulator
) -> None:
    """A table of 3000 columns or with a very long text is cut, and says so."""
    shell.run("import pandas as pd\nwide = pd.DataFrame([range(3000)] * 3)")
    shell.run("long = pd.DataFrame({'text': ['word ' * 20000, 'short']})")

    shell.run("%%svc --no-stream\n{{wide}}\n{{long}}")

    content = sent(emulator)["messages"][0]["content"]
    assert "the first 40 columns follow" in content
    assert "of 100" in content
    assert len(content) < 6000


def test_an_object_that_cannot_be_written_is_refused_by_name(
    shell: Shell, emulator: Emulator
) -> None:
    """An object whose own text fails is our short error, with its cause kept."""
    shell.run("class Lazy:\n    def __repr__(self):\n        raise OSError('gone')")
    shell.run("lazy = Lazy()")
    n_before = len(emulator.requests)

    cells = [shell.run("%%svc\n{{lazy}}"), shell.run("%%svc --with lazy\nHello")]

    assert [type(cell.error) for cell in cells] == [svc.errors.ParameterError] * 2
    assert all("lazy cannot be put into a prompt" in cell.shown for cell in cells)
    assert all("this Lazy to text raised OSError" in cell.shown for cell in cells)
    assert len(emulator.requests) == n_before


@pytest.mark.slow
def test_the_key_is_never_put_in(shell: Shell, emulator: Emulator) -> None:
    """A variable that holds the API key goes in without it."""
    shell.run("import os\nenviron = dict(os.environ)")

    shell.run("%%svc --with environ\n{{environ}}")
    shell.run("%%svc --system {{environ}}\nHello")

    texts = [str(request.json) for request in emulator.requests[-2:]]
    assert all("SVC_API_KEY" in text for text in texts)
    assert not any(emulator.api_key in text for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 3),
        ("model", ""),
        ("stop", 5),
        ("extra", "x"),
        ("extra", {"temperature": 1}),
        ("system", 5),
        ("confirm_tools", "some"),
        ("show_traceback", "perhaps"),
        ("reuse", 3),
        ("prices", 4),
        ("prices", "/nowhere/prices.toml"),
        ("ledger", 4),
    ],
)
def test_a_refused_default_does_not_stay(
    shell: Shell, name: str, value: object
) -> None:
    """What `%config` refused is gone: loading again brings the magic back."""
    shell.run(f"%config SvcMagics.{name} = {value!r}")
    before = shell.run("%%svc\nHello")

    loaded = shell.run("%reload_ext svc_notebook")

    assert before.error is None
    assert loaded.error is None
    assert f"SvcMagics.{name} was reset to its default" in loaded.shown
    assert shell.run("%%svc\nHello").error is None


@pytest.mark.parametrize("option", ["--format json", "-c plan"])
def test_what_has_a_meaning_for_one_answer_is_refused_for_several(
    shell: Shell, emulator: Emulator, option: str
) -> None:
    """An option that several answers cannot have is refused; nothing is sent."""
    cell = shell.run(f"%%svc -t 0,1 {option}\nHello")

    assert f"Leave {option.split(maxsplit=1)[0]} out" in cell.shown
    assert emulator.requests == ()


@pytest.mark.slow
def test_strict_holds_for_several_answers(shell: Shell) -> None:
    """A cut reply among several is a failure too."""
    cell = shell.run("%%svc -t 0,1 --strict --max-tokens 3\nHello")

    assert isinstance(cell.error, CutError)
    assert "2 of the replies were cut" in cell.shown

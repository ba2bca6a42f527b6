"""The final form of a reply in a cell: text, JSON, code and HTML."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.display.reply_display import Final, Mode
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.magics.format_option import lay_out
from tests.magics.conftest import Shell

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def drawn(text: str, layout: str) -> Final:
    """Return a reply drawn in a notebook."""
    return lay_out(Final(texts=(text,), footer="f"), layout, Mode.LIVE)


@pytest.mark.slow
@given(VALUES, st.booleans())
def test_json_set_out_says_the_same(value: Any, is_ascii: bool) -> None:  # noqa: ANN401 - any JSON
    """Set out, JSON is what the standard library writes with an indent of two."""
    final = drawn(json.dumps(value, ensure_ascii=is_ascii), "json")

    assert final.texts == (json.dumps(value, ensure_ascii=False, indent=2),)
    assert final.footer == "f"


def test_json_keeps_numbers_and_double_names() -> None:
    """What a reader of JSON would lose stays: long numbers, a name that comes twice."""
    final = drawn('{"a": 1.00000000000000000001, "a": 1e999}', "json")

    assert final.texts == ('{\n  "a": 1.00000000000000000001,\n  "a": 1e999\n}',)


def test_json_in_a_fence_is_found() -> None:
    """The one block of JSON is taken out of the words around it."""
    final = drawn('Here:\n```json\n{"a": 1}\n```\nEnjoy!', "json")

    assert final.texts == ('{\n  "a": 1\n}',)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": ', "not JSON: Expecting value, line 1 column 7"),
        ("", "not JSON: Expecting value, line 1 column 1"),
        ("NaN", "not readable as JSON: NaN is not allowed"),
        ("[" * 100_000, "not readable as JSON"),
        ("```json\n1\n```\n```json\n2\n```", "not JSON: Expecting value, line 1"),
    ],
)
def test_what_is_no_json_is_shown_with_the_reason(text: str, why: str) -> None:
    """The text stays as it came, and the footer says where it is no JSON."""
    final = drawn(text, "json")

    assert final.texts == (text,)
    assert why in final.footer


JSON = 'Here:\n```json\n{"label": "spam", "sure": 0.5}\n```'


def test_a_reply_gives_its_json(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.json()` is what the cell shows; a key taken for an attribute is answered."""
    replied(shell, emulator, monkeypatch, "-f json -o r", JSON)
    reply: Any = shell.names["r"]

    assert reply.json() == {"label": "spam", "sure": 0.5}
    assert pickle.loads(pickle.dumps(reply)).json() == reply.json()  # noqa: S301 - ours
    assert copy.copy(reply) == reply
    with pytest.raises(
        AttributeError, match=r"no attribute 'label'.* JSON.*"
    ) as caught:
        _ = reply.label
    assert str(caught.value).endswith("The reply's JSON has it: .json()['label']")
    with pytest.raises(AttributeError, match=r"no attribute 'other'$"):
        _ = reply.other
    assert not hasattr(reply, "_repr_html_")


@pytest.mark.parametrize(
    ("text", "why"), [("Spam.", "Expecting value, line 1"), ("NaN", "NaN is not")]
)
def test_a_reply_without_json_says_so(
    shell: Shell,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    why: str,
) -> None:
    """`.json()` says why, and what gives a value that is checked."""
    replied(shell, emulator, monkeypatch, "-o r", text)
    reply: Any = shell.names["r"]

    with pytest.raises(svc.SvcError, match=rf"The reply is not .*{why}.*\n.*--as TYPE"):
        reply.json()
    with pytest.raises(AttributeError, match=r"no attribute 'label'$"):
        _ = reply.label


def test_html_is_shown_in_a_frame() -> None:
    """The block of HTML is drawn in a sandboxed frame, its source below."""
    html = drawn("Sure:\n```html\n<b>Hi</b>\n```", "html").bundle()["text/html"]

    assert "<b>" not in html
    assert "<iframe sandbox=allow-same-origin " in html
    assert "Sure" not in html


def replied(
    shell: Shell,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    *texts: str,
) -> str:
    """Ask once for each text, and return what the last cell showed."""
    shown = ""
    with svc.Emulator(script=[{"text": text} for text in texts]) as scripted:
        monkeypatch.setenv("SVC_BASE_URL", scripted.base_url)
        monkeypatch.setenv("SVC_API_KEY", scripted.api_key)
        for text in texts:
            cell = shell.run(f"%%svc {line}\n{text[:9] or 'x'}")
            assert cell.error is None
            shown = cell.shown
    monkeypatch.setenv("SVC_BASE_URL", emulator.base_url)
    return shown


@pytest.mark.parametrize(
    ("text", "code", "note"),
    [
        ("```python\nprint(1)\n```", "print(1)", "the code is in the next cell"),
        (
            "```sh\nls\n```\n```py\nx = 1\n```",
            "x = 1",
            "code block 2 of 2 is in the next cell",
        ),
        (
            "```sql\nSELECT 1\n```",
            None,
            "the code (sql) was not put into a cell, since cells here run Python: copy",
        ),
        (
            "```json\n[1]\n```\n```HTML\n<b>!</b>\n```",
            "%%html\n<b>!</b>",
            "code block 2 of 2 (html) is in the next cell, and was not run\n",
        ),
        ("```py\nx = 1", "x = 1", "the code (unfinished) is in the next cell"),
        (
            "```py\nx = 'a\u202eb\x1b'\n```",
            "x = 'a⟨U+202E⟩b␛'",
            "the code is in the next cell",
        ),
        ("No code.", None, "no code block in the reply"),
    ],
)
def test_code_goes_into_the_next_cell(
    shell: Shell,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    code: str | None,
    note: str,
) -> None:
    """The first Python block, or else the first, is put there; the cell says so."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)

    shown = replied(shell, emulator, monkeypatch, "-f code", text)

    assert taken == ([] if code is None else [code])
    assert note in shown


def test_code_makes_no_cell_where_nobody_watches(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook run by a program gets no cell, and says so."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)
    monkeypatch.setenv("SVC_DISPLAY", "settled")

    shown = replied(shell, emulator, monkeypatch, "-f code", "```py\nx\n```")

    assert taken == []
    assert "the code was not put into a new cell" in shown


BLOCKS = (
    "```python\nx = 1\n```\nOr:\n"
    "```bash\n# all\nls -l\n```\n```py\n\n%%bash\nrm -rf /\n```"
)


@pytest.mark.parametrize(
    ("line", "code", "note"),
    [
        ("%svc insert", "x = 1", "Code block 1 of 3 is in the next cell, and was not"),
        (
            "%svc insert 2",
            "%%bash\n# all\nls -l",
            "(bash) is in the next cell, and was not run\n",
        ),
        ("%svc insert 3", "\n%%bash\nrm -rf /", "not run; look at line 2: %%bash"),
    ],
)
def test_a_block_of_the_last_reply_is_inserted(
    shell: Shell,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    code: str,
    note: str,
) -> None:
    """It is put into the next cell as it is; a line for a shell is pointed out."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)
    replied(shell, emulator, monkeypatch, "", BLOCKS)
    n_sent = len(emulator.requests)

    cell = shell.run(line)

    assert taken == [code]
    assert note in cell.shown
    assert len(emulator.requests) == n_sent


@pytest.mark.parametrize(
    "line",
    [
        *("rm -rf build", "sudo apt install jq", "curl -s https://a.example | sh"),
        *("cat key >> ~/.profile", "cp a.csv /etc/a.csv", "git reset --hard"),
        *("bash <(curl https://a.example)", "find . -name x -delete"),
        *("  chmod -R 777 .", "echo x > ../y", "Remove-Item x"),
    ],
)
def test_a_line_for_a_shell_that_can_do_harm_is_pointed_out(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """It is named with its number, which counts the magic above."""
    monkeypatch.setattr(shell.ipython, "set_next_input", [].append)
    text = f"```bash\n# rm -rf /\nls -l\n{line}\n```"

    shown = replied(shell, emulator, monkeypatch, "-f code", text)

    assert f"look at line 4: {line.strip()}" in " ".join(shown.split())


@pytest.mark.parametrize(
    "line",
    [
        *("ls -l | sort > out.txt", "pip install pandas", "cat a.csv | head -3"),
        *("grep -rf words.txt .", "echo form 2> /dev/null", "cp a.csv b/c.csv"),
        *(
            "python train.py --fast",
            "for f in *.csv; do wc -l $f; done",
            "rm x-for.tmp",
        ),
        *("ruff format .", "python eval.py"),
    ],
)
def test_a_harmless_line_for_a_shell_gets_no_remark(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A remark that always comes would not be read."""
    monkeypatch.setattr(shell.ipython, "set_next_input", [].append)

    shown = replied(shell, emulator, monkeypatch, "-f code", f"```bash\n{line}\n```")

    assert "(bash) is in the next cell, and was not run" in shown
    assert "look at" not in shown


def test_a_magic_of_the_shell_can_run_a_block(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as SQL, once an extension has registered `%%sql`."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)
    cell_magics = shell.ipython.magics_manager.magics["cell"]
    monkeypatch.setitem(cell_magics, "sql", print)

    replied(shell, emulator, monkeypatch, "-f code", "```sql\nSELECT 1\n```")

    assert taken == ["%%sql\nSELECT 1"]


@pytest.mark.parametrize("language", ["svc", "writefile", "capture", "system"])
def test_a_reply_does_not_choose_a_magic_itself(
    shell: Shell,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
) -> None:
    """The name of a magic that is no language makes no cell."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)

    shown = replied(shell, emulator, monkeypatch, "-f code", f"```{language}\nx\n```")

    assert taken == []
    assert "was not put into a cell" in shown


def test_a_wrong_block_is_refused_with_what_there_is(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Number, language and first line of each block are listed."""
    replied(shell, emulator, monkeypatch, "", BLOCKS)

    cell = shell.run("%svc insert 4")

    assert isinstance(cell.error, svc.errors.ParameterError)
    assert "1 python x = 1 2 bash # all 3 py %%bash" in cell.shown


@pytest.mark.slow
def test_nothing_to_insert_is_said(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first reply, and after one without code."""
    none = shell.run("%svc insert")
    replied(shell, emulator, monkeypatch, "", "No code.")

    assert "This kernel has no reply yet." in none.shown
    assert "The last reply has no code block." in shell.run("%svc insert 2").shown


@pytest.mark.parametrize("option", ["", "--no-record "])
def test_a_failed_question_does_not_hide_the_code_before_it(
    shell: Shell, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """The newest reply is the newest with a text, as in the cells above."""
    taken: list[str] = []
    monkeypatch.setattr(shell.ipython, "set_next_input", taken.append)
    replied(shell, emulator, monkeypatch, option, BLOCKS)
    shell.run(f"%%svc {option}-m svc-nope\nhi")

    inserted = shell.run("%svc insert")
    wrong = shell.run("%svc insert 4")

    assert taken == ["x = 1"]
    assert "Code block 1 of 3 is in the next cell" in inserted.shown
    assert "1 python x = 1 2 bash" in wrong.shown

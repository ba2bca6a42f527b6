"""`%%svc` and `%svc` in a plain IPython shell, against the emulator."""

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.emulator.emulated_keys import KEY
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.magics.dry_run import DryRun
from svc_notebook.session import current
from tests.magics.conftest import Shell


def sent(emulator: Emulator) -> dict[str, Any]:
    """Return the newest request's body."""
    body: dict[str, Any] = emulator.requests[-1].json
    return body


def test_a_cell_prints_the_reply_and_returns_it(
    shell: Shell, emulator: Emulator
) -> None:
    """The reply is printed once; `answer`, `_` and `svc.last()` hold it."""
    cell = shell.run("%%svc -m svc-v2-70b-instruct -t 0.2 -o answer\nHello")

    answer = shell.names["answer"]
    assert isinstance(answer, svc.Completion)
    assert cell.shown.count(answer.text) == 1
    assert "Out[" not in cell.shown
    assert "[emulator: written by hand] svc-v2-70b-instruct · ~5 → ~" in cell.shown
    assert cell.value == answer == shell.names["_"] == svc.last()
    assert sent(emulator)["temperature"] == 0.2


def test_the_value_shown_later_is_drawn(shell: Shell) -> None:
    """Only the cell that showed the reply does not show its value again."""
    shell.run("%%svc -o answer\nHello")

    shown = shell.run("answer").shown

    assert str(shell.names["answer"]) in shown


def test_a_cut_reply_is_marked(shell: Shell) -> None:
    """A reply that ended for want of tokens says so; --strict makes it a failure."""
    cut = shell.run("%%svc --max-tokens 5\nHello")
    strict = shell.run("%%svc --max-tokens 5 --strict -o kept\nHello")

    assert "[cut]" in cut.shown
    assert isinstance(strict.error, svc.SvcError)
    assert "--max-tokens" in str(strict.error)
    assert isinstance(shell.names["kept"], svc.Completion)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("%%svc -t 3\nHello", "a number from 0 to 2"),
        ("%%svc -t warm\nHello", "a number from 0 to 2"),
        ("%%svc --stop a --stop b --stop c --stop d --stop e\nx", "up to 4 texts"),
        ("%%svc --max-tokens 9000\nHello", "from 1 to 8192"),
        ("%%svc hello there\nHello", "below that line"),
        ("%%svc\n{{undefined_name}}", "has no such variable"),
        ("%%svc\n" + "ก" * 20_000, "8192"),
        ("%%svc --max-tokens 8192\n" + "word " * 60, "max_tokens=8192 was"),
        ("%%svc -m svc-nope\nHello", "%svc models"),
        ("%%svc -m small\nHello", "The model asked for is 'small'."),
        ("%%svc -c ' two words'\nHello", "without spaces"),
        ("%%svc -m svc-v2-8b\nHello", "Did you mean svc-v2-8b-instruct?"),
        (
            "import svc_notebook as svc\nsvc.complete('Hello', model='svc-v2-8b')",
            "The model asked for is 'svc-v2-8b'. Did you mean svc-v2-8b-instruct?",
        ),
    ],
)
def test_a_refusal_is_a_short_box_and_the_cell_fails(
    shell: Shell, code: str, remedy: str
) -> None:
    """What was refused, what is allowed and what to do are said in a few lines."""
    cell = shell.run(code)

    assert isinstance(cell.error, svc.SvcError)
    assert remedy in cell.shown
    assert "Traceback" not in cell.shown
    assert len(cell.shown) <= 600


@pytest.mark.slow
def test_the_full_traceback_is_there_on_demand(shell: Shell) -> None:
    """A trait brings the traceback back."""
    shell.run("%config SvcMagics.show_traceback = True")

    cell = shell.run("%%svc -t 3\nHello")

    assert "Traceback" in cell.shown


def test_without_key_and_address_two_ways_are_shown(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer is told of the service and of the emulator; nothing is answered."""
    monkeypatch.delenv("SVC_API_KEY")
    monkeypatch.delenv("SVC_BASE_URL")

    cell = shell.run("%%svc\nHello")

    assert isinstance(cell.error, svc.errors.ConfigError)
    assert "SVC_BASE_URL" in cell.shown
    assert "%svc use emulator" in cell.shown


def test_variables_are_put_in_and_listed(shell: Shell, emulator: Emulator) -> None:
    """`{{name}}` puts a variable in; the footer lists it."""
    shell.names["dish"] = "ต้มยำ {{dish}} $x"

    cell = shell.run("%%svc\nAbout {{dish}}, not {dish} or \\{{dish}}")

    assert sent(emulator)["messages"] == [
        {
            "role": "user",
            "content": "About ต้มยำ {{dish}} $x, not {dish} or {{dish}}",
        }
    ]
    assert "inserted: dish (text, about" in cell.shown


def test_numbers_of_tokens_have_separators(shell: Shell) -> None:
    """Below the reply and in a dry run, as in tables and plans."""
    prompt = "%%svc --raw{}\n" + "word " * 3000

    footer = shell.run(prompt.format("")).shown
    dry = shell.run(prompt.format(" --dry-run")).shown

    assert re.search(r"~\d,\d{3} → ~\d+ tokens", footer)
    assert re.search(r"about \d,\d{3} tokens.* left in 8,192: \d,\d{3}", dry)


def test_replies_side_by_side_list_variables_too(shell: Shell) -> None:
    """What was put into all prompts, and what was cut of it, is said once, below."""
    shell.names["table"] = pd.DataFrame({"text": ["a long text of a row"] * 400})

    cell = shell.run("%%svc -t 0,1\nAbout {{table}}")

    assert cell.shown.count("inserted: table (DataFrame 400 rows") == 1
    assert "cut to the first" in cell.shown


@pytest.mark.slow
def test_context_is_added_by_name(shell: Shell, emulator: Emulator) -> None:
    """`--with` adds what it names below the prompt, and nothing else."""
    shell.run("secret = 'never sent'")
    shell.run("1/0")
    shell.names["note"] = "a note"

    cell = shell.run("%%svc --with note,In[1],Err\nExplain")

    content = sent(emulator)["messages"][0]["content"]
    assert content.startswith("Explain\n\nnote:\n```\na note\n```\n\nIn[1]:\n```\n")
    assert "ZeroDivisionError" in content
    assert "inserted: note (text" in cell.shown


def test_a_frame_of_polars_is_added_as_one_of_pandas(
    shell: Shell, emulator: Emulator
) -> None:
    """`--with` writes its rows, separated by commas."""
    shell.names["df"] = pl.DataFrame({"city": ["ตรัง", None], "n": [3, 4]})

    cell = shell.run("%%svc --with df\nExplain")

    assert sent(emulator)["messages"][0]["content"] == (
        "Explain\n\ndf:\n```\nDataFrame df, 2 rows x 2 columns:\n"
        ",city,n\n0,ตรัง,3\n1,,4\n```"
    )
    assert "inserted: df (DataFrame 2 rows x 2 columns" in cell.shown


def test_a_line_asks_and_the_question_mark_survives(
    shell: Shell, emulator: Emulator
) -> None:
    """`%svc …?` asks with every character as typed."""
    cell = shell.run("%svc -t 0 what's {a} monad?")

    assert sent(emulator)["messages"] == [
        {"role": "user", "content": "what's {a} monad?"}
    ]
    assert isinstance(cell.value, svc.Completion)


def test_a_dry_run_sends_nothing(shell: Shell, emulator: Emulator) -> None:
    """The exact messages and the sizes are shown; nothing is sent."""
    cell = shell.run("%%svc --dry-run -s 'Be brief' -t 0\nHello")

    assert emulator.requests == ()
    assert "Be brief" in cell.shown
    assert "Hello" in cell.shown
    assert "room left in 8,192" in cell.shown
    assert re.search(
        r"prompt about \d+ tokens \(\d+ to \d+ in 9 of 10 cases\)", cell.shown
    )
    assert "no limit would make it wait now" in cell.shown


def test_a_dry_run_folds_only_what_stands_above_the_prompt(shell: Shell) -> None:
    """It is there to look at what a cell sends; its sizes are never folded."""
    rows = "\n".join(f"{n},Trang" for n in range(63))
    shell.names["rows"] = rows

    run = shell.run(f"%%svc --dry-run\n{rows}").value
    below = shell.run("%%svc -s {{rows}} --dry-run\n{{rows}}").value

    assert isinstance(run, DryRun)
    assert isinstance(below, DryRun)
    long = replace(run, notes=("a note",) * 20)
    drawn = [each._repr_mimebundle_()["text/html"] for each in (long, below)]
    assert [html.count("<summary") for html in drawn] == [0, 1]


@pytest.mark.parametrize(
    ("option", "n_words", "note"),
    [
        (
            "",
            1,
            r" = 8,192 - (\d+) \(the prompt in the worst case\) - 32 \(reserve\)",
        ),
        ("", 6500, r", although the prompt may have up to [89],\d+ tokens of 8,192"),
        ("--max-tokens 100", 1, None),
    ],
)
def test_a_dry_run_says_what_fit_is_made_of(
    shell: Shell, option: str, n_words: int, note: str | None
) -> None:
    """The numbers add up to the max_tokens that would be sent."""
    cell = shell.run(f"%%svc --dry-run {option}\n{'word ' * n_words}")

    assert isinstance(cell.value, DryRun)
    max_tokens = cell.value.request.params["max_tokens"]
    found = re.search(rf"fit: max_tokens {max_tokens:,}{note}", cell.shown)
    assert bool(found) is (note is not None)
    if found and found.groups():
        assert max_tokens == 8192 - int(found[1]) - 32


def test_advice_is_given_once(shell: Shell) -> None:
    """Both temperature and top_p changed is said, the first time only."""
    first = shell.run("%%svc -t 1 --top-p 0.5\nHello")
    second = shell.run("%%svc -t 1 --top-p 0.5\nHello")

    assert "advises changing only one" in first.shown
    assert "advises" not in second.shown


@pytest.mark.slow
def test_defaults_are_traits(shell: Shell, emulator: Emulator) -> None:
    """What `%config` sets applies where the line does not say."""
    shell.run("%config SvcMagics.temperature = 0.1")
    shell.run("%config SvcMagics.system = 'Answer in Thai.'")
    shell.run("%config SvcMagics.model = 'svc-v1.5-instruct'")

    shell.run("%%svc --top-p 1\nHello")

    body = sent(emulator)
    assert body["temperature"] == 0.1
    assert body["model"] == "svc-v1.5-instruct"
    assert body["messages"] == [
        {"role": "system", "content": "Answer in Thai."},
        {"role": "user", "content": "Hello"},
    ]


def test_traces_are_switched_on_by_a_trait(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    """`%config` sets what `svc.use(traces=...)` sets, and refuses other words."""
    shell.run("%config SvcMagics.traces = 'content'")
    shell.run("%config SvcMagics.traces = 'yes'")

    settings = current().settings
    assert settings.traces == "content"
    assert settings.sources["traces"] == "%config SvcMagics.traces"
    assert "'off', 'on', 'content'" in caplog.text  # where IPython writes refusals


def test_the_model_can_be_chosen(shell: Shell, emulator: Emulator) -> None:
    """`%svc use MODEL` holds until something nearer says otherwise."""
    shell.run("%svc use svc-v1.5-instruct")

    shell.run("%%svc\nHello")
    first = sent(emulator)["model"]
    svc.complete("Hello")
    second = sent(emulator)["model"]

    assert (first, second) == ("svc-v1.5-instruct", "svc-v1.5-instruct")


@pytest.mark.slow
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_pasted_text_is_sent_byte_for_byte(
    shell: Shell, emulator: Emulator, text: str
) -> None:
    """A body without `{{name}}` or the key reaches the service as it was typed."""
    if "{{" in text or KEY in text:
        return
    if not text.strip() or text.endswith(("\n", "\r")):
        return

    # a model without documented limits, so that nothing waits
    shell.run("%%svc -m svc-instruct --max-tokens 1 --no-stream\n" + text)

    assert sent(emulator)["messages"] == [{"role": "user", "content": text}]


@pytest.mark.parametrize("line", ["%svc?", "%%svc?", "%svc help all"])
def test_help_shows_what_applies_now(shell: Shell, line: str) -> None:
    """All ways to help show the options with the defaults in force, and examples."""
    shell.run("%config SvcMagics.temperature = 0.3")

    shown = shell.run(line).shown

    assert "--repetition-penalty" in shown
    assert "[now: 0.3]" in shown
    assert "Explain {{name}}" in shown


@pytest.mark.slow
def test_several_values_are_asked_side_by_side(
    shell: Shell, emulator: Emulator
) -> None:
    """Values behind commas make a grid; every reply is shown, `-o` holds the run."""
    models = "svc-v2-8b-instruct,svc-v2-70b-instruct"

    cell = shell.run(f"%%svc -m {models} -t 0,0.7 --max-tokens 6 -o run\nGreet")

    run = shell.names["run"]
    assert isinstance(run, svc.Run)
    assert cell.error is None
    assert len(emulator.requests) == 4
    reply = run.reply(model="svc-v2-70b-instruct", temperature=0.7)
    assert reply.text in cell.shown
    assert run.replies_df()["status"].tolist() == ["ok"] * 4
    assert run.replies_df()["origin"].tolist() == ["magic"] * 4
    assert cell.shown.count("[emulator: written by hand]") == 4

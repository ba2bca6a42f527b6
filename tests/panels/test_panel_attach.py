"""What of the notebook a message of the panel takes along, as `--with` does."""

from collections.abc import Iterator
from textwrap import indent

import pytest
from IPython.core.interactiveshell import InteractiveShell

import svc_notebook as svc
from svc_notebook.conversations.attachments import PromptItem, add_items, split_items
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.panels.attach_menu import MAX_OFFERS
from svc_notebook.session import current
from tests.panels.conftest import OpenPage, Page

KEY = "svc-key-of-this-test-attach"
CUT = {"when": {"contains": "Count"}, "text": "one, tw", "finish_reason": "length"}
FAIL = {"when": {"contains": "Fail"}, "error": {"message": "No way."}, "status": 400}
FRAME = (
    "import pandas as pd\ndf = pd.DataFrame({'city': ['Trang', '<b>'], 'n': [3, 4]})"
)
TABLE = "DataFrame df, 2 rows x 2 columns:\n,city,n\n0,Trang,3\n1,<b>,4"
BLOCK = f"df:\n```\n{TABLE}\n```"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator with a cut reply and a refusal."""
    with Emulator(
        script=[CUT, FAIL], keys=[KEY], tokens_per_s=None, first_token_s=0, limits=False
    ) as running:
        yield running


@pytest.fixture
def shell(shell: InteractiveShell) -> InteractiveShell:
    """A notebook's shell in which a cell has made a table."""
    run(shell, FRAME)
    return shell


def run(shell: InteractiveShell, code: str) -> None:
    """Run a cell, which may fail."""
    shell.run_cell(code, store_history=True)  # type: ignore[no-untyped-call]  # IPython's


def offered(page: Page, text: str = "") -> dict[str, tuple[str, str]]:
    """Ask for names; return the kind and the size of each, in order."""
    page.say("names", text=text)
    said = page.all("names")[-1]
    assert said["text"] == text
    return {each["name"]: (each["kind"], each["size"]) for each in said["offers"]}


def prompts(emulator: Emulator) -> list[str]:
    """Return the user's messages of the newest request."""
    messages = emulator.requests[-1].json["messages"]
    return [each["content"] for each in messages if each["role"] == "user"]


@pytest.mark.slow
def test_names_come_with_their_kind_and_size(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """The newest first: the last error, variables, then cells and their values."""
    page = open_page()
    run(shell, "cities, text = ['Trang', 'Krabi'], 'Tea is ready.'\n1 / 0")
    run(shell, "6 * 7")

    assert offered(page) == {
        "Err": ("the last error, ZeroDivisionError", ""),
        "text": ("text", "~4 tokens"),
        "cities": ("list", "2 items"),
        "df": ("DataFrame", "2 rows x 2 columns"),
        "Out[3]": ("int", ""),
        "In[3]": ("cell", "~4 tokens"),
        "In[2]": ("cell", "~19 tokens"),
        "In[1]": ("cell", "~28 tokens"),
    }


def test_a_cell_comes_with_the_beginning_of_its_code(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """As it was typed, in one line; a value has its kind and its size only."""
    page = open_page()
    run(shell, "%%capture out\nprint('tea')")
    page.say("names", text="")

    offers = page.all("names")[-1]["offers"]
    assert {offer["name"]: offer["start"] for offer in offers} == {
        "out": "",
        "df": "",
        "In[2]": "%%capture out print('tea')",
        "In[1]": "import pandas as pd df = pd.DataFrame({'city': ['Trang', ...",
    }


def test_modules_functions_and_private_names_are_not_offered(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """Nor are classes, what the notebook began with, and a text with the key."""
    page = open_page()
    run(shell, f"def f(): pass\nclass C: pass\n_x = 1\nkey = 'Bearer {KEY}'\nn = 5")

    assert [*offered(page)] == ["n", "df", "In[1]"]


def test_a_name_with_sara_am_is_offered(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """Python keeps ำ as two letters in names; the page sends it as it is typed."""
    page = open_page()
    run(shell, "คำถาม = 'Is it warm?'")

    name = next(iter(offered(page, "คำ")))

    assert name in shell.user_ns
    assert shell.user_ns[name] == "Is it warm?"


def test_a_panel_is_not_offered(open_page: OpenPage, shell: InteractiveShell) -> None:
    """What it shows is in its conversation already."""
    page = open_page()
    shell.user_ns["panel"] = svc.panel()

    assert [*offered(page)] == ["df", "In[1]"]


def test_names_that_cannot_be_typed_are_not_offered(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """`globals()` takes any; the others are offered all the same."""
    page = open_page()
    shell.user_ns |= {5: 1, "": 2, "<img src=x onerror=alert(1)>": 3, "\u0e0a\u0e32": 4}

    assert [*offered(page)] == ["\u0e0a\u0e32", "df", "In[1]"]
    assert page.view["notice"] == ""


@pytest.mark.slow
def test_a_huge_text_keeps_its_ends(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """Little of it is looked at, so that its size is known at once."""
    page = open_page()
    shell.user_ns["log"] = "First " + "word " * 20_000_000 + "last"
    page.say("size", name="log")
    page.do("send", text="What is it?", attached=["log"])

    said = page.all("size")[-1]
    assert "of 100,000,010 characters" in said["kind"]
    [item] = page.panel.conversation.turns[0].version.items
    assert (item.text[:5], item.text[-4:]) == ("First", "last")
    assert said["n_tokens"] < 1600


def test_of_many_variables_few_are_sent(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """At most 50 with room for cells, and it is said that there are more."""
    page = open_page()
    shell.user_ns |= {f"v{n}": n for n in range(10_000)}

    names = offered(page)
    is_all = page.all("names")[-1]["is_all"]

    assert len(names) <= MAX_OFFERS
    assert "In[1]" in names
    assert (next(iter(names)), is_all) == ("v9999", False)
    assert list(offered(page, "v777"))[:2] == ["v777", "v7779"]
    assert len(offered(page, "v")) == MAX_OFFERS


def test_a_name_typed_in_full_comes_first(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """Then names that begin with it, then others; also if only its case differs."""
    page = open_page()
    names = ("x", "max", "X", "x2")
    shell.user_ns |= dict.fromkeys(names, 1) | {f"x_{n}": n for n in range(MAX_OFFERS)}

    assert list(offered(page, "x"))[:3] == ["x", "X", f"x_{MAX_OFFERS - 1}"]
    assert list(offered(page, "X"))[:2] == ["X", "x"]
    assert list(offered(page, "ax")) == ["max"]


def test_the_list_runs_no_code_of_an_object(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """An object whose every method fails is offered with its type."""
    page = open_page()
    code = (
        "class Bad:\n"
        "    def __getattribute__(self, _): raise SystemExit\n"
        "    def __len__(self): raise SystemExit\n"
        "    def __eq__(self, _): raise SystemExit\n"
        "    def __repr__(self): raise SystemExit\n"
        "bad = Bad()"
    )
    run(shell, code)

    assert offered(page, "bad") == {"bad": ("Bad", "")}


def test_a_chosen_name_has_its_size_in_tokens(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """It is the size of what would be sent; one that cannot be sent says why."""
    page = open_page()
    run(shell, "long = 'word ' * 9000")

    for name in ("df", "long", "gone"):
        page.say("size", name=name)

    df, long, gone = page.all("size")
    assert (df["kind"], df["n_tokens"]) == ("DataFrame 2 rows x 2 columns", 27)
    assert "cut to" in long["kind"]
    assert long["n_tokens"] < 1600
    assert "no longer has this variable" in gone["problem"]


@pytest.mark.slow
def test_what_is_sent_is_what_with_sends(
    open_page: OpenPage, shell: InteractiveShell, emulator: Emulator
) -> None:
    """The same text, byte for byte, for each kind."""
    page = open_page()
    run(shell, "ticks = '``` and ````'\n1 / 0")
    shell.run_line_magic("load_ext", "svc_notebook")
    run(shell, "%%svc --with df,ticks,In[1],Err\nWhat is it?")
    [by_magic] = prompts(emulator)

    page.do("send", text="What is it?", attached=["df", "ticks", "In[1]", "Err"])

    assert prompts(emulator) == [by_magic]
    assert by_magic.startswith(f"What is it?\n\n{BLOCK}\n\nticks:\n`````\n")


def test_only_what_was_named_is_sent(
    open_page: OpenPage, shell: InteractiveShell, emulator: Emulator
) -> None:
    """A name behind @ that was not chosen stays text, as an address does."""
    page = open_page()
    del shell

    page.ask("Mail @df to me@df.org")

    assert prompts(emulator) == ["Mail @df to me@df.org"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (
            "",
            "gone",
            "gone cannot be attached: this notebook no longer has this variable",
        ),
        ("", "In[99]", "In[99]: cell 99 was not run in this kernel"),
        ("", "README.md", "no longer has this variable"),
        (f"key = {KEY!r}", "key", "key cannot be attached: it holds the API key"),
        (f"keys = {{'a': [{KEY!r}]}}", "keys", "it holds the API key"),
        (
            "class Bad:\n    def __str__(self): raise SystemExit(3)\nbad = Bad()",
            "bad",
            "bad cannot be attached: converting it to text raised SystemExit",
        ),
        (
            "class Bad:\n    def __str__(self): raise ValueError\nbad = Bad()",
            "bad",
            "raised ValueError",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_in_words(
    open_page: OpenPage,
    shell: InteractiveShell,
    emulator: Emulator,
    code: str,
    name: str,
    words: str,
) -> None:
    """Nothing is sent, and the panel can be used further."""
    page = open_page()
    run(shell, code)

    page.say("send", text="What is it?", attached=["df", name])

    assert words in page.view["notice"]
    assert (page.view["is_problem"], page.view["state"]) == (True, "idle")
    assert KEY not in str(page.comm.published)
    assert not emulator.requests
    assert page.ask("Hello")["attached"] == []


@pytest.mark.slow
def test_what_is_too_large_is_refused_with_its_sizes(
    open_page: OpenPage, shell: InteractiveShell, emulator: Emulator
) -> None:
    """One value is cut as `--with` cuts it; together they may still be too much."""
    page = open_page()
    names = [f"text{n}" for n in range(6)]
    shell.user_ns |= dict.fromkeys(names, "word " * 9000)

    page.say("send", text="What is it?", attached=names)
    assert "about 9,136" in page.view["notice"]
    assert "text5 1,522" in page.view["notice"]
    assert "may have 8,192. Nothing was sent." in page.view["notice"]
    assert not emulator.requests
    turn = page.do("send", text="What is it?", attached=names[:2])["turns"][-1]

    assert "cut to" in turn["attached"][0]["kind"]


def test_the_turn_shows_what_was_attached(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """Its name, kind, size and escaped text, apart from what was typed."""
    page = open_page()
    del shell

    [turn] = page.do("send", text="Which?", attached=["df"])["turns"]
    live = next(filter(None, (each.get("live") for each in page.views)))

    [attached] = turn["attached"]
    assert turn["prompt"] == live["prompt"] == "Which?"
    assert (attached["name"], attached["n_tokens"]) == ("df", 27)
    assert attached["kind"] == "DataFrame 2 rows x 2 columns"
    assert "1,&lt;b&gt;,4" in attached["html"]
    assert [*live["attached"]] == [attached]


def test_transcripts_fold_it_and_exports_have_it(
    open_page: OpenPage, shell: InteractiveShell
) -> None:
    """HTML folds it behind its name; text and Markdown say all; JSON brings it back."""
    page = open_page()
    del shell
    page.do("send", text="Which?", attached=["df"])
    plan = page.panel.conversation

    shown = plan._repr_mimebundle_()
    copied = svc.conversation("other").from_json(plan.to_json())

    title = "df (DataFrame 2 rows x 2 columns, about 27 tokens)"
    assert f"{title}</summary>" in shown["text/html"]
    assert "Which?</pre>" in shown["text/html"]
    assert BLOCK in shown["text/plain"]
    assert indent(BLOCK, "> ") in plan.to_markdown()
    assert copied.turns[0].version.items == plan.turns[0].version.items


@pytest.mark.slow
def test_it_comes_back_from_the_ledger(
    open_page: OpenPage, shell: InteractiveShell, emulator: Emulator
) -> None:
    """Also of a turn that the magic asked, and where the variable has gone."""
    page = open_page()
    page.do("send", text="Which?", attached=["df"])
    shell.run_line_magic("load_ext", "svc_notebook")
    run(shell, "%%svc -c plan --with df\nAnd now?")
    before = page.view["turns"]
    plan = current().conversations.named("plan")
    plan.reset()
    run(shell, "del df")
    plan.restore()

    after = page.view["turns"]
    page.do("regenerate", turn=after[1]["id"])

    assert [each["prompt"] for each in before] == ["Which?", "And now?"]
    assert [each["attached"] for each in after] == [each["attached"] for each in before]
    assert prompts(emulator) == [f"Which?\n\n{BLOCK}", f"And now?\n\n{BLOCK}"]
    assert page.view["turns"][1]["attached"] == before[1]["attached"]


@pytest.mark.slow
def test_an_edit_keeps_adds_and_removes(
    open_page: OpenPage, shell: InteractiveShell, emulator: Emulator
) -> None:
    """A variable is read again; one that has gone stays as it was sent."""
    page = open_page()
    run(shell, "n = 1")
    [turn] = page.do("send", text="Which?", attached=["df", "n"])["turns"]
    run(shell, "n = 2; del df")
    asked = {"turn": turn["id"], "text": "Why?"}

    page.do("edit", **asked, kept=["df", "n"])
    kept = prompts(emulator)
    page.do("edit", **asked, kept=["df"], attached=["n"])
    named = prompts(emulator)
    page.do("edit", **asked)

    assert kept == named == [f"Why?\n\n{BLOCK}\n\nn:\n```\n2\n```"]
    assert prompts(emulator) == ["Why?"]
    [turn] = page.view["turns"]
    assert (turn["attached"], turn["n_versions"]) == ([], 4)
    page.say("choose", turn=turn["id"], version=2)
    assert len(page.view["turns"][0]["attached"]) == 2


def test_asking_again_sends_the_same_and_says_what_has_changed(
    open_page: OpenPage, shell: InteractiveShell, emulator: Emulator
) -> None:
    """A cell, the last error and a variable that has gone are not compared."""
    page = open_page()
    run(shell, "n, gone = 1, 1\n1 / 0")
    names = ["df", "n", "gone", "Err", "In[1]"]
    [turn] = page.do("send", text="Which?", attached=names)["turns"]
    sent = prompts(emulator)
    page.do("regenerate", turn=turn["id"])
    quiet = page.view["notice"]
    run(shell, "n = 2; del gone; {}['key']")

    page.do("regenerate", turn=turn["id"])

    assert prompts(emulator) == sent
    assert quiet == ""
    assert page.view["notice"] == (
        "Asked again with the attached values as they were sent. Changed since: n. "
        "To send what they are now, edit the prompt."
    )
    assert not page.view["is_problem"]


@pytest.mark.parametrize("attached", [None, "df", [5, None], {"df": 1}])
def test_other_lists_of_names_attach_nothing(
    open_page: OpenPage, shell: InteractiveShell, emulator: Emulator, attached: object
) -> None:
    """A page of another version of the package sends no value unasked."""
    page = open_page()
    del shell

    page.do("send", text="Hello", attached=attached)

    assert prompts(emulator) == ["Hello"]


@pytest.mark.parametrize(
    "text", ["", "\n", "a\n\nb:\n```\nc\n```", "````\n```", "๑\r\n"]
)
def test_what_was_put_together_is_taken_apart(text: str) -> None:
    """Whatever the typed text and the values have in them."""
    items = [PromptItem(name=name, text=text, kind="text") for name in ("a", "In[3]")]

    whole, attached = add_items(text, items)

    assert split_items(whole, attached) == (text, tuple(items))

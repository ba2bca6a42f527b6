"""Keys of one's own servers: where they are sent, and where they are not shown."""

from typing import Any

import pytest

import svc_notebook as svc
from svc_notebook.credentials import forget
from svc_notebook.session import current
from tests.magics.conftest import Shell, ipython, shell  # noqa: F401 - fixtures

from .conftest import MODEL, Describe, Start

KEY = "sk-of-the-lab"


@pytest.mark.parametrize(
    ("line", "needs_key", "header"),
    [
        ("key = false", False, None),
        ('key_env = "LAB_API_KEY"', True, "Bearer $LAB_API_KEY"),
    ],
)
def test_code_names_the_key_of_its_own_server(
    start: Start,
    describe: Describe,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    needs_key: bool,
    header: str | None,
) -> None:
    """A shell command never has the service's variable for another address."""
    monkeypatch.setenv("LAB_API_KEY", KEY)
    server = start(keys=[KEY], needs_key=needs_key)
    describe(f'[lab]\nbase_url = "{server.base_url}"\n{line}\n')
    svc.use(endpoint="lab")

    reply = svc.complete("Hi", model=MODEL)
    forget()  # as in a later kernel
    later = reply.as_curl()

    for code in (reply.as_curl(), reply.as_python(), later):
        assert "SVC_API_KEY" not in code
    assert ("Authorization" in later) is (header is not None)
    assert header is None or f'"Authorization: {header}"' in reply.as_curl()


def test_a_key_for_a_server_without_one_is_not_sent_in_clear(
    describe: Describe,
) -> None:
    """A client's key is refused where `key = false` allows http; a session's, too."""
    address = "http://10.0.0.5/v1"
    describe(f'[lab]\nbase_url = "{address}"\nkey = false\n')

    for make in (svc.Client, svc.AsyncClient):
        assert make(base_url=address).settings.base_url == address
        with pytest.raises(svc.errors.SettingsError, match="unencrypted"):
            make(base_url=address, api_key=KEY)
    with pytest.raises(svc.errors.SettingsError, match="unencrypted"):
        svc.use(base_url=address, key=KEY)


@pytest.mark.slow
def test_code_has_a_neutral_name_for_a_key_that_was_given(
    start: Start, describe: Describe
) -> None:
    """The command says which key the variable is to hold; without a key it has none."""
    describe("")
    server = start(keys=[KEY])
    open_server = start(needs_key=False)

    svc.use(base_url=server.base_url, key=KEY)
    code = svc.complete("Hi", model=MODEL).as_curl()
    svc.use(base_url=open_server.base_url, key=False)
    keyless = svc.complete("Hi", model=MODEL).as_curl()

    assert code.startswith(f"# set API_KEY to the key of '{server.base_url}'\n")
    assert '"Authorization: Bearer $API_KEY"' in code
    assert KEY not in code
    assert "Authorization" not in keyless


@pytest.mark.slow
def test_an_edit_of_the_file_applies_at_the_next_request(
    start: Start, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new address gets the key that the file names for it, and limits follow."""
    monkeypatch.setenv("LAB_API_KEY", KEY)
    monkeypatch.setenv("NEW_API_KEY", "sk-of-the-new-lab")
    one, two = start(keys=[KEY]), start(keys=["sk-of-the-new-lab"])
    text = '[lab]\nbase_url = "{}"\nkey_env = "{}"\nper_second = {}\n'
    describe(text.format(one.base_url, "LAB_API_KEY", 500))
    svc.use(endpoint="lab", model=MODEL)
    svc.complete("Hi")

    describe(text.format(two.base_url, "NEW_API_KEY", 700))
    svc.complete("Hi")

    limit = current().settings.endpoint.limit
    assert limit is not None
    assert limit.per_second == 700
    assert [each.status for each in one.requests if each.method == "POST"] == [200]
    assert [each.status for each in two.requests if each.method == "POST"] == [200]


@pytest.mark.parametrize("is_named", [True, False])
def test_without_a_key_the_message_says_how_to_need_none(
    start: Start,
    describe: Describe,
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,
) -> None:
    """It names what helps at an own server, not the service's variables."""
    monkeypatch.delenv("SVC_API_KEY")
    address = start().base_url
    describe(f'[lab]\nbase_url = "{address}"\n')

    with pytest.raises(svc.errors.MissingKeyError) as caught:
        svc.use(endpoint="lab") if is_named else svc.use(base_url=address)

    said = str(caught.value)
    assert all(
        each in said for each in ("key=False", "no-key", "key_env", "key = false")
    )
    assert "SVC_BASE_URL" not in said


SET_KEY = "k0ey-of-the-service-itself"


@pytest.fixture
def own_key(
    describe: Describe,
    shell: Shell,  # noqa: F811, ARG001 - it sets the emulator's key
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A key that is set, whatever its form."""
    describe("")
    monkeypatch.setenv("SVC_API_KEY", SET_KEY)
    return SET_KEY


@pytest.mark.parametrize(
    "given",
    [
        {"extra": [{"k": SET_KEY}, {"k": "b"}]},
        {"extra": {"k": [SET_KEY]}},
        {"stop": [SET_KEY]},
        {"system": [SET_KEY, "b"]},
    ],
)
def test_a_sweep_refuses_a_key_in_every_value(
    own_key: str, given: dict[str, Any]
) -> None:
    """It is refused when the sweep is made, since its plan would show it."""
    with pytest.raises(
        svc.errors.ParameterError, match="contains the API key"
    ) as caught:
        svc.sweep("Hi", **given)

    assert own_key not in str(caught.value)


@pytest.mark.slow
def test_settings_and_dry_runs_show_no_key(
    own_key: str,
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """`%config` refuses it, and so does a dry run."""
    shell.names["key"] = own_key
    for setting in ("extra={'k':key}", "stop=[key]", "system=key", "model=key"):
        cell = shell.run(f"%config SvcMagics.{setting}")
        assert own_key not in cell.shown
    dry = shell.run(f'%%svc --dry-run --extra \'{{"k": "{own_key}"}}\'\nHi')
    settings = shell.run("%svc settings")

    assert "contains the API key" in dry.shown
    assert own_key not in dry.shown + settings.shown + repr(settings.value)


@pytest.mark.parametrize(
    "words",
    [
        "http://127.0.0.1:9/v1 sk-inlinekey12345",
        "sk-inlinekey12345",
        "sk_inlinekey12345",
        SET_KEY,
        "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
    ],
)
def test_a_pasted_key_is_not_echoed(
    own_key: str,
    shell: Shell,  # noqa: F811 - the fixture
    words: str,
) -> None:
    """It is neither quoted nor taken for a model."""
    key = words.rsplit(maxsplit=1)[-1]
    before = current().settings.model

    cell = shell.run(f"%svc use {words}")
    with pytest.raises(svc.errors.ParameterError) as named:
        svc.use(endpoint=key)
    with pytest.raises(svc.errors.ParameterError) as as_model:
        svc.use(model=key)

    assert "looks like an API key" in cell.shown
    assert key not in cell.shown + str(named.value) + str(as_model.value)
    assert own_key not in cell.shown
    assert current().settings.model == before


def test_a_plain_word_is_no_model(
    describe: Describe,
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """Without a file that has it, or with a broken one, nothing is changed."""
    describe("")
    before = current().settings.model
    absent = shell.run("%svc use lab")
    describe("[lab\n")
    broken = shell.run("%svc use lab")
    describe("")

    assert "svc.use(model='lab')" in absent.shown
    assert "line 1" in broken.shown
    assert current().settings.model == before
    svc.use(model="lab")
    assert current().settings.model == "lab"


@pytest.mark.parametrize("model", ["org/Model", "tide-8b", "tide4", "Tide2.5-72B-It"])
def test_what_looks_like_a_model_is_taken(
    describe: Describe,
    shell: Shell,  # noqa: F811 - the fixture
    model: str,
) -> None:
    """Ids that no list has are sent as they are."""
    describe("")

    shell.run(f"%svc use {model}")

    assert current().settings.model == model

"""`.env` and Colab's secrets: what is found there, and where no key is sent."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import svc_notebook as svc
from svc_notebook.credentials import Key, known_keys, remember
from svc_notebook.session import current, isolated
from svc_notebook.settings import read_env_file
from tests.magics.conftest import Shell, ipython, shell  # noqa: F401 - fixtures

from .conftest import MODEL, Start

KEY = "sk-of-the-env-file"
OTHER_KEY = "sk-of-the-environment"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes variables into `.env` in the working folder; the environment has none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SVC_LEDGER", ":memory:")

    def write_lines(*lines: str, **values: str) -> Path:
        for name in ("SVC_BASE_URL", "SVC_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        path = tmp_path / ".env"
        lines = (*lines, *(f"{name}={value}" for name, value in values.items()))
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    with isolated():
        yield write_lines


@pytest.mark.slow
def test_address_and_key_are_found_beside_the_notebook(
    write: Write,
    start: Start,
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """Both are used, `%svc use` says where they are from, and no key is shown."""
    server = start(keys=[KEY], models=["svc-v2-8b-instruct"])
    write("# mine", f'export SVC_API_KEY="{KEY}"', SVC_BASE_URL=server.base_url)

    said = shell.run("%svc use").shown
    listed = shell.run("%svc settings").shown
    asked = shell.run("%%svc\nHi")

    assert asked.error is None
    assert f"{server.base_url} (from SVC_BASE_URL in .env)" in said
    assert "from SVC_API_KEY in .env" in said
    assert "SVC_API_KEY in .env" in listed
    assert KEY not in said + listed
    assert "$SVC_API_KEY" in svc.complete("Hi").as_curl()


def test_only_this_folder_and_these_names_are_read(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No parent's `.env` is read, and no other setting of the file."""
    write(SVC_BASE_URL="https://svc.example/v1", SVC_API_KEY=KEY, SVC_MODEL="other")

    model = current().settings.model
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    assert model != "other"
    assert current().settings.base_url is None


def test_the_environment_comes_first(
    write: Write, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the folder redirects no request of who has set address and key."""
    mine, other = start(keys=[OTHER_KEY]), start(keys=[KEY, OTHER_KEY])
    write(SVC_BASE_URL=other.base_url, SVC_API_KEY=KEY)
    monkeypatch.setenv("SVC_BASE_URL", mine.base_url)
    monkeypatch.setenv("SVC_API_KEY", OTHER_KEY)

    svc.complete("Hi", model=MODEL)

    assert [each.status for each in mine.requests] == [200]
    assert other.requests == ()


def test_another_address_in_the_file_is_said(write: Write, start: Start) -> None:
    """An edit, or another folder, is followed with its own key, and with a warning."""
    one, two = start(keys=[KEY]), start(keys=[OTHER_KEY])
    write(SVC_BASE_URL=one.base_url, SVC_API_KEY=KEY)
    svc.complete("Hi", model=MODEL)
    write(SVC_BASE_URL=two.base_url, SVC_API_KEY=OTHER_KEY)

    with pytest.warns(RuntimeWarning, match=f"Requests go to {two.base_url} now"):
        svc.complete("Hi", model=MODEL)

    assert two.requests[-1].status == 200


def test_a_typed_key_does_not_wait_for_the_address_of_a_file(
    write: Write, start: Start
) -> None:
    """The file's own key goes there; the typed one waits for the user's choice."""
    other, mine = start(keys=[KEY]), start(keys=[OTHER_KEY])
    write()
    remember(Key(OTHER_KEY, source="a prompt"), None)
    write(SVC_BASE_URL=other.base_url, SVC_API_KEY=KEY)

    svc.complete("Hi", model=MODEL)
    svc.use(base_url=mine.base_url)
    svc.complete("Hi", model=MODEL)

    assert [each.status for each in other.requests] == [200]
    assert mine.requests[-1].status == 200


@pytest.mark.parametrize("with_key", [True, False])
def test_no_key_from_elsewhere_goes_to_the_address_of_a_file(
    write: Write, start: Start, monkeypatch: pytest.MonkeyPatch, with_key: bool
) -> None:
    """Where the key is set outside, the file's address is not used, and it is said."""
    other = start(keys=[KEY, OTHER_KEY])
    write(SVC_BASE_URL=other.base_url, **({"SVC_API_KEY": KEY} if with_key else {}))
    monkeypatch.setenv("SVC_API_KEY", OTHER_KEY)

    with pytest.raises(svc.errors.ConfigError, match=r"in \.env is not used") as caught:
        svc.complete("Hi", model=MODEL)

    assert "`%svc use ADDRESS`" in str(caught.value)
    assert other.requests == ()


def test_a_client_of_the_files_address_has_the_files_key_alone(
    write: Write, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is set after the client was made is not sent there either."""
    server = start(keys=[KEY, OTHER_KEY])
    path = write(SVC_BASE_URL=server.base_url, SVC_API_KEY=KEY)
    settings = current().settings
    monkeypatch.setenv("SVC_API_KEY", OTHER_KEY)
    path.unlink()

    with svc.Client(settings) as client, pytest.raises(svc.errors.MissingKeyError):
        client.complete("Hi", model=MODEL)

    assert server.requests == ()


def test_no_key_of_an_endpoint_goes_to_the_address_of_a_file(
    write: Write, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.env` cannot choose an endpoint whose key is a variable of the environment."""
    server = start(keys=[KEY, OTHER_KEY])
    write(SVC_BASE_URL=server.base_url, SVC_API_KEY=KEY)
    monkeypatch.setenv("LAB_API_KEY", OTHER_KEY)
    (tmp_path / "svc_notebook.toml").write_text(
        f'[lab]\nbase_url = "{server.base_url}"\nkey_env = "LAB_API_KEY"\n'
    )

    svc.complete("Hi", model=MODEL)
    chosen = current().key().source
    svc.use(endpoint="lab")

    assert chosen == "SVC_API_KEY in .env"
    assert current().key().source == "LAB_API_KEY"


def test_the_key_of_a_file_is_for_one_address(write: Write, start: Start) -> None:
    """It goes with its own address, and no server chosen here gets it."""
    one, two = start(keys=[KEY]), start(keys=[KEY])
    write(SVC_BASE_URL=one.base_url, SVC_API_KEY=KEY)

    with pytest.raises(svc.errors.MissingKeyError, match=f"belongs to {one.base_url}"):
        svc.use(base_url=two.base_url)

    assert two.requests == ()


def test_a_file_may_have_the_key_alone(
    write: Write, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to SVC_BASE_URL of the environment, also an endpoint's own."""
    service, lab = start(keys=[KEY]), start(keys=[OTHER_KEY])
    write(SVC_API_KEY=KEY, LAB_API_KEY=OTHER_KEY)
    Path("svc_notebook.toml").write_text(
        f'[lab]\nbase_url = "{lab.base_url}"\nkey_env = "LAB_API_KEY"\n'
    )
    monkeypatch.setenv("SVC_BASE_URL", service.base_url)

    svc.complete("Hi", model=MODEL)
    svc.use(endpoint="lab")
    svc.complete("Hi", model=MODEL)

    assert (service.requests[-1].status, lab.requests[-1].status) == (200, 200)


def test_a_key_of_a_file_is_hidden_like_others(write: Write) -> None:
    """A prompt that contains it is refused, and it is a known key everywhere."""
    write(SVC_BASE_URL="https://svc.example/v1", SVC_API_KEY=KEY)

    with pytest.raises(svc.errors.ParameterError, match="contains the API key"):
        svc.complete(f"What is {KEY}?", model=MODEL)

    assert [key.redact(KEY) for key in known_keys()] == ["[key]"]
    assert KEY not in repr(current().settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"SVC_API_KEY=\xff\xfe", "it is not UTF-8"),
        (b"#" * 100_001, "it has more than 100000 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_where_it_would_help(
    write: Write, content: bytes, why: str
) -> None:
    """It does not fail what needs nothing of it."""
    write().write_bytes(content)

    with pytest.raises(svc.errors.ConfigError, match=rf"\.env .* not read: {why}"):
        svc.complete("Hi")
    svc.use(endpoint="emulator")

    assert svc.complete("Hi", max_tokens=5).text


@pytest.mark.slow
def test_a_wrong_address_of_a_file_is_refused_by_name(write: Write) -> None:
    """The error says where the address is; the emulator works."""
    write(SVC_BASE_URL="HOST/v1", SVC_API_KEY=KEY)

    with pytest.raises(svc.errors.SettingsError, match=r"SVC_BASE_URL in \.env: "):
        svc.complete("Hi")
    svc.use(endpoint="emulator")

    assert svc.complete("Hi", max_tokens=5).text


def test_nothing_in_a_file_is_expanded(write: Write, start: Start) -> None:
    """A key may have a dollar sign and braces."""
    key = "sk-${HOME}-$HOME"
    server = start(keys=[key])
    write(SVC_BASE_URL=server.base_url, SVC_API_KEY=key)

    svc.complete("Hi", model=MODEL)

    assert [each.status for each in server.requests] == [200]


def test_a_folder_of_that_name_is_not_a_file(write: Write, tmp_path: Path) -> None:
    """A virtual environment in `.env` says nothing."""
    (tmp_path / ".env").mkdir()

    with pytest.raises(svc.errors.MissingKeyError) as caught:
        svc.complete("Hi")

    assert "not read" not in str(caught.value)
    assert write is not None


def test_the_refusal_of_a_files_key_says_where_it_is(
    write: Write, start: Start
) -> None:
    """The next step after a 401 names the file."""
    write(SVC_BASE_URL=start(keys=["sk-another-one"]).base_url, SVC_API_KEY=KEY)

    with pytest.raises(svc.errors.AuthError, match=r"Set SVC_API_KEY in \.env to"):
        svc.complete("Hi", model=MODEL)


class Secrets:
    """Colab's `userdata`, with the secrets that the user allows this notebook."""

    def __init__(self, **allowed: str) -> None:
        self.allowed = allowed
        self.asked: list[str] = []

    def get(self, name: str) -> str:
        """Return a secret, or fail as Colab does."""
        self.asked.append(name)
        return self.allowed[name]


@pytest.fixture
def colab(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    """Colab's part of a kernel; it has a key."""
    secrets = Secrets(SVC_API_KEY=KEY)
    place = ModuleType("google.colab")
    monkeypatch.setitem(sys.modules, "google.colab", place)
    userdata = SimpleNamespace(get=secrets.get)
    monkeypatch.setitem(sys.modules, "google.colab.userdata", userdata)
    return secrets


def test_colabs_secrets_have_a_key(write: Write, start: Start, colab: Secrets) -> None:
    """It goes to the address that is chosen first, and to no other."""
    write()
    one, two = start(keys=[KEY]), start(keys=[KEY])
    svc.use(base_url=one.base_url)

    svc.complete("Hi", model=MODEL)
    source = current().key().source
    with pytest.raises(svc.errors.MissingKeyError, match="Colab's secrets belongs to"):
        svc.use(base_url=two.base_url)

    assert source == "SVC_API_KEY in Colab's secrets"
    assert colab.asked == ["SVC_API_KEY"]
    assert two.requests == ()


def test_colab_is_asked_only_for_what_is_needed(
    write: Write, start: Start, colab: Secrets
) -> None:
    """A key of the folder needs no access; where Colab has none, the ways are said."""
    write(SVC_BASE_URL=start(keys=[KEY]).base_url, SVC_API_KEY=KEY)
    svc.complete("Hi", model=MODEL)
    n_asked = len(colab.asked)
    write()
    colab.allowed.clear()

    with pytest.raises(svc.errors.MissingKeyError, match="%svc login"):
        svc.complete("Hi", model=MODEL)

    assert n_asked == 0
    assert colab.asked


def test_another_process_gets_what_is_used_here(write: Write) -> None:
    """The demo's kernel, in another folder, has the file's address and key as well."""
    write(SVC_BASE_URL="https://svc.example/v1", SVC_API_KEY=KEY)
    pair = {"SVC_BASE_URL": "https://svc.example/v1", "SVC_API_KEY": KEY}

    assert read_env_file().completed({"A": "1"}) == {"A": "1", **pair}
    for environ in ({"SVC_API_KEY": OTHER_KEY}, {"SVC_BASE_URL": "https://a.example"}):
        assert read_env_file().completed(environ) == environ
    write(SVC_API_KEY=KEY)
    assert read_env_file().completed({"SVC_BASE_URL": "https://a.example"}) == {
        "SVC_BASE_URL": "https://a.example",
        "SVC_API_KEY": KEY,
    }

"""`svc_notebook.toml`: what it may say, and what its mistakes are answered with."""

from pathlib import Path

import pytest

from svc_notebook.credentials import Key
from svc_notebook.endpoints import Endpoint, read_endpoints
from svc_notebook.errors import SettingsError
from svc_notebook.service.catalogue import MODELS, Limit, Model
from svc_notebook.session import current

from .conftest import Describe

LAB = """\
[lab]
base_url = "http://127.0.0.1:8000/v1"
key_env = "LAB_API_KEY"
per_second = 9

[lab.models."qwen/32b"]
context = 32768
per_minute = false
in_flight = 200
"""


def test_a_table_describes_an_endpoint(describe: Describe) -> None:
    """Limits that a model leaves out are those of its endpoint."""
    describe(LAB)

    found = read_endpoints()

    assert found == {
        "lab": Endpoint(
            name="lab",
            base_url="http://127.0.0.1:8000/v1",
            key_env="LAB_API_KEY",
            models=(
                Model(
                    "qwen/32b",
                    limit=Limit(per_second=9, per_minute=None, in_flight=200),
                    context_tokens=32768,
                ),
            ),
            limit=Limit(per_second=9, per_minute=None),
            default_model="qwen/32b",
            lists_models=True,
            is_documented=False,
        )
    }


def test_the_service_can_be_corrected(describe: Describe) -> None:
    """What a table of the service leaves out is as its document says."""
    describe("[service.models.svc-v2-8b-instruct]\nper_minute = 500\n")

    found = read_endpoints()["service"]

    assert found.limit_of("svc-v2-8b-instruct") == Limit(per_second=5, per_minute=500)
    assert found.limit_of("svc-v2-70b-instruct") == Limit(per_second=5, per_minute=50)
    assert len(found.models) == len(MODELS)


def test_the_environment_may_name_another_file(
    describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC_CONFIG is read instead of the user's file; one that is absent is refused."""
    describe(LAB)
    team = tmp_path / "team.toml"
    monkeypatch.setenv("SVC_CONFIG", str(team))

    with pytest.raises(SettingsError, match=r"SVC_CONFIG names .*team\.toml"):
        read_endpoints()
    team.write_text(LAB.replace("lab", "team"), encoding="utf-8")

    assert read_endpoints().keys() == {"team"}


def test_a_file_in_the_notebooks_folder_is_not_read(
    describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither are variables in its `.env`: the folder may be somebody else's."""
    describe("")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "svc_notebook.toml").write_text(LAB, encoding="utf-8")
    (folder / ".env").write_text("SVC_MODEL=other\nSVC_API_KEY=sk-other-key")
    monkeypatch.chdir(folder)

    assert read_endpoints() == {}
    assert current().settings.model == "svc-v2-8b-instruct"
    assert current().key().digest("") != Key("sk-other-key", source="x").digest("")


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (1, "[lab", "(at line 1, column 5)"),
        (3, 'key = "sk-verysecret"', 'write key_env = "LAB_API_KEY"'),
        (3, 'api_key = "sk-verysecret"', "set the environment variable lab_api_key"),
        (3, 'key_env = "sk-verysecret"', "a key does not belong in a file"),
        (3, "per_secnd = 5", "Did you mean per_second?"),
        (4, 'per_second = "5"', "an integer >= 1, or false for no such limit; got '5'"),
        (4, "per_second = 0", "an integer >= 1"),
        (7, "context = false", "context: must be an integer >= 1; got False"),
        (7, "contxt = 5", "Did you mean context?"),
        (2, 'base_url = "127.0.0.1:8000/v1"', "has no scheme"),
        (2, 'base_url = "https://me:pw@host/v1"', "has a user name"),
        (2, 'base_url = "http://lab.example/v1"', "allow_http = true"),
        (2, "", 'write base_url = "https://HOST/v1"'),
        (3, 'ca_file = "none.pem"', "must be a readable file with certificates"),
        (3, 'ca_file = "svc_notebook.toml"', "must be a readable file with certif"),
        (3, 'proxy = "ftp://x:pw@y"', "must be http://HOST:PORT"),
        (3, 'proxy = "socks5://x:1080"', "must be http://HOST:PORT"),
        (1, "[emulator]", "is not emulator"),
        (1, "lab = 5", "write [lab]"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    describe: Describe, line: int, text: str, said: str
) -> None:
    """The message names file, line and what is allowed, and never shows a key."""
    lines = LAB.splitlines()
    lines[line - 1] = text
    if text == "lab = 5":
        lines = [text]
    path = describe("\n".join(lines))

    with pytest.raises(SettingsError) as caught:
        read_endpoints()

    assert said.lower() in str(caught.value).lower()
    assert str(path) in str(caught.value)
    place = 1 if text == "" else line  # a missing line is one of its table
    assert f"line {place}" in str(caught.value)
    assert not {"verysecret", "pw@"} & {*str(caught.value).split()}


@pytest.mark.parametrize(
    "address",
    ["https://gpu.example/v1", "https://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1"],
)
def test_one_key_is_not_sent_to_two_servers(describe: Describe, address: str) -> None:
    """A variable is for one scheme, host and port; their paths may differ."""
    other = '[gpu]\nbase_url = "{}"\nkey_env = "LAB_API_KEY"\n'
    describe(LAB + other.format("http://127.0.0.1:8000/other/v1"))
    assert read_endpoints().keys() == {"lab", "gpu"}

    describe(LAB + other.format(address))

    with pytest.raises(SettingsError, match="on different hosts"):
        read_endpoints()


def test_http_is_allowed_where_no_key_is_sent(describe: Describe) -> None:
    """In a private network a server without a key may be asked in clear."""
    describe('[lab]\nbase_url = "http://10.0.0.5:8000/v1"\nkey = false\n')

    assert read_endpoints()["lab"].base_url == "http://10.0.0.5:8000/v1"


@pytest.mark.parametrize("table", ["[service]\n", "[lab]\nbase_url = 'https://a/v1'\n"])
def test_the_services_key_is_set_by_its_variable(
    describe: Describe, table: str
) -> None:
    """No endpoint takes SVC_API_KEY by key_env, and the service no other variable."""
    variable = "LAB_API_KEY" if "service" in table else "SVC_API_KEY"
    describe(f"{table}key_env = '{variable}'\n")

    with pytest.raises(SettingsError, match=r"key_env: .*SVC_API_KEY"):
        read_endpoints()

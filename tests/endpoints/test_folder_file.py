"""A `svc_notebook.toml` that somebody else left in the folder gets no key."""

import pytest

import svc_notebook as svc
from svc_notebook.credentials import Key, forget, key_variable, remember
from svc_notebook.endpoint_file import read_endpoints
from svc_notebook.session import current

from .conftest import MODEL, Describe, Start

KEY = "sk-of-the-lab"
FAR = "https://gw.invalid/v1"


@pytest.mark.parametrize(
    "line",
    ['proxy = "http://127.0.0.1:9110"', 'ca_file = "ca.pem"', "allow_http = true"],
)
@pytest.mark.parametrize(
    "table", ["[service]", f'[lab]\nbase_url = "{FAR}"\nkey = false']
)
def test_the_folder_sets_no_connection(
    describe: Describe, describe_own: Describe, table: str, line: str
) -> None:
    """A proxy or a certificate of its own would let it read keys and prompts."""
    own = describe_own("")
    path = describe(f"{table}\n{line}\n")

    with pytest.raises(svc.errors.SettingsError) as caught:
        svc.complete("Hi")

    name = line.partition(" ")[0]
    assert f"{path}, line {len(table.splitlines()) + 1}" in str(caught.value)
    assert f"{name}: is not allowed here. Move it to {own};" in str(caught.value)


def test_the_users_file_sets_connections(
    describe: Describe, describe_own: Describe
) -> None:
    """They hold for the service, too, when the folder's file corrects its limits."""
    describe_own('[service]\nproxy = "http://127.0.0.1:9110"\nallow_http = true\n')
    describe("[service]\nper_minute = 500\n")

    found = read_endpoints()["service"]

    assert (found.proxy, found.allow_http) == ("http://127.0.0.1:9110", True)
    assert found.takes_env_key


def test_the_users_folder_may_be_the_notebooks(
    describe_own: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both files are one, it is the user's own."""
    monkeypatch.chdir(describe_own("[service]\nallow_http = true\n").parent)

    assert read_endpoints()["service"].allow_http


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:9/v1",
        "https://127.0.0.1:8/v1",
        "https://127.0.0.1:9/other/v1",
        "https://localhost:9/v1",
    ],
)
def test_the_folder_moves_no_endpoint_of_the_users(
    describe: Describe, describe_own: Describe, address: str
) -> None:
    """Scheme, host, port and path are compared; both files are named."""
    own = describe_own('[lab]\nbase_url = "https://127.0.0.1:9/v1"\n')
    path = describe(f'[lab]\nbase_url = "{address}"\n')

    with pytest.raises(svc.errors.SettingsError) as caught:
        svc.use(endpoint="lab")

    assert all(str(each) in str(caught.value) for each in (own, path, address))


def test_a_key_of_https_is_not_sent_over_http(
    describe: Describe, describe_own: Describe
) -> None:
    """Another endpoint with the same variable and host has the same scheme."""
    text = '[{}]\nbase_url = "{}://127.0.0.1:9/v1"\nkey_env = "LAB_API_KEY"\n'
    describe_own(text.format("lab", "https"))
    describe(text.format("other", "http"))

    with pytest.raises(svc.errors.SettingsError, match="or one has http"):
        svc.use(endpoint="other")


@pytest.mark.parametrize("is_set", [True, False])
@pytest.mark.parametrize("table", ["lab", "service"])
def test_the_folder_takes_no_variable(
    describe: Describe,
    describe_own: Describe,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    is_set: bool,
) -> None:
    """The message says which key would go where, and both ways to allow it."""
    if is_set:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("SVC_BASE_URL", "https://service.example/v1")
    own = describe_own("")
    address = f'base_url = "{FAR}"\n' if table == "lab" else ""
    describe(f'[{table}]\n{address}key_env = "AWS_SECRET_ACCESS_KEY"\n')

    with pytest.raises(svc.errors.MissingKeyError) as caught:
        svc.use(endpoint=table)

    said, host = str(caught.value), FAR if address else "https://service.example/v1"
    assert f"the key of AWS_SECRET_ACCESS_KEY to {host[8:-3]}" in said
    assert f"svc.use(base_url='{host}', key=os.environ['AWS_SECRET_ACC" in said
    assert f"move [{table}] to {own}" in said
    assert KEY not in said


@pytest.mark.slow
def test_the_ways_that_the_message_names_work(
    describe: Describe, describe_own: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is given, and the same lines in the user's file."""
    monkeypatch.setenv("LAB_API_KEY", KEY)
    text = f'[lab]\nbase_url = "{FAR}"\nkey_env = "LAB_API_KEY"\nmodel = "m"\n'
    describe(text)

    svc.use(base_url=FAR, key=KEY)
    given = current().settings.model, current().key().source
    svc.use(endpoint="emulator")
    forget()
    describe_own(text)
    svc.use(endpoint="lab")
    named = current().settings.model, current().key().source

    assert given == ("m", "svc.use")
    assert named == ("m", "LAB_API_KEY")


@pytest.mark.parametrize("line", ["", 'key_env = "SVC_API_KEY"\n'])
def test_the_services_key_is_never_bound_by_the_folder(
    start: Start,
    describe: Describe,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
) -> None:
    """Without SVC_BASE_URL it goes nowhere, not even on this machine."""
    server = start(keys=[KEY])
    monkeypatch.delenv("SVC_BASE_URL")
    monkeypatch.setenv("SVC_API_KEY", KEY)
    describe(f'[lab]\nbase_url = "{server.base_url}"\n{line}')

    with pytest.raises(svc.errors.MissingKeyError, match="the key of SVC_API_KEY to"):
        svc.use(endpoint="lab")
    with (
        svc.Client(base_url=server.base_url) as client,
        pytest.raises(svc.errors.MissingKeyError, match="somebody else's"),
    ):
        client.complete("Hi", model=MODEL)
    n_before = len(server.requests)
    monkeypatch.setenv("SVC_BASE_URL", server.base_url)
    svc.use(endpoint="lab")
    svc.complete("Hi", model=MODEL)

    assert n_before == 0
    assert server.requests[-1].status == 200


def test_code_names_no_variable_that_the_folder_wants(describe: Describe) -> None:
    """A shell command that is pasted does not send it, either."""
    describe(f'[lab]\nbase_url = "{FAR}"\nkey_env = "AWS_SECRET_ACCESS_KEY"\n')

    assert key_variable(FAR) == "API_KEY"


def test_a_typed_key_without_an_address_is_not_the_folders(
    start: Start, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for an address of the user's, and the message says how to give it."""
    server, home = start(keys=[KEY]), start(keys=[KEY])
    monkeypatch.delenv("SVC_BASE_URL")
    monkeypatch.delenv("SVC_API_KEY")
    describe(f'[lab]\nbase_url = "{server.base_url}"\n')
    remember(Key(KEY, source="a prompt"), None)

    with pytest.raises(svc.errors.MissingKeyError) as caught:
        svc.use(endpoint="lab")
    with (
        svc.Client(base_url=server.base_url) as client,
        pytest.raises(svc.errors.MissingKeyError),
    ):
        client.complete("Hi", model=MODEL)
    n_before = len(server.requests)
    monkeypatch.setenv("SVC_BASE_URL", home.base_url)
    svc.use(endpoint="service")
    svc.complete("Hi", model=MODEL)
    svc.use(base_url=server.base_url, key=KEY)
    svc.complete("Hi", model=MODEL)

    assert "would send the key that you typed to 127.0.0.1:" in str(caught.value)
    assert f"svc.use(base_url='{server.base_url}', key=getpass" in str(caught.value)
    assert (n_before, KEY in str(caught.value)) == (0, False)
    assert (home.requests[-1].status, server.requests[-1].status) == (200, 200)


def test_a_typed_key_is_not_the_folders_server_on_this_machine(
    start: Start, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a shared machine it may be somebody else's, also with a variable of its own.

    The key of that variable is sent there.
    """
    server = start(keys=[KEY])
    monkeypatch.delenv("SVC_BASE_URL")
    monkeypatch.delenv("SVC_API_KEY")
    describe(f'[lab]\nbase_url = "{server.base_url}"\nkey_env = "LAB_API_KEY"\n')
    remember(Key("sk-typed-for-the-service", source="a prompt"), None)

    with pytest.raises(svc.errors.MissingKeyError, match="the key that you typed to"):
        svc.use(endpoint="lab")
    n_before = len(server.requests)
    monkeypatch.setenv("LAB_API_KEY", KEY)
    svc.use(endpoint="lab")
    svc.complete("Hi", model=MODEL)

    assert (n_before, server.requests[-1].status) == (0, 200)


def test_a_typed_key_goes_to_the_address_that_both_name(
    start: Start, describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC_BASE_URL is the user's, whatever the folder's file says of it."""
    server = start(keys=[KEY])
    monkeypatch.delenv("SVC_API_KEY")
    describe(f'[lab]\nbase_url = "{server.base_url}"\n')
    remember(Key(KEY, source="a prompt"), None)
    monkeypatch.setenv("SVC_BASE_URL", server.base_url)

    svc.use(endpoint="lab")
    svc.complete("Hi", model=MODEL)

    assert server.requests[-1].status == 200

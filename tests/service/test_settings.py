"""Settings and where they came from; addresses, keys and what they show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_notebook.credentials import Key, find_key, known_keys
from svc_notebook.endpoints import is_loopback, to_base_url, to_server_url
from svc_notebook.errors import MissingKeyError, SettingsError
from svc_notebook.settings import (
    Environment,
    Settings,
    default_ledger,
    read_env,
)
from svc_notebook.timeouts import Timeouts


def test_settings_from_the_environment() -> None:
    """What the environment says is used, and it is said who said so."""
    environ = {
        "SVC_BASE_URL": " https://host.example ",
        "SVC_MODEL": "m",
        "SVC_LEDGER": ":memory:",
        "SVC_DISPLAY": "plain",
    }

    settings = Settings.from_env(environ)

    assert settings == Settings(
        base_url="https://host.example/v1",
        model="m",
        ledger=":memory:",
        display="plain",
        sources={
            "base_url": "SVC_BASE_URL",
            "model": "SVC_MODEL",
            "ledger": "SVC_LEDGER",
            "display": "SVC_DISPLAY",
        },
    )


def test_settings_of_an_empty_environment(tmp_path: Path) -> None:
    """Where nothing is said, and where only blanks are, defaults apply."""
    environ = {"SVC_BASE_URL": " ", "XDG_DATA_HOME": str(tmp_path)}

    settings = Settings.from_env(environ)

    assert (settings.base_url, settings.model) == (None, "svc-v2-8b-instruct")
    assert settings.ledger == str(default_ledger(environ))
    assert Path(settings.ledger).is_relative_to(tmp_path)
    assert settings.sources == {}
    assert settings.timeouts == Timeouts()


@pytest.mark.parametrize("environ", [{"SVC_DISPLAY": "loud"}, {"SVC_BASE_URL": "host"}])
def test_settings_that_cannot_be_used(environ: dict[str, str]) -> None:
    """A wrong value is refused, naming its variable."""
    with pytest.raises(SettingsError, match=next(iter(environ))):
        Settings.from_env(environ)


def test_the_key_is_found_and_not_shown() -> None:
    """A key says where it came from, and its value only to the request."""
    key = find_key({"SVC_API_KEY": "sk-1"}, base_url=None)

    assert key.authorization() == "Bearer sk-1"
    assert repr(key) == str(key) == f"{key}" == "<API key (hidden) from SVC_API_KEY>"
    assert not hasattr(key, "__dict__")


@pytest.mark.parametrize("environ", [{}, {"SVC_API_KEY": ""}, {"SVC_API_KEY": ' "" '}])
def test_a_missing_key_names_both_ways_on(environ: dict[str, str]) -> None:
    """Without a key the message says where to get one, and names the emulator.

    A script has no magic, so there is a function for it.
    """
    ways = r'dashboard(.|\n)*use emulator.*svc.use\(endpoint="emulator"\)'
    for base_url in (None, "https://svc.invalid/v1"):
        named = {"SVC_BASE_URL": base_url} if base_url else {}
        with pytest.raises(MissingKeyError, match=ways):
            find_key({**named, **environ}, base_url=base_url)


def test_a_key_is_redacted() -> None:
    """A text, alone or inside lists and mappings, is shown with `[key]` instead."""
    key = Key("sk-1234567", source="test")
    texts = ["a sk-1234567 b", {"x": ("sk-1234567", 5, "sk-12345")}]

    assert key.redact(texts) == ["a [key] b", {"x": ("[key]", 5, "sk-12345")}]


def test_a_digest_does_not_show_the_key() -> None:
    """One key and one salt give one digest."""
    key = Key("sk-1234567", source="test")

    assert key.digest("a") == Key("sk-1234567", source="x").digest("a")
    assert key.digest("a") != key.digest("b")
    assert "sk-1" not in key.digest("a")


@pytest.mark.parametrize(
    ("text", "timeouts"),
    [
        ("", Timeouts()),
        (
            "20",
            Timeouts(
                connect_s=20, first_byte_s=20, idle_s=20, whole_s=20, whole_token_s=0
            ),
        ),
        ("connect_s=5, idle_s=0.5", Timeouts(connect_s=5, idle_s=0.5)),
        ("total_s=none", Timeouts(total_s=None)),
        (
            "1 total_s=9",
            Timeouts(
                connect_s=1,
                first_byte_s=1,
                idle_s=1,
                whole_s=1,
                whole_token_s=0,
                total_s=9,
            ),
        ),
    ],
)
def test_time_outs_of_the_environment(text: str, timeouts: Timeouts) -> None:
    """SVC_TIMEOUTS gives one number for all waits, or some by name."""
    settings = Settings.from_env({"SVC_TIMEOUTS": text})

    assert settings.timeouts == timeouts


@pytest.mark.parametrize(
    "text", ["soon", "0", "-1", "nan", "inf", "none", "idle=3", "idle_s=", "idle_s=0"]
)
def test_time_outs_that_do_not_end_are_refused(text: str) -> None:
    """A time-out that is no number above 0, or has no such name, is refused."""
    with pytest.raises(SettingsError, match=r"connect_s=5 idle_s=30"):
        Settings.from_env({"SVC_TIMEOUTS": text})


CLEAR = {"SVC_BASE_URL": "http://models.lan:8000", "SVC_ALLOW_HTTP": "1"}


def test_plain_http_can_be_asked_for() -> None:
    """SVC_ALLOW_HTTP=1 allows the key to be sent in clear, and is remembered."""
    settings, problems = read_env(CLEAR)

    assert problems == {}
    assert settings.base_url == "http://models.lan:8000/v1"
    assert settings.sources["allow_http"] == "SVC_ALLOW_HTTP"
    assert settings.setting("use", model="m").base_url == settings.base_url


@pytest.mark.parametrize("word", ["", "0", "no", "False"])
def test_plain_http_is_refused_unless_it_is_allowed(word: str) -> None:
    """The message names the way to ask for it."""
    _, problems = read_env({**CLEAR, "SVC_ALLOW_HTTP": word})

    assert list(problems) == ["SVC_BASE_URL"]
    assert "SVC_ALLOW_HTTP=1" in str(problems["SVC_BASE_URL"])


def test_whether_plain_http_is_meant_is_not_guessed() -> None:
    """Another word than yes or no is a mistake, in the environment and in Python."""
    settings, problems = read_env({**CLEAR, "SVC_ALLOW_HTTP": "maybe"})
    wrong: Any = "yes"

    assert settings.base_url is None
    assert sorted(problems) == ["SVC_ALLOW_HTTP", "SVC_BASE_URL"]
    with pytest.raises(SettingsError, match="True or False"):
        Settings(allow_http=wrong)


def test_reuse_is_off_unless_the_environment_says_so() -> None:
    """SVC_REUSE takes the words of SVC_ALLOW_HTTP; another word is a mistake."""
    assert [
        Settings.from_env({"SVC_REUSE": word}).reuse for word in ("", "0", "1", "Yes")
    ] == [False, False, True, True]

    _, problems = read_env({"SVC_REUSE": "maybe"})

    assert "SVC_REUSE takes 1 or 0" in str(problems["SVC_REUSE"])


def test_a_zone_id_is_refused_in_words() -> None:
    """An IPv6 address with a zone is refused, with what to give instead."""
    with pytest.raises(SettingsError, match=r"Zone ids.*not supported; set SVC_BASE"):
        to_base_url("https://[fe80::1%25eth0]/v1")


MENDED = {
    "https://host/v1": "https://host/v1",
    "https://host/v1/": "https://host/v1",
    " https://host/v1\n": "https://host/v1",
    '"https://host/v1"': "https://host/v1",
    "https://host": "https://host/v1",
    "https://host:8443/api": "https://host:8443/api/v1",
    "https://host/v1/chat/completions": "https://host/v1",
    "https://host/v1/chat/completions/": "https://host/v1",
    "http://127.0.0.1:8000/v1": "http://127.0.0.1:8000/v1",
    "http://localhost:8000": "http://localhost:8000/v1",
    "http://[::1]:8000/v1": "http://[::1]:8000/v1",
}
REFUSED = [
    "",
    "host",
    "host/v1",
    "ftp://host/v1",
    "https://",
    "https:///v1",
    "https://user:secret@host/v1",
    "https://host/v1?key=1",
    "https://host/v1#x",
    "https://host:0/v1",
    "https://host:port/v1",
    "https://ho st/v1",
    "https://host/v1\r\nX: y",
    "https://โฮสต์/v1",
]


@pytest.mark.parametrize("text", MENDED)
def test_addresses_come_to_one_form(text: str) -> None:
    """Slashes, quotes, a missing /v1 and the whole endpoint are mended."""
    assert to_base_url(text) == MENDED[text]


LAB = "https://lab.example/v1"
_HOSTS = st.sampled_from(["host", "a.b-c.example", "10.0.0.5", "[::1]", "[fd00::a]"])
_PATHS = st.sampled_from(["", "/", "/v1", "/v1/", "/Api", "/v1/chat/completions"])


@pytest.mark.slow
@given(
    data=st.data(), host=_HOSTS, path=_PATHS, scheme=st.sampled_from(["https", "http"])
)
@pytest.mark.parametrize(
    "take", [to_base_url, lambda *a, **k: to_server_url(*a, **k)[0]]
)
def test_all_spellings_of_an_address_are_one(
    take: Callable[..., str], data: st.DataObject, host: str, path: str, scheme: str
) -> None:
    """The case of its host and its scheme and a default port make no other address."""
    spelt = "".join(
        data.draw(st.sampled_from([letter.lower(), letter.upper()]))
        for letter in f"{scheme}://{host}"
    )
    port = data.draw(st.sampled_from(["", ":", ":443" if scheme == "https" else ":80"]))

    base_url = take(f"{spelt}{port}{path}", allow_http=True)

    assert base_url == take(f"{scheme}://{host}{path}", allow_http=True)
    assert base_url.startswith(f"{scheme}://{host}/")
    assert take(base_url, allow_http=True) == base_url


def test_the_file_is_that_of_the_variables_given(tmp_path: Path) -> None:
    """What reads other variables than this process's reads their file, too."""
    file = tmp_path / "svc_notebook" / "svc_notebook.toml"
    file.parent.mkdir()
    file.write_text(f'[lab]\nbase_url = "{LAB}"\nkey_env = "LAB_API_KEY"\n')
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "SVC_BASE_URL": LAB,
        "LAB_API_KEY": "sk-of-the-lab",
    }

    settings, problems = read_env(environ)
    wrong = read_env({**environ, "SVC_CONFIG": "none.toml"})[1]

    assert (settings.endpoint.name, problems) == ("lab", {})
    assert Settings.from_env(environ) == settings
    assert Environment(environ).adopted(settings)[0].endpoint == settings.endpoint
    assert [key.source for key in known_keys(environ)] == ["LAB_API_KEY"]
    assert "does not exist" in str(wrong["svc_notebook.toml"])


def test_another_port_is_another_address() -> None:
    """Only the port of the scheme itself is left out."""
    assert to_base_url("https://host:80/v1") == "https://host:80/v1"
    assert to_base_url("http://[::1]:443/v1") == "http://[::1]:443/v1"
    assert to_base_url("https://[FD00:0::A]") == "https://[fd00::a]/v1"


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_address_is_refused(text: str) -> None:
    """What cannot be the service's address is refused with the right form."""
    with pytest.raises(SettingsError, match="https://HOST/v1") as caught:
        to_base_url(text)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["https://HOST/v1", "https://HOST:8000"])
def test_the_placeholder_of_the_documentation_is_no_host(text: str) -> None:
    """Copied as it is, the address says what is to be written there."""
    with pytest.raises(SettingsError, match=r"HOST .* is a placeholder.*use emulator"):
        to_base_url(text)


@pytest.mark.parametrize(
    "text", ["unix:///run/llm.sock", "http+unix://%2Frun%2Fllm/v1", "/run/llm.sock"]
)
def test_a_unix_socket_is_not_supported(text: str) -> None:
    """The error says so, and what to do instead."""
    with pytest.raises(SettingsError, match=r"not supported(.|\n)*127.0.0.1:8000/v1"):
        to_base_url(text)


@pytest.mark.parametrize("host", ["host", "10.0.0.1", "127.0.0.1.example"])
def test_a_key_never_travels_in_clear(host: str) -> None:
    """Plain http to another machine is refused."""
    with pytest.raises(SettingsError, match="unencrypted"):
        to_base_url(f"http://{host}/v1")


def test_loopback() -> None:
    """This machine is known by name and by number."""
    hosts = ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "x"]  # noqa: S104 - it is not this machine

    assert [is_loopback(host) for host in hosts] == [True] * 5 + [False] * 2

"""Settings and where they came from; keys and what they show."""

from pathlib import Path
from typing import Any

import pytest

from svc_notebook.credentials import Key, find_key
from svc_notebook.endpoints import to_base_url
from svc_notebook.errors import MissingKeyError, SettingsError
from svc_notebook.settings import (
    Settings,
    Timeouts,
    default_ledger,
    read_env,
)


def test_settings_from_the_environment() -> None:
    """What the environment says is used, and it is said who said so."""
    environ = {
        "SVC_BASE_URL": " https://host ",
        "SVC_MODEL": "m",
        "SVC_LEDGER": ":memory:",
        "SVC_DISPLAY": "plain",
    }

    settings = Settings.from_env(environ)

    assert settings == Settings(
        base_url="https://host/v1",
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
    """Without a key the message says where to get one, and names the emulator."""
    with pytest.raises(MissingKeyError, match=r"dashboard(.|\n)*use emulator"):
        find_key(environ, base_url=None)


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

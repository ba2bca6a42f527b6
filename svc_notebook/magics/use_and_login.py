"""`%svc use` and `%svc login`: the endpoint, the model and the key in use."""

import os
import re
import warnings
from collections.abc import Callable
from getpass import GetPassWarning, getpass

from svc_notebook.credentials import (
    KEYRING_NAME,
    NO_KEY_YET,
    Key,
    refuse_key_form,
    remember,
)
from svc_notebook.endpoints import FILE, NOT_REACHED, facts_of, read_endpoints
from svc_notebook.errors import (
    ConfigError,
    MissingKeyError,
    ParameterError,
    SettingsError,
)
from svc_notebook.service.params import did_you_mean, has_address_form, near_names
from svc_notebook.session import Session
from svc_notebook.settings import WAYS_WITHOUT_PROMPT, service_address
from svc_notebook.svc_use import (
    EMULATOR_NAME,
    SERVICE_NAME,
    address_endpoint,
    answers_without_key,
    known_endpoints,
    use_address,
    use_model,
    use_named,
    use_service,
)

EMULATOR_NOTE = (
    "Replies now come from the emulator on this machine. They cost nothing and are "
    "marked “emulator”. It knows a few answers: try `%svc Tell me a joke`. To other "
    "questions it says that it has none."
)
_ENDED_NOTE = (
    " The emulator that you made has ended: `svc.use(endpoint=...)` with it, or with "
    "the line that made it, brings it back."
)

NO_KEY = "no-key"


def use(
    session: Session, word: str = "", option: str = "", *, ask: "Ask | None" = None
) -> str:
    """Choose the endpoint by name or address, or the model; return what is in use.

    `ask` shows a prompt and returns the typed key; it is called if a key is needed.
    """
    refuse_key_form(f"{word} {option}", param="line")
    if option and (option != NO_KEY or not has_address_form(word)):
        raise ParameterError(
            f"%svc use {word} {option}: after an address, {NO_KEY} says that the "
            "server needs no key; a model or a name is one word. To ask a question, "
            f"write `%svc ask use {word} {option}`.",
            param="line",
        )
    if not word:
        return describe(session)
    ended_note = _ENDED_NOTE * (word == EMULATOR_NAME and session.has_given_emulator)
    if has_address_form(word):
        _use_address(session, word, is_keyless=bool(option), ask=ask or getpass)
    elif word == SERVICE_NAME:
        try:
            use_service(session)
        except ConfigError as problem:
            if not (note := session.context().answers_note):
                raise
            return f"{note} The service cannot be asked: {problem}"
    elif word in known_endpoints():
        use_named(session, word)
    else:
        return _use_model(session, word)
    note = session.context().answers_note or _endpoint_sentence(session)
    return f"{note}{ended_note}"


def _use_address(
    session: Session, address: str, *, is_keyless: bool, ask: "Ask"
) -> None:
    """Use the server at an address; ask for a key if it needs one."""
    try:
        use_address(session, address, key=False if is_keyless else None)
    except MissingKeyError as problem:
        missing = problem.with_traceback(None)
    else:
        return
    if answers_without_key(session, address):
        use_address(session, address, key=False, has_list=True)
        return
    base_url = address_endpoint(address).base_url or ""
    is_reached = facts_of(base_url).problem != NOT_REACHED
    key = _ask_for_key(ask, base_url) if is_reached else None
    if not is_reached:
        missing.add_note(
            f"{base_url} does not answer now, so it is unknown whether it needs a key. "
            "Start the server, or check the address, and try again."
        )
    if not isinstance(key, Key):  # not reached, or no key can be typed here
        raise missing
    remember(key, base_url)
    use_address(session, address)


_SHOWN_MODELS = 12


def _models_sentence(session: Session) -> str:
    """Return a sentence on the model in use and the models that the server lists."""
    settings = session.settings
    listed = [model.id for model in settings.endpoint.known_models()]
    if not settings.endpoint.lists_models or settings.endpoint.default_model:
        return ""
    if settings.model in listed:
        return "" if len(listed) > 1 else f" The model is {settings.model}."
    names = ", ".join(listed[:_SHOWN_MODELS])
    n_more = len(listed) - _SHOWN_MODELS
    names += f" and {n_more} more (`%svc models`)" if n_more > 0 else ""
    if not settings.model:
        return f"\nIt lists {names}. Choose one: `%svc use {listed[0]}`."
    if listed:
        return (
            f" The model is {settings.model}, which it does not list: it lists {names}."
        )
    return (
        f" It lists no models. The model is {settings.model}; `%svc use MODEL` "
        "names its own."
    )


def _endpoint_sentence(session: Session) -> str:
    """Return a sentence on the endpoint that replies now come from."""
    settings = session.settings
    if settings.is_emulated:
        return EMULATOR_NOTE
    named = settings.endpoint.name
    is_named = named in known_endpoints() and named != SERVICE_NAME
    name = f"{named}, " if is_named else ""
    source = settings.sources.get("model", "")
    is_its_own = settings.endpoint.default_model and source.endswith(named)
    model = (
        f" The model is {settings.model}." if is_its_own else _models_sentence(session)
    )
    keyless = "" if settings.endpoint.needs_key else " No key is sent (key=False)."
    return f"Replies now come from {name}{settings.base_url}.{keyless}{model}"


def _use_model(session: Session, model: str) -> str:
    models = session.settings.endpoint.known_models()
    is_listed = any(known.id == model for known in models)
    near = near_names(
        model.lower(), known_endpoints(), n=1, cutoff=0.65, least_chars=None
    )
    if near and not is_listed and not model.startswith("svc"):
        # probably an endpoint's name: then requests would go to the wrong place
        raise ParameterError(
            f"{model!r} is not a model id. Did you mean `{near[0]}`? Nothing was "
            "changed.",
            param="model",
        )
    if not (is_listed or _MODEL_FORM.search(model)):
        is_listed = _is_model(session, model)
    use_model(session, model, source="%svc use")
    is_service = not session.settings.endpoint.lists_models
    source = "the service document" if is_service else "the endpoint's list"
    if is_listed:
        return f"The model is now {model}."
    hint = did_you_mean(model.lower(), [known.id for known in models], n=1, cutoff=0.8)
    return f"The model is now {model} (not in {source}; it is sent as it is).{hint}"


_MODEL_FORM = re.compile(r"[\d/-]")


def _is_model(session: Session, word: str) -> bool:
    """Return True if a word is a model of the endpoint; otherwise refuse it."""
    read_endpoints()  # if the file cannot be read, that error explains more
    models = [model.id for model in session.models(wait_s=1)]
    if word in models:
        return True
    near = did_you_mean(word.lower(), [*known_endpoints(), *models])
    raise ParameterError(
        f"{word!r} is neither an endpoint nor a known model.{near} The endpoints are "
        f"{', '.join(known_endpoints())}; others are described in {FILE}. An address "
        f"begins with https://. To use {word!r} as a model anyway: "
        f"svc.use(model={word!r}), or `%%svc -m {word}` for a cell. Nothing was "
        "changed.",
        param="model",
    )


def describe(session: Session) -> str:
    """Return what is in use, and where each value was set."""
    settings = session.settings
    where, named = _address_text(session), settings.endpoint.name
    lines = [f"service  {where}", f"key      {_key_source(session)}"]
    if named not in {EMULATOR_NAME, SERVICE_NAME}:
        lines[0] = (
            f"endpoint {named}, {where}" if named not in where else f"endpoint {where}"
        )
    for name in ("model", "ledger", "prices", "answers"):
        value, source = getattr(settings, name), settings.sources.get(name, "default")
        if value is not None:
            lines.append(f"{name:<8} {value or 'none chosen yet'} ({source})")
    if session.spending and (spent := str(session.spending)):
        lines.append(f"spent    {spent}, since the limit was set")
    return "\n".join(lines)


def _address_text(session: Session) -> str:
    settings = session.settings
    where = settings.base_url or "no address yet: set SVC_BASE_URL"
    if settings.is_emulated:
        return f"the emulator on this machine, {settings.base_url}"
    return where


def _key_source(session: Session) -> str:
    if not session.settings.endpoint.needs_key:
        return "none needed"
    try:
        return f"from {session.key().source}"
    except MissingKeyError as problem:
        is_none = str(problem).startswith(f"{NO_KEY_YET}\n")
        none = "none yet: set SVC_API_KEY, or `%svc use emulator`"
        return none if is_none else str(problem)


Ask = Callable[[str], str]


def login(session: Session, address: str = "", *, ask: Ask | None = None) -> str:
    """Ask for the API key of an address, by default the one in use, and store it.

    While the emulator is in use, the key is for SVC_BASE_URL. `ask` shows a prompt and
    returns the typed key. The returned text says where the key is stored.

    Raises:
        SettingsError: No address is given, and none is in use.
    """
    settings = session.settings
    used = service_address(os.environ) if settings.is_emulated else settings.base_url
    base_url = _address_of_key(address) if address else used
    if base_url is None:
        raise SettingsError(
            "A key is stored with its address, and no address is in use. "
            "Write `%svc login https://HOST/v1`, or set SVC_BASE_URL first."
        )
    key = _ask_for_key(ask or getpass, base_url)
    if isinstance(key, ConfigError):
        raise key
    keyring = remember(key, base_url)
    session.change(session.settings)  # the next request is sent with the new key
    owner = f"The key of {base_url} is kept in"
    after = "" if base_url == used else f" `%svc use {base_url}` sends requests there."
    if keyring is None:
        return f"{owner} this kernel's memory, until the kernel ends.{after}"
    return (
        f"{owner} the keyring {keyring}, for later kernels too; "
        f"`keyring del {KEYRING_NAME} {base_url}` in a terminal removes it.{after}"
    )


def _address_of_key(word: str) -> str:
    """Return the address that a key is for; if the word is a key, it is not shown."""
    refuse_key_form(word, param="line")
    if not has_address_form(word):
        raise ParameterError(
            f"%svc login {word}: give the address that the key is for, such as "
            f"https://HOST/v1. To ask a question, write `%svc ask login {word}`.",
            param="line",
        )
    return address_endpoint(word).base_url or ""


def _ask_for_key(ask: Ask, base_url: str) -> Key | ConfigError:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "error", GetPassWarning
            )  # before the key would be visible
            value = ask(f"API key of {base_url} (is not shown): ")
    except Exception:  # noqa: BLE001 - each front end refuses in its own way
        return ConfigError(
            "A key cannot be typed here, because it would be visible."
            f"{WAYS_WITHOUT_PROMPT}"
        )
    try:
        return Key(value, source="a prompt")
    except MissingKeyError as problem:
        return problem.with_traceback(None)

"""From a refusal, a context and how a model counts are learnt, if it names them."""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import svc_notebook as svc
from svc_notebook.emulator.emulator import Emulator
from svc_notebook.endpoints import facts_of, own_endpoint
from svc_notebook.errors import BadRequestError
from svc_notebook.learnt_from_refusals import learn
from svc_notebook.service.request import Message, build_request
from svc_notebook.session import current
from svc_notebook.tokens import MARGIN_TOKENS, Tokens, estimate_prompt_tokens
from tests.faults.server import RawServer
from tests.magics.conftest import Shell, ipython, shell  # noqa: F401 - fixtures

from .conftest import MODEL, Describe, Start

Refuse = Callable[..., RawServer]


@pytest.fixture
def refuse() -> Iterator[Refuse]:
    """Starts servers that refuse everything with a message."""
    with ExitStack() as stack:

        def start_one(message: str, status: int = 400, **fields: str) -> RawServer:
            error = {"message": message, "type": "invalid_request_error", **fields}
            body = json.dumps({"error": error}).encode()
            head = (
                f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            server = RawServer([[head.encode() + body]])
            stack.callback(server.close)
            return server

        yield start_one


def _learnt(server: RawServer, prompt: str = "Hi", **given: Any) -> int | None:  # noqa: ANN401 - as complete
    svc.use(base_url=server.base_url, key=False, model="m")
    with pytest.raises(svc.SvcError):
        svc.complete(prompt, **given)
    return _context("m")


def _context(model: str) -> int | None:
    return current().info_of(model).context_tokens


@pytest.mark.parametrize(
    ("refusal", "n_tokens"),
    [
        ("This model's maximum context length is 1024 tokens. However, you", 1024),
        ("the request exceeds the available context size (4096 tokens)", 4096),
        ("longer than the maximum model length of 2,048", 2048),
        ("longer than the maximum model length of 2 048.", 2048),
        ("prompt is too long for context window: 2048", 2048),
        (
            "Context length exceeded: you requested 9000 tokens, the maximum is 4096",
            4096,
        ),
        ("a context length of 9000 exceeds the maximum of 4096", 4096),
        ('{"n_ctx": 4096, "n_prompt_tokens": 9000}', 4096),
        ("the context length is 32k", None),
        ("the context length is 4K tokens", None),
        ("the context length is 4.096", None),
        ("the context window 2024-11-22 is over", None),
        ("the context window is 2024-11-22", None),
        ("the context length is 262\u202f144", None),
        ("the context length is 131072", None),  # it would have fitted
        ("the context length is 20", None),
        ("max_tokens must be at most 512", None),
        ("Your context is lovely, 5 stars", None),
    ],
)
def test_refusals_name_a_context(
    describe: Describe, refuse: Refuse, refusal: str, n_tokens: int | None
) -> None:
    """It is learnt only from words that mean a context, and a number that is sure."""
    describe("")

    assert _learnt(refuse(refusal)) == n_tokens


@pytest.mark.slow
def test_large_numbers_are_read_whole(describe: Describe, refuse: Refuse) -> None:
    """Blanks, commas and other groups of digits are one number."""
    for written in ("131072", "131,072", "131 072", "131_072"):
        server = refuse(f"maximum context length is {written} tokens")
        describe(f'[lab]\nbase_url = "{server.base_url}"\nkey = false\n')
        svc.use(endpoint="lab")
        facts_of(server.base_url).contexts["m"] = 200_000

        with pytest.raises(svc.errors.BadRequestError):
            svc.complete("Hi", model="m")

        assert _context("m") == 131072


@pytest.mark.parametrize(
    ("status", "fields"),
    [(422, {}), (400, {"param": "temperature"})],
)
def test_other_refusals_teach_nothing(
    describe: Describe, refuse: Refuse, status: int, fields: dict[str, str]
) -> None:
    """A refusal of another parameter, or with another status, may quote anything."""
    describe("")

    assert _learnt(refuse("the context size is 2000", status, **fields)) is None


def test_the_prompt_teaches_nothing(describe: Describe, refuse: Refuse) -> None:
    """A refusal may quote it."""
    describe("")
    prompt = "Why is it that my context size is 2000?"
    server = refuse(f"temperature is wrong: {prompt}")

    assert _learnt(server, prompt) is None


def test_a_context_is_learnt_from_a_refusal(start: Start, describe: Describe) -> None:
    """The refusal says so, and the next request fits."""
    server = start(contexts={MODEL: 1024})
    describe("")
    svc.use(base_url=server.base_url, key=server.api_key, model=MODEL)

    with pytest.raises(svc.errors.BadRequestError) as caught:
        svc.complete("word " * 2000)
    completion = svc.complete("Hi")

    assert caught.value.remedy == (
        "tide-8b takes 1024 tokens of prompt and reply. This is known now: ask again."
    )
    assert "refused again" not in str(caught.value)
    assert 900 < completion.request.params["max_tokens"] <= 1024 - MARGIN_TOKENS
    with pytest.raises(svc.errors.ParameterError, match="from 1 to 1024, fit"):
        svc.complete("Hi", max_tokens=2000)
    with pytest.raises(svc.errors.OverBudgetError, match="may have 1,024"):
        svc.complete("word " * 2000)


def test_what_the_file_states_wins(describe: Describe, refuse: Refuse) -> None:
    """The refusal says what differs, and nothing changes."""
    server = refuse("maximum context length is 2048 tokens")
    describe(
        f'[lab]\nbase_url = "{server.base_url}"\nkey = false\n'
        "[lab.models.m]\ncontext = 4096\n"
    )
    svc.use(endpoint="lab")

    with pytest.raises(svc.errors.BadRequestError) as caught:
        svc.complete("Hi")

    assert _context("m") == 4096
    assert "your settings say context = 4096" in caught.value.remedy


def test_use_forgets_what_was_learnt(describe: Describe, refuse: Refuse) -> None:
    """A server that was started anew may have another context."""
    describe("")
    server = refuse("maximum context length is 2048 tokens")
    before = _learnt(server)

    svc.use(base_url=server.base_url, key=False)

    assert (before, _context("m")) == (2048, None)


@pytest.mark.slow
def test_what_was_learnt_is_among_the_models(
    start: Start,
    describe: Describe,
    shell: Shell,  # noqa: F811 - the fixture
) -> None:
    """Also where the server has no list of them."""
    server = start(contexts={MODEL: 1024})
    describe("")
    svc.use(base_url=server.base_url, key=server.api_key, model=MODEL)
    with pytest.raises(svc.errors.BadRequestError):
        svc.complete("word " * 2000)

    frame: Any = shell.run("%svc models").value

    assert frame["context_tokens"].to_dict() == {MODEL: 1024}


def _lines(n_lines: int) -> str:
    """Write lines whose size is uncertain: tokenizers differ on Thai."""
    return "\n".join(
        f"{n}. แขกบอกว่า the pool was closed and nobody told us about it, room {n}"
        for n in range(n_lines)
    )


@pytest.mark.parametrize("n_lines", [250, 300, 330])
def test_a_conversation_leaves_out_more_where_the_model_counts_more(
    describe: Describe, emulator: Emulator, n_lines: int
) -> None:
    """A message is answered although the estimate was too low; the next fit at once."""
    describe("")
    conversation = svc.conversation("lines")
    for _ in range(10):
        conversation.ask(_lines(20))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # turns are left out
        conversation.ask(_lines(n_lines))
        n_asked = len(emulator.requests)
        conversation.ask(_lines(n_lines) + "!")

    assert len(emulator.requests) == n_asked + 1
    assert conversation.turns[-1].version.text


def test_a_first_message_of_a_conversation_is_fitted(
    describe: Describe, emulator: Emulator
) -> None:
    """It is asked again with the room that is left; without any, the error says so."""
    describe("")
    svc.conversation("short").ask(_lines(350))
    asked = [request.json["max_tokens"] for request in emulator.requests]
    with pytest.raises(svc.errors.BadRequestError, match="Shorten the prompt"):
        svc.conversation("none").ask(_lines(385))

    assert asked[0] == 512
    assert 256 <= asked[1] < 512
    assert len(emulator.requests) == 3


@pytest.mark.parametrize("n_lines", [350, 370])
def test_a_prompt_of_a_known_size_is_fitted(describe: Describe, n_lines: int) -> None:
    """The refusal says so; asked again, the reply gets what the prompt leaves."""
    describe("")

    with pytest.raises(svc.errors.BadRequestError) as caught:
        svc.complete(_lines(n_lines))
    left = re.search(r"prompt takes (\d+) tokens", str(caught.value))
    assert left is not None
    completion = svc.complete(_lines(n_lines))

    assert "This is known now: ask again." in caught.value.remedy
    assert completion.request.max_tokens == 8192 - int(left[1]) - MARGIN_TOKENS


def test_a_prompt_that_leaves_no_reply_is_to_be_shortened(describe: Describe) -> None:
    """Asking again would not help."""
    describe("")

    with pytest.raises(svc.errors.BadRequestError) as caught:
        svc.complete(_lines(390))

    assert caught.value.remedy == (
        "Shorten the prompt, or split it over several requests."
    )


@pytest.mark.parametrize(
    ("refusal", "n_tokens"),
    [
        ("The prompt takes 900 tokens, 'max_tokens' asks for 400; at most 1024.", 900),
        ("You requested 1300 tokens, 900 in the messages, 400 in the completion", 900),
        (
            "max_tokens is too large: 400, with 900 input tokens (400 > 1,024 - 900)",
            900,
        ),
        ("900 tokens are too many, and so are 910", None),
        ("The prompt is too long", None),
        ("You asked for 90000 tokens", None),
        ("It takes 0.900 s", None),
    ],
)
def test_refusals_name_the_tokens_of_a_prompt(
    describe: Describe, refuse: Refuse, refusal: str, n_tokens: int | None
) -> None:
    """They are learnt if only one number can be meant."""
    server = refuse(refusal)
    describe(
        f'[lab]\nbase_url = "{server.base_url}"\nkey = false\n'
        "[lab.models.m]\ncontext = 1024\n"
    )
    svc.use(endpoint="lab", model="m")
    prompt = "แขกบอกว่า pool " * 80

    with pytest.raises(svc.errors.BadRequestError):
        svc.complete(prompt, max_tokens=400)

    message = Message(role="user", content=prompt)
    info = current().info_of("m")
    assert (info.prompt_excess is None) is (n_tokens is None)
    if n_tokens is not None:
        assert estimate_prompt_tokens([message], info=info).best == n_tokens


_WORDS = [
    "context length",
    "maximum",
    "is",
    "of",
    "(",
    ":",
    "max",
    "9000",
    "k",
    "1,024",
]
MESSAGES = st.text() | st.lists(st.sampled_from(_WORDS) | st.text(max_size=3)).map(
    " ".join
)


@pytest.mark.slow
@given(MESSAGES, st.integers(0, 200_000), st.sampled_from([None, "max_tokens", "seed"]))
@example("context length is " + "9" * 5000, 9000, None)
def test_any_refusal_is_read_without_an_error(
    message: str, asked_tokens: int, param: str | None
) -> None:
    """What is learnt is in the message, and could be the reason of the refusal."""
    endpoint = own_endpoint("http://learnt.invalid/v1")
    facts_of("http://learnt.invalid/v1").contexts.clear()
    error = BadRequestError(message, status=400, param=param)
    request = build_request("Hi", model="m", params={"max_tokens": 1})

    said = learn(endpoint, error, request=request, prompt=Tokens(float(asked_tokens)))
    found = facts_of("http://learnt.invalid/v1").contexts.get("m")

    assert bool(said) is (found is not None)
    if found is not None:
        assert 256 <= found <= asked_tokens
        assert str(found) in re.sub(r"[,_ ]", "", message)

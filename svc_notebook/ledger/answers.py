"""A file of answers: what a notebook needs to run without key and network.

What it is not: a ledger. It holds requests and their good answers, and nothing of
who asked: no session, conversation, template columns or `user`. Rules: a request
has one answer for each repetition; one that is not in the file is an error that
names it and the nearest that is; a file is written whole or not at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from svc_notebook.errors import AskError, SettingsError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import CompletionBody
from svc_notebook.service.params import PARAMS
from svc_notebook.service.request import CompletionRequest

from .row import mended
from .store import Ledger

_FLOATS = frozenset(param.name for param in PARAMS if param.kind == "float")
_UNHEARD = frozenset({"user"})  # doc: Request body; for monitoring, not for the reply


def find_answer(
    ledger: Ledger,
    request: CompletionRequest,
    *,
    endpoint: str,
    origin: Origin,
) -> Exchange | None:
    """Return the newest recorded exchange that answers a request; None if none does.

    The first call on a ledger reads all of it once; the ledger remembers.

    Args:
        ledger: Where to look, all sessions included.
        request: What would be asked.
        endpoint: The base address that would be asked.
        origin: Who asks; of its fields the repetition matters.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    found = ledger.asked(
        request_hash(request),
        endpoint=endpoint,
        hash_of=lambda exchange: request_hash(exchange.request),
    )
    return next((each for each in found if same_repeat(each.origin, origin)), None)


def same_repeat(one: Origin, other: Origin) -> bool:
    """Say whether two askers mean the same repetition; none given is the first."""
    return (one.repeat or 0) == (other.repeat or 0)


def request_hash(request: CompletionRequest) -> str:
    """Return the hash of all that affects the reply: 32 hexadecimal digits.

    It depends neither on the order of parameters or of names in a tool, nor on
    whether a number was written 0 or 0.0, nor on `user`.
    """
    whole = {
        "model": request.model,
        "messages": request.messages,
        "params": {
            name: _plain(name, value)
            for name, value in request.params.items()
            if name not in _UNHEARD
        },
        "tools": request.tools,
        "extra": request.extra,
    }
    text = msgspec.json.encode(whole, order="sorted", enc_hook=str)
    return blake2b(text, digest_size=16).hexdigest()


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 - any parameter
    """Return a value as the service would take it, however it was written."""
    if name in _FLOATS:
        return float(value)
    return [value] if name == "stop" and isinstance(value, str) else value


_SHOWN_CHARS = 60
_COMPARED_CHARS = 2000  # comparing is quadratic
_COMPARED = 200


def nearest(
    request: CompletionRequest, others: Sequence[CompletionRequest]
) -> CompletionRequest | None:
    """Return the request most like another; None if there are none to choose from."""
    # the cheap likeness first, since the dear one is for a few hundred only
    ranked = sorted(others, key=lambda other: -_shared(request, other))[:_COMPARED]
    return max(ranked, key=lambda other: _likeness(request, other), default=None)


def describe(request: CompletionRequest) -> str:
    """Return a request in a line: model, prompt, parameters."""
    fields = {"model": request.model, "prompt": request.prompt, **request.params}
    return ", ".join(f"{name}={_short(value)}" for name, value in fields.items())


def difference(one: CompletionRequest, other: CompletionRequest) -> str:
    """Say in what two requests differ, the first's value first; empty if in nothing."""
    mine, theirs = _fields(one), _fields(other)
    names = [*mine, *(name for name in theirs if name not in mine)]
    return ", ".join(
        f"{name} ({_shown(mine, name)} there, {_shown(theirs, name)} here)"
        for name in names
        if mine.get(name) != theirs.get(name)
    )


def _fields(request: CompletionRequest) -> dict[str, Any]:
    before = [message for message in request.messages if message.role != "system"]
    return {
        "model": request.model,
        "prompt": request.prompt,
        "system": request.system,
        "messages": len(before),
        **{k: v for k, v in sorted(request.params.items()) if k != "user"},
        "tools": len(request.tools),
        **request.extra,
    }


def _shared(one: CompletionRequest, other: CompletionRequest) -> int:
    mine, theirs = _fields(one), _fields(other)
    return sum(theirs.get(name) == value for name, value in mine.items())


def _likeness(one: CompletionRequest, other: CompletionRequest) -> float:
    mine, theirs = one.prompt[:_COMPARED_CHARS], other.prompt[:_COMPARED_CHARS]
    return SequenceMatcher(None, mine, theirs).ratio() * 10 + _shared(one, other)


def _shown(fields: dict[str, Any], name: str) -> str:
    return _short(fields[name]) if fields.get(name) is not None else "none"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 3] + "..."


FORMAT = 1
Key = tuple[str, int]


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    svc_answers: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file: a request and the answer it got.

    Attributes:
        request_hash: Of the request; see `reuse`.
        repeat: Which repetition, from 0.
        endpoint, is_emulated: Who answered.
        answered_at: When it was asked (aware, UTC).
        request, body: As recorded.
        est_prompt_tokens, est_completion_tokens: As recorded.
    """

    request_hash: str
    repeat: int = 0
    endpoint: str
    is_emulated: bool = False
    answered_at: datetime
    request: CompletionRequest
    body: CompletionBody
    est_prompt_tokens: int = 0
    est_completion_tokens: int = 0


def export_answers(path: str | Path, exchanges: Iterable[Exchange]) -> int:
    """Write the answers of exchanges into a file, and return how many.

    Of several answers to one request the last is written.

    Args:
        path: The file; replaced if there is one.
        exchanges: Oldest first, such as `ledger.read()`; only good ones are written.

    Raises:
        ParameterError: The file cannot be written.
        LedgerError: The exchanges cannot be read.
    """
    found: dict[Key, Answer] = {}
    for exchange in exchanges:
        if exchange.status == "ok" and exchange.body is not None:
            answer = _to_answer(exchange, exchange.body)
            found[answer.request_hash, answer.repeat] = answer
    lines = [_line(_Head(svc_answers=FORMAT)), *map(_line, found.values())]
    from .exports import write_whole  # noqa: PLC0415 - loads pandas

    write_whole(path, lambda file: file.write_bytes(b"".join(lines)))
    return len(found)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a file.

    Attributes:
        name: Of the file, for messages.
        by_key: By the request's hash and the repetition.
    """

    name: str
    by_key: dict[Key, Answer]

    @classmethod
    def from_file(cls, path: str | Path) -> "Answers":
        """Read a file that `export_answers` wrote.

        Raises:
            SettingsError: It cannot be read, or is no file of answers.
        """
        try:
            file = Path(path).expanduser()
            head, *lines = file.read_bytes().splitlines()
            _check_format(msgspec.json.decode(head, type=_Head), str(path))
            answers = [_DECODER.decode(line) for line in lines if line.strip()]
        except OSError as problem:
            reason = f"cannot be read ({problem.strerror})"
        except RuntimeError:  # of a home that nobody knows
            reason = "cannot be read (there is no such home)"
        except ValueError as problem:  # msgspec's, or no line at all
            reason = f"is not a file of answers ({problem})"
        else:
            return cls(file.name, {(a.request_hash, a.repeat): a for a in answers})
        raise SettingsError(
            f"The file of answers {str(path)!r} {reason}. svc.export_answers(...) "
            "writes one; unset SVC_ANSWERS to ask the service."
        )

    def find(self, request: CompletionRequest, origin: Origin) -> Exchange:
        """Return the recorded exchange that answers a request.

        Args:
            request: What is asked.
            origin: Who asks; of its fields the repetition matters.

        Raises:
            AskError: It was not recorded.
        """
        repeat = origin.repeat or 0
        answer = self.by_key.get((request_hash(request), repeat))
        if answer is None:
            raise self._missing(request, repeat)
        return Exchange(
            exchange_id=f"{answer.request_hash}-{answer.repeat}",
            origin=Origin(repeat=answer.repeat),
            endpoint=answer.endpoint,
            is_emulated=answer.is_emulated,
            request=request,
            body=answer.body,
            started_at=answer.answered_at,
            ended_at=answer.answered_at,
            est_prompt_tokens=answer.est_prompt_tokens,
            est_completion_tokens=answer.est_completion_tokens,
        )

    def __len__(self) -> int:
        return len(self.by_key)

    def _missing(self, request: CompletionRequest, repeat: int) -> AskError:
        found = nearest(request, [each.request for each in self.by_key.values()])
        near = "It holds no answer at all"
        if found is not None:
            near = (
                f"The nearest recorded one is {describe(found)}; it differs in "
                f"{difference(found, request) or f'repetition {repeat}'}"
            )
        return AskError(
            f"This request is not among the recorded answers of {self.name!r}: "
            f"{describe(request)}. {near}. To record it, run the notebook with a key "
            "and without SVC_ANSWERS, and export the answers again."
        )


_DECODER = msgspec.json.Decoder(Answer)


def _to_answer(exchange: Exchange, body: CompletionBody) -> Answer:
    request = exchange.request
    params = {name: each for name, each in request.params.items() if name != "user"}
    return Answer(
        request_hash=request_hash(request),
        repeat=exchange.origin.repeat or 0,
        endpoint=exchange.endpoint,
        is_emulated=exchange.is_emulated,
        answered_at=exchange.started_at,
        request=msgspec.structs.replace(request, params=params),
        body=body,
        est_prompt_tokens=exchange.est_prompt_tokens,
        est_completion_tokens=exchange.est_completion_tokens,
    )


def _line(value: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str) + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, that a model wrote
        plain = msgspec.to_builtins(value, enc_hook=str)
        return msgspec.json.encode(mended(plain)) + b"\n"


def _check_format(head: _Head, path: str) -> None:
    if head.svc_answers > FORMAT:
        raise SettingsError(
            f"The file of answers {path!r} was written by a newer version of "
            "svc_notebook. Upgrade svc_notebook, or have it exported again."
        )

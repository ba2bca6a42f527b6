"""Recorded answers, found in the ledger or in a file; a notebook runs without a key.

A file holds requests and their good answers, one for each repetition, but nothing
about who asked: no session, conversation, template columns or `user`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from svc_notebook.errors import AskError, SettingsError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.checks import shorten
from svc_notebook.service.chunk import CompletionBody
from svc_notebook.service.params import PARAMS
from svc_notebook.service.request import CompletionRequest

from .row import mended
from .store import Ledger

_FLOATS = frozenset(param.name for param in PARAMS if param.kind == "float")
_WITHOUT_EFFECT = "user"  # doc: Request body; for monitoring, not for the reply


def find_answer(
    ledger: Ledger,
    request: CompletionRequest,
    *,
    endpoint: str,
    origin: Origin,
) -> Exchange | None:
    """Return the newest exchange of any session that answers a request, if any.

    The first call on a ledger reads all of it, and keeps the hashes of requests there.

    Args:
        ledger: Where to look.
        request: The request.
        endpoint: The base address.
        origin: Only its repetition matters.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    repeat = origin.repeat or 0
    for wanted in _hashes(request):
        found = ledger.asked(
            wanted,
            endpoint=endpoint,
            hash_of=lambda exchange: request_hash(exchange.request),
        )
        for each in found:
            if (each.origin.repeat or 0) == repeat:
                return each
    return None


def request_hash(request: CompletionRequest) -> str:
    """Return the hash of everything that affects the reply: 32 hexadecimal digits.

    The order of names, 0 or 0.0, `user`, and what was computed for `fit` make no
    difference.
    """
    whole = {
        "model": request.model,
        "messages": request.messages,
        "params": {
            name: _plain(name, value)
            for name, value in request.asked_params.items()
            if name != _WITHOUT_EFFECT
        },
        "tools": request.tools,
        "extra": request.extra,
    }
    text = msgspec.json.encode(whole, order="sorted", enc_hook=str)
    return blake2b(text, digest_size=16).hexdigest()


def _hashes(request: CompletionRequest) -> Iterator[str]:
    """Return the hashes of requests whose answers serve this one, the best first."""
    yield request_hash(request)
    if request.is_fitted:  # recorded where no max_tokens was asked for
        params = {k: v for k, v in request.params.items() if k != "max_tokens"}
        plain = msgspec.structs.replace(request, params=params, is_fitted=False)
        yield request_hash(plain)


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401 - any parameter
    """Return the one form of a value that can be written in several ways."""
    if name in _FLOATS:
        return float(value)
    return [value] if name == "stop" and isinstance(value, str) else value


FORMAT = 1


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    svc_answers: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file: a request and its answer; `repeat` counts from 0."""

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
    """Write the last good answer to each request: see `svc.export_answers`."""
    from .exports import write_whole  # noqa: PLC0415 - loads pandas

    found = {}
    for exchange in exchanges:
        if exchange.status == "ok" and exchange.body is not None:
            answer = _to_answer(exchange, exchange.body)
            found[answer.request_hash, answer.repeat] = answer
    lines = [_line(_Head(svc_answers=FORMAT)), *map(_line, found.values())]
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
    by_key: dict[tuple[str, int], Answer]

    @classmethod
    def from_file(cls, path: str | Path) -> "Answers":
        """Read a file that `export_answers` wrote.

        Raises:
            SettingsError: It cannot be read, or is not a file of answers.
        """
        try:
            file = Path(path).expanduser()
            head, *lines = file.read_bytes().splitlines()
            _check_format(msgspec.json.decode(head, type=_Head), str(path))
            answers = [_DECODER.decode(line) for line in lines if line.strip()]
        except OSError as problem:
            reason = f"cannot be read ({problem.strerror})"
        except RuntimeError:  # of an unknown home
            reason = "cannot be read (unknown home folder)"
        except ValueError as problem:  # of msgspec, or no line at all
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
            request: The request.
            origin: Only its repetition matters.

        Raises:
            AskError: It was not recorded.
        """
        repeat = origin.repeat or 0
        found = (self.by_key.get((each, repeat)) for each in _hashes(request))
        answer = next(filter(None, found), None)
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
        near = "The file is empty"
        if self.by_key:
            found = _nearest(request, [each.request for each in self.by_key.values()])
            difference = _difference(found, request) or f"repetition {repeat}"
            near = (
                f"The nearest recorded request is {_in_words(found)}; it differs in "
                f"{difference}"
            )
        return AskError(
            f"{self.name!r} has no recorded answer to this request: "
            f"{_in_words(request)}. {near}. To record it, run the notebook with a key "
            "and without SVC_ANSWERS, and export the answers again."
        )


_DECODER = msgspec.json.Decoder(Answer)


def _to_answer(exchange: Exchange, body: CompletionBody) -> Answer:
    request, params = exchange.request, dict(exchange.request.params)
    params.pop(_WITHOUT_EFFECT, None)
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
    except UnicodeEncodeError:  # half a surrogate pair, from a model
        plain = msgspec.to_builtins(value, enc_hook=str)
        return msgspec.json.encode(mended(plain)) + b"\n"


def _check_format(head: _Head, path: str) -> None:
    if head.svc_answers > FORMAT:
        raise SettingsError(
            f"The file of answers {path!r} was written by a newer version of "
            "svc_notebook. Upgrade svc_notebook, or export the answers again."
        )


_SHOWN_CHARS = 60
_COMPARED_CHARS = 2000  # comparing is quadratic
_COMPARED = 200


def _nearest(
    request: CompletionRequest, others: list[CompletionRequest]
) -> CompletionRequest:
    """Return the request that is most like another."""
    mine = _fields(request)

    def n_shared(other: CompletionRequest) -> int:
        theirs = _fields(other)
        return sum(theirs.get(name) == value for name, value in mine.items())

    def likeness(other: CompletionRequest) -> float:
        prompts = request.prompt[:_COMPARED_CHARS], other.prompt[:_COMPARED_CHARS]
        return SequenceMatcher(None, *prompts).ratio() * 10 + n_shared(other)

    # comparing texts is slow, so only a few hundred are compared
    return max(sorted(others, key=n_shared, reverse=True)[:_COMPARED], key=likeness)


def _fields(request: CompletionRequest) -> dict[str, Any]:
    before = [message for message in request.messages if message.role != "system"]
    params = sorted(request.asked_params.items())
    return {
        "model": request.model,
        "prompt": request.prompt,
        "system": request.system,
        "messages": len(before),
        **{name: value for name, value in params if name != _WITHOUT_EFFECT},
        "tools": len(request.tools),
        **request.extra,
    }


def _in_words(request: CompletionRequest) -> str:
    fields = {"model": request.model, "prompt": request.prompt, **request.asked_params}
    return ", ".join(f"{name}={_short(value)}" for name, value in fields.items())


def _difference(recorded: CompletionRequest, asked: CompletionRequest) -> str:
    """Return in words how the compared fields differ; empty if they do not."""
    there, here = _fields(recorded), _fields(asked)
    return ", ".join(
        f"{name} ({_short(there.get(name))} recorded, {_short(here.get(name))} asked)"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    )


def _short(value: object) -> str:
    return shorten("none" if value is None else repr(value), _SHOWN_CHARS)

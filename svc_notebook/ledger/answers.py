"""A file of answers: what a notebook needs to run without key and network.

What it is not: a ledger. It holds requests and their good answers, and nothing of
who asked: no session, conversation, template columns or `user`. Rules: a request
has one answer for each repetition; one that is not in the file is an error that
names it and the nearest that is; a file is written whole or not at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from svc_notebook.errors import AskError, SettingsError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.completion import CompletionBody
from svc_notebook.service.request import CompletionRequest

from .nearest import describe, difference, nearest
from .record import mended
from .reuse import request_hash
from .writing import write_whole

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

"""Recordings: a file of requests with their answers, to run a notebook without a key.

The file has all good answers in order, but nothing about who asked: no session,
conversation, template columns or `user`. The trials of a run are identified by their
keys, because they are sent in any order.
"""

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from itertools import chain
from operator import itemgetter
from os.path import commonprefix
from pathlib import Path
from threading import Lock
from typing import Any, Self

import msgspec

from svc_notebook.errors import AskError, ParameterError, SettingsError
from svc_notebook.exchange import Exchange, Origin
from svc_notebook.service.chunk import CompletionBody
from svc_notebook.service.params import shorten
from svc_notebook.service.request import CompletionRequest, Message, build_request

from .cache import Serves, canonical_request, find_recorded, hash_request
from .exchange_rows import replace_surrogates

FORMAT = 1
_CONFLICT_MARKS = (b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>")


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    svc_answers: int


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file: a request and its answer; `repeat` counts from 0.

    The request is in its canonical form, so a max_tokens that was computed is "fit".
    """

    repeat: int = 0
    # of a trial of a run: equal rows have different keys
    request_key: str | None = None
    endpoint: str
    is_emulated: bool = False
    emulator_note: str | None = None
    answered_at: datetime
    request: CompletionRequest
    body: CompletionBody
    est_prompt_tokens: int = 0
    est_completion_tokens: int = 0
    est_low_tokens: int | None = None
    est_high_tokens: int | None = None

    @classmethod
    def of(cls, exchange: Exchange, body: CompletionBody) -> "Recording":
        """Return the recording of an exchange that has this body."""
        return cls(
            repeat=exchange.origin.repeat or 0,
            request_key=exchange.origin.request_key,
            endpoint=exchange.endpoint,
            is_emulated=exchange.is_emulated,
            emulator_note=exchange.emulator_note,
            answered_at=exchange.started_at,
            request=canonical_request(exchange.request),
            body=body,
            est_prompt_tokens=exchange.est_prompt_tokens,
            est_completion_tokens=exchange.est_completion_tokens,
            est_low_tokens=exchange.est_low_tokens,
            est_high_tokens=exchange.est_high_tokens,
        )

    @property
    def key(self) -> tuple[str, int]:
        """The request's hash and the repetition."""
        return hash_request(self.request), self.repeat

    def exchange(self) -> Exchange:
        """Return the exchange that it records."""
        request_hash, repeat = self.key
        return Exchange(
            exchange_id=f"{request_hash}-{repeat}",
            origin=Origin(repeat=repeat),
            endpoint=self.endpoint,
            is_emulated=self.is_emulated,
            emulator_note=self.emulator_note,
            request=self.request,
            body=self.body,
            started_at=self.answered_at,
            ended_at=self.answered_at,
            est_prompt_tokens=self.est_prompt_tokens,
            est_completion_tokens=self.est_completion_tokens,
            est_low_tokens=self.est_low_tokens,
            est_high_tokens=self.est_high_tokens,
        )


class Written(int):
    """The number of answers that were written; its repr also names the file."""

    def __new__(cls, n_answers: int, path: str | Path) -> Self:
        """Make the number, and keep the path of the file."""
        written = super().__new__(cls, n_answers)
        written.path = str(path)
        return written

    path: str

    def __repr__(self) -> str:
        """Return a sentence, for the output of a cell."""
        noun = "answer" if self == 1 else "answers"
        return (
            f"{int(self)} {noun} written to {self.path!r}. With SVC_ANSWERS set to it, "
            "the notebook needs neither key nor network."
        )

    __str__ = int.__repr__


def export_answers(
    path: str | Path, exchanges: Iterable[Exchange], *, in_use: str | None = None
) -> Written:
    """Write the good answers, in order: see `svc.export_answers`.

    Equal requests of a run are written in the order of its rows, not of sending.

    Args:
        path: The file to write.
        exchanges: The exchanges whose answers are written.
        in_use: The file that answers now. Replacing it is refused if answers would be
            lost.
    """
    from .frame_export import write_whole  # noqa: PLC0415 - loads pandas

    starts: dict[str, int] = {}  # the number of the first exchange of each run
    numbered: list[tuple[int, int, Recording]] = []
    for number, exchange in enumerate(exchanges):
        if exchange.status == "ok" and exchange.body is not None:
            run, key = exchange.origin.run, exchange.origin.request_key
            start = starts.setdefault(run, number) if run else number
            recording = Recording.of(exchange, exchange.body)
            numbered.append((start, _n_before(key), recording))
    recordings = [recording for *_, recording in sorted(numbered, key=itemgetter(0, 1))]
    if in_use is not None and _is_same_file(path, in_use):
        _refuse_loss(path, recordings)
    lines = [_encode_line(_Head(svc_answers=FORMAT)), *map(_encode_line, recordings)]
    write_whole(path, lambda file: file.write_bytes(b"".join(lines)))
    return Written(len(recordings), path)


def _n_before(request_key: str | None) -> int:
    """Return how many earlier rows of a run ask the same: 1 if a key ends in "-2"."""
    number = (request_key or "").partition("-")[2]
    return int(number) - 1 if number.isdecimal() else 0


def _is_same_file(path: str | Path, other: str) -> bool:
    try:
        return Path(path).samefile(Path(other).expanduser())
    except (OSError, ValueError, RuntimeError):  # one of the files does not exist
        return False


def _refuse_loss(path: str | Path, recordings: list[Recording]) -> None:
    """Refuse to replace the file in use if some of its answers would be lost.

    Raises:
        ParameterError: Answers would be lost.
        SettingsError: The file cannot be read.
    """
    recorded = Counter(map(_identity, RecordingFile.from_file(path)))
    n_lost = (recorded - Counter(map(_identity, recordings))).total()
    if n_lost:
        raise ParameterError(
            f"{str(path)!r} is the file in SVC_ANSWERS, and {n_lost:,} of its "
            f"{recorded.total():,} answers would be lost; nothing was written. Write "
            "to another file, or unset SVC_ANSWERS, run the notebook with a key and "
            "export again.",
            param="path",
        )


def _identity(recording: Recording) -> tuple[str, int, bytes]:
    return (*recording.key, _encode_line(recording.body))


class RecordingFile:
    """The answers in a file, which is read again when it changes.

    A request that is sent again gets its answers in the order of the file, and after
    the last answer the first one again. A trial of a run gets the answers of the same
    trial.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._by_key: dict[tuple[str, int], list[Recording]] = {}
        self._n_returned: Counter[tuple[str, int, str | None]] = Counter()
        self._stamp: tuple[int, ...] | None = None
        self._lock = Lock()  # the trials of a sweep are sent on several threads

    @classmethod
    def from_file(cls, path: str | Path) -> "RecordingFile":
        """Read a file that `export_answers` wrote."""
        file = cls(path)
        file.refresh()
        return file

    def refresh(self) -> None:
        """Read the file if it has changed."""
        with self._lock:
            try:
                file = Path(self.path).expanduser()
                stat = file.stat()
                stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
                if stamp == self._stamp:
                    return
                content = file.read_bytes()
            except (OSError, RuntimeError) as problem:
                reason = getattr(problem, "strerror", "unknown home folder")
                raise self._unusable(f"cannot be read ({reason})") from None
            by_key: dict[tuple[str, int], list[Recording]] = {}
            for recording in self._decode(content):
                by_key.setdefault(recording.key, []).append(recording)
            self._by_key, self._stamp = by_key, stamp
            self._n_returned.clear()

    def __iter__(self) -> Iterator[Recording]:
        return chain.from_iterable(self._by_key.values())

    def find(self, request: CompletionRequest, origin: Origin) -> Exchange:
        """Return the recorded exchange that answers a request, or refuse the request.

        Of `origin`, only the `repeat` and the key of the trial matter.
        """
        self.refresh()
        exchange = find_recorded(self, request, origin)
        if exchange is None:
            raise self._no_answer(canonical_request(request), origin.repeat or 0)
        return msgspec.structs.replace(exchange, request=request)

    def recorded(
        self, request_hash: str, origin: Origin, serves: Serves
    ) -> Exchange | None:
        """Return the next exchange for the `repeat` of `origin`; None without one."""
        key = request_hash, origin.repeat or 0
        with self._lock:
            of_key = self._by_key.get(key, ())
            recordings = [
                recording for recording in of_key if serves(recording.exchange())
            ]
            if not recordings:
                return None
            recording = self._next(key, recordings, origin.request_key)
        return recording.exchange()

    def _next(
        self,
        key: tuple[str, int],
        recordings: Sequence[Recording],
        request_key: str | None,
    ) -> Recording:
        """Return the next answer for a trial, or for a request outside of a run."""
        of_trial = [
            recording
            for recording in recordings
            if recording.request_key == request_key
        ]
        n_before = self._n_returned[*key, request_key]
        self._n_returned[*key, request_key] += 1
        if of_trial:
            return of_trial[n_before % len(of_trial)]
        # equal rows of a run get the answers one after the other
        return recordings[(n_before + _n_before(request_key)) % len(recordings)]

    def _decode(self, content: bytes) -> Iterator[Recording]:
        lines = content.removeprefix(BOM_UTF8).splitlines()
        if not any(line.strip() for line in lines):
            raise self._unusable("is empty")
        for number, line in enumerate(lines, start=1):
            what = "the first line of a file of answers" if number == 1 else "an answer"
            try:
                if number == 1:
                    self._check_format(msgspec.json.decode(line, type=_Head))
                elif line.strip():
                    yield _check_recording(_DECODER.decode(line))
                continue
            except (msgspec.ValidationError, ParameterError) as problem:
                reason = f"is not {what} ({problem})"
            except ValueError:
                reason = "is not JSON"
                if line.startswith(_CONFLICT_MARKS):
                    reason = "is a conflict mark of git; keep one side, without marks"
            raise self._unusable(f"cannot be used: line {number} {reason}")

    def _check_format(self, head: _Head) -> None:
        if head.svc_answers != FORMAT:
            raise SettingsError(
                f"The file of answers {self.path!r} has format {head.svc_answers}, but "
                f"this version of svc_notebook reads format {FORMAT}. Upgrade "
                "svc_notebook, or export the answers again."
            )

    def _unusable(self, reason: str) -> SettingsError:
        return SettingsError(
            f"The file of answers {self.path!r} {reason}. svc.export_answers(...) "
            "writes one; unset SVC_ANSWERS to ask the service."
        )

    def _no_answer(self, request: CompletionRequest, repeat: int) -> AskError:
        near = "The file has no answers"
        if self._by_key:
            nearest = _nearest(
                request, [recordings[0].request for recordings in self._by_key.values()]
            )
            differences = ", ".join(_differences(nearest, request))
            near = (
                f"The nearest recorded request is {_describe(nearest)}; it differs in "
                f"{differences or f'repetition {repeat}'}"
            )
        return AskError(
            f"{Path(self.path).name!r} has no recorded answer to this request: "
            f"{_describe(request)}. {near}. To record it, run the notebook with a key "
            "and without SVC_ANSWERS, and export the answers again."
        )


_DECODER = msgspec.json.Decoder(Recording)


def _check_recording(recording: Recording) -> Recording:
    """Refuse a recording that cannot be one, because the file was edited."""
    if not recording.body.choices:
        raise ParameterError("its body has no choices")
    request = canonical_request(recording.request)
    # "fit" stands for the number that was computed, and is not a value of the parameter
    params = {name: value for name, value in request.params.items() if value != "fit"}
    build_request(
        request.messages,
        model=request.model,
        params={**params, "extra": request.extra},
    )
    return msgspec.structs.replace(recording, request=request)


def _encode_line(value: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str) + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, from a model
        plain = msgspec.to_builtins(value, enc_hook=str)
        return msgspec.json.encode(replace_surrogates(plain)) + b"\n"


_SHOWN_CHARS = 60
_COMPARED_CHARS = 2000  # of a prompt: comparing takes quadratic time
_COMPARED = 200  # requests whose prompts are compared, because that is slow
_BEFORE_CHARS = 20  # shown before the place where two messages differ


def _nearest(
    request: CompletionRequest, others: list[CompletionRequest]
) -> CompletionRequest:
    """Return the one of several requests that is most like a request."""
    mine = _fields(request)

    def n_different(other: CompletionRequest) -> int:
        theirs = _fields(other)
        return sum(theirs.get(name) != mine.get(name) for name in {**mine, **theirs})

    def likeness(other: CompletionRequest) -> float:
        prompts = request.prompt[:_COMPARED_CHARS], other.prompt[:_COMPARED_CHARS]
        return SequenceMatcher(None, *prompts).ratio() * 10 - n_different(other)

    return max(sorted(others, key=n_different)[:_COMPARED], key=likeness)


def _fields(request: CompletionRequest) -> dict[str, Any]:
    return {
        "model": request.model,
        **dict(sorted(request.params.items())),
        **request.extra,
        **{
            f"the definition of the tool {_tool_name(tool)}": tool
            for tool in request.tools
        },
        **{
            f"message {n}": message
            for n, message in enumerate(request.messages, start=1)
        },
    }


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool.get("function", {}).get("name"))


def _describe(request: CompletionRequest) -> str:
    fields = {"model": request.model, "prompt": request.prompt, **request.params}
    return ", ".join(f"{name}={_short(value)}" for name, value in fields.items())


def _differences(
    recorded: CompletionRequest, asked: CompletionRequest
) -> Iterator[str]:
    """Say how two requests differ; of messages, only the first one that differs."""
    there, here = _fields(recorded), _fields(asked)
    for name in {**there, **here}:
        was, now = there.get(name), here.get(name)
        if was == now or isinstance(was or now, Message):
            continue
        if isinstance(was or now, dict) and name not in asked.extra:
            side = "recorded" if was else "asked"
            yield name if was and now else f"{name} (only {side})"
        else:
            yield f"{name} ({_short(was)} recorded, {_short(now)} asked)"
    sizes = len(recorded.messages), len(asked.messages)
    if sizes[0] != sizes[1]:
        yield f"the number of messages ({sizes[0]} recorded, {sizes[1]} asked)"
    pairs = zip(recorded.messages, asked.messages, strict=False)
    for number, (message, other) in enumerate(pairs, start=1):
        if message != other:
            yield f"message {number} of {sizes[1]}{_message_difference(message, other)}"
            return


def _message_difference(recorded: Message, asked: Message) -> str:
    """Say how two messages differ; the texts begin shortly before the difference."""
    was, now = recorded.content or "", asked.content or ""
    if recorded.role != asked.role:
        return (
            f" ({recorded.role}: {_short(was)} recorded, {asked.role}: {_short(now)} "
            "asked)"
        )
    if was == now:  # the tool calls differ, or an id
        was, now = (
            msgspec.json.encode(message).decode() for message in (recorded, asked)
        )
    shared = commonprefix([was, now])  # noqa: RUF071 - of texts, not of paths
    start = len(shared) - _BEFORE_CHARS
    if start > _BEFORE_CHARS:
        was, now = f"...{was[start:]}", f"...{now[start:]}"
    return f", {asked.role} ({_short(was)} recorded, {_short(now)} asked)"


def _short(value: object) -> str:
    return shorten("none" if value is None else repr(value), _SHOWN_CHARS)

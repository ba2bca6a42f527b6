"""Read logs of inspect-ai as a frame of replies: one row for each sample and epoch.

If the package `inspect_ai` is installed, its own reader is used, which knows all its
formats. Otherwise the file is read here: JSON, or a zip archive with a JSON file for
each sample.
"""

import json
import math
import re
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import pandas as pd
from pandas.api.extensions import ExtensionArray

from svc_notebook.display.front_end import write_warning
from svc_notebook.errors import ParameterError, SvcError, import_extra
from svc_notebook.ledger.reply_columns import REPLIES, Batch, dtype_of, template_columns
from svc_notebook.ledger.reply_frames import assemble_frame, to_array
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import as_number, shorten
from svc_notebook.settings import to_path

from .as_replies import as_replies

Json = dict[str, Any]
_DTYPES = {column.name: column.dtype for column in REPLIES}
_ZSTD = 93  # a compression of zip archives that `zipfile` reads from Python 3.14 on
# the local file header in a zip archive ends with the lengths of name and extra field
_LOCAL_HEADER = struct.Struct("<26x2H")
_ATTACHMENT = "attachment://"
# correct, partially correct, incorrect, no answer
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
PARAMS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "num_choices": "n",
    "stop_seqs": "stop",
}
"""Parameters by their name in a log, with their name in frames of replies."""
EXTRA_PARAMS = ("repetition_penalty", "user")
"""Parameters that inspect-ai does not know; they are in its field `extra_body`."""
_KIND_OF_ERROR = re.compile(r"(\w+)\(")


class _Log(NamedTuple):
    """The samples of a log, as dicts by column.

    Attributes:
        name: The name of the log, which becomes the run.
        status: The status that inspect-ai gave the log.
        known: The columns of `replies_df`.
        attributes: The columns of the task: its arguments, targets and metadata.
        scores: The values of the scores.
    """

    name: str
    status: str
    known: list[Json]
    attributes: list[Json]
    scores: list[Json]


def read_eval(*paths: str | Path) -> pd.DataFrame:
    """Read logs of inspect-ai as replies: see `svc.read_eval`."""
    if not paths:
        raise ParameterError(
            "read_eval needs the path of a log, of several, or of a folder of them, "
            "such as svc.read_eval('logs/a.eval', 'logs/b.eval').",
            param="path",
        )
    files = [file for path in paths for file in _files(to_path("path", path))]
    logs = [_log(file, name) for file, name in zip(files, _names(files), strict=True)]
    for log in logs:
        _warn_of_gaps(log)
    attributes = [sample for log in logs for sample in log.attributes]
    task_columns = assemble_frame(
        [Batch(attributes, {"origin.columns": attributes})],
        template_columns(attributes, {"row", *_DTYPES}),
    )
    frame = task_columns.assign(
        **_known([sample for log in logs for sample in log.known]),
        **_scored([sample for log in logs for sample in log.scores]),
    )
    return as_replies(frame, factors=task_columns.columns, columns={})


def _warn_of_gaps(log: _Log) -> None:
    """Write a line if a log has no samples, or perhaps not all of them."""
    if not log.known:
        write_warning(f"{log.name} has no samples; its status is {log.status}.")
    elif log.status != "success":
        write_warning(
            f"{log.name} may be incomplete: its status is {log.status}. "
            f"{len(log.known):,} samples were read."
        )


# Files


def _files(path: str) -> list[str]:
    """Return the log at a path, or the logs in a folder."""
    if "://" in path:
        return [path]
    place = Path(path).expanduser()
    if not place.is_dir():
        return [str(place)]
    files = [str(file) for file in sorted(place.iterdir()) if _is_log(file)]
    if not files:
        raise ParameterError(
            f"The folder {path!r} has no logs of inspect-ai, which are files that end "
            "with .eval or .json. Name another folder.",
            param="path",
        )
    return files


def _is_log(file: Path) -> bool:
    """Say whether a file of a folder is a log; inspect-ai keeps other JSON there."""
    if file.suffix != ".json":
        return file.suffix == ".eval"
    with suppress(OSError), file.open("rb") as opened:
        return b'"eval"' in opened.read(500)
    return False


def _names(files: Sequence[str]) -> list[str]:
    """Return a name for each log, which becomes its run."""
    stems = [Path(file).stem for file in files]
    return stems if len(set(stems)) == len(files) else list(files)


def _log(file: str, name: str) -> _Log:
    package = _inspect()
    if package is None and "://" in file:
        raise ParameterError(
            f"{file!r} is not on this machine. Install inspect-ai, which can read "
            "remote logs, or copy the file to this machine.",
            param="path",
        )
    try:
        log = _by_package(package, file) if package else _by_hand(Path(file))
        return _of_json(name, log)
    except SvcError:
        raise
    except FileNotFoundError:
        reason = "there is no such file"
    except (BadZipFile, EOFError, OSError, struct.error, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or str(problem) or "it is damaged"
    except Exception:  # noqa: BLE001 - a damaged file can raise any error in its reader
        reason = "it is not a log of inspect-ai, or is damaged"
    raise ParameterError(
        f"{file!r} cannot be read: {shorten(reason.rstrip('.'), 200)}. Name a file "
        "that inspect-ai wrote, which ends with .eval or .json.",
        param="path",
    )


def _inspect() -> ModuleType | None:
    with suppress(ImportError):
        return import_module("inspect_ai.log")
    return None


def _by_package(package: ModuleType, file: str) -> Json:
    log = package.read_eval_log(file)
    read: Json = log.model_dump(mode="json", exclude={"samples", "reductions"})
    read["samples"] = [
        sample.model_dump(mode="json", exclude={"events", "store"})
        for sample in log.samples or ()
    ]
    return read


def _by_hand(file: Path) -> Json:
    with file.open("rb") as opened:
        is_archive = opened.read(2) == b"PK"
    if is_archive:
        with ZipFile(file) as archive:
            return _of_archive(archive)
    log: Json = json.loads(file.read_bytes())
    return log


def _of_archive(archive: ZipFile) -> Json:
    names = set(archive.namelist())
    header: Json
    if "header.json" in names:
        header = _member(archive, "header.json")
    else:  # the evaluation is still running, or was killed
        header = {**_member(archive, "_journal/start.json"), "status": "started"}
    samples = {name for name in names if name.startswith("samples/")}
    if any(name.endswith("/sample.json") for name in samples):
        raise ParameterError(
            f"{archive.filename!r} has samples that are split over several files, "
            "which only inspect-ai can read. Install it: "
            "python -m pip install inspect-ai",
            param="path",
        )
    return {**header, "samples": [_member(archive, name) for name in samples]}


def _member(archive: ZipFile, name: str) -> Any:  # noqa: ANN401 - JSON
    member = archive.getinfo(name)
    try:
        return json.loads(archive.read(member))
    except NotImplementedError:  # zstd before Python 3.14
        if member.compress_type != _ZSTD:
            raise BadZipFile(f"unknown compression {member.compress_type}") from None
    arrow = import_extra("pyarrow", "Logs of inspect-ai, compressed with zstd, need")
    file: Any = archive.fp
    file.seek(member.header_offset)
    file.seek(sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))), 1)
    packed = arrow.BufferReader(file.read(member.compress_size))
    with arrow.CompressedInputStream(packed, "zstd") as stream:
        return json.loads(stream.read())


def _resolved(sample: Json) -> Json:
    """Return a sample with references to attachments replaced by their texts."""
    texts = sample.get("attachments") or {}

    def put_in(value: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, str) and value.startswith(_ATTACHMENT):
            return texts.get(value.removeprefix(_ATTACHMENT), value)
        if isinstance(value, list):
            return list(map(put_in, value))
        if isinstance(value, dict):
            return {key: put_in(inner) for key, inner in value.items()}
        return value

    names = ("input", "messages", "output", "metadata", "target", "scores")
    return {**sample, **{name: put_in(sample.get(name)) for name in names}}


# Samples


def _sort_key(sample: Json) -> tuple[int, str]:
    """Return the key by which inspect-ai sorts samples."""
    sample_id = sample["id"]
    text = sample_id if isinstance(sample_id, str) else str(sample_id).zfill(20)
    return sample["epoch"], text


def _of_json(name: str, log: Json) -> _Log:
    evaluation = log["eval"]
    shared = {"run": name, "model": evaluation["model"], **_params(log)}
    samples = sorted(map(_resolved, log.get("samples") or ()), key=_sort_key)
    return _Log(
        name,
        str(log.get("status", "success")),
        [shared | _of_sample(sample, shared["model"]) for sample in samples],
        [_attributes(evaluation, sample) for sample in samples],
        list(map(_scores, samples)),
    )


def _params(log: Json) -> Json:
    """Return the parameters of the model, by column."""
    plan = log.get("plan") or {}
    sent: Json = {}
    for config in (log["eval"].get("model_generate_config"), plan.get("config")):
        sent |= {key: x for key, x in (config or {}).items() if x is not None}
    params = {ours: sent[theirs] for theirs, ours in PARAMS.items() if theirs in sent}
    extra = sent.get("extra_body") or {}
    params |= {name: extra[name] for name in EXTRA_PARAMS if name in extra}
    if "stop" in params:
        params["stop"] = json.dumps(params["stop"], ensure_ascii=False)
    return params


def _of_sample(sample: Json, model: str) -> Json:
    """Return the columns of a reply."""
    output = sample["output"] or {}
    choice: Json = next(iter(output.get("choices") or ()), {})
    message = choice.get("message") or {}
    systems = [x["content"] for x in sample["messages"] or () if x["role"] == "system"]
    error = (sample.get("error") or {}).get("message")
    kind = _KIND_OF_ERROR.match(error or "")
    scores = (sample["scores"] or {}).values()
    answers = [score["answer"] for score in scores if score.get("answer") is not None]
    return {
        "row": sample["id"],
        "repeat": sample["epoch"] - 1,
        "prompt": _input(sample["input"]),
        "system": _text(systems[0]) if systems else None,
        "text": None if error else _text(message.get("content")),
        "answer": answers[0] if answers else None,
        "finish_reason": choice.get("stop_reason"),
        "status": "error" if error else "ok",
        "error_type": kind[1] if kind else error and "Error",
        "error_message": error,
        "model_returned": output.get("model"),
        "latency_s": output.get("time"),
        "exchange_id": sample.get("uuid"),
        **_usage((sample.get("model_usage") or {}).get(model) or output.get("usage")),
    }


def _input(question: Any) -> str:  # noqa: ANN401 - a text, or messages
    """Return the question: the last message of the user."""
    if isinstance(question, str):
        return question
    texts = [message["content"] for message in question if message["role"] == "user"]
    return _text((texts or [""])[-1])


def _text(content: Any) -> str:  # noqa: ANN401 - a text, or its parts
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def _usage(usage: Json | None) -> Json:
    """Return the tokens by column; tokens from the cache count as prompt tokens."""
    if not usage:
        return {}
    cached = ("input_tokens_cache_read", "input_tokens_cache_write")
    n_prompt = usage["input_tokens"] + sum(usage.get(name) or 0 for name in cached)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "cost": usage.get("total_cost"),
    }


def _attributes(evaluation: Json, sample: Json) -> Json:
    """Return the task, its arguments, and the sample's target and metadata."""
    target = sample["target"]
    arguments = evaluation.get("task_args_passed") or {}
    return {
        "task": evaluation.get("task"),
        **{f"task_arg_{name}": value for name, value in arguments.items()},
        "target": ", ".join(target) if isinstance(target, list) else target,
        **(sample["metadata"] or {}),
    }


def _scores(sample: Json) -> Json:
    """Return the values of the scores by name; a dict makes one score for each key."""
    scores: Json = {}
    for name, score in (sample["scores"] or {}).items():
        value = score["value"]
        is_dict = isinstance(value, dict)
        parts = {f"{name}_{key}": x for key, x in value.items()} if is_dict else {}
        scores |= parts or {name: value}
    return scores


def _known(rows: Sequence[Json]) -> dict[str, ExtensionArray]:
    """Return the columns of `replies_df` as arrays."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row.get(name) for row in rows] for name in names}
    kinds = _DTYPES | {"row": dtype_of(values.get("row", ()))}
    if kinds["row"] == "string":
        values["row"] = list(map(str, values["row"]))
    if any(answer is not None for answer in values.get("answer", ())):
        values["answer_ok"] = [
            None if row["error_message"] else row["answer"] is not None for row in rows
        ]
    return {name: to_array(column, kinds[name]) for name, column in values.items()}


def _scored(scores: Sequence[Json]) -> dict[str, ExtensionArray]:
    """Return a column for each score: numbers if all its values are, else texts."""
    names = dict.fromkeys(name for sample in scores for name in sample)
    return {
        PREFIX + name: _numbers_or_texts([sample.get(name) for sample in scores])
        for name in names
    }


def _numbers_or_texts(values: list[Any]) -> ExtensionArray:
    present = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in present):
        return to_array(values, "boolean")
    if None not in (numbers := list(map(_number, present))):
        known = iter(numbers)
        aligned = [None if value is None else next(known) for value in values]
        return to_array([x if x == x else None for x in aligned], "Float64")  # noqa: PLR0124 - not a number
    return to_array([x if x is None else _as_text(x) for x in values], "string")


def _number(value: Any) -> float | None:  # noqa: ANN401 - JSON
    """Return a value as the number that inspect-ai converts it to; else None."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None if (number := as_number(value)) is None else float(number)
    if value in _LETTERS or value.lower() in _WORDS:
        return _LETTERS.get(value, _WORDS.get(value.lower()))
    with suppress(ValueError):
        return number if math.isfinite(number := float(value)) else None
    return None


def _as_text(value: Any) -> str:  # noqa: ANN401 - JSON
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

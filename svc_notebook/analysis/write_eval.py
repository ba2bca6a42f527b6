"""Write replies as logs of inspect-ai, which `read_eval` and inspect-ai can read.

A log has one model and one set of parameters, so each condition becomes a log. A row
becomes a sample, a repeat an epoch, and the columns of the rows the sample's metadata.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZIP_DEFLATED, ZipFile

import pandas as pd

from svc_notebook.errors import ParameterError
from svc_notebook.ledger.frame_export import write_whole
from svc_notebook.ledger.reply_columns import REPLIES
from svc_notebook.ledger.scores import PREFIX
from svc_notebook.service.params import PARAM_NAMES
from svc_notebook.settings import to_path

from .read_eval import EXTRA_PARAMS, PARAMS, Json
from .reply_factors import check_replies, factors, named, prompt_codes

SUFFIX = ".eval"
_TARGET = "target"
_OURS = {*(column.name for column in REPLIES), "row"}
_REASONS = {"stop": "stop", "length": "max_tokens"}
_KNOWN_REASONS = ("max_tokens", "model_length", "tool_calls", "content_filter")
_WITHOUT_REPLY = ("planned", "not_run")
_VERSION = 2  # the format version of inspect-ai's logs


def write_eval(
    df: pd.DataFrame, path: str | Path, *, target: str | None = None
) -> list[Path]:
    """Write replies as logs of inspect-ai: see `Run.to_eval`."""
    place = Path(to_path("path", path))
    if place.suffix != SUFFIX:
        raise ParameterError(
            f"{str(path)!r} must end with {SUFFIX}, as logs of inspect-ai do, such as "
            f"{place.with_suffix(SUFFIX).name!r}.",
            param="path",
        )
    df = check_replies(df)
    if target is not None:
        named(df, target, param="target")
    df = df[~df["status"].isin(_WITHOUT_REPLY)]
    if df.empty:
        raise ParameterError(
            "There are no replies to write. Call run() first to send the requests.",
            param="path",
        )
    logs = list(_conditions(df))
    paths = [place] if len(logs) == 1 else _numbered(place, len(logs))
    return [
        write_whole(file, partial(_write, _log(log, target)))
        for log, file in zip(logs, paths, strict=True)
    ]


def _numbered(place: Path, n: int) -> list[Path]:
    """Return numbered paths for several logs, in the order of their conditions."""
    stem, width = place.stem, len(str(n))
    names = (f"{stem}-{number:0{width}}{SUFFIX}" for number in range(1, n + 1))
    return [place.with_name(name) for name in names]


def _conditions(df: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Split replies by the columns that have one value for each log."""
    sent = [name for name in PARAM_NAMES if name in df.columns]
    names = dict.fromkeys(["model", *sent, *factors(df), "run"])
    keys = df[[*names]].astype("string")
    numbers = keys.groupby([*names], dropna=False, sort=False).ngroup()
    for _, part in df.assign(**{_TASK_ID: _ids(df)}).groupby(numbers, sort=False):
        yield part


_TASK_ID = "\0id"  # no column of a user has this name


def _ids(df: pd.DataFrame) -> list[Any]:
    """Return the id of each sample: its row, or the number of its prompt."""
    if "row" in df.columns and df["row"].notna().all():
        return [x if isinstance(x, str) else int(x) for x in df["row"]]
    return [int(code) + 1 for code in prompt_codes(df)]


def _log(df: pd.DataFrame, target: str | None) -> Json:
    """Return a log: its header and its samples."""
    rows = [_plain_row(row) for row in df.to_dict("records")]
    metadata = [
        str(name)
        for name in df.columns
        if name not in {*_OURS, _TASK_ID, _TARGET} and not str(name).startswith(PREFIX)
    ]
    rows.sort(key=lambda row: (str(row[_TASK_ID]), row["repeat"] or 0))
    samples = [
        _sample(list(choices), metadata, target or _TARGET)
        for _, choices in groupby(rows, key=lambda row: (row[_TASK_ID], row["repeat"]))
    ]
    return {**_header(rows, samples), "samples": samples}


def _plain_row(row: Mapping[Any, Any]) -> Json:
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a frame holds
    """Return a value of a frame as a JSON value; a missing one is None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # NumPy's
        return _plain(value.tolist())
    if pd.isna(value):
        return None
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return value if isinstance(value, (str, bool, int, float)) else str(value)


# A sample


def _sample(choices: list[Json], metadata: list[str], target: str) -> Json:
    """Return the sample of a request; each row is one choice of its reply."""
    first = choices[0]
    right = first.get(target)
    usage = _usage(first)
    return {
        "id": first[_TASK_ID],
        "epoch": (first["repeat"] or 0) + 1,
        "input": first["prompt"] or "",
        "target": "" if right is None else str(right),
        "messages": _messages(first),
        "output": {
            "model": first["model_returned"] or first["model"],
            "choices": list(map(_choice, choices)),
            "completion": first["text"] or "",
            "usage": usage,
            "time": first["latency_s"],
        },
        "scores": _scores(first),
        "metadata": {name: first[name] for name in metadata},
        "store": {},
        "events": [],
        "model_usage": {first["model"]: usage} if usage else {},
        "uuid": first["exchange_id"],
        "error": _error(first),
        "attachments": {},
    }


def _messages(row: Json) -> list[Json]:
    messages = [{"role": "user", "content": row["prompt"] or "", "source": "input"}]
    if row["system"] is not None:
        messages.insert(0, {"role": "system", "content": row["system"]})
    return [*messages, _choice(row)["message"]]


def _choice(row: Json) -> Json:
    message = {
        "role": "assistant",
        "content": row["text"] or "",
        "source": "generate",
        "model": row["model_returned"] or row["model"],
    }
    if calls := list(map(_call, json.loads(row["tool_calls"] or "[]"))):
        message["tool_calls"] = calls
    reason = row["finish_reason"] or "unknown"
    known = reason if reason in _KNOWN_REASONS else "unknown"
    return {"message": message, "stop_reason": _REASONS.get(reason, known)}


def _call(call: Json) -> Json:
    """Return a call of a tool; arguments that are not an object become an error."""
    function = call.get("function") or {}
    written: Json = {
        "id": call.get("id"),
        "function": function.get("name"),
        "arguments": {},
    }
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError as problem:
        return {**written, "parse_error": str(problem)}
    if isinstance(arguments, dict):
        return {**written, "arguments": arguments}
    return {**written, "parse_error": "The arguments are not an object."}


def _usage(row: Json) -> Json | None:
    """Return the tokens that the service reported; estimates are not usage."""
    counts = [row[f"{kind}_tokens"] for kind in ("prompt", "completion", "total")]
    if None in counts:
        return None
    names = ("input_tokens", "output_tokens", "total_tokens")
    return {**dict(zip(names, counts, strict=True)), "total_cost": row["cost"]}


def _scores(row: Json) -> Json:
    """Return the scores by name; each contains the answer that was read."""
    answer = None if row["answer"] is None else str(row["answer"])
    return {
        name.removeprefix(PREFIX): {"value": value, "answer": answer}
        for name, value in row.items()
        if name.startswith(PREFIX) and value is not None
    }


def _error(row: Json) -> Json | None:
    if row["status"] == "ok":
        return None
    kind, message = row["error_type"] or row["status"], row["error_message"] or ""
    # inspect-ai writes errors as their repr, and `read_eval` reads the type from that
    has_kind = message.startswith(f"{kind}(")
    text = message if has_kind else f"{kind}({message!r})"
    return {"message": text, "traceback": "", "traceback_ansi": ""}


# The header


def _header(rows: list[Json], samples: list[Json]) -> Json:
    first = rows[0]
    ids = list(dict.fromkeys(sample["id"] for sample in samples))
    starts = [row["started_at"] for row in rows if row["started_at"]]
    ends = [row["ended_at"] for row in rows if row["ended_at"]]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    config = _config(first)
    evaluation = {
        "eval_id": uuid4().hex,
        "run_id": first["run"] or uuid4().hex,
        "task_id": uuid4().hex,
        "created": min(starts, default=now),
        "task": "svc_notebook",
        "task_version": 0,
        "dataset": {"name": "rows", "samples": len(ids), "sample_ids": ids},
        "model": first["model"],
        "model_generate_config": config,
        "config": {"epochs": max(sample["epoch"] for sample in samples)},
    }
    return {
        "version": _VERSION,
        "status": "success",
        "eval": evaluation,
        "plan": {"name": "plan", "steps": [], "config": config},
        "results": {
            "total_samples": len(samples),
            "completed_samples": sum(not sample["error"] for sample in samples),
            "scores": _means(samples),
        },
        "stats": {
            "started_at": min(starts, default=now),
            "completed_at": max(ends, default=now),
        },
    }


def _config(row: Json) -> Json:
    """Return the parameters of the requests by inspect-ai's names."""
    config = {theirs: row.get(ours) for theirs, ours in PARAMS.items()}
    if config["stop_seqs"] is not None:
        stop = json.loads(config["stop_seqs"])
        config["stop_seqs"] = [stop] if isinstance(stop, str) else stop
    extra = {name: row[name] for name in EXTRA_PARAMS if row.get(name) is not None}
    return {name: x for name, x in config.items() if x is not None} | (
        {"extra_body": extra} if extra else {}
    )


def _means(samples: list[Json]) -> list[Json]:
    """Return the mean of each numeric score, which viewers of the log show."""
    names = dict.fromkeys(name for sample in samples for name in sample["scores"])
    means = []
    for name in names:
        scores = [s["scores"][name]["value"] for s in samples if name in s["scores"]]
        if not any(isinstance(value, str) for value in scores):
            mean = {"name": "mean", "value": sum(scores) / len(scores)}
            means.append({"name": name, "scorer": name, "metrics": {"mean": mean}})
    return means


_IN_SUMMARY = ("id", "epoch", "input", "target", "scores", "metadata", "model_usage")


def _write(log: Json, file: Path) -> None:
    samples = log.pop("samples")
    summaries = [
        {name: sample[name] for name in _IN_SUMMARY}
        | {"error": sample["error"] and sample["error"]["message"], "completed": True}
        for sample in samples
    ]
    begun = {name: log[name] for name in ("version", "eval", "plan")}
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(begun))
        for sample in samples:
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            archive.writestr(name, json.dumps(sample))
        archive.writestr("summaries.json", json.dumps(summaries))
        archive.writestr("header.json", json.dumps(log))

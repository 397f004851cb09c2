"""What a host sent of verify and bench: data of others, unpacked within limits, held against its schema. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from firstlight.bench.results import RunResult, Verdict, from_json
from firstlight.errors import BadInput
from firstlight.fleet.reply import REPLY_LIMIT
from firstlight.fleet.run import HostEnd, HostOutcome, HostRun, Kept
from firstlight.fleet.schema_check import faults, schema_named
from firstlight.visible import one_line

_NAME = re.compile(r"(?:gpu-\d{1,3}|cpu)-run-[1-9]\.json")
_BAD = (Verdict.FAILED, Verdict.INVALID, Verdict.IMPOSSIBLE)
_LONGEST = 300
_MOST_LEFT = 100


def of_verify(host: HostRun, answer: dict[str, Any], code: int) -> HostOutcome:
    """Done where all that the host can prove is proved; failed with the checks that failed."""
    printed, log = str(answer.get("printed", "")), str(answer.get("log", ""))
    try:
        document = json.loads(printed)
    except (ValueError, RecursionError):
        return HostOutcome(_failed(host, _last(log) or "what verify printed there is not JSON"), log=log)
    if wrong := next(faults(document, schema_named("verify-1")), ""):
        return HostOutcome(_failed(host, f"what verify printed there does not fit its schema: {wrong}"), log=log)
    said = tuple(_line(str(each)) for each in document["summary"])
    if code == 0 and document["exit_code"] == 0:
        return HostOutcome(replace(host, end=HostEnd.DONE, reason="", steps=said), printed, log=log)
    failed = [f"{each['check']}: {each['says']}" for each in document["results"] if each["outcome"] == "failed"]
    why = "; ".join(failed) or (said[0] if said else f"verify ended with {code}")
    return HostOutcome(replace(_failed(host, why), steps=said), printed, log=log)


def of_bench(host: HostRun, answer: dict[str, Any], code: int) -> HostOutcome:
    """Done where every GPU was measured; what was measured is kept also where another GPU was not."""
    log = str(answer.get("log", ""))
    kept: list[Kept] = []
    lines: list[str] = []
    try:
        for name, run in _documents(answer.get("documents")):
            kept.append(Kept(name, json.dumps(_json(run), indent=1) + "\n"))
            lines.append(_measured(name, run))
    except BadInput as error:
        return HostOutcome(_failed(host, f"what bench wrote there is not taken: {error}"), log=log)
    lines += [_line(f"not sent, because all of them are too large: {path} there") for path in _too_large(answer)]
    measured = replace(host, steps=tuple(lines))
    if code == 0 and kept:
        return HostOutcome(replace(measured, end=HostEnd.DONE, reason=""), log=log, measured=tuple(kept))
    why = _last(log) or f"bench ended with {code}, and said nothing"
    return HostOutcome(_failed(measured, why), log=log, measured=tuple(kept))


def _too_large(answer: dict[str, Any]) -> tuple[str, ...]:
    """Paths of documents that stayed there; what is no list of texts is nothing."""
    found = answer.get("too_large")
    return tuple(str(each) for each in found[:_MOST_LEFT]) if isinstance(found, list) else ()


def _documents(found: Any) -> Iterator[tuple[str, RunResult]]:
    """The runs by the name of their file; BadInput where a name or a document is none of ours."""
    for name, packed in (found if isinstance(found, dict) else {}).items():
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name[:60]!a} is not the name of a measurement")
        try:
            opened = zlib.decompressobj()
            text = opened.decompress(base64.b64decode(str(packed), validate=True), REPLY_LIMIT)
            if not opened.eof:
                raise BadInput(f"{name}: larger than {REPLY_LIMIT >> 20} MB, or cut")
            document = json.loads(text.decode("utf-8"))
        except (zlib.error, binascii.Error, UnicodeDecodeError, ValueError, RecursionError):
            raise BadInput(f"{name}: not JSON") from None
        yield name, from_json(document, name)


def _json(run: RunResult) -> dict[str, Any]:
    from firstlight.bench.results import to_json

    return to_json(run)


def _measured(name: str, run: RunResult) -> str:
    """E.g. "gpu-0-run-1: NVIDIA H200, 38 cases measured, 3 skipped"."""
    counts = {verdict: sum(case.verdict is verdict for case in run.cases) for verdict in Verdict}
    bad = "".join(f", {counts[each]} {each.value}" for each in (*_BAD, Verdict.SKIPPED) if counts[each])
    what = ", ".join(dict.fromkeys(gpu.name for gpu in run.gpus)) or run.host.cpu or "processor"
    return _line(f"{name.removesuffix('.json')}: {what}, {counts[Verdict.OK]} cases measured{bad}")


def _failed(host: HostRun, why: str) -> HostRun:
    return replace(host, end=HostEnd.FAILED, reason=_line(why))


def _last(log: str) -> str:
    return next((line.removeprefix("firstlight: ") for line in reversed(log.splitlines()) if line.strip()), "")


def _line(text: str) -> str:
    return one_line(" ".join(text.split()))[:_LONGEST]

"""What a host says of its work is data: held against its schema, escaped, bounded; and the programs that run there."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from firstlight.bench.results import to_text
from firstlight.fleet.children import bounded_ssh, on_host
from firstlight.fleet.outcomes import outcome_of
from firstlight.fleet.run import HostEnd, HostRun, Made, Verb
from firstlight.fleet.schema_check import KNOWN, faults, schema_named
from firstlight.fleet.tool import tool
from tests.fleet.measured_fleets import real_run

HOST = HostRun("node01", end=HostEnd.AT_WORK)
DONE: dict[str, Any] = {
    "schema": "firstlight.apply/1", "made_by": "x", "ending": "done", "option": "o", "title": "t", "digest": "d" * 64,
    "run": 3, "resumed": [], "journal": "/j", "steps": [], "to_do": [], "left_out": [], "by_a_person": [],
    "waiting": [], "failure": None, "verify": None,
}  # fmt: skip


UNFIT = "what firstlight printed there does not fit its schema"


def said(answer: object) -> str:
    return f"Welcome!\r\nfirstlight-t0-begin\r\n{json.dumps(answer)}\r\nfirstlight-t0-end"


def ended(document: object, code: int = 0, **more: object) -> HostRun:
    printed = document if isinstance(document, str) else json.dumps(document)
    answer = {"state": "ended", "code": code, "printed": printed, "log": "firstlight: last words\n", **more}
    return outcome_of(HOST, Verb.APPLY, said(answer), token="t0").host


def test_what_was_done_is_kept_with_its_digest_and_its_run() -> None:
    host = ended(DONE)
    assert (host.end, host.digest, host.made) == (HostEnd.DONE, "d" * 64, (Made(3, "d" * 64),))


def test_a_run_that_an_earlier_attempt_began_is_taken_back_too() -> None:
    host = ended({**DONE, "resumed": [2]})
    assert host.made == (Made(2), Made(3, "d" * 64))


def test_nothing_to_do_makes_nothing_that_undo_would_take_back() -> None:
    host = ended({**DONE, "ending": "nothing to do"})
    assert (host.end, host.made) == (HostEnd.NOTHING, ())


@pytest.mark.parametrize(
    ("document", "code", "end", "reason"),
    [
        (DONE, 1, HostEnd.FAILED, "the steps are done, and verify failed there"),
        ("", 4, HostEnd.BUSY, "last words"),
        ("", 1, HostEnd.FAILED, "last words"),
        ("", 0, HostEnd.FAILED, "what firstlight printed there is not JSON"),
        ("[" * 100_000, 0, HostEnd.FAILED, "what firstlight printed there is not JSON"),
        ({**DONE, "run": "3"}, 0, HostEnd.FAILED, f"{UNFIT}: it.run is no ['integer', 'null']"),
        ({**DONE, "x": 1}, 0, HostEnd.FAILED, f"{UNFIT}: it has 'x', which is not accepted"),
    ],
)  # fmt: skip
def test_every_other_end_has_its_reason(document: object, code: int, end: HostEnd, reason: str) -> None:
    host = ended(document, code)
    assert (host.end, host.reason) == (end, reason)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("", "what it printed is not an answer of firstlight"),
        ("firstlight-t1-begin\n{}\nfirstlight-t1-end", "what it printed is not an answer of firstlight"),
        (said([]), "what it printed is not an answer of firstlight"),
        (said({}), "it did not say why"),
        (said({"state": "ended", "code": "0"}), "it did not say why"),
        (said({"state": "refused", "reason": "\x1b[2Jgone\n\udcff"}), "\\x1b[2Jgone \\udcff"),
        (said({"state": "refused", "reason": "x" * 5000}), "x" * 300),
    ],
)
def test_what_is_no_answer_is_a_failure_that_says_so(printed: str, reason: str) -> None:
    host = outcome_of(HOST, Verb.APPLY, printed, token="t0").host
    assert (host.end, host.reason) == (HostEnd.FAILED, reason)


def test_measurements_that_stayed_there_are_named() -> None:
    text = to_text(real_run()).encode()
    packed = base64.b64encode(zlib.compress(text)).decode()
    answer = {
        "state": "ended",
        "code": 0,
        "printed": "",
        "log": "",
        "journal": "",
        "documents": {"gpu-0-run-1.json": packed},
    }
    paths = ["/root/kept/gpu-0-run-2.json", "/root/\x1b[2J"]
    found = outcome_of(HOST, Verb.BENCH, said({**answer, "too_large": paths}), token="t0").host
    assert (found.end, len(found.steps)) == (HostEnd.DONE, 3)
    assert found.steps[1] == "not sent, because all of them are too large: /root/kept/gpu-0-run-2.json there"
    assert "\x1b" not in found.steps[2]
    assert outcome_of(HOST, Verb.BENCH, said({**answer, "too_large": {"a": 1}}), token="t0").host.end is HostEnd.DONE


def test_what_is_too_large_to_be_sent_stays_and_the_rest_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_host, "_DOCUMENTS_LIMIT", 100)
    for name, size in (("a.json", 10), ("b.json", 5000), ("c.json", 10)):
        (tmp_path / name).write_bytes(os.urandom(size))
    found, left = on_host._documents(str(tmp_path))
    assert (list(found), left) == (["a.json", "c.json"], [str(tmp_path / "b.json")])


def test_another_operator_is_named() -> None:
    host = outcome_of(HOST, Verb.UNDO, said({"state": "busy", "who": "eve@x", "since": "today"}), token="t0").host
    assert (host.end, host.reason) == (HostEnd.BUSY, "eve@x since today")


@pytest.mark.parametrize("name", ["apply-1", "undo-1"])
def test_the_check_knows_every_word_of_the_schemas_and_agrees_with_jsonschema(name: str) -> None:
    schema = schema_named(name)
    assert _words(schema) <= KNOWN
    validator = jsonschema.Draft202012Validator(schema)
    values: tuple[Any, ...] = (None, 1, "x", [], [1], {})
    cases: list[Any] = [{}, [], None, DONE, *({**DONE, key: value} for key in DONE for value in values)]
    for broken in cases:
        assert any(faults(broken, schema)) != validator.is_valid(broken), broken


def _words(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    inside = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        schema.get("items"),
        *schema.get("oneOf", ()),
    ]
    return {*schema, *(word for each in inside for word in _words(each))}


def test_firstlight_travels_as_wheels_without_compiled_parts() -> None:
    with zipfile.ZipFile(io.BytesIO(tool().data)) as archive:
        names = archive.namelist()
        assert {"firstlight", "click", "packaging", "tomlkit"} <= {name.partition("-")[0] for name in names}
        for name in names:
            with zipfile.ZipFile(io.BytesIO(archive.read(name))) as wheel:
                assert not [each for each in wheel.namelist() if each.endswith((".so", ".pyc")) or ".." in each]
    first = tool().sha256
    tool.cache_clear()
    assert tool().sha256 == first


@pytest.mark.parametrize(
    ("script", "code", "err"),
    [
        ("echo hello; exit 3", 3, ""),
        ("yes", 255, "it printed more than 0 MB; nothing of that was read\n"),
        ("exec sleep 30", 255, "it gave no answer within 1 s\n"),
    ],
)
def test_ssh_is_ended_at_its_limits(tmp_path: Path, script: str, code: int, err: str) -> None:
    (tmp_path / "ssh").write_text(f'#!/bin/sh\n[ "$*" = "-o First host" ] || exit 9\n{script}\n')
    (tmp_path / "ssh").chmod(0o755)
    argv = [sys.executable, bounded_ssh.__file__, "1", "9999", "-o", "First", "--firstlight", "host"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20, env=environment)
    assert (done.returncode, done.stderr) == (code, err)


def test_undo_is_not_begun_where_something_was_applied_since(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [{"number": 2, "digest": "b", "state": "done"}, {"number": 1, "digest": "a", "state": "done"}]

    def listed(*_: object, **__: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess((), 0, json.dumps({"runs": runs}).encode(), b"")

    monkeypatch.setattr(subprocess, "run", listed)
    assert on_host._to_take_back("python", [{"number": 2, "digest": "b"}]) == 1
    assert on_host._to_take_back("python", [{"number": 1, "digest": "a"}, {"number": 2, "digest": ""}]) == 2
    with pytest.raises(on_host.Refused, match="run 2 was applied there since"):
        on_host._to_take_back("python", [{"number": 1, "digest": "a"}])
    assert on_host._to_take_back("python", [{"number": 2, "digest": "of a journal made anew"}]) == 0
    runs[0]["state"] = "taken back"
    assert on_host._to_take_back("python", [{"number": 2, "digest": "b"}]) == 0

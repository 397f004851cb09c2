"""What a host answers is data: cut out between its marks, bounded, held against its schema."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import CouldNotLook
from firstlight.fleet.reply import between_marks, read_evidence
from firstlight.fleet.ssh import converse

MACHINES = Path(__file__).parents[1] / "machines"


def test_what_a_shell_prints_around_an_answer_is_left_out() -> None:
    printed = b"Welcome!\nfirstlight-ab-begin\n{}\nfirstlight-ab-end\nbye\n"
    assert between_marks(printed, "ab") == b"{}"
    assert between_marks(printed, "cd") is None
    assert between_marks(b"firstlight-ab-begin\n{", "ab") is None  # it died half-way


def test_a_recorded_machine_is_read() -> None:
    evidence = read_evidence((MACHINES / "h200" / "machine.json").read_bytes(), "node01")
    assert evidence.host.arch == "x86_64"


def _document(**changes: Any) -> bytes:
    document = json.loads((MACHINES / "h200" / "machine.json").read_text())
    return json.dumps({**document, **changes}).encode()


BOMB = base64.b64encode(zlib.compress(bytes(16 << 20), 9)).decode()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"\xff\xfe", "not text"),
        (b"{" * 100_000, "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON"),
        (b'{"a": ' * 50_000 + b"1" + b"}" * 50_000, "not JSON"),
        (b"[]", "expected an object"),
        (b'{"schema": "firstlight.facts/1"}', "schema is"),
        (_document(schema="firstlight.machine/9"), "schema is"),
        (_document(paths={"../etc": {}}), "not an absolute path"),
        (_document(paths={"/a": {"names": ["../x"]}}), "not a file name"),
        (_document(paths={f"/{number}": {"pieces": [[0, BOMB]]} for number in range(20)}), "more than 256 MiB"),
        (_document(host="node99"), "expected an object"),
    ],
    ids=range(11),
)
def test_what_is_no_answer_is_named_as_that(answer: bytes, says: str) -> None:
    with pytest.raises(CouldNotLook, match=says):
        read_evidence(answer, "node01")


def test_what_ssh_says_after_the_host_hung_up_is_the_reason() -> None:
    script = "exec 1>&-; sleep 0.3; echo 'Connection closed by remote host' >&2; exit 255"
    said = converse(("sh", "-c", script), b"", ends_with=b"never")
    assert (said.complaint, said.status) == ("Connection closed by remote host\n", 255)

"""A recording answers as the machine did; a bad recording is refused naming the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import BadFactsFile
from firstlight.machine import ChildScript, Machine, Outcome
from firstlight.machine.evidence import SCHEMA, from_document, to_document
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import NOT_RECORDED, RecordedMachine, RecordingMachine

CHILD = ChildScript("probe", "print('{\"code\": 803}')")


def _ask_everything(machine: Machine) -> list[Any]:
    return [
        machine.env("PATH"),
        machine.env("NOT_SET"),
        machine.read("/etc/text"),
        machine.read("/etc/absent"),
        machine.why_not("/etc/absent"),
        machine.read_bytes("/lib/blob", offset=0, size=64),
        machine.read_bytes("/lib/blob", offset=64, size=64),
        machine.read_bytes("/lib/blob", offset=4990, size=64),
        machine.search("/lib/blob", rb"sm_\d+"),
        machine.list("/lib", "*.so*"),
        machine.list("/nowhere"),
        machine.stat("/lib/blob"),
        machine.stat("/nowhere"),
        machine.real_path("/lib/link.so.1"),
        machine.disk("/lib"),
        machine.run(("echo", "hello")),
        machine.run(("no-such-tool", "x")),
        machine.child(CHILD),
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "text").write_text("one\ntwo\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "blob").write_bytes(bytes(range(256)) * 19 + b"sm_90" + bytes(131))
    (tmp_path / "lib" / "link.so.1").symlink_to("real.so.1.2")
    (tmp_path / "lib" / "real.so.1.2").write_bytes(b"")
    return tmp_path


def _recorded(tree: Path) -> tuple[list[Any], dict[str, Any]]:
    recording = RecordingMachine(LiveMachine(root=str(tree), environ={"PATH": "/usr/bin:/bin"}))
    answers = _ask_everything(recording)
    return answers, to_document(recording.evidence, lambda text: text, lambda data: data)


def test_every_question_gets_the_same_answer_from_the_recording(tree: Path) -> None:
    answers, document = _recorded(tree)
    replayed = RecordedMachine(from_document(json.loads(json.dumps(document)), "machine.json"))
    assert _ask_everything(replayed) == answers


def test_what_was_never_asked_is_not_in_the_recording(tree: Path) -> None:
    _, document = _recorded(tree)
    machine = RecordedMachine(from_document(document, "machine.json"))
    assert machine.read("/etc/other") is None
    assert machine.why_not("/etc/other") == NOT_RECORDED
    assert machine.why_not("/etc/absent") == "no such file"
    assert machine.run(("other",)).outcome is Outcome.NOT_RECORDED
    assert not machine.child(ChildScript("other", "")).ok


def test_a_recording_of_a_recording_is_the_same_document(tree: Path) -> None:
    _, document = _recorded(tree)
    again = RecordingMachine(RecordedMachine(from_document(document, "machine.json")))
    _ask_everything(again)
    assert to_document(again.evidence, lambda text: text, lambda data: data) == document


def _with(document: dict[str, Any], *path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("schema",), "firstlight.machine/9", "schema"),
        (("schema",), 1, "schema"),
        (("host",), [], "host"),
        (("host", "uid"), "0", "host.uid"),
        (("paths", "/../etc/passwd"), {"text": "x"}, "/../etc/passwd"),
        (("paths", "relative"), {"text": "x"}, "relative"),
        (("paths", "/a"), {"text": 5}, "/a.text"),
        (("paths", "/a"), {"names": ["../../x"]}, "names"),
        (("paths", "/a"), {"real": "../x"}, "real"),
        (("paths", "/a"), {"pieces": [[0, "not base64!"]]}, "pieces[0]"),
        (("paths", "/a"), {"pieces": [["0", "eJw="]]}, "pieces[0]"),
        (("paths", "/a"), {"stat": {"kind": "file"}}, "stat.size"),
        (("absent",), ["/ok", "no/slash"], "no/slash"),
        (("absent",), "x", "absent"),
        (("commands", "x"), {"outcome": "exploded"}, "outcome"),
        (("children", "x"), {"answer": [], "complaint": ""}, "answer"),
        (("env", "PATH"), 3, "env.PATH"),
    ],
)
def test_a_bad_recording_is_refused_naming_the_field(tree: Path, path: tuple[str, ...], value: Any, named: str) -> None:
    _, document = _recorded(tree)
    with pytest.raises(BadFactsFile) as caught:
        from_document(_with(document, *path, value=value), "machine.json")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_schema_of_a_recording_comes_first(tree: Path) -> None:
    _, document = _recorded(tree)
    assert next(iter(document)) == "schema"
    assert document["schema"] == SCHEMA

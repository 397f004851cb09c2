"""The facts document: written, read back, and refused in one line when it is not one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from firstlight.cli.main import run
from firstlight.errors import BadFactsFile, BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.document import read_machine_or_facts, to_text
from firstlight.facts.known import Unknown, value_or
from firstlight.facts.later_fields import LATER
from firstlight.records import hints
from tests.schemas import fits

EXAMPLE = "example:h100-driver-570"
EARLIER = Path(__file__).parent / "documents" / "facts-of-2026-11-16.json"  # the same machine, before fleets and builds
SCHEMA = Path(__file__).parents[2] / "src" / "firstlight" / "schemas" / "facts-1.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(to_text(read_machine_or_facts(EXAMPLE)))
    return loaded


def test_a_document_reads_back_to_the_same_facts(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(document))
    facts = read_machine_or_facts(str(path))
    assert facts == read_machine_or_facts(EXAMPLE)
    assert json.loads(to_text(facts)) == document


def test_the_schema_comes_first_and_the_document_fits_the_shipped_schema(document: dict[str, Any]) -> None:
    assert next(iter(document)) == "schema"
    fits(document, json.loads(SCHEMA.read_text()))


def test_the_schema_refuses_a_document_with_a_wrong_field(document: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        fits({**document, "driver": {}}, json.loads(SCHEMA.read_text()))


def _changed(*path: str | int, value: Any) -> Callable[[dict[str, Any]], str]:
    def change(document: dict[str, Any]) -> str:
        copy: Any = json.loads(json.dumps(document))
        place = copy
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return json.dumps(copy)

    return change


BAD: dict[str, tuple[Callable[[dict[str, Any]], str | bytes], str]] = {
    "truncated": (lambda document: json.dumps(document)[:-200], "not JSON"),
    "empty": (lambda _: "", "not JSON"),
    "a list": (lambda _: "[]", "expected a JSON object"),
    "wrong schema": (_changed("schema", value="somebody.else/1"), "schema"),
    "no schema": (lambda _: '{"driver": {}}', "schema is missing"),
    "future schema": (_changed("schema", value="firstlight.facts/9"), "firstlight.facts/9"),
    "a plan of 0.1": (
        _changed("schema", value="firstlight.plan/1"),
        "What `firstlight plan --json` printed is not read",
    ),
    "a diagnosis": (_changed("schema", value="firstlight.diagnosis/2"), "`firstlight doctor --json` printed is not"),
    "binary": (lambda _: bytes(range(256)) * 10, "not text"),
    "100,000 deep": (lambda _: "[" * 100_000 + "]" * 100_000, "nested too deeply"),
    "deep inside": (lambda _: '{"schema":' * 100_000, "nested too deeply"),
    "a 10 MB string": (_changed("place", "arch", value="x" * 10_000_000), "place.arch: text of 10000000 characters"),
    "terminal escapes": (_changed("gpus", "devices", 0, "name", "value", value="H100\x1b]0;x\x07"), "name.value"),
    "a missing field": (_changed("driver", value={}), "driver.kernel_version: missing"),
    "an unknown field": (_changed("driver", "extra", value=1), "'extra'"),
    "a wrong type": (_changed("gpus", "devices", value="none"), "gpus.devices: expected a list"),
    "a bad version": (_changed("driver", "kernel_version", "value", value="abc"), "driver.kernel_version.value"),
    "a bad enum": (_changed("driver", "module_kind", "value", value="half"), "driver.module_kind.value"),
    "a bool for a number": (_changed("libcuda", "init_code", "value", value=True), "libcuda.init_code.value"),
    "not a fact": (_changed("driver", "kernel_version", value="570.133.20"), "driver.kernel_version"),
    "NaN": (
        _changed("gpus", "devices", 0, "power_limit_w", value={"value": float("nan"), "seen_in": "x"}),
        "power_limit_w",
    ),
    "a huge list": (_changed("gpus", "pci", value=[0] * 20_000), "20000 items"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_facts_file_gives_one_line_naming_the_field_and_exit_2(
    name: str, document: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, named = BAD[name]
    path = tmp_path / "bad.json"
    content = make(document)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code = run(["facts", "--facts", str(path)])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert named in captured.err
    assert "\x1b" not in captured.err
    assert len(captured.err) < 700


@pytest.mark.parametrize(
    ("path", "named"),
    [("/no/such/file", "no such file"), ("example:none", "accepted: h100-driver-570"), ("/", "machine.json")],
)
def test_a_path_that_is_no_document_says_what_is_accepted(path: str, named: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_machine_or_facts(path)
    assert named in str(caught.value)


def test_a_document_of_an_earlier_day_is_read_and_what_it_lacks_is_not_known() -> None:
    facts = read_machine_or_facts(str(EARLIER))
    assert isinstance(facts.driver.module_builds, Unknown)
    assert "older firstlight" in facts.driver.module_builds.reason
    assert isinstance(facts.fleet.vgpu.software, Unknown)
    assert str(value_or(facts.driver.kernel_version, None)) == "570.133.20"


def test_a_field_that_was_always_there_may_not_be_missing(tmp_path: Path) -> None:
    document = json.loads(EARLIER.read_text())
    del document["driver"]["nodes"]
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(document))
    with pytest.raises(BadFactsFile, match=r"driver\.nodes: missing"):
        read_machine_or_facts(str(file))


def test_every_later_field_is_one_that_facts_have() -> None:
    known = {(kind.__name__, name) for kind in _types(Facts) for name in hints(kind)}
    assert LATER - known == set()


def _types(kind: Any) -> set[type]:
    """Every dataclass that a type reaches."""
    if isinstance(kind, type) and is_dataclass(kind):
        return {kind}.union(*(_types(each) for each in hints(kind).values()))
    return set[type]().union(*(_types(each) for each in get_args(kind)))

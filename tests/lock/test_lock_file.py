"""The lock file: the same bytes for the same machine, other classes untouched, and one line for what cannot be used."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.cli.main import run
from firstlight.diagnosis.finding import Goal
from firstlight.errors import BadInput
from firstlight.lock.drift import Change, drifts
from firstlight.lock.reading import read_lock
from firstlight.lock.stack import Held, Judged, LockedClass, MachineKind, Part, Stack
from firstlight.lock.writing import class_text, with_class
from tests.schemas import fits

MACHINES = Path("tests/machines")
SCHEMAS = Path("src/firstlight/schemas")


def _locked(path: Path, *machines: str, **options: str) -> str:
    for machine in machines:
        more = [word for name, value in options.items() for word in (f"--{name}", value)]
        facts = machine if ":" in machine else str(MACHINES / machine)
        assert run(["lock", "--facts", facts, "--out", str(path), *more]) == 0
    return path.read_text()


def _class(text: str, name: str) -> str:
    found = re.search(rf'(?ms)^\[\[class\]\]\nname = "{re.escape(name)}".*?(?=^\[\[class\]\]|\Z)', text)
    assert found is not None
    return found[0].rstrip("\n")


def test_a_second_class_keeps_the_first_to_the_byte_and_each_machine_has_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "firstlight.lock"
    first = _locked(path, "example:h100-driver-570")
    both = _locked(path, "h200")
    assert _class(both, "sm90-x86_64-r570") == _class(first, "sm90-x86_64-r570")
    assert _locked(path, "example:h100-driver-570", "h200") == both
    other_order = _locked(tmp_path / "other.lock", "h200", "example:h100-driver-570")
    assert other_order == both
    for facts, name in (("example:h100-driver-570", "sm90-x86_64-r570"), (str(MACHINES / "h200"), "sm90-x86_64-r580")):
        capsys.readouterr()
        assert run(["check", "--lock", str(path), "--facts", facts, "--locked", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["class_name"] == name


def test_comments_and_blank_lines_of_other_classes_stay(tmp_path: Path) -> None:
    path = tmp_path / "firstlight.lock"
    text = _locked(path, "example:h100-driver-570").replace("[class.driver]", "# the fleet of 2025\n\n[class.driver]")
    path.write_text(text)
    assert _class(_locked(path, "h200"), "sm90-x86_64-r570") == _class(text, "sm90-x86_64-r570")


def test_no_name_of_a_host_a_user_or_a_device_is_in_it_and_every_fact_has_its_line(tmp_path: Path) -> None:
    text = _locked(tmp_path / "firstlight.lock", "h200")
    assert not re.search(r"GPU-[0-9a-f]{8}|user-a|host-a|/home/", text)
    lines = [line for line in text.splitlines() if " = " in line]
    assert all(re.fullmatch(r'(?:"[^"]+"|[\w-]+) = (?:"[^"]*"|\d+|true|false)', line) for line in lines)
    for table in re.split(r"(?m)^\[.*\]$", text)[2:]:
        keys = [line.partition(" = ")[0].strip('"') for line in table.splitlines() if " = " in line]
        assert keys == sorted(keys)


BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "edited": (lambda text: text.replace('version = "580.159.04"', 'version = "580.178.01"'), "digest"),
    "cut at a line": (lambda text: text[: text.index("[class.libraries]")], "digest"),
    "cut in a line": (lambda text: text[: text.index("sha256:") + 9], "not TOML"),
    "of Windows": (lambda text: text.replace("\n", "\r\n"), "CRLF"),
    "of the future": (lambda text: text.replace("firstlight.lock/1", "firstlight.lock/2"), "Upgrade firstlight"),
    "no lock": (lambda text: text.replace("firstlight.lock/1", "other"), "accepted is firstlight.lock/1"),
    "an unknown part": (lambda text: text.replace("[class.driver]", "[class.drivers]"), "Did you mean driver"),
    "twice": (lambda text: text + text[text.index("[[class]]") :], "twice"),
    "empty": (lambda text: "", "missing"),
    "NUL": (lambda text: text.replace("H200", "H\0200"), "not TOML"),
    "numbers": (lambda text: text.replace('count = "1"', "count = 1"), "text on one line"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("verb", ["check", "lock"])
def test_a_lock_that_cannot_be_used_is_one_line_and_exit_2(
    verb: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "firstlight.lock"
    broken, words = BROKEN[name]
    data = broken(_locked(path, "h200")).encode()
    path.write_bytes(data)
    capsys.readouterr()
    assert run([verb, "--facts", str(MACHINES / "h200"), "--lock" if verb == "check" else "--out", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert words in said.err
    assert path.read_bytes() == data


def test_what_a_torn_lock_says_to_do_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "firstlight.lock"
    words = ["lock", "--facts", "example:h100-driver-570", "--out", str(path)]
    assert run(words) == 0
    for torn in (path.read_text()[:-40], path.read_text().replace("9.0", "9.1", 1)):
        path.write_text(torn)
        capsys.readouterr()
        assert run(["check", "--lock", str(path), "--facts", "example:h100-driver-570"]) == 2
        assert "move it away" in capsys.readouterr().err
        assert run(words) == 2, "a lock that cannot be read is not overwritten"
        path.rename(tmp_path / "away")
        assert run(words) == 0


def test_the_facts_of_another_machine_are_locked_by_those_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock, facts = str(tmp_path / "firstlight.lock"), str(Path(__file__).parents[1] / "machines/h200")
    assert run(["lock", "--facts", facts, "--out", lock]) == 0
    capsys.readouterr()
    run(["check", "--lock", lock, "--facts", facts, "--set", "driver=580.178.01", "--locked"])
    said = capsys.readouterr().out
    words = f"firstlight lock --facts {facts} --set driver=580.178.01 --out {lock} --class sm90-x86_64-r580"
    assert words in " ".join(said.replace("\\\n", " ").split())
    assert "prove it" not in said


def test_bytes_that_are_no_text_a_folder_and_nothing_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "bytes", tmp_path, tmp_path / "none"):
        assert run(["check", "--lock", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_merge_conflict_is_named_with_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "firstlight.lock"
    text = _locked(path, "h200")
    line = next(each for each in text.splitlines() if each.startswith("torch = "))
    theirs = line.replace("2.11.0", "2.10.0")
    path.write_text(text.replace(line, f"<<<<<<< HEAD\n{line}\n=======\n{theirs}\n>>>>>>> upgrade-torch"))
    with pytest.raises(BadInput) as caught:
        read_lock(str(path))
    said = str(caught.value)
    assert f"HEAD has {line}" in said
    assert f"upgrade-torch has {theirs}" in said
    assert "merge conflict" in said


def test_another_kind_of_machine_is_exit_3_and_its_own_class_may_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "firstlight.lock"
    _locked(path, "h200")
    capsys.readouterr()
    other = ["check", "--lock", str(path), "--facts", str(MACHINES / "devices-masked")]
    assert run(other) == 3
    assert capsys.readouterr().err.startswith(f"firstlight: no class of {path} fits this machine (capability 8.9")
    assert run([*other, "--class", "sm90-x86_64-r581"]) == 2
    assert "it has sm90-x86_64-r580." in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--class", "a b"),
        ("--evidence", "x.json"),
        ("--hold",),
        ("--yes",),
        ("--checkout", "/nowhere"),
        ("--out", "/nowhere/firstlight.lock"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = () if "--out" in words else ("--out", str(tmp_path / "firstlight.lock"))
    assert run(["lock", "--facts", str(MACHINES / "h200"), *out, *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_documents_fit_their_schemas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "firstlight.lock")
    facts = str(MACHINES / "h200")
    assert run(["lock", "--facts", facts, "--out", path, "--json"]) == 0
    fits(json.loads(capsys.readouterr().out), json.loads((SCHEMAS / "lock-1.json").read_text()))
    drifted = ("--set", "driver=570.133.20", "--set", "torch.version=2.10.0+cu130")
    assert run(["check", "--lock", path, "--facts", facts, *drifted, "--json", "--junit", f"{path}.xml"]) == 3
    fits(json.loads(capsys.readouterr().out), json.loads((SCHEMAS / "check-1.json").read_text()))
    assert Path(f"{path}.xml").read_text().count("<failure") == 2


def test_the_same_version_with_other_bytes_is_a_drift_and_a_digest_that_nobody_took_is_none() -> None:
    old = Held(Part.COMPAT, "/usr/local/cuda/compat", "580.95.05", "sha256:" + "a" * 64)
    kind = MachineKind("9.0", "x86_64", 580)
    locked = LockedClass("a", kind, Goal.INFER, verified=False, verify="", bench="", held=(old,), findings=())
    [group] = drifts(locked, Stack(kind, (replace(old, digest="sha256:" + "b" * 64),)))
    assert group.drift.change is Change.CONTENT
    assert drifts(locked, Stack(kind, (replace(old, digest=""),))) == ()


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.tuples(st.sampled_from(Part), NAMES), NAMES))
def test_what_is_written_is_what_is_read_back(facts: dict[tuple[Part, str], str]) -> None:
    order = list(Part)
    keys = sorted(facts, key=lambda key: (order.index(key[0]), key[1]))
    locked = LockedClass(
        name="a",
        kind=MachineKind("9.0", "x86_64", 580),
        goal=Goal.INFER,
        verified=True,
        verify="sha256:0",
        bench="",
        held=tuple(Held(part, name, facts[part, name]) for part, name in keys),
        findings=(Judged("compat-stale", "blocks"),),
    )
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="\n") as file:
        file.write(with_class(None, locked))
        file.flush()
        [back] = read_lock(file.name).classes
    assert class_text(back) == class_text(locked)

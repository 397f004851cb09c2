"""The gate that is emitted for a machine lets that machine in, and its near misses not: run by real shells."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import firstlight.examples
from firstlight.emit.subject import Asked, Choices, Subject, subject_of
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.facts.look import Look, look_at
from firstlight.machine.evidence import from_document
from firstlight.machine.recorded import RecordedMachine
from firstlight.plan.request import Request
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import ComputeCapability
from tests.emit.gates_of_kinds import PASSED, asks_of, check_host, on_node
from tests.emit.made_subjects import MACHINES, TABLES, for_machine, for_words
from tests.emit.trees import SHELLS, WSL_SMI, Asking, Root, Smi, Tree, may_change_root, tree_of
from tests.platforms.cases import all_cases, judged

EXAMPLES = tuple(path.stem for path in sorted(Path(firstlight.examples.__file__).parent.glob("*.json")))
KINDS = ("bash", "dockerfile", "devcontainer", "slurm", "ansible", "compose", "k8s")


@dataclass(frozen=True)
class Made:
    """A machine, what files are made of for it, and what it looks like to a gate."""

    name: str
    subject: Subject
    tree: Tree


def _machines() -> Iterator[tuple[str, RecordedMachine, Subject]]:
    """Every machine that files can be made for; of the others emit says why, and writes none."""
    for path in sorted(MACHINES.glob("*/machine.json")):
        with contextlib.suppress(BadInput):
            subject = for_machine(path.parent.name)
            yield path.parent.name, RecordedMachine(from_document(json.loads(path.read_text()), str(path))), subject
    for case in all_cases():
        seen, asked = judged(case.make), Asked(Request())
        with contextlib.suppress(BadInput):
            subject = subject_of(seen.facts, asked, made_for=case.name, tables=TABLES, choices=Choices())
            yield case.name, RecordedMachine(from_document(seen.document, case.name)), subject


def _made() -> Iterator[Made]:
    for name, machine, subject in _machines():
        yield Made(name, subject, tree_of(machine, subject.facts, check_host(subject).text))


def _near_misses(made: Made) -> Iterator[tuple[str, Tree]]:
    """The same machine, one thing other than the gate takes."""
    gates, tree = made.subject.gates, made.tree
    yield "another processor", Tree("riscv64", "", (), None)
    if not isinstance(gates.min_driver_alone, Known):
        return
    floor = gates.min_driver_alone.value.branch
    smi = tree.smi or Smi(("NVIDIA L4",), ("8.9",), "")
    older = max(
        row.branch for row in TABLES.driver_branches if row.branch < floor and row.branch not in gates.compat_branches
    )
    if tree.smi is not None and tree.smi.driver != "[N/A]":
        under = tree.with_driver(tree.smi.driver, f"{older}.54.03")
        yield "a branch too old", under.with_jetson_linux("35.6.0") if under.is_board else under
    unknown = {row.capability for row in TABLES.capabilities} - set(gates.capabilities)
    if gates.capabilities:
        yield "another capability", replace(tree, smi=replace(smi, capabilities=(str(min(unknown)),)))
    if gates.compat_branches and tree.smi is not None:
        compat = tree.with_driver(tree.smi.driver, f"{gates.compat_branches[-1]}.10")
        assert compat.smi is not None
        for name in ("NVIDIA GeForce RTX 4090", "TITAN RTX"):
            yield f"compat for a {name}", replace(compat, smi=replace(compat.smi, names=(name,)))
        yield "compat in WSL", compat.with_file("/dev/dxg", "")


@pytest.mark.skipif(not may_change_root(), reason="needs root, or user namespaces, for a root of its own")
def test_every_machine_is_let_in_by_the_gate_of_every_kind_made_for_it_and_its_near_misses_are_not(
    tmp_path: Path,
) -> None:
    root, expected = Root(tmp_path), list[tuple[Asking, str, str]]()
    for made in _made():
        for asks in asks_of(made.subject, made.tree):
            verdict = "in" if asks.lets_in else "out"
            for shell in SHELLS if asks.kind == "devcontainer" else ("dash",):
                expected.append((Asking(asks.tree, asks.gate, shell), verdict, f"{asks.kind} of {made.name}"))
        gate = check_host(made.subject)
        misses = ((Asking(tree, gate, "dash"), "out", f"{made.name}: {what}") for what, tree in _near_misses(made))
        expected += misses
    for asking, _, _ in expected:
        root.add(asking)
    root.run()
    wrong = [
        f"{name} under {asking.shell}, to be {verdict}: {root.said(asking)[1]}"
        for asking, verdict, name in expected
        if _verdict(root, asking) != verdict
    ]
    assert wrong == []
    let_in = Counter(name.partition(" of ")[0] for _, verdict, name in expected if verdict == "in")
    assert min(let_in[kind] for kind in KINDS) > 100, let_in


def _verdict(root: Root, asking: Asking) -> str:
    """A script that goes on after its gates, and stops for another reason, has let the machine in."""
    verdict, said = root.said(asking)
    return "in" if PASSED in said else verdict


_BOARD = Tree("aarch64", "5.15.148-tegra", (), None)
_WINDOWS = Tree("x86_64", "", (("/dev/dxg", ""),), None)
_SYS = "/sys/module/nvidia/version"


@pytest.mark.skipif(not may_change_root(), reason="needs root, or user namespaces, for a root of its own")
@pytest.mark.parametrize(
    ("tree", "verdict", "says"),
    [
        (_BOARD.with_file(_SYS, "580.00\n"), "in", ""),  # a container, which need not have the board's release file
        (_BOARD.with_file(_SYS, "540.4.0\n"), "out", "driver 540.4.0 is loaded"),
        (_BOARD.with_file(_SYS, "580.00\n").with_jetson_linux("36.5.0"), "out", "needs Jetson Linux 38"),
        (_BOARD.with_jetson_linux("38.2.0"), "in", ""),  # nvgpu has no version to read
        (_WINDOWS, "in", "which driver Windows has; it is not checked"),
        (replace(_WINDOWS, smi=Smi(("NVIDIA L4",), ("8.9",), "577.00", WSL_SMI)), "out", "577.00 is that of Windows"),
        (Tree("x86_64", "", (), None), "out", "no NVIDIA driver, so no GPU"),
    ],
)  # fmt: skip
def test_a_node_is_judged_by_the_rules_of_its_platform(tmp_path: Path, tree: Tree, verdict: str, says: str) -> None:
    made = for_words("Thor, driver 580" if tree.arch == "aarch64" else "L4, driver 580", "torch==2.14.1+cu130")
    root = Root(tmp_path)
    asking = Asking(tree, on_node(made), "dash")
    root.add(asking)
    root.run()
    found, said = root.said(asking)
    assert (found, says in said) == (verdict, True), said
    assert bool(said) == bool(says)


def test_what_is_made_for_a_gpu_in_words_lets_in_that_gpu() -> None:
    """One GPU of every capability that torch is built for, under a driver of CUDA 13 and one of CUDA 12."""
    tried = dict[tuple[ComputeCapability, str], str]()
    for row in TABLES.gpus:
        if row.capability >= ComputeCapability(6, 0) and row.kind is not GpuKind.JETSON and "series" not in row.model:
            for driver in ("570", "580"):
                tried.setdefault((row.capability, driver), f"{row.model}, driver >= {driver}")
    for (capability, driver), words in tried.items():
        gates = for_words(words).gates
        assert capability in gates.capabilities, words
        assert isinstance(gates.min_driver, Known)
        assert gates.min_driver.value.branch <= int(driver), words
    assert len(tried) > 15


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_gate_of_an_example_is_that_of_the_machine_it_was_recorded_on(name: str) -> None:
    facts = look_at(Look(facts_file=f"example:{name}"))
    try:
        expected = for_machine(name).gates
    except BadInput as refused:
        with pytest.raises(BadInput, match=re.escape(str(refused))):
            subject_of(facts, Asked(Request()), made_for=name, tables=TABLES, choices=Choices())
        return
    made = subject_of(facts, Asked(Request()), made_for=name, tables=TABLES, choices=Choices())
    assert made.gates == expected


@pytest.mark.parametrize(("words", "line"), [("Jetson Thor, driver 580", "38"), ("Jetson Thor, driver 595", "39")])
def test_what_is_made_for_a_board_in_words_lets_in_the_board_that_has_that_driver(words: str, line: str) -> None:
    floor = for_words(words).gates.min_l4t
    assert isinstance(floor, Known)
    assert floor.value == line

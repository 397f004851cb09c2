"""The gate that is emitted for a machine lets that machine in, and its near misses not: run by real shells."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from firstlight.emit.devcontainer import emit_devcontainer
from firstlight.emit.gates import Gates
from firstlight.emit.slurm import emit_slurm
from firstlight.emit.subject import Asked, Choices, Subject, subject_of
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.machine.evidence import from_document
from firstlight.machine.recorded import RecordedMachine
from firstlight.plan.request import Request
from tests.emit.made_subjects import MACHINES, TABLES, for_machine, for_words
from tests.emit.subjects import text_of
from tests.emit.trees import SHELLS, WSL_SMI, Root, Smi, Tree, may_change_root, tree_of
from tests.platforms.cases import all_cases, judged


@dataclass(frozen=True)
class Emitted:
    """A machine, what it looks like to a gate, and the gate that is made for it."""

    name: str
    tree: Tree
    gates: Gates
    on_host: str  # check_host.sh of a dev container
    on_node: str  # of a Slurm script; "" where more is needed there


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


def _on_node(subject: Subject) -> str:
    text = emit_slurm(subject).files[0].text
    return text.partition("on_node-$key.sh\" << 'END-OF-FIRSTLIGHT-FILE'\n")[2].partition("END-OF-FIRSTLIGHT-FILE")[0]


def _emitted() -> Iterator[Emitted]:
    for name, machine, subject in _machines():
        facts = subject.facts
        host = text_of(emit_devcontainer(subject), ".devcontainer/check_host.sh")
        # with compat a node has the library too, and one without a driver is refused: test_slurm.py has both
        asks_node = not subject.compat and isinstance(facts.driver.kernel_version, Known)
        yield Emitted(name, tree_of(machine, facts, host), subject.gates, host, _on_node(subject) if asks_node else "")


def _near_misses(made: Emitted) -> Iterator[tuple[str, Tree]]:
    """The same machine, one thing other than the gate takes."""
    gates, tree = made.gates, made.tree
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
def test_every_machine_is_let_in_by_the_gate_made_for_it_and_its_near_misses_are_not(tmp_path: Path) -> None:
    root, expected = Root(tmp_path), {}
    for made in _emitted():
        for shell in SHELLS:
            expected[root.add(made.tree, made.on_host, shell)] = ("in", made.name)
        if made.on_node:
            expected[root.add(made.tree, made.on_node, "dash")] = ("in", f"{made.name} as a node")
        for what, tree in _near_misses(made):
            expected[root.add(tree, made.on_host, "dash")] = ("out", f"{made.name}: {what}")
    found = root.run()
    wrong = [f"{name} under {case[2]}, to be {verdict}: {found[case][1]}"
             for case, (verdict, name) in expected.items() if found[case][0] != verdict]  # fmt: skip
    assert wrong == []
    assert sum(verdict == "in" for verdict, _ in expected.values()) > 150


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
        (replace(_WINDOWS, smi=Smi(("NVIDIA L4",), ("8.9",), "577.00", WSL_SMI)), "out", "driver 577.00 is loaded"),
        (Tree("x86_64", "", (), None), "out", "no NVIDIA driver, so no GPU"),
    ],
)  # fmt: skip
def test_a_node_is_judged_by_the_rules_of_its_platform(tmp_path: Path, tree: Tree, verdict: str, says: str) -> None:
    made = for_words("Thor, driver 580" if tree.arch == "aarch64" else "L4, driver 580", "torch==2.14.1+cu130")
    root = Root(tmp_path)
    case = root.add(tree, _on_node(made), "dash")
    found, said = root.run()[case]
    assert (found, says in said) == (verdict, True), said
    assert bool(said) == bool(says)


@pytest.mark.parametrize(("words", "line"), [("Jetson Thor, driver 580", "38"), ("Jetson Thor, driver 595", "39")])
def test_what_is_made_for_a_board_in_words_lets_in_the_board_that_has_that_driver(words: str, line: str) -> None:
    floor = for_words(words).gates.min_l4t
    assert isinstance(floor, Known)
    assert floor.value == line

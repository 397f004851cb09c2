"""What every kind of file asks of a machine: the gate as it stands in the files, and how it is called there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import yaml

from firstlight.diagnosis.observed import platform
from firstlight.emit.ansible import emit_ansible
from firstlight.emit.bash import emit_bash
from firstlight.emit.compose import emit_compose
from firstlight.emit.containers import is_board
from firstlight.emit.devcontainer import emit_devcontainer
from firstlight.emit.k8s import emit_k8s
from firstlight.emit.slurm import emit_slurm
from firstlight.emit.subject import Subject
from firstlight.facts.known import Known
from firstlight.facts.place import Platform
from tests.emit.subjects import text_of
from tests.emit.trees import Gate, Smi, Tree

IMAGE = "registry.example.com/team/torch:1"
_ENTRYPOINT = "/opt/firstlight/entrypoint.sh"
# pod_setup.sh stops at the next line after its gates in a root that has no mkdir
PASSED = "cannot be made. Mount the volume there"


@dataclass(frozen=True)
class Asks:
    """The gate of a kind, and whether it lets in the machine that it was made for."""

    kind: str
    gate: Gate
    tree: Tree
    lets_in: bool


def asks_of(subject: Subject, tree: Tree) -> Iterator[Asks]:
    """Each kind's own, as somebody meets it who runs these files on that machine."""
    yield Asks("devcontainer", check_host(subject), tree, lets_in=True)
    yield Asks("bash", Gate(text_of(emit_bash(subject), "pod_setup.sh"), ("--no-verify",)), tree, lets_in=True)
    yield Asks("ansible", Gate(text_of(emit_ansible(subject), "files/gates.sh")), tree, lets_in=True)
    composed = emit_compose(subject)
    entrypoint = text_of(composed, "entrypoint.sh")
    yield Asks("dockerfile", Gate(entrypoint, ("true",)), tree, lets_in=True)
    inside = _inside(tree)  # an image whose GPUs are gone is not healthy, whatever its driver is
    lets_in = not subject.gates.asks_for_gpu or is_board(subject) or inside.smi is not None
    [service] = yaml.safe_load(composed.files[0].text)["services"].values()
    program, *words = _command(service["healthcheck"]["test"])
    assert program == "CMD"
    yield Asks("compose", Gate(entrypoint, tuple(words)), inside, lets_in)
    named = replace(subject, choices=replace(subject.choices, image=IMAGE))
    [first] = yaml.safe_load(text_of(emit_k8s(named), "pod.yaml"))["spec"]["initContainers"]
    yield Asks("k8s", Gate(entrypoint, _command(["", *first["command"]])[1:]), inside, lets_in)
    if not subject.compat:  # with it a node has the library too: test_slurm.py has both
        yield Asks("slurm", on_node(subject), tree, lets_in=not subject.gates.asks_for_gpu or _has_driver(subject))


def check_host(subject: Subject) -> Gate:
    return Gate(text_of(emit_devcontainer(subject), ".devcontainer/check_host.sh"))


def on_node(subject: Subject) -> Gate:
    text = emit_slurm(subject).files[0].text
    begin = "on_node-$key.sh\" << 'END-OF-FIRSTLIGHT-FILE'\n"
    return Gate(text.partition(begin)[2].partition("END-OF-FIRSTLIGHT-FILE")[0], ("/no-environment", "true"))


def _command(words: list[Any]) -> tuple[str, ...]:
    """CMD, and what the entrypoint is called with."""
    assert words[1] == _ENTRYPOINT
    return (words[0], *words[2:])


def _inside(tree: Tree) -> Tree:
    """The machine from inside a container: its runtime puts nvidia-smi into PATH, also that of WSL."""
    return tree if tree.smi is None else replace(tree, smi=replace(tree.smi, path=Smi.path))


def _has_driver(subject: Subject) -> bool:
    """Whether the machine has one that a node without a version to read has, too: a Jetson, and WSL."""
    special = platform(subject.facts) in (Platform.JETSON, Platform.WSL2)
    return special or isinstance(subject.facts.driver.kernel_version, Known)

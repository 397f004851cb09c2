"""Read Kubernetes manifests: every container of every pod, with what it gets of GPUs and shared memory."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.errors import BadInput
from firstlight.lint.images import image_named
from firstlight.lint.model import Device, EnvSet, Event, Ran, Service, Target, UserSet
from firstlight.lint.reading import Reading
from firstlight.lint.script import started_by
from firstlight.lint.shell import Simple, simple_commands
from firstlight.lint.yaml_tree import Tree

if TYPE_CHECKING:
    from yaml.nodes import Node

DEEPEST = 20  # a pod lies five keys below a CronJob, and ten below an operator's list of groups
MOST = 500
_GPU = "nvidia.com/gpu"
# Parts of a GPU: MIG, time slices, and those of HAMi, Volcano, Alibaba Cloud and Tencent.
_SHARE = re.compile(
    r"nvidia\.com/(?:mig-|gpu\.|pgpu|vgpu|gpumem|gpucores)|volcano\.sh/v?gpu-|aliyun\.com/gpu|tencent\.com/vcuda"
)
_TEMPLATE = re.compile(r"(?:Runtime|Template)$")  # ClusterTrainingRuntime, PodTemplate
_SHM = "/dev/shm"  # noqa: S108 a name in the user's file


def read_kubernetes(reading: Reading) -> tuple[Target, ...]:
    """Every container as a target."""
    tree = Tree(reading.text, reading.file, reading.syntax)
    seen: set[int] = set()
    found: list[Target] = []
    for document in tree.documents:
        filled_elsewhere = _TEMPLATE.search(tree.get(document, "kind")) is not None
        for pod, starts_others in itertools.islice(_pods(tree, document, seen), MOST):
            targets = tuple(_containers(tree, pod))
            if starts_others:
                targets = tuple(_starting_others(each) for each in targets)
            found += (_given_elsewhere(each) for each in targets) if filled_elsewhere else targets
    if not found and not any(tree.at(each, "apiVersion") is not None for each in tree.documents):
        raise BadInput(
            f"{reading.file}: no apiVersion and no containers in it; accepted: a Kubernetes manifest. Give one."
        )
    return tuple(found)


def _starting_others(target: Target) -> Target:
    return target if target.service is None else replace(target, service=replace(target.service, starts_others=True))


def _given_elsewhere(target: Target) -> Target:
    """A container of a template, which gets its GPUs from what makes use of it."""
    return target if target.service is None else replace(target, service=replace(target.service, gpus=True))


# The keys of the pods that only start others: of a RayCluster, and of an MPIJob.
_STARTS_OTHERS = ("headGroupSpec", "Launcher")


def _pods(
    tree: Tree, node: Node, seen: set[int], depth: int = 0, *, starts_others: bool = False
) -> Iterator[tuple[Node, bool]]:
    """The pod specs in a document: a Pod's own, a Job's template, those in a List, or of an operator's own kind.

    Each node is looked at once: ten lines of aliases can stand for a billion nodes.
    """
    if depth > DEEPEST or id(node) in seen:
        return
    seen.add(id(node))
    if any(tree.at(each, "image") is not None for each in tree.list(tree.at(node, "containers"))):
        yield node, starts_others
        return
    for name, _, value in tree.items(node):
        below = starts_others or name in _STARTS_OTHERS
        yield from _pods(tree, value, seen, depth + 1, starts_others=below)
    for each in tree.list(node):
        yield from _pods(tree, each, seen, depth + 1, starts_others=starts_others)


def _containers(tree: Tree, pod: Node) -> Iterator[Target]:
    for key in ("initContainers", "containers"):
        for container in tree.list(tree.at(pod, key)):
            image = tree.at(container, "image")
            place = tree.place(image if image is not None else container)
            yield Target(
                tree.get(container, "name"),
                image_named(tree.text(image)),
                place,
                tuple(_events(tree, container, pod)),
                service=_service(tree, container, pod),
                starts=tuple(_starts(tree, container)),
            )


def _events(tree: Tree, container: Node, pod: Node) -> Iterator[Event]:
    for variable in tree.list(tree.at(container, "env")):
        value = tree.at(variable, "value")
        if value is not None:
            yield EnvSet(tree.get(variable, "name"), tree.text(value), tree.text(value), tree.place(value))
    for owner in (container, pod):
        user = tree.at(owner, "securityContext", "runAsUser")
        if user is not None:
            yield UserSet(tree.text(user), tree.place(user))
            return


def _starts(tree: Tree, container: Node) -> Iterator[Ran]:
    """What `command` and `args` run; those of a shell are read as a script, line by line where the file has lines."""
    given = [node for key in ("command", "args") for node in tree.each(tree.at(container, key))]
    words = tuple(tree.text(node) for node in given)
    if not words:
        return
    first = Simple(words, tree.place(given[0]).line)
    yield Ran(first, tree.place(given[0]))
    if first.program in ("sh", "bash") and len(given) > 1:
        for command in simple_commands(tree.lines(given[-1])):
            for each in (command, *started_by(command)):
                yield Ran(each, tree.place(given[-1]))
    else:
        yield from (Ran(each, tree.place(given[0])) for each in started_by(first))


def _service(tree: Tree, container: Node, pod: Node) -> Service:
    limits = tree.at(container, "resources", "limits")
    devices, shared = [], tree.at(container, "resources", "claims") is not None
    # A privileged container has all devices of the machine, as NVIDIA's own plugins do.
    shared = shared or tree.get(container, "securityContext", "privileged") == "true"
    for name, key, value in tree.items(limits):
        if name == _GPU and tree.text(value) not in ("", "0"):
            devices.append(Device(("gpu",), tree.text(value), (), tree.place(key)))
        shared = shared or _SHARE.match(name) is not None
    named = tree.key(container, "name")
    return Service(
        tree.get(container, "name") or "container",
        tree.place(named if named is not None else container),
        tuple(devices),
        gpus=shared,
        runtime="nvidia" if "nvidia" in tree.get(pod, "runtimeClassName") else "",
        shm_size=_shm(tree, container, pod),
        ipc="host" if tree.get(pod, "hostIPC") == "true" else "",
    )


def _shm(tree: Tree, container: Node, pod: Node) -> str:
    """How large /dev/shm is by a volume: the limit of an emptyDir in memory; '1g' stands for one without a limit."""
    for mount in tree.list(tree.at(container, "volumeMounts")):
        if tree.get(mount, "mountPath").rstrip("/") != _SHM:
            continue
        for volume in tree.list(tree.at(pod, "volumes")):
            if tree.get(volume, "name") == tree.get(mount, "name"):
                return tree.get(volume, "emptyDir", "sizeLimit") or "1g"
        return "1g"
    return ""

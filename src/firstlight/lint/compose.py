"""Read a compose file: its services, each as an image to run with what the file adds to it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.errors import BadInput
from firstlight.lint.dockerfile import Text, expand
from firstlight.lint.images import image_named
from firstlight.lint.model import Device, EnvSet, Event, Place, Ran, Service, Target, UserSet
from firstlight.lint.reading import Reading
from firstlight.lint.shell import Simple, simple_commands
from firstlight.lint.stages import read_dockerfile
from firstlight.lint.yaml_tree import Tree

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node


def read_compose(reading: Reading) -> tuple[Target, ...]:
    """Every service as a target; the Dockerfiles that it builds are read beside the file where they are there."""
    known = dict(reading.variables)
    tree = Tree(reading.text, reading.file, reading.syntax, expand=lambda text: expand(text, known).replace("$$", "$"))
    services = tree.at(tree.root, "services")
    found = tuple(_service(tree, name, key, value, reading) for name, key, value in tree.items(services))
    if not found:
        raise BadInput(
            f"{reading.file}: no services in it; accepted: a compose file (services: ...). Give one, "
            "or say what it is with --kind."
        )
    return found


def _service(tree: Tree, name: str, key: Node, node: Node, reading: Reading) -> Target:
    place = tree.place(key)
    image, build = tree.at(node, "image"), tree.at(node, "build")
    target = _built(tree, build, reading) if build is not None else None
    if target is None:
        named = tree.text(image) if build is None else ""
        target = Target(name, image_named(named), tree.place(image) if image is not None else place, ())
    events: list[Event] = [*target.events]
    for variable, value, where in tree.pairs(tree.at(node, "environment")):
        events.append(EnvSet(variable, value, value, where))  # it replaces what the image had, $NAME or not
    user = tree.at(node, "user")
    if user is not None:
        events.append(UserSet(tree.text(user), tree.place(user)))
    return replace(
        target,
        name=name,
        events=tuple(events),
        service=_running(tree, name, node, place),
        starts=(*_started(tree, node), *target.starts),
    )


def _started(tree: Tree, node: Node) -> Iterator[Ran]:
    """What `entrypoint` and `command` run: words of a list, or a line of shell."""
    for key in ("entrypoint", "command"):
        given = tree.at(node, key)
        words = tree.texts(given)
        if given is None or not any(words):
            continue
        place = tree.place(given)
        if len(words) > 1:
            yield Ran(Simple(words, place.line), place)
        else:
            # what begins with an option is for the image's own program: an option before a command would be left out
            line = f"entrypoint {words[0]}" if words[0].lstrip().startswith("-") else words[0]
            yield from (Ran(each, place) for each in simple_commands((Text(line, place.line),)))


def _built(tree: Tree, build: Node, reading: Reading) -> Target | None:
    """The image of `build:`, where its Dockerfile can be read."""
    context = tree.text(build) or tree.text(tree.at(build, "context")) or "."
    named = tuple((name, value) for name, value, _ in tree.pairs(tree.at(build, "args")))
    arguments = (*reading.of_platform, *named)
    target = tree.text(tree.at(build, "target"))
    inline = tree.at(build, "dockerfile_inline")
    if inline is not None:
        return read_dockerfile(tree.text(inline), tree.file, target=target, given=arguments)
    name = tree.text(tree.at(build, "dockerfile")) or "Dockerfile"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(tree.file), context, name))
    text = None if "://" in context or "$" in path else reading.read(path)
    return None if text is None else read_dockerfile(text, path, target=target, given=arguments)


def _running(tree: Tree, name: str, node: Node, place: Place) -> Service:
    resources = tree.at(node, "deploy", "resources")
    reserved = tree.at(resources, "reservations", "devices")
    limited = tree.at(resources, "limits", "devices")
    cdi = any("nvidia.com/gpu" in each for each in tree.texts(tree.at(node, "devices")))
    # Swarm's way to ask: a node that is started with --node-generic-resource of that kind gives it.
    swarm = any(
        "gpu" in tree.get(each, "discrete_resource_spec", "kind").lower()
        for each in tree.list(tree.at(resources, "reservations", "generic_resources"))
    )
    return Service(
        name,
        place,
        tuple(_device(tree, each) for each in tree.list(reserved)),
        gpus=cdi or swarm or tree.at(node, "gpus") is not None,
        runtime=tree.text(tree.at(node, "runtime")),
        shm_size=tree.text(tree.at(node, "shm_size")) or _shm_mount(tree, node),
        ipc=tree.text(tree.at(node, "ipc")),
        limits_place=tree.place(limited) if limited is not None and reserved is None else None,
    )


def _device(tree: Tree, node: Node) -> Device:
    return Device(
        tree.texts(tree.at(node, "capabilities")),
        tree.text(tree.at(node, "count")),
        tree.texts(tree.at(node, "device_ids")),
        tree.place(node),
    )


def _shm_mount(tree: Tree, node: MappingNode | Node) -> str:
    """'1g' where /dev/shm is mounted by `volumes` or `tmpfs`: how large it is then is not for us to say."""
    mounted = (*tree.texts(tree.at(node, "tmpfs")), *tree.texts(tree.at(node, "volumes")))
    for item in tree.list(tree.at(node, "volumes")):
        mounted = (*mounted, tree.text(tree.at(item, "target")))
    return "1g" if any("/dev/shm" in each for each in mounted) else ""  # noqa: S108 a name in the user's file

"""Read devcontainer.json: the image or the Dockerfile, what it is run with, and the commands that fill it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.errors import BadInput
from firstlight.lint.compose import read_compose
from firstlight.lint.dockerfile import Text
from firstlight.lint.images import Image, image_named
from firstlight.lint.jsonc import plain_json
from firstlight.lint.model import EnvSet, Event, Joined, Place, Ran, Syntax, Target, UserSet, Where
from firstlight.lint.reading import Reading, plain_service
from firstlight.lint.run_options import variables, with_run_options
from firstlight.lint.script import script_events
from firstlight.lint.shell import Simple
from firstlight.lint.stages import read_dockerfile
from firstlight.lint.yaml_tree import Tree

if TYPE_CHECKING:
    from yaml.nodes import Node

# In the order in which they run; all of them in the container, where the GPU is.
_COMMANDS = ("onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand")


def read_devcontainer(reading: Reading) -> tuple[Target, ...]:
    """The container as it is built, and the same with what its commands install once it runs."""
    tree = Tree(plain_json(reading.text, reading.file, reading.syntax.value), reading.file, reading.syntax)
    root = tree.root
    assert root is not None, reading.file
    composed = _composed(tree, root, reading)
    target = composed or _built(tree, root, reading) or _named(tree, root)
    service = target.service or plain_service("devcontainer", target.place)
    if composed is None:
        words = tree.texts(tree.at(root, "runArgs"))
        service = with_run_options(replace(service, place=_place(tree, root), joined=_joined(tree, root)), words)
        target = replace(target, events=(*target.events, *_events(tree, root, words)))
    service = replace(service, gpus=service.gpus or _asks_for_gpu(tree, root))
    built = replace(target, name="", service=service)
    commands = tuple(_commands(tree, root))
    if not commands:
        return (built,)
    ran = tuple(each for each in commands if isinstance(each, Ran))
    filled = replace(built, events=(*built.events, *commands), starts=(*built.starts, *ran), where=Where.MACHINE)
    return (filled,) if not any(isinstance(each, Ran) for each in built.events) else (built, filled)


def _joined(tree: Tree, root: Node) -> Joined | None:
    for each in tree.each(tree.at(root, "runArgs")):
        if re.match(r"--?[a-z-]+ ", tree.text(each)):
            return Joined(tree.text(each), tree.place(each))
    return None


def _place(tree: Tree, root: Node) -> Place:
    key = next((each for name in ("image", "build", "dockerFile") if (each := tree.key(root, name)) is not None), root)
    return tree.place(key)


def _named(tree: Tree, root: Node) -> Target:
    image = tree.at(root, "image")
    if image is None and all(tree.at(root, key) is None for key in ("build", "dockerFile", "dockerComposeFile")):
        raise BadInput(
            f"{tree.file}: names no image, no build and no dockerComposeFile; accepted: a devcontainer.json. Name one."
        )
    found = image_named(tree.text(image))
    return Target("", _with_python(tree, root, found), _place(tree, root), ())


def _with_python(tree: Tree, root: Node, image: Image) -> Image:
    """The image with the Python that a feature brings, or that the tag of the devcontainers' own images names."""
    match = re.match(r"(?:\d+(?:\.\d+)*-)?(3\.\d+)", image.tag) if image.repository.endswith("/python") else None
    python = match.group(1) if match is not None else image.python
    for name, _, value in tree.items(tree.at(root, "features")):
        if re.search(r"/python(?::|$)", name):
            version = re.match(r"3\.\d+", tree.get(value, "version"))
            return replace(image, python=version.group() if version is not None else "", has_python=True, system="")
    return replace(image, python=python)


def _built(tree: Tree, root: Node, reading: Reading) -> Target | None:
    build = tree.at(root, "build")
    name = tree.get(build, "dockerfile") or tree.get(root, "dockerFile")
    if not name:
        return None
    path = reading.path(name)
    text = reading.read(path)
    if text is None:
        return None
    arguments = tuple((name, value) for name, value, _ in tree.pairs(tree.at(build, "args")))
    given = (*reading.of_platform, *arguments, *reading.variables)
    return read_dockerfile(text, path, target=tree.get(build, "target"), given=given)


def _composed(tree: Tree, root: Node, reading: Reading) -> Target | None:
    """The service of the compose file that it names, which has its GPUs from there."""
    wanted = tree.get(root, "service")
    for name in tree.texts(tree.at(root, "dockerComposeFile")):
        path = reading.path(name)
        text = reading.read(path)
        if text is not None:
            other = replace(reading, file=path, text=text, syntax=Syntax.COMPOSE)
            found = [each for each in read_compose(other) if each.name == wanted]
            if found:
                return found[0]
    return None


def _asks_for_gpu(tree: Tree, root: Node) -> bool:
    """Whether hostRequirements.gpu asks: devcontainers/cli then adds --gpus all, or a reservation to a service."""
    gpu = tree.at(root, "hostRequirements", "gpu")
    return gpu is not None and tree.text(gpu) != "false"


def _events(tree: Tree, root: Node, words: tuple[str, ...]) -> Iterator[Event]:
    for name, value, place in (*tree.pairs(tree.at(root, "containerEnv")), *tree.pairs(tree.at(root, "remoteEnv"))):
        yield EnvSet(name, value, value, place)
    for name, value in variables(words):
        arguments = tree.key(root, "runArgs")
        yield EnvSet(name, value, value, tree.place(arguments if arguments is not None else root))
    user = tree.at(root, "remoteUser") or tree.at(root, "containerUser")
    if user is not None:
        yield UserSet(tree.text(user), tree.place(user))


def _commands(tree: Tree, root: Node) -> Iterator[Event]:
    known: dict[str, str] = {}
    for name in _COMMANDS:
        given = tree.at(root, name)
        nodes = [given, *(value for _, _, value in tree.items(given))] if given is not None else []
        for node in nodes:
            if words := tuple(tree.text(each) for each in tree.list(node)):
                yield Ran(Simple(words, tree.place(node).line), tree.place(node))
            elif text := tree.text(node):
                yield from script_events((Text(text, tree.place(node).line),), tree.file, tree.syntax, known)

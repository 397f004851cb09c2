"""Read a compose file: its services, each as an image to run with what the file adds to it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Union

from firstlight.errors import BadInput
from firstlight.lint.dockerfile import expand
from firstlight.lint.images import image_named
from firstlight.lint.model import Device, EnvSet, Event, Place, Service, Target, UserSet
from firstlight.lint.stages import read_dockerfile

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node

# Text of a file beside the compose file by its path, or None where it cannot be read.
ReadFile = Callable[[str], Union[str, None]]
DEEPEST_MERGE = 8  # a file of a few lines can ask for millions of merges, or for one without an end
_NESTED_TOO_DEEPLY = "nested too deeply to be a compose file"


class _Tree:
    """A YAML document with lines: what lies at a key, anchors and merge keys resolved, nothing constructed."""

    def __init__(self, text: str, file: str, variables: dict[str, str]) -> None:
        import yaml

        self.file, self.variables = file, variables
        try:
            self.root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
            raise BadInput(f"{file}:{line}: not YAML: {error.problem}. Give a compose file that parses.") from None
        except yaml.YAMLError as error:
            raise BadInput(f"{file}: not YAML: {' '.join(str(error).split())}") from None
        except RecursionError:
            raise BadInput(f"{file}: {_NESTED_TOO_DEEPLY}") from None

    def items(self, node: Node | None, depth: int = 0) -> Iterator[tuple[str, Node, Node]]:
        """Key, key's node and value of a mapping; what is merged in with << comes first, so that own keys win."""
        import yaml

        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            if key.value == "<<":
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if depth >= DEEPEST_MERGE:
                    raise BadInput(f"{self.file}:{key.start_mark.line + 1}: merge keys (<<) {_NESTED_TOO_DEEPLY}")
                for each in merged:
                    yield from self.items(each, depth + 1)
        for key, value in node.value:
            if isinstance(key.value, str) and key.value != "<<":
                yield key.value, key, value

    def at(self, node: Node | None, *path: str) -> Node | None:
        """The node below a path of keys, or None."""
        for name in path:
            node = {key: value for key, _, value in self.items(node)}.get(name)
        return node

    def text(self, node: Node | None) -> str:
        """A scalar with its variables put in; '' for anything else."""
        import yaml

        if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
            return ""
        return expand(node.value, self.variables).replace("$$", "$")

    def texts(self, node: Node | None) -> tuple[str, ...]:
        return tuple(self.text(each) for each in self.each(node))

    def each(self, node: Node | None) -> tuple[Node, ...]:
        """The items of a list; one scalar is a list of itself."""
        import yaml

        if isinstance(node, yaml.SequenceNode):
            return tuple(node.value)
        return (node,) if isinstance(node, yaml.ScalarNode) else ()

    def place(self, node: Node) -> Place:
        return Place(self.file, node.start_mark.line + 1)

    def pairs(self, node: Node | None) -> Iterator[tuple[str, str, Place]]:
        """NAME, value and line of `environment` or `args`, which are a map or a list of NAME=value."""
        import yaml

        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                name, equals, value = self.text(item).partition("=")
                if equals:
                    yield name, value, self.place(item)
        for name, key, content in self.items(node):
            yield name, self.text(content), self.place(key)


def read_compose(text: str, file: str, *, read: ReadFile, variables: dict[str, str]) -> tuple[Target, ...]:
    """Every service as a target; the Dockerfiles that it builds are read beside the file where they are there."""
    tree = _Tree(text, file, variables)
    services = tree.at(tree.root, "services")
    found = tuple(_service(tree, name, key, value, read) for name, key, value in tree.items(services))
    if not found:
        raise BadInput(
            f"{file}: no services in it; accepted: a compose file (services: ...) or a Dockerfile. Give one of these."
        )
    return found


def _service(tree: _Tree, name: str, key: Node, node: Node, read: ReadFile) -> Target:
    place = tree.place(key)
    image, build = tree.at(node, "image"), tree.at(node, "build")
    target = _built(tree, build, read) if build is not None else None
    if target is None:
        named = tree.text(image) if build is None else ""
        target = Target(name, image_named(named), tree.place(image) if image is not None else place, ())
    events: list[Event] = [*target.events]
    for variable, value, where in tree.pairs(tree.at(node, "environment")):
        events.append(EnvSet(variable, value, value, where))  # it replaces what the image had, $NAME or not
    user = tree.at(node, "user")
    if user is not None:
        events.append(UserSet(tree.text(user), tree.place(user)))
    return replace(target, name=name, events=tuple(events), service=_running(tree, name, node, place))


def _built(tree: _Tree, build: Node, read: ReadFile) -> Target | None:
    """The image of `build:`, where its Dockerfile can be read."""
    context = tree.text(build) or tree.text(tree.at(build, "context")) or "."
    arguments = tuple((name, value) for name, value, _ in tree.pairs(tree.at(build, "args")))
    target = tree.text(tree.at(build, "target"))
    inline = tree.at(build, "dockerfile_inline")
    if inline is not None:
        return read_dockerfile(tree.text(inline), tree.file, target=target, given=arguments)
    name = tree.text(tree.at(build, "dockerfile")) or "Dockerfile"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(tree.file), context, name))
    text = None if "://" in context or "$" in path else read(path)
    return None if text is None else read_dockerfile(text, path, target=target, given=arguments)


def _running(tree: _Tree, name: str, node: Node, place: Place) -> Service:
    resources = tree.at(node, "deploy", "resources")
    reserved = tree.at(resources, "reservations", "devices")
    limited = tree.at(resources, "limits", "devices")
    cdi = any("nvidia.com/gpu" in each for each in tree.texts(tree.at(node, "devices")))
    return Service(
        name,
        place,
        tuple(_device(tree, each) for each in _items_of(reserved)),
        gpus=cdi or tree.at(node, "gpus") is not None,
        runtime=tree.text(tree.at(node, "runtime")),
        shm_size=tree.text(tree.at(node, "shm_size")) or _shm_mount(tree, node),
        ipc=tree.text(tree.at(node, "ipc")),
        limits_place=tree.place(limited) if limited is not None and reserved is None else None,
    )


def _items_of(node: Node | None) -> tuple[Node, ...]:
    import yaml

    return tuple(node.value) if isinstance(node, yaml.SequenceNode) else ()


def _device(tree: _Tree, node: Node) -> Device:
    return Device(
        tree.texts(tree.at(node, "capabilities")),
        tree.text(tree.at(node, "count")),
        tree.texts(tree.at(node, "device_ids")),
        tree.place(node),
    )


def _shm_mount(tree: _Tree, node: MappingNode | Node) -> str:
    """'1g' where /dev/shm is mounted by `volumes` or `tmpfs`: how large it is then is not for us to say."""
    mounted = (*tree.texts(tree.at(node, "tmpfs")), *tree.texts(tree.at(node, "volumes")))
    for item in _items_of(tree.at(node, "volumes")):
        mounted = (*mounted, tree.text(tree.at(item, "target")))
    return "1g" if any("/dev/shm" in each for each in mounted) else ""  # noqa: S108 a name in the user's file

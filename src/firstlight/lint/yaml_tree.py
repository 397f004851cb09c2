"""A YAML document with lines: what lies at a key, anchors and merge keys resolved, nothing constructed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from firstlight.errors import BadInput
from firstlight.lint.dockerfile import Text
from firstlight.lint.model import Place, Syntax

if TYPE_CHECKING:
    from yaml.nodes import Node

DEEPEST_MERGE = 8  # a file of a few lines can ask for millions of merges, or for one without an end


def is_yaml(text: str) -> bool:
    """Whether a text parses as YAML."""
    try:
        Tree(text, "", Syntax.COMPOSE)
    except BadInput:
        return False
    return True


class Tree:
    """All documents of a file; `expand` puts in the variables that a kind of file knows."""

    def __init__(self, text: str, file: str, syntax: Syntax, *, expand: Callable[[str], str] = str) -> None:
        import yaml

        self.file, self.syntax, self.expand, self.source = file, syntax, expand, text
        self.deep = f"nested too deeply to be a {syntax.value}"
        try:
            self.documents = tuple(each for each in yaml.compose_all(text, Loader=yaml.SafeLoader) if each is not None)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
            given = "Give one that parses."
            if "{{" in text:
                given = f"It looks like a template; give the {syntax.value} that comes of it, e.g. by `helm template`."
            raise BadInput(f"{file}:{line}: not YAML: {error.problem}. {given}") from None
        except yaml.YAMLError as error:
            raise BadInput(f"{file}: not YAML: {' '.join(str(error).split())}") from None
        except (RecursionError, ValueError) as error:
            raise BadInput(f"{file}: {self.deep if isinstance(error, RecursionError) else error}") from None

    @property
    def root(self) -> Node | None:
        return self.documents[0] if self.documents else None

    def items(self, node: Node | None, depth: int = 0) -> Iterator[tuple[str, Node, Node]]:
        """Key, key's node and value of a mapping; what is merged in with << comes first, so that own keys win."""
        import yaml

        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            if key.value == "<<":
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if depth >= DEEPEST_MERGE:
                    raise BadInput(f"{self.file}:{key.start_mark.line + 1}: merge keys (<<) {self.deep}")
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

    def key(self, node: Node | None, name: str) -> Node | None:
        """The node of a key itself, for its line."""
        return {key: each for key, each, _ in self.items(node)}.get(name)

    def text(self, node: Node | None) -> str:
        """A scalar with its variables put in; '' for anything else."""
        import yaml

        if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
            return ""
        return self.expand(node.value)

    def get(self, node: Node | None, *path: str) -> str:
        """The text below a path of keys; '' where there is none."""
        return self.text(self.at(node, *path))

    def texts(self, node: Node | None) -> tuple[str, ...]:
        return tuple(self.text(each) for each in self.each(node))

    def each(self, node: Node | None) -> tuple[Node, ...]:
        """The items of a list; one scalar is a list of itself."""
        import yaml

        return (node,) if isinstance(node, yaml.ScalarNode) else self.list(node)

    def list(self, node: Node | None) -> tuple[Node, ...]:
        """The items of a list; () of anything else."""
        import yaml

        return tuple(node.value) if isinstance(node, yaml.SequenceNode) else ()

    def place(self, node: Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, self.syntax)

    def pairs(self, node: Node | None) -> Iterator[tuple[str, str, Place]]:
        """NAME, value and line of `environment` or `args`, which are a map or a list of NAME=value."""
        for item in self.list(node):
            name, equals, value = self.text(item).partition("=")
            if equals:
                yield name, value, self.place(item)
        for name, key, content in self.items(node):
            yield name, self.text(content), self.place(key)

    def lines(self, node: Node) -> tuple[Text, ...]:
        """A scalar line by line, each with its line in the file: of a block (|, >) those below the sign."""
        import yaml

        if not isinstance(node, yaml.ScalarNode):
            return ()
        first = node.start_mark.line + 1
        if node.style not in ("|", ">"):
            return (Text(self.text(node) + "\n", first),)
        block = self.source[node.start_mark.index : node.end_mark.index].splitlines()[1:]
        joint = "\n" if node.style == "|" else " "  # a folded block is one line
        return tuple(Text(self.expand(line.strip()) + joint, first + number) for number, line in enumerate(block, 1))

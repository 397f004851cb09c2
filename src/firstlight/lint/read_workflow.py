"""Read a GitHub workflow: each job with its runner, its container and services, and what its steps run."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.errors import BadInput
from firstlight.lint.dockerfile import Text
from firstlight.lint.images import image_named
from firstlight.lint.model import EnvSet, Event, Ran, Service, Target, Where
from firstlight.lint.reading import Reading, plain_service
from firstlight.lint.run_options import with_run_options
from firstlight.lint.script import script_events
from firstlight.lint.yaml_tree import Tree

if TYPE_CHECKING:
    from yaml.nodes import Node

MOST_OF_MATRIX = 16
MOST_TARGETS = 200
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_SETUP_PYTHON = re.compile(r"(?:^|/)(?:setup-python|setup-miniconda|setup-uv|setup-micromamba)@")


class _Job:
    """A job with one choice of its matrix: texts have the expressions put in that the file knows."""

    def __init__(self, tree: Tree, name: str, key: Node, node: Node, known: dict[str, str]) -> None:
        self.tree, self.name, self.node, self.known = tree, name, node, known
        runs = tree.key(node, "runs-on")
        self.place = tree.place(runs if runs is not None else key)

    def text(self, text: str) -> str:
        """${{ matrix.cuda }} as its value; one that is not known stands without blanks, so that it stays one word."""
        return _EXPRESSION.sub(
            lambda match: self.known.get(match[1].replace(" ", ""), "${" + re.sub(r"\W+", "_", match[1]) + "}"), text
        )

    def get(self, node: Node | None, *path: str) -> str:
        return self.text(self.tree.get(node, *path))


def read_workflow(reading: Reading) -> tuple[Target, ...]:
    """Each job as a target, for each choice of a small matrix, and each service beside it as one."""
    tree = Tree(reading.text, reading.file, reading.syntax)
    jobs = list(tree.items(tree.at(tree.root, "jobs")))
    if not jobs:
        raise BadInput(f"{reading.file}: no jobs in it; accepted: a GitHub workflow (on: and jobs:). Give one.")
    found: list[Target] = []
    outer = {f"env.{name}": value for name, value, _ in tree.pairs(tree.at(tree.root, "env"))}
    outer.update((f"inputs.{name}", value) for name, value in _inputs(tree))
    for name, key, node in jobs:
        for choice in _choices(tree, tree.at(node, "strategy", "matrix")):
            known = {**outer, **{f"env.{each}": value for each, value, _ in tree.pairs(tree.at(node, "env"))}, **choice}
            job = _Job(tree, name, key, node, known)
            found += [_target(job), *_services(job)]
    return tuple(found[:MOST_TARGETS])


def _inputs(tree: Tree) -> Iterator[tuple[str, str]]:
    """The defaults of what a workflow may be called with."""
    for how in ("workflow_dispatch", "workflow_call"):
        for name, _, value in tree.items(tree.at(tree.root, "on", how, "inputs")):
            if default := tree.get(value, "default"):
                yield name, default


def _choices(tree: Tree, matrix: Node | None) -> list[dict[str, str]]:
    """The choices of a matrix: the product of its lists, and what `include` adds; [{}] where there is none."""
    lists: list[list[tuple[str, str]]] = []
    for name, _, value in tree.items(matrix):
        if name not in ("include", "exclude") and (items := tree.list(value)):
            lists.append([pair for item in items for pair in [(f"matrix.{name}", tree.text(item))]])
    product = [dict(each) for each in itertools.islice(itertools.product(*lists), MOST_OF_MATRIX)] if lists else []
    included = [
        {f"matrix.{name}": tree.text(value) for name, _, value in tree.items(item)}
        for item in tree.list(tree.at(matrix, "include"))[:MOST_OF_MATRIX]
    ]
    if not product:
        return included or [{}]
    for extra in included:
        same = [each for each in product if all(each.get(key, value) == value for key, value in extra.items())]
        product = [{**each, **extra} if each in same else each for each in product] if same else [*product, extra]
    return product[:MOST_OF_MATRIX]


def _target(job: _Job) -> Target:
    tree = job.tree
    container = tree.at(job.node, "container")
    image = tree.at(container, "image") if tree.text(container) == "" else container
    base = image_named(job.text(tree.text(image)))
    events = tuple(_events(job))
    python = next((value for name, value in job.known.items() if name == "setup.python"), "")
    if python:
        base = replace(base, python=python, has_python=True, system="")
    return Target(
        job.name,
        base,
        tree.place(image) if image is not None else job.place,
        events,
        service=_service(job, container),
        starts=tuple(each for each in events if isinstance(each, Ran)),
        where=Where.RUNNER,
    )


def _service(job: _Job, container: Node | None) -> Service:
    tree = job.tree
    runs_on = tree.at(job.node, "runs-on")
    labels = [*tree.texts(runs_on), *tree.texts(tree.at(runs_on, "labels")), *tree.texts(tree.at(runs_on, "group"))]
    service = replace(plain_service(job.name, job.place), ipc="host", runs_on=tuple(job.text(each) for each in labels))
    return with_run_options(service, _words(job.get(container, "options")))


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def _events(job: _Job) -> Iterator[Event]:
    """The variables of workflow, job and steps, and what the steps run, in order."""
    tree = job.tree
    shell = {name[4:]: value for name, value in job.known.items() if name.startswith("env.")}
    for owner in (tree.root, job.node, tree.at(job.node, "container")):
        for name, value, place in tree.pairs(tree.at(owner, "env")):
            yield EnvSet(name, job.text(value), value, place)
    for step in tree.list(tree.at(job.node, "steps")):
        for name, value, place in tree.pairs(tree.at(step, "env")):
            yield EnvSet(name, job.text(value), value, place)
        if _SETUP_PYTHON.search(tree.get(step, "uses")):
            version = re.match(r"3\.\d+", job.get(step, "with", "python-version"))
            if version is not None:
                job.known["setup.python"] = version.group()
        run = tree.at(step, "run")
        if run is not None:
            lines = tuple(Text(job.text(line.text), line.line) for line in tree.lines(run))
            yield from script_events(lines, tree.file, tree.syntax, shell)


def _services(job: _Job) -> Iterator[Target]:
    """The services beside a job, and the images that its steps run as docker://."""
    tree = job.tree
    for name, key, node in tree.items(tree.at(job.node, "services")):
        service = with_run_options(plain_service(name, tree.place(key)), _words(job.get(node, "options")))
        image = tree.at(node, "image") or node
        yield Target(
            name, image_named(job.text(tree.text(image))), tree.place(image), (), service=service, where=Where.RUNNER
        )
    for step in tree.list(tree.at(job.node, "steps")):
        uses = tree.at(step, "uses")
        if uses is not None and tree.text(uses).startswith("docker://"):
            image_name = job.text(tree.text(uses)).removeprefix("docker://")
            service = replace(plain_service(job.name, tree.place(uses)), runs_on=_service(job, None).runs_on)
            yield Target(job.name, image_named(image_name), tree.place(uses), (), service=service, where=Where.RUNNER)

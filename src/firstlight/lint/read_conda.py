"""Read environment.yml: conda's packages, then those of its pip part."""

from __future__ import annotations

from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.lint.conda_spec import conda_named
from firstlight.lint.dockerfile import Text
from firstlight.lint.model import EnvSet, Event, Install, ProjectAsked, Target
from firstlight.lint.read_requirements import Listing, add_line, logical_lines
from firstlight.lint.read_uv_lock import python_fixed
from firstlight.lint.reading import Reading
from firstlight.lint.yaml_tree import Tree


def read_conda(reading: Reading) -> tuple[Target, ...]:
    """The environment as one target: conda installs first, pip on top of it."""
    tree = Tree(reading.text, reading.file, reading.syntax)
    listed = tree.list(tree.at(tree.root, "dependencies"))
    if not listed:
        raise BadInput(
            f"{reading.file}: no list of dependencies in it; accepted: a conda environment (dependencies:). Give one."
        )
    conda: list[ProjectAsked] = []
    pip = Listing()
    for item in listed:
        conda += (replace(each, place=tree.place(item)) for each in conda_named(tree.text(item)))
        for line in tree.list(tree.at(item, "pip")):
            for text in logical_lines(tree.text(line)):
                add_line(pip, Text(text.text, tree.place(line).line), reading)
    python = next((python_fixed(each.spec) for each in conda if each.project == "python"), "")
    installs: list[Install] = []
    if conda:
        listing = reading.listed(*conda, line=tree.place(listed[0]).line)
        channels = tuple(tree.text(each) for each in tree.list(tree.at(tree.root, "channels")))
        channels = tuple(each for each in channels if each != "nodefaults")
        installs.append(replace(listing, tool="conda", python=python, extra_indexes=channels))
    if pip.requirements or pip.unread:
        installs.append(replace(pip.install(reading), python=python))
    variables = tree.pairs(tree.at(tree.root, "variables"))
    events: list[Event] = [*installs, *(EnvSet(name, value, value, place) for name, value, place in variables)]
    return (replace(reading.packages(), events=tuple(events)),)

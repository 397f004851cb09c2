"""A justfile to the lines behind a recipe: dependencies, shebangs; what stands in braces is a hole."""

from __future__ import annotations

import re

from firstlight.frozen import dataclass
from firstlight.guard.call import HOLE

NAMES = ("justfile", "Justfile", "JUSTFILE", ".justfile")
_RECIPE = re.compile(r"@?([A-Za-z_][\w-]*)((?:\s+[^:=]+)?)\s*:(?!=)\s*(.*)")
_ALIAS = re.compile(r"alias\s+([\w-]+)\s*:=\s*([\w-]+)\s*")
_BRACES = re.compile(r"\{\{.*?\}\}")
_BACKTICKS = re.compile(r"`([^`]*)`")


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    needs: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Justfile:
    recipes: tuple[Recipe, ...]
    aliases: tuple[tuple[str, str], ...]
    at_once: tuple[str, ...]  # commands in backticks of assignments


def parse_justfile(text: str) -> Justfile:
    """The recipes of a justfile, e.g. deps with its lines."""
    recipes: list[Recipe] = []
    aliases: list[tuple[str, str]] = []
    at_once: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line[:1] in (" ", "\t"):
            if recipes and line.strip():
                last = recipes[-1]
                recipes[-1] = Recipe(last.name, last.needs, (*last.lines, _BRACES.sub(HOLE, line.strip())))
        elif found := _ALIAS.fullmatch(line):
            aliases.append((found[1], found[2]))
        elif found := _RECIPE.fullmatch(line.split(" #")[0].rstrip()):
            needs = tuple(re.findall(r"[A-Za-z_][\w-]*", found[3]))
            recipes.append(Recipe(found[1], needs, ()))
        elif ":=" in line and not line.startswith("#"):
            at_once += _BACKTICKS.findall(line)
    return Justfile(tuple(recipes), tuple(aliases), tuple(at_once))


def behind(made: Justfile, targets: list[str]) -> list[Recipe]:
    """The recipes of the targets and all that they need; the first one where no target is given."""
    waiting = list(targets or [each.name for each in made.recipes[:1]])
    found: list[Recipe] = []
    while waiting and len(found) < 200:
        name = dict(made.aliases).get(waiting[0], waiting[0])
        waiting.pop(0)
        for each in made.recipes:
            if each not in found and (each.name == name or HOLE in name):
                found.append(each)
                waiting += each.needs
    return found

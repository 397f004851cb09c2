"""A Makefile to the recipes behind a target: variables, prerequisites, includes; functions of make are holes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from firstlight.frozen import dataclass
from firstlight.guard.call import HOLE

NAMES = ("GNUmakefile", "makefile", "Makefile")
_BUILT_IN = {"MAKE": "make", "CC": "cc", "CXX": "g++", "RM": "rm -f", "AR": "ar", "SHELL": "/bin/sh", "LD": "ld"}
_VARIABLE = re.compile(r"(?:export\s+|override\s+)*([\w.%-]+)\s*(::?=|\?=|\+=|!=|=)\s*(.*)", re.S)
_RULE = re.compile(r"([^\t#:=][^:=#]*)::?(?!=)\s*([^;]*?)(?:;(.*))?$", re.S)
_REFERENCE = re.compile(r"\$(?:\(([^()$]*)\)|\{([^{}$]*)\}|([@<^+?*%])|(\w))")
_SHELL = re.compile(r"\$\(shell\s+((?:[^()]|\([^()]*\))*)\)")
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class MakeRule:
    targets: tuple[str, ...]
    needs: tuple[str, ...]
    recipe: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Makefile:
    rules: tuple[MakeRule, ...]
    at_once: tuple[str, ...]  # commands that make runs while it reads: $(shell ...) and !=


def parse_makefile(
    text: str, given: Mapping[str, str], env: Mapping[str, str], file: Callable[[str], str | None]
) -> Makefile:
    """The rules of a Makefile with its variables put in."""
    variables = {**_BUILT_IN, **env, "SHELL": "/bin/sh"}
    at_once: list[str] = []
    rules: list[MakeRule] = []
    for line, recipe in _lines(text, file, 0):
        at_once += [_filled(found, {**variables, **given}) for found in _SHELL.findall(line)]
        if setting := _VARIABLE.fullmatch(line):
            _set(variables, setting, at_once)
            continue
        full = _filled(line, {**variables, **given})
        if rule := _RULE.match(full):
            after = () if rule[3] is None else (rule[3],)
            rules.append(MakeRule(tuple(rule[1].split()), tuple(rule[2].replace("|", " ").split()), (*after, *recipe)))
    everything = {**variables, **given}
    shells = [_filled(found, everything) for rule in rules for line in rule.recipe for found in _SHELL.findall(line)]
    filled = tuple(
        MakeRule(rule.targets, rule.needs, tuple(_filled(line, everything, rule) for line in rule.recipe))
        for rule in rules
    )
    odd = (
        (everything["SHELL"],)
        if everything["SHELL"] not in ("/bin/sh", "/bin/bash", "bash", "sh", "/usr/bin/bash")
        else ()
    )
    return Makefile(filled, (*at_once, *shells, *odd))


def _set(variables: dict[str, str], found: re.Match[str], at_once: list[str]) -> None:
    name, how, value = found[1], found[2], found[3].split(" #")[0].strip()
    if how == "!=":
        at_once.append(_filled(value, variables))
        variables[name] = HOLE
    elif how == "?=" and name in variables:
        return
    elif how == "+=":
        variables[name] = f"{variables.get(name, '')} {value}"
    else:
        variables[name] = _filled(value, variables) if how.startswith(":") else value


def _lines(text: str, file: Callable[[str], str | None], depth: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Logical lines, each with the recipe lines under it."""
    lines = text.replace("\\\r\n", "\\\n").split("\n")
    joined: list[str] = []
    while lines:
        line = lines.pop(0)
        while line.endswith("\\") and lines:
            line = line[:-1] + " " + lines.pop(0).lstrip("\t")
        joined.append(line.rstrip("\r"))
    at = 0
    while at < len(joined):
        line = joined[at]
        at += 1
        recipe = []
        while at < len(joined) and (joined[at].startswith("\t") or not joined[at].strip()):
            if joined[at].strip():
                recipe.append(joined[at][1:])
            at += 1
        words = line.split()
        if words[:1] and words[0] in ("include", "-include", "sinclude") and depth < 4:
            for name in words[1:]:
                if (more := file(name)) is not None:
                    yield from _lines(more, file, depth + 1)
        elif line.strip() and not line.startswith("#"):
            yield line, tuple(recipe)


def _filled(text: str, variables: Mapping[str, str], rule: MakeRule | None = None) -> str:
    text = text.replace("$$", "\x00")
    for _ in range(_DEEPEST):
        new = _REFERENCE.sub(lambda found: _one(found, variables, rule), text)
        if new == text:
            break
        text = new
    return text.replace("\x00", "$")


def _one(found: re.Match[str], variables: Mapping[str, str], rule: MakeRule | None) -> str:
    name = (found[1] or found[2] or found[3] or found[4] or "").strip()
    if name in ("@", "@D", "@F", "*"):
        return rule.targets[0] if rule and rule.targets else HOLE
    if name in ("<", "^", "+", "?", "<D", "^D"):
        return " ".join(rule.needs[:1] if name[0] == "<" else rule.needs) if rule else HOLE
    if " " in name or ":" in name:
        return HOLE  # a function of make's, or a replacement
    return variables.get(name, "").replace("$$", "\x00")


def recipes(made: Makefile, targets: list[str]) -> list[tuple[str, str]]:
    """(target, command) of the targets and all that they need, in order; the first rule where no target is given."""
    usual = next((rule.targets[0] for rule in made.rules if rule.targets and not rule.targets[0].startswith(".")), "")
    waiting = list(targets or ([usual] if usual else []))
    seen: set[str] = set()
    found: list[tuple[str, str]] = []
    while waiting and len(seen) < 500:
        target = waiting.pop(0)
        if target in seen:
            continue
        seen.add(target)
        for rule in made.rules:
            if any(_fits(pattern, target) for pattern in rule.targets):
                waiting[:0] = rule.needs
                found += [(target, line.lstrip().lstrip("@-+").lstrip()) for line in rule.recipe]
    return found


def _fits(pattern: str, target: str) -> bool:
    if HOLE in pattern or HOLE in target:
        return True
    before, percent, after = pattern.partition("%")
    return target == pattern or (bool(percent) and target.startswith(before) and target.endswith(after))

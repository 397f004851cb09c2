"""Answers about packages, written into pyproject.toml and environment.yml: the pin, and the index that it is from."""

from __future__ import annotations

import re

from firstlight.lint.model import Syntax
from firstlight.lint.rule import LintFinding
from firstlight.lint.written import lines_of
from firstlight.ways.kinds import InstallWheels, Package
from firstlight.ways.way import Chain

_INDEX = re.compile(r"https://(?:download\.pytorch\.org/whl(?:/\w+)?|pypi\.org/simple)/?")
_OF_CONDA = re.compile(
    r"\s*-\s*[\"']?(?:[\w-]+::)?(?:pytorch|pytorch-gpu|pytorch-cuda|pytorch-mutex|cudatoolkit|cuda-version|cpuonly|torchvision"
    r"|torchaudio|torch)(?:[\s=<>!~\[].*)?[\"']?\s*"
)
_INDEX_LINE = re.compile(r"\s*-\s*[\"']?(?:--(?:extra-)?index-url|-f|--find-links)\b.*")


def in_list(text: str, finding: LintFinding, way: InstallWheels) -> str | None:
    """A project's or an environment's file with these packages in it; None where another kind of entry names them."""
    if finding.syntax is Syntax.PIXI:
        return _pixi(text, way) if way.packages[0].project == "torch" else None
    if finding.syntax is Syntax.CONDA:
        return _environment(text, finding, way) if way.packages[0].project == "torch" else _entry(text, way)
    return _project(text, way) if finding.syntax is Syntax.PYPROJECT else None


_OF_PIXI = re.compile(r"(?m)^[\"']?(?:pytorch|pytorch-gpu|pytorch-cuda|torch|torchvision|torchaudio)[\"']?\s*=.*\n")


def _pixi(text: str, way: InstallWheels) -> str:
    """conda's torch and its companions taken out, and the wheels among the dependencies of PyPI."""
    kept = _OF_PIXI.sub("", text)
    header, *wheels = lines_of(Chain((way,)), Syntax.PIXI)
    if header in kept.splitlines():
        return kept.replace(f"{header}\n", "\n".join((header, *wheels, "")), 1)
    return "\n".join((kept.rstrip("\n"), "", header, *wheels, ""))


def _entry(text: str, way: InstallWheels) -> str | None:
    """One entry of an environment in place of its like: cupy-cuda12x for cupy-cuda11x."""
    name = re.sub(r"cuda\d+x", r"cuda\\d+x", re.escape(way.packages[0].project).replace(r"\-", "-"))
    pattern = rf"(?m)^(\s*-\s*){name}(?:\[[^\]]*\])?(?:[=<>!~].*)?$"
    changed, count = re.subn(pattern, lambda m: m[1] + way.packages[0].requirement, text)
    return changed if count and not way.index else None


def _project(text: str, way: InstallWheels) -> str | None:
    for package in way.packages:
        changed = _pinned(text, package)
        if changed is None and package is way.packages[0]:
            return None
        text = text if changed is None else changed
    lines = [re.sub(r"\s+# only once.*", "", each) for each in lines_of(Chain((way,)), Syntax.PYPROJECT)]
    sources, index = (
        lines[len(way.packages) + 1 : lines.index("[[tool.uv.index]]")],
        lines[lines.index("[[tool.uv.index]]") :],
    )
    has_sources = "[tool.uv.sources]" in text
    if not has_sources and _INDEX.search(text):  # poetry's or pdm's, or one that uv looks into for all
        return _INDEX.sub(way.index, text)
    named = "|".join(re.escape(each.partition(" =")[0]) for each in sources)
    text = re.sub(rf"(?m)^(?:{named})\s*=\s*(?:\[(?:[^\[\]]|\n)*\]|\{{[^}}]*\}})\s*\n", "", text) if named else text
    head, table, rest = text.rstrip("\n").partition("[tool.uv.sources]")
    if index[1] in text:
        index = []  # an index of that name is there
    return "\n".join((f"{head}{table or chr(10) + '[tool.uv.sources]'}", *sources, rest.lstrip("\n"), *index, ""))


def _pinned(text: str, package: Package) -> str | None:
    """Every entry of a list that names the package, pinned; None where none does."""
    name = re.sub(r"[-_.]", "[-_.]", package.project)
    pattern = rf"(?<=['\"]){name}(?:\[[^\]]*\])?(?:\s*[=<>!~(][^'\";#]*)?(?=['\";])"
    changed, count = re.subn(pattern, package.requirement, text)
    if not count:  # poetry's: torch = "2.9.1", or torch = {version = "2.9.1", source = "pytorch"}
        version = package.version or "*"
        keyed = rf"(?m)^({name}\s*=\s*(?:\{{[^}}\n]*\bversion\s*=\s*)?[\"'])[^\"'\n]*"
        changed, count = re.subn(keyed, lambda m: m[1] + version, text)
    return changed if count else None


def _environment(text: str, finding: LintFinding, way: InstallWheels) -> str | None:
    """torch and its CUDA taken out wherever they stand, and the wheels under `pip`."""
    lines = text.splitlines()
    kept = [line for line in lines if not _OF_CONDA.fullmatch(line) and not _INDEX_LINE.fullmatch(line)]
    at = next((n for n, line in enumerate(kept) if re.fullmatch(r"\s*-\s*pip:\s*", line)), None)
    wheels = lines_of(Chain((way,)), finding.syntax)
    if at is not None:
        width = len(kept[at]) - len(kept[at].lstrip())
        inner = kept[at + 1] if at + 1 < len(kept) and kept[at + 1].lstrip().startswith("-") else ""
        indent = max(len(inner) - len(inner.lstrip()), width + 2)
        return "\n".join((*kept[: at + 1], *(" " * indent + line for line in wheels), *kept[at + 1 :], ""))
    start = next((n for n, line in enumerate(kept) if re.match(r"dependencies:\s*$", line)), None)
    if start is None:
        return None
    first = next((line for line in kept[start + 1 :] if line.strip().startswith("-")), "  - ")
    indent = len(first) - len(first.lstrip())
    end = next(
        (n for n in range(start + 1, len(kept)) if kept[n].strip() and not kept[n].startswith((" ", "-", "#"))),
        len(kept),
    )
    pip = (f"{' ' * indent}- pip", f"{' ' * indent}- pip:", *(" " * (indent + 2) + line for line in wheels))
    return "\n".join((*kept[:end], *pip, *kept[end:], ""))

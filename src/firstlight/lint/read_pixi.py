"""Read pixi.toml, and [tool.pixi]: the packages of each environment for this processor, from conda and from PyPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from firstlight.errors import BadInput
from firstlight.lint.conda_spec import conda_requirements, conda_spec
from firstlight.lint.model import Install, ProjectAsked, Target
from firstlight.lint.read_uv_lock import OTHER_MACHINES, python_fixed
from firstlight.lint.reading import Reading
from firstlight.lint.toml_lines import TomlLines, toml_values
from firstlight.lint.toml_values import strings, table
from firstlight.versions import canonical

_PLATFORMS = {"x86_64": ("linux-64", "linux", "unix"), "aarch64": ("linux-aarch64", "linux", "unix")}


def read_pixi(reading: Reading) -> tuple[Target, ...]:
    """One target for each environment of the workspace."""
    values = toml_values(reading.text, reading.file, reading.syntax.value)
    if not ({"workspace", "project", "dependencies", "pypi-dependencies", "feature"} & set(values)):
        raise BadInput(f"{reading.file}: no [workspace] and no [dependencies]; accepted: a pixi.toml. Give one.")
    return pixi_targets(values, TomlLines(reading.text), reading, above=())


def pixi_targets(
    values: dict[str, Any], lines: TomlLines, reading: Reading, *, above: tuple[str, ...]
) -> tuple[Target, ...]:
    """The environments: `default` alone where none is named; `above` is where the tables lie in the file."""
    environments = {"default": (), **{name: _features(entry) for name, entry in table(values, "environments").items()}}
    return tuple(
        _environment(values, lines, reading, name, above) for name in environments if not OTHER_MACHINES.search(name)
    )


def _features(entry: object) -> tuple[str, ...]:
    return strings(entry.get("features")) if isinstance(entry, dict) else strings(entry)


def _environment(
    values: dict[str, Any], lines: TomlLines, reading: Reading, name: str, above: tuple[str, ...]
) -> Target:
    entry = table(values, "environments").get(name)
    bare = isinstance(entry, dict) and entry.get("no-default-feature") is True
    roots: list[tuple[str, ...]] = [] if bare else [()]
    roots += [("feature", feature) for feature in _features(entry)]
    conda = [each for root in roots for each in _conda(values, lines, reading, root, above)]
    pypi = [each for root in roots for each in _pypi(values, lines, reading, root, above)]
    python = next((python_fixed(each.spec) for each in conda if each.project == "python"), "")
    installs: list[Install] = []
    if conda:
        installs.append(replace(reading.listed(*conda), tool="conda", python=python))
    if pypi:
        options = [table(values, *root, "pypi-options") for root in roots]
        index = next((str(each["index-url"]) for each in options if "index-url" in each), "")
        extra = tuple(url for each in options for url in strings(each.get("extra-index-urls")))
        installs.append(
            replace(reading.listed(*pypi), tool="uv", python=python, index=index, extra_indexes=extra, first_index=True)
        )
    return reading.packages(*installs, name="" if name == "default" else name)


def _paths(reading: Reading, root: tuple[str, ...], key: str) -> Iterator[tuple[str, ...]]:
    yield (*root, key)
    yield from ((*root, "target", each, key) for each in _PLATFORMS.get(reading.arch, ("linux", "unix")))


def _conda(
    values: dict[str, Any], lines: TomlLines, reading: Reading, root: tuple[str, ...], above: tuple[str, ...]
) -> Iterator[ProjectAsked]:
    for path in _paths(reading, root, "dependencies"):
        for name, entry in table(values, *path).items():
            fields = entry if isinstance(entry, dict) else {"version": entry}
            place = reading.place(lines.key((*above, *path), name))
            spec, build = str(fields.get("version", "")), str(fields.get("build", ""))
            yield from (replace(each, place=place) for each in conda_requirements(name, conda_spec(spec), build))
    cuda = table(values, *root, "system-requirements").get("cuda")
    if isinstance(cuda, str) and re.fullmatch(r"\d+(\.\d+)*", cuda):
        # pixi solves for a machine whose driver runs at least this CUDA, so a build for it may be taken.
        place = reading.place(lines.key((*above, *root, "system-requirements"), "cuda"))
        yield ProjectAsked("__cuda", f">={cuda}", place=place)


def _pypi(
    values: dict[str, Any], lines: TomlLines, reading: Reading, root: tuple[str, ...], above: tuple[str, ...]
) -> Iterator[ProjectAsked]:
    for path in _paths(reading, root, "pypi-dependencies"):
        for name, entry in table(values, *path).items():
            fields = entry if isinstance(entry, dict) else {"version": entry}
            if "path" in fields:
                continue
            version = str(fields.get("version", ""))
            spec = "" if version == "*" else f"=={version}" if re.match(r"\d", version) else version
            yield ProjectAsked(
                canonical(name),
                spec,
                str(fields.get("url") or fields.get("git") or ""),
                tuple(canonical(each) for each in strings(fields.get("extras"))),
                str(fields.get("index", "")),
                reading.place(lines.key((*above, *path), name)),
            )

"""Read pyproject.toml: the dependencies of the project and of its groups, and where uv, poetry or pdm look for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from firstlight.frozen import dataclass
from firstlight.lint.model import Install, ProjectAsked, Target
from firstlight.lint.read_pixi import pixi_targets
from firstlight.lint.read_poetry import poetry_groups, poetry_searched
from firstlight.lint.read_requirements import requirement_of
from firstlight.lint.read_uv_lock import OTHER_MACHINES, python_fixed
from firstlight.lint.reading import Reading, marker_holds
from firstlight.lint.toml_lines import TomlLines, toml_values
from firstlight.lint.toml_values import strings, table, tables
from firstlight.tables.torch_index import index_of_build
from firstlight.versions import canonical

MOST_INCLUDED = 64  # groups that include each other


@dataclass(frozen=True, slots=True)
class _Source:
    """An entry of [tool.uv.sources]: the index, or the address, and for what."""

    index: str
    address: str
    marker: str
    group: str  # an extra or a dependency group; '' is all


def read_pyproject(reading: Reading) -> tuple[Target, ...]:
    """One list of packages for what is always installed, and one for each group on top of it."""
    values = toml_values(reading.text, reading.file, reading.syntax.value)
    lines = TomlLines(reading.text)
    python = _python(values, reading)
    groups = {**_pep_621(values, lines, reading, python=python)}
    for name, found in poetry_groups(values, lines, reading, python=python).items():
        groups[name] = (*groups.get(name, ()), *found)
    base = groups.pop("", ())
    sources = _sources(values)
    searched = _searched(values, replace(reading.listed(), python=python))
    resourced = {project for project, each in sources.items() if any(source.group for source in each)}
    targets = []
    if not resourced & {each.project for each in base}:
        targets.append(_target(reading, "", base, sources, searched))
    for name, found in groups.items():
        if not OTHER_MACHINES.search(name):
            targets.append(_target(reading, name, (*base, *found), sources, searched))
    pixi = table(values, "tool", "pixi")
    return (*targets, *(pixi_targets(pixi, lines, reading, above=("tool", "pixi")) if pixi else ()))


def _target(
    reading: Reading,
    name: str,
    found: tuple[ProjectAsked, ...],
    sources: dict[str, tuple[_Source, ...]],
    searched: Install,
) -> Target:
    placed = tuple(
        _from_source(each, sources.get(each.project, ()), reading.arch, name, searched.python) for each in found
    )
    return reading.packages(replace(searched, requirements=placed), name=name)


def _from_source(asked: ProjectAsked, sources: tuple[_Source, ...], arch: str, group: str, python: str) -> ProjectAsked:
    """A requirement with the index that [tool.uv.sources] gives it on this machine and in this group."""
    for source in sources:
        if source.group in ("", group) and marker_holds(source.marker, arch, python=python):
            return replace(asked, index=source.index, address=source.address or asked.address)
    return asked


def _pep_621(
    values: dict[str, Any], lines: TomlLines, reading: Reading, *, python: str
) -> dict[str, tuple[ProjectAsked, ...]]:
    """The dependencies of [project] under '', and those of each extra and each dependency group under its name."""

    def read(path: tuple[str, ...], key: str, texts: tuple[str, ...]) -> tuple[ProjectAsked, ...]:
        found = ((text, requirement_of(text, reading.arch, python=python)) for text in texts)
        return tuple(
            replace(each, place=reading.place(lines.string(path, key, text)))
            for text, each in found
            if each is not None
        )

    found = {"": read(("project",), "dependencies", strings(table(values, "project").get("dependencies")))}
    for path in (("project", "optional-dependencies"), ("dependency-groups",), ("tool", "pdm", "dev-dependencies")):
        for name, texts in table(values, *path).items():
            found[name] = (*found.get(name, ()), *read(path, name, strings(texts)))
    old = strings(table(values, "tool", "uv").get("dev-dependencies"))
    if old:
        found["dev"] = (*found.get("dev", ()), *read(("tool", "uv"), "dev-dependencies", old))
    return _with_included(found, table(values, "dependency-groups"))


def _with_included(
    found: dict[str, tuple[ProjectAsked, ...]], groups: dict[str, Any]
) -> dict[str, tuple[ProjectAsked, ...]]:
    """The groups with what {include-group = "name"} brings into them."""
    for name, entries in groups.items():
        included = [each.get("include-group") for each in tables(entries)][:MOST_INCLUDED]
        for other in included:
            if isinstance(other, str) and other != name:
                found[name] = (*found.get(name, ()), *found.get(other, ()))
    return found


def _sources(values: dict[str, Any]) -> dict[str, tuple[_Source, ...]]:
    indexes = {str(each.get("name", "")): str(each.get("url", "")) for each in tables(_uv(values).get("index"))}

    def each_of(entry: object) -> Iterator[_Source]:
        for each in tables(entry if isinstance(entry, list) else [entry]):
            yield _Source(
                indexes.get(str(each.get("index", "")), ""),
                str(each.get("url") or each.get("git") or ""),
                str(each.get("marker", "")),
                str(each.get("extra") or each.get("group") or ""),
            )

    return {canonical(name): tuple(each_of(entry)) for name, entry in table(_uv(values), "sources").items()}


def _searched(values: dict[str, Any], plain: Install) -> Install:
    """Where the project's tool looks: uv's indexes in order, its default one last; else poetry's or pdm's sources."""
    uv = _uv(values)
    if not uv:
        return poetry_searched(values, plain)
    listed = [each for each in tables(uv.get("index")) if not each.get("explicit")]
    default = next((str(each.get("url", "")) for each in listed if each.get("default")), "")
    pip = table(uv, "pip")
    extra = [str(each.get("url", "")) for each in listed if not each.get("default")]
    extra += [*strings(uv.get("extra-index-url")), *strings(pip.get("extra-index-url"))]
    backend = str(pip.get("torch-backend") or uv.get("torch-backend") or "")
    if backend and backend != "auto":
        extra.insert(0, index_of_build(backend))
    index = default or str(uv.get("index-url") or pip.get("index-url") or "")
    best = "unsafe-best-match" in (uv.get("index-strategy"), pip.get("index-strategy"))
    links = strings(uv.get("find-links"))
    return replace(
        plain, tool="uv", index=index, extra_indexes=tuple(extra), find_links=tuple(links), first_index=not best
    )


def _uv(values: dict[str, Any]) -> dict[str, Any]:
    return table(values, "tool", "uv")


def _python(values: dict[str, Any], reading: Reading) -> str:
    """The Python that .python-version or requires-python fix; '' where they leave several."""
    beside = reading.read(reading.path(".python-version")) or ""
    spec = table(values, "project").get("requires-python") or table(values, "tool", "poetry", "dependencies").get(
        "python"
    )
    first = next((line for line in beside.splitlines() if line.strip() and not line.startswith("#")), "")
    return python_fixed(first) or (python_fixed(spec) if isinstance(spec, str) else "")

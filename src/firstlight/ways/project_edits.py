"""Edits of pyproject.toml and pixi.toml that make uv and pixi keep a choice of wheels; layout and comments stay.

tomlkit does the editing: it is the one library that writes TOML back as its author laid it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.ways.building import split_requirement
from firstlight.ways.names import normal

# conda packages that bring a torch of their own beside the one from the index
_CONDA_TORCH = ("pytorch", "pytorch-gpu", "pytorch-cpu", "pytorch-cuda", "torch", "torchvision", "torchaudio")
_LINUX = "sys_platform == 'linux'"
_ELSEWHERE = re.compile(r"darwin|win32|!=\s*'linux'|!=\s*\"linux\"|Darwin|Windows")


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a project is to keep: exact requirements, those of them that come from the index, and its address."""

    requirements: tuple[str, ...]  # torch==2.9.0+cu128
    from_index: tuple[str, ...]  # projects, e.g. torch, torchvision
    index: str  # "" = the default index

    @property
    def index_name(self) -> str:
        """pytorch-cu128 for https://download.pytorch.org/whl/cu128."""
        words = [word for word in re.split(r"[^A-Za-z0-9]+", self.index.rstrip("/")) if word]
        last = words[-1].lower() if words else "torch"
        return f"pytorch-{'nightly-' if 'nightly' in words else 'test-' if 'test' in words else ''}{last}"


def keep_in_uv_project(text: str, chosen: Chosen, *, path: str) -> str:
    """pyproject.toml with exact pins, an explicit index and the sources that tie torch to it."""
    document = _parsed(text, path)
    project = document.get("project")
    if not isinstance(project, dict):
        raise BadInput(f"{path}: has no [project] table; uv keeps no packages for it. Add one, or run uv init there.")
    for requirement in chosen.requirements:
        _pin_everywhere(document, project, requirement)
    if chosen.index:
        uv = _table(_table(document, "tool"), "uv")
        name = _explicit_index(uv, chosen)
        _sources(uv, chosen, name)
    return _written(document, text)


def keep_in_pixi_project(text: str, chosen: Chosen, *, path: str) -> str:
    """pixi.toml, or a pyproject.toml with [tool.pixi], with the wheels as PyPI dependencies tied to their index."""
    document = _parsed(text, path)
    root = _table(_table(document, "tool"), "pixi") if path.endswith("pyproject.toml") else document
    names = [split_requirement(each)[0] for each in chosen.requirements]
    for table in _dependency_tables(root):
        for name in list(table):
            if normal(name) in _CONDA_TORCH and (normal(name) in names or "torch" in names):
                del table[name]
    wheels = _table(root, "pypi-dependencies")
    for requirement in chosen.requirements:
        project, version = split_requirement(requirement)
        found = next((name for name in wheels if normal(name) == project), project)
        entry = _inline(wheels.get(found))
        entry["version"] = f"=={version}"
        if chosen.index and project in chosen.from_index:
            entry["index"] = chosen.index
        wheels[found] = entry
    return _written(document, text)


def constrain_uv_project(text: str, requirements: tuple[str, ...], *, path: str) -> str:
    """A pyproject.toml whose [tool.uv] has these among its constraint-dependencies; others that it has stay."""
    import tomlkit

    document = _parsed(text, path)
    uv = _table(_table(document, "tool"), "uv")
    present = uv.get("constraint-dependencies")
    names = {split_requirement(each)[0] for each in requirements}
    kept = [each for each in present or () if isinstance(each, str) and split_requirement(each)[0] not in names]
    array = tomlkit.array()
    array.multiline(multiline=True)
    for each in (*kept, *requirements):
        array.append(each)
    uv["constraint-dependencies"] = array
    return _written(document, text)


def _parsed(text: str, path: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise BadInput(f"{path}: is not TOML ({error}); nothing can be kept in it. Correct the file.") from None


def _written(document: Any, before: str) -> str:
    """The text, with one newline at its end and the line ends of the file."""
    import tomlkit

    text = tomlkit.dumps(document)
    text = text.rstrip("\n") + "\n"
    return text if "\r\n" not in before else text.replace("\r\n", "\n").replace("\n", "\r\n")


def _table(parent: Any, name: str) -> Any:
    """The table of a name, made where there is none."""
    import tomlkit

    if not isinstance(parent.get(name), dict):
        is_super = name in ("tool", "uv", "pixi", "workspace")
        parent[name] = tomlkit.table(is_super_table=is_super)
    return parent[name]


def _pin_everywhere(document: Any, project: Any, requirement: str) -> None:
    """The exact pin wherever the project is named, extras and markers kept; else among the dependencies."""
    wanted, version = split_requirement(requirement)
    pin = f"=={version.partition('+')[0]}"  # the index decides the build; uv compares 2.9.0+cu128 with 2.9.0 as equal
    seen = False
    for listed in _requirement_lists(document, project):
        for place, entry in enumerate(listed):
            if isinstance(entry, str) and split_requirement(entry)[0] == wanted:
                listed[place] = _repinned(entry, pin)
                seen = True
    if not seen:
        if not isinstance(project.get("dependencies"), list):
            import tomlkit

            project["dependencies"] = tomlkit.array()
        name = re.split(r"[<>=!~;\s]", requirement)[0]
        project["dependencies"].append(f"{name}{pin}")


def _requirement_lists(document: Any, project: Any) -> Iterator[Any]:
    if isinstance(project.get("dependencies"), list):
        yield project["dependencies"]
    for parent in (project.get("optional-dependencies"), document.get("dependency-groups")):
        if isinstance(parent, dict):
            yield from (listed for listed in parent.values() if isinstance(listed, list))
    dev = document.get("tool", {}).get("uv", {}).get("dev-dependencies")
    if isinstance(dev, list):
        yield dev


def _repinned(entry: str, pin: str) -> str:
    """torch>=2.8; marker with another version: the name, its extras and the marker stay."""
    body, semicolon, marker = entry.partition(";")
    match = re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?", body)
    assert match is not None, entry
    return f"{match[1]}{match[2] or ''}{pin}" + (f" ;{marker}" if semicolon else "")


def _explicit_index(uv: Any, chosen: Chosen) -> str:
    """The name of the index entry of that address, made explicit: only what [tool.uv.sources] names comes from it."""
    import tomlkit

    listed = uv.get("index")
    if isinstance(listed, list):
        for entry in listed:
            if isinstance(entry, dict) and str(entry.get("url", "")).rstrip("/") == chosen.index.rstrip("/"):
                entry.setdefault("name", chosen.index_name)
                entry["explicit"] = True
                return str(entry["name"])
        taken = {str(entry.get("name")) for entry in listed if isinstance(entry, dict)}
    else:
        taken = set()
        listed = None
    name = chosen.index_name
    while name in taken:
        name += "-x"
    entry = tomlkit.table()
    entry.update({"name": name, "url": chosen.index, "explicit": True})
    if listed is None:
        uv["index"] = tomlkit.aot()
    uv["index"].append(entry)
    return name


def _sources(uv: Any, chosen: Chosen, name: str) -> None:
    """[tool.uv.sources] entries; what the file says for other systems than Linux stays."""
    import tomlkit

    sources = _table(uv, "sources")
    for project in chosen.from_index:
        found = next((each for each in sources if normal(each) == project), project)
        present = sources.get(found)
        kept = [
            entry
            for entry in (present if isinstance(present, list) else [])
            if isinstance(entry, dict) and _ELSEWHERE.search(str(entry.get("marker", "")))
        ]
        ours = tomlkit.inline_table()
        ours["index"] = name
        if not kept:
            sources[found] = ours
            continue
        ours["marker"] = _LINUX
        array = tomlkit.array()
        array.multiline(multiline=True)
        for entry in (*kept, ours):
            array.append(_copied(entry))
        sources[found] = array


def _copied(entry: Any) -> Any:
    import tomlkit

    fresh = tomlkit.inline_table()
    fresh.update(dict(entry))
    return fresh


def _inline(value: Any) -> Any:
    """A PyPI dependency of pixi as an inline table: its extras stay, its version and index are set anew."""
    import tomlkit

    entry = tomlkit.inline_table()
    if isinstance(value, dict):
        entry.update({key: item for key, item in value.items() if key == "extras"})
    return entry


def _dependency_tables(root: Any) -> Iterator[Any]:
    if isinstance(root.get("dependencies"), dict):
        yield root["dependencies"]
    for group in ("target", "feature"):
        for each in (root.get(group) or {}).values():
            if isinstance(each, dict) and isinstance(each.get("dependencies"), dict):
                yield each["dependencies"]

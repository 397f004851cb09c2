"""Wheels packed again from what is installed in the environment that runs the tests: a real index without a network."""

from __future__ import annotations

import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def with_needs(*names: str) -> tuple[str, ...]:
    """Distributions and everything they need here, e.g. torch, sympy, mpmath."""
    todo, found = list(names), set()
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        wanted = (Requirement(text) for text in distribution(name).requires or ())
        todo += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return tuple(sorted(found))


def pack_again(name: str, folder: Path) -> Path:
    """The wheel of an installed distribution, not compressed."""
    made = distribution(name)
    files = [file for file in made.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    return _zipped(made, folder, [(str(file), Path(str(made.locate_file(file)))) for file in files])


def _zipped(made: Distribution, folder: Path, files: list[tuple[str, Path]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (made.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(": ")[2] for line in lines if line.startswith("Tag: ")]
    parts = [tag.split("-") for tag in tags]
    tag = "-".join(".".join(dict.fromkeys(part[place] for part in parts)) for place in range(3))
    stem = f"{canonicalize_name(made.metadata['Name']).replace('-', '_')}-{made.version}"
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for inside, file in files:
            if not inside.endswith(("/RECORD", "/INSTALLER", "/REQUESTED", "/direct_url.json")):
                archive.write(file, inside)
        info = next(inside.partition("/")[0] for inside, _ in files if ".dist-info/" in inside)
        archive.writestr(f"{info}/RECORD", "".join(f"{inside},,\n" for inside, _ in files) + f"{info}/RECORD,,\n")
    return path

"""What conda's way of naming a package says: pytorch=2.5.1=py3.11_cuda12.4_0, pytorch 2.5.*, pytorch::pytorch>=2.4."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.lint.model import ProjectAsked
from firstlight.versions import canonical

_WORD = re.compile(
    r"(?:[^:\s]+::?)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<version>[^\s\[]*)(?:\s+(?P<build>\S+))?\s*(?:\[.*\])?"
)
_OPERATOR = re.compile(r"[<>!~=]")


def conda_named(text: str) -> tuple[ProjectAsked, ...]:
    """The packages that one line of an environment asks for: itself, and the CUDA that its build names."""
    match = _WORD.fullmatch(re.sub(r"\s*([<>=!~,|])\s*", r"\1", text.strip()))
    if match is None:
        return ()
    version, build = match["version"], match["build"] or ""
    if (parts := re.fullmatch(r"(=?[^=<>!~]+)=([^=]+)", version)) is not None and not version.startswith("=="):
        version, build = parts.groups()  # name=version=build
    return tuple(conda_requirements(match["name"], conda_spec(version), build))


def conda_requirements(name: str, spec: str, build: str) -> Iterator[ProjectAsked]:
    """A package; a build such as *cuda12.4* or cuda118py311h also chooses the CUDA, and cpu* chooses none."""
    # conda-forge's pytorch-gpu and pytorch-cpu are pytorch of the same version with a build to choose.
    project = canonical(name)
    yield ProjectAsked("pytorch" if project in ("pytorch-gpu", "pytorch-cpu") else project, spec)
    build = "cpu" if project == "pytorch-cpu" else build
    if (match := re.search(r"cuda_?(\d+)\.(\d+)|cuda_?(1\d)(\d)(?!\d)", build)) is not None:
        major, minor = (each for each in match.groups() if each is not None)
        yield ProjectAsked("cuda-version", f"=={major}.{minor}")
    elif re.search(r"(?:^|[_*])cpu", build):
        yield ProjectAsked("cpuonly", "")
    elif project == "pytorch-gpu" or re.search(r"cuda|gpu", build):
        yield ProjectAsked("cuda-version", "")  # one with CUDA, of whatever release


def conda_spec(text: str) -> str:
    """The PEP 440 form: =2.5, 2.5.* and 2.5 are ==2.5, which the rules read as the first of its patch releases."""
    text = text.strip()
    bare = text.lstrip("=").removesuffix("*").removesuffix(".")
    return text if _OPERATOR.search(bare) else f"=={bare}" if bare else ""

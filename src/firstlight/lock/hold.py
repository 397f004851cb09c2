"""What keeps package managers from changing a locked stack: ways, for a plan to carry out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.facts.collect import Facts
from firstlight.facts.distributions import of_interest
from firstlight.facts.known import Known
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.ways.extras import SystemPackage
from firstlight.ways.kinds import ConstrainEnvironment, ConstrainProject, HoldPackages, Package, PinConda
from firstlight.ways.way import Way

CONSTRAINTS = "firstlight-constraints.txt"
DOES_NOT_STOP = (
    "pip install --no-deps, -c /dev/null, --isolated or another PIP_CONFIG_FILE",
    "uv in a shell where the environment is not activated",
    "another environment, and a file that is copied into this one",
    "apt-get --allow-change-held-packages, conda --no-pin",
)
# Tools of building and installing: whoever upgrades pip or setuptools changes no torch.
_FREE = ("setuptools", "pip", "wheel", "uv", "ninja", "cmake")
_OF_CONDA = re.compile(
    r"python|pytorch.*|libtorch.*|torch.*|cuda-.*|cuda|cudatoolkit|cudnn|nccl|lib(?:cu|nv).*|magma.*"
)
_CONDA_RECORD = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-[^-]+\.json")
_TOOLKIT = re.compile(r".*/cuda-(\d+)\.(\d+)")


def hold_ways(
    facts: Facts, *, constraints: str, conda_records: tuple[str, ...] = (), packages: tuple[SystemPackage, ...] = ()
) -> tuple[Way, ...]:
    """The ways that hold this stack; `conda_records` are the names in conda-meta, `packages` what dpkg has."""
    held = _wheels(facts)
    ways: list[Way] = []
    if held:
        ways += [ConstrainEnvironment(constraints, held), *_of_project(facts, held)]
    pinned = tuple(_of_conda(facts, conda_records))
    ways += [PinConda(pinned)] if pinned else []
    system = tuple(dict.fromkeys(_system(facts, packages)))
    return (*ways, HoldPackages(system)) if system else tuple(ways)


def _wheels(facts: Facts) -> tuple[Package, ...]:
    """torch, what is built for it and NVIDIA's wheels, by the version that their records say: pip compares that."""
    environment = facts.environment
    found: dict[str, str] = {}
    for each in environment.distributions if environment is not None else ():
        if of_interest(each.name) and each.name not in _FREE:
            found.setdefault(each.name, each.version)
    return tuple(Package(name, found[name]) for name in sorted(found))


def _of_project(facts: Facts, held: tuple[Package, ...]) -> Iterator[Way]:
    if any(file.path.endswith(("/uv.lock", "/pyproject.toml")) for file in facts.python.project_files):
        yield ConstrainProject(held)


def _of_conda(facts: Facts, records: tuple[str, ...]) -> Iterator[Package]:
    environment = facts.environment
    if environment is None or environment.kind is not EnvironmentKind.CONDA:
        return
    for record in records:
        match = _CONDA_RECORD.fullmatch(record)
        if match is not None and _OF_CONDA.fullmatch(match["name"]):
            yield Package(match["name"], match["version"])


def _system(facts: Facts, packages: tuple[SystemPackage, ...]) -> Iterator[str]:
    """The packages of compat libraries, and those of the toolkit that is first on PATH."""
    there = {each.name for each in packages}
    for each in facts.compat:
        if isinstance(each.package, Known) and each.package.value in there:
            yield each.package.value
    nvcc = facts.toolkits.nvcc_on_path
    folder = nvcc.value.toolkit if isinstance(nvcc, Known) else None
    match = _TOOLKIT.fullmatch(folder.value) if isinstance(folder, Known) else None
    if match is not None:
        ending = f"-{match[1]}-{match[2]}"
        yield from sorted(name for name in there if name.endswith(ending))

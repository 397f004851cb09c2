"""What pip or uv fetches for some packages: from the index itself, from the tables, or about as a neighbour. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Origin, Unknown
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.cost_rows import FetchedBy, Work
from firstlight.tables.pin_rows import WheelSize
from firstlight.tables.row import Pin
from firstlight.versions import CudaVersion, TorchVersion
from firstlight.ways.index_sizes import IndexSizes
from firstlight.ways.kinds import CloseLibraries, InstallWheels, Manner, Package
from firstlight.ways.piece import Piece

Found = Piece | Unknown
_LARGE = 100_000_000
_LIBRARIES = ("nvidia-", "cuda-")
_CLOSED = (EnvironmentKind.MISSING, EnvironmentKind.TOOL)
_UV = (EnvironmentKind.UV_VENV, EnvironmentKind.PIXI)
_TOOLKIT = "cuda-toolkit"  # some KB that only require others
_NEWEST = (10**6,) * 4  # further on than any release
_EXTRAS = {"cudart": "nvidia-cuda-runtime", "nvvm": "nvidia-nvvm"}  # of cuda-toolkit; others are nvidia-cuda-EXTRA


@dataclass(frozen=True, slots=True)
class Asked:
    """Where sizes are looked up for one machine."""

    facts: Facts
    tables: Tables
    sizes: IndexSizes

    @property
    def arch(self) -> str:
        return self.facts.place.arch


def by_uv(facts: Facts) -> bool:
    """Whether uv fills the environment that is changed."""
    return facts.environment is not None and facts.environment.kind in _UV


def wheels_fetched(way: InstallWheels, asked: Asked) -> Iterator[Found]:
    """The wheels of a way and what they pull that is not installed; small requirements, some 10 MB, are not counted."""
    chosen = {package.project for package in way.packages}
    installed = {} if way.manner is Manner.AGAIN else _installed(asked.facts)
    for package in way.packages:
        alone, pulls = _sized(package, way.index, asked)
        yield alone
        for pin in () if way.manner is Manner.AGAIN else pulls:
            if pin.project not in chosen and (not pin.version or installed.get(pin.project) != pin.version):
                yield _piece(asked, pin.project, pin.version)


def closing_wheels(way: CloseLibraries, asked: Asked) -> Iterator[Found]:
    """The wheels that bring missing libraries; where they are not named, the last release that has each, once."""
    if way.wheels:
        yield from (_piece(asked, each.project, each.version) for each in way.wheels if each.project != _TOOLKIT)
        return
    torch = asked.facts.torch
    cuda = torch.value.wheel_cuda if isinstance(torch, Known) else torch
    major = cuda.value.major if isinstance(cuda, Known) else None
    releases: dict[str, str] = {}
    for soname in way.missing:
        rows = asked.tables.wheels_with(soname, machine=asked.arch)
        if not rows:
            yield Unknown(f"which wheel ships {soname} is not in the tables")
            return
        row = next((each for each in rows if each.cuda_major in (None, major)), rows[-1])
        releases[row.project] = row.last
    for project, release in releases.items():
        yield _piece(asked, project, release)


def _sized(package: Package, index: str, asked: Asked) -> tuple[Found, tuple[Pin, ...]]:
    """The wheel itself, and what it pulls."""
    pulls: tuple[Pin, ...] = ()
    if package.project == "torch":
        near = _torch_near(package, index, asked)
        found, pulls = near if near is not None else (Unknown("no torch is in the tables"), ())
    else:
        found = _piece(asked, package.project, package.version)
    if package.project == "cuda-toolkit":
        pulls = _toolkit_parts(package, asked)
    told = asked.sizes.of(package, index)
    if told is not None:
        found = _made(asked, package.project, told.bytes, told.seen_in)
    return found, pulls


def _torch_near(package: Package, index: str, asked: Asked) -> tuple[Piece, tuple[Pin, ...]] | None:
    """PyPI's torch that is closest to a build: by having CUDA at all, machine, CUDA, then release."""
    public, _, local = package.version.partition("+")
    build = index.rstrip("/").rpartition("/")[2]  # a nightly has no number yet, and its index names the build
    local = local or (build if build == "cpu" or _cuda_of(build) is not None else "")
    release = _numbers(public) if public else _NEWEST
    exact = asked.tables.torch_release(public, asked.arch) if public and not local and _is_version(public) else None
    cuda = _cuda_of(local) if local else (None if exact is None else exact.wheel_cuda)
    wants_cuda = local != "cpu" and (exact is None or exact.wheel_cuda is not None)

    def distance(row: WheelSize) -> tuple[object, ...]:
        known = asked.tables.torch_release(row.version, row.machine)
        has = None if known is None else known.wheel_cuda
        apart = (0, 0) if cuda is None or has is None else (abs(has.major - cuda.major), abs(has.minor - cuda.minor))
        return (
            (has is not None) != wants_cuda,
            row.machine != asked.arch,
            apart,
            _apart(_numbers(row.version), release),
        )

    rows = asked.tables.wheel_sizes_of("torch")
    if not rows:
        return None
    row = min(rows, key=distance)
    same = _numbers(row.version) == release and distance(row)[:3] == (False, False, (0, 0))
    known = asked.tables.torch_release(row.version, row.machine)
    of_cuda = f"CUDA {known.wheel_cuda.release}" if known is not None and known.wheel_cuda is not None else "no CUDA"
    if same:
        return _made(asked, "torch", row.bytes, _sizes_of(row)), row.pulls
    return _about(asked, "torch", row.bytes, f"torch {row.version} of {of_cuda}"), row.pulls


def _piece(asked: Asked, project: str, version: str) -> Found:
    """One wheel by the tables: its own row, else that of the closest release; "" is the newest."""
    public = version.partition("+")[0].removesuffix(".*")
    known = _releases(asked.tables, project, asked.arch) or _releases(asked.tables, project, "")
    if known:
        wanted = _numbers(public) if public else _NEWEST
        near = min(known, key=lambda each: _apart(_numbers(each), wanted))
        size, basis = known[near]
        exact = near == public or not public  # the builds of a companion differ little: 8 MB of torchvision
        return _made(asked, project, size, basis) if exact else _about(asked, project, size, f"{project} {near}")
    row = asked.tables.download(FetchedBy.PIP, project, machine=asked.arch)
    if row is None:
        return Unknown(f"the size of {project} is not in the tables")
    return _about(asked, project, row.bytes, f"the newest {project} of {row.date}")


@functools.cache
def _releases(tables: Tables, project: str, machine: str) -> dict[str, tuple[int, str]]:
    """Version -> bytes and where they are from, of one project; machine "" takes any."""
    found: dict[str, tuple[int, str]] = {}
    for row in tables.wheel_sizes:
        if row.project == project and (not machine or row.machine in (machine, "any", "source")):
            found[row.version] = (row.bytes, _sizes_of(row))
    for each in tables.library_releases(project, machine=machine or "x86_64"):
        for version, size in zip(each.versions, each.bytes, strict=True):
            found.setdefault(version, (size, f"sizes on PyPI, {each.date}"))
    return found


def _toolkit_parts(package: Package, asked: Asked) -> tuple[Pin, ...]:
    """What an extra of cuda-toolkit stands for: nvidia-cuda-nvcc for nvcc."""
    wanted = {_EXTRAS.get(extra, f"nvidia-cuda-{extra}") for extra in package.extras}
    rows = [row for row in asked.tables.toolkit_wheels if row.release == package.version]
    pins = {pin.project: pin for row in rows for pin in row.parts}
    return tuple(pins.get(project, Pin(project, "")) for project in sorted(wanted))


def _made(asked: Asked, project: str, size: int, basis: str) -> Piece:
    if by_uv(asked.facts):
        return Piece(project, size, basis, Work.UV_LIBRARIES if project.startswith(_LIBRARIES) else Work.UV_WHEELS)
    if project.startswith(_LIBRARIES):
        return Piece(project, size, basis, Work.PIP_LIBRARIES)
    return Piece(project, size, basis, Work.PIP_LARGE if size > _LARGE else Work.PIP_SMALL)


def _about(asked: Asked, project: str, size: int, neighbour: str) -> Piece:
    return replace(_made(asked, project, size, f"size estimated from {neighbour}"), origin=Origin.ASSUMED)


def _installed(facts: Facts) -> dict[str, str]:
    """What pip finds in the environment that it changes, and does not fetch again."""
    environment = facts.environment
    if environment is None or environment.kind in _CLOSED or environment.externally_managed:
        return {}
    if isinstance(environment.writable, Known) and not environment.writable.value:
        return {}
    return {each.name.lower().replace("_", "-"): each.version for each in environment.distributions}


def not_installed(packages: tuple[Package, ...], asked: Asked) -> tuple[Package, ...]:
    """Those of some packages that the environment does not have in that very version."""
    installed = _installed(asked.facts)
    return tuple(each for each in packages if not each.version or installed.get(each.project) != each.version)


def _sizes_of(row: WheelSize) -> str:
    return f"sizes on PyPI, {row.date}"


def _cuda_of(local: str) -> CudaVersion | None:
    """CUDA 12.8 of cu128; None of cpu, rocm6.4 and the like."""
    match = re.fullmatch(r"cu(\d\d)(\d)", local)
    return CudaVersion(int(match[1]), int(match[2])) if match else None


@functools.cache
def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:4])


def _apart(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How far two releases are from each other, first numbers first: 2.9.0 is closer to 2.7.1 than to 2.7.0."""
    return abs(_weighed(one) - _weighed(other))


@functools.cache
def _weighed(release: tuple[int, ...]) -> int:
    return sum(number * int(10 ** (5 * (3 - at))) for at, number in enumerate(release[:4]))


def _is_version(text: str) -> bool:
    try:
        TorchVersion.parse(text)
    except BadVersion:
        return False
    return True

"""Sets of packages that fit together by what their wheels require."""

from __future__ import annotations

import enum
from functools import cache

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.plan.builds import CPU, Build
from firstlight.plan.pins import Place, admits, compiled_here, misfit, pin_on, takes_torch
from firstlight.plan.want import PROJECTS, Want
from firstlight.specifiers import newest
from firstlight.tables import Tables
from firstlight.tables.pin_rows import PackagePins, WheelSize
from firstlight.tables.torch_index import index_of_build
from firstlight.versions import CudaVersion
from firstlight.ways.way_back import ON_TORCH_INDEX

# Those that require much of the others come first, so that the search seldom has to go back.
ORDER = ("vllm", "xformers", "torchvision", "torchaudio", "triton", "flash-attn")
# PyTorch's own index has these for its CUDA variants.


@dataclass(frozen=True, slots=True)
class Pick:
    """One package of a set, e.g. torch 2.9.0 with CUDA 13.0 from https://download.pytorch.org/whl/cu130.

    version "" = the newest of the channel, whose number the tables cannot know.
    """

    project: str
    version: str  # without the local part
    cuda: Fact[CudaVersion]
    index: str  # "" = PyPI
    bytes: Fact[int]  # of this one file
    local: str = ""  # cu130 where the file's own name carries it
    from_source: bool = False  # no wheel fits: it is compiled here, with an nvcc of torch's CUDA major

    @property
    def requirement(self) -> str:
        """As pip takes it: torch==2.9.0+cu130."""
        version = f"=={self.version}" if self.version else ""
        return f"{self.project}{version}" + (f"+{self.local}" if version and self.local else "")


@dataclass(frozen=True, slots=True)
class PackageSet:
    """Packages that fit together, torch first, and what that rests on."""

    picks: tuple[Pick, ...]
    proof_by: str
    machine: str = "x86_64"

    def pick(self, project: str) -> Pick | None:
        """The pick of a project, or None."""
        return next((each for each in self.picks if each.project == project), None)

    @property
    def torch(self) -> Pick:
        return self.picks[0]


class Bounds(enum.Enum):
    """How wants bind: HELD = a set outside them is none; PREFERRED = what comes nearest to them is taken."""

    HELD = "held"
    PREFERRED = "preferred"


@dataclass(frozen=True, slots=True)
class Search:
    """What a set is looked for with: one build of torch, and the wants beside torch."""

    tables: Tables
    build: Build
    place: Place
    wants: tuple[Want, ...]
    bounds: Bounds

    def want(self, project: str) -> Want:
        """The want of a project; any version of one that only another package brings along."""
        return next((each for each in self.wants if each.project == project), Want(project, "", "", project))


def find_set(search: Search) -> tuple[PackageSet, ...]:
    """The best set with this torch: the newest of everything within the wants; () where there is none."""
    wanted = {want.project for want in search.wants}
    found = _assigned(search, tuple(project for project in ORDER if project in wanted), chosen=())
    if found is None:
        return ()
    rows = sorted(found, key=lambda row: ORDER.index(row.project))
    picks = (torch_pick(search.tables, search.build, machine=search.place.machine), *(_pick(search, r) for r in rows))
    return (PackageSet(picks, _proof(search, found, picks), search.place.machine),)


def _assigned(
    search: Search, todo: tuple[str, ...], *, chosen: tuple[PackagePins, ...]
) -> tuple[PackagePins, ...] | None:
    """The first choice of one release for each project, and for each they bring along, in which all agree."""
    if not todo:
        return chosen
    for row in _candidates(search.tables, search.want(todo[0]), search.bounds):
        if _fits(search, row) and all(agree(row, other, machine=search.place.machine) for other in chosen):
            known = {*todo, *(other.project for other in chosen)}
            brought = tuple(
                pin.project
                for pin in row.pins(search.place.machine)
                if pin.project in PROJECTS and pin.project not in known and pin.project != "torch"
            )
            found = _assigned(search, (*todo[1:], *brought), chosen=(*chosen, row))
            if found is not None:
                return found
    return None


@cache
def _candidates(tables: Tables, want: Want, bounds: Bounds) -> tuple[PackagePins, ...]:
    """The releases of a project in the order of preference."""
    rows = tuple(reversed(tables.package_releases(want.project)))
    held = tuple(row for row in rows if admits(want.specifier, row.version))
    if bounds is Bounds.HELD:
        return held
    others = (row for row in rows if row not in held)
    return (*held, *sorted(others, key=lambda row: _distance(rows, row, want)))


def _distance(rows: tuple[PackagePins, ...], row: PackagePins, want: Want) -> int:
    """How many releases lie between a release and the one wanted; 0 for a range."""
    versions = [each.version for each in rows]
    wanted = want.exact
    if not wanted or not (near := newest(tuple(each for each in versions if admits(f"<={wanted}", each)))):
        return 0
    return abs(versions.index(row.version) - versions.index(near))


def _fits(search: Search, row: PackagePins) -> bool:
    """Whether a release goes with this torch, processor and Python."""
    machine, build = search.place.machine, search.build
    if misfit(row, search.place) or not takes_torch(search.tables, row, build.torch, machine=machine):
        return False
    local = _local(search, row.project)
    if local and local != (build.cuda.tag if build.has_cuda else CPU):
        return False
    return same_cuda(row, build, machine=machine) or on_torch_index(search.tables, row, build)


def on_torch_index(tables: Tables, row: PackagePins, build: Build) -> bool:
    """Whether PyTorch's index may have a release for the CUDA of a torch: the variants there were when it came out.

    xformers 0.0.35 came out beside torch 2.10, so for cu126, cu128 and cu130; a cu132 there cannot be.
    """
    if row.project not in ON_TORCH_INDEX:
        return False
    if not build.has_cuda:
        return True
    releases = [each for each in tables.torch_releases if each.released <= row.released]
    beside = max((each.torch for each in releases), default=build.torch)
    return build.torch == beside or build.cuda in {each.wheel_cuda for each in tables.torch_variants(beside)}


def _local(search: Search, project: str) -> str:
    return search.want(project).local if search.bounds is Bounds.HELD else ""


def same_cuda(row: PackagePins, build: Build, *, machine: str) -> bool:
    """Whether PyPI's wheel names the libcudart of this torch's major, or none at all."""
    return row.cuda_major(machine) in (None, build.cuda.major)


def agree(first: PackagePins, second: PackagePins, *, machine: str) -> bool:
    """Whether two releases require nothing of each other that the other is not."""
    for row, other in ((first, second), (second, first)):
        pin = pin_on(row, other.project, machine=machine)
        if pin is not None and not admits(pin.spec, other.version):
            return False
    return True


def torch_pick(tables: Tables, build: Build, *, machine: str) -> Pick:
    """The pick of a build of torch."""
    cuda: Fact[CudaVersion] = Known(build.cuda, build.source) if build.has_cuda else Unknown("a build without CUDA")
    size = tables.wheel_size("torch", build.torch.public, machine=machine) if not build.index else None
    return Pick("torch", build.torch.public, cuda, build.index, _size(size, build.name), build.local)


def _pick(search: Search, row: PackagePins) -> Pick:
    build, machine = search.build, search.place.machine
    size = search.tables.wheel_size(row.project, row.version, machine="source" if compiled_here(row) else machine)
    what = f"{row.project} {row.version}"
    if compiled_here(row):
        against: Fact[CudaVersion] = Known(build.cuda, f"compiled here against {build.name}")
        return Pick(row.project, row.version, against, "", _size(size, what), from_source=True)
    if row.project == "triton":
        return Pick("triton", row.version, Unknown("triton brings a ptxas, no CUDA"), build.index, _size(size, what))
    linked = row.cuda_major(machine)
    from_pypi = not build.index and linked == build.cuda.major and not _local(search, row.project)
    if from_pypi or not on_torch_index(search.tables, row, build):
        told = "its libraries name no libcudart" if linked is None else f"its libraries name libcudart.so.{linked}"
        return Pick(row.project, row.version, Unknown(told), "", _size(size, what))
    tag = build.cuda.tag if build.has_cuda else CPU
    index = build.index or index_of_build(tag)
    cuda: Fact[CudaVersion] = Known(build.cuda, index) if build.has_cuda else Unknown("a build without CUDA")
    local = tag if machine == "x86_64" else ""  # PyTorch's wheels for aarch64 go without it
    return Pick(row.project, row.version, cuda, index, _size(None, f"{what}+{tag}"), local)


def _size(row: WheelSize | None, what: str) -> Fact[int]:
    if row is None:
        return Unknown(f"the size of {what} is not in the tables")
    return Known(row.bytes, f"PyPI, {row.date}")


def _proof(search: Search, rows: tuple[PackagePins, ...], picks: tuple[Pick, ...]) -> str:
    """What a set rests on, in sentences."""
    build, machine = search.build, search.place.machine
    if build.index:
        said = [f"{build.name} on PyTorch's index: {build.source}."]
        said.append("What that build requires is taken from PyPI's wheel of the same release.")
    else:
        said = [f"{build.name} on PyPI has {f'CUDA {build.cuda}' if build.has_cuda else 'no CUDA'}: {build.source}."]
    if build.doubt:
        said.append(build.doubt)
    if rows:
        said.append(f"Requirements: METADATA of PyPI's wheels, {max(row.date for row in rows)}.")
    for row in rows:
        if compiled_here(row):
            said.append(f"{row.project} {row.version} names no torch release: that it compiles here is not known.")
        elif row.project != "triton" and pin_on(row, "torch", machine=machine) is None:
            said.append(f"{row.project} {row.version} names no torch; later ones are used with it.")
    if unseen := [pick.requirement for pick in picks[1:] if pick.index and pick.project in ON_TORCH_INDEX]:
        said.append(f"That PyTorch's index has {', '.join(unseen)} was not looked up.")
    return " ".join(said)

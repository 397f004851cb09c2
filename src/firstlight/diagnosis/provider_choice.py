"""Which packages bring a set of missing libraries: one version of each, agreeing with each other and with torch's pins.

Pure: tables and names in, a choice out. The search is in provider_search.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from firstlight.diagnosis.provider_search import Agreed, Shelf, agreeing_versions, lower_bound, plain
from firstlight.errors import BadVersion
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.soname_rows import SonameWheel
from firstlight.versions import CudaVersion, canonical

# What comes with the driver and is in no package for torch.
DRIVERS_OWN = (
    "libcuda.so", "libcudadebugger.so", "libnvidia-ml.so", "libnvidia-nvvm.so", "libnvidia-ptxjitcompiler.so",
    "libnvcuvid.so", "libnvidia-encode.so", "libnvoptix.so",
)  # fmt: skip
TORCHS_OWN = ("libtorch", "libc10", "libcaffe2", "libshm.so", "libaoti_")


@dataclass(frozen=True, slots=True)
class Provided:
    """A library and the wheel to take for it: libcudss.so.0 from nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10."""

    soname: str
    project: str
    requirement: str
    version: str  # the newest that fits, or the one that is there
    folder: str  # under site-packages
    path: str  # folder and soname
    bytes: Fact[int]  # of the wheel
    from_pin: bool  # torch asks for this version
    against_pin: str  # what torch's metadata asks for instead, though no such release has the library; else ""
    installed: str  # the version that is installed, "" when none is

    @property
    def is_installed(self) -> bool:
        """Whether the right version is there already, so that it has only to be found."""
        return self.installed == self.version


@dataclass(frozen=True, slots=True)
class Brought:
    """A package that a chosen one requires and that is not there: nvidia-cublas for nvidia-cudss-cu13."""

    project: str
    requirement: str
    version: str
    bytes: Fact[int]
    required_by: str
    installed: str  # the version that it replaces, "" when none
    to_ask_for: bool  # torch pins it, or pip by itself would take one that replaces what is installed


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """A package of the system that has a library: libgomp.so.1 in libgomp1 of Debian."""

    soname: str
    package: str
    origin: str  # "Debian bookworm", "NVIDIA apt", "NVIDIA pip"
    folder: str  # where the loader does not look by itself, else ""


@dataclass(frozen=True, slots=True)
class NoProvider:
    """A library that nothing is chosen for, and why: libnvpl_blas_core.so.0 on x86_64, since NVPL is for aarch64."""

    soname: str
    reason: str


@dataclass(frozen=True, slots=True)
class Providers:
    """Who brings a set of missing libraries; every name is in exactly one of chosen, debian, driver and unknown."""

    chosen: tuple[Provided, ...]
    brought: tuple[Brought, ...]
    debian: tuple[SystemPackage, ...]
    nvidia: tuple[SystemPackage, ...]  # beside the above: what NVIDIA's own channels have of the same names
    driver: tuple[str, ...]
    unknown: tuple[NoProvider, ...]
    cuda_major: Fact[int]

    @property
    def requirements(self) -> tuple[str, ...]:
        """What to ask pip for, each project once: nvidia-cudss-cu13>=0.7.0.20,<=0.8.0.10, nvidia-cublas==13.1.0.3.

        What pip brings by itself in the same version is left out, so that a folder of wheels may have another.
        """
        own = [each.requirement for each in self.chosen if not each.is_installed]
        return tuple(dict.fromkeys([*own, *(each.requirement for each in self.brought if each.to_ask_for)]))

    @property
    def download_bytes(self) -> Fact[int]:
        """What pip fetches for all of it, e.g. 519904512; Unknown where one size is."""
        wheels = {each.project: each.bytes for each in self.chosen if not each.is_installed}
        wheels |= {each.project: each.bytes for each in self.brought}
        return total_bytes(wheels.values())


def choose_providers(
    missing: tuple[str, ...],
    *,
    arch: str,
    cuda_major: int | None,
    pins: Mapping[str, str],
    installed: Mapping[str, str],
    tables: Tables,
) -> Providers:
    """The packages for missing libraries on an arch and a CUDA major; pins are what torch asks: '==9.19.0.56'.

    cuda_major None: the one that has the most of them, and cuda_major of the answer says so.
    """
    names = tuple(dict.fromkeys(missing))
    driver = tuple(name for name in names if name.startswith(DRIVERS_OWN))
    shelf = Shelf(
        arch=arch,
        pins=_with_toolkit_parts({canonical(name): _as_spec(spec) for name, spec in pins.items()}, tables),
        installed={canonical(name): version for name, version in installed.items()},
        tables=tables,
    )
    rows = {name: tables.wheels_with(name, machine=arch) for name in names if name not in driver}
    major = _major(rows, cuda_major, shelf=shelf)
    fitting = {name: _of_major(found, major) for name, found in rows.items()}
    agreed = agreeing_versions(shelf, {name: found for name, found in fitting.items() if found})
    left = [name for name in rows if name not in agreed.taken]
    debian = system_packages(left, tables)
    packaged = {each.soname for each in debian}
    return Providers(
        chosen=tuple(_provided(shelf, name, agreed=agreed) for name in rows if name in agreed.taken),
        brought=_brought(shelf, agreed.brought),
        debian=debian,
        nvidia=_nvidia(tuple(rows), major, shelf=shelf),
        driver=driver,
        unknown=tuple(
            NoProvider(name, agreed.refused.get(name) or _why_nobody(name, major, shelf=shelf))
            for name in left
            if name not in packaged
        ),
        cuda_major=major,
    )


def _as_spec(text: str) -> str:
    plain = text.replace(" ", "")
    return f"=={plain}" if plain[:1].isdigit() else plain


def _with_toolkit_parts(pins: dict[str, str], tables: Tables) -> dict[str, str]:
    """What torch asks, with what its cuda-toolkit asks in turn: nvidia-cuda-runtime==13.0.96.* below 13.0.2."""
    try:
        toolkit = CudaVersion.parse(pins.get("cuda-toolkit", "").removeprefix("=="))
    except BadVersion:
        return pins
    row = tables.toolkit_wheel(toolkit)
    return {**{part.project: part.spec for part in (row.parts if row is not None else ())}, **pins}


def _of_major(rows: tuple[SonameWheel, ...], major: Fact[int]) -> tuple[SonameWheel, ...]:
    wanted = major.value if isinstance(major, Known) else None
    return tuple(row for row in rows if row.cuda_major in (None, wanted))


def _major(rows: dict[str, tuple[SonameWheel, ...]], told: int | None, *, shelf: Shelf) -> Fact[int]:
    """The CUDA major to choose for: as told, else that of what is pinned or installed, else that has the most."""
    if told is not None:
        return Known(told, "as asked for")
    found = {name: {row.cuda_major for row in each if row.cuda_major is not None} for name, each in rows.items()}
    majors = {major for each in found.values() for major in each}
    if not majors:
        return Unknown("none of these libraries is of one CUDA major")
    there = {
        row.cuda_major
        for each in rows.values()
        for row in each
        if row.project in shelf.pins or row.project in shelf.installed
    }
    best = max(majors, key=lambda major: (sum(major in each for each in found.values()), major in there, major))
    only = [name for name, each in found.items() if each == {best}]
    if only:
        return Known(best, f"{only[0]}, which is of CUDA {best} alone")
    if best in there:
        return Known(best, "the packages that are installed or that torch pins")
    return Known(best, "the newest that has these libraries; nothing here names a CUDA major")


def system_packages(names: Iterable[str], tables: Tables) -> tuple[SystemPackage, ...]:
    """Debian's packages of libraries, where they are known: libnuma.so.1 is in libnuma1."""
    rows = ((name, tables.debian_package_with(name)) for name in names)
    return tuple(SystemPackage(name, row.package, f"Debian {row.release}", "") for name, row in rows if row is not None)


def _provided(shelf: Shelf, soname: str, *, agreed: Agreed) -> Provided:
    row, version = agreed.taken[soname]
    have, against = shelf.installed.get(row.project, ""), agreed.overruled.get(row.project, "")
    pin = "" if against else shelf.pins.get(row.project, "")
    firsts = tuple(each.first for each in agreed.sonames(row.project))
    bounds = f">={lower_bound(firsts, version)},<={version}"
    if have == version:
        spec = f"=={version}"
    elif re.fullmatch(r"==[^,]+", pin):
        spec = pin
    else:
        spec = f"{bounds},{pin}" if pin else bounds
    return Provided(
        soname=row.soname,
        project=row.project,
        requirement=f"{row.project}{spec}",
        version=version,
        folder=row.folder,
        path=row.path,
        bytes=shelf.size(row.project, version),
        from_pin=bool(pin),
        against_pin=against,
        installed=have,
    )


def _brought(shelf: Shelf, found: Mapping[str, tuple[str, str]]) -> tuple[Brought, ...]:
    """What the chosen ones require, those that are there in the right version left out."""
    return tuple(
        Brought(
            project=project,
            requirement=f"{project}=={version}",
            version=version,
            bytes=shelf.size(project, version),
            required_by=asker,
            installed=shelf.here(project),
            to_ask_for=plain(project) in shelf.pins
            or any(shelf.here(pin.project) for pin in shelf.requires(project, version)),
        )
        for project, (version, asker) in found.items()
        if shelf.here(project) != version
    )


def _nvidia(names: tuple[str, ...], major: Fact[int], *, shelf: Shelf) -> tuple[SystemPackage, ...]:
    wanted = major.value if isinstance(major, Known) else None
    triplet = f"{shelf.arch}-linux-gnu"
    return tuple(
        SystemPackage(name, row.package, f"NVIDIA {row.channel}", row.folder.replace("TRIPLET", triplet))
        for name in names
        if shelf.tables.wheels_with(name, machine=shelf.arch) or not shelf.elsewhere(name)
        for row in shelf.tables.nvidia_packages_with(name, cuda_major=wanted)
    )


def _why_nobody(name: str, major: Fact[int], *, shelf: Shelf) -> str:
    """Why nothing is chosen for a library, in one sentence without a full stop."""
    if rows := shelf.tables.wheels_with(name, machine=shelf.arch):
        majors = " and ".join(str(each) for each in sorted({row.cuda_major or 0 for row in rows}))
        here = f"this is CUDA {major.value}" if isinstance(major, Known) else "the CUDA major here is not known"
        return f"only packages for CUDA {majors} have it ({_projects(rows)}), and {here}"
    if others := shelf.elsewhere(name):
        arches = " and ".join(sorted({row.machine for row in others}))
        return f"only wheels for {arches} have it ({_projects(others)}), and this is {shelf.arch}"
    if name.startswith(TORCHS_OWN):
        return "it is torch's own: what asks for it was built for another torch, or this torch is damaged"
    outside = [row for major in (12, 13) for row in shelf.tables.nvidia_packages_with(name, cuda_major=major)]
    if outside:
        return f"it is on NVIDIA's own {outside[-1].channel} channel alone, as {outside[-1].package}"
    stem = name.partition(".so")[0]
    near = {row.soname for row in shelf.tables.soname_wheels if row.soname.partition(".so")[0] == stem}
    if near:
        return f"no package that the tables know has it; they know {', '.join(sorted(near))}"
    return "no package that the tables know has it"


def _projects(rows: tuple[SonameWheel, ...]) -> str:
    return ", ".join(sorted({row.project for row in rows}))


def total_bytes(sizes: Iterable[Fact[int]]) -> Fact[int]:
    """The sum of some wheels' sizes; Unknown where one is."""
    total = 0
    for size in sizes:
        if isinstance(size, Unknown):
            return size
        total += size.value
    return Known(total, "sizes on PyPI")

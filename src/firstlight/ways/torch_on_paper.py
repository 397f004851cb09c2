"""torch and the packages around it as an installer would leave them, from what the tables know of their wheels."""

from __future__ import annotations

from dataclasses import replace

from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.companions import WATCHED, Companion, NvidiaWheel
from firstlight.facts.distributions import Distribution, InstalledFrom, Requirement
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.torch_install import TorchBuild, TorchInstall
from firstlight.tables import Tables
from firstlight.tables.row import Pin
from firstlight.versions import CudaVersion, TorchVersion
from firstlight.ways.kinds import Manner, Package
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, planned
from firstlight.ways.way import Way
from firstlight.ways.wheels_on_paper import cuda_of, torch_wheel

NEWEST = "newest"  # of a package whose newest version within its bounds no table knows
_OF_THE_SYSTEM = ("/usr/lib/", "/usr/lib64/")


def installed_torch(facts: Facts, tables: Tables, found: Distribution, *, way: Way) -> TorchInstall:
    """The torch of a distribution, e.g. 2.9.0 from PyPI: its version file says 2.9.0+cu128."""
    try:
        version = TorchVersion.parse(found.version)
    except BadVersion:
        return _unread(facts, tables, found, way=way)
    if found.folder.startswith(_OF_THE_SYSTEM) and not version.local:  # a package of the system, no wheel of PyPI's
        own = planned(version, way)
        return replace(
            _unread(facts, tables, found, way=way), version=own, recorded_version=planned(found.version, way)
        )
    release = tables.torch_release(version.public, facts.place.arch)
    cuda = cuda_of(version, release)
    said = version if version.local or cuda is None else TorchVersion.parse(f"{version.public}+{cuda.tag}")
    torch = torch_wheel(facts, tables, version, asked_by=planned(0, way).seen_in)
    pinned = release is not None and cuda == release.wheel_cuda
    python = "" if facts.environment is None else value_or(facts.environment.python_version, "")
    tag = "cp" + "".join(python.split(".")[:2])
    tags = () if release is None or not python else (f"{tag}-{tag}-{release.platform_tag}_{facts.place.arch}",)
    return replace(
        torch,
        folder=f"{found.folder}/torch",
        found_via="site-packages",
        version=planned(said, way),
        recorded_version=planned(found.version, way),
        requires=torch.requires if pinned else NOT_READ,
        wheel_tags=planned(tags, way) if tags else NOT_READ,
        installer=NOT_READ,
        commit=NOT_READ,
        installed_from=planned(InstalledFrom.INDEX, way),
    )


def _unread(facts: Facts, tables: Tables, found: Distribution, *, way: Way) -> TorchInstall:
    """A torch of which only the channel is known, e.g. tonight's: its index names the CUDA, running it the rest."""
    torch = torch_wheel(facts, tables, TorchVersion.parse("0.0"), asked_by=planned(0, way).seen_in)
    cuda = _cuda_of_tag(found.version.partition("+")[2])
    return replace(
        torch,
        folder=f"{found.folder}/torch",
        found_via="site-packages",
        version=ONLY_RUNNING,
        channel=ONLY_RUNNING,
        build=ONLY_RUNNING if cuda is None else planned(TorchBuild.CUDA, way),
        wheel_cuda=ONLY_RUNNING if cuda is None else planned(cuda, way),
        compiled_for=ONLY_RUNNING,
        requires=NOT_READ,
    )


def version_of(tables: Tables, package: Package) -> str:
    """The version that an installer would take: the one named, else the newest that the tables know."""
    if package.version or package.bounds:
        return package.version or NEWEST
    return next((row.version for row in tables.newest_releases if row.project == package.project), NEWEST)


def pins_of_torch(facts: Facts, tables: Tables, torch: TorchInstall) -> tuple[Pin, ...]:
    """What torch brings with it where the tables know: its pins on triton and, of PyPI's build, on NVIDIA's wheels."""
    if isinstance(torch.version, Unknown) or isinstance(torch.wheel_cuda, Unknown):
        return ()
    release = tables.torch_release(torch.version.value.public, facts.place.arch)
    if release is None:
        return ()
    own = torch.wheel_cuda.value.release == release.wheel_cuda
    size = tables.wheel_size("torch", torch.version.value.public, machine=facts.place.arch) if own else None
    pulled = () if size is None else size.pulls
    return tuple(pin for pin in (*release.pins, *pulled) if pinned_version(pin) and (own or pin.project == "triton"))


def pinned_version(pin: Pin) -> str:
    """The version that a pin leads to: 3.5.0 of ==3.5.0, 3.8.0 of ~=3.8.0; '' for any other range."""
    return pin.version or (pin.spec.removeprefix("~=") if pin.spec.startswith("~=") and "," not in pin.spec else "")


def companion(facts: Facts, tables: Tables, found: Distribution, *, manner: Manner, way: Way) -> Companion:
    """A package around torch as it would be installed, e.g. torchvision 0.24.0+cu128."""
    arch = facts.place.arch
    public, _, local = found.version.partition("+")
    row, seen = tables.package_release(found.name, public), tables.companion(found.name, public)
    pins = row.pins(arch) if row is not None else () if seen is None else seen.pins(arch)
    on_torch = next((pin for pin in pins if pin.project == "torch"), None)
    cuda = _cuda_of_tag(local)
    major = cuda.major if cuda is not None else None if row is None else row.cuda_major(arch)
    made_here = manner is Manner.COMPILED
    return Companion(
        name=found.name,
        version=found.version,
        folder=found.folder,
        installed_from=planned(InstalledFrom.INDEX, way),
        local_tag=planned(local, way) if local else Unknown(f"{found.record} has no local version"),
        torch_required=NOT_READ if on_torch is None else planned(on_torch.spec, way),
        built_for_torch=_torch_of(facts, way) if made_here else _pinned_torch(on_torch, way),
        built_for_cuda=NOT_READ if cuda is None else planned(cuda, way),
        cuda_major=_major_of(facts, way) if made_here else NOT_READ if major is None else planned(major, way),
        cuda_choices=(),
        requires=tuple(
            Requirement(pin.project, pin.extras, pin.spec, "", found.name)
            for pin in pins
            if pin.project.startswith(WATCHED)
        ),
        gpu_requires=(),
    )


def _cuda_of_tag(local: str) -> CudaVersion | None:
    try:
        return CudaVersion.from_tag(local)
    except BadVersion:
        return None


def _pinned_torch(pin: Pin | None, way: Way) -> Fact[str]:
    """Who pins one torch was built for it."""
    return planned(pin.version, way) if pin is not None and pin.version else NOT_READ


def _torch_of(facts: Facts, way: Way) -> Fact[str]:
    version = facts.torch.value.version if isinstance(facts.torch, Known) else NOT_READ
    return planned(str(version.value), way) if isinstance(version, Known) else NOT_READ


def _major_of(facts: Facts, way: Way) -> Fact[int]:
    cuda = facts.torch.value.wheel_cuda if isinstance(facts.torch, Known) else NOT_READ
    return planned(cuda.value.major, way) if isinstance(cuda, Known) else NOT_READ


def nvidia_wheel(facts: Facts, found: Distribution) -> NvidiaWheel:
    """One of NVIDIA's packages as it would be installed; its folder is that of the version before it."""
    before = next((each for each in facts.nvidia_wheels if each.name == found.name), None)
    folder: Fact[str] = NOT_READ if before is None else before.library_folder
    return NvidiaWheel(found.name, found.version, found.folder, folder)

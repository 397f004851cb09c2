"""What a machine must have for the wheels inside, computed from them: driver, CUDA, capability, and why."""

from __future__ import annotations

from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.gpu_rows import Runs
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

_NO_CUDA = Unknown("this torch is built without CUDA")
_NO_JETSON = Unknown("no Jetson has this processor")
# The names that NVIDIA_REQUIRE_CUDA of NVIDIA's own images gives to GPUs that may use a compat library: NVML's brands,
# and those that NVML does not tell (unknown) or tells of vGPUs (grid). Never GeForce or Titan: they get error 804.
_BRANDS = (
    "unknown", "grid", "tesla", "nvidia", "quadro", "quadrortx", "nvidiartx", "vapps", "vpc", "vcs", "vws",
    "cloudgaming",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompatPart:
    """The compat library that comes with the wheels, used where the driver loaded at start needs and takes it."""

    package: str  # cuda-compat-13-0
    cuda: CudaVersion
    branches: tuple[int, ...]  # kernel-driver branches that need it and take it, e.g. 535, 550, 565, 570, 575


@dataclass(frozen=True, slots=True)
class Gates:
    """What is asked of a machine before anything is started on it.

    Unknown floors: a torch without CUDA asks nothing. With a compat part the driver may be older than
    min_driver_alone, but only of the branches listed, and only where the GPUs are no GeForce or Titan.
    """

    torch: TorchVersion
    wheel_cuda: Fact[CudaVersion]
    min_driver: Fact[DriverVersion]  # the oldest that is let in: 535 with cuda-compat-13-0, else as below
    min_driver_alone: Fact[DriverVersion]  # runs the wheels without a compat library: 580.65.06 for CUDA 13
    compat_branches: tuple[int, ...]  # older branches that are let in because the compat library takes them
    min_cuda: Fact[CudaVersion]  # what the oldest driver that is let in reports: RunPod's minimum
    allowed_cuda: tuple[CudaVersion, ...]  # each release that a driver which is let in reports, oldest first
    cuda_floor: Fact[CudaVersion]  # from it on every release is allowed: 12.7 where 12.2 and 12.4 are, 12.6 is not
    require_cuda: str  # the value of NVIDIA_REQUIRE_CUDA; "" asks nothing
    architectures: tuple[str, ...]  # code inside, e.g. sm_80, sm_90; () = not known
    capabilities: tuple[ComputeCapability, ...]  # devices that run that code, of those in the tables; () = not known
    reasons: tuple[str, ...]  # sentences, each with its source
    min_l4t: Fact[str] = _NO_JETSON  # the oldest Jetson Linux, e.g. 38: there the driver's number says nothing

    @property
    def asks_for_gpu(self) -> bool:
        return isinstance(self.min_driver, Known)

    @property
    def cuda_words(self) -> str:
        """The releases that are let in: '12.0 or newer', or '12.2, 12.4, 12.7 or newer' where there are gaps."""
        if isinstance(self.cuda_floor, Unknown):
            return ", ".join(str(cuda) for cuda in self.allowed_cuda)
        floor = self.cuda_floor.value
        return ", ".join([*(str(cuda) for cuda in self.allowed_cuda if cuda < floor), f"{floor} or newer"])

    @property
    def min_capability(self) -> Fact[ComputeCapability]:
        return Known(self.capabilities[0], "the wheel") if self.capabilities else Unknown("no list for this build")


def gates_of(
    torch: TorchVersion, wheel_cuda: Fact[CudaVersion], *, machine: str, compat: tuple[CompatPart, ...], tables: Tables
) -> Gates:
    """The gates of one build of torch for a processor, with the compat part of the plan (none or one)."""
    free = Gates(torch, wheel_cuda, _NO_CUDA, _NO_CUDA, (), _NO_CUDA, (), _NO_CUDA, "", (), (), ())
    if isinstance(wheel_cuda, Unknown):
        return replace(free, reasons=(f"torch {torch}: {wheel_cuda.reason}; no driver is needed.",))
    cuda = wheel_cuda.value
    row = tables.cuda_major(cuda.major)
    if row is None:
        raise BadInput(
            f"torch {torch} is built for CUDA {cuda}; which driver CUDA {cuda.major} needs is not in the tables. "
            "Give another --want, or upgrade firstlight."
        )
    alone = row.min_driver_same_major
    branches = compat[0].branches if compat else ()
    oldest = DriverVersion.parse(str(min(branches))) if branches else alone
    allowed = _allowed(alone, branches, tables)
    floor = _reported(alone, tables) or CudaVersion(cuda.major, 0)
    codes = _codes(torch, cuda, machine, tables)
    reasons = [f"torch {torch} is built with CUDA {cuda}: driver {alone} or newer runs it ({row.source}, {row.date})."]
    if branches:
        named = ", ".join(str(branch) for branch in branches)
        reasons.append(f"{compat[0].package} takes driver branches {named}, decided when a program starts.")
    l4t = _min_l4t(cuda, tables) if machine == "aarch64" else _NO_JETSON
    if isinstance(l4t, Known):
        reasons.append(
            f"A Jetson runs it from Jetson Linux {l4t.value} on ({l4t.seen_in}), whatever its driver's number."
        )
    if codes:
        reasons.append(f"It holds code for {' '.join(each.sm for each in codes)}.")
    else:
        reasons.append(f"For which GPUs torch {torch} holds code on {machine} is not in the tables: not checked.")
    return replace(
        free,
        min_driver=Known(oldest, compat[0].package if branches else row.source),
        min_driver_alone=Known(alone, row.source),
        compat_branches=branches,
        min_cuda=Known(min((*allowed, floor)), "the driver branches of the tables"),
        allowed_cuda=allowed,
        cuda_floor=_floor(allowed, tables),
        require_cuda=require_cuda(floor, branches),
        architectures=tuple(each.sm for each in codes),
        capabilities=_devices(codes, cuda, tables),
        reasons=tuple(reasons),
        min_l4t=l4t,
    )


def require_cuda(floor: CudaVersion, branches: tuple[int, ...]) -> str:
    """NVIDIA_REQUIRE_CUDA: words joined by a space are alternatives, by a comma all must hold.

    E.g. cuda>=13.0 brand=tesla,driver>=535,driver<536: as NVIDIA's images write what their compat library takes.
    """
    words = [f"cuda>={floor.release}"]
    words += [f"brand={brand},driver>={each},driver<{each + 1}" for each in sorted(branches) for brand in _BRANDS]
    return " ".join(words)


def _reported(driver: DriverVersion, tables: Tables) -> CudaVersion | None:
    """The CUDA that a driver reports, of a branch that is not in the tables that of the next older one."""
    rows = [row for row in tables.driver_branches if row.branch <= driver.branch]
    return max(rows, key=lambda row: row.branch).native_cuda if rows else None


def _allowed(alone: DriverVersion, branches: tuple[int, ...], tables: Tables) -> tuple[CudaVersion, ...]:
    rows = (row for row in tables.driver_branches if row.branch >= alone.branch or row.branch in branches)
    return tuple(sorted({row.native_cuda for row in rows}))


def _floor(allowed: tuple[CudaVersion, ...], tables: Tables) -> Fact[CudaVersion]:
    """The CUDA from which on every driver is let in; some below it may be too, but not all between them."""
    floor = None
    for cuda in sorted({row.native_cuda for row in tables.driver_branches}, reverse=True):
        if cuda not in allowed:
            break
        floor = cuda
    if floor is None:
        return Unknown("the newest driver of the tables is not let in")
    return Known(floor, "the driver branches of the tables")


def _min_l4t(cuda: CudaVersion, tables: Tables) -> Fact[str]:
    """The first Jetson Linux line whose own CUDA is that of the wheel or later; a Jetson runs none that is later."""
    rows = tables.tegra_releases
    row = next((row for row in rows if row.cuda >= cuda.release), None)
    if row is None:  # a line that is to come
        return Known(
            str(int(rows[-1].l4t.partition(".")[0]) + 1), f"no line up to {rows[-1].l4t} has CUDA {cuda.release}"
        )
    return Known(row.l4t, f"CUDA {row.cuda}: {row.source}, {row.date}")


def _codes(torch: TorchVersion, cuda: CudaVersion, machine: str, tables: Tables) -> tuple[ComputeCapability, ...]:
    release = tables.torch_release(torch.public, machine)
    if release is not None and release.wheel_cuda == cuda.release:
        return tuple(sorted(release.compiled_for))
    row = tables.variant_targets(torch, cuda, machine=machine)
    # A list for 'any' machine is of several wheels together: this one need not have all of it.
    return () if row is None or row.machine == "any" else tuple(sorted(row.compiled_for))


def _devices(codes: tuple[ComputeCapability, ...], cuda: CudaVersion, tables: Tables) -> tuple[ComputeCapability, ...]:
    known = {row.capability for row in tables.capabilities}
    return tuple(sorted(each for each in known if tables.any_runs_on(codes, each, torch_cuda=cuda) is Runs.YES))

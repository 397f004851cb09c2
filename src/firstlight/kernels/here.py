"""Which kernel path runs on this machine, and why: what `firstlight kernels` prints."""

from __future__ import annotations

import torch

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.kernels.choose import BACKENDS, DEFAULT_DENSITY, why_not_triton
from firstlight.kernels.crossover import cache_file, crossover, machine_for

DTYPE = torch.float16


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend, whether it runs here, and why or why not, e.g. Backend('sm90', False, 'not built yet')."""

    name: str
    runs: bool
    why: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Up to which density auto takes the sparse kernel at one block, e.g. 0.31 to 0.52 over the measured shapes."""

    block: int
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the kernels see it."""

    number: int
    name: str
    capability: str
    path: str  # what auto takes at low density: triton or dense
    why: str
    measured_in: str  # file of the measurements, empty when there are none
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Here:
    """The answer: versions, backends, devices, and the path that auto takes."""

    torch: str
    torch_cuda: str
    triton: str
    path: str
    why: str
    backends: tuple[Backend, ...]
    devices: tuple[Device, ...]


def kernels_here() -> Here:
    """Looks at torch, triton and the visible GPUs; measures nothing."""
    from firstlight.kernels.autotune import _triton_version

    devices = tuple(_device(number) for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0))
    if devices:
        path, why = devices[0].path, devices[0].why
    else:
        cuda = torch.version.cuda
        path = "reference"  # or dense, by density
        seen = "sees no CUDA device" if cuda else "has no CUDA in it"
        why = f"torch {torch.__version__} {seen}; on the processor auto takes reference or, at higher density, dense"
    triton = _triton_version()
    return Here(
        torch=torch.__version__, torch_cuda=torch.version.cuda or "", triton=triton, path=path, why=why,
        backends=tuple(_backend(name, devices, triton) for name in BACKENDS if name != "auto"), devices=devices,
    )  # fmt: skip


def _backend(name: str, devices: tuple[Device, ...], triton: str) -> Backend:
    if name == "sm90":
        return Backend(name, runs=False, why="the Hopper kernels are not built yet")
    if name == "triton":
        if not triton:
            return Backend(name, runs=False, why="triton is not installed")
        usable = [device for device in devices if device.path == "triton"]
        if usable:
            return Backend(name, runs=True, why=f"triton {triton}, {usable[0].name} ({usable[0].capability})")
        return Backend(name, runs=False, why=devices[0].why if devices else "no CUDA device")
    if name == "dense":
        return Backend(
            name, runs=True, why="a dense copy through cuBLAS" if devices else "a dense copy, on the processor"
        )
    return Backend(name, runs=True, why="plain torch, any device, slow")


def _device(number: int) -> Device:
    name = torch.cuda.get_device_name(number)
    major, minor = torch.cuda.get_device_capability(number)
    hurdle = why_not_triton(number, DTYPE)
    measured_in, limits, note = "", _default_limits(), "the careful default densities, as it was not measured"
    try:
        found = machine_for(name)
    except BadInput as error:
        found, note = None, f"the careful default densities: {error}"
    if found is not None:
        machine, path = found
        measured_in, limits = str(path), _limits(machine.rows)
        note = f"measured on {machine.date} with torch {machine.torch} and triton {machine.triton}"
    return Device(
        number=number, name=name, capability=f"{major}.{minor}", path="dense" if hurdle else "triton",
        why=hurdle or f"up to the densities below; {note}", measured_in=measured_in, limits=limits,
    )  # fmt: skip


def _default_limits() -> tuple[Limit, ...]:
    return tuple(Limit(block, density, density) for block, density in DEFAULT_DENSITY.items())


def _limits(rows: tuple[object, ...]) -> tuple[Limit, ...]:
    from firstlight.kernels.crossover import Row

    found: dict[int, list[float]] = {}
    for row in rows:
        assert isinstance(row, Row)
        if row.operation == "multiply":
            found.setdefault(row.block, []).append(crossover(row, training=False))
    return tuple(Limit(block, min(all_), max(all_)) for block, all_ in sorted(found.items(), reverse=True))


def tuning_file(number: int = 0) -> str:
    """Where autotune would write for a device, e.g. ~/.cache/firstlight/kernels/crossover-nvidia-h200.json."""
    return str(cache_file(torch.cuda.get_device_name(number)))

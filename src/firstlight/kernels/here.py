"""Which kernel path runs on this machine, and why: what `firstlight kernels` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from firstlight.errors import UnsupportedInput
from firstlight.kernels.backends import ARCHS, BACKENDS, BY_NAME, why_not
from firstlight.kernels.choice.card import card_of
from firstlight.kernels.choice.models import Models, models_for
from firstlight.kernels.choice.rows import SHIPPED, Card, cache_file
from firstlight.kernels.choose import DEFAULT_DENSITY, SPARSE, Question, offers_of
from firstlight.kernels.pattern import BLOCKS
from firstlight.kernels.product import Layout

DTYPE = torch.float16
# what limits are told for: rows and columns, tokens; a dense copy is made for each call
SHAPES, TOKENS = ((4096, 4096), (14336, 4096)), (512, 4096)
DENSITIES = tuple(step / 20 for step in range(1, 21))


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend, whether it runs here, and why or why not, e.g. Backend('sm90', False, 'no CUDA device')."""

    name: str
    runs: bool
    why: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Up to which density a sparse kernel beats dense at one block, e.g. 0.31 to 0.52 over the measured shapes."""

    block: int
    lowest: float
    highest: float
    backend: str = "triton"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the kernels see it."""

    number: int
    name: str
    capability: str
    path: str  # what auto takes at low density: sm90, triton or dense
    why: str
    measured_in: str  # file of the measurements, empty when there are none
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Compiler:
    """What builds the Hopper kernels here and where they are kept, e.g. nvrtc 13.0, 12 kernels in ~/.cache/..."""

    name: str  # empty: none was found
    where: str  # its path, or what to install
    kept_in: str
    kept: int


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
    compiler: Compiler
    attention: str = ""  # what auto goes by for attention on the first GPU, or on the processor


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
        compiler=compiler_here(), attention=attention_on(card_of(0) if devices else None),
    )  # fmt: skip


def attention_on(card: Card | None) -> str:
    """What auto goes by for attention on a card, e.g. '646 rows measured on NVIDIA H200'; None: on the processor."""
    from firstlight.kernels.block_attention.choose import CPU_SHARE, SPARSE_SHARE
    from firstlight.kernels.choice.cases import AttentionCase

    if card is None:
        return f"on the processor auto takes dense, or reference where at most {CPU_SHARE:g} of the blocks are kept"
    models = models_for(card)
    if not isinstance(models, str):
        machines = [machine for machine in (models.base, models.mine) if machine is not None]
        count = sum(isinstance(row.case, AttentionCase) for machine in machines for row in machine.rows)
        if count:
            return f"auto goes by times fitted to {count} {models.source}"
    return (
        f"auto takes dense for full and causal masks, triton where at most {SPARSE_SHARE:g} of the blocks are kept: a "
        f"rule, as attention was not measured on this GPU model; backend={ARCHS[0].name!r} by name"
    )


def compiler_here() -> Compiler:
    """Finds NVRTC or nvcc and counts the kernels kept on disk; compiles and loads nothing."""
    from firstlight.kernels.sm90.cache import kept_keys
    from firstlight.kernels.sm90.compile import find_compiler
    from firstlight.kernels.sm90.place import cache_folder

    folder, kept = str(cache_folder()), len(kept_keys())
    try:
        found = find_compiler()
    except UnsupportedInput as error:
        return Compiler("", str(error), folder, kept)
    return Compiler(found.identity.split(",")[0], found.path, folder, kept)


def _backend(name: str, devices: tuple[Device, ...], triton: str) -> Backend:
    if name in SPARSE:
        if name == "triton" and not triton:
            return Backend(name, runs=False, why="triton is not installed")
        hurdles = [why_not(name, device.number, DTYPE) for device in devices]
        for device, hurdle in zip(devices, hurdles, strict=True):
            if not hurdle:
                by = f"triton {triton}" if name == "triton" else "compiled on first use"
                return Backend(name, runs=True, why=f"{by}, {device.name} ({device.capability})")
        return Backend(name, runs=False, why=hurdles[0] if hurdles else "no CUDA device")
    if name == "dense":
        return Backend(
            name, runs=True, why="a dense copy through cuBLAS" if devices else "a dense copy, on the processor"
        )
    return Backend(name, runs=True, why="plain torch, any device, slow")


def _device(number: int) -> Device:
    name = torch.cuda.get_device_name(number)
    major, minor = torch.cuda.get_device_capability(number)
    hurdles = {name: why_not(name, number, DTYPE) for name in SPARSE}
    models = models_for(card_of(number))
    if isinstance(models, str):
        measured_in, limits, note = "", _default_limits(), f"the careful default densities: {models}"
    else:
        measured_in = str(SHIPPED if models.mine is None else cache_file(name))
        runs = tuple(who for who, what in hurdles.items() if not what)
        limits, note = limits_of(models, runs), f"by times fitted to {models.source}"
    path, why = taken(hurdles, limits)
    return Device(
        number=number, name=name, capability=f"{major}.{minor}", path=path,
        why=why or f"up to the densities below; {note}", measured_in=measured_in, limits=limits,
    )  # fmt: skip


def taken(hurdles: Mapping[str, str], limits: tuple[Limit, ...]) -> tuple[str, str]:
    """What auto takes at low density, and why where that is dense; kernels of an Arch where they were measured."""
    measured, portable = {limit.backend for limit in limits}, hurdles["triton"]
    for name in BY_NAME:
        if not hurdles[name] and (portable or name in measured):
            return name, ""
    return ("dense", portable) if portable else ("triton", "")


def _default_limits() -> tuple[Limit, ...]:
    return tuple(Limit(block, density, density) for block, density in DEFAULT_DENSITY.items())


def limits_of(models: Models, backends: tuple[str, ...]) -> tuple[Limit, ...]:
    """Up to which density each backend is expected to beat dense, over some common shapes."""
    found = []
    for block in sorted(BLOCKS, reverse=True):
        for backend in backends:
            all_ = [_limit(models, backend, block, shape, n) for shape in SHAPES for n in TOKENS]
            found.append(Limit(block, min(all_), max(all_), backend))
    return tuple(found)


def _limit(models: Models, backend: str, block: int, shape: tuple[int, int], n: int) -> float:
    """The highest of some densities up to which one backend takes no longer than dense; 0: none."""
    last = 0.0
    for density in DENSITIES:
        entries = round(density * (shape[0] // block) * (shape[1] // block))
        question = Question("multiply", 0, DTYPE, shape, block, entries, n, Layout.TOKENS, training=True)
        offers = offers_of(question, (backend,), models)
        if len(offers) < len((backend, "dense")) or offers[backend].us > offers["dense"].us:
            break
        last = density
    return last

"""A machine of which only a few words are known, `--for "H100, driver >= 550"`, as facts to make plans with."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts, collect
from firstlight.facts.gpus import Gpu
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.libcuda import CudaDevice, LibcudaCandidate
from firstlight.facts.place import Platform
from firstlight.machine.evidence import Evidence
from firstlight.machine.interface import Host
from firstlight.machine.recorded import RecordedMachine
from firstlight.plan.machine_class import ClassGpu, MachineClass, arch_of, parse_machine_class
from firstlight.tables import Tables, load
from firstlight.tables.gpu_rows import GpuKind
from firstlight.versions import DriverVersion

_SAID = "--for"
_FIRST_OF_CUDA_13 = DriverVersion.parse("580")
_NOT_SAID = Unknown("--for names the GPUs and the driver alone")
# NVML's brands of the product lines that no compat library takes; what a data-center GPU tells differs by model.
_BRANDS = {GpuKind.GEFORCE: 5, GpuKind.TITAN: 6}


def parse_machine(text: str, tables: Tables | None = None, *, arch: str = "", glibc: str = "") -> Facts:
    """The facts of a machine in words, "H100, driver 550": root, no Python yet; what was not said is Unknown.

    arch: as --platform says; "" = the one that these GPUs come with. glibc: as --glibc says, e.g. 2.28.
    """
    known = load() if tables is None else tables
    named = parse_machine_class(text, known)
    arch = arch_of(named, arch)
    host = Host("", "root", "/root", "/", 0, "", arch, "", "", "", "", "")
    facts = collect(RecordedMachine(Evidence(host)))
    each = tuple(gpu for gpu in named.gpus for _ in range(gpu.count))
    gpus = tuple(_gpu(number, gpu, known) for number, gpu in enumerate(each))
    return replace(
        facts,
        place=replace(facts.place, platform=Known(Platform.JETSON, _SAID)) if _has_board(named, known) else facts.place,
        runtime=replace(facts.runtime, glibc=Known(glibc, _SAID)) if glibc else facts.runtime,
        driver=replace(facts.driver, kernel_version=Known(named.driver, _SAID)),
        gpus=replace(facts.gpus, count=Known(len(gpus), _SAID), devices=gpus),
        libcuda=replace(
            facts.libcuda,
            would_load=Known(_libcuda(named.driver, arch), _SAID),
            devices=tuple(CudaDevice(gpu.name, gpu.capability, 0) for gpu in each),
        ),
    )


def _has_board(named: MachineClass, tables: Tables) -> bool:
    """Whether a Jetson is among them, which runs no CUDA later than its driver's: not 13.2 where it is of 13.0."""
    if named.driver < _FIRST_OF_CUDA_13:
        return False  # no wheel of an index runs on a board before CUDA 13: what it takes is a later Jetson Linux
    rows = [next((each for each in tables.gpus if each.model == gpu.name), None) for gpu in named.gpus]
    return any(row is not None and row.kind is GpuKind.JETSON for row in rows)


def oldest_driver(facts: Facts) -> DriverVersion | None:
    """The oldest driver of a class of machines; None for a machine that was looked at, which has one alone."""
    kernel = facts.driver.kernel_version
    return kernel.value if isinstance(kernel, Known) and kernel.seen_in == _SAID else None


def _libcuda(driver: DriverVersion, arch: str) -> LibcudaCandidate:
    """The driver's own library where drivers put it: a class of machines is meant that works, not a broken one."""
    folder = f"/usr/lib/{arch}-linux-gnu"
    return LibcudaCandidate(
        path=f"{folder}/libcuda.so.1",
        real_path=f"{folder}/libcuda.so.{driver}",
        version=Known(driver, _SAID),
        found_by=FoundBy.CACHE,
        entry="/etc/ld.so.cache",
        is_stub=False,
        is_compat=False,
        is_damaged=False,
    )


def _gpu(number: int, gpu: ClassGpu, tables: Tables) -> Gpu:
    row = next((each for each in tables.gpus if each.model == gpu.name), None)
    brand: Fact[int] = _NOT_SAID
    if row is not None and row.kind in _BRANDS:
        brand = Known(_BRANDS[row.kind], _SAID)
    told: dict[str, Any] = {
        "id": f"gpu-{number}",
        "name": Known(gpu.product or (gpu.name if row is None else row.example), _SAID),
        "capability": Known(gpu.capability, _SAID),
        "brand": brand,
        "mig_devices": (),
    }
    return Gpu(**{each.name: told.get(each.name, _NOT_SAID) for each in fields(Gpu)})

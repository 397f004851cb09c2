"""Parts for environments with compiled packages beside torch: its C++ ABI, and a plain GPU machine to put them on."""

from __future__ import annotations

from tools.machines import wheels
from tools.machines.elf_writer import ElfSpec
from tools.machines.guest_parts import Placed, box, cuda_works, firmware, gpus_at, ubuntu
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.special_parts import extension
from tools.machines.wheels import TorchWheel

# The constructor of c10::Error, with a std::string of either ABI: the symbol that reports of both kinds quote.
OLD_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
NEW_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
# c10::detail::torchInternalAssertFail likewise; the second as LMCache/LMCache#523 quotes it.
_ASSERT_FAIL = {
    OLD_ABI: "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKSs",
    NEW_ABI: "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
}
LINKED = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10_cuda.so")


def gpu_machine(
    name: str, about: str, *, driver: str, gpu: GpuSpec, system: str = "22.04", source: str = SUPPOSED
) -> Reconstruction:
    """One GPU, a driver that works, a plain user."""
    machine = box(name, about, root=0)
    ubuntu(machine, system, source=SUPPOSED)
    firmware(machine, "Supermicro", "SYS-421GE-TNRT", guest="", source=SUPPOSED)
    gpus_at(machine, driver, Placed(gpu, "0000:18:00.0"), source=source)
    return cuda_works(machine, driver, gpu)


def torch_with_abi(machine: Reconstruction, site: str, wheel: TorchWheel, *, abi: str, source: str) -> None:
    """torch with a libc10 that gives the constructor of one ABI only, as its wheels do."""
    wheels.torch(machine, site, wheel, source=source)
    gives = (abi, _ASSERT_FAIL[abi])
    extension(machine, f"{site}/torch/lib/libc10.so", needed=("libc.so.6",), asks=(), gives=gives, source=source)
    for name in ("libtorch.so", "libtorch_global_deps.so"):
        machine.elf(f"{site}/torch/lib/{name}", ElfSpec(rpath="$ORIGIN", needed=("libc.so.6",)), source=source)


def nvidia_wheel(machine: Reconstruction, site: str, name: str, version: str, library: str, *, source: str) -> None:
    """A library wheel of NVIDIA's with the RECORD line that names its library."""
    wheels.distribution(machine, site, name, version, source=source)
    path = library.rpartition("/")[2]
    machine.elf(f"{site}/{library}", ElfSpec(soname=path, needed=("libc.so.6",)), source=source)
    record = f"{site}/{name.replace('-', '_')}-{version}.dist-info/RECORD"
    machine.file(record, f"{library},sha256=x,1\n", source=source)

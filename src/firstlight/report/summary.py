"""A machine in two lines: what every report begins with."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.observed import cuda_starts, kernel_unseen
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known, Origin, Unknown
from firstlight.report.facts_lines import text
from firstlight.report.layout import gib, joined

_NO_DRIVER = "no driver"


def machine_summary(facts: Facts) -> tuple[str, str]:
    """The GPU stack, and where it runs: ('NVIDIA H100 (9.0), driver 570.133.20, ...', 'Ubuntu 24.04.3 LTS, ...')."""
    return joined([gpu_words(facts), _driver(facts), _torch(facts)]), joined([_place(facts), _python(facts)])


def gpu_words(facts: Facts) -> str:
    """What the GPUs are: '8x NVIDIA H200 (9.0, 139.8 GiB)'."""
    kinds: dict[str, int] = {}
    for name in _names(facts):
        kinds[name] = kinds.get(name, 0) + 1
    shown = " + ".join(f"{count}x {name}" if count > 1 else name for name, count in kinds.items())
    if shown:
        return shown
    cards = sum(card.kind.value == "gpu" for card in facts.gpus.pci)
    if cards:
        return f"{cards} NVIDIA GPU{'' if cards == 1 else 's'} on the PCI bus"
    if kernel_unseen(facts):
        return "GPUs not to be seen from here"
    return text(facts.gpus.tegra_chip, "the GPU of {}") or "no NVIDIA GPU"


def _names(facts: Facts) -> Iterator[str]:
    """'NVIDIA H200 (9.0, 139.8 GiB)' of each GPU; libcuda's word where NVML has none, as on a Jetson."""
    gpus, cuda = facts.gpus.devices, facts.libcuda.devices
    if cuda and all(isinstance(gpu.name, Unknown) and isinstance(gpu.capability, Unknown) for gpu in gpus):
        for device in cuda:
            yield f"{device.name} ({device.capability}, {gib(device.memory_bytes)})"
        return
    for gpu in gpus:
        memory = f", {gib(gpu.memory_bytes.value)}" if isinstance(gpu.memory_bytes, Known) else ""
        yield f"{text(gpu.name) or 'a GPU of unknown name'} ({text(gpu.capability) or 'capability unknown'}{memory})"


def _driver(facts: Facts) -> str:
    driver = _driver_version(facts)
    loads = facts.libcuda.would_load
    if not driver or driver == _NO_DRIVER:
        return driver
    if isinstance(loads, Known) and loads.value.is_compat:
        return driver + text(facts.libcuda.driver_cuda, " (CUDA {} by a compat library)")
    if facts.libcuda.ld_preload:  # what is preloaded may answer in libcuda's place: the finding version-spoofed
        return driver + text(facts.libcuda.driver_cuda, " (CUDA {} is answered under LD_PRELOAD)")
    return driver + text(facts.libcuda.driver_cuda, f" (CUDA {{}}{_by_another_libcuda(facts)})")


def _by_another_libcuda(facts: Facts) -> str:
    """' by libcuda 530.30.02' where that is not the kernel driver's own: it answers for itself, not for the driver."""
    loads, kernel = facts.libcuda.would_load, facts.driver.kernel_version
    if isinstance(loads, Unknown) or isinstance(loads.value.version, Unknown) or isinstance(kernel, Unknown):
        return ""
    version = loads.value.version.value
    return "" if version == kernel.value else f" by libcuda {version}"


def _driver_version(facts: Facts) -> str:
    if isinstance(facts.driver.kernel_version, Known):
        return f"driver {facts.driver.kernel_version.value}"
    if cuda_starts(facts):
        return "driver version unknown"
    return _NO_DRIVER if facts.gpus.devices or facts.gpus.pci else ""


def _torch(facts: Facts) -> str:
    if isinstance(facts.torch, Unknown):
        return "no torch"
    torch = facts.torch.value
    build = torch.build.value.value if isinstance(torch.build, Known) else ""
    name = f"torch {text(torch.version)} ({text(torch.wheel_cuda, 'CUDA {}') or build or 'build unknown'})"
    return f"{name}, wanted" if is_wanted(facts) else name


def is_wanted(facts: Facts) -> bool:
    """Whether the torch of these facts is one that was asked for, not one that is installed."""
    return isinstance(facts.torch, Known) and facts.torch.origin is Origin.WANTED


def _place(facts: Facts) -> str:
    kind = facts.container.kind
    container = kind.value.value if isinstance(kind, Known) and kind.value is not ContainerKind.NONE else ""
    platform = facts.place.platform
    special = platform.value.value if isinstance(platform, Known) and platform.value.value != "x86_64" else ""
    providers = joined(seen.provider.value for seen in facts.container.providers)
    return joined(
        [
            f"{text(facts.place.os_name)} {facts.place.arch}".strip(),
            special,
            f"{container} container" if container else "",
            providers,
        ]
    )


def _python(facts: Facts) -> str:
    environment = facts.environment
    return "" if environment is None else f"Python {text(environment.python_version)} at {environment.prefix}"

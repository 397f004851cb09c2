"""What each section of the facts says in words, shortest useful form; a section with nothing to say yields nothing."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.gpus import Gpu
from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.runtime_libraries import Libc
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.numerals import counted
from firstlight.report.layout import gib, joined

# Without these a CUDA program cannot be compiled or linked.
_NEEDED_PARTS = (Part.NVCC, Part.PTXAS, Part.CICC, Part.LIBDEVICE, Part.CRT_HEADERS, Part.RUNTIME_HEADER, Part.CUDART)


def text(fact: Fact[object], form: str = "{}") -> str:
    """A known value in a form, '' when it is unknown."""
    return form.format(fact.value) if isinstance(fact, Known) else ""


def known(fact: Fact[bool]) -> bool:
    """True only where it is known to be true."""
    return isinstance(fact, Known) and fact.value


def machine_lines(facts: Facts) -> Iterator[str]:
    place, container = facts.place, facts.container
    board = text(place.board_model) or joined([text(place.system_vendor), text(place.system_product)])
    platform = place.platform.value.value if isinstance(place.platform, Known) else ""
    special = "" if platform in ("", "x86_64") else platform
    yield joined([text(place.os_name), place.arch, f"kernel {place.kernel_release}", special, board])
    if line := joined(_makings(facts)):
        yield line
    if isinstance(container.kind, Known) and container.kind.value is not ContainerKind.NONE:
        providers = joined(seen.provider.value for seen in container.providers)
        rootless = ", rootless" if known(container.rootless) else ""
        yield f"inside a container ({container.kind.value.value}{rootless})" + (f", {providers}" if providers else "")
    elif container.providers:
        yield joined(seen.provider.value for seen in container.providers)


def _makings(facts: Facts) -> Iterator[str]:
    """What the system is made of where that is not the usual: an image, another C library, its early image."""
    place, libc = facts.place, facts.runtime.libc
    if isinstance(place.image_based, Known) and place.image_based.value is not ImageSystem.NONE:
        yield f"its programs come with an image ({place.image_based.value.value})"
    if isinstance(libc, Known) and libc.value is Libc.MUSL:
        yield "the C library is musl"
    if isinstance(place.boot.early_image, Known):
        yield f"early image by {place.boot.early_image.value.value}"
    for builder in place.boot.module_builders.value if isinstance(place.boot.module_builders, Known) else ():
        yield f"modules by {builder.value}"
    if isinstance(place.boot.module_variant, Known):
        yield f"built from {place.boot.module_variant.value}"


def limit_lines(facts: Facts) -> Iterator[str]:
    found = facts.resources
    processors = text(found.processors, "{:g} processors")
    memory = f"{gib(found.memory_bytes.value)} memory" if isinstance(found.memory_bytes, Known) else ""
    shared = f"{gib(found.shm_bytes.value)} /dev/shm" if isinstance(found.shm_bytes, Known) else ""
    line = joined([processors, text(found.processor_model), memory, shared])
    if line:
        yield line
    seen: set[tuple[int, int]] = set()
    disks = []
    for disk in found.disks:
        size = (disk.total_bytes, disk.free_bytes)
        if disk.path != "/dev/shm" and size not in seen:  # noqa: S108 compared, not used
            seen.add(size)
            disks.append(f"{gib(disk.free_bytes)} free on {disk.path}")
    volume = text(found.persistent_volume, "{} outlives the container")
    if disks or volume:
        yield joined([*disks, volume])


def gpu_lines(facts: Facts) -> Iterator[str]:
    for gpu in facts.gpus.devices:
        yield f"{gpu.id}: {_gpu(gpu)}"
    if not facts.gpus.devices:
        cards = [card for card in facts.gpus.pci if card.kind.value == "gpu"]
        for card in cards:
            yield f"NVIDIA device {text(card.device_id)} at {card.address}, kernel driver {text(card.driver) or 'none'}"
        if isinstance(facts.gpus.tegra_chip, Known):
            yield f"the GPU of {facts.gpus.tegra_chip.value}"
        elif not cards:
            yield "none: no NVIDIA device on the PCI bus"
    masks = [
        text(facts.gpus.cuda_visible_devices, "CUDA_VISIBLE_DEVICES={}"),
        text(facts.gpus.mps_control, "MPS is running ({})"),
    ]
    if joined(masks):
        yield joined(masks)


def _gpu(gpu: Gpu) -> str:
    memory = gib(gpu.memory_bytes.value) if isinstance(gpu.memory_bytes, Known) else ""
    mig = "MIG on, " + counted(len(gpu.mig_devices), "slice") if known(gpu.mig_mode) else ""
    ecc = "" if isinstance(gpu.ecc_mode, Unknown) else "ECC on" if gpu.ecc_mode.value else "ECC off"
    virtual = gpu.virtualization.value.value if isinstance(gpu.virtualization, Known) else ""
    return joined(
        [
            text(gpu.name) or "name unknown",
            text(gpu.capability, "capability {}"),
            memory,
            ecc,
            mig,
            text(gpu.power_limit_w, "{:.0f} W"),
            text(gpu.clock_sm_max_mhz, "up to {} MHz"),
            "" if virtual in ("", "none") else virtual,
        ]
    )


def driver_lines(facts: Facts) -> Iterator[str]:
    driver = facts.driver
    if isinstance(driver.kernel_version, Unknown):
        yield "none found"
    else:
        kind = f"{driver.module_kind.value.value} module" if isinstance(driver.module_kind, Known) else ""
        yield joined([str(driver.kernel_version.value), kind]) + f" ({driver.kernel_version.seen_in})"
    if known(driver.nouveau_loaded):
        yield "the nouveau module is loaded"
    if isinstance(driver.nvml_message, Known):
        yield f"NVML: {driver.nvml_message.value}"
    for each in facts.library_owners.value if isinstance(facts.library_owners, Known) else ():
        yield f"{each.path} was installed here by {each.package} ({each.database})"


def libcuda_lines(facts: Facts) -> Iterator[str]:
    found = facts.libcuda
    if isinstance(found.would_load, Unknown):
        if facts.gpus.devices or facts.gpus.pci or isinstance(facts.driver.kernel_version, Known):
            yield found.would_load.reason
        return
    best = found.would_load.value
    what = joined([text(best.version), "a compat library" if best.is_compat else "", "a stub" if best.is_stub else ""])
    yield f"{best.path} ({what or 'version unknown'}), by {best.found_by.value} {best.entry}".rstrip()
    code = found.init_code
    if isinstance(code, Known):
        result = "cuInit works" if code.value == 0 else f"cuInit gives {code.value} {text(found.init_name)}".rstrip()
        devices = counted(found.device_count.value, "device") if isinstance(found.device_count, Known) else ""
        yield joined([text(found.driver_cuda, "CUDA {}"), result, devices])
    else:
        yield f"not started: {code.reason}"


def compat_lines(facts: Facts) -> Iterator[str]:
    for library in facts.compat:
        note = library.note.value if isinstance(library.note, Known) else None
        branches = "" if note is None else "for kernel drivers " + " ".join(str(each) for each in note.driver_branches)
        cuda = "" if note is None else f"CUDA {note.cuda}"
        yield f"{library.folder}: " + joined([text(library.version), cuda, branches])


def python_lines(facts: Facts) -> Iterator[str]:
    environment = facts.environment
    if environment is None:
        return
    yield (
        f"{text(environment.python_version)} {environment.kind.value} at {environment.prefix} "
        f"({joined(environment.found_by)})"
    ).strip()
    others = len(facts.python.environments) - 1
    if others:
        yield f"{counted(others, 'other environment')} found; --python PATH chooses"
    for twin in environment.duplicates:
        yield f"{twin.name} is installed {len(twin.versions)} times: {' and '.join(twin.versions)}"


def torch_lines(facts: Facts) -> Iterator[str]:
    if isinstance(facts.torch, Unknown):
        yield "not installed in that environment"
        return
    torch = facts.torch.value
    cuda = text(torch.wheel_cuda, "CUDA {}")
    build = torch.build.value.value if isinstance(torch.build, Known) and not cuda else ""
    channel = torch.channel.value.value if isinstance(torch.channel, Known) else ""
    built_for = torch.compiled_for.value if isinstance(torch.compiled_for, Known) else ()
    yield joined([text(torch.version), cuda, build, channel, f"built for {' '.join(built_for)}" if built_for else ""])


def companion_lines(facts: Facts) -> Iterator[str]:
    parts = []
    for each in facts.companions:
        wants = f"torch {each.torch_required.value}" if isinstance(each.torch_required, Known) else ""
        cuda = text(each.built_for_cuda, "CUDA {}")
        detail = joined([wants if wants != "torch " else "", cuda])
        parts.append(f"{each.name} {each.version}" + (f" ({detail})" if detail else ""))
    if parts:
        yield "; ".join(parts)


def extension_lines(facts: Facts) -> Iterator[str]:
    files = facts.extensions.files.value if isinstance(facts.extensions.files, Known) else ()
    for each in files:
        seen = each.symbols.value if isinstance(each.symbols, Known) else None
        if each.lacks_libraries or (seen is not None and seen.lacking):
            names = f"{seen.lacking} of {seen.asked} names" if seen is not None else ""
            lacks = joined([names, *each.lacks_libraries])
            yield f"{each.package} {text(each.version)}: torch lacks {lacks} that {each.path} asks for"
    if files:
        yield f"{counted(len(files), 'compiled file')} beside torch read"


def toolkit_lines(facts: Facts) -> Iterator[str]:
    for toolkit in facts.toolkits.toolkits:
        yield _toolkit(toolkit)
    on_path = facts.toolkits.nvcc_on_path
    if isinstance(on_path, Known) and on_path.value.is_wrapper:
        yield f"nvcc on PATH is a wrapper: {on_path.value.path}" + text(on_path.value.toolkit, ", starting {}")
    for tree in facts.cutlass.trees:
        yield joined(
            [f"CUTLASS {text(tree.version) or '(version unknown)'} at {tree.path}", text(tree.commit, "commit {:.8}")]
        )


def _toolkit(toolkit: Toolkit) -> str:
    missing = [part.value for part in toolkit.missing if part in _NEEDED_PARTS]
    state = f"lacks {' '.join(missing)}" if missing else "complete"
    if Part.NVCC in toolkit.missing and Part.PTXAS in toolkit.missing:
        state = "libraries alone, no compiler"
    version = text(toolkit.version)
    nvcc = text(toolkit.nvcc_version, "nvcc {}")
    return f"{joined([version, nvcc]) or 'version unknown'} at {toolkit.path} ({joined(toolkit.found_by)}): {state}"


def compiler_lines(facts: Facts) -> Iterator[str]:
    found = facts.compilers
    named = [
        f"{tool.name} {text(tool.version)}".strip() for tool in found.compilers if tool.name in ("gcc", "g++", "clang")
    ]
    chosen = [f"{each.variable}={each.command}" for each in found.chosen]
    tools = " ".join(
        tool.name for tool in found.tools if tool.name in ("cmake", "ninja", "ccache", "uv", "git", "conda")
    )
    if joined([*named, *chosen, tools]):
        yield joined([*named, *chosen, tools])


def library_lines(facts: Facts) -> Iterator[str]:
    names = {"cudnn": "cuDNN", "nccl": "NCCL", "cublas": "cuBLAS", "cudart": "cudart", "cudss": "cuDSS"}
    parts = []
    for found in facts.cuda_libraries.libraries:
        if found.name in names:
            parts.append(f"{names[found.name]} {text(found.version)} ({found.found_in.value})".replace("  ", " "))
    unique = tuple(dict.fromkeys(parts))
    if unique:
        yield "; ".join(unique)
    runtime = facts.runtime
    yield joined([text(runtime.glibc, "glibc {}"), text(runtime.libstdcxx, "libstdc++ GLIBCXX_{}")])


def container_lines(facts: Facts) -> Iterator[str]:
    found = facts.container
    if isinstance(found.cuda_requirement, Known):
        gate = found.cuda_requirement.value
        branches = " ".join(str(each) for each in gate.driver_branches)
        yield joined([f"gate: CUDA {text(gate.cuda_floor)}", f"or drivers {branches}" if branches else ""])
    if isinstance(found.only_in_pid_1, Known) and found.only_in_pid_1.value:
        yield f"set for the container but not in this shell: {joined(found.only_in_pid_1.value)}"
    runtime = found.runtime
    if isinstance(runtime.docker_socket, Known) or isinstance(runtime.container_toolkit, Known):
        toolkit = text(runtime.container_toolkit, "nvidia-container-toolkit {}") or "no nvidia-container-toolkit"
        yield joined(["docker socket" if isinstance(runtime.docker_socket, Known) else "", toolkit])


def health_lines(facts: Facts) -> Iterator[str]:
    health = facts.health
    if isinstance(health.xids, Known) and facts.gpus.devices:
        codes = joined(f"{event.family} {event.code}" for event in health.xids.value[-5:])
        yield f"{counted(len(health.xids.value), 'Xid event')}" + (f", newest: {codes}" if codes else "")
    for gpu in health.gpus:
        bad = [
            text(gpu.ecc_uncorrected_volatile, "{} uncorrected ECC errors")
            if _positive(gpu.ecc_uncorrected_volatile)
            else "",
            "row remap failed" if known(gpu.row_remap_failure) else "",
            "row remap pending" if known(gpu.row_remap_pending) else "",
            "pages to retire" if known(gpu.retired_pages_pending) else "",
        ]
        if joined(bad):
            yield f"{gpu.id}: {joined(bad)}"


def _positive(fact: Fact[int]) -> bool:
    return isinstance(fact, Known) and fact.value > 0


def network_lines(facts: Facts) -> Iterator[str]:
    found = facts.network
    proxies = f"proxy set by {joined(found.proxies)}" if found.proxies else ""
    settings = joined(f"{each.name} in {each.where}" for each in found.package_settings)
    if joined([proxies, settings]):
        yield joined([proxies, f"package sources: {settings}" if settings else ""])


def ability_lines(facts: Facts) -> Iterator[str]:
    found = facts.ability
    held = found.apt_locks.value if isinstance(found.apt_locks, Known) else ()
    yield joined(
        [
            found.sudo.value,
            f"package manager {joined(found.package_managers)}" if found.package_managers else "",
            f"apt is locked ({held[0].path})" if held else "",
        ]
    )

"""What ways of the kernel driver do to the facts: drivers, modules, keys, device nodes, and a restart.

A driver, a forbidden module and a module's option are in use after the next start; they are written down as if it had
been, since no chain has them without it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.elf.loader import FoundBy
from firstlight.errors import BadVersion
from firstlight.facts.boot_trust import TRUSTED, Standing
from firstlight.facts.collect import Facts
from firstlight.facts.driver import DeviceNode, ModuleKind, kernel_to_start
from firstlight.facts.gpus import PciDevice, PciKind
from firstlight.facts.known import Fact, Known, Origin, Unknown, value_or
from firstlight.facts.libcuda import LibcudaCandidate
from firstlight.tables import Tables
from firstlight.tables.system_rows import Role
from firstlight.versions import DriverVersion
from firstlight.ways import kinds
from firstlight.ways.device_effects import after_start_of_gpus
from firstlight.ways.libcuda_on_paper import (
    asked_again,
    asked_anew,
    drivers_own,
    is_drivers_own,
    put_in_cache,
    with_candidates,
    with_other_library,
)
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, becomes, opened, planned
from firstlight.ways.platform import platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Way

_UVM = "nvidia_uvm"
_HMM = "uvm_disable_hmm"
_BRANCH = re.compile(r"-(\d{3})(?:xx)?(?:-|$)")  # of a package's name, where the system puts it there
_CHANNEL, _FIRMWARE = "NVreg_CreateImexChannel0", "NVreg_EnableGpuFirmware"


def after_driver(way: Way, facts: Facts, tables: Tables) -> Facts | None:
    """The facts after a way of the kernel driver; None for any other way."""
    match way:
        case kinds.InstallDriver():
            kind = ModuleKind.OPEN if way.flavour is kinds.Flavour.OPEN else ModuleKind.PROPRIETARY
            version = newest_of_branch(tables, way.branch)
            facts = with_driver(_with_module(facts, tables, way, kind=kind), tables, version, way=way)
            return _with_libraries(facts, tables, planned(version, way), way)
        case kinds.LoadModules() | kinds.ReloadModules() if value_or(facts.driver.kernel_replaced, default=False):
            return facts  # the modules of the kernel that runs are gone: what is unloaded does not come back
        case kinds.LoadModules():
            return _beside(way, _loaded(way, facts, tables, modules=way.modules))
        case kinds.ReloadModules():
            return _reloaded(way, facts, tables)
        case kinds.BuildModules():
            path = f"/lib/modules/{way.kernel}/{_module_folder(facts, tables, by=way.by)}/nvidia.ko"
            file = facts.driver.module_file
            built = file if isinstance(file, Known) else planned(path, way)
            return replace(
                facts, driver=replace(facts.driver, module_file=built, module_on_disk=_built_version(facts, way))
            )
        case kinds.ForbidModule():
            return _forbidden(way, facts)
        case kinds.SetModuleOption():
            return _with_option(way, facts)
        case kinds.ChooseModules():
            return _chosen(way, facts)
        case kinds.StartKernel():
            return _with_kernel(way, facts)
        case kinds.EnrolKey():
            return _let_in(way, facts)
        case kinds.MakeDeviceNodes():
            return asked_again(_speaking_again(with_nodes(facts)))
        case kinds.Restart():
            return _restarted(way, facts, tables)
    return None


def newest_of_branch(tables: Tables, branch: int) -> DriverVersion:
    """The newest driver of a branch that the tables have seen, e.g. 580.126.20 of 580; else 580.0."""
    found = [each for each in _seen_drivers(tables) if each.branch == branch]
    return max(found, default=DriverVersion.parse(f"{branch}.0"))


def _seen_drivers(tables: Tables) -> Iterator[DriverVersion]:
    for package in tables.compat_packages:
        yield from (build.driver for build in tables.compat_builds(package.cuda))
    yield from (row.driver_in_release_notes for row in tables.cuda_releases)
    yield from (row.driver_shipped_with for row in tables.cuda_runfiles if row.driver_shipped_with is not None)
    yield from (row.min_driver_same_major for row in tables.cuda_majors)


def with_driver(facts: Facts, tables: Tables, version: DriverVersion, *, way: Way) -> Facts:
    """The facts with a kernel driver of one version loaded; a stale compat library shows again."""
    driver = facts.driver
    if driver.kernel_version == driver.nvml_library_version == planned(version, way):
        return facts
    known = planned(version, way)
    cuda = tables.native_cuda(version)
    facts = replace(
        facts,
        driver=replace(
            driver,
            kernel_version=known,
            nvml_library=NOT_READ,
            nvml_library_version=known,
            nvml_version=NOT_READ,
            nvml_cuda=NOT_READ if cuda is None else planned(cuda, way),
            uvm_loaded=becomes(driver.uvm_loaded, value=True, way=way),
        ),
        gpus=replace(facts.gpus, pci=tuple(_bound(each, way) for each in facts.gpus.pci)),
        compat=tuple(replace(each, init_code=NOT_READ) for each in facts.compat),
    )
    facts = _speaking_again(with_nodes(facts))
    facts = replace(facts, driver=replace(facts.driver, nvml_code=ONLY_RUNNING, nvml_message=ONLY_RUNNING))
    # A compat library that is wired at each start is not taken where another driver is loaded.
    candidates = tuple(each for each in facts.libcuda.candidates if each.found_by is not FoundBy.PATH)
    facts = with_other_library(with_candidates(facts, tables, candidates, way=way), tables, way)
    return after_start_of_gpus(facts, way)


def _with_libraries(facts: Facts, tables: Tables, version: Known[DriverVersion], way: Way) -> Facts:
    """The driver's own libcuda of that version, where it lies or is put; loading a module brings no library."""
    candidates = tuple(_of_version(each, version) for each in facts.libcuda.candidates)
    if not any(is_drivers_own(each) for each in candidates):
        candidates = put_in_cache(candidates, drivers_own(facts, version))
    return with_candidates(facts, tables, candidates, way=way)


def _of_version(each: LibcudaCandidate, version: Known[DriverVersion]) -> LibcudaCandidate:
    """The driver's own libcuda in the version that is installed; stubs and compat libraries stay what they are."""
    if not is_drivers_own(each):
        return each
    real = f"{posixpath.dirname(each.path)}/libcuda.so.{version.value}"
    return replace(each, version=version, real_path=real, is_damaged=False)


def _bound(each: PciDevice, way: Way) -> PciDevice:
    """A GPU taken by the nvidia module; one that another driver holds stays with it."""
    free = each.kind is PciKind.GPU and isinstance(each.driver, Unknown)
    return replace(each, driver=planned("nvidia", way)) if free else each


def _module_folder(facts: Facts, tables: Tables, *, by: str = "") -> str:
    """Where modules built here lie under the kernel's own folder: updates/dkms of Debian, extra/nvidia of akmods."""
    found = names_for(Role.MODULE_FOLDER, platform_of(facts), tables, of=by or "dkms")
    return found[0] if found else "updates"  # what depmod looks into first, wherever no row says otherwise


def _with_module(facts: Facts, tables: Tables, way: kinds.InstallDriver, *, kind: ModuleKind) -> Facts:
    driver = facts.driver
    file = driver.module_file
    by = "akmods" if any(name.startswith("akmod-") for name in way.packages) else ""
    made = f"/lib/modules/{facts.place.kernel_release}/{_module_folder(facts, tables, by=by)}/nvidia.ko"
    path = file.value if isinstance(file, Known) else made
    signed = becomes(driver.module_file, path, way)
    return replace(
        facts, driver=replace(driver, module_kind=becomes(driver.module_kind, kind, way), module_file=signed)
    )


def with_nodes(facts: Facts) -> Facts:
    """The facts with the nodes under /dev for every GPU on the bus, and for nvidia_uvm where it is loaded."""
    count = max(1, sum(each.kind is PciKind.GPU for each in facts.gpus.pci), len(facts.gpus.devices))
    wanted = ["/dev/nvidiactl", *(f"/dev/nvidia{number}" for number in range(count))]
    if value_or(facts.driver.uvm_loaded, default=False):
        wanted.append("/dev/nvidia-uvm")
    kept = tuple(
        DeviceNode(each.path, "device", openable=True)
        if each.path in wanted and each.kind in ("absent", "file")
        else each
        for each in facts.driver.nodes
    )
    there = {each.path for each in kept}
    new = tuple(DeviceNode(path, "device", openable=True) for path in wanted if path not in there)
    return replace(facts, driver=replace(facts.driver, nodes=(*kept, *new)))


def _speaking_again(facts: Facts) -> Facts:
    """NVML is open where it did not answer well."""
    driver = facts.driver
    if isinstance(driver.nvml_code, Known) and driver.nvml_code.value == 0:
        return facts
    return replace(facts, driver=replace(driver, nvml_code=ONLY_RUNNING, nvml_message=ONLY_RUNNING))


def _loaded(way: Way, facts: Facts, tables: Tables, *, modules: tuple[str, ...]) -> Facts:
    if "nvidia" in modules and isinstance(facts.driver.kernel_version, Unknown):
        if not _may_load(facts):
            return facts
        version = _on_disk(facts, tables)
        if version is None:
            driver = replace(facts.driver, kernel_version=ONLY_RUNNING, uvm_loaded=ONLY_RUNNING)
            return asked_anew(_speaking_again(with_nodes(replace(facts, driver=driver))))
        facts = with_driver(facts, tables, version, way=way)
    if _UVM in modules and isinstance(facts.driver.kernel_version, Known):
        loaded = becomes(facts.driver.uvm_loaded, value=True, way=way)
        facts = replace(facts, driver=replace(facts.driver, uvm_loaded=loaded))
        facts = asked_again(with_nodes(facts))
    return facts


def _beside(way: kinds.LoadModules, facts: Facts) -> Facts:
    """Modules beside the driver's own: what network adapters and NVLSM speak through."""
    peers, fabric = facts.fleet.peers, facts.fleet.fabric
    if "nvidia_peermem" in way.modules:
        peers = replace(peers, peermem_loaded=becomes(peers.peermem_loaded, value=True, way=way))
    if "gdrdrv" in way.modules:
        peers = replace(peers, gdrcopy_loaded=becomes(peers.gdrcopy_loaded, value=True, way=way))
    if "ib_umad" in way.modules:
        fabric = replace(fabric, umad_loaded=becomes(fabric.umad_loaded, value=True, way=way))
    return replace(facts, fleet=replace(facts.fleet, peers=peers, fabric=fabric))


def _may_load(facts: Facts) -> bool:
    """Whether the kernel takes the module: it is there and, under Secure Boot, signed by a key that is let in."""
    file, secure = facts.driver.module_file, facts.health.secure_boot
    if isinstance(file, Unknown):
        return False
    let_in = file.origin is Origin.PLANNED or bool(value_or(facts.health.driver_messages, ()))
    let_in = let_in or value_or(facts.fleet.boot.standing, Standing.STRANGER) in TRUSTED
    return let_in or not value_or(secure, default=False)


def _on_disk(facts: Facts, tables: Tables) -> DriverVersion | None:
    """The version of the driver that is installed: by its libraries, else by the branch in its packages' names."""
    if isinstance(facts.driver.nvml_library_version, Known):
        return facts.driver.nvml_library_version.value
    for each in facts.libcuda.candidates:
        if is_drivers_own(each) and isinstance(each.version, Known):
            return each.version.value
    for name in value_or(facts.driver.packages, ()):
        if match := _BRANCH.search(name):
            return newest_of_branch(tables, int(match[1]))
    return None


def parsed_driver(text: str) -> DriverVersion | None:
    """The driver version of a package's version, e.g. 570.133.20 of 570.133.20*; None where it has none."""
    try:
        return DriverVersion.parse(text.rstrip("-*"))
    except BadVersion:
        return None


def _reloaded(way: kinds.ReloadModules, facts: Facts, tables: Tables) -> Facts:
    driver = facts.driver
    if "nvidia" not in way.modules:
        return asked_again(facts)
    if isinstance(driver.kernel_version, Unknown):
        return _loaded(way, facts, tables, modules=way.modules)
    library = driver.nvml_library_version
    if isinstance(library, Known) and _waits_on_disk(facts):
        return with_driver(facts, tables, library.value, way=way)
    return after_start_of_gpus(asked_again(_speaking_again(with_nodes(facts))), way)


def _forbidden(way: kinds.ForbidModule, facts: Facts) -> Facts:
    pci = tuple(_without_rival(each, way.module) for each in facts.gpus.pci)
    driver = facts.driver
    if way.module == "nouveau":
        driver = replace(driver, nouveau_loaded=becomes(driver.nouveau_loaded, value=False, way=way))
    return replace(facts, gpus=replace(facts.gpus, pci=pci), driver=driver)


def _without_rival(each: PciDevice, module: str) -> PciDevice:
    """A GPU freed from a module; nova_core calls its PCI driver NovaCore."""
    held = value_or(each.driver, "").lower().replace("_", "")
    freed = bool(held) and held == module.lower().replace("_", "")
    return replace(each, driver=Unknown("no driver is bound to it")) if freed else each


def _with_option(way: kinds.SetModuleOption, facts: Facts) -> Facts:
    name, _, value = way.option.partition("=")
    if name == _CHANNEL and isinstance(facts.fleet.fabric.imex_channels, Known):
        fabric = replace(facts.fleet.fabric, imex_channels=becomes(facts.fleet.fabric.imex_channels, 1, way))
        return replace(facts, fleet=replace(facts.fleet, fabric=fabric))
    if name == _FIRMWARE and value.isdigit():
        gsp = replace(facts.fleet.gsp, setting=becomes(facts.fleet.gsp.setting, int(value), way))
        return replace(facts, fleet=replace(facts.fleet, gsp=gsp))
    if (way.module, name) != (_UVM, _HMM):
        return facts
    driver = facts.driver
    setting: Fact[bool] = becomes(driver.uvm_disable_hmm, value=value.strip() in ("1", "Y", "y"), way=way)
    changed = setting is not driver.uvm_disable_hmm
    facts = replace(facts, driver=replace(driver, uvm_disable_hmm=setting))
    return asked_again(facts) if changed else facts


def _chosen(way: kinds.ChooseModules, facts: Facts) -> Facts:
    """The kind of module that is built next; it is in use after the build and a restart, like a driver."""
    kind = ModuleKind.OPEN if way.flavour is kinds.Flavour.OPEN else ModuleKind.PROPRIETARY
    variant = facts.place.boot.module_variant
    if way.instead_of and isinstance(variant, Known):
        boot = replace(facts.place.boot, module_variant=becomes(variant, way.line, way))
        facts = replace(facts, place=replace(facts.place, boot=boot))
    return replace(facts, driver=replace(facts.driver, module_kind=becomes(facts.driver.module_kind, kind, way)))


def _with_kernel(way: kinds.StartKernel, facts: Facts) -> Facts:
    """The kernel that runs after the restart, with the module that lies ready for it."""
    ready = way.kernel in value_or(facts.driver.kernels_with_module, ())
    path = f"/lib/modules/{way.kernel}/nvidia.ko"
    file = becomes(facts.driver.module_file, path, way) if ready else facts.driver.module_file
    place = replace(facts.place, kernel_release=way.kernel)
    return replace(facts, place=place, driver=replace(facts.driver, module_file=file))


def _let_in(way: kinds.EnrolKey, facts: Facts) -> Facts:
    file = facts.driver.module_file
    if isinstance(file, Unknown) or file.origin is Origin.PLANNED:
        return facts
    return replace(facts, driver=replace(facts.driver, module_file=planned(file.value, way)))


def _built_version(facts: Facts, way: kinds.BuildModules) -> Fact[DriverVersion]:
    """What is built is of the version of the packages that are installed, which the libraries have."""
    disk, library = facts.driver.module_on_disk, facts.driver.nvml_library_version
    return becomes(disk, library.value, way) if isinstance(disk, Known) and isinstance(library, Known) else disk


def _waits_on_disk(facts: Facts) -> bool:
    """Whether the next load takes a module of the libraries' version: not where that on disk is the loaded one."""
    disk, library, kernel = (
        facts.driver.module_on_disk, facts.driver.nvml_library_version, facts.driver.kernel_version,
    )  # fmt: skip
    if isinstance(library, Unknown) or isinstance(kernel, Unknown) or library.value == kernel.value:
        return False
    return not isinstance(disk, Known) or disk.value != kernel.value


def _restarted(way: kinds.Restart, facts: Facts, tables: Tables) -> Facts:
    """What waits for a restart is so: one version of the driver everywhere, modules loaded, nodes made."""
    driver, ready = facts.driver, kernel_to_start(facts.driver, facts.place.kernel_release)
    if value_or(driver.kernel_replaced, default=False):  # the newest that is installed is started
        facts = _with_kernel(kinds.StartKernel(ready), facts) if ready else facts
        started = replace(facts.driver, kernel_replaced=becomes(driver.kernel_replaced, value=False, way=way))
        facts = replace(facts, driver=started)
    if isinstance(driver.kernel_version, Unknown):
        facts = _loaded(way, facts, tables, modules=("nvidia", _UVM))
        driver = facts.driver
    if isinstance(driver.kernel_version, Unknown):
        return facts
    library = driver.nvml_library_version
    if isinstance(library, Known) and _waits_on_disk(facts):
        facts = with_driver(facts, tables, library.value, way=way)
    driver = facts.driver
    loaded = replace(driver, uvm_loaded=becomes(driver.uvm_loaded, value=True, way=way))
    facts = asked_again(_speaking_again(with_nodes(replace(facts, driver=loaded))))
    messages = opened(facts.health.driver_messages, unless=())
    return after_start_of_gpus(replace(facts, health=replace(facts.health, driver_messages=messages)), way)

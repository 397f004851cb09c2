"""What changes around the programs or takes their place: a container started anew, its image, a build from source."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.containers import parse_requirement
from firstlight.facts.gpus import MigDevice
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.torch_install import TorchBuild, TorchChannel
from firstlight.tables import Tables
from firstlight.versions import CudaVersion, TorchVersion
from firstlight.ways.driver_effects import with_nodes
from firstlight.ways.kinds import BuildFromSource, ChangeImage, InstallWheels, Manner, Package, StartContainer
from firstlight.ways.libcuda_on_paper import asked_again, drivers_own, put_in_cache, with_candidates
from firstlight.ways.paper import NOT_READ, ONLY_RUNNING, becomes, planned
from firstlight.ways.python_effects import after_python
from firstlight.ways.way import Way
from firstlight.ways.wheels_on_paper import torch_wheel

_SIZE = re.compile(r"--shm-size=(\d+)([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_ONE_SLICE = re.compile(r"nvidia\.com/mig-|(?:device|gpu|DEVICES)=\d+:\d+")
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES="


def after_elsewhere(way: Way, facts: Facts, tables: Tables, *, home: str) -> Facts | None:
    """The facts after a way around this container, or a build; None for any other way."""
    match way:
        case StartContainer():
            return _started(way, facts, tables)
        case ChangeImage():
            if not way.gate:
                return facts
            asked = becomes(facts.container.cuda_requirement, parse_requirement(way.gate), way)
            return replace(facts, container=replace(facts.container, cuda_requirement=asked))
        case BuildFromSource():
            return _built(way, facts, tables, home=home)
    return None


def _started(way: StartContainer, facts: Facts, tables: Tables) -> Facts:
    """The container anew: what its arguments say, and with GPUs the host's nodes and libraries."""
    for each in way.arguments:
        if size := _SIZE.fullmatch(each):
            room = int(size[1]) << _UNITS[size[2].lower()]
            shm = becomes(facts.resources.shm_bytes, room, way)
            facts = replace(facts, resources=replace(facts.resources, shm_bytes=shm))
        elif each == "--ipc=host":
            facts = replace(facts, resources=replace(facts.resources, shm_bytes=ONLY_RUNNING))
        elif each.startswith(_CAPABILITIES):
            wanted = becomes(facts.container.driver_capabilities, each.removeprefix(_CAPABILITIES), way)
            facts = replace(facts, container=replace(facts.container, driver_capabilities=wanted))
    if "keep-groups" in way.arguments:
        facts = _opened(facts)
    if any(_ONE_SLICE.search(each) for each in way.arguments):
        facts = _sliced(facts)
    return _with_hosts_gpus(way, facts, tables) if way.gives_gpus else facts


def _opened(facts: Facts) -> Facts:
    """The nodes with the groups of the user outside: what their modes allow the group is allowed."""
    nodes = tuple(replace(each, openable=True) if each.kind == "device" else each for each in facts.driver.nodes)
    return replace(facts, driver=replace(facts.driver, nodes=nodes))


def _sliced(facts: Facts) -> Facts:
    """A slice of each GPU that is cut into slices; which one only the container can tell."""
    slice_of_it = MigDevice(ONLY_RUNNING, ONLY_RUNNING, ONLY_RUNNING, ONLY_RUNNING)
    devices = tuple(
        replace(gpu, mig_devices=gpu.mig_devices or (slice_of_it,)) if value_or(gpu.mig_mode, default=False) else gpu
        for gpu in facts.gpus.devices
    )
    return replace(facts, gpus=replace(facts.gpus, devices=devices))


def _with_hosts_gpus(way: Way, facts: Facts, tables: Tables) -> Facts:
    driver, kernel = facts.driver, facts.driver.kernel_version
    if not (isinstance(driver.nvml_code, Known) and driver.nvml_code.value == 0):
        driver = replace(driver, nvml_code=ONLY_RUNNING, nvml_message=ONLY_RUNNING)
    if driver.nvml_library_version != kernel:
        driver = replace(driver, nvml_library_version=NOT_READ)
    facts = with_nodes(replace(facts, driver=driver))
    container = facts.container
    if value_or(container.visible_devices, "") in ("none", "void"):
        facts = replace(facts, container=replace(container, visible_devices=planned("all", way)))
    first = facts.libcuda.candidates[0] if facts.libcuda.candidates else None
    if isinstance(facts.libcuda.would_load, Unknown) and (first is None or not first.is_compat):
        own = drivers_own(facts, kernel if isinstance(kernel, Known) else NOT_READ)
        others = tuple(each for each in facts.libcuda.candidates if each.path != own.path and not each.is_damaged)
        facts = with_candidates(facts, tables, put_in_cache(others, own), way=way)
    return asked_again(facts)


def _built(way: BuildFromSource, facts: Facts, tables: Tables, *, home: str) -> Facts:
    """A project built here: for the GPUs named, with the toolkit that is used here."""
    if way.project != "torch":
        package = InstallWheels((Package(way.project, way.version.removeprefix("v")),), manner=Manner.COMPILED)
        return after_python(package, facts, tables, home=home) or facts
    number = way.version.removeprefix("v")
    package = InstallWheels((Package("torch", number or "0.0.0"),))
    installed = after_python(package, facts, tables, home=home) or facts
    if isinstance(installed.torch, Unknown):
        return installed
    before = facts.torch.value if isinstance(facts.torch, Known) else None
    torch = replace(
        torch_wheel(facts, tables, _version(number), asked_by="site-packages"),
        folder=installed.torch.value.folder,
        version=planned(_version(number), way) if number else ONLY_RUNNING,
        recorded_version=ONLY_RUNNING,
        channel=planned(TorchChannel.SOURCE, way),
        build=planned(TorchBuild.CUDA, way),
        wheel_cuda=_toolkit_cuda(facts, way),
        compiled_for=planned(tuple(each.sm for each in way.capabilities), way),
        requires=NOT_READ,
        shadowed_by=() if before is None else before.shadowed_by,
    )
    return replace(installed, torch=planned(torch, way), torch_libraries=ONLY_RUNNING)


def _version(number: str) -> TorchVersion:
    try:
        return TorchVersion.parse(number)
    except BadVersion:
        return TorchVersion.parse("0.0.0")


def _toolkit_cuda(facts: Facts, way: Way) -> Fact[CudaVersion]:
    """The CUDA of the toolkit that a build would take; open where it is not known."""
    home = facts.toolkits.cpp_extension_home
    for toolkit in facts.toolkits.toolkits:
        taken = isinstance(home, Known) and home.value.rstrip("/") in (toolkit.path, *toolkit.found_by)
        if taken and isinstance(toolkit.version, Known):
            return planned(toolkit.version.value.release, way)
    return ONLY_RUNNING

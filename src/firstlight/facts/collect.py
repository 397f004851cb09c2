"""All facts of one machine. Groups of probes that start processes run side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from firstlight.facts.ability import AbilityFacts, probe_ability
from firstlight.facts.build_variables import BuildVariable, probe_build_variables
from firstlight.facts.companions import Companion, NvidiaWheel, probe_companions, probe_nvidia_wheels
from firstlight.facts.compat import CompatLibrary, ask_compat, probe_compat
from firstlight.facts.compilers import CompilerFacts, probe_compilers
from firstlight.facts.containers import ContainerFacts, probe_containers
from firstlight.facts.cuda_libraries import CudaLibraryFacts, probe_cuda_libraries
from firstlight.facts.cutlass import CutlassFacts, probe_cutlass
from firstlight.facts.driver import DriverFacts, probe_driver
from firstlight.facts.extensions import ExtensionFacts, probe_extensions
from firstlight.facts.fleet import FleetFacts, probe_fleet
from firstlight.facts.gpus import GpuFacts, probe_gpus
from firstlight.facts.health import HealthFacts, probe_health
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.libcuda import LibcudaFacts, probe_libcuda
from firstlight.facts.network import NetworkFacts, probe_network
from firstlight.facts.nvml import ask_nvml
from firstlight.facts.owners import FileOwner, probe_owners
from firstlight.facts.place import PlaceFacts, probe_place
from firstlight.facts.python_environments import PythonEnvironment, PythonFacts, probe_environments
from firstlight.facts.resources import ResourceFacts, probe_resources
from firstlight.facts.runtime_libraries import RuntimeLibraries, probe_runtime_libraries
from firstlight.facts.toolkits import ToolkitFacts, probe_toolkits
from firstlight.facts.torch_install import TorchInstall, probe_torch
from firstlight.facts.torch_libraries import TorchLibraries, probe_torch_libraries
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import DriverVersion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Facts:
    """What one machine is; torch and its companions are those of the selected Python environment."""

    collected_at: str  # 2026-11-15T02:38:25Z
    place: PlaceFacts
    container: ContainerFacts
    driver: DriverFacts
    gpus: GpuFacts
    health: HealthFacts
    fleet: FleetFacts
    libcuda: LibcudaFacts
    library_owners: Fact[tuple[FileOwner, ...]]  # of driver libraries that are not of the loaded module
    compat: tuple[CompatLibrary, ...]
    runtime: RuntimeLibraries
    python: PythonFacts
    torch: Fact[TorchInstall]
    torch_libraries: Fact[TorchLibraries]
    companions: tuple[Companion, ...]
    extensions: ExtensionFacts
    nvidia_wheels: tuple[NvidiaWheel, ...]
    toolkits: ToolkitFacts
    compilers: CompilerFacts
    build_variables: tuple[BuildVariable, ...]
    cutlass: CutlassFacts
    cuda_libraries: CudaLibraryFacts
    ability: AbilityFacts
    resources: ResourceFacts
    network: NetworkFacts

    @property
    def environment(self) -> PythonEnvironment | None:
        """The selected Python environment, if there is one."""
        chosen = self.python.selected
        return self.python.environments[chosen.value] if isinstance(chosen, Known) else None


def collect(machine: Machine, *, python: str = "") -> Facts:
    """Every fact; `python` names the interpreter or prefix whose torch is meant."""
    devices = _Job(lambda: _look_at_devices(machine))
    libcuda = _Job(lambda: probe_libcuda(machine))
    compilers = _Job(lambda: probe_compilers(machine))
    container = _Job(lambda: probe_containers(machine))
    environments = probe_environments(machine, python=python)
    chosen = environments.selected
    environment = environments.environments[chosen.value] if isinstance(chosen, Known) else None
    site_packages = () if environment is None else environment.site_packages
    toolkits = _Job(lambda: probe_toolkits(machine, site_packages=site_packages))
    torch: Fact[TorchInstall] = (
        Unknown("no Python environment was found") if environment is None else probe_torch(machine, environment)
    )
    companions = () if environment is None else probe_companions(machine, environment)
    wheels = () if environment is None else probe_nvidia_wheels(machine, environment)
    prefixes = () if environment is None else (environment.prefix,)
    compat = _Job(lambda: _look_at_compat(machine, prefixes, kernel=devices.result().driver.kernel_version))
    extensions = probe_extensions(machine, environment, torch)  # while the driver is asked
    return Facts(
        collected_at=machine.host.now,
        place=probe_place(machine),
        compat=compat.result(),
        runtime=probe_runtime_libraries(machine),
        python=environments,
        torch=torch,
        torch_libraries=probe_torch_libraries(machine, torch),
        build_variables=probe_build_variables(machine),
        companions=companions,
        extensions=extensions,
        nvidia_wheels=wheels,
        cutlass=probe_cutlass(machine, site_packages=site_packages),
        cuda_libraries=probe_cuda_libraries(machine, site_packages=site_packages),
        ability=probe_ability(machine, site_packages=site_packages),
        resources=probe_resources(machine, site_packages=site_packages),
        network=probe_network(machine),
        toolkits=toolkits.result(),
        compilers=compilers.result(),
        container=container.result(),
        driver=devices.result().driver,
        gpus=devices.result().gpus,
        health=devices.result().health,
        fleet=devices.result().fleet,
        libcuda=libcuda.result(),
        library_owners=probe_owners(machine, devices.result().driver, libcuda.result()),
    )


def _look_at_compat(
    machine: Machine, prefixes: tuple[str, ...], *, kernel: Fact[DriverVersion]
) -> tuple[CompatLibrary, ...]:
    return ask_compat(machine, probe_compat(machine, env_prefixes=prefixes), kernel=kernel)


@dataclass(frozen=True, slots=True)
class _Devices:
    driver: DriverFacts
    gpus: GpuFacts
    health: HealthFacts
    fleet: FleetFacts


def _look_at_devices(machine: Machine) -> _Devices:
    nvml = ask_nvml(machine)
    driver = probe_driver(machine, nvml)
    gpus = probe_gpus(machine, nvml)
    health = probe_health(machine, nvml, gpus=gpus, driver=driver)
    return _Devices(driver, gpus, health, probe_fleet(machine, nvml, gpus=gpus, driver=driver, health=health))


class _Job(Generic[T]):
    """A probe running in a thread of its own; `result` waits for it and raises what it raised."""

    def __init__(self, probe: Callable[[], T]) -> None:
        self._probe = probe
        self._answer: list[T] = []
        self._error: list[BaseException] = []
        self._thread: threading.Thread | None = threading.Thread(target=self._run, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads allowed here, as under a container's pid limit: one after the other
            self._thread = None
            self._run()

    def _run(self) -> None:
        try:
            self._answer.append(self._probe())
        except BaseException as error:  # noqa: BLE001 handed to the thread that asked
            self._error.append(error)

    def result(self) -> T:
        if self._thread is not None:
            self._thread.join()
        if self._error:
            raise self._error[0]
        return self._answer[0]

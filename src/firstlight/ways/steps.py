"""A way as steps for the machine at hand: exact commands, exact files, a condition and a way back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.ways import (
    compat_steps,
    hold_steps,
    kinds,
    loader_steps,
    machine_steps,
    other_steps,
    package_steps,
    project_steps,
    repository_steps,
    setting_steps,
    variable_steps,
    wheel_steps,
)
from firstlight.ways.at import At
from firstlight.ways.costs import ASSUMED_SPEED, bytes_of, seconds_of
from firstlight.ways.persons import asked
from firstlight.ways.step import Step
from firstlight.ways.traits import by_person
from firstlight.ways.way import Way

_N = TypeVar("_N", int, float)
Maker = Callable[[Any, At], Iterable[Step]]

_MAKERS: dict[type[Way], Maker] = {
    kinds.MakeEnvironment: lambda way, at: (wheel_steps.environment_step(way, at),),
    kinds.InstallWheels: wheel_steps.wheel_steps,
    kinds.RemoveDistributions: wheel_steps.removal_steps,
    kinds.KeepInProject: project_steps.keep_steps,
    kinds.ConstrainEnvironment: hold_steps.environment_steps,
    kinds.ConstrainProject: hold_steps.project_steps,
    kinds.PinConda: hold_steps.conda_steps,
    kinds.CloseLibraries: other_steps.library_steps,
    kinds.InstallConda: package_steps.conda_steps,
    kinds.BuildFromSource: other_steps.source_steps,
    kinds.ClearCache: other_steps.cache_steps,
    kinds.SetUpRepository: repository_steps.repository_steps,
    kinds.InstallPackages: package_steps.package_steps,
    kinds.RemovePackages: package_steps.removal_steps,
    kinds.HoldPackages: package_steps.hold_steps,
    kinds.InstallDriver: package_steps.package_steps,
    kinds.LoadModules: machine_steps.load_steps,
    kinds.ReloadModules: machine_steps.reload_steps,
    kinds.BuildModules: package_steps.module_build_steps,
    kinds.ForbidModule: machine_steps.forbid_steps,
    kinds.SetModuleOption: machine_steps.option_steps,
    kinds.MakeDeviceNodes: machine_steps.node_steps,
    kinds.RefreshLoaderCache: machine_steps.cache_steps,
    kinds.StartService: machine_steps.service_steps,
    kinds.ResetGpu: machine_steps.reset_steps,
    kinds.SetComputeMode: machine_steps.compute_mode_steps,
    kinds.TurnOffMig: machine_steps.mig_steps,
    kinds.SetPowerLimit: machine_steps.power_steps,
    kinds.MakeImexChannel: machine_steps.channel_steps,
    kinds.ChooseModules: setting_steps.module_choice_steps,
    kinds.StartKernel: setting_steps.kernel_steps,
    kinds.AllowLockedMemory: setting_steps.memory_steps,
    kinds.ConfigureContainers: machine_steps.container_steps,
    kinds.FetchCompat: compat_steps.archive_steps,
    kinds.WireCompat: compat_steps.wiring_steps,
    kinds.Unwire: loader_steps.unwire_steps,
    kinds.RegisterFolder: loader_steps.register_steps,
    kinds.LinkFile: loader_steps.link_steps,
    kinds.RemoveFiles: loader_steps.aside_steps,
    kinds.SetVariables: variable_steps.set_steps,
    kinds.UnsetVariables: variable_steps.unset_steps,
    kinds.ReadEnvironment: variable_steps.environment_steps,
    kinds.UseImage: other_steps.image_steps,
}


def steps_of(way: Way, at: At) -> Iterator[Step]:
    """The steps that carry a way out here; one for a person where no program here can do it."""
    if why := by_person(way, at.platform):
        yield asked(way, at, why=why)
        return
    yield from _with_costs(way, tuple(_MAKERS[type(way)](way, at)), at)


def _with_costs(way: Way, steps: tuple[Step, ...], at: At) -> Iterator[Step]:
    """The steps; the first that does not know what it takes carries what the whole way takes."""
    heaviest = next(
        (each for each in steps if isinstance(each.bytes, Unknown) or isinstance(each.seconds, Unknown)), None
    )
    for step in steps:
        if step is not heaviest or at.extras.shelf is not None:  # a folder of wheels is no download
            yield step
            continue
        size, seconds = bytes_of(way, at.facts, at.tables), seconds_of(way, at.facts, at.tables, ASSUMED_SPEED)
        yield replace(step, bytes=_as_kept(size), seconds=_as_kept(seconds))


def _as_kept(amount: Fact[_N]) -> Fact[_N]:
    """The same without its origin, which a journal does not keep; the words say what was assumed."""
    return amount if isinstance(amount, Unknown) else Known(amount.value, amount.seen_in)

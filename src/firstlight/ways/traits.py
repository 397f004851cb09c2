"""What is true of a way before any step is made of it: root, the way back, what it may break, and who does it."""

from __future__ import annotations

from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import value_or
from firstlight.ways import kinds
from firstlight.ways.argv import commands
from firstlight.ways.building import is_of_the_system
from firstlight.ways.guests import GuestKind
from firstlight.ways.image_based import OF_THE_IMAGE
from firstlight.ways.kinds import Scope, Service, Why, WiredBy
from firstlight.ways.managers import held
from firstlight.ways.nvidia_repository import WORDS, is_known
from firstlight.ways.platform import Manager, Platform
from firstlight.ways.way import Reversible, Risk, Way

# Kernel, devices and services belong to whoever runs the kernel: in a container that is the host.
OF_THE_HOST = (
    kinds.InstallDriver, kinds.LoadModules, kinds.ReloadModules, kinds.BuildModules, kinds.ForbidModule,
    kinds.SetModuleOption, kinds.EnrolKey, kinds.MakeDeviceNodes, kinds.StartService, kinds.ResetGpu,
    kinds.SetComputeMode, kinds.TurnOffMig, kinds.ConfigureContainers, kinds.Restart, kinds.SetPowerLimit,
    kinds.MakeImexChannel, kinds.ChooseModules, kinds.StartKernel,
)  # fmt: skip
_OF_PACKAGES = (kinds.InstallPackages, kinds.RemovePackages, kinds.HoldPackages)
_AS_ROOT = (*OF_THE_HOST, *_OF_PACKAGES, kinds.SetUpRepository, kinds.RegisterFolder, kinds.RefreshLoaderCache,
            kinds.AllowLockedMemory)  # fmt: skip
_ELSEWHERE = (kinds.StartContainer, kinds.UseImage, kinds.ChangeImage, kinds.OtherMachine, kinds.AskPerson)
_NOT_BACK = (
    kinds.ClearCache, kinds.ReloadModules, kinds.ResetGpu, kinds.Restart, kinds.EnrolKey, kinds.RefreshLoaderCache,
)  # fmt: skip
_PARTLY_BACK = (
    kinds.InstallDriver, kinds.RemovePackages, kinds.BuildModules, kinds.TurnOffMig, kinds.MakeDeviceNodes,
    kinds.BuildFromSource, kinds.StartKernel,
)  # fmt: skip
# What is asked of a person: another start of a program and a look leave everything as it was; the rest is high.
_RISKS_OF_ASKING = {Why.PROGRAM: Risk.NONE, Why.COOLING: Risk.NONE, Why.DECISION: Risk.MEDIUM}
_HARMLESS = (Why.PROGRAM, Why.COOLING)
_PACKAGE_MANAGER = "which package manager this system has is not known here"
_RESTARTS = "a restart ends everything that runs here, firstlight too"
_EVERY_GPU = "which GPU it is is not known here, and others may be computing on the rest"
_IMAGE = "the image is made elsewhere, from its Dockerfile"
_ANOTHER_IMAGE = "which image a container has is said where it is started"


def needs_root(way: Way, platform: Platform) -> bool:
    """Whether root is needed, by apply or for what a person types; a host's own parts need none of this system."""
    if isinstance(way, kinds.AskPerson):
        return way.as_root
    if isinstance(way, kinds.LinkFile):
        return is_of_the_system(way.path)
    if isinstance(way, kinds.ConstrainEnvironment):
        return is_of_the_system(way.file)
    if isinstance(way, kinds.RemoveFiles):
        return way.as_root or any(map(is_of_the_system, way.paths))
    if isinstance(way, kinds.Unwire):
        return way.by is WiredBy.LOADER_CONF
    return isinstance(way, _AS_ROOT) and not (isinstance(way, OF_THE_HOST) and platform.has_no_kernel)


def reversible(way: Way) -> Reversible:
    """Whether `firstlight undo` brings back what was there; of packages it may find less once it knows them."""
    if isinstance(way, kinds.StartService):
        return Reversible.NO if way.action is Service.RESTART else Reversible.YES
    if isinstance(way, kinds.InstallConda):
        return Reversible.YES if way.prefix else Reversible.PARTLY
    if isinstance(way, _NOT_BACK) or (isinstance(way, kinds.AskPerson) and way.cures and way.why not in _HARMLESS):
        return Reversible.NO
    return Reversible.PARTLY if isinstance(way, _PARTLY_BACK) else Reversible.YES


def risk(way: Way) -> Risk:
    """What it may break."""
    if isinstance(way, kinds.AskPerson) and way.why is not Why.HOST:
        return _RISKS_OF_ASKING.get(way.why, Risk.HIGH) if way.cures else Risk.NONE
    if isinstance(way, (kinds.InstallDriver, kinds.Restart, kinds.EnrolKey, *_ELSEWHERE)):
        return Risk.HIGH
    shells = (kinds.UnsetVariables, kinds.ReadEnvironment, kinds.RemoveFiles, kinds.Unwire)
    if isinstance(way, (*_AS_ROOT, *shells)):
        return Risk.MEDIUM
    if isinstance(way, kinds.SetVariables):
        return Risk.MEDIUM if way.scope is Scope.LOGIN else Risk.NONE
    return Risk.NONE if isinstance(way, _OF_OURS) else Risk.LOW


_OF_OURS = (kinds.MakeEnvironment, kinds.FetchCompat, kinds.WireCompat, kinds.ClearCache)


def by_person(way: Way, platform: Platform) -> str:
    """Why a person has to do it, in words; "" where `firstlight apply` does."""
    if isinstance(way, kinds.AskPerson):
        return way.why.value
    if isinstance(way, OF_THE_HOST) and platform.has_no_kernel:
        return Why.HOST.value if platform.in_container else Why.WINDOWS.value
    if isinstance(way, OF_THE_IMAGE) and platform.is_image_based:
        return f"the programs of this system come with its image ({platform.image_based.value})"
    if isinstance(way, kinds.StartContainer) and platform.container is ContainerKind.KUBERNETES:
        return "the pod's manifest has to change"
    if isinstance(way, (kinds.ResetGpu, kinds.TurnOffMig)) and not way.gpu:
        return _EVERY_GPU
    if isinstance(way, kinds.InstallDriver) and platform.guest is GuestKind.JETSON:
        return Why.BOARD.value
    if isinstance(way, kinds.InstallDriver) and platform.guest is GuestKind.VGPU:
        return Why.PORTAL.value
    if why := _not_in_tables(way, platform):
        return why
    if isinstance(way, (*_OF_PACKAGES, kinds.InstallDriver)) and platform.manager is Manager.NONE:
        return _PACKAGE_MANAGER
    if isinstance(way, kinds.UseImage) and (platform.in_container or not platform.has_docker or not way.image):
        return _why_image(platform)
    if isinstance(way, kinds.Unwire) and way.by is WiredBy.CONTAINER_RUNTIME:
        return _IMAGE
    if isinstance(way, kinds.SetVariables) and way.scope is Scope.PROGRAM:
        return Why.PROGRAM.value
    return _ALWAYS.get(type(way), "")


def _not_in_tables(way: Way, platform: Platform) -> str:
    """Why a way of packages is a person's: the tables have no name for this system, and no other system's is taken."""
    here = f"{platform.distribution} {platform.release}".strip() or "this system"
    if isinstance(way, kinds.InstallDriver) and not way.packages:
        return f"which packages bring that driver on {here} is not known here"
    if isinstance(way, kinds.SetUpRepository) and not (
        is_known(way.name, platform) and platform.manager is not Manager.NONE
    ):
        return f"which address {WORDS.get(way.name, way.name)} has for {here} is not known here"
    if isinstance(way, kinds.HoldPackages) and not held(way.packages, platform):
        return "how this system holds a package at its version is not known here"
    if isinstance(way, kinds.BuildModules) and not commands(kinds.BuildModules(way.kernel, "", way.by), platform):
        return f"how {here} builds kernel modules is not known here"
    if isinstance(way, kinds.StartKernel) and not commands(way, platform):
        return f"how {here} chooses the kernel that it starts is not known here"
    return ""


def _why_image(platform: Platform) -> str:
    if platform.in_container:
        return _ANOTHER_IMAGE
    engine = next((name for name in platform.engines if name in ("podman", "nerdctl", "apptainer", "enroot")), "")
    return f"images are run with {engine} here" if engine else "no container engine that this user may use was found"


_ALWAYS: dict[type[Way], str] = {
    kinds.Restart: _RESTARTS,
    kinds.EnrolKey: f"{Why.FIRMWARE.value}, and asks for a password at the next start",
    kinds.StartContainer: Why.HOST.value,
    kinds.ChangeImage: _IMAGE,
    kinds.OtherMachine: Why.PROVIDER.value,
}


def started_with(way: Way, facts: Facts) -> bool:
    """Whether what a way takes out of LD_LIBRARY_PATH was put there when the container around us was started."""
    if not isinstance(way, kinds.Unwire) or way.by is not WiredBy.LIBRARY_PATH:
        return False
    return any(each.rstrip("/") in way.folders for each in value_or(facts.container.library_path, ()))

"""What a way is called: an order, in at most 70 characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firstlight.facts.containers import ContainerKind
from firstlight.ways import kinds
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import Manner, Service, WiredBy
from firstlight.ways.nvidia_repository import WORDS as REPOSITORY_WORDS
from firstlight.ways.platform import Platform
from firstlight.ways.traits import OF_THE_HOST
from firstlight.ways.user_site import base_of
from firstlight.ways.way import Way

WIDEST = 70
_CUT = "..."
_BETWEEN = (" ", "-", "/")  # what parts words, and the parts of the name of a package or a path


def title_of(way: Way, platform: Platform) -> str:
    """What is done, e.g. install torch 2.9.0+cu128; at most 70 characters, no full stop."""
    if isinstance(way, kinds.StartContainer):
        return fitted(_start(way, platform.container))
    if platform.in_container and isinstance(way, OF_THE_HOST):  # in here it would fail, or change nothing
        return fitted(f"{words_of(way)}{'' if isinstance(way, kinds.Restart) else ' on the host'}")
    return words_of(way)


def _start(way: kinds.StartContainer, kind: ContainerKind) -> str:
    """What is done where the container is started, which is not a command line everywhere."""
    words = " ".join(way.arguments)
    if kind is ContainerKind.KUBERNETES:
        return f"set in the pod's manifest: {words}"
    if not way.gives_gpus:
        return words_of(way)
    libraries = any(each.startswith("--bind-ro=") for each in way.arguments)
    if libraries and kind in (ContainerKind.LXC, ContainerKind.PROXMOX, ContainerKind.NSPAWN):
        return "bind the host's driver libraries into the container, and start it again"
    if kind in (ContainerKind.LXC, ContainerKind.PROXMOX):
        return "allow and bind the GPU's nodes in the container's configuration"
    if kind in (ContainerKind.LXD, ContainerKind.INCUS):
        return f"give the instance a gpu device and nvidia.runtime=true {words}".rstrip()
    if kind is ContainerKind.NSPAWN:
        return "start the container again with the GPU's nodes bound and allowed"
    if kind is ContainerKind.CHROOT:
        return "bind /dev, /proc and /sys of the host into this root"
    return words_of(way)


def words_of(way: Way) -> str:
    """The same, wherever it is done."""
    return _WORDS[type(way)](way)


def listed(before: str, names: tuple[str, ...], after: str = "") -> str:
    """'install a, b and 2 more into x': as many names as fit."""
    for shown in range(len(names), 0, -1):
        rest = len(names) - shown
        text = f"{before} {', '.join(names[:shown])}{f' and {rest} more' if rest else ''}{after}"
        if len(text) <= WIDEST:
            return text
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    room = WIDEST - len(f"{before} {others}{after}")
    return fitted(f"{before} {end_of(names[0], room) if names else ''}{others}{after}")


def end_of(name: str, room: int) -> str:
    """As much of a name as there is room for, from its end: '.../site-packages/nvidia/cu13' of a long path."""
    if len(name) <= room or room < len(_CUT):
        return name
    kept = name[len(name) - (room - len(_CUT)) :]
    return f"{_CUT}{kept[kept.find('/') :] if '/' in kept else kept}"


def fitted(text: str) -> str:
    """The text, cut in the middle where it is too long: the end of a path says most."""
    if len(text) <= WIDEST:
        return text
    keep = WIDEST - len(_CUT)
    head, tail = text[: keep // 2], text[-(keep - keep // 2) :]
    between = min((place for each in _BETWEEN if (place := tail.find(each)) >= 0), default=-1)
    whole = tail[between:] if 0 <= between <= len(tail) // 2 else tail
    return f"{at_a_word(head)}{_CUT}{whole.lstrip()}"


def _start_container(arguments: tuple[str, ...]) -> str:
    """With its arguments; where they are too long for a title, with the names of the options alone."""
    text = f"start the container again with {' '.join(arguments) or 'the GPUs of the host'}"
    if len(text) <= WIDEST:
        return text
    return listed("start the container again with", tuple(each for each in arguments if each.startswith("-")))


def at_a_word(text: str) -> str:
    """The beginning of a text that was cut, without the half of a word at its end: 'install linux-modules-nvidia'."""
    last = max(text.rfind(each) for each in _BETWEEN)
    return (text[:last] if last > len(text) // 2 else text).rstrip(" ,-/")


def package_words(package: kinds.Package) -> str:
    return f"{package.project} {package.version}".rstrip() if package.version else f"{package.project}{package.bounds}"


def _environment(way: kinds.MakeEnvironment) -> str:
    python = f" of Python {way.python}" if way.python else ""
    return fitted(f"make a virtual environment{python}{f' in {way.folder}' if way.folder else ''}")


def _wheels(way: kinds.InstallWheels) -> str:
    names = tuple(map(package_words, way.packages))
    after = {Manner.AGAIN: " again", Manner.COMPILED: ", compiled here", Manner.EARLY: " (nightly)"}
    if way.manner is Manner.EARLY and "/nightly/" not in way.index:
        return listed("install", names, " of the test channel")
    return listed("install", names, after.get(way.manner, ""))


def _service(way: kinds.StartService) -> str:
    return fitted(f"{'restart' if way.action is Service.RESTART else 'start'} {way.unit}")


def _gpu(gpu: str) -> str:
    return f"GPU {gpu}" if gpu else "every GPU"


def _unwire(way: kinds.Unwire) -> str:
    if way.by is WiredBy.CONTAINER_RUNTIME:
        return listed("take", way.folders, " out of the image")
    conf = "/".join(way.conf.split("/")[-2:])  # ld.so.conf.d/cuda-compat.conf
    where = conf if way.by is WiredBy.LOADER_CONF and conf else way.by.value
    return listed("take", way.folders, f" out of {where}")


def _variables(way: kinds.SetVariables) -> str:
    """The values too where they fit: the end of one alone says nothing."""
    after = f" for {way.scope.value}"
    first = f"{way.variables[0].name}={way.variables[0].value}"
    others = f" and {len(way.variables) - 1} more" if len(way.variables) > 1 else ""
    if len(f"set {first}{others}{after}") > WIDEST:
        return listed("set", tuple(each.name for each in way.variables), after)
    return listed("set", tuple(f"{each.name}={each.value}" for each in way.variables), after)


def _link(way: kinds.LinkFile) -> str:
    """Names, and the end of the folder: the whole paths stand below, with the file."""
    folder, _, name = way.path.rpartition("/")
    where = "/".join(folder.split("/")[-2:]) or "/"
    to = way.to if len(f"link {name} to {way.to} in {where}") <= WIDEST else way.to.rpartition("/")[2]
    return fitted(f"link {name} to {to} in {end_of(where, WIDEST - len(f'link {name} to {to} in '))}")


def _source(way: kinds.BuildFromSource) -> str:
    archs = ", ".join(str(each) for each in way.capabilities)
    return fitted(f"build {f'{way.project} {way.version}'.rstrip()} here{f' for {archs}' if archs else ''}")


def _machine(way: kinds.OtherMachine) -> str:
    parts = [f"driver >= {way.min_driver}" if way.min_driver else "", f"CUDA {way.cuda}" if way.cuda else ""]
    parts.append(f"sm_{way.capability.major}{way.capability.minor}" if way.capability else "")
    found = ", ".join(filter(None, parts))
    return fitted(f"use another machine{f': {found}' if found else ''}")


def _containers(way: kinds.ConfigureContainers) -> str:
    if way.file:
        return fitted(f"write the description of the GPUs again: {way.file}")
    cdi = way.engine == "podman"
    return fitted(f"describe the GPUs to {way.engine} (CDI)" if cdi else f"let {way.engine} use NVIDIA's runtime")


def _removal(way: kinds.RemoveDistributions) -> str:
    names = (f"{way.projects[0]} {way.version}",) if way.version else way.projects
    where = f" of {base_of(way.folder) or way.folder}" if way.folder else ""
    copies = f" ({way.copies} copies)" if way.copies > 1 else ""
    return listed("remove", names, where + copies)


_WORDS: dict[type[Way], Callable[[Any], str]] = {
    kinds.MakeEnvironment: _environment,
    kinds.InstallWheels: _wheels,
    kinds.RemoveDistributions: lambda way: _removal(way),
    kinds.KeepInProject: lambda way: listed("let the project keep", tuple(map(package_words, way.packages))),
    kinds.ConstrainEnvironment: lambda way: listed("write constraints for", tuple(map(package_words, way.packages))),
    kinds.ConstrainProject: lambda way: listed("constrain the project to", tuple(map(package_words, way.packages))),
    kinds.PinConda: lambda way: listed("have conda keep", tuple(map(package_words, way.packages))),
    kinds.CloseLibraries: lambda way: listed("bring the missing", way.missing),
    kinds.InstallConda: lambda way: fitted(f"install {way.package} from {way.channel} by conda"),
    kinds.BuildFromSource: _source,
    kinds.ClearCache: lambda way: f"empty the cache of {way.tool}",
    kinds.SetUpRepository: lambda way: f"set up {REPOSITORY_WORDS.get(way.name, way.name)}",
    kinds.InstallPackages: lambda way: listed("install", way.packages, f" {way.version}" if way.version else ""),
    kinds.RemovePackages: lambda way: listed("purge" if way.purge else "remove", way.packages),
    kinds.HoldPackages: lambda way: listed("hold", way.packages, " at its version" if len(way.packages) == 1 else ""),
    kinds.InstallDriver: lambda way: f"install driver {way.branch} with the {way.flavour.value} kernel module",
    kinds.LoadModules: lambda way: listed("load", way.modules),
    kinds.ReloadModules: lambda way: listed("reload", way.modules),
    kinds.BuildModules: lambda way: fitted(f"build the driver's modules for kernel {way.kernel}"),
    kinds.ForbidModule: lambda way: fitted(f"keep {way.module} from loading at the next start"),
    kinds.SetModuleOption: lambda way: fitted(f"set {way.option} of {way.module}"),
    kinds.ChooseModules: lambda way: f"tell akmods to build the {way.flavour.value} modules",
    kinds.StartKernel: lambda way: fitted(f"start kernel {way.kernel} from the next start on"),
    kinds.AllowLockedMemory: lambda way: "let users lock memory without limit",
    kinds.EnrolKey: lambda way: "enrol the key that the module is signed with",
    kinds.MakeDeviceNodes: lambda way: "make the device nodes of the GPUs",
    kinds.StartService: _service,
    kinds.ResetGpu: lambda way: fitted(f"reset {_gpu(way.gpu)}"),
    kinds.SetComputeMode: lambda way: fitted(f"set the compute mode of {_gpu(way.gpu)} to DEFAULT"),
    kinds.TurnOffMig: lambda way: fitted(f"turn MIG off on {_gpu(way.gpu)}"),
    kinds.SetPowerLimit: lambda way: fitted(f"set the power limit of {_gpu(way.gpu)} to {way.watts} W"),
    kinds.MakeImexChannel: lambda way: "make the IMEX channel 0",
    kinds.ConfigureContainers: lambda way: _containers(way),
    kinds.FetchCompat: lambda way: f"fetch the compat library of CUDA {way.cuda} from NVIDIA's archive",
    kinds.WireCompat: lambda way: f"wire the compat library of CUDA {way.cuda} when a program starts",
    kinds.Unwire: _unwire,
    kinds.RegisterFolder: lambda way: fitted(f"make {way.folder} known to the loader"),
    kinds.RefreshLoaderCache: lambda way: "rebuild the loader's cache",
    kinds.LinkFile: _link,
    kinds.RemoveFiles: lambda way: listed("move aside", way.paths),
    kinds.SetVariables: _variables,
    kinds.UnsetVariables: lambda way: listed("unset", way.names, " for new shells"),
    kinds.ReadEnvironment: lambda way: fitted(f"let login shells read {way.file}"),
    kinds.Restart: lambda way: "restart the machine",
    kinds.StartContainer: lambda way: _start_container(way.arguments),
    kinds.UseImage: lambda way: fitted(f"run it in {way.image or 'an image of a newer distribution'}"),
    kinds.ChangeImage: lambda way: fitted(f"set in the Dockerfile: {way.line}"),
    kinds.OtherMachine: _machine,
    kinds.AskPerson: lambda way: fitted(words_asked(way)),
}

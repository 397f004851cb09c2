"""The one place where a way becomes commands of the system at hand: (way, platform) to argument lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firstlight.tables.system_rows import Role
from firstlight.ways import kinds
from firstlight.ways.arguments import CDI_FILE
from firstlight.ways.back import Argv
from firstlight.ways.building import as_root
from firstlight.ways.container_argv import image_commands, start_commands
from firstlight.ways.image_based import OF_THE_IMAGE
from firstlight.ways.in_use import gpu_free, reloading
from firstlight.ways.kinds import Service
from firstlight.ways.managers import held, installed, reset_and_enabled, taken_out
from firstlight.ways.platform import Manager, Platform
from firstlight.ways.system_names import names_for, shipped
from firstlight.ways.way import Way

# What GRUB's menu calls a system, by GRUB_DISTRIBUTOR: 10_linux adds GNU/Linux to all but Ubuntu's.
GRUB_NAMES = {"ubuntu": "Ubuntu", "debian": "Debian GNU/Linux"}
GRUB_MENU = ("update-grub",)
IMEX_CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
_MAKE_CHANNEL = """mknod "$1" c "$(grep nvidia-caps-imex-channels /proc/devices | cut -d' ' -f1)" 0"""
_NOTHING_ELSE_GOES = (
    "sh",
    "-c",
    'gone=$(apt-get --simulate remove "$@") || exit 1; '
    'for each in $(echo "$gone" | sed -n "s/^Remv \\([^ ]*\\).*/\\1/p"); do '
    'for name; do case "$each" in $name|${name%:*}) continue 2;; esac; done; '
    'echo "$each needs it and would go too, so nothing was removed."; exit 1; done',
    "sh",
)
_CACHES = {
    "pip": ("python3", "-m", "pip", "cache", "purge"),
    "uv": ("uv", "cache", "clean"),
    "conda": ("conda", "clean", "--all", "--yes"),
}
CONTAINER_SETTINGS = {
    "docker": "/etc/docker/daemon.json",
    "containerd": "/etc/containerd/config.toml",
    "crio": "/etc/crio/conf.d/99-nvidia.conf",
}


def commands(way: Way, platform: Platform) -> tuple[Argv, ...]:
    """What is run for a way that is plain commands, e.g. sudo modprobe nvidia_uvm; () for all others."""
    made = _MAKERS.get(type(way))
    if made is None or (platform.is_image_based and isinstance(way, OF_THE_IMAGE)):
        return ()
    return made(way, platform)


def rebuild_early_image(platform: Platform) -> tuple[Argv, ...]:
    """The image that the kernel starts from, made anew: it holds a copy of /etc/modprobe.d."""
    tool = "" if platform.early_image is None else platform.early_image.value
    argv = names_for(Role.EARLY_IMAGE, platform, shipped(), of=tool) if tool else ()
    return (as_root(platform, *argv),) if argv else ()


def _install(way: kinds.InstallPackages | kinds.InstallDriver, platform: Platform) -> tuple[Argv, ...]:
    install = installed(way.packages, platform, version=way.version) if way.packages else ()
    stream = way.stream if isinstance(way, kinds.InstallDriver) else ""
    chosen = reset_and_enabled(stream) if stream and install else ()
    return tuple(as_root(platform, *argv) for argv in (*chosen, *((install,) if install else ())))


def _remove(way: kinds.RemovePackages, platform: Platform) -> tuple[Argv, ...]:
    argv = taken_out(way.packages, platform, settings=way.purge)
    look = ((*_NOTHING_ELSE_GOES, *way.packages),) if way.alone and platform.manager is Manager.APT else ()
    return (*look, as_root(platform, *argv)) if argv else ()


def _hold(way: kinds.HoldPackages, platform: Platform) -> tuple[Argv, ...]:
    argv = held(way.packages, platform)
    return (as_root(platform, *argv),) if argv else ()


def _load(way: kinds.LoadModules, platform: Platform) -> tuple[Argv, ...]:
    return tuple(as_root(platform, "modprobe", each) for each in way.modules)


def _build(way: kinds.BuildModules, platform: Platform) -> tuple[Argv, ...]:
    headers = _install(kinds.InstallPackages((way.headers,), version=way.version), platform) if way.headers else ()
    of = f"{way.by}-source" if way.source else way.by
    argv = names_for(Role.BUILD_MODULES, platform, shipped(), of=of, kernel=way.kernel, source=way.source)
    return (*headers, *((as_root(platform, *argv),) if argv else ()))


def _restart(way: kinds.Restart, platform: Platform) -> tuple[Argv, ...]:
    argv = names_for(Role.REBOOT, platform, shipped())
    return (as_root(platform, *argv),) if argv else ()


def _kernel(way: kinds.StartKernel, platform: Platform) -> tuple[Argv, ...]:
    """What makes it the kernel of every start; on Ubuntu and Debian a file that GRUB's menu is made from says it."""
    argv = names_for(Role.DEFAULT_KERNEL, platform, shipped(), kernel=way.kernel)
    if platform.distribution in GRUB_NAMES:
        argv = GRUB_MENU
    return (as_root(platform, *argv),) if argv else ()


def _imex_channel(way: kinds.MakeImexChannel, platform: Platform) -> tuple[Argv, ...]:
    folder, channel = IMEX_CHANNEL.rsplit("/", 1)[0], IMEX_CHANNEL
    return (
        as_root(platform, "mkdir", "--parents", folder),
        as_root(platform, "sh", "-c", _MAKE_CHANNEL, "sh", channel),
    )


def _enrol(way: kinds.EnrolKey, platform: Platform) -> tuple[Argv, ...]:
    return (as_root(platform, "mokutil", "--import", way.key),)


def _nodes(way: kinds.MakeDeviceNodes, platform: Platform) -> tuple[Argv, ...]:
    # nvidia-modprobe makes those of the first GPU and of uvm; nvidia-smi has it make the rest.
    return (as_root(platform, "nvidia-modprobe", "-c", "0", "-u"), as_root(platform, "nvidia-smi", "-L"))


def _service(way: kinds.StartService, platform: Platform) -> tuple[Argv, ...]:
    words = ("restart",) if way.action is Service.RESTART else ("enable", "--now")
    return (as_root(platform, "systemctl", *words, way.unit),)


def _smi(platform: Platform, gpu: str, *words: str) -> tuple[Argv, ...]:
    return (as_root(platform, "nvidia-smi", *words, *(("-i", gpu) if gpu else ())),)


def _smi_when_free(platform: Platform, gpu: str, *words: str) -> tuple[Argv, ...]:
    """The same for what ends programs on the GPU, or is put off while there are any; of one GPU, looked at first."""
    return (*((gpu_free(gpu, platform),) if gpu else ()), *_smi(platform, gpu, *words))


def _containers(way: kinds.ConfigureContainers, platform: Platform) -> tuple[Argv, ...]:
    if way.file:
        return (as_root(platform, "nvidia-ctk", "cdi", "generate", f"--output={way.file}"),)
    if way.engine == "podman":  # it has no runtime to be configured: it reads a description of the devices
        return (as_root(platform, "nvidia-ctk", "cdi", "generate", f"--output={CDI_FILE}"),)
    settings = CONTAINER_SETTINGS.get(way.engine)
    where = (f"--config={settings}",) if settings else ()
    configure = as_root(platform, "nvidia-ctk", "runtime", "configure", f"--runtime={way.engine}", *where)
    return (configure, as_root(platform, "systemctl", "restart", way.engine))


def _clear(way: kinds.ClearCache, platform: Platform) -> tuple[Argv, ...]:
    del platform
    return (_CACHES[way.tool],) if way.tool in _CACHES else ()


_MAKERS: dict[type[Way], Callable[[Any, Platform], tuple[Argv, ...]]] = {
    kinds.InstallPackages: _install,
    kinds.InstallDriver: _install,
    kinds.RemovePackages: _remove,
    kinds.HoldPackages: _hold,
    kinds.LoadModules: _load,
    kinds.ReloadModules: lambda way, platform: reloading(way.modules, platform),
    kinds.BuildModules: _build,
    kinds.EnrolKey: _enrol,
    kinds.MakeDeviceNodes: _nodes,
    kinds.StartService: _service,
    kinds.ResetGpu: lambda way, platform: _smi_when_free(platform, way.gpu, "--gpu-reset"),
    kinds.SetComputeMode: lambda way, platform: _smi(platform, way.gpu, "-c", "DEFAULT"),
    kinds.TurnOffMig: lambda way, platform: _smi_when_free(platform, way.gpu, "-mig", "0"),
    kinds.ConfigureContainers: _containers,
    kinds.SetPowerLimit: lambda way, platform: _smi(platform, way.gpu, "-pl", str(way.watts)),
    kinds.MakeImexChannel: _imex_channel,
    kinds.StartKernel: _kernel,
    kinds.ClearCache: _clear,
    kinds.UseImage: image_commands,
    kinds.Restart: _restart,
    kinds.StartContainer: start_commands,
    kinds.OtherMachine: lambda way, platform: (way.command,) if way.command else (),
    kinds.RefreshLoaderCache: lambda way, platform: (as_root(platform, "ldconfig"),),
    kinds.AskPerson: lambda way, platform: way.commands,
}

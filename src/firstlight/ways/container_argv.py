"""How each kind of container is started with the host's GPUs, by what its own host understands; types to arguments.

Sources: docs.nvidia.com/datacenter/cloud-native/container-toolkit (docker, podman, containerd), apptainer.org/docs/user
(gpu), github.com/NVIDIA/enroot/blob/master/doc/standard-hooks.md, linuxcontainers.org/incus/docs (gpu devices),
lxc.container.conf(5), pct(1), systemd-nspawn(1).
"""

from __future__ import annotations

import shlex

from firstlight.facts.containers import ContainerKind
from firstlight.ways.back import Argv
from firstlight.ways.kinds import StartContainer, UseImage
from firstlight.ways.platform import Platform

_NVIDIA_MAJOR = 195  # of /dev/nvidia0 and /dev/nvidiactl, registered with the kernel: Documentation/admin-guide/devices
UVM_MAJOR = "UVM"  # stands for the number that the kernel gave nvidia-uvm, where it could not be read
_UVM_OF_HOST = "$(awk '/nvidia-uvm$/ {print $1}' /proc/devices)"
_BIND = "--bind-ro="  # a file or folder of the host's, as systemd-nspawn is told it
_UNLABELLED = ("--security-opt", "label=disable")
_WITH_GPUS: dict[str, Argv] = {
    "docker": ("--gpus", "all"),
    "podman": ("--device", "nvidia.com/gpu=all"),
    "nerdctl": ("--gpus", "all"),
}


def start_commands(way: StartContainer, platform: Platform) -> tuple[Argv, ...]:
    """The commands of the host; () where it reads no command but a manifest, or is not known."""
    more = way.arguments
    match platform.container:
        case ContainerKind.NONE | ContainerKind.DOCKER:
            return (("docker", "run", *more, *_labels(way, platform), "IMAGE"),)
        case ContainerKind.PODMAN:
            return (("podman", "run", *more, *_labels(way, platform), "IMAGE"),)
        case ContainerKind.APPTAINER:
            return (("apptainer", "run", *more, "IMAGE"),)
        case ContainerKind.ENROOT:
            return (_in_job(more),) if platform.in_slurm else (("enroot", "start", *more, "IMAGE"),)
        case ContainerKind.LXC:
            return _configured(way, platform, file="/var/lib/lxc/NAME/config", sign=" = ", again=_LXC_AGAIN)
        case ContainerKind.PROXMOX:
            return _configured(way, platform, file="/etc/pve/lxc/VMID.conf", sign=": ", again=_PVE_AGAIN)
        case ContainerKind.LXD | ContainerKind.INCUS:
            return _instance("incus" if platform.container is ContainerKind.INCUS else "lxc", way)
        case ContainerKind.NSPAWN:
            return (("systemd-nspawn", "--boot", "--directory=ROOT", *_nspawn(way, platform)),)
        case ContainerKind.CHROOT:
            return _chroot(way)
    return ()


def image_commands(way: UseImage, platform: Platform) -> tuple[Argv, ...]:
    """An image fetched, and seen to have the GPUs, by the engine that is here or around us."""
    image = way.image
    if platform.container in _NEW_SYSTEMS:
        return _NEW_SYSTEMS[platform.container]
    engine = engine_of(platform)
    if not image or not engine:
        return ()
    if engine in ("apptainer", "singularity"):
        return ((engine, "exec", "--nv", f"docker://{image}", "nvidia-smi", "-L"),)
    if engine == "enroot":
        visible = ("--env", "NVIDIA_VISIBLE_DEVICES=all")
        return (("enroot", "import", "--output", "image.sqsh", f"docker://{image}"),
                ("enroot", "start", *visible, "image.sqsh", "nvidia-smi", "-L"))  # fmt: skip
    label = _UNLABELLED if platform.labelled else ()
    name = f"docker.io/{image}" if engine == "podman" else image  # podman asks which registry is meant
    return ((engine, "pull", name), (engine, "run", "--rm", *_WITH_GPUS[engine], *label, name, "nvidia-smi", "-L"))


def engine_of(platform: Platform) -> str:
    """The engine that an image is run with: that of the container around us, else one that this user has here."""
    if platform.in_container:
        return _AROUND.get(platform.container, "")
    if platform.has_docker:
        return "docker"
    return next((name for name in ("podman", "nerdctl", "apptainer", "singularity", "enroot")
                 if name in platform.engines), "docker")  # fmt: skip


_AROUND = {
    ContainerKind.DOCKER: "docker",
    ContainerKind.PODMAN: "podman",
    ContainerKind.APPTAINER: "apptainer",
    ContainerKind.ENROOT: "enroot",
    ContainerKind.OTHER: "docker",
}
# Containers that hold a whole system have no image to be exchanged: a new one is made of Debian 12, with glibc.
_NEW_SYSTEMS: dict[ContainerKind, tuple[Argv, ...]] = {
    ContainerKind.INCUS: (("incus", "launch", "images:debian/12", "NAME", "-c", "nvidia.runtime=true"),
                          ("incus", "config", "device", "add", "NAME", "gpu0", "gpu")),
    ContainerKind.LXD: (("lxc", "launch", "images:debian/12", "NAME", "-c", "nvidia.runtime=true"),
                        ("lxc", "config", "device", "add", "NAME", "gpu0", "gpu")),
    ContainerKind.LXC: (("lxc-create", "-n", "NAME", "-t", "download", "--", "-d", "debian", "-r", "bookworm"),),
    ContainerKind.NSPAWN: (("sudo", "debootstrap", "bookworm", "ROOT"),),
    ContainerKind.CHROOT: (("sudo", "debootstrap", "bookworm", "ROOT"),),
}  # fmt: skip
_LXC_AGAIN: tuple[Argv, ...] = (("lxc-stop", "-n", "NAME"), ("lxc-start", "-n", "NAME"))
_PVE_AGAIN: tuple[Argv, ...] = (("pct", "reboot", "VMID"),)


def _in_job(arguments: Argv) -> Argv:
    """Under Slurm pyxis starts enroot, and takes its variables from the job's."""
    variables = ",".join(word for word in arguments if "=" in word)
    return ("srun", f"--export=ALL,{variables}", "--container-image=IMAGE", "COMMAND")


def _labels(way: StartContainer, platform: Platform) -> Argv:
    return _UNLABELLED if way.gives_gpus and platform.labelled and _UNLABELLED[1] not in way.arguments else ()


def nodes_of(platform: Platform) -> tuple[str, ...]:
    """The nodes that a program needs, one for each GPU that is known of."""
    numbered = (f"/dev/nvidia{number}" for number in range(platform.gpu_count or 1))
    return (*numbered, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def allowed_of(platform: Platform) -> tuple[str, ...]:
    """Device rules of control groups, e.g. 'c 195:* rwm'; uvm's number is the kernel's of today."""
    known = {each.name: each.major for each in platform.device_numbers}
    uvm = str(known.get("nvidia-uvm", UVM_MAJOR))
    own = known.get("nvidia", known.get("nvidia-frontend", _NVIDIA_MAJOR))
    caps = (f"c {known['nvidia-caps']}:* rwm",) if "nvidia-caps" in known else ()
    return (f"c {own}:* rwm", f"c {uvm}:* rwm", *caps)


def _configured(
    way: StartContainer, platform: Platform, *, file: str, sign: str, again: tuple[Argv, ...]
) -> tuple[Argv, ...]:
    """Lines for the container's own file on the host: device rules, and the nodes bound in."""
    if not way.gives_gpus:
        return ()
    rules = [f"lxc.cgroup2.devices.allow{sign}{rule}" for rule in allowed_of(platform)]
    binds = [f"lxc.mount.entry{sign}{node} {node.lstrip('/')} none bind,optional,create=file"
             for node in nodes_of(platform)]  # fmt: skip
    for path in (each.removeprefix(_BIND) for each in way.arguments if each.startswith(_BIND)):
        made = "file" if ".so" in path else "dir"
        binds.append(f"lxc.mount.entry{sign}{path} {path.lstrip('/')} none bind,ro,create={made}")
    lines = " ".join(_in_shell(line) for line in (*rules, *binds))
    return (("sh", "-c", f"printf '%s\\n' {lines} | sudo tee -a {file}"), *again)


def _in_shell(line: str) -> str:
    """A word of the shell; the number of nvidia-uvm is asked of the host's kernel where it could not be read here."""
    return f'"{line.replace(UVM_MAJOR, _UVM_OF_HOST)}"' if f"c {UVM_MAJOR}:" in line else shlex.quote(line)


def _instance(tool: str, way: StartContainer) -> tuple[Argv, ...]:
    if not way.gives_gpus:
        return ()
    return (
        (tool, "config", "device", "add", "NAME", "gpu0", "gpu"),
        (tool, "config", "set", "NAME", "nvidia.runtime=true", *way.arguments),
        (tool, "restart", "NAME"),
    )


def _nspawn(way: StartContainer, platform: Platform) -> Argv:
    if not way.gives_gpus:
        return way.arguments
    nodes = nodes_of(platform)
    binds = tuple(f"--bind={node}" for node in nodes)
    # With a network of its own the container's /sys lacks what the driver's libraries read there.
    modules = "--bind-ro=/sys/module"
    return (*binds, modules, *(f"--property=DeviceAllow={node} rwm" for node in nodes), *way.arguments)


def _chroot(way: StartContainer) -> tuple[Argv, ...]:
    if not way.gives_gpus:
        return ()
    binds = tuple(("sudo", "mount", "--rbind", f"/{name}", f"ROOT/{name}") for name in ("dev", "proc", "sys"))
    return (*binds, ("sudo", "chroot", "ROOT"))

"""What keeps us apart from the host: the kind of container, by the marks that each engine leaves."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_CONTAINERENV = "/run/.containerenv"
# Systems that start from an image have an overlay at / themselves: ostree's composefs, live media of Ubuntu and Fedora.
_OWN_OVERLAYS = r"(?:composefs|/cow|LiveOS_rootfs|airootfs) "
_ROOT_MOUNT = rb"(?m)^\d+ \d+ \d+:\d+ \S+ /(?= )"


class ContainerKind(enum.Enum):
    """What keeps us apart from the host."""

    NONE = "none"
    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"
    ENROOT = "enroot"
    APPTAINER = "apptainer"
    LXC = "lxc"
    LXD = "lxd"
    INCUS = "incus"
    PROXMOX = "proxmox"  # LXC as Proxmox VE sets it up
    NSPAWN = "nspawn"
    CHROOT = "chroot"  # another root folder, the same kernel interfaces
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class _Marks:
    machine: Machine
    said: tuple[str, ...]  # what `container` is set to: here, in pid 1, and in systemd's own note
    cgroup: str
    mounts: str

    def there(self, path: str) -> bool:
        return self.machine.stat(path) is not None

    def env(self, name: str) -> bool:
        return self.machine.env(name) is not None


def probe_container_kind(machine: Machine, *, pid_1_says: str) -> Fact[ContainerKind]:
    """The container around us, e.g. podman by /run/.containerenv."""
    systemd = (machine.read("/run/systemd/container", limit=64) or "").strip()
    manager = (machine.read("/run/host/container-manager", limit=64) or "").strip()
    marks = _Marks(
        machine,
        said=(machine.env("container") or "", pid_1_says, systemd, manager),
        cgroup=machine.read("/proc/1/cgroup", limit=16 << 10) or "",
        mounts=machine.read("/proc/self/mounts", limit=256 << 10) or "",
    )
    for clues in (_of_jobs, _of_engines, _of_systems, _of_others):
        for kind, seen_in, holds in clues(marks):
            if holds:
                return Known(kind, seen_in)
    return Known(ContainerKind.NONE, seen_in="no marker of a container")


def is_rootless(machine: Machine, mapped: Fact[bool]) -> Fact[bool]:
    """Whether root in here is a plain user outside: podman's own word, else the map of user ids."""
    said = machine.search(_CONTAINERENV, rb"(?m)^rootless=[01]$")
    if said:
        return Known(said[0] == b"rootless=1", seen_in=_CONTAINERENV)
    return mapped


def root_is_mapped(machine: Machine) -> Fact[bool]:
    """Whether uid 0 here is another user outside."""
    path = "/proc/self/uid_map"
    text = machine.read(path, limit=4096)
    if text is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    lines = [line.split() for line in text.splitlines()]
    outside = [line[1] for line in lines if len(line) == 3 and line[0] == "0"]
    return Known(outside != ["0"], seen_in=path) if lines else Unknown(f"{path} is empty")


# The most particular first: a Kubernetes pod often has Docker's marker too. Enroot mounts its lock file.
def _of_jobs(marks: _Marks) -> Iterator[tuple[ContainerKind, str, bool]]:
    yield ContainerKind.ENROOT, "/.lock", bool(re.search(r"(?m)^\S+ /\.lock ", marks.mounts))
    yield ContainerKind.ENROOT, "/.enroot", marks.there("/.enroot")
    yield ContainerKind.APPTAINER, "APPTAINER_CONTAINER", marks.env("APPTAINER_CONTAINER")
    yield ContainerKind.APPTAINER, "SINGULARITY_CONTAINER", marks.env("SINGULARITY_CONTAINER")
    yield ContainerKind.APPTAINER, "/.singularity.d", marks.there("/.singularity.d")
    yield ContainerKind.KUBERNETES, "KUBERNETES_SERVICE_HOST", marks.env("KUBERNETES_SERVICE_HOST")
    yield ContainerKind.KUBERNETES, "/proc/1/cgroup", "kubepods" in marks.cgroup
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    yield ContainerKind.KUBERNETES, "service account", marks.there(account)


def _of_engines(marks: _Marks) -> Iterator[tuple[ContainerKind, str, bool]]:
    yield ContainerKind.PODMAN, _CONTAINERENV, marks.there(_CONTAINERENV)
    yield ContainerKind.PODMAN, "container=podman", "podman" in marks.said
    yield ContainerKind.PODMAN, "/proc/1/cgroup", "/libpod-" in marks.cgroup
    yield ContainerKind.DOCKER, "/.dockerenv", marks.there("/.dockerenv")
    yield ContainerKind.DOCKER, "/proc/1/cgroup", "/docker" in marks.cgroup


def _of_systems(marks: _Marks) -> Iterator[tuple[ContainerKind, str, bool]]:
    """Containers that start a whole system; Incus and Proxmox say lxc too, so their own marks come first."""
    yield ContainerKind.INCUS, "/dev/incus", marks.there("/dev/incus")
    yield ContainerKind.LXD, "/dev/lxd", marks.there("/dev/lxd")
    by_lxc = "lxc" in marks.said or "/lxc" in marks.cgroup
    kernel = marks.machine.host.kernel_release
    yield ContainerKind.PROXMOX, f"container=lxc, kernel {kernel}", by_lxc and "-pve" in kernel
    for path in ("/etc/hosts", "/etc/network/interfaces", "/etc/resolv.conf") if by_lxc else ():
        marked = bool(marks.machine.search(path, rb"(?m)^# --- BEGIN PVE ---"))
        yield ContainerKind.PROXMOX, path, marked
    yield ContainerKind.LXC, "container=lxc", "lxc" in marks.said
    yield ContainerKind.LXC, "/proc/1/cgroup", "/lxc" in marks.cgroup
    yield ContainerKind.NSPAWN, "container=systemd-nspawn", "systemd-nspawn" in marks.said


def _of_others(marks: _Marks) -> Iterator[tuple[ContainerKind, str, bool]]:
    overlay = bool(re.search(rf"(?m)^(?!{_OWN_OVERLAYS})\S+ / (?:overlay|fuse\.fuse-overlayfs|aufs) ", marks.mounts))
    yield ContainerKind.OTHER, "variable container", any(marks.said)
    clue = _chroot(marks.machine)
    yield ContainerKind.CHROOT, clue, bool(clue)
    yield ContainerKind.OTHER, "/ is an overlay mount", overlay


def _chroot(machine: Machine) -> str:
    """What shows that / is a folder of another root: no mount is at /, or pid 1 has another file system there.

    systemd-detect-virt compares the inodes of / and /proc/1/root; both are 2 where each is an ext4 volume of its own.
    """
    # The lines of / alone: the rest names shares, servers and people's folders.
    own, first = (machine.search(f"/proc/{pid}/mountinfo", _ROOT_MOUNT) for pid in ("self", "1"))
    if own == ():
        return "no mount is at / in /proc/self/mountinfo"
    if own and first and own[-1].split()[2:4] != first[-1].split()[2:4]:  # the last lies on top of the others
        return "pid 1 has another / in /proc/1/mountinfo"
    return "/etc/debian_chroot" if machine.stat("/etc/debian_chroot") is not None else ""

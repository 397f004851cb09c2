"""What the user may do here: root, sudo, package managers and their locks, writable folders. Nothing is tried."""

from __future__ import annotations

import enum
import re

from firstlight.facts.container_kind import root_is_mapped
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine, which

PACKAGE_MANAGERS = ("apt-get", "dnf", "yum", "tdnf", "zypper", "pacman", "apk")
_ADMIN_GROUPS = ("sudo", "wheel", "admin")
# docker: may start containers; video and render: may open the GPU of a Jetson
_GROUPS = (*_ADMIN_GROUPS, "docker", "video", "render")
_APT_LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
_LOCK = r"(?m)^\d+: +\S+ +\S+ +WRITE +(-?\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) "
_PREFIXES = ("/usr/local", "/opt", "/workspace")
_CAP_SYS_MODULE = 1 << 16
_ID_DIGITS = 10  # of a group's number, which has 32 bits


class Sudo(enum.Enum):
    """What is known of sudo without running it: a refused call is logged as an incident."""

    NOT_NEEDED = "root already"
    ADMIN_GROUP = "sudo is there and the user is in an admin group"
    PRESENT = "sudo is there; whether the user may is not known"
    ABSENT = "no sudo"


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A package-manager lock that someone holds, e.g. /var/lib/dpkg/lock-frontend by unattended-upgr."""

    path: str
    holder: Fact[str]


@dataclass(frozen=True, slots=True)
class Prefix:
    """A folder where something could be installed, and whether we may write there."""

    path: str
    writable: bool


@dataclass(frozen=True, slots=True)
class AbilityFacts:
    """Rights and places, e.g. root in a user namespace, apt free, /usr/local writable."""

    uid: int
    is_root: bool
    root_is_mapped: Fact[bool]  # uid 0 here is another user outside: rootless container
    sudo: Sudo
    no_new_privileges: Fact[bool]  # the kernel refuses sudo for this process
    may_load_modules: Fact[bool]  # CAP_SYS_MODULE: what changing a driver takes
    groups: tuple[str, ...]
    package_managers: tuple[str, ...]
    apt_locks: Fact[tuple[HeldLock, ...]]
    prefixes: tuple[Prefix, ...]


def probe_ability(machine: Machine, *, site_packages: tuple[str, ...] = ()) -> AbilityFacts:
    """What the user may change here, from files alone."""
    status = machine.read("/proc/self/status", limit=8192) or ""
    groups = _groups(machine, status)
    managers = tuple(name for name in PACKAGE_MANAGERS if which(machine, name) is not None)
    return AbilityFacts(
        uid=machine.host.uid,
        is_root=machine.host.uid == 0,
        root_is_mapped=root_is_mapped(machine),
        sudo=_sudo(machine, groups),
        no_new_privileges=_no_new_privileges(status),
        may_load_modules=_may_load_modules(status),
        groups=groups,
        package_managers=managers,
        apt_locks=_apt_locks(machine) if "apt-get" in managers else Unknown("no apt-get on PATH"),
        prefixes=_prefixes(machine, site_packages),
    )


def _sudo(machine: Machine, groups: tuple[str, ...]) -> Sudo:
    if machine.host.uid == 0:
        return Sudo.NOT_NEEDED
    if which(machine, "sudo") is None:
        return Sudo.ABSENT
    return Sudo.ADMIN_GROUP if any(name in groups for name in _ADMIN_GROUPS) else Sudo.PRESENT


def _groups(machine: Machine, status: str) -> tuple[str, ...]:
    """Which of the groups that matter this process is in; /etc/group is searched so that no member is read."""
    lines = re.findall(r"(?m)^(?:Groups|Gid):([ \t0-9]*)$", status)
    own = {int(number) for line in lines for number in line.split() if len(number) <= _ID_DIGITS}
    wanted = "|".join(_GROUPS)
    found = machine.search("/etc/group", rf"(?m)^(?:{wanted}):[^:\n]*:\d{{1,9}}(?=:)".encode("ascii"), limit=20) or ()
    parts = (re.fullmatch(rf"({wanted}):[^:\n]*:([0-9]{{1,9}})", line.decode("utf-8", "replace")) for line in found)
    numbers = {match.group(1): int(match.group(2)) for match in parts if match is not None}
    return tuple(name for name in _GROUPS if numbers.get(name, -1) in own)


def _no_new_privileges(status: str) -> Fact[bool]:
    match = re.search(r"(?m)^NoNewPrivs:\s*([01])$", status)
    return _not_in_status("NoNewPrivs") if match is None else Known(match.group(1) == "1", seen_in="/proc/self/status")


def _may_load_modules(status: str) -> Fact[bool]:
    match = re.search(r"(?m)^CapEff:\s*([0-9a-f]{1,16})$", status)
    if match is None:
        return _not_in_status("CapEff")
    return Known(bool(int(match.group(1), 16) & _CAP_SYS_MODULE), seen_in="/proc/self/status")


def _not_in_status(name: str) -> Unknown:
    return Unknown(f"/proc/self/status has no {name}")


def _apt_locks(machine: Machine) -> Fact[tuple[HeldLock, ...]]:
    """The locks of apt and dpkg that some process holds: their inodes in /proc/locks, as fcntl puts them there."""
    text = machine.read("/proc/locks")
    if text is None:
        return Unknown(f"/proc/locks: {machine.why_not('/proc/locks')}")
    holders = {int(inode): int(pid) for pid, inode in re.findall(_LOCK, text)}
    held = []
    for path in _APT_LOCKS:
        found = machine.stat(path)
        if found is not None and found.inode in holders:
            held.append(HeldLock(path, _process_name(machine, holders[found.inode])))
    return Known(tuple(held), seen_in="/proc/locks")


def _process_name(machine: Machine, pid: int) -> Fact[str]:
    path = f"/proc/{pid}/comm"
    name = (machine.read(path, limit=64) or "").strip() if pid > 0 else ""
    return Known(name, seen_in=path) if name else Unknown("the process is not visible from here")


def _prefixes(machine: Machine, site_packages: tuple[str, ...]) -> tuple[Prefix, ...]:
    paths = dict.fromkeys((*_PREFIXES, machine.host.home, machine.host.cwd, *site_packages))
    found = ((path, machine.stat(path)) for path in paths if path.startswith("/"))
    return tuple(Prefix(path, seen.writable) for path, seen in found if seen is not None and seen.kind == "folder")

"""Disk, memory and processors as this process may use them: mounts and cgroup limits, not the host's totals alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TypeVar

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.toolkits import plain_path
from firstlight.frozen import dataclass
from firstlight.machine import Machine

N = TypeVar("N", int, float)
_SHM = "/dev/shm"  # noqa: S108 looked at, not written to
_PLACES = ("/", "/tmp", "/workspace", "/runpod-volume", _SHM)  # noqa: S108
_VOLUMES = r"/(?:workspace|runpod-volume|data|mnt/[^/]+|lambda/nfs/[^/]+)"
# File systems whose contents go with the container or the reboot, or that are no place to store anything.
# 9p and drvfs are Windows drives in WSL.
_FLEETING = (
    "overlay", "tmpfs", "ramfs", "devtmpfs", "squashfs", "fuse.fuse-overlayfs", "aufs", "proc", "sysfs", "9p", "drvfs",
)  # fmt: skip
_ESCAPED = r"\\([0-7]{3})"
_NO_LIMIT = 1 << 60  # cgroup v1 says 'none' as 9223372036854771712


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mounts without its options; the device only where it is a local one."""

    point: str
    kind: str
    device: str  # /dev/nvme0n1p1, or 'not local': an NFS server's name stays out
    read_only: bool


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Space where something could be written, e.g. 38 GB free at /workspace."""

    path: str
    total_bytes: int
    free_bytes: int
    mount: Fact[Mount]


@dataclass(frozen=True, slots=True)
class ResourceFacts:
    """What may be used: `memory_bytes` and `processors` are the smaller of the machine's and the limit's."""

    disks: tuple[DiskSpace, ...]
    persistent_volume: Fact[str]  # a mount that outlives the container, e.g. /workspace
    shm_bytes: Fact[int]
    memory_total_bytes: Fact[int]
    memory_available_bytes: Fact[int]
    memory_limit_bytes: Fact[int]  # of the cgroup
    memory_bytes: Fact[int]
    processor_model: Fact[str]
    processors_allowed: Fact[int]  # by affinity
    processor_quota: Fact[float]  # of the cgroup: 7.5
    processors: Fact[float]


def probe_resources(machine: Machine, *, site_packages: tuple[str, ...] = ()) -> ResourceFacts:
    """Disk space per place, memory and processors with the cgroup's limits applied."""
    mounts = _mounts(machine)
    total, available = _meminfo(machine)
    groups = _control_groups(machine, mounts)
    limit, quota = _memory_limit(machine, groups), _quota(machine, groups)
    allowed = _allowed(machine)
    disks = tuple(_disks(machine, mounts, site_packages))
    shm = next((disk for disk in disks if disk.path == _SHM), None)
    return ResourceFacts(
        disks=disks,
        persistent_volume=_persistent_volume(mounts),
        shm_bytes=Unknown(f"no {_SHM}") if shm is None else Known(shm.total_bytes, seen_in=_SHM),
        memory_total_bytes=total,
        memory_available_bytes=available,
        memory_limit_bytes=limit,
        memory_bytes=_smaller(total, limit),
        processor_model=_processor_model(machine),
        processors_allowed=allowed,
        processor_quota=quota,
        processors=_smaller(
            allowed if isinstance(allowed, Unknown) else Known(float(allowed.value), allowed.seen_in), quota
        ),
    )


def _mounts(machine: Machine) -> tuple[tuple[Mount, str], ...]:
    """(mount, its options) in the order of the file; the last one at a point is the one that counts."""
    found = []
    for line in (machine.read("/proc/self/mounts") or "").splitlines():
        words = line.split(" ")
        if len(words) < 4:
            continue
        device, point, kind, options = words[:4]
        local = _unescaped(device) if device.startswith("/dev/") else "not local"
        found.append((Mount(_unescaped(point), kind, local, "ro" in options.split(",")), options))
    return tuple(found)


def _unescaped(text: str) -> str:
    return re.sub(_ESCAPED, lambda match: chr(int(match.group(1), 8)), text)


def _disks(
    machine: Machine, mounts: tuple[tuple[Mount, str], ...], site_packages: tuple[str, ...]
) -> Iterator[DiskSpace]:
    places = dict.fromkeys((*_PLACES, machine.host.home, machine.host.cwd, *site_packages))
    for path in places:
        space = machine.disk(path) if plain_path(path) else None
        if space is not None:
            mount = _mount_of(machine.real_path(path), mounts)
            yield DiskSpace(path, space.total_bytes, space.free_bytes, mount)


def _mount_of(path: str, mounts: tuple[tuple[Mount, str], ...]) -> Fact[Mount]:
    best: Mount | None = None
    for mount, _ in mounts:
        holds = mount.point == "/" or path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if holds and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return Unknown("not in /proc/self/mounts") if best is None else Known(best, seen_in="/proc/self/mounts")


def _persistent_volume(mounts: tuple[tuple[Mount, str], ...]) -> Fact[str]:
    last = {mount.point: mount for mount, _ in mounts}
    for point, mount in last.items():
        if re.fullmatch(_VOLUMES, point) and mount.kind not in _FLEETING and not mount.read_only:
            return Known(point, seen_in=f"/proc/self/mounts ({mount.kind})")
    return Unknown("no mount of its own at /workspace, /runpod-volume, /data or /mnt/*")


def _meminfo(machine: Machine) -> tuple[Fact[int], Fact[int]]:
    path = "/proc/meminfo"
    text = machine.read(path, limit=8192)
    if text is None:
        missing = Unknown(f"{path}: {machine.why_not(path)}")
        return missing, missing
    found = {name: int(kib) << 10 for name, kib in re.findall(r"(?m)^(MemTotal|MemAvailable):\s+(\d{1,15}) kB$", text)}
    facts: list[Fact[int]] = [
        Known(found[name], seen_in=path) if name in found else Unknown(f"{path} has no {name}")
        for name in ("MemTotal", "MemAvailable")
    ]
    return facts[0], facts[1]


def _control_groups(machine: Machine, mounts: tuple[tuple[Mount, str], ...]) -> dict[str, tuple[str, ...]]:
    """Folders of our cgroup up to the root of its mount, by controller: unified (v2), memory and cpu (v1)."""
    points: dict[str, str] = {}
    for mount, options in mounts:
        if mount.kind == "cgroup2":
            points["unified"] = mount.point
        elif mount.kind == "cgroup":
            for name in ("memory", "cpu"):
                if name in options.split(","):
                    points[name] = mount.point
    found: dict[str, tuple[str, ...]] = {}
    for line in (machine.read("/proc/self/cgroup", limit=64 << 10) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(",") if controllers else ("unified",):
            if name in points and name not in found:
                found[name] = tuple(_upwards(points[name], path))
    return found


def _upwards(mount: str, path: str) -> Iterator[str]:
    """MOUNT/a/b, MOUNT/a, MOUNT: a limit on any of them counts; a path outside our namespace ('/..') is the root."""
    inside = plain_path(path) if ".." not in path.split("/") else "/"
    for _ in range(32):
        if not inside or inside == "/":
            break
        yield f"{mount.rstrip('/')}{inside}"
        inside = posixpath.dirname(inside)
    yield mount


def _memory_limit(machine: Machine, groups: dict[str, tuple[str, ...]]) -> Fact[int]:
    files = [f"{folder}/memory.max" for folder in groups.get("unified", ())]
    files += [f"{folder}/memory.limit_in_bytes" for folder in groups.get("memory", ())]
    limits = []
    for path in files:
        text = (machine.read(path, limit=64) or "").strip()
        if re.fullmatch(r"\d{1,20}", text) and 0 < int(text) < _NO_LIMIT:
            limits.append(Known(int(text), seen_in=path))
    return min(limits, key=lambda known: known.value) if limits else Unknown("no cgroup limits memory here")


def _quota(machine: Machine, groups: dict[str, tuple[str, ...]]) -> Fact[float]:
    found: list[Known[float]] = []
    for folder in groups.get("unified", ()):
        text = machine.read(f"{folder}/cpu.max", limit=64) or ""
        if match := re.fullmatch(r"(\d{1,12}) (\d{1,12})\s*", text):
            found += _share(match.group(1), match.group(2), f"{folder}/cpu.max")
    for folder in groups.get("cpu", ()):
        quota = (machine.read(f"{folder}/cpu.cfs_quota_us", limit=64) or "").strip()
        period = (machine.read(f"{folder}/cpu.cfs_period_us", limit=64) or "").strip()
        if re.fullmatch(r"\d{1,12}", quota) and re.fullmatch(r"\d{1,12}", period):  # -1 is no limit
            found += _share(quota, period, f"{folder}/cpu.cfs_quota_us")
    return min(found, key=lambda known: known.value) if found else Unknown("no cgroup limits processor time here")


def _share(quota: str, period: str, path: str) -> list[Known[float]]:
    return [Known(int(quota) / int(period), seen_in=path)] if int(quota) > 0 and int(period) > 0 else []


def _allowed(machine: Machine) -> Fact[int]:
    """How many processors the scheduler may put us on: 8 for Cpus_allowed_list 0-3,8-11."""
    path = "/proc/self/status"
    match = re.search(r"(?m)^Cpus_allowed_list:\s*([\d,-]{1,4096})$", machine.read(path, limit=8192) or "")
    if match is None:
        return Unknown(f"{path} has no Cpus_allowed_list")
    count = 0
    for span in match.group(1).split(","):
        ends = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", span)
        if ends is None:
            return Unknown(f"{path}: Cpus_allowed_list is not a list of ranges")
        count += max(0, int(ends.group(2) or ends.group(1)) - int(ends.group(1)) + 1)
    return Known(count, seen_in=path) if count else Unknown(f"{path}: Cpus_allowed_list is empty")


def _processor_model(machine: Machine) -> Fact[str]:
    path = "/proc/cpuinfo"
    text = machine.read(path, limit=4096) or ""
    if match := re.search(r"(?m)^model name\s*:\s*(\S[^\n]{0,119})", text):
        return Known(match.group(1).strip(), seen_in=path)
    # Arm gives numbers: implementer 0x41, part 0xd4f is a Neoverse V2 (Grace).
    implementer = re.search(r"(?m)^CPU implementer\s*:\s*(0x[0-9a-f]{1,4})$", text)
    part = re.search(r"(?m)^CPU part\s*:\s*(0x[0-9a-f]{1,4})$", text)
    if implementer and part:
        return Known(f"Arm implementer {implementer.group(1)} part {part.group(1)}", seen_in=path)
    return Unknown(f"{path} names no model")


def _smaller(one: Fact[N], other: Fact[N]) -> Fact[N]:
    known = [fact for fact in (one, other) if isinstance(fact, Known)]
    return min(known, key=lambda fact: fact.value) if known else one

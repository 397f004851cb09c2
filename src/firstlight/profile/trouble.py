"""Why counters could not be read: what Nsight Compute said, what the machine says, and what helps here."""

from __future__ import annotations

import enum

from firstlight.machine.interface import Machine
from firstlight.profile.result import Trouble

FORBIDDEN = "counters-forbidden"
_PARAMS = "/proc/driver/nvidia/params"
_CAP_SYS_ADMIN = 21
_HELP = "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
# words in Nsight Compute's messages -> (code, sentence, what to do), in the order in which they are looked for
_SAID: tuple[tuple[tuple[str, ...], str, str, tuple[str, ...]], ...] = (
    (
        ("driver resource was unavailable", "profiling resource", "another tool is currently profiling"),
        "counters-taken",
        "another program holds the GPU's counters: DCGM with its profiling metrics, or another profiler",
        ("dcgmi profile --pause, then again; dcgmi profile --resume afterwards",),
    ),
    (
        ("nsight-compute-lock", "interprocesslock"),
        "lock-taken",
        "the lock file of Nsight Compute in the temporary folder belongs to another user",
        ("set TMPDIR to a folder of your own, then again",),
    ),
    (
        ("librarynotloaded", "failed to load", "libcuda.so was not found", "cuda driver not found"),
        "library-not-loaded",
        "Nsight Compute could not load the driver's library in this sandbox (gVisor and such have no counters)",
        ("run on the host, or in a container of the plain NVIDIA runtime",),
    ),
    (
        ("is not supported on this device", "unsupported gpu", "not supported by this version", "unknown chip"),
        "gpu-not-supported",
        "this Nsight Compute does not know this GPU or driver",
        ("install the Nsight Compute of the newest CUDA toolkit; it runs beside older toolkits",),
    ),
    (
        ("no kernels were profiled", "no metrics to collect"),
        "no-kernels",
        "no kernel was launched where Nsight Compute looked",
        ("leave --kernel and --skip out, or name a command that uses the GPU",),
    ),
)


def trouble_in(log: str, machine: Machine) -> Trouble | None:
    """What a log of Nsight Compute complains of; None when it complains of nothing that is known."""
    lowered = log.lower()
    if "err_nvgpuctrperm" in lowered or "permission to access nvidia gpu performance counters" in lowered:
        return forbidden(machine)
    for words, code, says, do in _SAID:
        if any(word in lowered for word in words):
            return Trouble(code, says, do)
    return None


def forbidden(machine: Machine) -> Trouble:
    """Counters are for administrators: where that is set, and what gives them to us on this kind of machine."""
    seen = ["the driver refuses performance counters (ERR_NVGPUCTRPERM)"]
    if (setting := _admin_only(machine)) is not None:
        seen.append(f"RmProfilingAdminOnly is {setting} in {_PARAMS}")
    allowed = _may_administer(machine)
    if allowed is False:
        seen.append("this process has no CAP_SYS_ADMIN")
    elif allowed:
        seen.append("this process has CAP_SYS_ADMIN, so a host around it decides (a virtual GPU, a cloud)")
    return Trouble(FORBIDDEN, "; ".join(seen), _ways_out(machine, _Here.ADMIN if allowed else _Here.USER))


class _Here(enum.Enum):
    """What this process may do."""

    ADMIN = "administer"
    USER = "use"


def _ways_out(machine: Machine, here: _Here) -> tuple[str, ...]:
    if (machine.read("/proc/version") or "").lower().find("microsoft") >= 0:
        return (
            "in Windows: NVIDIA Control Panel, Desktop, Enable Developer Settings; then Developer, Manage GPU "
            "Performance Counters, Allow access to all users",
        )
    option = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
    on_host = f"for all users: the line `{option}` in /etc/modprobe.d/nvidia-profiling.conf, then a restart ({_HELP})"
    if here is _Here.ADMIN:
        return (f"on the host, {on_host}",)
    if _in_container(machine):
        return (
            "start the container with --cap-add=SYS_ADMIN (rented containers often refuse that: then a virtual or "
            "bare machine is needed)",
            f"on the host, {on_host}",
        )
    return ("run it as root: sudo -E env PATH=$PATH firstlight profile ...", on_host)


def _admin_only(machine: Machine) -> str | None:
    for line in (machine.read(_PARAMS) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "RmProfilingAdminOnly":
            return value.strip()
    return None


def _may_administer(machine: Machine) -> bool | None:
    for line in (machine.read("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            try:
                return bool(int(value.strip(), 16) >> _CAP_SYS_ADMIN & 1)
            except ValueError:
                return None
    return None


def _in_container(machine: Machine) -> bool:
    if any(machine.stat(path) is not None for path in ("/.dockerenv", "/run/.containerenv")):
        return True
    cgroup = machine.read("/proc/1/cgroup") or ""
    return any(word in cgroup for word in ("docker", "kubepods", "containerd", "libpod", "lxc"))

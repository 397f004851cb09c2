"""Before timing: is somebody else on this GPU? Judged before our own context exists, where NVML's list is unambiguous.

In a container NVML often shows no processes at all, so utilisation and memory are looked at as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import fmean

from firstlight.bench.clocks import NoGauge, NvmlCard
from firstlight.errors import FirstlightError
from firstlight.facts.known import Fact, Known
from firstlight.frozen import dataclass

IDLE_CHECK_S = 1.0
LOOKS = 5
BUSY_PCT = 5.0
USED_SHARE, USED_BYTES = 0.02, 1 << 30  # the driver itself holds 0.6 GB of an H200


@dataclass(frozen=True, slots=True)
class IdleLook:
    """What the idle check saw; None where NVML does not say."""

    processes: int | None
    utilisation_pct: float | None
    used_bytes: int | None
    total_bytes: int | None
    is_mig: bool
    has_mps: bool


class Contended(FirstlightError):
    """Somebody else uses the device and --strict was given: no number would mean anything."""

    exit_code = 1


def look(card: NvmlCard | NoGauge, *, mps: Fact[str], sleep: Callable[[float], None] = time.sleep) -> IdleLook:
    """One second of looking at an idle card; `mps` is the control pipe of a running MPS daemon, if there is one."""
    has_mps = isinstance(mps, Known)
    if isinstance(card, NoGauge):
        return IdleLook(None, None, None, None, is_mig=False, has_mps=has_mps)
    busy = []
    for _ in range(LOOKS):
        rates = card.ask("utilisation", "nvmlDeviceGetUtilizationRates")
        if rates is not None:
            busy.append(float(rates.gpu))
        sleep(IDLE_CHECK_S / LOOKS)
    processes = card.ask("processes", "nvmlDeviceGetComputeRunningProcesses")
    memory = card.ask("memory", "nvmlDeviceGetMemoryInfo")
    mig = card.ask("mig", "nvmlDeviceGetMigMode")
    return IdleLook(
        processes=None if processes is None else sum(process.pid != os.getpid() for process in processes),
        utilisation_pct=fmean(busy) if busy else None,
        used_bytes=None if memory is None else int(memory.used),
        total_bytes=None if memory is None else int(memory.total),
        is_mig=mig is not None and bool(mig[0]),
        has_mps=has_mps,
    )


def contention(seen: IdleLook) -> tuple[str, ...]:
    """What speaks against quiet numbers, in sentences; () for a GPU that is ours alone."""
    found = []
    if seen.processes:
        others = "another process uses" if seen.processes == 1 else f"{seen.processes} other processes use"
        found.append(f"{others} this GPU")
    if seen.utilisation_pct is not None and seen.utilisation_pct > BUSY_PCT:
        found.append(f"the GPU is {seen.utilisation_pct:.0f} % busy before we start")
    if seen.used_bytes is not None and seen.total_bytes is not None:
        usual = USED_SHARE * seen.total_bytes + USED_BYTES
        if seen.used_bytes > usual and not seen.processes:
            found.append(
                f"{seen.used_bytes / 1e9:.1f} of {seen.total_bytes / 1e9:.1f} GB are in use before we start; "
                "a display or somebody outside this container may be on the GPU"
            )
    if seen.is_mig:
        found.append("MIG is on: this is a slice of a GPU, and its neighbours share memory bandwidth and power")
    if seen.has_mps:
        found.append("an MPS daemon runs: its other clients share the GPU")
    return tuple(found)


def refuse(found: tuple[str, ...], device: str = "GPU") -> None:
    """For --strict: no run on a GPU or a processor that is shared."""
    if found:
        raise Contended(
            f"--strict: not measured, because {'; '.join(found)}. Free the {device}, or leave --strict out."
        )

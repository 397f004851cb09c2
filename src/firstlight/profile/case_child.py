"""The process in which one case runs for a profiler: checked, warmed up, then one marked call or a few timed ones."""

from __future__ import annotations

import sys
from typing import Any

from firstlight.bench.case import Effort
from firstlight.bench.cases.suite import ALL_CASES
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.bench.choice import Choice, chosen
from firstlight.bench.place import CPU, describe, import_torch, place_of
from firstlight.bench.rotation import sets_wanted
from firstlight.profile.under_torch import kernels_of, write

WARM_UPS = 3
TIMED_CALLS = 10


def main(argv: list[str]) -> int:
    """Run case ID on a device and write the answer; looker is 'counters' or 'torch'."""
    case_id, device, answer, looker = argv
    torch = import_torch()
    place = place_of(describe(device))
    [case] = chosen(ALL_CASES(place), Choice(Effort.RIGOROUS, (case_id,)))
    if case.needs:
        write(answer, {"problem": case.needs})
        return 0
    try:
        prepared = case.prepare(place, 1 if looker == "counters" else sets_wanted(case, place))
        error_rel = float(prepared.check())
    except Unavailable as error:
        write(answer, {"problem": str(error)})
        return 0
    found: dict[str, Any] = {"error_rel": error_rel, "tolerance": case.tolerance}
    for index in range(max(WARM_UPS, len(prepared.calls))):
        prepared.calls[index % len(prepared.calls)]()
    if device != CPU:
        torch.cuda.synchronize(device)
    if looker == "torch":
        found["kernels"] = _timed(torch, prepared.calls, device)
    else:
        _marked(torch, prepared.calls[0], device)
    write(answer, found)
    return 0


def _marked(torch: Any, call: Any, device: str) -> None:
    """One call between the marks that Nsight Compute waits for; on a processor there are none."""
    if device == CPU:
        call()
        return
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize(device)
    torch.cuda.profiler.stop()


def _timed(torch: Any, calls: tuple[Any, ...], device: str) -> list[dict[str, Any]]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device != CPU:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for index in range(TIMED_CALLS):
            calls[index % len(calls)]()
        if device != CPU:
            torch.cuda.synchronize(device)
    return kernels_of(profiler, TIMED_CALLS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

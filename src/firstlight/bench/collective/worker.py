"""One rank: started by torchrun, it takes every step that the others take, and rank 0 hands in the results."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from firstlight.bench.attempts import Attempt, Tools, first_attempt, run_one_pass
from firstlight.bench.choice import Choice, chosen
from firstlight.bench.clocks import Gauge, NoGauge, NvmlCard, NvmlGauge, Watch, reasons_pct
from firstlight.bench.collective.agreed import AgreedMemory, AgreedStopwatch, GpuTimer, ProcessTimer, TorchParty
from firstlight.bench.collective.calls import prepare
from firstlight.bench.collective.cases import CPU, LinkOf, Ranks, collective_cases, no_link
from firstlight.bench.collective.folder import Measured, Told, hand_in, tell
from firstlight.bench.collective.links import link_of_all, own_link
from firstlight.bench.collective.order import Order
from firstlight.bench.collective.torchrun import FOLDER, end_with_parent
from firstlight.bench.figures import Setting, case_results
from firstlight.bench.memory import CpuMemory, CudaMemory
from firstlight.bench.peaks import NO_PEAKS, peaks_of
from firstlight.bench.place import Device, describe, place_of, with_link_under_load
from firstlight.bench.results import RESULTS, Verdict
from firstlight.bench.stopwatch import Stopwatch
from firstlight.records import decode
from firstlight.tables import load

HAND_IN_EVERY_S = 0.5
WARM_ELEMENTS, WARM_CALLS = 1 << 24, 20
STAY_S = 6.0  # after a complaint: torchrun ends every rank as soon as one ends, and the others want to be heard too


class CannotGoOn(RuntimeError):
    """A case failed on this rank in a way that the other ranks do not know of."""


def main(argv: list[str]) -> int:
    """Take part; 1 where this rank had to stop, with the reason in the folder."""
    end_with_parent(os.getppid())
    folder, rank = os.environ[FOLDER], int(os.environ["RANK"])
    told = Told(rank, os.getpid())
    tell(folder, told)
    order = decode(Order, json.loads(argv[0]), "the order", RESULTS)
    work = _Rank(order, folder, told)
    try:
        work.run()
    except Exception as error:  # noqa: BLE001 whatever it is, the others must not wait for ever
        said = " ".join(str(error).split())[:300]
        work.complain(said if isinstance(error, CannotGoOn) else f"{type(error).__name__}: {said}")
        return 1
    return 0


class _Rank:
    """One rank of a run, from meeting the others to its last step."""

    def __init__(self, order: Order, folder: str, told: Told) -> None:
        self._order, self._folder, self._told = order, folder, told
        self._local = int(os.environ["LOCAL_RANK"])
        self._party: TorchParty | None = None
        self._throttled: tuple[tuple[str, float], ...] = ()

    def run(self) -> None:
        """Meet, measure, part."""
        device = CPU if self._order.device == CPU else f"cuda:{self._local}"
        with _met(device, self._order.limit_s) as control:
            self._party = party = TorchParty(control, device=device, limit_s=self._order.limit_s)
            self._measure(party, describe(device))
            party.meet()
        tell(self._folder, replace(self._told, done=True))

    def complain(self, text: str) -> None:
        """Say why this rank stops, and stay a little."""
        waited = self._party is not None and self._party.lost
        self._told = replace(self._told, complaint=text, waited=waited)
        tell(self._folder, self._told)
        time.sleep(STAY_S)

    def _measure(self, party: TorchParty, device: Device) -> None:
        order, place = self._order, place_of(device)
        timer: GpuTimer | ProcessTimer
        link_of: LinkOf = no_link
        if device.gpu is None:
            timer = ProcessTimer(party, one_clock=order.nodes == 1)
        else:
            timer = GpuTimer(party, device=device.name)
            device = _warm(party, device)
            found = party.agree(own_link(device))
            link_of = link_of_all(found, load(), nodes=order.nodes) if party.rank == 0 else no_link
        ranks = Ranks(order.device, party.count, order.nodes)
        cases = collective_cases(ranks, most_bytes=order.most_bytes, prepare=partial(prepare, party), link_of=link_of)
        attempts = [first_attempt(case, place) for case in chosen(cases, Choice(order.effort, order.only))]
        with _gauge(device, party) as gauge:
            stopwatch = AgreedStopwatch(Stopwatch(timer, gauge, patience=order.patience), party)
            memory = AgreedMemory(CpuMemory() if device.gpu is None else CudaMemory(device.name), party)
            before = gauge.counters()
            seconds = self._passes(attempts, party, Tools(place, stopwatch, memory, order.patience), device)
            self._throttled = reasons_pct((Watch(before, gauge.counters(), ()),))
        self._hand_in(attempts, seconds, party, device)

    def _passes(self, attempts: list[Attempt], party: TorchParty, tools: Tools, device: Device) -> float:
        """Every case in pass 1, then in pass 2 and so on, in step with the other ranks; gives the seconds of timing."""
        passes, timing_s, handed_in_at = tools.patience.passes, 0.0, 0.0
        for pass_number in range(1, passes + 1):
            for number, attempt in enumerate(attempts):
                if attempt.verdict is not Verdict.OK:
                    continue
                self._step(attempt.case.id, number + 1, len(attempts), (pass_number, passes))
                began = time.perf_counter()
                attempts[number], setup_s = run_one_pass(attempt, tools, budget_s=tools.patience.pass_budget_s)
                timing_s += max(0.0, time.perf_counter() - began - setup_s)
                self._stop_where_lost(attempts[number], party)
                if time.monotonic() - handed_in_at >= HAND_IN_EVERY_S:
                    handed_in_at = time.monotonic()
                    self._hand_in(attempts, timing_s, party, device)
        return timing_s

    def _step(self, case_id: str, number: int, cases: int, passes: tuple[int, int]) -> None:
        self._told = replace(
            self._told, case_id=case_id, number=number, cases=cases, pass_number=passes[0], passes=passes[1]
        )
        tell(self._folder, self._told)

    def _stop_where_lost(self, attempt: Attempt, party: TorchParty) -> None:
        """A wrong result is known to all ranks, and they go on; after any other error they cannot."""
        if attempt.verdict is Verdict.FAILED and attempt.case.id not in party.wrong:
            raise CannotGoOn(attempt.reason)

    def _hand_in(self, attempts: list[Attempt], timing_s: float, party: TorchParty, device: Device) -> None:
        """Rank 0 keeps what is finished for whoever started it: a rank may die later."""
        if party.rank == 0:
            hand_in(self._folder, self._measured(attempts, timing_s, party, device))

    def _measured(self, attempts: list[Attempt], timing_s: float, party: TorchParty, device: Device) -> Measured:
        gpu = device.gpu
        setting = Setting(
            gpu=gpu,
            gpu_place=-1 if gpu is None else 0,
            peaks=NO_PEAKS if gpu is None else peaks_of(gpu, load()),
            patience=self._order.patience,
            missing=(),
        )
        ended = [each for each in attempts if each.passes or each.verdict is not Verdict.OK]
        return Measured(party.count, case_results(ended, setting), timing_s, self._throttled)


@contextlib.contextmanager
def _met(device: str, limit_s: float) -> Iterator[Any]:
    """The ranks of torch.distributed, met; and a group for agreement beside that which is measured."""
    import torch
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=limit_s)
    if device == CPU:
        dist.init_process_group("gloo", timeout=limit)
    else:
        torch.cuda.set_device(device)
        # NCCL's own watchdog would abort the process before it can say what it waited for.
        dist.init_process_group("nccl", timeout=4 * limit, device_id=torch.device(device))
    control = dist.new_group(backend="gloo", timeout=limit)
    yield control
    dist.destroy_process_group()  # not after an error: it would wait for the rank that is lost


def _warm(party: TorchParty, device: Device) -> Device:
    """The device with its links as they are under load: idle ones run at a lower generation."""
    import torch
    import torch.distributed as dist

    data = torch.ones(WARM_ELEMENTS, device=device.name)
    for _ in range(WARM_CALLS):
        with party.asking():
            dist.all_reduce(data)
    party.wait()
    return with_link_under_load(device)


@contextlib.contextmanager
def _gauge(device: Device, party: TorchParty) -> Iterator[Gauge]:
    """NVML of rank 0's GPU; the others' would say the same of other GPUs, and one document holds one."""
    watched = isinstance(device.card, NvmlCard) and party.rank == 0
    gauge: Gauge = NvmlGauge(device.card) if watched else NoGauge("not the GPU of rank 0")  # type: ignore[arg-type]
    try:
        yield gauge
    finally:
        gauge.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

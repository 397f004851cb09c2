"""The path over NCCL and CUDA events with the one rank that a machine with one GPU can have.

One rank sends nothing to anybody: this shows that buffers, calls, checks, events and the agreed stopwatch work on a
GPU, and says nothing of speed. Several GPUs were never at hand.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from firstlight.bench.attempts import Attempt, Tools, first_attempt, run_one_pass
from firstlight.bench.case import Effort
from firstlight.bench.clocks import NoGauge
from firstlight.bench.collective import calls
from firstlight.bench.collective.agreed import AgreedMemory, AgreedStopwatch, GpuTimer, TorchParty
from firstlight.bench.collective.cases import CUDA, Ranks, Spec, _case, no_link
from firstlight.bench.collective.links import OwnLink, own_link
from firstlight.bench.collective.operations import OPERATIONS
from firstlight.bench.memory import CudaMemory
from firstlight.bench.patience import PATIENCE
from firstlight.bench.place import describe, place_of
from firstlight.bench.results import Verdict
from firstlight.bench.stopwatch import Stopwatch

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


@pytest.fixture(scope="module")
def party() -> Iterator[TorchParty]:
    import torch.distributed as given

    dist: Any = given
    limit = datetime.timedelta(seconds=60)
    torch.cuda.set_device(0)
    dist.init_process_group(
        "nccl", store=dist.HashStore(), rank=0, world_size=1, timeout=limit, device_id=torch.device("cuda:0")
    )
    yield TorchParty(dist.new_group(backend="gloo", timeout=limit), device="cuda:0", limit_s=60)
    dist.destroy_process_group()


def _passed(party: TorchParty, name: str, size: int) -> Attempt:
    operation = next(each for each in OPERATIONS if each.name == name)
    spec = Spec(f"collective/{name}/gpu1/{size}", operation, size)
    case = _case(spec, Ranks(CUDA, 1), lambda *given: calls.prepare(party, *given), no_link)
    place = place_of(describe("cuda:0"))
    patience = PATIENCE[Effort.QUICK]
    watch = Stopwatch(GpuTimer(party, device="cuda:0"), NoGauge("not watched"), patience=patience)
    tools = Tools(place, AgreedStopwatch(watch, party), AgreedMemory(CudaMemory("cuda:0"), party), patience)
    attempt, _ = run_one_pass(first_attempt(case, place), tools, budget_s=0.05)
    return attempt


@pytest.mark.parametrize("name", [operation.name for operation in OPERATIONS])
@pytest.mark.parametrize("size", [8, 2 << 20, 1 << 28])
def test_one_rank_over_nccl_is_timed_and_checked(party: TorchParty, name: str, size: int) -> None:
    attempt = _passed(party, name, size)
    assert attempt.verdict is Verdict.OK, attempt.reason
    [timing] = attempt.passes
    samples = [seconds for stretch in timing.stretches for seconds in stretch.samples]
    assert min(samples) > 0
    print(f"{name} {size}: {1e6 * min(samples):.2f} us, {timing.graph_calls} calls, {attempt.flags}")


def test_a_wrong_result_is_found_on_the_gpu(party: TorchParty, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    real: Any = dist.all_reduce

    def doubled(tensor: Any, *rest: object, **named: object) -> object:
        done = real(tensor, *rest, **named)
        if tensor.is_cuda and tensor.numel() > 1:
            tensor[1] *= 2
        return done

    monkeypatch.setattr(dist, "all_reduce", doubled)
    attempt = _passed(party, "all_reduce", 4096)
    assert attempt.verdict is Verdict.FAILED
    assert "rank 0 got" in attempt.reason
    assert "at element 1" in attempt.reason


def test_the_gpu_says_what_links_it_has() -> None:
    found = own_link(describe("cuda:0"))
    assert isinstance(found, OwnLink)
    assert (found.nvlink_version is None) == (found.nvlinks == 0)

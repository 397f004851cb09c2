"""The stopwatch on a real GPU: that launches are hidden, and that it agrees with other ways of timing."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from firstlight.bench.rotation import Cold
from firstlight.bench.tape import Launching, Tape, make_shots
from firstlight.bench.timers import CudaTimer, NotCaptured, Shot, nothing

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


@pytest.fixture
def timer() -> Iterator[CudaTimer]:
    yield CudaTimer("cuda:0", l2_bytes=torch.cuda.get_device_properties(0).L2_cache_size)
    torch.cuda.synchronize()


def product(size: int) -> Any:
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in "ab")
    out = torch.empty_like(left)

    def call() -> None:
        torch.mm(left, right, out=out)

    call()
    torch.cuda.synchronize()
    return call


def test_a_block_that_is_too_short_is_noticed_and_lengthened(timer: CudaTimer) -> None:
    shots = [Shot(product(128), 1)] * 50
    timer._block_s = 1e-6
    assert not timer._try(shots, nothing).hidden
    assert timer.series(shots).hidden


def test_a_call_that_waits_for_the_device_cannot_be_hidden(timer: CudaTimer) -> None:
    call = product(128)

    def waiting() -> None:
        call()
        torch.cuda.synchronize()

    assert not timer.series([Shot(waiting, 1)]).hidden
    assert isinstance(timer.batch([waiting]), NotCaptured)
    assert timer.series([Shot(call, 1)]).hidden  # nothing is left broken behind


def test_a_small_product_takes_as_long_as_in_a_loop_of_graph_replays(timer: CudaTimer) -> None:
    calls = [product(512)]
    shots = make_shots(timer, calls, cold=Cold.AS_IS, launching=Launching.GRAPHS)
    tape = Tape(timer, shots.shots)
    for _ in range(20):
        tape.block_of(5)
    ours = median(tape.take(20).seconds)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            calls[0]()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in "ab")
    graph.replay()
    start.record()
    for _ in range(20):
        graph.replay()
    stop.record()
    stop.synchronize()
    assert ours == pytest.approx(start.elapsed_time(stop) / 1e3 / 1000, rel=0.15)


def test_the_cycle_counter_tells_a_clock_the_card_can_have(timer: CudaTimer) -> None:
    series = timer.series([Shot(product(2048), 1)] * 5)
    assert series.sm_mhz is not None
    assert 100 < series.sm_mhz < 4000

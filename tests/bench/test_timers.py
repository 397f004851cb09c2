"""Events on a blocked stream, against a simulated stream: launches cost host time, work runs in order behind them."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from statistics import median

import pytest

from firstlight.bench import timers
from firstlight.bench.timers import LONGEST_BLOCK_S, CudaTimer, NotCaptured, Shot

US, MS = 1e-6, 1e-3
CLOCK_HZ = 1.98e9


class Stream:
    """A GPU with one stream: `host` is the time of the caller, `free` when the GPU has done all that is queued."""

    def __init__(self, *, launch_s: float = 5 * US) -> None:
        self.host = 0.0
        self.free = 0.0
        self.launch_s = launch_s
        self.blocks: list[float] = []
        self.is_capturing = False
        self.captured: list[float] = []
        self.clock_hz = CLOCK_HZ

    def kernel(self, seconds: float) -> Callable[[], None]:
        def launch() -> None:
            if self.is_capturing:
                self.captured.append(seconds)
                return
            self.host += self.launch_s
            self.free = max(self.free, self.host) + seconds

        return launch

    def wait(self) -> None:
        if self.is_capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nmore of it")
        self.host = max(self.host, self.free)

    def spin(self, cycles: int) -> None:
        self.blocks.append(cycles / self.clock_hz)
        self.kernel(cycles / self.clock_hz)()

    def torch(self) -> types.ModuleType:
        """As much of torch as the timer uses."""
        stream = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                stream.host += 1 * US
                stream.free = self.at = max(stream.free, stream.host)

            def query(self) -> bool:
                return self.at <= stream.host

            def synchronize(self) -> None:
                stream.host = max(stream.host, self.at)

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) * 1e3

        class Graph:
            def replay(self) -> None:
                stream.kernel(sum(stream.captured))()

        class Capture:
            def __init__(self, graph: Graph, **options: object) -> None:
                """Nothing until it is entered."""

            def __enter__(self) -> None:
                stream.is_capturing = True

            def __exit__(self, *error: object) -> None:
                stream.is_capturing = False

        class Buffer:
            def zero_(self) -> None:
                stream.kernel(30 * US)()

        cuda = types.SimpleNamespace(
            Event=Event, CUDAGraph=Graph, graph=Capture, Stream=lambda device: None, set_device=lambda device: None,
            synchronize=lambda device=None: stream.wait(), _sleep=self.spin,
            OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}),
        )  # fmt: skip
        module = types.ModuleType("torch")
        module.__dict__.update(cuda=cuda, device=str, empty=lambda size, dtype, device: Buffer(), uint8=None)
        return module


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setitem(sys.modules, "torch", made.torch())
    monkeypatch.setattr("firstlight.bench.timers.time.perf_counter", lambda: made.host)
    return made


def test_no_launch_lies_between_two_events(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    shots = [Shot(stream.kernel(2 * US), 1)] * 40  # each takes longer to launch than to run
    series = timer.series(shots)
    assert series.hidden
    assert series.seconds == pytest.approx([2 * US] * 40)


def test_without_the_block_the_launches_would_be_timed(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    timer._block_s = 0.0
    bare = timer._try([Shot(stream.kernel(2 * US), 1)] * 40, timers.nothing)
    assert not bare.hidden
    assert median(bare.seconds) >= 5 * US


def test_a_torch_without_the_spinning_kernel_times_launches_and_says_so(stream: Stream) -> None:
    del sys.modules["torch"].cuda._sleep
    series = CudaTimer("cuda:0", l2_bytes=1 << 20).series([Shot(stream.kernel(2 * US), 1)] * 40)
    assert not series.hidden
    assert series.sm_mhz is None
    assert stream.blocks == []
    assert median(series.seconds) >= 5 * US


def test_a_long_queue_gets_a_long_block(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    shots = [Shot(stream.kernel(2 * US), 1)] * 1500  # 10 ms of launching
    assert timer.series(shots).hidden
    assert max(stream.blocks) > 10 * MS
    stream.blocks.clear()
    assert timer.series(shots).hidden
    assert len(stream.blocks) == 2  # the length that was learned is right at once: short spin and block


def test_a_call_that_waits_for_the_device_is_given_up_soon(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    work = stream.kernel(100 * US)

    def waiting() -> None:
        work()
        stream.wait()

    stream.blocks.clear()
    assert not timer.series([Shot(waiting, 1)]).hidden
    assert max(stream.blocks) < LONGEST_BLOCK_S
    assert timer.series([Shot(work, 1)]).hidden


def test_launches_beyond_the_longest_block_are_not_hidden_and_said_so(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    assert not timer.series([Shot(stream.kernel(2 * US), 1)] * 20_000).hidden


def test_the_cycle_counter_follows_a_clock_that_falls(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    shots = [Shot(stream.kernel(1 * MS), 1)]
    assert timer.series(shots).sm_mhz == pytest.approx(1980, rel=0.01)
    stream.clock_hz = 1.5e9
    assert timer.series(shots).sm_mhz == pytest.approx(1500, rel=0.01)


def test_a_flush_lies_outside_the_events(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    series = timer.series([Shot(stream.kernel(10 * US), 1)] * 5, before_each=timer.flush)
    assert series.hidden
    assert series.seconds == pytest.approx([10 * US] * 5)
    assert series.sm_mhz is None  # the flush stands between the block and the first event


def test_a_batch_is_one_launch_of_all_its_calls(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    batch = timer.batch([stream.kernel(3 * US)] * 70)
    assert isinstance(batch, Shot)
    assert batch.count == 70
    assert timer.series([batch]).seconds == pytest.approx([3 * US])


def test_what_cannot_be_captured_says_why_in_one_line(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    refused = timer.batch([stream.wait])
    assert refused == NotCaptured("operation not permitted when stream is capturing")


def test_host_time_holds_launch_work_and_waiting(stream: Stream) -> None:
    timer = CudaTimer("cuda:0", l2_bytes=1 << 20)
    assert timer.host(stream.kernel(20 * US)) == pytest.approx(25 * US)

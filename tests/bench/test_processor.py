"""Who else uses the processor: from files written for the purpose, and from this machine with a process that burns."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firstlight.bench import gate, processor
from firstlight.bench.processor import Load, Moment, before_sentence, during_sentence, load_between, moment
from firstlight.bench.timers import CpuTimer, Shot

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("load", "sentences"),
    [
        (Load(3, 1.6, 0.0, 2), ("3 other processes use 1.6 of 2 cores",)),
        (Load(1, 1.0, 0.0, 2), ("another process uses 1.0 of 2 cores",)),
        (Load(0, 0.9, 0.0, 2), ("others use 0.9 of 2 cores",)),  # outside this container, or gone already
        (Load(0, 0.0, 0.7, 2), ("the host of this virtual machine takes 0.7 of its 2 cores for others",)),
        (Load(4, 0.08, 0.0, 2), ()),
        (Load(4, 2.0, 0.0, 128), ()),
        (None, ()),
    ],
)
def test_a_busy_processor_is_said_in_one_sentence(load: Load | None, sentences: tuple[str, ...]) -> None:
    assert before_sentence(load) == sentences


def test_what_happened_meanwhile_is_said_too() -> None:
    assert during_sentence(Load(2, 0.94, 0.0, 2)) == ("while it was timed, others used 0.9 of 2 cores",)
    assert during_sentence(Load(2, 0.02, 0.0, 2)) == during_sentence(None) == ()


def a_proc(root: Path, *, user: int, idle: int, steal: int = 0, processes: dict[int, tuple[int, int]]) -> Path:
    """A /proc of two cores: processes are (parent, ticks); names hold what breaks a careless reader."""
    root.mkdir(exist_ok=True)
    (root / "stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1\ncpu1 1\nintr 7\n")
    for pid, (parent, ticks) in processes.items():
        (root / str(pid)).mkdir(exist_ok=True)
        (root / str(pid) / "stat").write_text(
            f"{pid} (a) R 1 (x) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 9"
        )
    (root / "sys").mkdir(exist_ok=True)
    return root


def test_our_own_work_and_that_of_our_children_is_not_the_others(tmp_path: Path) -> None:
    ours = os.getpid()
    first = moment(
        a_proc(tmp_path, user=0, idle=0, steal=1, processes={ours: (1, 0), 4000001: (ours, 0), 4000002: (1, 0)})
    )
    second = moment(
        a_proc(tmp_path, user=30 * TICKS, idle=0, steal=1 + TICKS,
               processes={ours: (1, 10 * TICKS), 4000001: (ours, 5 * TICKS), 4000002: (1, 15 * TICKS), 4000003: (1, 1)})
    )  # fmt: skip
    assert first is not None
    assert second is not None
    load = load_between(first, Moment(first.at_s + 20, *_rest(second)))
    assert load is not None
    assert (load.processes, round(load.used, 2), round(load.stolen, 2), load.cores) == (1, 0.75, 0.05, 2)


def _rest(seen: Moment) -> tuple[int, float, float, float, tuple[tuple[int, float], ...]]:
    return seen.cores, seen.busy_s, seen.stolen_s, seen.own_s, seen.others


@pytest.mark.parametrize(
    "text", ["", "cpu\n", "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0\n", "not a stat file\n", "cpu  x y\ncpu0\n"]
)
def test_a_proc_that_says_nothing_is_no_load(text: str, tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(text)
    assert moment(tmp_path) is None
    assert load_between(None, None) is None


def burner() -> subprocess.Popen[bytes]:
    """A process of somebody else's: not our child, by way of a shell that ends at once. It ends by itself."""
    code = "import time\nend = time.monotonic() + 8\nwhile time.monotonic() < end: pass"
    return subprocess.Popen(["sh", "-c", '"$0" -c "$1" & exec sleep 0', sys.executable, code])


def test_a_process_that_burns_here_is_seen_and_refused_under_strict() -> None:
    burner().wait(timeout=10)
    time.sleep(0.3)
    load = processor.look()
    assert load is not None
    assert load.processes >= 1
    assert load.used > 0.3
    found = before_sentence(load)
    assert "of" in found[0]
    with pytest.raises(gate.Contended, match="Free the processor, or leave --strict out"):
        gate.refuse(found, "processor")


def test_samples_in_which_we_were_put_off_our_core_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter of involuntary switches moves in the first two of three tries."""
    from types import SimpleNamespace

    from firstlight.bench import timers

    switches = iter([0, 1, 1, 3, 3, 3, 3, 3])
    monkeypatch.setattr(timers, "getrusage", lambda who: SimpleNamespace(ru_nivcsw=next(switches)))
    calls: list[int] = []
    series = CpuTimer().series((Shot(lambda: calls.append(1), 1), Shot(lambda: calls.append(2), 1)))
    assert calls == [1, 1, 1, 2]
    assert (len(series.seconds), series.put_off) == (2, 0)


def test_a_shot_that_never_runs_alone_is_bounded_counted_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from itertools import count
    from types import SimpleNamespace

    from firstlight.bench import timers

    ticking = count()
    monkeypatch.setattr(timers, "getrusage", lambda who: SimpleNamespace(ru_nivcsw=next(ticking)))
    calls: list[int] = []
    series = CpuTimer().series((Shot(lambda: calls.append(1), 1),))
    assert len(calls) == timers.TRIES_ALONE
    assert (len(series.seconds), series.put_off) == (1, 1)

"""Collectives on paper: what bus bandwidth is, which data shows a fault, what a link carries, who stopped a run."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.bench.attempts import Attempt
from firstlight.bench.case import Cache, Effort, LinkLimit
from firstlight.bench.choice import Choice, chosen
from firstlight.bench.clocks import Counters, Watch
from firstlight.bench.collective.cases import CPU, CUDA, Ranks, Spec, collective_cases
from firstlight.bench.collective.folder import Failure, Told
from firstlight.bench.collective.links import OwnLink, limit_of
from firstlight.bench.collective.operations import OPERATIONS, PAIR, Operation, bus_work, real_size, size_given
from firstlight.bench.collective.patterns import PRIME, value
from firstlight.bench.collective.start import name_trouble
from firstlight.bench.figures import Setting, case_results
from firstlight.bench.patience import PATIENCE
from firstlight.bench.peaks import NO_PEAKS
from firstlight.bench.results import Regime, Verdict
from firstlight.bench.stopwatch import PassTiming, Stretch
from firstlight.cli.bench import command
from firstlight.errors import BadInput, CouldNotLook
from firstlight.tables import load
from tests.bench.recorded_runs import GPU

GIB = 1 << 30
TABLES = load()
NOTHING_SEEN = Watch(Counters(0.0, ()), Counters(1.0, ()), ())


def _operation(name: str) -> Operation:
    return next(each for each in (*OPERATIONS, PAIR) if each.name == name)


# nccl-tests, doc/PERFORMANCE.md: S/t times 2(n-1)/n, (n-1)/n or 1.
@pytest.mark.parametrize(
    ("name", "ranks", "size", "seconds", "bus_gbps"),
    [
        ("all_reduce", 4, 1 << 20, 1e-3, 1.572864),
        ("all_reduce", 2, GIB, 2e-3, 536.870912),
        ("all_gather", 8, GIB, 2e-3, 469.762048),
        ("reduce_scatter", 8, GIB, 4e-3, 234.881024),
        ("all_to_all", 16, GIB, 4e-3, 251.658240),
        ("broadcast", 8, GIB, 3e-3, 357.913941),
        ("pair", 2, GIB, 3e-3, 357.913941),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(name: str, ranks: int, size: int, seconds: float, bus_gbps: float) -> None:
    assert bus_work(_operation(name), ranks, size).bytes / seconds / 1e9 == pytest.approx(bus_gbps, rel=1e-6)


@given(st.integers(2, 64), st.sampled_from([*OPERATIONS, PAIR]), st.integers(3, 30))
def test_parts_are_whole_elements_and_nothing_is_lost_but_less_than_one_part(
    ranks: int, operation: Operation, power: int
) -> None:
    size = real_size(operation, ranks, 1 << power)
    assert size % (4 * ranks if operation.splits else 4) == 0
    assert 0 <= (1 << power) - size < (4 * ranks if operation.splits else 4)


# A sum of ranks: which ranks are in it, and how often.
@given(
    st.integers(2, 64).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1), st.integers(0, n - 1))),
    st.integers(0, 4 * PRIME),
    st.integers(0, 50),
)
def test_a_missed_a_doubled_and_a_swapped_rank_show_at_every_element(
    who: tuple[int, int, int], element: int, turn: int
) -> None:
    ranks, lost, twice = who
    brought = [value(rank, element, turn) for rank in range(ranks)]
    right = sum(brought)
    assert right < 1 << 24  # fp32 has every whole number up to there
    assert right - brought[lost] != right
    assert right + brought[twice] != right
    if lost != twice:
        assert right - brought[lost] + brought[twice] != right


@given(st.integers(0, 63), st.integers(0, 3 * PRIME), st.integers(1, PRIME - 1))
def test_data_that_came_too_early_too_late_or_of_another_turn_shows(rank: int, element: int, shift: int) -> None:
    assert value(rank, element, 1) != value(rank, element + shift, 1)
    assert value(rank, element, 1) != value(rank, element, 1 + shift)


def test_the_tensors_hold_what_the_formula_says() -> None:
    torch = pytest.importorskip("torch")
    from firstlight.bench.collective.patterns import Pattern, Wrong

    flat = torch.empty(3 * PRIME + 7)
    Pattern((0, 2, 5), first=11, turn=3, device="cpu").fill(flat)
    for element in (0, 1, PRIME - 1, PRIME, 3 * PRIME + 6):
        assert flat[element] == sum(value(rank, 11 + element, 3) for rank in (0, 2, 5))
    again = Pattern((0, 2, 5), first=11, turn=3, device="cpu")
    assert again.wrong_in(flat) is None
    right = float(flat[PRIME + 4])
    flat[PRIME + 4] = float("nan")
    found = again.wrong_in(flat)
    assert isinstance(found, Wrong)
    assert (found.element, found.right) == (PRIME + 4, right)


def test_four_processes_have_every_operation_and_every_pair() -> None:
    cases = collective_cases(Ranks(CPU, 4), most_bytes=GIB)
    ids = [case.id for case in cases]
    assert len(set(ids)) == len(ids)
    assert {"collective/all_reduce/cpu4/8B", "collective/all_to_all/cpu4/1GiB"} <= set(ids)
    pairs = {match[1] for each in ids if (match := re.match(r"collective/pair/cpu4/(\d-\d)/", each))}
    assert pairs == {f"{one}-{other}" for one, other in itertools.combinations(range(4), 2)}
    assert "collective/all_gather/cpu4/8B" not in ids  # two elements for four ranks
    for case in cases:
        size = int(dict(case.params)["size_bytes"])
        assert case.work.bytes <= 2 * size


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_every_effort_has_the_sizes_of_the_smaller_one_and_more(device: str) -> None:
    cases = collective_cases(Ranks(device, 8), most_bytes=GIB)
    picked = [{case.id for case in chosen(cases, Choice(effort, ("collective/all_reduce",)))} for effort in Effort]
    assert picked[0] < picked[1] < picked[2]
    assert len(picked[2]) == 28
    assert (f"collective/all_reduce/{'cpu' if device == CPU else 'gpu'}8/1GiB" in picked[0]) == (device == CUDA)


def test_one_gpu_is_told_of_each_operation_that_it_needs_two() -> None:
    cases = collective_cases(Ranks(CUDA, 1), most_bytes=GIB)
    assert next(case.needs for case in cases) == "collectives and pairs need two GPUs or more; torch sees 1"
    assert len(cases) == 6
    assert all(case.needs for case in cases)


@pytest.mark.parametrize(
    ("text", "size"), [("8B", 8), ("8", 8), ("32KiB", 32768), ("16M", 1 << 24), ("1gb", GIB), ("64 MiB", 1 << 26)]
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert size_given(text) == size


@pytest.mark.parametrize("text", ["furlong", "4", "2GiB", "-8", "1e6", "0", "", "8TiB", "9" * 40])
def test_other_sizes_are_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(BadInput, match=r"--max-size .*accepted: "):
        size_given(text)


# 18 links of NVLink 4, as NVML counts: version 6.
H100 = OwnLink(nvlink_version=6, nvlinks=18, model_gbps=450.0, pcie_generation=5, pcie_width=16)
A100 = OwnLink(nvlink_version=4, nvlinks=12, model_gbps=300.0, pcie_generation=4, pcie_width=16)
V100 = OwnLink(nvlink_version=2, nvlinks=6, model_gbps=150.0, pcie_generation=3, pcie_width=16)
B200 = OwnLink(nvlink_version=7, nvlinks=18, model_gbps=900.0, pcie_generation=5, pcie_width=16)
RTX_3090 = OwnLink(nvlink_version=4, nvlinks=4, model_gbps=56.0, pcie_generation=4, pcie_width=16)
L40S = OwnLink(pcie_generation=4, pcie_width=16)


def _limit(own: list[OwnLink], name: str, operation: str = "all_gather", pair: tuple[int, ...] = ()) -> LinkLimit:
    names = dict.fromkeys(itertools.combinations(range(len(own)), 2), name)
    return limit_of(Spec("x", _operation(operation), 8, pair), own, names, TABLES)


@pytest.mark.parametrize(
    ("link", "gbps", "name"),
    [
        (H100, 450.0, "NV18 (NVLink 4.0)"),
        (replace(H100, nvlinks=12), 300.0, "NV12 (NVLink 4.0)"),
        (A100, 300.0, "NV12 (NVLink 3.0)"),
        (V100, 150.0, "NV6 (NVLink 2.0)"),
        (B200, 900.0, "NV18 (NVLink 5.0)"),
        (RTX_3090, 56.0, "NV4 (NVLink 3.0)"),  # its links are slower than its generation's
        (replace(H100, nvlink_version=99), 450.0, "NV18"),  # a generation that is not on record: the model's own
    ],
)
def test_nvlink_by_generation_and_count(link: OwnLink, gbps: float, name: str) -> None:
    found = _limit([link] * 4, "NV18")
    assert (found.name, found.gbps) == (name, gbps)


def test_the_rank_with_the_fewest_links_sets_the_limit_of_all_and_of_its_pairs() -> None:
    own = [H100, replace(H100, nvlinks=16), H100]
    assert _limit(own, "NV18").gbps == 400.0
    assert _limit(own, "NV18", "pair", (0, 1)).gbps == 400.0
    assert _limit(own, "NV18", "pair", (0, 2)).gbps == 450.0


def test_pcie_by_generation_and_width_and_whether_it_goes_through_the_host() -> None:
    found = _limit([L40S, replace(L40S, pcie_width=8)], "SYS")
    assert (found.name, round(found.gbps or 0, 2)) == ("PCIe 4.0 x8, SYS", 15.75)
    assert _limit([L40S] * 2, "PHB, staged through host").name == "PCIe 4.0 x16, through the host"
    assert _limit([replace(L40S, pcie_generation=None)] * 2, "SYS").gbps is None


def test_nvlink_in_parts_shows_pcie_and_refuses_only_above_nvlink() -> None:
    """Two bridges between four cards: a ring over all of them crosses PCIe twice."""
    names = {pair: "NV12" if pair in ((0, 1), (2, 3)) else "SYS" for pair in itertools.combinations(range(4), 2)}
    found = limit_of(Spec("x", _operation("all_gather"), 8), [A100] * 4, names, TABLES)
    assert found.gbps == pytest.approx(31.5, abs=0.1)
    assert found.ceiling_gbps == 300.0


def test_several_nodes_have_no_limit_that_is_known_here() -> None:
    from firstlight.bench.collective.links import link_of_all

    assert link_of_all([H100] * 16, TABLES, nodes=2)(Spec("x", _operation("all_reduce"), 8)).gbps is None


def _judged(operation: str, ranks: int, bus_gbps: float, own: OwnLink = H100) -> tuple[Verdict, str]:
    """A case that took as long as this bus bandwidth means, through the code that judges every case."""
    names = dict.fromkeys(itertools.combinations(range(ranks), 2), "NV18")
    spec = Spec(f"collective/{operation}/gpu{ranks}/1GiB", _operation(operation), GIB)
    [case] = (
        each
        for each in collective_cases(
            Ranks(CUDA, ranks), most_bytes=GIB, link_of=lambda one: limit_of(one, [own] * ranks, names, TABLES)
        )
        if each.id == spec.case_id
    )
    seconds = (case.work.bytes / (bus_gbps * 1e9),) * 9
    timing = PassTiming((Stretch(Regime.SUSTAINED, seconds, NOTHING_SEEN, ()),), seconds, (), 1, ())
    setting = Setting(GPU, 0, NO_PEAKS, PATIENCE[Effort.QUICK], ())
    [result] = case_results([Attempt(case, Cache.WARM, (timing,))], setting)
    assert result.figures[0].rate.gbps == pytest.approx(bus_gbps)
    return result.verdict, result.reason


@pytest.mark.parametrize(
    ("operation", "ranks", "bus_gbps", "verdict"),
    [
        ("all_gather", 8, 440.0, Verdict.OK),
        ("all_gather", 8, 460.1, Verdict.IMPOSSIBLE),
        ("all_reduce", 8, 470.0, Verdict.OK),  # switches of NVLink 4 add up: 480 GB/s are seen on 8 H100
        ("all_reduce", 8, 810.0, Verdict.IMPOSSIBLE),  # 2(n-1)/n x 450 is 787.5
        ("all_reduce", 2, 460.1, Verdict.IMPOSSIBLE),  # of two GPUs the sum is as long as the way
        ("reduce_scatter", 8, 460.1, Verdict.IMPOSSIBLE),
        ("broadcast", 8, 460.1, Verdict.IMPOSSIBLE),
    ],
)
def test_above_the_limit_of_the_link_is_refused(operation: str, ranks: int, bus_gbps: float, verdict: Verdict) -> None:
    found, reason = _judged(operation, ranks, bus_gbps)
    assert found is verdict
    assert bool(reason) == (verdict is Verdict.IMPOSSIBLE)


def test_an_older_switch_adds_nothing_up() -> None:
    assert _judged("all_reduce", 8, 310.0, A100)[0] is Verdict.IMPOSSIBLE


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([each.name for each in OPERATIONS]),
    st.integers(2, 9),
    st.floats(0.01, 10.0),
    st.sampled_from([H100, A100, V100, B200, RTX_3090]),
)
def test_no_bus_bandwidth_above_the_limit_is_reported_without_a_word(
    operation: str, ranks: int, share: float, own: OwnLink
) -> None:
    link = _limit([own] * ranks, "NV18", operation)
    assert link.gbps is not None
    ceiling = link.ceiling_gbps or link.gbps
    verdict, reason = _judged(operation, ranks, share * ceiling, own)
    assert (verdict is Verdict.IMPOSSIBLE) == (share > 1.02)
    assert bool(reason) == (share > 1.02)


def _told(*complaints: tuple[str, bool], done: bool = False) -> tuple[Told, ...]:
    return tuple(
        Told(rank, 1000 + rank, "collective/x", complaint=text, waited=waited, done=done)
        for rank, (text, waited) in enumerate(complaints)
    )


EVERYBODY = frozenset(range(8))
WAITED = ("Lost: Timed out waiting 5000ms for recv operation to complete", True)
SILENT = ("", False)


@pytest.mark.parametrize(
    ("told", "failed", "alive", "words"),
    [
        (_told(WAITED, SILENT, WAITED), (), EVERYBODY, r"rank 1 did not answer within 5 s; rank 0 said: Lost: Timed"),
        (_told(WAITED, SILENT), (), frozenset({0}), r"rank 1 did not answer within 5 s, and its process has ended"),
        (_told(SILENT, ("ValueError: no", False)), (), EVERYBODY, r"rank 1 stopped: ValueError: no"),
        (_told(WAITED, ("ValueError: no", False)), (), EVERYBODY, r"rank 1 stopped: ValueError: no"),
        (_told(SILENT, SILENT), (Failure(1, -9),), EVERYBODY, r"rank 1 was ended by SIGKILL \(signal 9\)"),
        (_told(WAITED, SILENT), (Failure(0, 1), Failure(1, -11)), EVERYBODY, r"rank 1 was ended by SIGSEGV"),
        # seen on a very busy machine: torchrun had ended the hanging rank before anybody looked
        (
            _told(WAITED, SILENT),
            (Failure(0, 1), Failure(1, -15)),
            frozenset(),
            r"^rank 1 did not answer within 5 s; rank",
        ),
        (_told(SILENT, SILENT), (Failure(1, -15),), EVERYBODY, r"rank 1 was ended by SIGTERM"),
        (_told(SILENT, SILENT), (Failure(0, 3),), EVERYBODY, r"rank 0 ended with exit code 3 and said nothing"),
        (_told(WAITED, WAITED), (), EVERYBODY, r"a rank of another node did not answer"),
        (_told(SILENT, SILENT), (), EVERYBODY, r"no rank moved on for 20 s"),
        ((), (Failure(2, 1),), EVERYBODY, r"rank 2 ended with exit code 1"),
        ((), (), EVERYBODY, r"^$"),
    ],
)
def test_whoever_stopped_the_run_is_named(
    told: tuple[Told, ...], failed: tuple[Failure, ...], alive: frozenset[int], words: str
) -> None:
    assert re.search(words, name_trouble(told, failed, alive=alive, step_s=5.0))


def _bench(*argv: str) -> Result:
    return CliRunner().invoke(command, list(argv))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--only", "collective,gemm"), "collectives run in processes of their own"),
        (("--only", "gemm", "--max-size", "1MiB"), "--max-size does not apply to other cases"),
        (("--only", "collective", "--max-size", "furlong"), "accepted: a size from 8B to 1GiB"),
        (("--only", "collective", "--device", "cuda:0"), "accepted: all"),
        (("--only", "collective", "--nodes", "2"), "accepted: --rendezvous HOST:PORT beside it"),
        (("--only", "collective", "--rendezvous", "a:1"), "accepted: with --nodes 2 or more"),
        (("--only", "collective", "--nodes", "2", "--rendezvous", "-x y:1"), "accepted: HOST:PORT"),
        (("--only", "collective", "--processes", "3"), "--processes is for --device cpu"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(argv: tuple[str, ...], words: str) -> None:
    done = _bench(*argv)
    assert isinstance(done.exception, BadInput), done.output
    assert words in str(done.exception)
    assert "\n" not in str(done.exception)


def test_the_list_names_the_cases_and_says_where_the_others_are() -> None:
    listed = _bench("--only", "collective", "--device", "cpu", "--effort", "quick", "--list").stdout.splitlines()
    assert "collective/all_reduce/cpu4/32KiB" in listed
    assert "collective/pair/cpu4/2-3/2MiB" in listed
    assert len(listed) == 30
    assert "--only collective --list" in _bench("--device", "cpu", "--list").stderr


def test_without_a_gpu_it_says_what_can_be_measured() -> None:
    torch: Any = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = _bench("--only", "collective")
    assert isinstance(done.exception, CouldNotLook)
    assert "--device cpu" in str(done.exception)

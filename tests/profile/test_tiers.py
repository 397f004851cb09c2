"""Tiers: conditions are comparisons, names of reports are taken for today's, hints never decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.errors import BadInput
from firstlight.profile.metrics import METRICS, metric_named, today_of
from firstlight.profile.result import Met, Pace
from firstlight.profile.tiers import SHIPPED, Observed, judge, read_tiers

# the five counters that field report 003 lists, as it writes them
REPORTED = {
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps_active_pct",
    "smsp__stall_memory_dependency.avg.pct": "stall_long_scoreboard_pct",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pct",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank_conflict_cycles_pct",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_pct",
}
GOOD = {
    "tensor_pct": 90.0,
    "sm_pct": 91.0,
    "dram_pct": 30.0,
    "bank_conflict_cycles_pct": 0.1,
    "warps_active_pct": 16.0,
    "stall_long_scoreboard_pct": 40.0,
    "excess_traffic": 2.5,
    "limit_pct": 80.0,
}
DONE = {"ran": True, "correct": True, "report_kept": True}


def seen(facts: dict[str, bool | None] | None = None, **figures: float | None) -> Observed:
    return Observed({**GOOD, **figures}, {**DONE, **(facts or {})}, {})


def met(kind: Pace, what: Observed) -> list[Met]:
    return [tier.met for tier in judge(read_tiers(SHIPPED), kind, what)]


def written(folder: Path, text: str) -> str:
    path = folder / "tiers.toml"
    path.write_text(text)
    return str(path)


def test_a_product_with_few_warps_reaches_every_shipped_tier() -> None:
    tiers = judge(read_tiers(SHIPPED), Pace.TENSOR, seen())
    assert [tier.met for tier in tiers] == [Met.YES, Met.YES, Met.YES]
    [warps] = [hint for hint in tiers[1].hints if hint.text == "warps_active_pct >= 80"]
    assert (warps.met, warps.saw) == (Met.NO, "16 %")


def test_the_conditions_of_a_tier_are_those_of_the_kind_of_case() -> None:
    assert met(Pace.TENSOR, seen(tensor_pct=64.9)) == [Met.YES, Met.NO, Met.YES]
    assert met(Pace.MEMORY, seen(tensor_pct=0.0, dram_pct=90.0, excess_traffic=1.02)) == [Met.YES] * 3
    assert met(Pace.MEMORY, seen(dram_pct=90.0, excess_traffic=1.3))[1] is Met.NO
    assert met(Pace.VECTOR, seen(tensor_pct=0.0))[1] is Met.YES
    assert met(Pace.UNKNOWN, seen())[1] is Met.NOT_KNOWN


def test_what_is_not_known_is_never_met_and_a_failure_beats_it() -> None:
    assert met(Pace.TENSOR, seen(tensor_pct=None))[1] is Met.NOT_KNOWN
    assert met(Pace.TENSOR, seen(tensor_pct=None, bank_conflict_cycles_pct=9.0))[1] is Met.NO
    assert met(Pace.TENSOR, seen(tensor_pct=float("nan")))[1] is Met.NOT_KNOWN
    assert met(Pace.TENSOR, seen({"correct": False}))[0] is Met.NO
    assert met(Pace.TENSOR, seen({"correct": None}))[0] is Met.NOT_KNOWN


def test_every_counter_of_the_field_report_has_a_name_here() -> None:
    assert {name: old.key for name in REPORTED if (old := today_of(name)) is not None} == REPORTED
    assert all(metric_named(key) is not None for key in REPORTED.values())


def test_a_tiers_file_in_the_words_of_the_report_is_understood_and_says_what_it_took(tmp_path: Path) -> None:
    lines = ["sm__warps_active >= 80", "smsp__stall_memory_dependency.avg.pct <= 8 %", "tensor_pct>=65"]
    tiers = read_tiers(written(tmp_path, f"[[tier]]\nname = 'T2'\nrequire = {lines}\n"))
    assert [rule.text for rule in tiers.tiers[0].require] == [
        "warps_active_pct >= 80", "stall_long_scoreboard_pct <= 8", "tensor_pct >= 65",
    ]  # fmt: skip
    assert any("nvprof" in note and "stall_long_scoreboard_pct" in note for note in tiers.notes)


def test_the_shipped_tiers_say_of_every_change_what_it_was_and_why() -> None:
    changed = read_tiers(SHIPPED).changed
    assert len(changed) >= 5
    assert all(each.was and each.now and len(each.why) > 30 and each.source for each in changed)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[tier]]\nname='T'\nrequire=[\"__import__('os').system('id') >= 1\"]", "is not a condition"),
        ("[[tier]]\nname='T'\nrequire=['tensor_pct >= 65 and 1']", "is not a condition"),
        ("[[tier]]\nname='T'\nrequire=['tensor >= 65']", "is not a metric; accepted: time_s"),
        ("[[tier]]\nname='T'\nrequire='correct'", "is not a list"),
        ("[[tier]]\nname='T'\nrequire=[65]", "is not a condition"),
        ("[[tier]]\nname='T'\nneeds=['correct']", "'needs' is not known; accepted: name"),
        ("[[tier]]\ntitle='nameless'", "has no name"),
        ("[[tier]]\nname='T'\n[[tier]]\nname='T'", "there twice"),
        ("tier = 3", "no [[tier]]"),
        ("[[tier]\n", "line 1"),
        ("levels = 1\n[[tier]]\nname='T'", "'levels' is not known"),
        ("[[tier]]\nname='T'\n[[changed]]\nwas='x'", "lacks one of"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_spot(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput, match="--tiers") as refused:
        read_tiers(written(tmp_path, text))
    assert says in str(refused.value)


def test_no_file_and_no_text_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_tiers(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="Correct the line"):
        read_tiers(str(tmp_path / "bytes.toml"))


def test_our_names_are_unique_and_every_way_has_counters() -> None:
    keys = [metric.key for metric in METRICS]
    assert len(set(keys)) == len(keys)
    assert all("__" in name and "." in name for metric in METRICS for way in metric.ways for name in way.names)

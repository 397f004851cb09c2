"""Which GPU of equal ones is slow, and why: changed copies of a real run of an H200."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firstlight.bench.equal_gpus import GpuRun, gpu_runs, measured_gpus
from firstlight.bench.results import Bound, Verdict, to_text
from firstlight.bench.slow_causes import Why
from firstlight.bench.slow_gpus import HeldAgainst, JudgedGpu, JudgedGpus, State, judged_gpus
from firstlight.cli.fleet_slow import baselines
from firstlight.cli.main import run
from firstlight.lock.reading import read_lock
from firstlight.lock.writing import with_class
from firstlight.tables import load
from tests.fleet.measured_fleets import Odd, Planned, is_bound, real_run, write_fleet
from tests.schemas import fits

TABLES = load()
COMPUTE = is_bound(Bound.COMPUTE)
SCHEMAS = Path(__file__).parents[2] / "src/firstlight/schemas"


def runs_of(planned: Planned) -> list[GpuRun]:
    found: list[GpuRun] = []
    for (host, name), document in planned.documents().items():
        device, _, number = name.removesuffix(".json").rpartition("-run-")
        found += gpu_runs(document, TABLES, host=host, device=device, number=int(number))
    return found


def judged(planned: Planned, baselines: list[GpuRun] | None = None) -> JudgedGpus:
    return judged_gpus(measured_gpus(runs_of(planned)), baselines or [])


def eight(odd: Odd, *, spread: float = 0.002) -> JudgedGpus:
    return judged(Planned({"a": 8}, {("a", 3): odd}, spread=spread))


def one_slow(found: JudgedGpus) -> JudgedGpu:
    [gpu] = found.slow
    return gpu


def test_nothing_is_named_where_nothing_is_slow() -> None:
    found = judged(Planned({"a": 8, "b": 8}, {}))
    assert (found.slow, len(found.of(State.AS_IT_SHOULD))) == ((), 16)


def test_a_slow_chip_is_named_with_what_it_does_per_sm_and_ghz() -> None:
    gpu = one_slow(eight(Odd(longer=1.08, where=COMPUTE)))
    assert (gpu.host, gpu.device) == ("a", "gpu-3")
    assert gpu.causes[0].why is Why.CHIP
    assert "less per SM and GHz" in gpu.causes[0].saw
    assert 0.06 < gpu.by < 0.09


@pytest.mark.parametrize(
    "odd",
    [
        Odd(longer=1.12, where=COMPUTE, runs=(1,)),
        Odd(longer=1.12, where=COMPUTE, runs=(2,)),
        Odd(longer=1.04, where=COMPUTE),
        Odd(longer=1.3, where=lambda case, figure: case.mode == "host"),
    ],
    ids=["in one run alone", "in the other alone", "by 4 %", "where the processor is in the time"],
)
def test_no_slow_gpu(odd: Odd) -> None:
    assert eight(odd).slow == ()


def test_where_equal_ones_differ_much_among_themselves_eight_percent_is_nothing() -> None:
    spread = {("a", place): Odd(longer=1 + 0.03 * (place - 4)) for place in range(9)}
    found = judged(Planned({"a": 9}, {**spread, ("a", 0): Odd(longer=1.08)}))
    assert found.slow == ()


@pytest.mark.parametrize(
    ("odd", "why", "said"),
    [
        (Odd(1.1, COMPUTE, 0.91, reasons=(("hw_thermal", 60.0),), temp_c=87.0), Why.HEAT, "87 °C"),
        (Odd(1.1, COMPUTE, 0.91, reasons=(("sw_thermal", 30.0),)), Why.HEAT, "sw_thermal in 30 %"),
        (Odd(1.1, COMPUTE, 0.91, temp_c=87.0), Why.HEAT, "others"),
        (
            Odd(1.1, COMPUTE, 0.91, card=lambda card: replace(card, power_limit_w=500.0)),
            Why.POWER_CAP,
            "500 W, others 700 W",
        ),
        (Odd(1.1, COMPUTE, 0.91, reasons=(("hw_power_brake", 40.0),)), Why.POWER_CAP, "brake"),
        (Odd(1.1, COMPUTE, 0.91, card=lambda card: replace(card, clock_max_mhz=1755.0)), Why.CLOCK_SET, "1755 MHz"),
        (Odd(1.1, COMPUTE, 0.91, reasons=(("app_clocks", 100.0),)), Why.CLOCK_SET, "application clocks"),
        (Odd(1.08, COMPUTE, clocks_read=False), Why.NOT_KNOWN, "not read"),
        (Odd(1.1, is_bound(Bound.MEMORY)), Why.MEMORY, "same clocks"),
        (Odd(1.2, is_bound(Bound.LINK), card=lambda card: replace(card, pcie_width=8)), Why.LINK, "x8, others 5.0 x16"),
        (Odd(1.2, is_bound(Bound.LINK)), Why.LINK, "slot"),
    ],
)
def test_the_cause(odd: Odd, why: Why, said: str) -> None:
    gpu = one_slow(eight(odd))
    assert gpu.causes[0].why is why, gpu.causes
    assert said in gpu.causes[0].saw


def test_a_low_clock_that_nothing_explains_is_neither_heat_nor_a_cap() -> None:
    gpu = one_slow(eight(Odd(1.1, COMPUTE, 0.91)))
    assert not {cause.why for cause in gpu.causes} & {Why.HEAT, Why.POWER_CAP, Why.CLOCK_SET}


def test_gpus_of_another_model_are_compared_with_their_own() -> None:
    old = Odd(card=lambda card: replace(card, name="NVIDIA A100-SXM4-80GB", cc="8.0", sms=108, peaks="none"))
    odd = {("old", place): old for place in range(3)} | {("old", 2): replace(old, longer=1.25)}
    found = judged(Planned({"a": 6, "old": 3}, odd))
    h200, a100 = found.classes
    assert (len(h200.gpus), len(a100.gpus)) == (6, 3)
    assert all(HeldAgainst.CLASS not in gpu.against for gpu in a100.gpus)
    assert "fewer than 5 are equal" in a100.note
    assert h200.note == ""


def test_few_equal_ones_are_held_against_healthy_cards_and_it_is_said() -> None:
    found = judged(Planned({"a": 4}, {("a", 1): Odd(longer=1.2)}))
    gpu = one_slow(found)
    assert (gpu.device, gpu.against) == ("gpu-1", (HeldAgainst.HEALTHY,))
    assert "% of healthy cards" in gpu.reason
    assert (
        found.classes[0].note
        == "fewer than 5 are equal: compared with healthy cards of the model, not against each other"
    )
    assert judged(Planned({"a": 4}, {})).slow == ()


def test_few_equal_ones_are_held_against_the_baseline() -> None:
    base = list(gpu_runs(real_run(), TABLES, host="", device="gpu-0", number=1))
    copies = Odd(longer=1.08, where=is_bound(Bound.MEMORY))  # of which best products say nothing
    gpu = one_slow(judged(Planned({"a": 2}, {("a", 1): copies}), base))
    assert gpu.against == (HeldAgainst.HEALTHY, HeldAgainst.BASELINE)
    assert {figure.family for figure in gpu.low} >= {"bandwidth"}
    other = [replace(each, sort=replace(each.sort, torch="2.9.0+cu128")) for each in base]
    found = judged(Planned({"a": 2}, {("a", 1): copies}), other)
    assert found.slow == ()
    assert "measured with torch 2.9.0+cu128" in found.classes[0].note


def test_one_run_calls_nobody_slow() -> None:
    runs = [
        each for each in runs_of(Planned({"a": 6}, {("a", 2): Odd(1.1)})) if (each.device, each.number) != ("gpu-2", 2)
    ]
    found = judged_gpus(measured_gpus(runs))
    assert found.slow == ()
    [gpu] = found.of(State.NOT_JUDGED)
    assert (gpu.device, gpu.reason) == ("gpu-2", "1 run; a GPU is called slow by 2 at least")


def test_two_of_a_host_are_both_named_and_half_a_fleet_names_no_fast_one() -> None:
    pair = {("b", 0): Odd(1.07), ("b", 1): Odd(1.07)}
    found = judged(Planned(dict.fromkeys("abcdefgh", 2), pair))
    assert {(gpu.host, gpu.device) for gpu in found.slow} == {("b", "gpu-0"), ("b", "gpu-1")}
    half = {("a", place): Odd(1.25) for place in range(3)}
    assert all(gpu.host == "a" and int(gpu.device[-1]) < 3 for gpu in judged(Planned({"a": 6}, half)).slow)


def test_a_case_that_one_gpu_lacks_is_compared_in_the_others() -> None:
    planned = Planned({"a": 6}, {("a", 4): Odd(1.1, COMPUTE)})
    documents = planned.documents()
    for number in (1, 2):
        key = ("a", f"gpu-0-run-{number}.json")
        first, *rest = documents[key].cases
        lost = replace(first, verdict=Verdict.SKIPPED, reason="too little memory", figures=(), headline=None)
        documents[key] = replace(documents[key], cases=(lost, *rest))
    runs = [
        each
        for (host, name), document in documents.items()
        for each in gpu_runs(document, TABLES, host=host, device=name[:5], number=int(name[-6]))
    ]
    found = judged_gpus(measured_gpus(runs))
    assert one_slow(found).device == "gpu-4"
    figures = {gpu.device: gpu.figures for gpu in found.gpus}
    assert figures["gpu-0"] < figures["gpu-1"]


def status(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run(["fleet", "status", *words])
    return code, capsys.readouterr().out


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTLIGHT_STATE_DIR", str(tmp_path))
    return tmp_path


SLOW = Planned({"node01": 4, "node02": 4}, {("node02", 1): Odd(1.1, COMPUTE, 0.91, temp_c=87.0)})


def test_status_names_the_slow_gpu_in_text_and_json_and_ends_with_3(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(state, SLOW)
    code, out = status(capsys)
    assert code == 3
    assert "\n  node02 gpu-1  slow\n" in out
    assert "heat: " in out
    assert out.endswith(f"\nnext\n  firstlight bench report {folder} --out fleet-bench.html\n")
    code, out = status(capsys, "--json")
    document = json.loads(out)
    fits(document, json.loads((SCHEMAS / "fleet-run-1.json").read_text()))
    assert (code, document["exit_code"], document["gpus"]["slow"]) == (3, 3, 1)
    assert "node0" not in out
    assert document["gpus"]["classes"][0]["gpus"][0]["host"] == "host-b"
    code, out = status(capsys, "--json", "--identify")
    assert json.loads(out)["gpus"]["classes"][0]["gpus"][0]["host"] == "node02"


def test_a_lost_host_and_a_failed_one_come_before_a_slow_gpu(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_fleet(state, SLOW, lost=["node09"])
    assert status(capsys)[0] == 4
    write_fleet(state, SLOW, lost=["node09"], failed=["node08"])
    assert status(capsys)[0] == 1
    write_fleet(state, Planned({"node01": 6}, {}))


def test_the_two_schemas_say_the_same() -> None:
    alone = json.loads((SCHEMAS / "fleet-gpus-1.json").read_text())
    whole = json.loads((SCHEMAS / "fleet-run-1.json").read_text())
    inside = whole["$defs"]["FleetGpusDocument"]
    assert inside["required"] == alone["required"]
    assert alone["$defs"].items() <= whole["$defs"].items()


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = run(["bench", "report", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_page_has_a_chart_for_each_host_and_no_real_name(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = write_fleet(state, SLOW), state / "page.html"
    code, out, _ = report(capsys, str(folder), "--out", str(page), "--json")
    document = json.loads(out)
    fits(document, json.loads((SCHEMAS / "bench-report-1.json").read_text()))
    assert (code, document["verdict"]) == (0, "1 of 8 GPUs on 2 hosts is slow.")
    text = page.read_text()
    assert text.count('class="small"') == 2
    assert "node0" not in text
    assert run(["report", "--from", str(page)]) == 0
    taken = json.loads(capsys.readouterr().out)
    fits(taken, json.loads((SCHEMAS / "fleet-gpus-1.json").read_text()))
    assert report(capsys, str(folder), "--identify", "--out", str(page))[0] == 0
    assert "node02" in page.read_text()


def test_what_is_no_folder_of_a_run_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_fleet(state, SLOW)
    (state / "empty").mkdir()
    (state / "none/hosts/a").mkdir(parents=True)
    for words, said in (
        ((str(state / "empty"),), "is not the folder of a run"),
        ((str(state / "none"),), "no GPU was measured"),
        ((str(folder), str(folder)), "one folder of a run"),
    ):
        code, _, err = report(capsys, *words, "--out", str(state / "x.html"))
        assert (code, said in err) == (2, True), err
    (folder / "hosts/node01/gpu-0-run-1.json").write_text('{"schema": "firstlight.bench/1"')
    code, _, err = report(capsys, str(folder), "--out", str(state / "x.html"))
    assert (code, "gpu-0-run-1.json: not JSON" in err) == (2, True), err


def test_a_link_in_the_folder_is_not_followed(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_fleet(state, SLOW)
    (folder / "hosts/elsewhere").symlink_to("/etc")
    (folder / "hosts/node01/gpu-9-run-1.json").symlink_to("/etc/passwd")
    assert report(capsys, str(folder), "--out", str(state / "x.html"))[0] == 0


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["fleet", "bench", "--hosts", "node01", *words]) == 2
    return capsys.readouterr().err


def test_a_baseline_that_cannot_be_one_is_refused_before_the_first_host(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    processor = state / "processor.json"
    processor.write_text(to_text(replace(real_run(), gpus=(), cases=())))
    assert "no GPU was measured in it" in refused(capsys, "--baseline", str(processor))
    assert "no such file" in refused(capsys, "--baseline", str(state / "none.json"))
    assert "none.lock" in refused(capsys, "--lock", str(state / "none.lock"))


def test_the_lock_finds_its_baseline_beside_it_and_refuses_another(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_lock(str(Path(__file__).parents[1] / "lock/h200.lock"))
    lock, base = state / "firstlight.lock", state / "measured.json"
    lock.write_text(before.text)
    assert "no class of it names a run of bench" in refused(capsys, "--lock", str(lock))
    lock.write_text(with_class(before, replace(before.classes[0], bench=real_run().run.id)))
    assert "no file beside it holds that run; give the file with --baseline" in refused(capsys, "--lock", str(lock))
    base.write_text(to_text(replace(real_run(), run=replace(real_run().run, id="20260101T000000Z-aaaaaa"))))
    given = ("--lock", str(lock), "--baseline", str(base))
    assert "it is run 20260101T000000Z-aaaaaa, and the lock names" in refused(capsys, *given)
    base.write_text(to_text(real_run()))
    [kept] = baselines({"lock_file": str(lock), "baseline": ()})
    folder = write_fleet(state, Planned({"node01": 2}, {("node01", 1): Odd(1.08, is_bound(Bound.MEMORY))}))
    (folder / kept.name).write_text(kept.text)
    code, out = status(capsys)
    assert code == 3
    assert "below the lock's baseline in 3 of" in out

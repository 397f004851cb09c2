"""NVML as the benchmark reads it: real bindings over a library of our own, and what is made of the readings."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firstlight.bench.clocks import (
    Counters,
    NoGauge,
    Reading,
    Watch,
    middle_clock,
    reason_names,
    reasons_pct,
    telemetry,
)

UUID = "GPU-00000000-0000-0000-0000-000000000001"
PCI = "00000000:18:00.0"

_LOOK = """
import json, sys, time
from dataclasses import asdict
from firstlight.bench.clocks import NvmlCard, NvmlGauge, open_card
from firstlight.bench import gate
from firstlight.facts.known import Unknown
uuid, pci = sys.argv[1:3]
card = open_card(uuid, pci)
if not isinstance(card, NvmlCard):
    print(json.dumps({"missing": card.missing}))
    sys.exit()
gauge = NvmlGauge(card, samples_per_s=100)
began = time.perf_counter()
time.sleep(0.2)
seen = gate.look(card, mps=Unknown('no pipe'), sleep=lambda seconds: None)
print(json.dumps({
    "reading": asdict(card.read()), "counters": dict(card.counters().values), "wear": dict(card.wear().values),
    "missing": gauge.missing, "kept": len(gauge.readings(began, time.perf_counter())),
    "between": len(gauge.readings(began + 0.0101, began + 0.0102)),
    "seen": asdict(seen), "contention": gate.contention(seen),
}))
gauge.close()
"""


def build(folder: Path, *options: str) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    source, target = Path(__file__).with_name("fake_nvml.c"), folder / "libnvidia-ml.so.1"
    subprocess.run([gcc, "-shared", "-fPIC", "-Wall", "-Werror", *options, "-o", str(target), str(source)], check=True)
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our libnvidia-ml.so.1."""
    return build(tmp_path_factory.mktemp("nvml"))


def ask(library: Path, mode: str, *, uuid: str = UUID, pci: str = PCI) -> dict[str, Any]:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, uuid, pci],
        env={"LD_LIBRARY_PATH": str(library), "FAKE_NVML": mode, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_card_is_read_by_its_uuid_with_every_field(library: Path) -> None:
    told = ask(library, "h200", pci="")
    reading = told["reading"]
    assert (reading["sm_mhz"], reading["mem_mhz"], reading["power_w"]) == (1575.0, 3201.0, 710.818)
    assert (reading["temp_c"], reading["mem_temp_c"]) == (56.0, 41.0)
    assert reason_names(reading["reasons"]) == ("sw_power", "hw_thermal")
    assert told["counters"]["sw_power"] == 2_879_746_560
    assert told["counters"]["energy_mj"] == 2_042_186
    assert told["wear"]["rows_pending"] == 1
    assert told["wear"]["ecc_corrected"] == 3
    assert told["missing"] == []


def test_a_card_without_a_uuid_is_found_by_its_pci_address(library: Path) -> None:
    assert ask(library, "h200", uuid="")["reading"]["sm_mhz"] == 1575.0


def test_a_uuid_nvml_does_not_know_falls_back_to_the_pci_address(library: Path) -> None:
    other = "GPU-00000000-0000-0000-0000-000000000009"
    assert ask(library, "h200", uuid=other)["reading"]["sm_mhz"] == 1575.0
    lost = ask(library, "h200", uuid=other, pci="00000000:99:00.0")
    assert "NVML does not know the GPU that CUDA uses" in lost["missing"][0]


def test_fields_a_consumer_card_does_not_have_are_missing_and_not_zero(library: Path) -> None:
    told = ask(library, "consumer")
    assert told["counters"] == {"energy_mj": 2_042_186}
    assert told["reading"]["power_w"] == 333.0  # the older question answers
    assert told["reading"]["mem_temp_c"] is None
    assert "sw_thermal: Not Supported" in told["missing"]
    assert "ecc_corrected: Not Supported" in told["missing"]
    assert told["wear"] == {}


def test_a_driver_before_535_is_asked_by_the_older_name(tmp_path: Path) -> None:
    told = ask(build(tmp_path, "-DDRIVER_BEFORE_535"), "h200")
    assert reason_names(told["reading"]["reasons"]) == ("sw_thermal",)
    assert told["missing"] == []


def test_nvml_that_does_not_start_is_said_in_one_line(library: Path) -> None:
    [line] = ask(library, "broken")["missing"]
    assert line.startswith("NVML did not start: Driver Not Loaded")


def test_the_thread_reads_at_its_pace_and_short_stretches_take_the_nearest_reading(library: Path) -> None:
    told = ask(library, "h200")
    assert 5 <= told["kept"] <= 40
    assert told["between"] == 1


def test_somebody_else_on_the_gpu_is_seen(library: Path) -> None:
    assert ask(library, "h200")["contention"] == []
    busy = ask(library, "busy")["contention"]
    assert busy == ["2 other processes use this GPU", "the GPU is 40 % busy before we start"]
    [mig] = ask(library, "mig")["contention"]
    assert mig.startswith("MIG is on")


# What is made of readings


def reading(at: float, *, mhz: float | None = 1980.0, reasons: int | None = 0) -> Reading:
    return Reading(at, mhz, 3201.0, 700.0, 60.0, None, reasons)


def watch(seconds: float, *, grown: dict[str, int] | None = None, readings: tuple[Reading, ...] = ()) -> Watch:
    grown = grown or {}
    before = Counters(10.0, tuple((name, 5) for name in grown))
    after = Counters(10.0 + seconds, tuple((name, 5 + value) for name, value in grown.items()))
    return Watch(before, after, readings)


def test_reasons_are_a_bit_set() -> None:
    assert reason_names(0x0) == ()
    assert reason_names(0x4 | 0x40 | 0x80) == ("sw_power", "hw_thermal", "hw_power_brake")
    assert reason_names(0x1004) == ("sw_power", "bit_0x1000")


def test_counters_catch_what_no_sample_saw() -> None:
    quiet = tuple(reading(10 + place / 10) for place in range(10))
    assert reasons_pct([watch(1.0, grown={"hw_thermal": 20_000_000}, readings=quiet)]) == (("hw_thermal", 2.0),)


def test_without_counters_the_share_of_samples_stands_in() -> None:
    half = tuple(reading(10 + place, reasons=0x8 if place % 2 else 0x4 | 0x8) for place in range(4))
    assert reasons_pct([watch(4.0, readings=half)]) == (("hw_slowdown", 100.0), ("sw_power", 50.0))


def test_a_counter_goes_before_the_samples_of_the_same_reason() -> None:
    always = tuple(reading(10 + place, reasons=0x4) for place in range(4))
    assert reasons_pct([watch(4.0, grown={"sw_power": 1_000_000_000}, readings=always)]) == (("sw_power", 25.0),)


def test_a_power_cap_that_no_reading_saw_was_billed_by_the_case_before() -> None:
    quiet = tuple(reading(10 + place / 10) for place in range(10))
    assert reasons_pct([watch(1.0, grown={"sw_power": 450_000_000}, readings=quiet)]) == ()
    assert reasons_pct([watch(1.0, grown={"sw_thermal": 450_000_000}, readings=quiet)]) == (("sw_thermal", 45.0),)


def test_shares_are_of_all_the_stretches_of_a_figure() -> None:
    hot, cool = watch(1.0, grown={"sw_power": 1_000_000_000}), watch(3.0, grown={"sw_power": 0})
    assert reasons_pct([hot, cool]) == (("sw_power", 25.0),)


def test_power_and_energy_are_only_claimed_from_two_seconds_on() -> None:
    readings = tuple(reading(10 + place / 20) for place in range(60))
    long = telemetry([watch(3.0, grown={"energy_mj": 2_100_000}, readings=readings)], missing=())
    short = telemetry([watch(0.5, grown={"energy_mj": 350_000}, readings=readings[:10])], missing=())
    assert (long.power_w, long.energy_j) == (700.0, 2100.0)
    assert (short.power_w, short.energy_j) == (None, None)
    assert short.sm_mhz == (1980.0, 1980.0, 1980.0)


def test_what_was_never_read_is_none() -> None:
    seen = telemetry([watch(3.0, readings=(reading(10, mhz=None, reasons=None),))], missing=("sm_mhz: Not Supported",))
    assert seen.sm_mhz is None
    assert seen.energy_j is None
    assert seen.reasons_pct == ()
    assert seen.missing == ("sm_mhz: Not Supported",)
    assert middle_clock([reading(10, mhz=None)]) is None


def test_a_machine_without_nvml_has_no_readings_and_says_why() -> None:
    gauge = NoGauge("nvidia-ml-py is not installed")
    assert gauge.readings(0, 1e9) == ()
    assert gauge.counters().values == ()
    assert gauge.missing == ("nvidia-ml-py is not installed",)

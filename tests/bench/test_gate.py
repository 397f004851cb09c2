"""Before timing: a GPU that is shared, a card that is not well, and the warm-up that finds out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from firstlight.bench import soak as soak_module
from firstlight.bench.case import Place
from firstlight.bench.clocks import Counters, NoGauge, Reading, Watch
from firstlight.bench.gate import Contended, IdleLook, contention, look, refuse
from firstlight.bench.place import device_names
from firstlight.bench.soak import Load, findings, is_steady, power_findings, product_load, sag, soak, wear_findings
from firstlight.bench.timers import CpuTimer
from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.known import Known
from tests.bench.fake_device import FakeDevice
from tests.bench.test_figures import H200

IDLE = IdleLook(0, 0.0, 648_347_648, 150_754_820_096, is_mig=False, has_mps=False)


def test_an_idle_gpu_is_ours_alone() -> None:
    assert contention(IDLE) == ()
    refuse(())


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(IDLE, processes=1), "another process uses this GPU"),
        (replace(IDLE, utilisation_pct=12.0), "the GPU is 12 % busy before we start"),
        (replace(IDLE, used_bytes=20_000_000_000), "20.0 of 150.8 GB are in use before we start"),
        (replace(IDLE, is_mig=True), "MIG is on"),
        (replace(IDLE, has_mps=True), "an MPS daemon runs"),
    ],
    ids=["process", "busy", "memory", "mig", "mps"],
)
def test_whatever_shares_the_gpu_is_said_and_refused_when_strict(seen: IdleLook, words: str) -> None:
    [sentence] = contention(seen)
    assert words in sentence
    with pytest.raises(Contended, match="--strict: not measured") as caught:
        refuse((sentence,))
    assert caught.value.exit_code == 1


def test_five_percent_and_a_driver_s_own_memory_are_not_contention() -> None:
    assert contention(replace(IDLE, utilisation_pct=5.0, used_bytes=4_000_000_000)) == ()


def test_without_nvml_nothing_is_claimed() -> None:
    seen = look(NoGauge("no NVML"), mps=Known("/tmp/nvidia-mps/control", "/tmp/nvidia-mps/control"))
    assert (seen.processes, seen.utilisation_pct, seen.used_bytes) == (None, None, None)
    assert contention(seen) == ("an MPS daemon runs: its other clients share the GPU",)


# Soak


def readings(clock: Callable[[float], float], *, seconds: float, reasons: int = 0) -> tuple[Reading, ...]:
    return tuple(
        Reading(place / 20, clock(place / 20), 3201.0, 700.0, 60.0, None, reasons) for place in range(int(20 * seconds))
    )


def watch(kept: tuple[Reading, ...], **grown: int) -> Watch:
    before = Counters(0.0, tuple((name, 0) for name in grown))
    return Watch(before, Counters(kept[-1].at, tuple(grown.items())), kept)


def swinging(at: float) -> float:
    """An H200 at its power limit: 1430 to 1620 MHz, once a second."""
    return 1525 + 95 * (1 - 2 * abs(2 * (at % 1.0) - 1))


def test_a_clock_that_swings_at_the_power_limit_is_steady_over_a_second() -> None:
    assert is_steady(readings(swinging, seconds=3), now=3.0)


def test_a_clock_that_falls_is_not_steady() -> None:
    assert is_steady(readings(lambda at: 1980 - 60 * at, seconds=3), now=3.0) is False


def test_too_few_readings_do_not_tell() -> None:
    assert is_steady((), now=3.0) is None
    assert is_steady(readings(swinging, seconds=0.5), now=0.5) is None


def test_heat_brakes_and_wrong_bits_are_defects() -> None:
    kept = readings(lambda at: 1980, seconds=3)
    assert findings(watch(kept), differing=0) == ()
    [hot] = findings(watch(kept, hw_thermal=300_000_000), differing=0)
    assert (hot.code, hot.severity) == ("hw-thermal", "blocks")
    [wrong] = findings(watch(kept), differing=3)
    assert (wrong.code, wrong.severity) == ("silent-corruption", "blocks")


def test_a_clock_that_sags_is_a_finding_only_with_heat() -> None:
    kept = readings(lambda at: 1900 if at < 2 else 1700, seconds=5)
    assert sag(kept) == pytest.approx(0.105, abs=0.001)
    assert findings(watch(kept), differing=0) == ()
    [sagged] = findings(watch(kept, sw_thermal=1_000_000_000), differing=0)
    assert sagged.code == "thermal-sag"


def test_the_soak_ends_when_the_clock_is_steady_and_compares_results_meanwhile() -> None:
    device = FakeDevice()
    compared: list[int] = []
    load = Load(device.call(1.5e-3), lambda: compared.append(1), lambda: 0, 1.5e-3)

    class Watching(FakeDevice):
        def readings(self, began: float, ended: float) -> tuple[Reading, ...]:
            ticks = int((ended - began) * 20)
            return tuple(Reading(began + n / 20, 1590.0, 3201.0, 700.0, 55.0, None, 4) for n in range(ticks))

    gauge = Watching()
    done = soak(load, device, gauge, most_s=5.0)
    assert done.steady
    assert 2.0 <= done.seconds < 2.2
    assert len(compared) >= 100
    assert done.points[0].sm_mhz == 1590.0
    assert done.findings == ()


def test_without_a_clock_the_soak_takes_its_whole_time() -> None:
    device = FakeDevice()
    load = Load(device.call(1.5e-3), lambda: None, lambda: 0, 1.5e-3)
    done = soak(load, device, NoGauge("no NVML"), most_s=3.0)
    assert (done.steady, done.points) == (None, ())
    assert done.seconds >= 3.0


def test_the_load_of_the_soak_is_a_product_that_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_module, "SIZES", (1024, 64))  # 1024 does not fit into 1 MiB
    load = product_load(Place("cpu", 0, 1 << 20, (8, 0)), CpuTimer())
    load.call()
    load.compare()
    assert load.differing() == 0
    assert load.call_s > 0


def test_wear_is_what_is_there_at_the_end_or_new_since_the_start() -> None:
    before = Counters(0.0, (("ecc_corrected", 3), ("pcie_replays", 0), ("rows_pending", 0), ("ecc_uncorrected", 0)))
    after = Counters(9.0, (("ecc_corrected", 3), ("pcie_replays", 2), ("rows_pending", 1), ("ecc_uncorrected", 1)))
    assert wear_findings(before, before) == ()
    assert {finding.code: finding.severity for finding in wear_findings(before, after)} == {
        "row-remap-pending": "blocks",
        "ecc-uncorrected": "blocks",
        "pcie-replays": "warn",
    }


def test_a_lowered_power_limit_is_information() -> None:
    assert power_findings(H200) == ()
    [finding] = power_findings(replace(H200, power_limit_w=450.0))
    assert (finding.severity, finding.text) == ("info", "the power limit is 450 W, the card's own is 700 W")


# Devices


def test_a_machine_without_a_gpu_is_told_what_else_can_be_done() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(CouldNotLook, match="--device cpu"):
        device_names("cuda:0")
    with pytest.raises(CouldNotLook):
        device_names("all")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "", "cuda:1000"])
def test_a_device_that_is_none_is_refused(name: str) -> None:
    with pytest.raises((BadInput, CouldNotLook)):
        device_names(name)


def test_the_processor_is_always_there() -> None:
    assert device_names("cpu") == ("cpu",)

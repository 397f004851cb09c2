"""The peak table: every row recomputed from SMs, rate and clock; names matched as devices spell them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from firstlight.bench.peaks import PRECISIONS, find_peaks, pcie_gbps, peaks_named, peaks_of
from firstlight.errors import BadInput
from firstlight.tables import load
from firstlight.tables.peak_rows import GpuPeak
from firstlight.versions import ComputeCapability
from tests.bench.recorded_runs import GPU

TABLES = load()
VECTOR = ("fp64", "fp64_tc", "fp32")


@pytest.mark.parametrize("row", TABLES.gpu_peaks, ids=lambda row: row.gpu)
def test_every_peak_is_sms_times_rate_times_clock_within_2_percent(row: GpuPeak) -> None:
    rate = TABLES.gpu_rate_of(row.line)
    assert rate is not None
    checked = 0
    for precision in PRECISIONS[:9]:
        peak, per_clock = getattr(row, precision), getattr(rate, precision)
        if peak is None:
            continue
        assert per_clock is not None, f"{precision} has a peak but no rate"
        clock = (row.vector_clock_mhz or row.clock_mhz) if precision in VECTOR else row.clock_mhz
        assert row.sms * per_clock * clock / 1e6 == pytest.approx(peak, rel=0.02), precision
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize("row", TABLES.gpu_peaks, ids=lambda row: row.gpu)
def test_a_row_finds_its_own_example_and_no_other_row_of_its_capability_does(row: GpuPeak) -> None:
    finders = [
        other.gpu
        for other in TABLES.gpu_peaks
        if other.capability == row.capability and re.search(other.pattern, row.example)
    ]
    assert finders == [row.gpu]


@pytest.mark.parametrize("row", TABLES.gpu_peaks, ids=lambda row: row.gpu)
def test_a_row_agrees_with_the_table_of_models_and_of_rates(row: GpuPeak) -> None:
    model = TABLES.gpu_named(row.example)
    assert model is None or model.capability == row.capability
    rate = TABLES.gpu_rate(row.example, row.capability)
    assert rate is not None
    assert rate.line == row.line, "the name must lead to the same rates as the row"
    assert row.max_clock_mhz is None or row.max_clock_mhz >= row.clock_mhz
    assert row.vector_clock_mhz is None or row.vector_clock_mhz > row.clock_mhz
    for seen, peak in ((row.seen_bf16, row.bf16), (row.seen_fp8, row.fp8)):
        assert seen is None or 0.6 * (peak or 0) < seen < (peak or 0)


def test_rates_of_one_capability_are_told_apart_by_name_and_one_row_is_for_the_rest() -> None:
    for capability in {each for row in TABLES.gpu_rates for each in row.capabilities}:
        rest = [row.line for row in TABLES.gpu_rates if capability in row.capabilities and not row.names]
        assert len(rest) == 1, (capability, rest)


@pytest.mark.parametrize(
    ("name", "capability", "source"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", "db:h100-sxm"),
        ("NVIDIA H100 PCIe", "9.0", "db:h100-pcie"),
        ("NVIDIA H100 NVL", "9.0", "db:h100-nvl"),
        ("NVIDIA H200", "9.0", "db:h200-sxm"),
        ("NVIDIA GH200 480GB", "9.0", "db:gh200"),
        ("NVIDIA GB200", "10.0", "db:gb200"),
        ("Tesla V100-SXM2-16GB", "7.0", "db:v100-sxm2"),
        ("NVIDIA GeForce RTX 5070 Ti", "12.0", "db:rtx-5070-ti"),
        ("NVIDIA GeForce RTX 5090", "12.0", "db:rtx-5090"),
        ("NVIDIA GeForce RTX 5090 D", "12.0", "estimated:12.0"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", "estimated:8.9"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", "estimated:9.0"),
        ("NVIDIA H100 80GB HBM3", "8.0", "estimated:8.0"),
        ("NVIDIA Something New", "13.0", "none"),
        ("llvmpipe", "not known", "none"),
    ],
)
def test_a_device_is_matched_by_name_and_capability(name: str, capability: str, source: str) -> None:
    assert find_peaks(TABLES, name, capability=capability, sms=100).source == source


def test_geforce_and_professional_cards_of_one_capability_have_their_own_rates() -> None:
    geforce = find_peaks(TABLES, "NVIDIA GeForce RTX 4090 Laptop GPU", capability="8.9", sms=76)
    ada = find_peaks(TABLES, "NVIDIA RTX 3500 Ada", capability="8.9", sms=76)
    assert ada.tflops_at("fp16", 2000) == pytest.approx(2 * (geforce.tflops_at("fp16", 2000) or 0))
    assert geforce.tflops_at("fp16_acc16", 2000) == ada.tflops_at("fp16", 2000)


def test_an_estimate_says_so_has_no_datasheet_and_uses_what_the_device_says_of_itself() -> None:
    peaks = find_peaks(TABLES, "NVIDIA H800", capability="9.0", sms=132, clocks_mhz=(1980.0, 2619.0), mem_bus_bits=5120)
    assert peaks.spec_tflops("fp16") is None
    assert "estimated" in peaks.note
    assert peaks.max_tflops("fp16") == pytest.approx(1070.5, abs=0.1)
    assert peaks.bandwidth_gbps == pytest.approx(3352, abs=1)


def test_the_h200_of_a_run_has_the_known_ceilings() -> None:
    peaks = peaks_of(GPU, TABLES)
    assert peaks.spec_tflops("fp16") == 989.4
    assert peaks.max_tflops("bf16") == pytest.approx(1070.5, abs=0.1)
    assert peaks.max_bandwidth_gbps == pytest.approx(4917, abs=1)
    assert peaks.gbps_at(3201) == pytest.approx(4917, abs=1)
    assert peaks.spec_tflops("fp64") == 66.9, "products in fp64 run on the tensor cores"
    assert peaks.seen_tflops("fp16") == 794.5


def test_a_slice_of_a_card_is_judged_by_the_sms_it_has() -> None:
    whole, part = peaks_of(GPU, TABLES), peaks_of(replace(GPU, sms=66), TABLES)
    assert (part.max_tflops("fp16") or 0) * 2 == whole.max_tflops("fp16")


def test_block_scaled_formats_are_held_against_their_plain_ones() -> None:
    peaks = peaks_named(TABLES, "B200")
    assert peaks.spec_tflops("nvfp4") == 9000
    assert peaks.spec_tflops("mxfp8") == 4500


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("H100", "db:h100-sxm"), ("h100-pcie", "db:h100-pcie"), ("NVIDIA H100 80GB HBM3", "db:h100-sxm"),
        ("rtx 5090", "db:rtx-5090"), ("5090", "db:rtx-5090"), ("GeForce RTX 4070", "db:rtx-4070"),
        ("a100", "db:a100-sxm-80gb"), ("GB200", "db:gb200"), ("DGX Spark", "db:gb10"),
    ],
)  # fmt: skip
def test_people_may_name_a_gpu_as_they_speak(text: str, source: str) -> None:
    assert peaks_named(TABLES, text).source == source


def test_a_name_that_fits_several_is_taken_as_the_fastest_and_says_so() -> None:
    note = peaks_named(TABLES, "h100").note
    assert "taken as h100-sxm" in note
    assert "h100-pcie, h100-nvl" in note


@pytest.mark.parametrize("text", ["", "quux", "MX300", "RTX 5090 Ti Super", "rtx5090x"])
def test_a_gpu_nobody_knows_is_refused_and_never_taken_for_another(text: str) -> None:
    with pytest.raises(BadInput, match="no peaks are known"):
        peaks_named(TABLES, text)


def test_a_misspelt_gpu_gets_a_suggestion() -> None:
    with pytest.raises(BadInput, match=r"Did you mean rtx-5090"):
        peaks_named(TABLES, "rtx5090")


@pytest.mark.parametrize(("generation", "width", "gbps"), [(3, 16, 15.75), (4, 16, 31.5), (5, 16, 63.0), (4, 8, 15.75)])
def test_pcie_links_carry_what_the_standard_says(generation: int, width: int, gbps: float) -> None:
    assert pcie_gbps(generation, width) == pytest.approx(gbps, abs=0.02)
    assert pcie_gbps(9, 16) is None


def test_a_capability_without_rates_has_no_peak_at_all() -> None:
    assert TABLES.gpu_rate("NVIDIA GeForce GTX 1080", ComputeCapability(6, 1)) is None
    peaks = find_peaks(TABLES, "NVIDIA GeForce GTX 1080", capability="6.1", sms=20, clocks_mhz=(1900.0, None))
    assert peaks.max_tflops("fp32") is None

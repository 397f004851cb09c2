"""The suite of a place: stable ids, honest counts, reasons for what cannot run there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.bench.case import Cache, Case, Effort, Mode, Place
from firstlight.bench.cases import convolution, transfer
from firstlight.bench.cases.suite import ALL_CASES
from firstlight.bench.operator_counts import conv2d_inside_share

H200 = Place("cuda:0", l2_bytes=60 << 20, free_bytes=140_000_000_000, capability=(9, 0))
RTX_5090 = Place("cuda:0", l2_bytes=96 << 20, free_bytes=32_000_000_000, capability=(12, 0))
T4 = Place("cuda:0", l2_bytes=4 << 20, free_bytes=15_000_000_000, capability=(7, 5))
CPU = Place("cpu", l2_bytes=0, free_bytes=8_000_000_000, capability=(0, 0))
GOLDEN = Path(__file__).parent / "golden_case_ids.txt"


def by_id(place: Place) -> dict[str, Case]:
    return {case.id: case for case in ALL_CASES(place)}


@pytest.mark.parametrize("place", [H200, RTX_5090, T4, CPU])
def test_ids_are_unique_and_begin_with_their_family(place: Place) -> None:
    cases = ALL_CASES(place)
    assert len({case.id for case in cases}) == len(cases)
    assert all(case.id.startswith(f"{case.family}/") for case in cases)


def test_ids_are_those_of_the_golden_list() -> None:
    """An id is stable for ever: results of years are compared by it. New ones are added, none is renamed."""
    sections = {"H200": H200, "RTX 5090": RTX_5090, "CPU": CPU}
    lines = []
    for name, place in sections.items():
        lines += [f"# {name}", *(f"{case.least_effort.value:9} {case.id}" for case in ALL_CASES(place))]
    assert GOLDEN.read_text().splitlines() == lines


# GFLOP and MB worked out by hand for shapes that are quoted elsewhere; convolutions direct-equivalent, 4 bytes.
PUBLISHED = {
    "gemm/fp16/1024x1024x1024": (2.147, 6.3),
    "gemm/fp16/2048x2048x2048": (17.180, 25.2),
    "gemm/fp16/4096x4096x4096": (137.439, 100.7),
    "gemm/fp16/8192x8192x8192": (1099.512, 402.7),
    "gemm/fp16/16384x16384x16384": (8796.093, 1610.6),
    "gemm/fp32/8192x8192x8192": (1099.512, 805.3),
    "gemm/tf32/8192x8192x8192": (1099.512, 805.3),
    "gemm/bf16/8192x8192x8192": (1099.512, 402.7),
    "gemm/fp64/8192x8192x8192": (1099.512, 1610.6),
    "gemm/fp8/8192x8192x8192": (1099.512, 268.4),
    "gemm/nvfp4/8192x8192x8192": (1099.512, 209.7),
    "bmm/fp16/32x1024x1024x1024": (68.719, 201.3),
    "bmm/bf16/32x1024x1024x1024": (68.719, 201.3),
    "bmm/tf32/32x1024x1024x1024": (68.719, 402.7),
    "conv2d/tf32/nchw/b32-3to64-224x224-k3": (5.549, 430.3),
    "conv2d/tf32/nchw/b32-64to128-112x112-k3": (59.190, 308.6),
    "conv2d/tf32/nchw/b32-128to256-56x56-k3": (59.190, 155.3),
    "conv2d/tf32/nchw/b32-256to512-28x28-k3": (59.190, 81.8),
    "conv2d/tf32/nchw/b8-3to64-512x512-k7": (39.460, 562.1),
    "depthwise/fp32/nchw/b32-c64-112x112-k3": (0.462, 205.5),
    "depthwise/fp32/nchw/b32-c256-56x56-k3": (0.462, 205.5),
    "depthwise/fp32/nchw/b32-c512-28x28-k3": (0.231, 102.8),
    "sdpa/flash/fp16/b8-h12-s128-d64/full": (0.403, 6.3),
    "sdpa/flash/fp16/b8-h12-s512-d64/full": (6.442, 25.2),
    "sdpa/flash/fp16/b8-h12-s2048-d64/full": (103.079, 100.7),
    "sdpa/flash/fp16/b4-h32-s1024-d128/full": (68.719, 134.2),
    "sdpa/flash/fp16/b4-h32-s4096-d128/full": (1099.512, 536.9),
    "sdpa/flash/bf16/b8-h12-s512-d64/full": (6.442, 25.2),
    "sdpa/flash/bf16/b4-h32-s2048-d128/full": (274.878, 268.4),
    "sdpa/cudnn/fp16/b16-h96-s4096-d128/causal": (6598.680, 6442.5),
    "linear/fp16/m32-k4096-n4096": (1.074, 34.1),
    "linear/fp16/m32-k4096-n11008": (2.886, 91.1),
    "linear/fp16/m4096-k4096-n4096": (137.439, 100.7),
    "linear/bf16/m4096-k4096-n4096": (137.439, 100.7),
    "linear/fp16/m16384-k4096-n4096": (549.756, 302.0),
    "layernorm/fp16/32x512x4096": (0.537, 268.4),
    "layernorm/fp16/8x2048x4096": (0.537, 268.4),
    "layernorm/fp16/4x4096x8192": (1.074, 536.9),
    "softmax/fp16/32x12x512x512": (0.503, 402.7),
    "softmax/fp16/8x32x2048x2048": (5.369, 4295.0),
    "softmax/fp16/4x32x4096x4096": (10.737, 8589.9),
    "bandwidth/add/fp16/512MiB": (0.268, 1610.6),
}
ENCODER_GFLOP = {
    2048: (106.3, 463.9, 515.4, 618.5, 824.6),
    4096: (157.8, 670.0, 721.6, 824.6, 1030.8),
}


@pytest.mark.parametrize("case_id", PUBLISHED)
def test_counts_are_the_published_ones(case_id: str) -> None:
    case, (gflop, megabytes) = by_id(H200)[case_id], PUBLISHED[case_id]
    assert round(case.work.flops / 1e9, 3) == gflop
    assert round((case.work.bytes - vector_bytes(case)) / 1e6, 1) == megabytes


def vector_bytes(case: Case) -> int:
    """Bias, scale and shift: in our count, and left out of the published megabytes."""
    if case.family == "linear":
        return 2 * int(dict(case.params)["n"])
    return 2 * 2 * int(case.id.rpartition("x")[2]) if case.family == "layernorm" else 0


@pytest.mark.parametrize("ff", ENCODER_GFLOP)
def test_encoder_counts_are_the_published_ones(ff: int) -> None:
    rows = [case for case in ALL_CASES(H200) if case.id.startswith(f"encoder/fp16/l6-d1024-h16-ff{ff}/")]
    eager = [case for case in rows if case.id.endswith("/eager")]
    assert tuple(round(case.work.flops / 1e9, 1) for case in eager) == ENCODER_GFLOP[ff]


def test_a_causal_row_counts_half_of_what_a_careless_tool_would() -> None:
    case = by_id(H200)["sdpa/flash/fp16/b16-h96-s4096-d128/causal"]
    assert round(case.work.dense_flops / 1e9, 1) == 13194.1
    assert case.work.flops / case.work.dense_flops == 4097 / 8192


def test_convolutions_carry_the_direct_and_the_exact_count() -> None:
    assert [round(conv2d_inside_share(shape), 4) for shape in convolution.DENSE] == [
        0.9941, 0.9881, 0.9763, 0.9529, 0.9933,
    ]  # fmt: skip
    case = by_id(H200)["conv2d/fp16/nhwc/b32-64to128-112x112-k3"]
    exact = int(dict(case.params)["exact_flops"])
    assert round(exact / case.work.flops, 4) == 0.9881
    assert "algorithmic" in case.flags


def test_every_case_names_its_parameters_and_a_peak() -> None:
    peaks = {"fp16", "bf16", "tf32", "fp32", "fp64", "fp8", "fp4", "int8", "bandwidth", "link"}
    for case in (*ALL_CASES(H200), *ALL_CASES(CPU)):
        assert case.params, case.id
        assert len(dict(case.params)) == len(case.params), case.id
        assert case.peak in peaks, case.id
        assert case.set_bytes >= case.work.bytes * 0.95 or case.family in ("transfer", "decoder"), case.id


def test_fp64_is_smaller_where_the_gpu_has_little_of_it() -> None:
    assert "gemm/fp64/4096x4096x4096" in by_id(RTX_5090)
    assert "gemm/fp64/8192x8192x8192" not in by_id(RTX_5090)


def test_what_a_gpu_cannot_do_is_present_with_the_reason() -> None:
    t4, h200 = by_id(T4), by_id(H200)
    assert t4["gemm/fp8/8192x8192x8192"].needs == "fp8 products need compute capability 8.9; this GPU has 7.5"
    assert t4["gemm/bf16/8192x8192x8192"].needs == "bf16 tensor cores need compute capability 8.0; this GPU has 7.5"
    assert "flash attention" in t4["sdpa/flash/fp16/b8-h12-s128-d64/full"].needs
    assert t4["gemm/int8/8192x8192x8192"].needs == ""
    assert h200["gemm/fp8/8192x8192x8192"].needs == ""
    assert h200["gemm/nvfp4/8192x8192x8192"].needs == "nvfp4 products need compute capability 10.0; this GPU has 9.0"
    assert by_id(RTX_5090)["gemm/nvfp4/8192x8192x8192"].needs == ""


def test_what_does_not_fit_says_how_much_it_needs() -> None:
    small = Place("cuda:0", l2_bytes=4 << 20, free_bytes=7_900_000_000, capability=(8, 6))
    assert by_id(small)["softmax/fp16/4x32x4096x4096"].needs == "needs 9.1 GB of memory; 7.9 GB are free"


def test_the_decoder_has_32_layers_where_they_fit_and_says_so_otherwise() -> None:
    assert "decoder/bf16/7b-32-layers/train-b1-s2048/eager" in by_id(H200)
    small = Place("cuda:0", l2_bytes=4 << 20, free_bytes=12_000_000_000, capability=(8, 6))
    names = {case.id for case in ALL_CASES(small) if case.family == "decoder"}
    assert names == {
        "decoder/bf16/7b-4-of-32-layers/prefill-b1-s2048/eager",
        "decoder/bf16/7b-4-of-32-layers/decode-b1-s2048/graph",
        "decoder/bf16/7b-4-of-32-layers/decode-b1-s2048/eager",
        "decoder/bf16/7b-4-of-32-layers/train-b1-s2048/eager",
    }


def test_compiled_rows_are_marked_and_run_last() -> None:
    marks = ["compile" in case.flags for case in ALL_CASES(H200)]
    assert sum(marks) == 8
    assert marks == sorted(marks)


def test_models_are_timed_by_the_wall_clock_and_kernels_by_the_device() -> None:
    for case in ALL_CASES(H200):
        wall = case.family in ("resnet50", "encoder", "decoder") or "pageable" in case.id
        assert (case.mode is Mode.HOST) == wall, case.id


def test_few_rows_are_measured_with_cold_and_with_warm_weights() -> None:
    cases = by_id(H200)
    assert cases["linear/fp16/m32-k4096-n4096"].cache is Cache.COLD
    assert cases["linear/fp16/m32-k4096-n4096/warm"].cache is Cache.WARM
    assert cases["sdpa/flash/fp16/b8-h12-s128-d64/full/warm"].cache is Cache.WARM


def test_quick_stays_small_and_standard_has_every_shape_that_is_quoted_elsewhere() -> None:
    cases = ALL_CASES(H200)
    quick = {case.id for case in cases if case.least_effort is Effort.QUICK}
    standard = quick | {case.id for case in cases if case.least_effort is Effort.STANDARD}
    assert len(quick) <= 32
    assert len(standard) <= 100
    assert {case_id for case_id in PUBLISHED if "depthwise/fp16" not in case_id} <= standard
    for batch in (1, 8, 32, 64, 128):
        assert {f"resnet50/fp16/b{batch}/eager", f"resnet50/tf32/b{batch}/eager"} <= standard
    assert "resnet50/fp16/b256/eager" in standard


def test_one_gpu_has_one_skipped_row_for_copies_between_gpus() -> None:
    [row] = transfer.peer_cases(1, lambda source, target: "never asked")
    assert row.needs == "copies between GPUs need two GPUs; torch sees 1"


def test_several_gpus_have_a_matrix_with_the_link_of_every_pair() -> None:
    cases = {case.id: case for case in transfer.peer_cases(3, lambda source, target: f"link {source}{target}")}
    matrix = [case_id for case_id in cases if case_id.endswith("/256MiB")]
    assert len(matrix) == 6
    assert dict(cases["transfer/gpu2-gpu1/256MiB"].params)["link"] == "link 21"
    assert all(f"transfer/gpu0-gpu1/{size}MiB" in cases for size in (1, 10, 100, 500, 1000))
    both = cases["transfer/gpu0-gpu1/1000MiB/both-ways"]
    assert both.work.bytes == 2 * 1000 * (1 << 20)


def test_listing_the_cases_of_a_processor_does_not_import_torch() -> None:
    code = (
        "import sys; from firstlight.bench.case import Place; from firstlight.bench.cases.suite import ALL_CASES;"
        "ALL_CASES(Place('cpu', 0, 1, (0, 0))); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

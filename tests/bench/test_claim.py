"""Claims people publish: what is wrong with them and by how much, and which only look wrong."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from firstlight.bench.claim import ClaimJudgement, RemarkKind, judge_claim, number
from firstlight.bench.claim_input import Told, claim_of
from firstlight.bench.claim_shape import KINDS, kind_named, parse_size, work_of
from firstlight.bench.claim_twice import link_named
from firstlight.cli.bench_claim import command
from firstlight.errors import BadInput
from firstlight.tables import load

TABLES = load()
SCHEMA = json.loads(
    (Path(__file__).parents[2] / "src" / "firstlight" / "schemas" / "claim-1.json").read_text()
)  # fmt: skip
SDPA = ("--gpu", "H100", "--case", "sdpa", "--shape", "B=16,H=96,S=4096,D=128,causal", "--dtype", "fp16")


def _judged(**told: str) -> ClaimJudgement:
    return judge_claim(claim_of(Told(**told), TABLES))


def _codes(judgement: ClaimJudgement, kind: RemarkKind) -> list[str]:
    return [remark.code for remark in judgement.remarks if remark.kind is kind]


def _invoked(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


# Causal attention on an H100, 1,075 TFLOPS in 12.27 ms


def test_the_causal_claim_is_wrong_by_a_factor_of_two_and_above_the_ceiling() -> None:
    judgement = _judged(
        gpu="H100", case="sdpa", shape="B=16,H=96,S=4096,D=128,causal", dtype="fp16", ms="12.27", tflops="1,075"
    )
    assert not judgement.can_be_true
    assert _codes(judgement, RemarkKind.WRONG) == ["count", "above-ceiling"]
    count, ceiling = judgement.remarks
    assert count.factor == pytest.approx(2.0, abs=0.002)
    assert "when the mask is ignored (13,194.1 GFLOP)" in count.text
    assert ceiling.factor == pytest.approx(1.0042, abs=0.0005)
    assert "1,070.5 TFLOPS at 1980 MHz" in ceiling.text
    assert judgement.tflops == pytest.approx(537.8, abs=0.1)
    assert judgement.limit.pct_spec == pytest.approx(54.4, abs=0.1)


def test_the_same_time_with_the_honest_rate_can_be_true() -> None:
    judgement = _judged(
        gpu="H100", case="sdpa", shape="B=16,H=96,S=4096,D=128,causal", dtype="fp16", ms="12.27", tflops="537.7"
    )
    assert judgement.can_be_true
    assert judgement.remarks == ()


def test_the_command_prints_the_verdict_first_and_exits_with_1() -> None:
    result = _invoked(*SDPA, "--ms", "12.27", "--tflops", "1075")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == "claim      sdpa B=16,H=96,S=4096,D=128,causal fp16 on H100 SXM: 12.27 ms, 1075 TFLOPS"
    assert lines[1] == "verdict    cannot be true as stated."
    assert "           in 12.27 ms: 537.8 TFLOPS, 525.1 GB/s" in lines
    assert max(map(len, lines)) <= 110


# An RTX 5090 in fp16, tf32 and fp64: above the datasheet, below the clock it boosts to


@pytest.mark.parametrize(
    ("shape", "dtype", "ms", "tflops", "share"),
    [
        ("1024", "fp16", "0.03", "67.4", None),
        ("2048", "fp16", "0.12", "146.2", None),
        ("4096", "fp16", "0.65", "209.9", None),
        ("8192", "fp16", "4.71", "233.4", 111),
        ("16384", "fp16", "39.20", "224.4", 107),
        ("8192", "fp32", "16.47", "66.8", None),
        ("8192", "tf32", "9.87", "111.4", 106),
        ("8192", "fp16", "4.79", "229.4", 109),
        ("8192", "bf16", "4.80", "229.1", 109),
        ("8192", "fp64", "646.18", "1.7", 104),
        ("32x1024x1024x1024", "fp16", "0.36", "191.3", None),
        ("32x1024x1024x1024", "bf16", "0.35", "198.3", None),
        ("32x1024x1024x1024", "tf32", "0.67", "102.2", None),
    ],
)
def test_products_above_the_datasheet_are_explained_by_the_boost_clock_and_not_refused(
    shape: str, dtype: str, ms: str, tflops: str, share: int | None
) -> None:
    judgement = _judged(gpu="RTX 5090", case="gemm", shape=shape, dtype=dtype, ms=ms, tflops=tflops)
    assert judgement.can_be_true, judgement.remarks
    explained = [remark for remark in judgement.remarks if remark.code == "above-datasheet"]
    if share is not None:
        assert f"is {share} % of the datasheet" in explained[0].text
        assert "boosts above that clock" in explained[0].text


def test_the_clock_a_product_needs_is_said() -> None:
    judgement = _judged(gpu="RTX 5090", case="gemm", shape="8192", ms="4.71", tflops="233.4")
    assert "It needs 2.68 GHz; the highest is 3.09 GHz" in judgement.remarks[0].text


def test_a_time_with_one_digit_says_how_little_it_says() -> None:
    judgement = _judged(gpu="RTX 5090", case="gemm", shape="1024", ms="0.03", tflops="67.4")
    assert judgement.remarks[-1].text == "0.03 ms has so few digits that every rate is good to 17 % only."


def test_resnet50_and_the_encoder_are_counted() -> None:
    assert _judged(gpu="RTX 5090", case="resnet50", shape="B=64", ms="8.98").tflops == pytest.approx(58.3, abs=0.1)
    judgement = _judged(gpu="RTX 5090", case="encoder", shape="B=8,S=512", ms="5.66")
    assert judgement.tflops == pytest.approx(463.856 / 5.66, rel=1e-3)


def test_a_vector_addition_counts_three_arrays() -> None:
    judgement = _judged(gpu="RTX 5090", case="add", shape="512MiB", ms="1.04", gbps="1,544.7")
    assert judgement.can_be_true
    assert judgement.limit.pct_spec == pytest.approx(86.4, abs=0.1)


# 22.8 GB/s that saturate PCIe 5.0 x16


def test_a_rate_in_gib_labelled_gb_is_found_out() -> None:
    judgement = _judged(case="link", shape="1000MiB", ms="42.89", gbps="22.8", link="PCIe 5.0 x16", saturates="yes")
    assert _codes(judgement, RemarkKind.WRONG) == ["bytes", "not-saturated"]
    assert judgement.gbps == pytest.approx(24.45, abs=0.01)
    assert "22.8 is the figure in GiB/s, labelled GB/s" in judgement.remarks[0].text
    assert "36 to 39 % of PCIe 5.0 x16" in judgement.remarks[1].text


def test_a_size_that_was_labelled_too_is_found_out() -> None:
    judgement = _judged(case="link", shape="1GB", ms="42.89", gbps="22.8", link="pcie5x16")
    assert (
        "the size is meant in thousands of MiB and the rate in GiB/s: that is 24.45 GB/s" in judgement.remarks[0].text
    )


def test_the_rate_alone_can_be_true_but_saturates_nothing() -> None:
    told = {"case": "link", "shape": "1GB", "gbps": "22.8", "link": "pcie5x16"}
    assert _judged(**told).can_be_true
    assert "36 % of pcie5x16 (63.0 GB/s each way); 39 % if GiB/s was meant" in _judged(**told).remarks[0].text
    assert not _judged(**told, saturates="yes").can_be_true


def test_a_link_near_its_rate_is_saturated_and_one_above_it_cannot_be() -> None:
    told = {"case": "link", "shape": "1GB", "link": "pcie4x16", "saturates": "yes"}
    assert _judged(**told, gbps="26.2").can_be_true
    assert _codes(_judged(**told, gbps="40"), RemarkKind.WRONG) == ["above-link"]


def test_a_link_that_is_not_named_is_asked_for() -> None:
    judgement = _judged(case="link", shape="1GB", gbps="22.8")
    assert _codes(judgement, RemarkKind.NOTE) == ["no-link"]
    assert judgement.can_be_true is None


@pytest.mark.parametrize(
    ("text", "gbps"),
    [("PCIe 5.0 x16", 63.0), ("pcie4x16", 31.5), ("gen3 x8", 7.88), ("nvlink4", 450.0), ("NVLink 5", 900.0)],
)
def test_links_are_read_as_people_write_them(text: str, gbps: float) -> None:
    assert link_named(text, TABLES).gbps == pytest.approx(gbps, abs=0.02)


@pytest.mark.parametrize("text", ["pcie9x16", "x16", "pcie5x3", "nvlink", "usb", ""])
def test_a_link_nobody_knows_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="accepted: pcie3x16"):
        link_named(text, TABLES)


# Other ways to be wrong


def test_multiply_adds_counted_once_are_found_out() -> None:
    judgement = _judged(gpu="H200", case="gemm", shape="8192", ms="1.400", tflops="392.7")
    assert "multiply-add is counted as one operation" in judgement.remarks[0].text


def test_microseconds_read_as_milliseconds_are_found_out() -> None:
    judgement = _judged(gpu="H200", case="gemm", shape="8192", ms="1400", tflops="785.4")
    assert "the time is in microseconds" in judgement.remarks[0].text


def test_a_time_that_no_h200_can_reach_is_wrong_even_without_a_rate() -> None:
    judgement = _judged(gpu="H200", case="gemm", shape="8192", ms="0.900")
    assert _codes(judgement, RemarkKind.WRONG) == ["above-ceiling"]


def test_fp32_at_the_speed_of_tf32_is_named() -> None:
    judgement = _judged(gpu="H200", case="gemm", shape="8192", dtype="fp32", ms="2.90")
    assert "probably run in tf32" in judgement.remarks[0].text


def test_a_sparse_figure_for_a_dense_product_is_named() -> None:
    judgement = _judged(gpu="h200-sxm", case="gemm", shape="8192", tflops="1700")
    assert "Sparse figures are twice the dense ones" in judgement.remarks[0].text


def test_accumulation_in_16_bits_is_the_way_out_on_geforce_alone() -> None:
    geforce = _judged(gpu="RTX 4090", case="gemm", shape="8192", tflops="300")
    assert geforce.can_be_true
    assert _codes(geforce, RemarkKind.EXPLAINED) == ["accumulation"]
    assert not _judged(gpu="L40S", case="gemm", shape="8192", tflops="500").can_be_true


def test_a_convolution_above_the_ceiling_is_explained_by_winograd() -> None:
    judgement = _judged(gpu="T4", case="conv2d", shape="B=32,CIN=256,COUT=512,HW=28,K=3", ms="0.800")
    assert judgement.can_be_true
    assert _codes(judgement, RemarkKind.EXPLAINED) == ["algorithmic"]


def test_more_than_the_memory_gives_is_wrong_for_large_arrays_and_the_cache_for_small_ones() -> None:
    assert _codes(_judged(gpu="H200", case="add", shape="1GiB", gbps="6000"), RemarkKind.WRONG) == ["above-bandwidth"]
    small = _judged(gpu="H200", case="add", shape="8MiB", gbps="6000")
    assert small.can_be_true
    assert _codes(small, RemarkKind.EXPLAINED) == ["cache"]


CACHES = {  # MB, GB/s on an H100 PCIe of 2,039 GB/s: 128 MiB are 134 MB
    "all in the cache": (
        "copy",
        "60MB",
        "4000",
        RemarkKind.EXPLAINED,
        "it stays in the L2 cache (128 MiB at most)",
    ),
    "a part of it": (
        "copy",
        "100MB",
        "3000",
        RemarkKind.EXPLAINED,
        "a part of its 200.0 MB stays in the L2 cache (128",
    ),
    "more than any cache takes": ("copy", "200MB", "9000", RemarkKind.WRONG, "400.0 MB, is too large for any cache"),
}


@pytest.mark.parametrize("which", CACHES)
def test_a_cache_explains_no_more_than_it_can_hold(which: str) -> None:
    case, shape, gbps, kind, said = CACHES[which]
    judgement = _judged(gpu="H100 PCIe", case=case, shape=shape, dtype="fp32", gbps=gbps)
    assert [remark.kind for remark in judgement.remarks if said in remark.text] == [kind]


def test_the_sparse_figure_of_another_format_is_named() -> None:
    judgement = _judged(gpu="Thor", case="gemm", shape="8192x8192x8192", dtype="fp8", tflops="2070")
    assert "That is the figure of fp4 with sparsity" in judgement.remarks[0].text


def test_a_reason_is_given_for_a_factor_that_is_near_it_alone() -> None:
    told = {"gpu": "H100", "case": "gemm", "shape": "8192x8192x8192", "dtype": "bf16", "ms": "2"}
    assert "Perhaps" not in _judged(**told, tflops="900").remarks[0].text  # 1.64 times
    assert "Perhaps twice" in _judged(**told, tflops="1090").remarks[0].text  # 1.98 times


@pytest.mark.parametrize("text", ["1e308", "1e-320", "0", "-3", "x"])
def test_the_range_of_numbers_is_said(text: str) -> None:
    with pytest.raises(BadInput, match="accepted: a number above 1e-12 and below 1e12"):
        number(text, "--ms")


def test_a_copy_that_counts_one_direction_is_found_out() -> None:
    judgement = _judged(gpu="H200", case="copy", shape="1GiB", ms="0.5081", gbps="2113")
    assert "A copy reads and writes: both count." in judgement.remarks[0].text


@pytest.mark.parametrize(
    ("gpu", "dtype", "number", "said"),
    [
        ("A100", "fp8", ("--tflops", "5000"), "A100 SXM 80 GB (capability 8.0) has no units for fp8; capability 8.9"),
        ("A100", "fp8", ("--ms", "100"), "has no units for fp8"),
        ("RTX 4090", "nvfp4", ("--ms", "1"), "RTX 4090 (capability 8.9) has no units for nvfp4; capability 10.0"),
        ("H100", "mxfp8", ("--ms", "1"), "has no units for mxfp8; capability 10.0"),
        ("T4", "tf32", ("--ms", "200"), "has no units for tf32; capability 8.0"),
    ],
)
def test_a_format_the_gpu_has_no_units_for_is_refused(gpu: str, dtype: str, number: tuple[str, str], said: str) -> None:
    result = _invoked("--gpu", gpu, "--case", "gemm", "--shape", "8192", "--dtype", dtype, *number)
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())


def test_formats_that_the_gpu_has_are_judged_by_their_rates() -> None:
    assert _judged(gpu="RTX 4090", case="gemm", shape="8192", dtype="fp8", tflops="300").can_be_true
    assert _judged(gpu="B200", case="gemm", shape="8192", dtype="nvfp4", tflops="7000").can_be_true
    assert _codes(_judged(gpu="H100", case="gemm", shape="8192", dtype="fp8", tflops="5000"), RemarkKind.WRONG) == [
        "above-ceiling"
    ]


def test_a_rate_above_every_format_of_the_gpu_is_refused_without_a_peak_of_its_own() -> None:
    over = _judged(gpu="T4", case="gemm", shape="8192", dtype="bf16", tflops="500")
    assert _codes(over, RemarkKind.WRONG) == ["above-ceiling"]
    assert over.remarks[0].text == (
        "No bf16 peak is known for T4, but 500 TFLOPS is 384 % of the fastest it does in any format, 130.3 TFLOPS."
    )
    assert _judged(gpu="V100", case="gemm", shape="8192", dtype="bf16", tflops="500").can_be_true is False
    convolution = {"case": "conv2d", "shape": "B=32,CIN=256,COUT=512,HW=28,K=3", "dtype": "bf16", "tflops": "500"}
    assert _judged(gpu="T4", **convolution).can_be_true is None  # direct flops, a Winograd kernel does fewer


@pytest.mark.parametrize(("gpu", "dtype", "tflops"), [("T4", "bf16", "60"), ("V100", "int8", "500")])
def test_a_rate_without_a_peak_is_not_judged_and_not_called_possible(gpu: str, dtype: str, tflops: str) -> None:
    arguments = ("--gpu", gpu, "--case", "gemm", "--shape", "8192", "--dtype", dtype, "--tflops", tflops)
    result = _invoked(*arguments)
    assert result.exit_code == 4
    assert "not refused, but not judged in full" in result.output
    assert f"No {dtype} peak is known for {gpu}" in result.output
    document = json.loads(_invoked(*arguments, "--json").output)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["can_be_true"] is None


def test_in_every_row_of_the_rates_a_wider_format_is_at_most_as_fast() -> None:
    order = (("fp64", "fp64_tc"), ("fp32",), ("tf32",), ("fp16", "bf16"), ("fp8", "int8"), ("fp4",))
    for row in TABLES.gpu_rates:
        steps = [[rate for name in names if (rate := getattr(row, name)) is not None] for names in order]
        known = [rates for rates in steps if rates]
        assert all(max(wide) <= min(narrow) for wide, narrow in itertools.pairwise(known)), row.line
        assert None in (row.fp16, row.bf16) or row.fp16 == row.bf16, row.line


def test_the_gpu_may_come_from_a_saved_machine() -> None:
    judgement = _judged(facts_file="example:h100-driver-570", case="gemm", shape="8192", ms="1.400")
    assert judgement.limit.peaks == "db:h100-sxm"


def test_a_name_that_fits_several_gpus_says_which_was_taken() -> None:
    assert "taken as h100-sxm" in _invoked(*SDPA, "--ms", "20.0").output


# Input


H100 = {"gpu": "H100", "ms": "1"}
BAD = {
    "no number": ({"case": "gemm", "shape": "8192", "gpu": "H100"}, "give --ms, --tflops or --gbps"),
    "no GPU": ({"case": "gemm", "shape": "8192", "ms": "1"}, "say which GPU"),
    "two GPUs": ({"case": "gemm", "shape": "8", **H100, "facts_file": "x"}, "give one of them"),
    "a case nobody knows": ({"case": "gemv", "shape": "8192", **H100}, "accepted: gemm, sdpa"),
    "a dtype nobody knows": ({"case": "gemm", "shape": "8", **H100, "dtype": "fp7"}, "accepted: fp64"),
    "a size nobody knows": ({"case": "sdpa", "shape": "B=1,Q=2", **H100}, "sdpa has no Q"),
    "a size that is missing": ({"case": "sdpa", "shape": "B=1,H=2", **H100}, "also needs S, D"),
    "a size of 0": ({"case": "gemm", "shape": "M=0,N=1,K=1", **H100}, "M is 0"),
    "too many dimensions": ({"case": "gemm", "shape": "1x2x3x4x5", **H100}, "5 dimensions"),
    "a word nobody knows": ({"case": "sdpa", "shape": "B=1,H=1,S=1,D=1,casual", **H100}, "'casual'"),
    "an empty shape": ({"case": "gemm", "shape": "", **H100}, "is not understood"),
    "an endless size": ({"case": "gemm", "shape": "9999999999999", **H100}, "is not a size"),
    "a time of 0": ({"case": "gemm", "shape": "8192", "gpu": "H100", "ms": "0"}, "a number above 1e-12"),
    "a time that is NaN": ({"case": "gemm", "shape": "8192", "gpu": "H100", "ms": "nan"}, "a number above 1e-12"),
    "a time in words": ({"case": "gemm", "shape": "8192", "gpu": "H100", "ms": "12ms"}, "a number above 1e-12"),
    "arithmetic of a link": ({"case": "link", "shape": "1GB", "tflops": "3"}, "a link does no arithmetic"),
    "arithmetic of a copy": ({"case": "copy", "shape": "1GB", "tflops": "3", "gpu": "H100"}, "does no arithmetic"),
    "a link of a product": ({"case": "gemm", "shape": "8", **H100, "link": "x"}, "is for --case link"),
    "a kernel beyond its image": (
        {"case": "conv2d", "shape": "B=1,CIN=1,HW=2,K=9,P=0", **H100}, "larger than the padded image"),
    "groups that do not divide": (
        {"case": "conv2d", "shape": "B=1,CIN=3,HW=9,K=3,GROUPS=2", **H100}, "GROUPS must divide"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_claim_that_is_not_understood_is_refused_with_what_is_accepted(name: str) -> None:
    told, words = BAD[name]
    with pytest.raises(BadInput, match=words):
        _judged(**told)


@pytest.mark.parametrize(
    ("case", "one", "other"),
    [
        ("gemm", "8192", "M=8192,N=8192,K=8192"), ("gemm", "32x64x128x256", "B=32,M=64,N=128,K=256"),
        ("gemm", "8192x8192x8192", "8192, 8192, 8192"), ("linear", "32x4096x11008", "M=32,K=4096,N=11008"),
        ("sdpa", "B=4,H=32,S=128,D=64", "4,32,128,64,full"), ("layernorm", "[32, 512, 4096]", "16384x4096"),
        ("add", "512MiB", "size=536870912"), ("resnet50", "64", "B=64"),
        ("conv2d", "B=32,CIN=64,HW=112,K=3,GROUPS=64", "b=32, cin=64, cout=64, hw=112, k=3, p=1, groups=64"),
    ],
)  # fmt: skip
def test_a_shape_may_be_written_in_several_ways(case: str, one: str, other: str) -> None:
    assert work_of(kind_named(case), one, "fp16") == work_of(kind_named(case), other, "fp16")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_case_says_what_it_accepts(kind: object) -> None:
    result = _invoked("--gpu", "H100", "--case", kind.name, "--shape", "?", "--ms", "1")  # type: ignore[attr-defined]
    assert kind.accepts in str(result.exception)  # type: ignore[attr-defined]


@given(st.floats(1e-6, 1e9, allow_nan=False), st.integers(0, 6))
def test_a_number_stands_for_what_rounds_to_it(value: float, digits: int) -> None:
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        return
    read = number(text, "--ms")
    assert abs(read.value - value) <= read.half * 1.000001 + math.ulp(value)  # what the subtraction itself rounds
    assert read.half == pytest.approx(0.5 * 10**-digits)


@given(st.text(max_size=20))
def test_no_shape_makes_anything_but_work_or_a_refusal(text: str) -> None:
    for kind in KINDS:
        try:
            work = work_of(kind, text, "fp16")
        except BadInput:
            continue
        assert work.flops >= 0
        assert work.bytes >= 0


def test_sizes_are_read_with_their_units() -> None:
    assert [parse_size(text) for text in ("1000MiB", "1 GB", "1.5KiB", "7")] == [1048576000, 10**9, 1536, 7]
    with pytest.raises(BadInput, match="accepted: a number and B"):
        parse_size("1 TB")


def test_the_document_fits_the_shipped_schema() -> None:
    for arguments in (
        (*SDPA, "--ms", "12.27", "--tflops", "1075"),
        ("--case", "link", "--shape", "1GB", "--gbps", "22.8", "--link", "pcie5x16"),
    ):
        result = _invoked(*arguments, "--json")
        document = json.loads(result.output)
        assert next(iter(document)) == "schema"
        jsonschema.Draft202012Validator(SCHEMA).validate(document)
        assert document["can_be_true"] is (result.exit_code == 0)

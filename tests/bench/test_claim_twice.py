"""Claims that are twice a peak, and names of GPUs that are not NVIDIA's."""

from __future__ import annotations

import pytest

from firstlight.bench.claim import RemarkKind, judge_claim
from firstlight.bench.claim_input import Told, claim_of
from firstlight.cli import main
from firstlight.errors import BadInput
from firstlight.tables import load
from firstlight.tables.other_makers import other_maker

TABLES = load()
SPARSE = "That is the figure with sparsity, twice the {} TFLOPS of dense products ({})."


def wrong(**told: str) -> str:
    judgement = judge_claim(claim_of(Told(**told), TABLES))
    assert judgement.can_be_true is False
    return " ".join(remark.text for remark in judgement.remarks if remark.kind is RemarkKind.WRONG)


@pytest.mark.parametrize(
    ("gpu", "dtype", "tflops", "dense", "source"),
    [
        ("Thor", "nvfp4", "2070", "1035", "NVIDIA Jetson Thor (T5000) datasheet"),
        ("L4", "fp8", "485", "242.5", "NVIDIA L4 datasheet"),
        ("L4", "int8", "485", "242.5", "NVIDIA L4 datasheet"),
        ("h100-sxm", "fp16", "1,979", "989.4", "NVIDIA H100 Tensor Core GPU datasheet"),
    ],
)
def test_twice_the_dense_peak_is_called_the_figure_with_sparsity(
    gpu: str, dtype: str, tflops: str, dense: str, source: str
) -> None:
    assert SPARSE.format(dense, source) in wrong(gpu=gpu, dtype=dtype, tflops=tflops, case="gemm", shape="8192")


@pytest.mark.parametrize(
    ("gpu", "dtype", "tflops"),
    [
        ("V100", "fp16", "250"),  # no sparse units before Ampere
        ("h100-sxm", "fp64", "133.8"),  # and none for fp64
        ("h100-sxm", "fp16", "1900"),  # not twice
        ("h100-sxm", "fp16", "2100"),
        ("B300", "nvfp4", "27000"),  # sources disagree about its dense figure
    ],
)
def test_what_is_not_twice_a_known_sparse_peak_is_not_called_that(gpu: str, dtype: str, tflops: str) -> None:
    assert "figure with sparsity" not in wrong(gpu=gpu, dtype=dtype, tflops=tflops, case="gemm", shape="8192")


@pytest.mark.parametrize(
    ("link", "gbps", "said"),
    [
        ("nvlink4", "900", "That is both directions added (H100 SXM, 900 GB/s: NVIDIA H100 Tensor Core GPU datasheet)"),
        ("nvlink5", "1,800", "both directions added ("),
        ("pcie5x16", "128", "That is both directions added: one way carries 63.02 GB/s."),
    ],
)
def test_twice_a_link_is_called_both_directions(link: str, gbps: str, said: str) -> None:
    assert said in wrong(case="link", shape="1GB", link=link, gbps=gbps)


@pytest.mark.parametrize("gbps", ["600", "800", "1000"])
def test_what_is_not_twice_a_link_is_not_called_that(gbps: str) -> None:
    assert "both directions" not in wrong(case="link", shape="1GB", link="nvlink4", gbps=gbps)


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("MI300X", "AMD"), ("mi 250", "AMD"), ("Instinct MI355X", "AMD"), ("Radeon RX 7900 XTX", "AMD"),
        ("gfx942", "AMD"),
        ("Arc B580", "Intel"), ("Gaudi 3", "Intel"), ("TPU v5e", "Google"), ("Trainium2", "AWS"),
        ("Apple M3 Max", "Apple"),
        ("H100", ""), ("RTX 4060", ""), ("A10G", ""), ("gb300", ""), ("", ""), ("Quadro RTX 6000", ""), ("k80", ""),
        ("NVIDIA Arc", ""),
    ],
)  # fmt: skip
def test_makers_are_known_by_their_product_lines(name: str, maker: str) -> None:
    assert other_maker(name) == maker


def test_no_gpu_of_the_tables_is_anybody_elses() -> None:
    names = [name for row in TABLES.gpu_peaks for name in (row.gpu, row.name, row.example)]
    assert {other_maker(name) for name in names} == {""}


def test_a_gpu_of_another_maker_is_said_to_be_that(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["bench", "check-claim", "--gpu", "MI300X", "--case", "gemm", "--shape", "8192", "--tflops", "1000"]
    assert main.run(call) == 2
    said = capsys.readouterr().err
    assert "that is AMD's, and peaks are known for GPUs of NVIDIA alone" in said
    assert "Did you mean" not in said


def test_a_class_of_machines_names_the_maker_too() -> None:
    from firstlight.plan.machine_class import _gpu

    with pytest.raises(BadInput, match=r"MI300X'? is AMD's; accepted: GPUs of NVIDIA"):
        _gpu("MI300X", "MI300X, driver >= 570", tables=TABLES)

"""The first lines of every report: what is known of the GPU and the driver, and nothing that is not."""

from __future__ import annotations

import pytest

from firstlight.report.summary import machine_summary
from tests.diagnosis.rule_case import facts_of


@pytest.mark.parametrize(
    ("machine", "begins"),
    [
        ("orin-flash-attention", "Orin (8.7, 61.4 GiB), driver version unknown (CUDA 12.6), torch 2.8.0"),
        ("orin-torch-pypi", "Orin (8.7, 61.4 GiB), driver 540.4.0 (CUDA 12.6), torch 2.9.0+cpu"),
        ("h200-no-torch", "NVIDIA H200 (9.0, 139.8 GiB), driver 580.159.04 (CUDA 13.0), "),
        ("a100-no-driver", "1 NVIDIA GPU on the PCI bus, no driver, torch 2.6.0+cu124"),
        ("gpu-less", "no NVIDIA GPU, "),
    ],
)
def test_a_gpu_that_only_libcuda_knows_has_its_name(machine: str, begins: str) -> None:
    assert machine_summary(facts_of(machine))[0].startswith(begins)


def test_a_gpu_that_fell_off_is_not_given_another_ones_name() -> None:
    what, _ = machine_summary(facts_of("gpu-fell-off"))
    assert what.startswith("3x NVIDIA A100 80GB PCIe (8.0, 79.3 GiB) + a GPU of unknown name (capability unknown), ")


def test_what_is_answered_under_a_preloaded_library_is_not_given_as_the_drivers() -> None:
    what, _ = machine_summary(facts_of("h100-spoofed-version"))
    assert "driver 570.133.20 (CUDA 13.0 is answered under LD_PRELOAD)" in what

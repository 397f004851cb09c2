"""Versions parse, compare field by field and print as they were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import BadInput, BadVersion
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

driver_parts = st.lists(st.integers(0, 999), min_size=1, max_size=3)


def test_driver_versions_compare_as_numbers_not_as_text() -> None:
    assert DriverVersion.parse("580.95.05") < DriverVersion.parse("580.159.04")
    assert DriverVersion.parse("580.95.05") > DriverVersion.parse("580.65.06")
    assert DriverVersion.parse("570.26") < DriverVersion.parse("570.124.06")


def test_a_driver_version_prints_as_written_with_its_leading_zero() -> None:
    assert str(DriverVersion.parse(" 580.95.05\n")) == "580.95.05"
    assert DriverVersion.parse("580.95.05").branch == 580


@given(st.integers(100, 999), driver_parts, st.integers(100, 999), driver_parts)
def test_driver_order_is_the_order_of_their_number_lists(a: int, rest_a: list[int], b: int, rest_b: list[int]) -> None:
    one, two = [a, *rest_a], [b, *rest_b]
    texts = [".".join(f"{part:02d}" for part in parts) for parts in (one, two)]
    assert (DriverVersion.parse(texts[0]) < DriverVersion.parse(texts[1])) == (one < two)


@pytest.mark.parametrize("text", ["", "abc", "580.", ".580", "580.95.05 beta", "5", "580.95\x00", "-580"])
def test_text_that_is_no_driver_version_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadVersion) as caught:
        DriverVersion.parse(text)
    assert "accepted" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, BadInput)


def test_cuda_versions_come_from_text_driver_numbers_and_wheel_tags() -> None:
    assert CudaVersion.parse("13.0") == CudaVersion(13, 0)
    assert CudaVersion.parse("13.0.88").release == CudaVersion(13, 0)
    assert CudaVersion.from_driver_number(12040) == CudaVersion(12, 4)
    assert CudaVersion.from_driver_number(9020) == CudaVersion(9, 2)
    assert CudaVersion.from_tag("cu130") == CudaVersion(13, 0)
    assert CudaVersion.from_tag("cu92") == CudaVersion(9, 2)
    assert CudaVersion(12, 8).tag == "cu128"
    assert CudaVersion(12, 10) > CudaVersion(12, 9)


@pytest.mark.parametrize("number", [0, -1, 35])
def test_a_driver_number_that_is_no_version_is_refused(number: int) -> None:
    with pytest.raises(BadVersion):
        CudaVersion.from_driver_number(number)


def test_torch_versions_order_nightlies_before_and_posts_after_their_release() -> None:
    order = ["2.9.1", "2.10.0.dev20251015+cu130", "2.10.0rc1", "2.10.0+cu128", "2.10.0.post1", "2.11.0"]
    parsed = [TorchVersion.parse(text) for text in order]
    assert parsed == sorted(parsed)
    assert parsed[1].is_nightly
    assert not parsed[3].is_nightly


def test_a_torch_version_knows_the_cuda_its_local_part_names() -> None:
    assert TorchVersion.parse("2.9.0+cu130").cuda == CudaVersion(13, 0)
    assert TorchVersion.parse("2.9.0").cuda is None
    assert TorchVersion.parse("2.9.0+cpu").cuda is None
    assert TorchVersion.parse("2.9.0+cu130").public == "2.9.0"
    assert str(TorchVersion.parse("2.10.0a0+git1234abc")) == "2.10.0a0+git1234abc"


def test_compute_capability_takes_all_three_spellings() -> None:
    assert {ComputeCapability.parse(text) for text in ("9.0", "sm_90", "sm_90a", "compute_90")} == {
        ComputeCapability(9, 0)
    }
    assert ComputeCapability.parse("sm_120").sm == "sm_120"
    assert ComputeCapability.parse("12.0") == ComputeCapability(12, 0)
    assert ComputeCapability(10, 0) > ComputeCapability(9, 0)

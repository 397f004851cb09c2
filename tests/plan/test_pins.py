"""What releases require of each other, of Python and of the processor."""

from __future__ import annotations

import pytest

from firstlight.plan.pins import Place, admits, compiled_here, misfit, pin_on, python_takes, takes_torch, torch_pin
from firstlight.tables import load
from firstlight.tables.pin_rows import PackagePins
from firstlight.versions import TorchVersion

TABLES = load()
X86 = Place("x86_64", "3.12.3")
ARM = Place("aarch64", "3.12.3")


def row(project: str, version: str) -> PackagePins:
    found = TABLES.package_release(project, version)
    assert found is not None
    return found


def takes(project: str, version: str, torch: str, *, machine: str = "x86_64") -> bool:
    return takes_torch(TABLES, row(project, version), TorchVersion.parse(torch), machine=machine)


@pytest.mark.parametrize(
    ("tag", "minor"),
    [("cp312", "3.12"), ("cp313t", "3.13t"), ("cp38-abi3", "3.12"), ("py3", "3.15"), ("py39", "3.9"), ("cp312", "")],
)
def test_a_python_takes_its_own_wheels_and_those_of_the_stable_abi(tag: str, minor: str) -> None:
    assert python_takes(tag, minor)


@pytest.mark.parametrize(
    ("tag", "minor"),
    [("cp312", "3.13"), ("cp313t", "3.13"), ("cp312-abi3", "3.11"), ("cp38-abi3", "3.13t"), ("py39", "3.8")],
)
def test_a_python_takes_no_wheel_of_another(tag: str, minor: str) -> None:
    assert not python_takes(tag, minor)


def test_bounds_that_cannot_be_read_admit_nothing() -> None:
    assert admits("", "2.9.0")
    assert admits("==2.9.0", "2.9.0+cu130")
    assert not admits("==2.8.0", "2.9.0")
    assert not admits("what", "2.9.0")


def test_vllm_requires_xformers_on_x86_64_alone() -> None:
    vllm = row("vllm", "0.11.0")
    pin = pin_on(vllm, "xformers", machine="x86_64")
    assert pin is not None
    assert pin.spec == "==0.0.32.post1"
    assert pin_on(vllm, "xformers", machine="aarch64") is None


def test_a_release_goes_with_the_torch_it_pins_and_no_other() -> None:
    assert takes("vllm", "0.11.0", "2.8.0")
    assert not takes("vllm", "0.11.0", "2.9.0")
    assert takes("torchvision", "0.29.2", "2.15.0"), "it requires torch>=2.14.0"


def test_triton_is_pinned_by_torch() -> None:
    assert takes("triton", "3.5.0", "2.9.0")
    assert not takes("triton", "3.4.0", "2.9.0")
    assert takes("triton", "3.5.0", "2.9.0", machine="aarch64"), "PyPI's wheel there has no CUDA and names no triton"


def test_a_wheel_that_names_no_torch_goes_with_the_torch_of_its_number_and_later() -> None:
    assert takes("torchaudio", "2.11.0", "2.15.0")
    assert not takes("torchaudio", "2.11.0", "2.10.0")


def test_what_is_compiled_here_goes_with_any_torch_and_processor() -> None:
    flash = row("flash-attn", "2.8.3")
    assert compiled_here(flash)
    assert misfit(flash, ARM) == ""
    assert takes("flash-attn", "2.8.3", "2.15.0")


def test_a_release_without_a_wheel_for_the_processor_says_for_which_it_has() -> None:
    assert misfit(row("xformers", "0.0.34"), X86) == ""
    assert misfit(row("xformers", "0.0.34"), ARM) == (
        "xformers 0.0.34 has no wheel for aarch64 on PyPI; it has some for x86_64."
    )


def test_a_release_without_a_wheel_for_the_python_says_what_it_takes() -> None:
    old = Place("x86_64", "3.9.2")
    assert misfit(row("vllm", "0.11.1"), old) == "vllm 0.11.1 requires Python <3.14,>=3.10; this is Python 3.9.2."
    new = Place("x86_64", "3.14.0")
    assert "cp39, cp310, cp311, cp312 and cp313; this is Python 3.14.0" in misfit(row("torchvision", "0.21.0"), new)


def test_one_patch_release_of_python_can_be_excluded() -> None:
    assert misfit(row("torchvision", "0.28.0"), Place("x86_64", "3.14.0")) == ""
    assert "!=3.14.1" in misfit(row("torchvision", "0.28.0"), Place("x86_64", "3.14.1"))


def test_torch_pins_what_its_metadata_names() -> None:
    pin = torch_pin(TABLES, TorchVersion.parse("2.9.0"), "triton", machine="x86_64")
    assert str(pin) == "triton==3.5.0"
    assert torch_pin(TABLES, TorchVersion.parse("2.9.0"), "vllm", machine="x86_64") is None

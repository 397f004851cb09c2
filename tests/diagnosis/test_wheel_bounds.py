"""What follows where no row is: not listed is not a no, and what cannot be is said to be so."""

from __future__ import annotations

import pytest

from firstlight.cli.main import run
from firstlight.diagnosis.wheel_bounds import compiler_knows, glibc_of_wheel, may_have_code, why_no_variant
from firstlight.tables import load
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion
from tests.diagnosis.rule_case import MACHINES

TABLES = load()


@pytest.mark.parametrize(
    ("torch", "tag", "why"),
    [
        ("2.9.0", "cu130", ""),  # named by PyTorch
        ("2.9.0", "cu129", ""),  # not named, and on the index
        ("2.9.1", "cu129", ""),
        ("2.10.0", "cu129", ""),
        ("2.11.0", "cu129", ""),
        ("2.9.0", "cu121", "the oldest CUDA it is built for is 12.6"),
        ("2.4.0", "cu130", "the newest CUDA it is built for is 12.4"),
        ("2.9.0", "cu127", "There is no CUDA 12.7"),
        ("2.7.1", "cu121", "torch 2.5 was the last of it"),  # between cu118 and cu126, which it has
        ("2.7.0", "cu124", "torch 2.6 was the last of it"),
        ("2.5.1", "cu122", "No torch was ever built for CUDA 12.2"),
        ("2.12.0", "cu128", ""),  # no longer named, and others of that time were still on the index
        ("0.4.1", "cu92", ""),  # the tables know nothing of that release
    ],
)
def test_a_variant_is_refused_only_where_it_cannot_be(torch: str, tag: str, why: str) -> None:
    said = why_no_variant(TABLES, TorchVersion.parse(torch), CudaVersion.from_tag(tag), machine="x86_64")
    assert why in said
    assert bool(said) == bool(why)


@pytest.mark.parametrize(
    ("cuda", "capability", "may"),
    [
        ("11.6", "12.0", False),  # no row for 11.6; sm_120 came with 12.8
        ("10.2", "8.0", True),  # older than the oldest row, which has sm_80: the rows cannot tell
        ("10.2", "9.0", False),  # sm_90 came with 11.8, after the oldest row
        ("12.7", "9.0", True),  # between two that have it
        ("13.9", "7.0", False),  # gone with 13.0
        ("13.9", "12.0", True),  # the newest row has it
        ("13.0", "7.0", False),
        ("12.8", "7.0", True),
    ],
)
def test_a_compiler_without_a_row_is_bounded_by_those_around_it(cuda: str, capability: str, *, may: bool) -> None:
    assert compiler_knows(TABLES, CudaVersion.parse(cuda), ComputeCapability.parse(capability)) is may


@pytest.mark.parametrize(
    ("torch", "cuda", "glibc"),
    [("2.6.0", "12.4", ""), ("2.6.0", "12.6", "2.28"), ("2.7.0", "11.8", "2.28"), ("2.5.1", "12.1", "")],
)
def test_the_c_library_follows_the_variant(torch: str, cuda: str, glibc: str) -> None:
    release = TABLES.torch_release(torch, "x86_64")
    assert release is not None
    assert glibc_of_wheel(release, CudaVersion.parse(cuda)) == glibc


def test_a_variant_of_the_index_that_no_list_names_is_planned_when_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = str(MACHINES / "h100-driver-570")
    assert run(["plan", "--options", "--want", "torch==2.9.0+cu129", "--facts", machine]) == 0
    out = capsys.readouterr().out
    assert "1. install torch 2.9.0+cu129" in out
    assert "quoted in public projects" in " ".join(out.split())


def test_no_wheel_for_a_newer_c_library_is_offered_on_centos_7(capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", "--options", "--facts", str(MACHINES / "centos-7")])
    out = capsys.readouterr().out
    offered = out.partition("cannot work here")[0]
    assert "+cu126" not in offered, "its wheels need glibc 2.28; CentOS 7 has 2.17"


@pytest.mark.parametrize(
    ("cuda", "capability", "may"),
    [
        ("11.6", "12.0", False),
        ("11.6", "9.0", False),
        ("11.6", "8.9", True),  # code for 8.6, which it knows, runs there
        ("12.6", "12.0", False),
        ("12.8", "12.1", True),  # code for 12.0
        ("13.0", "7.0", False),
    ],
)
def test_a_build_may_run_where_its_compiler_knows_code_of_that_family(cuda: str, capability: str, *, may: bool) -> None:
    assert may_have_code(TABLES, CudaVersion.parse(cuda), ComputeCapability.parse(capability)) is may


def _plan(capsys: pytest.CaptureFixture[str], want: str, machine: str, *more: str) -> tuple[int, str]:
    code = run(["plan", "--want", want, "--facts", str(MACHINES / machine), *more])
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_a_build_of_a_cuda_that_has_no_code_for_the_gpu_is_not_planned(capsys: pytest.CaptureFixture[str]) -> None:
    for tag in ("cu113", "cu116"):
        code, said = _plan(capsys, f"torch==1.12.1+{tag}", "rtx5090-source-build")
        assert code == 2
        assert f"torch==1.12.1+{tag} --index-url" not in said
        assert "knows none that runs on it" in said
        assert "The nearest that works: install torch 2.7.0+cu128" in said


def test_torch_1_13_has_no_python_3_12_and_another_python_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _plan(capsys, "torch==1.13.1+cu117", "h100-driver-570", "--set", "capability=8.0")
    assert code == 0
    assert "uv venv --seed --python 3.11" in said
    assert "venv-3.11/bin/python -m pip install torch==1.13.1" in said


def test_a_wheel_for_a_newer_c_library_is_refused_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _plan(capsys, "torch==2.6.0+cu126", "centos-7")
    assert code == 2
    assert "need glibc 2.28 or newer; this machine has 2.17" in said

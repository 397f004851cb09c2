"""Which GPUs a binary holds code for: files that nvcc really makes, with cuobjdump as the referee."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.elf.fatbin import Code, read_fatbins
from firstlight.machine.live import LiveMachine
from firstlight.verify.check import Case, CheckOutcome
from firstlight.versions import ComputeCapability
from tests.verify.standing_in import case_of, check_named, facts_of, prove

KERNEL = """
__global__ void k(float* x) { x[threadIdx.x] += 1.f; }
extern "C" void go(float* x) { k<<<1, 32>>>(x); }
"""
BUILDS = {
    "sm_80": ("-gencode", "arch=compute_80,code=sm_80"),
    "sm_90a": ("-gencode", "arch=compute_90a,code=sm_90a"),
    "compute_80": ("-gencode", "arch=compute_80,code=compute_80"),
    "compute_90 sm_80 sm_90": (
        "-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90",
        "-gencode", "arch=compute_90,code=compute_90", "-Xfatbin", "-compress-all",
    ),
    "sm_100f sm_120": ("-gencode", "arch=compute_100f,code=sm_100f", "-gencode", "arch=compute_120,code=sm_120"),
}  # fmt: skip


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc to make binaries with")
    folder = tmp_path_factory.mktemp("binaries")
    (folder / "k.cu").write_text(KERNEL)
    made = {}
    started = []
    for name, flags in BUILDS.items():
        made[name] = str(folder / f"{name.replace(' ', '-')}.so")
        line = [nvcc, "-shared", "-Xcompiler", "-fPIC", *flags, "-o", made[name], str(folder / "k.cu")]
        started.append(subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    assert [process.wait() for process in started] == [0] * len(BUILDS)
    return made


def held(path: str) -> str:
    return " ".join(map(str, sorted(read_fatbins(LiveMachine(), path).codes, key=str)))


def test_the_codes_are_those_the_compiler_was_asked_for(binaries: dict[str, str]) -> None:
    assert {name: held(path) for name, path in binaries.items()} == {name: name for name in BUILDS}


def test_cuobjdump_lists_the_same(binaries: dict[str, str]) -> None:
    triton = pytest.importorskip("triton")
    tool = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/cuobjdump")
    if not os.path.exists(tool):
        pytest.skip("triton brings no cuobjdump")
    for path in binaries.values():
        said = subprocess.run([tool, "--list-elf", "--list-ptx", path], capture_output=True, text=True, check=False)
        elves = set(re.findall(r"\.(sm_\d+)[af]?\.cubin", said.stdout))  # it leaves the suffix of machine code out
        texts = set(re.findall(r"\.sm_(\d+[af]?)\.ptx", said.stdout))
        codes = read_fatbins(LiveMachine(), path).codes
        assert {f"sm_{code.number}" for code in codes if code.kind == "sm"} == elves
        assert {f"{code.number}{code.suffix}" for code in codes if code.kind == "compute"} == texts


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        (Code(80, "", "sm"), (8, 6), True),
        (Code(80, "", "sm"), (9, 0), False),
        (Code(90, "a", "sm"), (9, 0), True),
        (Code(90, "a", "compute"), (10, 0), False),
        (Code(80, "", "compute"), (12, 0), True),
        (Code(90, "", "compute"), (8, 0), False),
        (Code(100, "f", "sm"), (10, 3), True),
        (Code(100, "f", "sm"), (12, 0), False),
    ],
)
def test_code_runs_where_cudas_rules_let_it(code: Code, device: tuple[int, int], runs: bool) -> None:  # noqa: FBT001
    assert code.runs_on(ComputeCapability(*device)) is runs


def so_case(tmp_path: Path, machine: str, *paths: str) -> Case:
    return replace(case_of(tmp_path, facts_of(machine)), so_files=paths)


def test_a_binary_for_another_gpu_fails_and_says_how_to_build_it(tmp_path: Path, binaries: dict[str, str]) -> None:
    result = prove(check_named("so"), so_case(tmp_path, "h200", binaries["sm_80"]))
    assert result.outcome is CheckOutcome.FAILED
    assert "it holds sm_80, nothing that runs on sm_90 (error 209" in result.says
    assert "-gencode arch=compute_90,code=sm_90" in result.do[0]


@pytest.mark.parametrize(
    ("machine", "name", "told"),
    [
        ("h200", "sm_90a", "machine code for sm_90 (sm_90a)"),
        ("h200", "compute_80", "PTX that the driver compiles for sm_90 at first use"),
        ("b200-driver-610", "compute_90 sm_80 sm_90", "PTX that the driver compiles for sm_100"),
    ],
)
def test_a_binary_that_runs_here_is_proved(
    tmp_path: Path, binaries: dict[str, str], machine: str, name: str, told: str
) -> None:
    result = prove(check_named("so"), so_case(tmp_path, machine, binaries[name]))
    assert result.outcome is CheckOutcome.OK, result.says
    assert told in result.says


def test_without_a_gpu_a_binary_is_read_but_not_judged(tmp_path: Path, binaries: dict[str, str]) -> None:
    result = prove(check_named("so"), so_case(tmp_path, "gpu-less", binaries["sm_80"]))
    assert result.outcome is CheckOutcome.NOT_HERE
    assert result.says.endswith("holds sm_80")


def test_files_without_code_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    for path, told in (
        (str(tmp_path / "text.so"), "not a 64-bit ELF file"),
        (str(tmp_path / "none.so"), "no such file"),
        ("/proc/self/exe", "no CUDA code in it"),
        (str(tmp_path), "is a folder"),
    ):
        result = prove(check_named("so"), so_case(tmp_path, "h200", path))
        assert result.outcome is CheckOutcome.FAILED
        assert told in result.says


def test_no_damage_to_a_binary_raises_or_hangs(tmp_path: Path, binaries: dict[str, str]) -> None:
    whole = bytearray(Path(binaries["sm_80"]).read_bytes())
    start = whole.index(struct.pack("<I", 0xBA55ED50))
    for name, at, value in (
        ("huge size", start + 8, b"\xff" * 8),
        ("no header", start + 6, b"\0\0"),
        ("entry of no size", start + 20, b"\0" * 12),
        ("huge entry", start + 24, b"\xff" * 8),
        ("other magic", start, b"\1\2\3\4"),
        ("section table", 40, b"\xff" * 8),
        ("no sections", 60, b"\0\0"),
    ):
        damaged = bytearray(whole)
        damaged[at : at + len(value)] = value
        path = tmp_path / "damaged.so"
        path.write_bytes(damaged)
        assert read_fatbins(LiveMachine(), str(path)).complaint, name
    for length in (0, 5, 63, 64, len(whole) // 2, start + 20):
        path.write_bytes(whole[:length])
        assert read_fatbins(LiveMachine(), str(path)).complaint, length

"""A user's .cu file: compiled by a real nvcc for one GPU alone; launched with arguments in the widths of the kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firstlight.bench.attempts import first_attempt
from firstlight.bench.results import Verdict
from firstlight.bench.user_cases.build import user_suite
from firstlight.bench.user_cases.cuda_file import compile_cuda, first_error, gencode, pack
from firstlight.cli import main
from firstlight.errors import BadInput
from firstlight.kernels.sm90.nvcc import find_nvcc
from tests.bench.test_runner import CPU

ROOT = Path(__file__).parents[2]
AXPY = ROOT / "examples" / "user_kernels" / "axpy.cu"
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc is here")


@pytest.mark.parametrize(
    ("capability", "nvcc_major", "flag"),
    [
        ((7, 5), 13, "arch=compute_75,code=sm_75"),
        ((8, 6), 12, "arch=compute_86,code=sm_86"),
        ((9, 0), 13, "arch=compute_90a,code=sm_90a"),
        ((9, 0), 11, "arch=compute_90,code=sm_90"),
        ((12, 0), 13, "arch=compute_120a,code=sm_120a"),
    ],
)
def test_code_is_made_for_one_gpu_with_all_it_has(capability: tuple[int, int], nvcc_major: int, flag: str) -> None:
    assert gencode(capability, nvcc_major=nvcc_major) == flag


@needs_nvcc
def test_the_example_compiles_to_machine_code_of_the_gpu_asked_for() -> None:
    compiled = compile_cuda(str(AXPY), (9, 0))
    assert compiled.cubin[:4] == b"\x7fELF"
    assert b"axpy_by_four" in compiled.cubin
    assert "-gencode arch=compute_90a,code=sm_90a" in compiled.command
    assert str(ROOT) not in compiled.command
    assert compile_cuda(str(AXPY), (9, 0)) is compiled


@needs_nvcc
def test_what_nvcc_refuses_is_said_with_its_line_and_the_flag(tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_text('extern "C" __global__ void f(int n) {\n  z = n;\n}\n')
    with pytest.raises(BadInput, match=r'code=sm_90a: broken\.cu\(2\): error: identifier "z" is undefined'):
        compile_cuda(str(broken), (9, 0))
    with pytest.raises(BadInput, match=r"makes no code for this GPU \(sm_35\); it knows sm_"):
        compile_cuda(str(broken), (3, 5))


def test_a_machine_without_nvcc_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstlight.kernels.sm90 import nvrtc

    monkeypatch.setattr(nvrtc, "TOOLKITS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    kernel = tmp_path / "some.cu"
    kernel.write_text("")
    with pytest.raises(BadInput, match=r"some\.cu: no nvcc was found in CUDA_HOME, CUDA_PATH, PATH"):
        compile_cuda(str(kernel), (9, 0))


def test_the_first_error_of_a_log_is_what_is_shown() -> None:
    log = "\n/home/me/k.cu(3): warning #177-D: unused\n\n/home/me/k.cu(7): error: expected a ';'\n1 error detected\n"
    assert first_error(log) == "k.cu(7): error: expected a ';'"
    assert first_error("") == "it said nothing"


def test_a_cu_case_is_skipped_on_a_processor() -> None:
    for case in user_suite(str(AXPY))(CPU):
        attempt = first_attempt(case, CPU)
        assert (attempt.verdict, attempt.reason) == (Verdict.SKIPPED, "runs on cuda only")


@pytest.mark.parametrize("style", [(), ("--json",)])
def test_a_run_in_which_every_case_was_skipped_says_so_and_ends_with_4(
    capsys: pytest.CaptureFixture[str], style: tuple[str, ...]
) -> None:
    assert main.run(["bench", str(AXPY), "--device", "cpu", "--effort", "quick", *style]) == 4
    said = capsys.readouterr()
    assert "nothing was measured: 2 of 2 cases were skipped (runs on cuda only); choose others" in said.err
    assert "runs on cuda only" in said.out
    if style:
        assert json.loads(said.out)["schema"] == "firstlight.bench/1"


def test_numbers_take_the_width_of_the_kernel_and_four_bytes_where_it_is_not_known() -> None:
    assert [len(each.raw) for each in pack((1, 2.0, 3), (8, 8, 2)).values] == [8, 8, 2]
    assert [each.raw for each in pack((1, 0.5), ()).values] == [b"\x01\0\0\0", b"\0\0\0?"]
    with pytest.raises(BadInput, match="argument 1 is 300, which does not fit into 1 bytes"):
        pack((1, 300), (4, 1))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What launched_cases.py found with a stand-in for the driver that runs the kernels on the processor."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc is here")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).parent / "fake_launching_driver.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    script = [sys.executable, "-m", "tests.bench.launched_cases"]
    done = subprocess.run(script, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_arguments_reach_the_kernel(said: dict[str, Any]) -> None:
    assert (said["ints"], said["longs"]) == ("right", "right")


def test_launches_that_do_not_fit_the_kernel_are_refused_with_the_reason(said: dict[str, Any]) -> None:
    assert said["few"] == "axpy.cu: axpy takes 5 arguments; launch gave 4"
    assert said["absent"].startswith(
        "axpy.cu: the kernel axpi cannot be loaded (cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"
    )
    assert 'extern "C"' in said["absent"]
    assert said["large"] == "argument 0 is 1099511627776, which does not fit into 4 bytes"
    assert "argument 0 is 'many', and the kernel takes 4 bytes there; accepted: a tensor" in said["text"]
    assert said["refused"].startswith("launch of axpy (grid (4, 1, 1) x (2048, 1, 1))")


def test_a_whole_number_where_the_kernel_wants_a_float_is_wrong_and_the_check_would_see_it(
    said: dict[str, Any],
) -> None:
    assert said["a number for a float"] == "wrong"

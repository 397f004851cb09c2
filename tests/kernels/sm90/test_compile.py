"""Kernels are compiled by NVRTC or nvcc, and a compiler's refusal reaches the caller whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from firstlight.errors import UnsupportedInput
from firstlight.kernels.sm90 import nvcc, nvrtc
from firstlight.kernels.sm90.compile import Variant, compile_variant, find_compiler, read_program
from firstlight.kernels.sm90.failures import KernelBuildFailed
from tests.kernels.sm90.cases import KERNELS, ONE, needs_both, needs_compiler, needs_nvcc, needs_nvrtc
from tests.kernels.sm90.gate import read_log, read_sass

JITS = [pytest.param("nvrtc", marks=needs_nvrtc), pytest.param("nvcc", marks=needs_nvcc)]


@pytest.mark.parametrize("jit", JITS)
def test_a_kernel_becomes_a_cubin_with_a_log_of_its_registers(jit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_JIT", jit)
    compiled = compile_variant(ONE, folder=KERNELS)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert b"one_wgmma" in compiled.cubin
    assert read_log(compiled.log).registers > 0
    assert compiled.compiler.startswith(f"{jit} 1")
    assert "sm_90a" in compiled.command
    assert "-DTIMES=1" in compiled.command


@needs_both
def test_both_compilers_make_the_same_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for jit in ("nvrtc", "nvcc"):
        monkeypatch.setenv("FIRSTLIGHT_JIT", jit)
        made.append(read_sass(compile_variant(ONE, folder=KERNELS).cubin))
    assert made[0] == made[1]


@needs_compiler
def test_debug_adds_line_numbers_and_the_macro() -> None:
    plain, debug = (compile_variant(ONE, debug=wanted, folder=KERNELS) for wanted in (False, True))
    assert "-DFIRSTLIGHT_DEBUG=1" in debug.command
    assert "FIRSTLIGHT_DEBUG" not in plain.command
    assert b".debug_line" in debug.cubin
    assert b".debug_line" not in plain.cubin


@pytest.mark.parametrize("jit", JITS)
def test_a_failed_compile_names_the_command_the_first_error_and_the_log(
    jit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_JIT", jit)
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path))
    with pytest.raises(KernelBuildFailed) as caught:
        compile_variant(Variant("broken", (("BLOCK", 64),)), folder=KERNELS)
    text, log = str(caught.value), tmp_path / "kernels" / "sm90" / "failed" / "broken.txt"
    assert 'broken.cu(3): error: identifier "not_declared" is undefined' in text
    assert "-DBLOCK=64" in text
    assert str(log) in text
    assert "\n" not in text
    assert "1 error detected" in log.read_text()


@needs_compiler
def test_the_log_of_a_failed_compile_goes_elsewhere_where_the_cache_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(KernelBuildFailed) as caught:
        compile_variant(Variant("broken"), folder=KERNELS)
    log = Path(str(caught.value).rpartition("[log: ")[2].rstrip("]"))
    assert "not_declared" in log.read_text()
    log.unlink()


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedInput, match=r"absent\.cu cannot be read"):
        compile_variant(Variant("absent"), folder=tmp_path)
    (tmp_path / "a.cu").write_text('#include "gone.cuh"\n')
    with pytest.raises(UnsupportedInput, match=r"gone\.cuh cannot be read"):
        compile_variant(Variant("a"), folder=tmp_path)


def test_headers_are_found_through_headers_and_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n  # include "c.cuh"\n// #include "d.cuh"\n')
    (tmp_path / "b.cuh").write_text('#include "c.cuh"\n')
    (tmp_path / "c.cuh").write_text('#include "b.cuh"\nint c;\n')
    program = read_program(Variant("a"), folder=tmp_path)
    assert [name for name, _ in program.headers] == ["b.cuh", "c.cuh"]


def _hide_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with neither: no site folders, no toolkit; the system's own folders hold none in a test machine."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(nvrtc, "TOOLKITS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "FIRSTLIGHT_JIT"):
        monkeypatch.delenv(name, raising=False)


def test_without_any_compiler_both_are_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _hide_compilers(monkeypatch, tmp_path)
    with pytest.raises(UnsupportedInput) as caught:
        compile_variant(ONE, folder=KERNELS)
    text = str(caught.value)
    assert "neither NVRTC (libnvrtc.so.13 or .12) nor nvcc was found" in text
    assert "pip install nvidia-cuda-nvrtc" in text
    monkeypatch.setenv("FIRSTLIGHT_JIT", "nvrtc")
    with pytest.raises(UnsupportedInput, match="no NVRTC was found and FIRSTLIGHT_JIT=nvrtc takes no other"):
        find_compiler()


def test_an_unknown_name_in_the_switch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_JIT", "clang")
    with pytest.raises(UnsupportedInput, match="FIRSTLIGHT_JIT is 'clang'; accepted: nvrtc, nvcc"):
        find_compiler()


def test_the_library_of_torchs_cuda_goes_before_a_newer_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "nvidia" / "cuda_nvrtc" / "lib"
    folder.mkdir(parents=True)
    for name in ("libnvrtc.so.12", "libnvrtc-builtins.so.12.8", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0"):
        (folder / name).write_bytes(b"x" * 7)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    twelve, newest = nvrtc.find_nvrtc(12), nvrtc.find_nvrtc()
    assert twelve is not None
    assert newest is not None
    assert (twelve.version, newest.version) == ("12.8", "13.0")
    assert twelve.identity == "nvrtc 12.8, 7 bytes"
    monkeypatch.delenv("FIRSTLIGHT_JIT", raising=False)
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path))
    with pytest.raises(KernelBuildFailed, match="cannot be loaded"):
        compile_variant(ONE, folder=KERNELS)


def test_an_nvcc_that_does_not_answer_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "nvcc"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = nvcc.find_nvcc()
    assert found is None or found.path != str(fake)
    if shutil.which("nvcc"):
        assert found is not None
        assert os.path.basename(found.path) == "nvcc"

"""The gate: what our kernels must not have inside, and that each fault is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.errors import CouldNotLook
from firstlight.kernels.sm90.compile import Compiled, Variant, compile_variant
from tests.kernels.sm90 import gate
from tests.kernels.sm90.cases import KERNELS, needs_compiler
from tests.kernels.sm90.gate import Log, Sass, problems, read_log, read_sass

CLEAN = Sass(hgmma=(("64x8x16", 2),), arrives=1, waits=1, local_loads=0, local_stores=0, instructions=90)
CLEAN_LOG = "ptxas info    : Used 168 registers, used 1 barriers"


def found(variant: Variant) -> tuple[Sass, tuple[str, ...]]:
    compiled = compile_variant(variant, folder=KERNELS)
    sass = read_sass(compiled.cubin)
    return sass, problems(variant, compiled, sass)


@needs_compiler
def test_a_good_kernel_has_no_problems_and_its_wgmma_are_counted_by_shape() -> None:
    sass, wrong = found(Variant("one_wgmma", (("TIMES", 3),), hgmma=3))
    assert wrong == ()
    assert sass.hgmma == (("64x8x16", 3),)
    assert (sass.arrives, sass.waits) == (1, 1)


@needs_compiler
def test_another_number_of_wgmma_than_wanted_is_a_problem() -> None:
    _, wrong = found(Variant("one_wgmma", (("TIMES", 3),), hgmma=4))
    assert wrong == ("one_wgmma TIMES=3: 3 HGMMA where 4 are wanted (3 of 64x8x16)",)


@needs_compiler
def test_a_planted_spill_is_a_problem() -> None:
    sass, wrong = found(Variant("spilling"))
    assert any("bytes are spilled" in line for line in wrong)
    assert any("local memory" in line for line in wrong)
    assert sass.local_loads > 0
    assert sass.local_stores > 0


@needs_compiler
def test_an_array_in_local_memory_is_a_problem_without_a_spill() -> None:
    _, wrong = found(Variant("indexed"))
    assert not any("spilled" in line for line in wrong)
    assert any("256 bytes of stack" in line for line in wrong)
    assert any("local memory" in line for line in wrong)


@needs_compiler
def test_serialised_wgmma_are_a_problem() -> None:
    sass, wrong = found(Variant("serialised", hgmma=2))
    assert sass.arrives == 2  # one for each wgmma: none runs beside another
    assert any("C7517" in line or "C7519" in line for line in wrong)


@pytest.mark.parametrize(
    ("log", "sass", "complaint"),
    [
        ("", CLEAN, "no line of ptxas -v"),
        (f"{CLEAN_LOG}\n 8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", CLEAN, "8 bytes of stack"),
        (f"{CLEAN_LOG}\n 0 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads", CLEAN, "4 bytes are spilled"),
        (f"{CLEAN_LOG}\nptxas info : (C7510) Potential Performance Loss: wgmma", CLEAN, "C7510"),
        (CLEAN_LOG, Sass((("64x8x16", 2),), 1, 1, 1, 0, 90), "1 loads from and 0 stores to local memory"),
        (CLEAN_LOG, Sass((), 0, 0, 0, 0, 90), "0 HGMMA where 2 are wanted (none)"),
    ],
)
def test_each_fault_alone_is_a_problem(log: str, sass: Sass, complaint: str) -> None:
    variant = Variant("a", hgmma=2)
    [line] = problems(variant, Compiled(b"", log, "", ""), sass)
    assert complaint in line
    assert problems(variant, Compiled(b"", CLEAN_LOG, "", ""), CLEAN) == ()


def test_a_log_of_several_functions_tells_the_worst() -> None:
    frame = "ptxas         .     {} bytes stack frame, {} bytes spill stores, {} bytes spill loads\n"
    used = "ptxas info    : Used {} registers, used 1 barriers\n"
    log = frame.format(0, 0, 0) + used.format(40) + frame.format(16, 12, 20) + used.format(255)
    assert read_log(log) == Log(registers=255, stack_bytes=16, spilled_bytes=20, complaints=())


def test_predicated_instructions_count_and_comments_do_not() -> None:
    text = (
        "        /*0b60*/                   WARPGROUP.ARRIVE ;\n"
        "        /*0c00*/              @!P0 HGMMA.64x256x16.F32 R24, gdesc[UR12], R24 ;\n"
        "        /*0c10*/             @UP1 HGMMA.64x256x16.F32.BF16 R24, gdesc[UR12], R24, gsb0 ;\n"
        "        /*10c20*/                   HGMMA.64x64x16.F32 R24, R4, gdesc[UR12], R24 ;\n"
        "        /*10de0*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;\n"
        "        /*10df0*/                   DEPBAR.LE SB0, 0x1 ;\n"
        "        /*10e00*/             @P3  LDL.LU R1, [R1] ;\n"
        "        /*10e10*/                   STL.64 [R1], R2 ;\n"
        "// STL LDL HGMMA.64x8x16.F32\n"
    )
    assert gate.counted(text) == Sass((("64x256x16", 2), ("64x64x16", 1)), 1, 1, 1, 1, 8)


def test_without_a_disassembler_it_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gate, "TOOLKITS", str(tmp_path))
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(__import__("sys").modules, "triton", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    with pytest.raises(CouldNotLook, match="pip install triton"):
        read_sass(b"\x7fELF")


def test_a_file_that_is_no_cubin_could_not_be_read() -> None:
    with pytest.raises(CouldNotLook, match=r"did not read the cubin \(8 bytes\)"):
        read_sass(b"nonsense")

"""Every build of attention.cu is compiled and read: the faults that give no warning would show here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from firstlight.kernels.sm90.attention_variants import (
    AttentionBuild,
    GradientBuild,
    OnceBuild,
    attention_builds,
    gradient_builds,
    once_builds,
)
from firstlight.kernels.sm90.cache import built
from firstlight.kernels.sm90.compile import SOURCES, compile_variant
from firstlight.kernels.sm90.variants import MOST_SHARED_BYTES
from tests.kernels.sm90.attention_gate import Instruction, loop_faults, main_loop
from tests.kernels.sm90.cases import needs_compiler
from tests.kernels.sm90.gate import counted, disassembled, problems

HALF = AttentionBuild(128, 128, bf16=False)
LOOP = """
.L_x_1:
        /*0010*/                   WARPGROUP.ARRIVE ;
        /*0020*/                   HGMMA.64x128x16.F32 R24, gdesc[UR8], RZ, !UPT, gsb0 ;
        /*0030*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*0040*/                   MOV R152, R184 ;
        /*0050*/                   HGMMA.64x128x16.F32 R88, R152, gdesc[UR8].tnspB, R88, gsb0 ;
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*0070*/                   MUFU.EX2 R184, R24 ;
        /*0080*/                   BRA `(.L_x_1) ;
"""


@pytest.fixture(scope="module")
def kept(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("sm90")


@needs_compiler
@pytest.mark.parametrize("build", attention_builds(), ids=lambda build: str(build.variant))
def test_a_build_overlaps_softmax_and_product_and_reuses_no_register_early(
    build: AttentionBuild, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(kept))
    compiled = built(build.variant)
    text = disassembled(compiled.cubin)
    assert problems(build.variant, compiled, counted(text)) == ()
    assert loop_faults(text) == ()
    exponentials = sum(each.name == "MUFU.EX2" for each in main_loop(text))
    assert exponentials == build.block + 2  # against the maximum as it is, and against a new one


@needs_compiler
@pytest.mark.parametrize("build", gradient_builds(), ids=lambda build: str(build.variant))
def test_a_build_of_the_gradients_reuses_no_register_early(
    build: GradientBuild, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(kept))
    compiled = built(build.variant)
    text = disassembled(compiled.cubin)
    assert problems(build.variant, compiled, counted(text)) == ()
    # with two wide sums there are no registers for a product to run under the exponentials: the other warpgroup's does
    alone = build.by_key and build.head_dim == 128
    assert loop_faults(text) == (("32 of 32 MUFU.EX2 run while no product does",) if alone else ())
    assert build.shared_bytes <= MOST_SHARED_BYTES


@needs_compiler
@pytest.mark.parametrize("build", once_builds(), ids=lambda build: str(build.variant))
def test_a_build_of_the_one_pass_overlaps_exponentials_and_reuses_no_register_early(
    build: OnceBuild, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(kept))
    compiled, rows = built(build.variant), built(build.rows)
    text = disassembled(compiled.cubin)
    assert problems(build.variant, compiled, counted(text)) == ()
    assert problems(build.rows, rows, counted(disassembled(rows.cubin))) == ()
    assert loop_faults(text) == ()
    assert sum(each.name == "MUFU.EX2" for each in main_loop(text)) == 32
    assert build.shared_bytes <= MOST_SHARED_BYTES


@needs_compiler
@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("    still_needed(p, queries, args.never);\n", "", "writes into registers that a product still reads"),
        ("wgmma_wait<1>();  // the scores", "wgmma_wait<0>();  // the scores", "MUFU.EX2 run while no product does"),
    ],
)
def test_a_planted_fault_is_found(line: str, instead: str, said: str, tmp_path: Path) -> None:
    for path in SOURCES.iterdir():
        shutil.copy(path, tmp_path)
    text = (tmp_path / "attention.cu").read_text()
    assert text.count(line) == 1
    (tmp_path / "attention.cu").write_text(text.replace(line, instead))
    compiled = compile_variant(HALF.variant, folder=tmp_path)
    assert any(said in fault for fault in loop_faults(disassembled(compiled.cubin)))


def test_a_loop_as_it_should_be_has_no_faults() -> None:
    assert loop_faults(LOOP) == ()
    assert len(main_loop(LOOP)) == 8


def test_exponentials_behind_the_wait_are_counted() -> None:
    late = LOOP.replace(
        "/*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1", "/*0060*/  WARPGROUP.DEPBAR.LE gsb0, 0x0"
    )
    assert loop_faults(late) == ("1 of 1 MUFU.EX2 run while no product does",)


@pytest.mark.parametrize(
    "line", ["F2FP.F16.F32.PACK_AB R153, R1, R2", "LDG.E.128 R152, desc[UR4][R2.64]", "LDSM.16.M88.4 R150, [R1]",
             "SHFL.BFLY PT, R155, R11, 0x1, 0x1f", "IMAD.WIDE R154, R8, 0x80, R16"],
)  # fmt: skip
def test_a_write_into_a_register_in_use_is_found(line: str) -> None:
    early = LOOP.replace("MUFU.EX2 R184, R24", f"{line} ;\n        /*0075*/  MUFU.EX2 R184, R24")
    [fault] = loop_faults(early)
    assert fault.startswith("1 writes into registers that a product still reads")


def test_what_has_no_result_writes_nothing() -> None:
    assert list(Instruction("STS.128", ("[UR9]", "R184")).written()) == []
    assert list(Instruction("STG.E", ("desc[UR4][R2.64]", "R152")).written()) == []
    assert list(Instruction("FADD", ("R3", "R4", "R5")).written()) == [3]


def test_code_without_products_has_no_loop() -> None:
    assert loop_faults("") == ("no loop with products was found",)


@pytest.mark.parametrize("build", attention_builds(), ids=lambda build: str(build.variant))
def test_a_build_fits_into_shared_memory(build: AttentionBuild) -> None:
    assert build.shared_bytes <= MOST_SHARED_BYTES

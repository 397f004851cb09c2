"""The attention kernels compile for GPUs that are not here, fit their memory, keep to registers, use the matrix units.

A sample: for 9.0 both blocks, partial blocks or none, ragged ends with a head dimension of 96, 256, groups of heads and
float32; for 8.0 and 10.0 a forward and a backward pass of each block.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from firstlight.kernels.block_attention.triton.lists import CHUNK, ORDER, FillHow, count_spec, fill_spec, order_spec
from firstlight.kernels.block_attention.triton.plan import Problem, rows_spec, spec_of, tile_for
from firstlight.kernels.block_attention.triton.select import FORMATS, LONGEST_ROW, how_for, select_spec
from firstlight.kernels.block_attention.triton.tiles import Pass, Tile, candidates, choose_tile
from firstlight.kernels.triton_backend.launch import Spec, compiled_for
from firstlight.kernels.triton_backend.tiles import SHARED_BYTES, Family, family_of
from tests.kernels.block_attention.att_triton_specs import PLAIN, RAGGED

PROGRAMS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
INSTRUCTION = {(8, 0): r"mma\.sync\.aligned\.m16n8k16", (9, 0): r"wgmma\.mma_async", (10, 0): r"tcgen05\.mma\."}
TENSOR_MEMORY = 512  # columns, of a multiprocessor of 10.0
HOPPER: dict[str, Problem] = {
    "128": PLAIN,
    "128, no partial block": PLAIN._replace(has_bits=False),
    "128, ragged, head dimension 96": RAGGED,
    "128, groups of 4, bfloat16": PLAIN._replace(group=4, dtype=torch.bfloat16, head_dim=64),
    "64": PLAIN._replace(block=64),
    "64, head dimension 256": PLAIN._replace(block=64, head_dim=256),
}
# dkdv at width 128 without the branch around partial blocks, or with ragged ends: two words, written before the loop
# and read once a step or after it (cuobjdump -sass). The next smaller tile has none, and products half as wide.
SPILLED_BYTES = {("128, no partial block", Pass.DKDV): 8, ("128, ragged, head dimension 96", Pass.DKDV): 8}


def stack_bytes(kernel: Any, folder: Path) -> int:
    """Stack bytes of a thread: spilled registers and arrays that went to memory."""
    (folder / "kernel.cubin").write_bytes(kernel.asm["cubin"])
    command = [str(PROGRAMS / "cuobjdump"), "-res-usage", str(folder / "kernel.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"STACK:(\d+)", said)
    assert found is not None, said
    return int(found.group(1))


def compiled(spec: Spec, capability: tuple[int, int], folder: Path, *, spilled: int = 0) -> str:
    """The kernel's PTX, once its memory was looked at."""
    kernel = compiled_for(spec, capability)
    shared = kernel.metadata.shared
    assert shared <= SHARED_BYTES[family_of(capability)], f"{shared} bytes of shared memory"
    assert kernel.metadata.global_scratch_size == 0
    assert (kernel.metadata.tmem_size or 0) <= TENSOR_MEMORY  # beyond it the assembled kernel is empty
    assert stack_bytes(kernel, folder) <= spilled
    return str(kernel.asm["ptx"])


def spec_for(which: Pass, problem: Problem, capability: tuple[int, int]) -> Spec:
    return spec_of(which, problem, tile_for(which, problem, family_of(capability)))


@pytest.mark.parametrize("which", Pass, ids=lambda which: which.value)
@pytest.mark.parametrize("name", HOPPER)
def test_a_pass_for_9_0_uses_wgmma_and_loads_ahead_without_spilling(name: str, which: Pass, tmp_path: Path) -> None:
    spilled = SPILLED_BYTES.get((name, which), 0)
    text = compiled(spec_for(which, HOPPER[name], (9, 0)), (9, 0), tmp_path, spilled=spilled)
    assert re.search(INSTRUCTION[9, 0], text)
    assert "cp.async.cg.shared.global" in text


@pytest.mark.parametrize("which", Pass, ids=lambda which: which.value)
@pytest.mark.parametrize("block", [128, 64])
@pytest.mark.parametrize("capability", [(8, 0), (10, 0)])
def test_a_pass_compiles_for_other_gpus(capability: tuple[int, int], block: int, which: Pass, tmp_path: Path) -> None:
    text = compiled(spec_for(which, PLAIN._replace(block=block), capability), capability, tmp_path)
    assert re.search(INSTRUCTION[capability], text)


@pytest.mark.parametrize("tf32", [False, True])
def test_a_float32_pass_rounds_to_tf32_only_when_told_to(tf32: bool, tmp_path: Path) -> None:  # noqa: FBT001
    problem = PLAIN._replace(dtype=torch.float32, head_dim=32, tf32=tf32)
    text = compiled(spec_for(Pass.FORWARD, problem, (9, 0)), (9, 0), tmp_path)
    assert ("tf32" in text) == tf32


def test_the_kernels_around_the_passes_compile(tmp_path: Path) -> None:
    compiled(rows_spec(RAGGED._replace(has_grad_lse=True, wide=True)), (9, 0), tmp_path)
    compiled(order_spec(ORDER), (9, 0), tmp_path)
    for how in (FillHow(32, 64, turned=True, has_which=True), FillHow(16, 32, turned=False, has_which=True)):
        for spec in (count_spec, fill_spec):
            compiled(spec(how), (9, 0), tmp_path)
        compiled(fill_spec(how._replace(has_which=False)), (9, 0), tmp_path)
    compiled(fill_spec(FillHow(1, CHUNK, turned=False, has_which=True)), (9, 0), tmp_path)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_choosing_by_scores_compiles_and_keeps_rows_in_registers(dtype: torch.dtype, tmp_path: Path) -> None:
    for blocks in (1, 64, 1713, LONGEST_ROW):
        how = how_for(torch.empty(1, 1, 1, blocks, dtype=dtype, device="meta"))
        compiled(select_spec(how, FORMATS[dtype].whole), (9, 0), tmp_path)


def test_only_a_scale_that_is_not_positive_multiplies_every_logit_twice(tmp_path: Path) -> None:
    """exp2(scale * s - maximum) is one multiply-add for a positive scale."""
    text = compiled(spec_for(Pass.FORWARD, PLAIN._replace(block=64), (9, 0)), (9, 0), tmp_path)
    other = compiled(spec_for(Pass.FORWARD, PLAIN._replace(block=64, scale_first=True), (9, 0)), (9, 0), tmp_path)
    assert text.count("fma.rn.f32") > other.count("fma.rn.f32")


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("which", Pass, ids=lambda which: which.value)
def test_every_tile_of_the_tables_lies_in_its_block(which: Pass, family: Family) -> None:
    for block in (64, 128):
        for head_dim in (16, 24, 64, 96, 128, 200, 256):
            for size in (2, 4):
                tile = choose_tile(which, family, element_bytes=size, head_dim=head_dim, block=block)
                assert block % tile.bm == 0
                assert block % tile.bn == 0


def test_the_tiles_worth_timing_hold_those_of_the_tables() -> None:
    for which in (Pass.FORWARD, Pass.DKDV):
        chosen = choose_tile(which, Family.SM90, element_bytes=2, head_dim=128, block=128)
        assert chosen in list(candidates(which, block=128))
    assert Tile(128, 64, 8, 3) not in list(candidates(Pass.DQ, block=64))

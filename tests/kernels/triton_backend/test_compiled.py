"""The kernels compile for GPUs that are not here, fit their shared memory, keep to registers and use the matrix units.

A sample: for 9.0 every block in one layout or the other, the transposed blocks of a backward pass, a full epilogue, few
tokens with split rows, bfloat16, float32 and sampled products; for 8.0, 8.6, 10.0 and 12.0 blocks 128 and 16.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from firstlight.kernels.triton_backend.launch import Spec, compiled_for
from firstlight.kernels.triton_backend.problem import Problem
from firstlight.kernels.triton_backend.tiles import SHARED_BYTES
from tests.kernels.triton_backend.specs import BACKWARD, FULL_EPILOGUE, PLAIN, Target, sampling

PROGRAMS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
WGMMA = r"wgmma\.mma_async\.sync\.aligned\.(m64n\d+k\d+)"
HOPPER: dict[str, tuple[Problem, str]] = {
    "128 columns": (PLAIN, "m64n256k16"),
    "128 backward": (BACKWARD._replace(tokens=True), "m64n128k16"),
    "128 epilogue": (FULL_EPILOGUE, "m64n256k16"),
    "128 bfloat16, 16 tokens": (PLAIN._replace(tokens=True, dtype=torch.bfloat16, n=16), "m64n16k16"),
    "64 tokens": (PLAIN._replace(block=64, tokens=True), "m64n256k16"),
    "64 tokens, half full": (PLAIN._replace(block=64, tokens=True, entries=8192), "m64n128k16"),
    "32 columns": (PLAIN._replace(block=32), "m64n32k16"),
    "32 tokens, half full": (PLAIN._replace(block=32, tokens=True, entries=32768), "m64n256k16"),
    "16 columns": (PLAIN._replace(block=16), "m64n16k16"),
    "16 columns, half full": (PLAIN._replace(block=16, entries=131072), "m64n256k16"),
    "16 tokens": (PLAIN._replace(block=16, tokens=True), "m64n256k16"),
}
OTHERS: dict[tuple[int, int], str] = {
    (8, 0): r"mma\.sync\.aligned\.m16n8k16",
    (8, 6): r"mma\.sync\.aligned\.m16n8k16",
    (10, 0): r"tcgen05\.mma\.",
    (12, 0): r"mma\.sync\.aligned\.m16n8k16",
}


SPILLED_BYTES = {"128 epilogue": 96}  # an addend tile beside the accumulator, after the loop


def spilled_bytes(kernel: Any, folder: Path) -> int:
    """Stack bytes of a thread: spilled registers and arrays that went to memory."""
    (folder / "kernel.cubin").write_bytes(kernel.asm["cubin"])
    command = [str(PROGRAMS / "cuobjdump"), "-res-usage", str(folder / "kernel.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"STACK:(\d+)", said)
    assert found is not None, said
    return int(found.group(1))


def compiled(spec: Spec, target: Target, folder: Path, *, spilled: int = 0) -> str:
    """The kernel's PTX, once its memory was looked at."""
    kernel = compiled_for(spec, target.capability)
    assert kernel.metadata.shared <= SHARED_BYTES[target.gpu.family], f"{kernel.metadata.shared} bytes of shared memory"
    assert kernel.metadata.global_scratch_size == 0
    if target.capability < (10, 0):  # the wheel's cuobjdump is older than what assembles for the newer ones
        assert spilled_bytes(kernel, folder) <= spilled
    return str(kernel.asm["ptx"])


@pytest.mark.parametrize("name", HOPPER)
def test_a_product_for_9_0_uses_wgmma_without_spilling(name: str, tmp_path: Path) -> None:
    problem, instruction = HOPPER[name]
    target = Target((9, 0))
    spilled = SPILLED_BYTES.get(name, 0)
    texts = [compiled(spec, target, tmp_path, spilled=spilled) for spec in target.specs(problem)]
    assert instruction in {found for text in texts for found in re.findall(WGMMA, text)}
    assert any("cp.async.bulk.tensor" in text for text in texts)


@pytest.mark.parametrize("tf32", [False, True])
def test_a_float32_product_rounds_to_tf32_only_when_told_to(tf32: bool, tmp_path: Path) -> None:  # noqa: FBT001
    target = Target((9, 0))
    problem = PLAIN._replace(block=64, dtype=torch.float32, tf32=tf32, tokens=True)
    [text] = [compiled(spec, target, tmp_path) for spec in target.specs(problem)]
    assert ("tf32" in text) == tf32


@pytest.mark.parametrize("block", [128, 32])
def test_a_sampled_product_for_9_0_does_not_spill(block: int, tmp_path: Path) -> None:
    target = Target((9, 0))
    text = compiled(target.sampled(sampling(block)), target, tmp_path)
    assert ("wgmma" in text) == (block >= 64)


@pytest.mark.parametrize("block", [128, 16])
@pytest.mark.parametrize("capability", OTHERS)
def test_a_product_compiles_for_other_gpus(capability: tuple[int, int], block: int, tmp_path: Path) -> None:
    target = Target(capability)
    texts = [compiled(spec, target, tmp_path) for spec in target.specs(PLAIN._replace(block=block))]
    assert any(re.search(OTHERS[capability], text) for text in texts)
    assert any("cp.async.bulk.tensor" in text for text in texts) == (capability >= (9, 0))

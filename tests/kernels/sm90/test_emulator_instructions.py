"""Copies, products, matrices and 16-bit numbers of the emulator against their definitions, written out in torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.run import EmulatedFault, emulated_map
from tests.kernels.sm90.emulator.tiny import tiny

pytestmark = needs_compiler
SPANS = (128, 64, 32)
WAIT = """if (t == 0) { barrier_init(base, 1); barriers_ready(); } __syncthreads();
u32 box = base + 1024;
if (t == 0) { %s barrier_expect(base, a[3]); }
barrier_wait(base, 0);
for (int i = t; i < (int)a[3]; i += 128) ((unsigned char*)a[0])[i] = memory[1024 + i];"""
PLACES = """int x = (int)a[1], y = (int)(a[1] >> 32), z = (int)a[2];
if (a[4] == 3) %(verb)s_3d(%(before)s x, y, z);
else if (a[4] == 4) %(verb)s_4d(%(before)s x, y, z, 1);
else %(verb)s_5d(%(before)s x, y, z, 1, 0);"""
LOADED = WAIT % (PLACES % {"verb": "load_box", "before": "box, &args.map, base, "})
STORED = (
    "for (int i = t; i < (int)a[3]; i += 128) memory[i] = ((unsigned char*)a[0])[i];"
    "publish_shared(); meet(1); if (t == 0) { %s commit_stores(); stores_done(); }"
) % (PLACES % {"verb": "store_box", "before": "&args.map, base, "})


def swizzled(rows: Tensor, span: int) -> Tensor:
    """[rows, span / 2] as it lies in shared memory: 16-byte chunks of a row change places, by the number of the row."""
    if span == 0:
        return rows.contiguous()
    chunks = span // 16
    moved = rows.reshape(rows.shape[0], chunks, 8).clone()
    for row in range(rows.shape[0]):
        by = row // (8 // chunks) % chunks
        for chunk in range(chunks):
            moved[row, chunk ^ by] = rows[row].reshape(chunks, 8)[chunk]
    return moved.reshape(rows.shape)


def box_of(tensor: Tensor, at: tuple[int, ...], box: tuple[int, ...]) -> Tensor:
    """What a box holds, zero outside of the tensor; at and box innermost first."""
    found = torch.zeros(box[::-1], dtype=tensor.dtype)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in box[::-1])).tolist():
        where = tuple(first + step for first, step in zip(at[::-1], place, strict=True))
        if all(0 <= index < size for index, size in zip(where, tensor.shape, strict=True)):
            found[tuple(place)] = tensor[where]
    return found


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("span", [0, *SPANS])
def test_boxes_are_loaded_and_stored_swizzled_and_cut_at_the_edges(rank: int, span: int) -> None:
    width = span // 2 or 24
    shape = (2, 3, 2, 10, width + 8)[5 - rank :]
    tensor = torch.randn(shape).half()
    strides = tuple(2 * step for step in tensor.stride()[::-1][1:])
    box = (width, 8, 2, 1, 1)[:rank]
    made = emulated_map(tensor.data_ptr(), "float16", shape[::-1], strides, box, span)
    for x, y in ((0, 0), (8, 1), (-3, -2), (16, 5)):
        at = (x, y, 0, 1, 0)[:rank]
        numbers = ((x & 0xFFFFFFFF) | (y & 0xFFFFFFFF) << 32, 0, width * 32, rank)
        out = torch.empty(16, width, dtype=torch.float16)
        tiny(LOADED, out.data_ptr(), *numbers, tensor_map=made)
        wanted = box_of(tensor, at, box).reshape(16, width)
        assert torch.equal(out, swizzled(wanted, span)), f"at {at}"
        target = tensor.clone()
        lines = torch.randn(16, width).half()
        image = swizzled(lines, span)
        to = emulated_map(target.data_ptr(), "float16", shape[::-1], strides, box, span)
        tiny(STORED, image.data_ptr(), *numbers, tensor_map=to, seed=rank)
        # what was stored and lies inside comes back, the rest is as it was
        mark = torch.ones_like(tensor)
        inside = box_of(mark, at, box).bool()
        assert torch.equal(box_of(target, at, box)[inside], lines.reshape(box[::-1])[inside]), f"at {at}"
        assert int((target != tensor).sum()) <= int(inside.sum())


def operand(matrix: Tensor, span: int, *, turned: int) -> Tensor:
    """[lines, K] with K = span / 2 as wgmma wants it; turned: lines contiguous, in sections of span / 2 lines."""
    if not turned:
        return swizzled(matrix, span)
    sections = torch.split(matrix.T, span // 2, dim=1)
    return torch.cat([swizzled(section.contiguous(), span) for section in sections])


MULTIPLY = """
int span = (int)a[3], a_turned = a[4] & 1, b_turned = a[4] >> 1 & 1, registers = a[4] >> 2 & 1, depth = span / 2;
for (int i = t; i < 64 * depth; i += 128) ((u16*)memory)[i] = ((const u16*)a[0])[i];
for (int i = t; i < 256 * depth; i += 128) ((u16*)(memory + 8192))[i] = ((const u16*)a[1])[i];
publish_shared();
meet(1);
float d[128];
u32 fragments[4][4];
for (int i = 0; i < 128; i++) d[i] = 0.5f;
for (int k = 0; k < depth / 16; k++)
  for (int i = 0; i < 4; i++)
    fragments[k][i] = *(const u32*)(
        (const u16*)a[5] + (warp * 16 + lane / 4 + (i & 1) * 8) * depth + k * 16 + lane % 4 * 2 + (i >> 1) * 8);
wgmma_fence();
for (int k = 0; k < depth / 16; k++) {
  u64 x = described(base + (a_turned ? k * 16 * span : k * 32), depth * span, 8 * span, span);
  u64 y = described(base + 8192 + (b_turned ? k * 16 * span : k * 32), depth * span, 8 * span, span);
  if (registers) b_turned ? wgmma_registers<1>(d, fragments[k], y) : wgmma_registers<0>(d, fragments[k], y);
  else if (a_turned) b_turned ? wgmma_shared<1, 1, 1>(d, x, y) : wgmma_shared<1, 0, 1>(d, x, y);
  else b_turned ? wgmma_shared<0, 1, 1>(d, x, y) : wgmma_shared<0, 0, 1>(d, x, y);
}
wgmma_commit();
if (a[6]) wgmma_wait<0>();
for (int i = 0; i < 128; i++)
  ((float*)a[2])[(warp * 16 + lane / 4 + (i >> 1 & 1) * 8) * 256 + (i >> 2) * 8 + lane % 4 * 2 + (i & 1)] = d[i];
wgmma_wait<0>();
"""
DESCRIBED = """
__device__ __forceinline__ u64 described(u32 start, u32 leading, u32 stride, int span) {
  u64 swizzle = span == 128 ? 1 : span == 64 ? 2 : 3;
  return (u64)(start >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | swizzle << 62;
}"""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("span", SPANS)
def test_products_of_operands_that_lie_either_way(span: int, dtype: torch.dtype) -> None:
    depth = span // 2
    generator = torch.Generator().manual_seed(span)
    left, right = (torch.randn(lines, depth, generator=generator).to(dtype) for lines in (64, 256))
    for ways in (0, 1, 2, 3, 4, 6):  # bits: A turned, B turned, A from registers
        one, other = operand(left, span, turned=ways & 1), operand(right, span, turned=ways >> 1 & 1)
        out = torch.full((64, 256), math.nan)
        addresses = (one.data_ptr(), other.data_ptr(), out.data_ptr(), span, ways, left.data_ptr(), 1)
        tiny(
            MULTIPLY,
            *addresses,
            shared_bytes=49152,
            before=DESCRIBED,
            seed=ways,
            TOKENS=256,
            BF16=int(dtype is torch.bfloat16),
        )
        torch.testing.assert_close(out, 0.5 + left.float() @ right.float().T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_accumulators_that_are_read_before_the_wait_are_spoilt(seed: int) -> None:
    zeros, out = torch.zeros(256, 64).half(), torch.full((64, 256), 0.5)
    addresses = (zeros.data_ptr(), zeros.data_ptr(), out.data_ptr(), 128, 0, zeros.data_ptr(), 0)
    tiny(MULTIPLY, *addresses, shared_bytes=49152, before=DESCRIBED, seed=seed, TOKENS=256)
    assert not (out.abs() < 1e20).any(), "NaN, or very large"


def test_a_kernel_that_ends_before_its_products_is_told() -> None:
    body = "float d[32] = {}; wgmma_fence(); wgmma_shared<0, 0, 1>(d, %s, operand<128>(base, 16));"
    with pytest.raises(EmulatedFault, match=r"wgmma_shared: the thread block ended without a wait for this product"):
        tiny(body % "operand<128>(base, 16)", shared_bytes=65536, TOKENS=64)
    with pytest.raises(EmulatedFault, match="different descriptors"):
        tiny(body % "operand<128>(base + lane * 1024, 16)", shared_bytes=65536, TOKENS=64)
    with pytest.raises(EmulatedFault, match="the warps of a warpgroup issue different products"):
        tiny(body % "operand<128>(base + warp * 1024, 16)", shared_bytes=65536, TOKENS=64)


@pytest.mark.parametrize("turned", ["", "_turned"])
def test_matrices_go_to_registers_and_back(turned: str) -> None:
    source = torch.arange(256, dtype=torch.int16).view(4, 8, 8)
    loaded, back = torch.zeros(4, 8, 8, dtype=torch.int16), torch.zeros(4, 8, 8, dtype=torch.int16)
    tiny(
        f"""((uint4*)memory)[lane] = ((const uint4*)a[0])[lane];
        __syncwarp();
        u32 r[4];
        load_matrices{turned}(base + lane * 16, r);
        for (int i = 0; i < 4; i++) ((u32*)a[1])[i * 32 + lane] = r[i];
        store_matrices{turned}(base + 1024 + lane * 16, r);
        __syncwarp();
        ((uint4*)a[2])[lane] = ((const uint4*)(memory + 1024))[lane];""",
        source.data_ptr(), loaded.data_ptr(), back.data_ptr(), threads=32,
    )  # fmt: skip
    assert torch.equal(loaded, source.mT if turned else source)
    assert torch.equal(back, source)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_numbers_round_as_torch_rounds(dtype: torch.dtype) -> None:
    every = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    near = torch.cat([every.float() * factor for factor in (1.0, 1.0 + 2**-9, 1.0 - 2**-12, 1.0 + 2**-11)])
    near = torch.cat([near, torch.randn(65536) * 1e-7, torch.randn(65536) * 7e4])
    out, wide = torch.zeros(near.numel(), dtype=dtype), torch.zeros(65536)
    tiny(
        """for (long long i = t; i < (long long)a[3]; i += 128) ((u16*)a[1])[i] = narrow(((const float*)a[0])[i]);
        for (int i = t; i < 65536; i += 128) ((float*)a[2])[i] = number((u16)(i ^ 0x8000));""",
        near.data_ptr(), out.data_ptr(), wide.data_ptr(), near.numel(), BF16=int(dtype is torch.bfloat16),
    )  # fmt: skip
    torch.testing.assert_close(out, near.to(dtype), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(wide, every.float(), rtol=0, atol=0, equal_nan=True)

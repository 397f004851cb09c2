"""The public functions: what they take and refuse, merging, autocast, and how they are exported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import firstlight.kernels
from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockMask, CopiedInput, attention, explain_attention, merge_attention
from tests.kernels.block_attention.att_cases import (
    Causal,
    alone,
    assert_attends,
    attended,
    both,
    diagonal,
    qkv,
    scattered,
)

SIXTEEN = torch.zeros(1, 2, 16, 8)


def test_lse_comes_only_when_asked_for() -> None:
    given = qkv(70, 70)
    assert isinstance(attention(*given), Tensor)
    out, lse = both(*given)
    assert out.shape == given[0].shape
    assert (lse.shape, lse.dtype) == ((2, 4, 70), torch.float32)
    torch.testing.assert_close(alone(*given), out)


@pytest.mark.parametrize("backend", ["auto", "reference", "dense"])
@pytest.mark.parametrize("length", [1, 63, 65, 1000])
def test_ragged_lengths(backend: str, length: int) -> None:
    given = qkv(length, length, batch=1, dim=16)
    mask = BlockMask.causal(length) & (BlockMask.window(length, left=150) | BlockMask.sink(length, keys=20))
    place = torch.arange(length)
    near = (place <= place[:, None]) & ((place[:, None] - place <= 150) | (place < 20))
    assert_attends(both(*given, mask, backend=backend), attended(*given, near))


def test_the_scale_defaults_to_one_over_the_root_of_the_head_dim() -> None:
    given = qkv(20, 30, dim=24)
    assert torch.equal(both(*given)[0], both(*given, scale=24**-0.5)[0])


@pytest.mark.parametrize("backend", ["auto", "reference", "dense"])
@pytest.mark.parametrize("scale", [1e-46, 5e-324, -1e-40])
def test_a_scale_too_small_for_the_logits_is_zero_and_hides_what_is_hidden(backend: str, scale: float) -> None:
    given = qkv(70, 70, batch=1)
    for found in (both(*given, causal=True, scale=scale, backend=backend), both(*given, causal=True, scale=0.0)):
        assert_attends(found, attended(*given, diagonal(70, 70, "upper_left"), 0.0))
    doubles = qkv(20, 20, batch=1, dtype=torch.float64)
    q, k, v = doubles[0] * 1e40, doubles[1], doubles[2]
    seen = torch.ones(20, 20, dtype=torch.bool)
    assert_attends(both(q, k, v, scale=1e-40, backend=backend), attended(q, k, v, seen, 1e-40))


def test_dropout_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedInput, match=r"dropout_p is 0.1; only 0.0 is accepted. The backward pass"):
        attention(SIXTEEN, SIXTEEN, SIXTEEN, dropout_p=0.1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"q": torch.zeros(2, 16, 8)}, r"q has shape \[2, 16, 8\]; \[batch, heads, length, head dim\]"),
        ({"k": torch.zeros(2, 2, 16, 8)}, "the same batch and head dim are accepted"),
        ({"k": torch.zeros(1, 2, 16, 4)}, "the same batch and head dim are accepted"),
        ({"v": torch.zeros(1, 2, 15, 8)}, r"v has shape \[1, 2, 15, 8\]; \[1, 2, 16, 8\] is accepted"),
        ({"q": torch.zeros(1, 3, 16, 8)}, "q has 3 heads and k 2; a multiple of the key heads"),
        ({"k": torch.zeros(1, 2, 0, 8), "v": torch.zeros(1, 2, 0, 8)}, "at least one head, one key"),
        ({"k": SIXTEEN.half()}, "q is float32 and k float16; one dtype"),
        ({"q": SIXTEEN.int()}, "q is int32; accepted are float16, bfloat16, float32, float64"),
        ({"v": SIXTEEN.to("meta")}, "q is on cpu and v on meta; one device"),
        ({"k": [1.0]}, "k is a list; a tensor is accepted"),
        ({"causal": "left"}, "causal is 'left'; accepted: False, True"),
        ({"causal": 1}, "causal is 1; accepted"),
        ({"scale": "big"}, "scale is 'big'; a finite number of at most"),
        ({"scale": float("nan")}, "scale is nan; a finite number of at most"),
        ({"scale": 1e39}, r"scale is 1e\+39; a finite number of at most 1.7e\+38 or None"),
        ({"scale": 10**400}, "; a finite number of at most"),
        ({"backend": "cuda"}, "backend is 'cuda'; accepted: auto, sm90, triton, dense, reference"),
        ({"backend": "sm90"}, "backend 'sm90' was given tensors on the processor"),
        ({"backend": "triton"}, "backend 'triton' was given tensors on the processor"),
        ({"mask": torch.ones(16, 16)}, r"mask is a Tensor; .* BlockMask.from_bool\(mask\)"),
        ({"mask": "causal"}, "mask is a str; a BlockMask or None"),
        ({"mask": BlockMask.full(16, 17)}, "mask is for 16 queries and 17 keys; q has 16 and k 16"),
        ({"mask": BlockMask.full(16, device="meta")}, "q is on cpu and mask on meta"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    given: dict[str, object] = {"q": SIXTEEN, "k": SIXTEEN, "v": SIXTEEN, **changed}
    with pytest.raises(UnsupportedInput, match=said):
        attention(**given)  # type: ignore[call-overload]


def test_lists_for_each_key_head_are_refused_with_the_way_out() -> None:
    q, k, v = qkv(70, 70, heads=(4, 2))
    mask = BlockMask.from_bool(torch.ones(1, 2, 2, 2, dtype=torch.bool), block_level=True, q_len=70, k_len=70, block=64)
    with pytest.raises(UnsupportedInput, match=r"1 or 4 are accepted .*kinds.repeat_interleave\(2, 1\)"):
        attention(q, k, v, mask)


def test_an_empty_batch_gives_an_empty_result() -> None:
    out, lse = both(*qkv(20, 30, batch=0), backend="reference")
    assert out.shape == (0, 4, 20, 32)
    assert lse.shape == (0, 4, 20)
    q, k, v = (one.requires_grad_() for one in qkv(20, 30, batch=0))
    torch.autograd.backward(both(q, k, v, backend="reference")[0].sum())
    assert q.grad is not None


def test_a_head_dimension_out_of_order_is_copied_with_a_warning() -> None:
    q, k, v = qkv(70, 70)
    turned = q.mT.contiguous().mT
    with pytest.warns(CopiedInput, match="q is copied on every call because its head dimension is not contiguous"):
        found = alone(turned, k, v, backend="reference")
    torch.testing.assert_close(found, alone(q, k, v))


def test_a_misaligned_tensor_is_copied_with_a_warning() -> None:
    q, k, v = qkv(70, 70)
    moved = torch.cat([torch.zeros(1), k.flatten()])[1:].view(k.shape)
    with pytest.warns(CopiedInput, match="k is copied on every call because its first element"):
        found = alone(q, moved, v, backend="reference")
    torch.testing.assert_close(found, alone(q, k, v))


def test_a_head_dim_that_no_layout_aligns_is_not_copied(recwarn: pytest.WarningsRecorder) -> None:
    q, k, v = torch.randn(3, 2, 70, 4, 6, dtype=torch.float16).transpose(2, 3).unbind(0)
    assert_attends(both(q, k, v, backend="reference"), attended(q, k, v, torch.ones(70, 70, dtype=torch.bool)))
    assert not [one for one in recwarn.list if one.category is CopiedInput]


@pytest.mark.parametrize("backend", ["reference", "dense"])
@pytest.mark.filterwarnings("ignore::firstlight.kernels.checks.CopiedInput")
def test_the_output_is_laid_out_as_q_or_with_contiguous_rows(backend: str) -> None:
    q, k, v = qkv(70, 70)
    shared = q[:, :1].expand(-1, 4, -1, -1)
    for given in (shared, q.mT.contiguous().mT, q.transpose(0, 2).contiguous().transpose(0, 2)):
        out, lse = both(given, k, v, backend=backend)
        assert out.stride(3) == 1
        assert lse.is_contiguous()
        assert_attends((out, lse), attended(given, k, v, torch.ones(70, 70, dtype=torch.bool)))


def test_autocast_casts_the_operands_and_leaves_float64_alone() -> None:
    q, k, v = qkv(70, 70)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = alone(q, k, v, causal=True)
        double = alone(q.double(), k.double(), v.double(), causal=True)
    assert found.dtype == torch.bfloat16
    assert double.dtype == torch.float64
    assert torch.equal(found, alone(q.bfloat16(), k.bfloat16(), v.bfloat16(), causal=True))


def test_under_autocast_queries_turned_in_float32_meet_bfloat16_values() -> None:
    q, k, v = qkv(70, 70)
    right = alone(q.bfloat16(), k.bfloat16(), v.bfloat16(), causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(alone(q, k, v.bfloat16(), causal=True), right)
        assert explain_attention(q, k, v=v.bfloat16(), causal=True).backend
        with pytest.raises(UnsupportedInput, match="q is int64"):
            alone(q.long(), k, v)
    with pytest.raises(UnsupportedInput, match="one dtype is accepted"):
        alone(q, k, v.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_parts_over_disjoint_keys_merge_to_the_whole(dtype: torch.dtype) -> None:
    q, k, v = qkv(150, 200, dtype=dtype)
    blocks = scattered(2, 4, 3, 4)
    mask = BlockMask.from_bool(blocks, block_level=True, q_len=150, k_len=200, block=64)
    parts = []
    for begin, end in ((0, 64), (64, 128), (128, 200)):
        these = blocks[..., begin // 64 : -(-end // 64)]
        part = BlockMask.from_bool(these, block_level=True, q_len=150, k_len=end - begin, block=64)
        parts.append(both(q, k[:, :, begin:end], v[:, :, begin:end], part))
    out, lse = merge_attention(parts)
    assert out.dtype == dtype
    assert_attends((out, lse), attended(q, k, v, mask.to_bool()))


def test_one_part_merges_to_itself() -> None:
    part = both(*qkv(100, 50), BlockMask.window(100, 50, left=10, block=64))
    for one, other in zip(merge_attention([part]), part, strict=True):
        assert torch.equal(one, other)


def test_merging_huge_sums_does_not_overflow() -> None:
    out = torch.ones(1, 1, 2, 4)
    low, high = torch.full((1, 1, 2), -9e4), torch.full((1, 1, 2), 9e4)
    merged, lse = merge_attention([(out, low), (3 * out, high)])
    assert torch.equal(merged, 3 * out)
    assert torch.equal(lse, high)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "parts is empty; a list with at least one"),
        (None, "parts is a NoneType; a list with at least one"),
        (iter([(SIXTEEN, SIXTEEN[..., 0])]), "parts is a list_iterator; a list with at least one"),
        ([(SIXTEEN.int(), SIXTEEN[..., 0])], "out of part 0 is int32; accepted are float16"),
        ([SIXTEEN], "part 0 is a Tensor; pairs"),
        ([(SIXTEEN, SIXTEEN)], "lse of part 0 has shape"),
        ([(SIXTEEN, SIXTEEN[..., 0].half())], "lse of part 0 is float16; accepted are float32, float64"),
        ([(SIXTEEN, SIXTEEN[..., 0]), (SIXTEEN.half(), SIXTEEN[..., 0])], "one dtype is accepted"),
        ([(SIXTEEN, SIXTEEN[..., 0]), (SIXTEEN[:, :, 1:], SIXTEEN[:, :, 1:, 0])], "out of part 1 has shape"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: list[tuple[Tensor, Tensor]], said: str) -> None:
    with pytest.raises(UnsupportedInput, match=said):
        merge_attention(parts)


@pytest.mark.parametrize("causal", [True, "lower_right"])
def test_a_mask_changed_in_place_is_noticed_also_behind_causal(causal: Causal) -> None:
    mask = BlockMask.full(130, block=64) | BlockMask.sink(130, keys=3, block=64)
    given = qkv(130, 130)
    before = {name: both(*given, mask, causal=causal, backend=name) for name in ("reference", "dense")}
    mask.kinds[..., 1:, 0] = 0
    seen = mask.to_bool() & diagonal(130, 130, "upper_left")
    for name, old in before.items():
        found = both(*given, mask, causal=causal, backend=name)
        assert not torch.equal(found[0], old[0])
        assert_attends(found, attended(*given, seen))


def test_a_named_shape_changed_in_place_is_no_longer_that_shape() -> None:
    mask = BlockMask.causal(130, block=64)
    given = qkv(130, 130)
    assert "causal attention" in explain_attention(given[0], given[1], mask).why
    mask.kinds[..., 2, 0] = 0
    assert "causal attention" not in explain_attention(given[0], given[1], mask).why
    assert_attends(both(*given, mask, backend="dense"), attended(*given, mask.to_bool()))


def test_inference_mode() -> None:
    given = qkv(130, 130)
    with torch.inference_mode():
        mask = BlockMask.window(130, left=20, block=64)
        found = both(*given, mask, causal=True)
    assert_attends(found, attended(*given, mask.to_bool()))


def test_the_portable_kernels_are_called_and_give_the_same() -> None:
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("att_interpreted_call.py")
    done = subprocess.run([sys.executable, str(script)], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    errors = json.loads(done.stdout)
    assert len(errors) == 5
    assert max(errors) < 1e-5


def test_layers_and_the_warning_of_a_slower_path_are_found_where_the_functions_are() -> None:
    from firstlight.kernels import choose, nn

    names = ("BlockSparseLinear", "GatedBlockSparseLinear", "SlowerPath")
    assert set(names) <= set(dir(firstlight.kernels)) & set(firstlight.kernels.__all__)
    found = [getattr(firstlight.kernels, name) for name in names]
    assert found == [nn.BlockSparseLinear, nn.GatedBlockSparseLinear, choose.SlowerPath]
    script = (
        "import sys, firstlight.kernels as k; assert 'firstlight.kernels.nn' not in sys.modules; k.BlockSparseLinear"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_the_functions_are_exported_and_imported_only_when_asked_for() -> None:
    assert {"BlockMask", "attention", "merge_attention", "explain_attention"} <= set(dir(firstlight.kernels))
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        _ = firstlight.kernels.atention  # type: ignore[attr-defined]
    script = (
        "import sys, firstlight.kernels as kernels\n"
        "assert not [name for name in sys.modules if 'block_attention' in name]\n"
        "from firstlight.kernels import *\n"
        "assert attention is kernels.attention and BlockMask is kernels.BlockMask\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("backend", ["auto", "dense", "reference"])
@pytest.mark.parametrize("shape", [(0, 4, 40, 16), (1, 4, 0, 16), (0, 4, 0, 16)])
@pytest.mark.parametrize("causal", [False, True, "lower_right"])
def test_no_batch_or_no_query_gives_empty_results_and_gradients(
    causal: bool | str,  # noqa: FBT001
    shape: tuple[int, int, int, int],
    backend: str,
) -> None:
    q, k = torch.randn(shape, requires_grad=True), torch.randn(shape[0], 2, 50, 16, requires_grad=True)
    for _ in range(2):
        out, lse = attention(q, k, k, causal=causal, backend=backend, return_lse=True)
        assert (out.shape, lse.shape) == (q.shape, q.shape[:3])
        alone = attention(q, k, k, causal=causal, backend=backend)
        dq, dk = torch.autograd.grad(alone.sum() + lse.sum(), (q, k), allow_unused=True)
        assert dq is not None
        assert dk is not None
        assert (dq.shape, dk.shape) == (q.shape, k.shape)
        assert not dk.any()

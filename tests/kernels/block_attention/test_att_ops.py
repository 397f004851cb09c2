"""The registered operators: torch's own checks of them, and compiled code against eager code."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.mask import BlockMask
from tests.kernels.block_attention.att_cases import Causal, alone, both, qkv, scattered


def mask() -> BlockMask:
    blocks = scattered(2, 4, 3, 3, share=0.6)
    listed = BlockMask.from_bool(blocks, block_level=True, q_len=150, k_len=140, block=64)
    return listed & BlockMask.window(150, 140, left=70, right=5, block=64)


def arguments(**changed: object) -> tuple[object, ...]:
    q, k, v = (one.requires_grad_() for one in qkv(150, 140, dim=8, dtype=torch.float64))
    m = mask()
    named: dict[str, object] = {
        "q": q, "k": k, "v": v, "kinds": m.kinds, "which": m.which, "bits": m.bits, "q_len": 150, "k_len": 140,
        "block": 64, "most": m.most, "causal": "", "scale": 0.3, "backend": "reference",
    }  # fmt: skip
    return tuple({**named, **changed}.values())


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"kinds": None, "which": None, "bits": None, "block": 0, "most": 0, "causal": "upper_left", "backend": "dense"},
    ],
    ids=["listed", "plain"],
)
def test_torch_finds_no_fault_with_block_attention(changed: dict[str, object]) -> None:
    torch.library.opcheck(torch.ops.firstlight.block_attention.default, arguments(**changed))


def test_torch_finds_no_fault_with_block_attention_on_views_of_a_projection() -> None:
    q, k, v = (torch.randn(2, length, 4, 8).transpose(1, 2).requires_grad_() for length in (150, 140, 140))
    given = arguments(q=q, k=k, v=v)
    torch.library.opcheck(torch.ops.firstlight.block_attention.default, given)


def test_torch_finds_no_fault_with_the_backward_operator() -> None:
    q, k, v, *how = arguments()
    with torch.no_grad():
        out, lse = torch.ops.firstlight.block_attention(q, k, v, *how)
    plain = [one.detach() for one in (q, k, v) if isinstance(one, Tensor)]
    given = (torch.randn_like(out), torch.randn_like(lse), *plain, out, lse, *how)
    torch.library.opcheck(torch.ops.firstlight.block_attention_backward.default, given)


def network(m: BlockMask | None, backend: str, causal: Causal) -> Any:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = both(q.sin(), k, v, m, causal=causal, backend=backend)
        return (out * 2).sin().sum() + torch.where(lse == -torch.inf, 0.0, lse).cos().sum()

    return run


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
@pytest.mark.parametrize(("causal", "backend"), [(False, "reference"), ("lower_right", "dense"), (True, "auto")])
def test_compiled_whole_it_gives_the_results_and_gradients_of_eager_mode(
    compiler: str, causal: Causal, backend: str
) -> None:
    compare(compiler, network(mask(), backend, causal), bound=0.0)


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_compiled_without_a_mask(compiler: str) -> None:
    compare(compiler, network(None, "auto", "lower_right"), bound=0.0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++ for the processor; there is no g++")
def test_inductor_gives_the_same() -> None:
    compare("inductor", network(mask(), "reference", True), bound=1e-12)  # noqa: FBT003


def compare(compiler: str, run: Any, *, bound: float) -> None:
    torch._dynamo.reset()
    given = tuple(one.requires_grad_() for one in qkv(150, 140, dim=8, dtype=torch.float64))
    compiled: Any = torch.compile(run, fullgraph=True, backend=compiler)
    plain = run(*given)
    wanted = torch.autograd.grad(plain, given)
    for _ in range(2):
        found = compiled(*given)
        torch.testing.assert_close(found, plain, rtol=bound, atol=bound)
        for one, other in zip(torch.autograd.grad(found, given), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=bound, atol=bound)


def test_a_changed_mask_is_seen_by_compiled_code() -> None:
    torch._dynamo.reset()
    m = BlockMask.full(128, block=64)
    q, k, v = qkv(128, 128)
    compiled = torch.compile(lambda a, b, c: alone(a, b, c, m), fullgraph=True, backend="aot_eager")
    before = compiled(q, k, v)
    m.kinds[..., 1] = 0
    after = compiled(q, k, v)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, alone(q, k[:, :, :64], v[:, :, :64]))


def test_any_length_compiles_once_without_a_mask() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda a, b, c: alone(a, b, c, causal=True), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for length in (5, 70, 133):
        q, k, v = qkv(length, length)
        torch.testing.assert_close(compiled(q, k, v), alone(q, k, v, causal=True))


def test_compiled_under_autocast() -> None:
    torch._dynamo.reset()
    m, given = mask(), qkv(150, 140, dim=8)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return alone(q, k, v, m)

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        plain, _ = both(*given, m)  # as compiled code does; without lse torch 2.8 takes a kernel that rounds otherwise
    with torch.no_grad():
        found = run(*given)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, plain)


def test_fake_tensors_get_shapes_and_no_numbers() -> None:
    with FakeTensorMode():
        q, k, v = (torch.empty(2, length, 4, 8, dtype=torch.float16).transpose(1, 2) for length in (150, 140, 140))
        out, lse = both(q, k, v, causal=True)
    assert (tuple(out.shape), out.dtype, out.stride()) == ((2, 4, 150, 8), torch.float16, q.stride())
    assert (tuple(lse.shape), lse.dtype) == ((2, 4, 150), torch.float32)


def test_the_meta_device_gets_shapes() -> None:
    q, k, v = (torch.empty(2, 4, length, 8, device="meta") for length in (150, 140, 140))
    assert alone(q, k, v).shape == q.shape


def test_a_second_derivative_of_compiled_code_is_refused_with_the_way_out() -> None:
    q, *rest = arguments()
    assert isinstance(q, Tensor)
    out, _ = torch.ops.firstlight.block_attention(q, *rest)
    [grad] = torch.autograd.grad(out.sin().sum(), [q], create_graph=True)
    with pytest.raises(UnsupportedInput, match="first derivatives are accepted there"):
        torch.autograd.grad(grad.sum(), [q])


def test_export_holds_the_operator() -> None:
    class Layer(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return alone(q, k, v, causal=True)

    q, k, v = qkv(70, 70)
    program = torch.export.export(Layer(), (q, k, v))
    assert "firstlight.block_attention" in str(program.graph)
    torch.testing.assert_close(program.module()(q, k, v), alone(q, k, v, causal=True))


def test_masks_that_compiled_code_makes_one_after_the_other_are_each_its_own() -> None:
    """Compiled code makes the second mask in the tensors of the first, and no version counts that."""
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(1, 1, 192, 16, generator=generator) for _ in range(3)]
    scores = [torch.rand(1, 1, 3, 3, generator=generator) for _ in range(3)]

    def layers(inputs: list[Tensor], scores: list[Tensor]) -> Tensor:
        out = torch.zeros_like(inputs[0])
        for one, score in zip(inputs, scores, strict=True):
            mask = BlockMask.top_k(score, 1, q_len=192, k_len=192, block=64)
            out = out + alone(one, one, one, mask, backend="reference")
        return out

    compiled = torch.compile(layers, fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(inputs, scores), layers(inputs, scores))

"""What is compared: masks and shapes, the tensors of one case, and float64's answer for a few of its heads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.kernels import BlockMask

HEAD_DIM, WINDOW, SINK = 128, 1024, 128
CHECKED_HEADS = 2  # of the first batch: their every element is held against float64


class Case(NamedTuple):
    """One comparison, e.g. Case('causal', (4, 32, 8192), 'causal', backward=True)."""

    name: str
    shape: tuple[int, int, int]  # batch, heads, queries (as many keys)
    mask: str  # full, causal, window, sink or lists
    density: float = 0.0  # of lists, the diagonal besides
    block: int = 128
    backward: bool = False
    dtype: torch.dtype = torch.bfloat16

    @property
    def id(self) -> str:
        """e.g. 'backward/lists 0.25/b16-h96-s4096/bfloat16'."""
        batch, heads, length = self.shape
        way = "backward" if self.backward else "forward"
        return f"{way}/{self.name}/b{batch}-h{heads}-s{length}/{str(self.dtype).removeprefix('torch.')}"


_LARGE, _LONG, _SMALL, _FAR = (16, 96, 4096), (4, 32, 8192), (4, 16, 4096), (1, 32, 16384)
_MASKS = (
    ("causal", _LONG, "causal", 0.0), ("full", _LONG, "full", 0.0), ("causal", _SMALL, "causal", 0.0),
    ("full", _SMALL, "full", 0.0), ("window", _FAR, "window", 0.0), ("window and sink", _FAR, "sink", 0.0),
    ("lists 0.25", _LARGE, "lists", 0.25), ("lists 0.09", _LARGE, "lists", 0.09), ("lists 0.5", _LARGE, "lists", 0.5),
)  # fmt: skip
_NARROW = (("lists of 64, 0.25", 0.25), ("lists of 64, 0.09", 0.09))
CASES = (
    *(Case(*given, backward=True) for given in _MASKS),
    *(Case(*given) for given in _MASKS),
    *(Case(name, (4, 96, 4096), "lists", share, 64, backward) for backward in (True, False) for name, share in _NARROW),
)


class Setting(NamedTuple):
    """The tensors of one case; chosen: the blocks that lists keep, [batch, heads, query blocks, key blocks]."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    mask: BlockMask
    chosen: Tensor | None


def setting_of(case: Case, device: str = "cuda") -> Setting:
    """Random numbers, the same for the same case."""
    batch, heads, length = case.shape
    random = torch.Generator(device=device).manual_seed(11)

    def normal() -> Tensor:
        return torch.randn(batch, heads, length, HEAD_DIM, dtype=case.dtype, device=device, generator=random)

    q, k, v, grad = normal(), normal(), normal(), normal()
    if case.mask != "lists":
        return Setting(q, k, v, grad, _plain_mask(case.mask, length, device), None)
    blocks = length // case.block
    chosen = torch.rand(batch, heads, blocks, blocks, device=device, generator=random) < case.density
    chosen |= torch.eye(blocks, dtype=torch.bool, device=device)
    mask = BlockMask.from_bool(chosen, block_level=True, q_len=length, k_len=length, block=case.block)
    return Setting(q, k, v, grad, mask, chosen)


def _plain_mask(name: str, length: int, device: str) -> BlockMask:
    if name == "full":
        return BlockMask.full(length, length, device=device)
    causal = BlockMask.causal(length, device=device)
    if name == "causal":
        return causal
    near = BlockMask.window(length, left=WINDOW, device=device)
    return near if name == "window" else near | (causal & BlockMask.sink(length, keys=SINK, device=device))


def lists_of(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks each row keeps, and which, ascending, as rivals want them: int32, as wide as the longest list.

    Rows of one entry have a step of 1 as well: `contiguous` leaves them any step, which FlashAttention-4 refuses.
    """
    counts = chosen.sum(-1, dtype=torch.int32)
    order = chosen.to(torch.int8).argsort(stable=True, dim=-1, descending=True).to(torch.int32)
    cut = order[..., : max(1, int(counts.max()))]
    return counts.clone(memory_format=torch.contiguous_format), cut.clone(memory_format=torch.contiguous_format)


class Answer(NamedTuple):
    """Output, and with gradients those of q, k and v, of the heads that are checked."""

    out: Tensor
    gradients: tuple[Tensor, Tensor, Tensor] | None


def exact(case: Case, setting: Setting) -> Answer:
    """By the definition in float64, one head at a time."""
    outs, grads = [], []
    for head in range(CHECKED_HEADS):
        q, k, v = (each[0, head].double().requires_grad_(case.backward) for each in setting[:3])
        scores = (q @ k.mT) * HEAD_DIM**-0.5
        out = scores.masked_fill(~_seen(case, setting, head), -torch.inf).softmax(-1) @ v
        outs.append(out.detach())
        if case.backward:
            grads.append(torch.autograd.grad(out, (q, k, v), setting.grad[0, head].double()))
    if not case.backward:
        return Answer(torch.stack(outs), None)
    dq, dk, dv = (torch.stack(each) for each in zip(*grads, strict=True))
    return Answer(torch.stack(outs), (dq, dk, dv))


def _seen(case: Case, setting: Setting, head: int) -> Tensor:
    """[queries, keys], made from the words of the case, not from our mask."""
    length = case.shape[2]
    if setting.chosen is not None:
        return setting.chosen[0, head].repeat_interleave(case.block, 0).repeat_interleave(case.block, 1)
    places = torch.arange(length, device=setting.q.device)
    behind = places[:, None] - places[None, :]
    if case.mask == "full":
        return torch.ones_like(behind, dtype=torch.bool)
    if case.mask == "causal":
        return behind >= 0
    near = (behind >= 0) & (behind <= WINDOW)
    return near | ((behind >= 0) & (places[None, :] < SINK)) if case.mask == "sink" else near


def useful_tflop(case: Case, setting: Setting) -> float:
    """Two products, with gradients five more in place of them, of the blocks that the mask lists."""
    batch, heads, length = case.shape
    products = 5 if case.backward else 2
    return products * 2 * batch * heads * length**2 * HEAD_DIM * setting.mask.density / 1e12

"""What is compared: batches of sequences of different lengths, their tensors, and float64's answer for some heads."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import NamedTuple

import torch
from benchmarks.rivals.cases import HEAD_DIM, Answer
from torch import Tensor
from torch.nn.functional import pad


class Case(NamedTuple):
    """One batch under a causal mask, e.g. Case('even', (2048,) * 16)."""

    name: str
    lengths: tuple[int, ...]
    heads: int = 32
    key_heads: int = 8
    backward: bool = False
    dtype: torch.dtype = torch.bfloat16

    @property
    def id(self) -> str:
        """e.g. 'backward/even/16 of 32768 tokens/h32-8/bfloat16'."""
        way, kind = "backward" if self.backward else "forward", str(self.dtype).removeprefix("torch.")
        return f"{way}/{self.name}/{len(self.lengths)} of {self.tokens} tokens/h{self.heads}-{self.key_heads}/{kind}"

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return sum(self.lengths)

    @property
    def group(self) -> int:
        """Query heads for one of keys; these, and their one, are held against float64."""
        return self.heads // self.key_heads

    @property
    def real_share(self) -> float:
        """Of a batch padded to its longest sequence, how much is no padding."""
        return self.tokens / (len(self.lengths) * max(self.lengths))


def _drawn(count: int, middle: int, most: int, seed: int) -> tuple[int, ...]:
    draws = random.Random(seed)
    return tuple(min(most, max(16, round(draws.lognormvariate(math.log(middle), 0.9)))) for _ in range(count))


_BATCHES = (
    ("documents", _drawn(48, 700, 4096, seed=3)), ("one long", (8192, *_drawn(23, 250, 1024, seed=5))),
    ("short", _drawn(256, 120, 512, seed=7)), ("even", (2048,) * 16),
)  # fmt: skip
CASES = tuple(Case(name, lengths, backward=way) for name, lengths in _BATCHES for way in (False, True))


class Setting(NamedTuple):
    """The tensors of one case, [tokens, heads, head dim], and where each sequence begins and the last one ends."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    offsets: Tensor


def setting_of(case: Case, device: str = "cuda") -> Setting:
    """Random numbers, the same for the same case."""
    made = torch.Generator(device=device).manual_seed(11)

    def normal(heads: int) -> Tensor:
        return torch.randn(case.tokens, heads, HEAD_DIM, dtype=case.dtype, device=device, generator=made)

    offsets = pad(torch.tensor(case.lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32), (1, 0)).to(device)
    return Setting(normal(case.heads), normal(case.key_heads), normal(case.key_heads), normal(case.heads), offsets)


def exact(case: Case, setting: Setting) -> Answer:
    """By the definition in float64, one sequence at a time: the query heads that share the first head of keys."""
    outs, grads = [], []
    for first, end in pairwise(setting.offsets.tolist()):
        q, grad = (each[first:end, : case.group].transpose(0, 1).double() for each in (setting.q, setting.grad))
        k, v = (each[first:end, :1].transpose(0, 1).double() for each in (setting.k, setting.v))
        q, k, v = (each.requires_grad_(case.backward) for each in (q, k, v))
        hidden = torch.ones(end - first, end - first, dtype=torch.bool, device=q.device).triu(1)
        out = ((q @ k.mT) * HEAD_DIM**-0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v
        outs.append(out.detach().transpose(0, 1))
        if case.backward:
            grads.append([each.transpose(0, 1) for each in torch.autograd.grad(out, (q, k, v), grad)])
    if not case.backward:
        return Answer(torch.cat(outs), None)
    dq, dk, dv = (torch.cat(each) for each in zip(*grads, strict=True))
    return Answer(torch.cat(outs), (dq, dk, dv))


def padded(case: Case, tokens: Tensor) -> Tensor:
    """[tokens, heads, head dim] as [batch, heads, longest, head dim], zeros behind each sequence."""
    parts = tokens.split(list(case.lengths))  # type: ignore[no-untyped-call]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).transpose(1, 2).contiguous()


def unpadded(case: Case, batch: Tensor) -> Tensor:
    """The other way: what lies behind a sequence is left out."""
    return torch.cat([one[:, :length].transpose(0, 1) for one, length in zip(batch, case.lengths, strict=True)])


def useful_tflop(case: Case) -> float:
    """Two products, with gradients five in place of them, of the elements that the causal mask keeps."""
    pairs = sum(length * (length + 1) // 2 for length in case.lengths)
    return (5 if case.backward else 2) * 2 * case.heads * pairs * HEAD_DIM / 1e12

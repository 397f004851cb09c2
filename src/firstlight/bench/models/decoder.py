"""A decoder-only language model: RMS norm, rotary positions, gated feed-forward, no biases.

`prefill` reads whole prompts and fills the key and value cache, `decode` adds one token, `loss` trains. Random weights.
"""

from __future__ import annotations

import enum

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, rms_norm, scaled_dot_product_attention, silu

from firstlight.bench.model_counts import DecoderShape

EPSILON = 1e-5
ROTARY_BASE = 10000.0


class Mask(enum.Enum):
    """Which keys a query sees."""

    CAUSAL = "causal"
    NONE = "none"


class DecoderLayer(nn.Module):
    """One layer, normalised before attention and before the feed-forward."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        joined = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        self.attention_norm = nn.Parameter(torch.empty(shape.width))
        self.qkv = nn.Linear(shape.width, joined, bias=False)
        self.joined = nn.Linear(shape.width, shape.width, bias=False)
        self.ff_norm = nn.Parameter(torch.empty(shape.width))
        self.gate_and_up = nn.Linear(shape.width, 2 * shape.ff, bias=False)
        self.down = nn.Linear(shape.ff, shape.width, bias=False)

    def split(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [batch, heads, seq, head_dim] of the normalised input, positions applied."""
        batch, seq, width = x.shape
        joined = self.qkv(rms_norm(x, (width,), self.attention_norm, EPSILON))
        heads = joined.view(batch, seq, self.heads + 2 * self.kv_heads, self.head_dim).transpose(1, 2)
        turned, value = torch.split(heads, [self.heads + self.kv_heads, self.kv_heads], dim=1)
        query, key = torch.split(rotate(turned, turns), [self.heads, self.kv_heads], dim=1)
        return query, key, value

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """What follows attention: its projection and the feed-forward, each added to the input."""
        batch, seq, width = x.shape
        x = x + self.joined(attended.transpose(1, 2).reshape(batch, seq, width))
        gate, up = self.gate_and_up(rms_norm(x, (width,), self.ff_norm, EPSILON)).chunk(2, dim=-1)
        return x + self.down(silu(gate) * up)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Embedding, layers, norm, scores over the vocabulary."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.empty(shape.width))
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)

    def scores(self, x: Tensor) -> Tensor:
        """Scores over the vocabulary at every position given."""
        return self.head(rms_norm(x, (self.shape.width,), self.norm, EPSILON))  # type: ignore[no-any-return]

    def prefill(self, tokens: Tensor, cache: Tensor, turns: Tensor) -> Tensor:
        """Scores of the last position; keys and values of all go to cache [layers, 2, batch, heads, seq, head_dim]."""
        x = self.embedding(tokens)
        for layer, kept in zip(self.layers, cache, strict=True):
            query, key, value = layer.split(x, turns)  # type: ignore[operator]
            kept[0].copy_(key)
            kept[1].copy_(value)
            x = layer.finish(x, attend(query, key, value, mask=Mask.CAUSAL))  # type: ignore[operator]
        return self.scores(x[:, -1:])

    def decode(self, tokens: Tensor, cache: Tensor, turns: Tensor) -> Tensor:
        """Scores after one new token a sequence; the new token's place is the last of the cache."""
        x = self.embedding(tokens)
        for layer, kept in zip(self.layers, cache, strict=True):
            query, key, value = layer.split(x, turns[:, -1:])  # type: ignore[operator]
            kept[0][:, :, -1:].copy_(key)
            kept[1][:, :, -1:].copy_(value)
            x = layer.finish(x, attend(query, kept[0], kept[1], mask=Mask.NONE))  # type: ignore[operator]
        return self.scores(x)

    def loss(self, tokens: Tensor, targets: Tensor, turns: Tensor) -> Tensor:
        """Mean cross entropy over every position."""
        x = self.embedding(tokens)
        for layer in self.layers:
            query, key, value = layer.split(x, turns)  # type: ignore[operator]
            x = layer.finish(x, attend(query, key, value, mask=Mask.CAUSAL))  # type: ignore[operator]
        return cross_entropy(self.scores(x).flatten(0, 1).float(), targets.flatten())


def attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Mask) -> Tensor:
    """Attention with torch's own choice of kernel; fewer key heads than query heads are shared."""
    causal = mask is Mask.CAUSAL
    if key.shape[1] == query.shape[1]:
        return scaled_dot_product_attention(query, key, value, is_causal=causal)
    return scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)


def rotate(heads: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions: pairs (i, i + half) of each head turned by the angle of their position, in three kernels."""
    low, high = heads.chunk(2, dim=-1)
    cosine, signed_sine = turns
    return torch.addcmul(heads * cosine, torch.cat((high, low), dim=-1), signed_sine)


def rotary_turns(seq: int, head_dim: int, *, dtype: torch.dtype, device: str) -> Tensor:
    """Cosine, and sine with the sign of each half, of every position and element: [2, seq, head_dim]."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
    angles = torch.arange(seq, dtype=torch.float64, device=device)[:, None] * ROTARY_BASE**-pairs
    cosine = torch.cat((angles.cos(), angles.cos()), dim=1)
    return torch.stack((cosine, torch.cat((-angles.sin(), angles.sin()), dim=1))).to(dtype)


def build(shape: DecoderShape, *, dtype: torch.dtype, device: str, random: torch.Generator) -> Decoder:
    """A model with weights drawn on the device."""
    with torch.device("meta"):
        model = Decoder(shape)
    model = model.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(0, module.in_features**-0.5, generator=random)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0, 1, generator=random)
        for name, parameter in model.named_parameters():
            if name.endswith("norm"):
                parameter.normal_(1, 0.1, generator=random)
    return model

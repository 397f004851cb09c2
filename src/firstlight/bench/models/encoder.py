"""A transformer encoder: self-attention and a ReLU feed-forward, each added to its input and then normalised."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class EncoderSize:
    """Sizes of an encoder: layers 6, width 1024, heads 16, ff 2048."""

    layers: int
    width: int
    heads: int
    ff: int


class EncoderLayer(nn.Module):
    """One layer, normalised after each addition, with biases everywhere."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.joined = nn.Linear(size.width, size.width)
        self.attention_norm = nn.LayerNorm(size.width)
        self.widen = nn.Linear(size.width, size.ff)
        self.narrow = nn.Linear(size.ff, size.width)
        self.ff_norm = nn.LayerNorm(size.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, width = x.shape
        query, key, value = self.qkv(x).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        heads = scaled_dot_product_attention(query, key, value)
        x = self.attention_norm(x + self.joined(heads.transpose(1, 2).reshape(batch, seq, width)))
        return self.ff_norm(x + self.narrow(torch.relu(self.widen(x))))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """The layers one after the other."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(EncoderLayer(size) for _ in range(size.layers)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def build(size: EncoderSize, *, dtype: torch.dtype, device: str, random: torch.Generator) -> Encoder:
    """A model for inference with weights drawn on the device."""
    with torch.device("meta"):
        model = Encoder(size)
    model = model.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(0, module.in_features**-0.5, generator=random)
                module.bias.normal_(0, 0.1, generator=random)
            elif isinstance(module, nn.LayerNorm):
                module.weight.normal_(1, 0.1, generator=random)
                module.bias.normal_(0, 0.1, generator=random)
    return model.eval().requires_grad_(requires_grad=False)

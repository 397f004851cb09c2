"""The work of whole models: ResNet-50, a transformer encoder, a decoder in prefill, decode and training."""

from __future__ import annotations

import math
from collections.abc import Iterator

from firstlight.bench.operator_counts import ConvShape, Work, conv2d
from firstlight.frozen import dataclass

RESNET50_STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))  # width, blocks, output size
BATCHNORM_NUMBERS = 4  # scale, shift, running mean, running variance


def resnet50(images: int, *, element_bytes: float) -> Work:
    """ResNet-50 v1.5 at 224 x 224: 8.178 GFLOP an image, convolutions and the last layer (papers print MACs).

    Bytes are the weights, the images and the scores: what remains when every layer is fused.
    """
    flops, weights = 2 * 2048 * 1000, 2048 * 1000 + 1000
    for layer in resnet50_convolutions():
        flops += conv2d(layer, element_bytes=element_bytes).flops
        weights += layer.channels_out * layer.channels_in * layer.kernel**2 + BATCHNORM_NUMBERS * layer.channels_out
    traffic = element_bytes * (weights + images * (3 * 224 * 224 + 1000))
    return Work(images * flops, images * flops, math.ceil(traffic), "resnet50-conv-fc", "weights-and-io")


def resnet50_convolutions() -> Iterator[ConvShape]:
    """The 53 convolutions for one image, in order; the stride of a stage lies in its 3 x 3."""
    yield ConvShape(1, 3, 64, 224, 224, kernel=7, stride=2, padding=3)
    inputs, size_in = 64, 56
    for width, blocks, size in RESNET50_STAGES:
        for block in range(blocks):
            stride = size_in // size if block == 0 else 1
            yield ConvShape(1, inputs, width, size_in, size_in, kernel=1)
            yield ConvShape(1, width, width, size_in, size_in, kernel=3, stride=stride, padding=1)
            yield ConvShape(1, width, 4 * width, size, size, kernel=1)
            if block == 0:
                yield ConvShape(1, inputs, 4 * width, size_in, size_in, kernel=1, stride=stride)
            inputs, size_in = 4 * width, size


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """A transformer encoder: layers 6, width 1024, ff 2048 (torch's default), batch 8, seq 512."""

    layers: int
    width: int
    ff: int
    batch: int
    seq: int


def encoder(shape: EncoderShape, *, element_bytes: float) -> Work:
    """Forward pass, full attention: L(2BS(4d² + 2d ff) + 4BS²d), e.g. 463.9 GFLOP for 6 x 1024, ff 2048, 8 x 512."""
    weights = shape.layers * (4 * shape.width**2 + 2 * shape.width * shape.ff)
    tokens = shape.batch * shape.seq
    flops = 2 * tokens * weights + shape.layers * 4 * tokens * shape.seq * shape.width
    traffic = element_bytes * (weights + 2 * tokens * shape.width)
    return Work(flops, flops, math.ceil(traffic), "encoder-matmul", "weights-and-io")


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """A gated decoder-only model: layers 32, width 4096, heads 32, kv_heads 8, ff 14336, vocab 128256."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    ff: int
    vocab: int

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def layer_weights(self) -> int:
        """Matrix elements of one layer: q and o, k and v, and the three of the feed-forward."""
        return 2 * self.width**2 + 2 * self.width * self.kv_heads * self.head_dim + 3 * self.width * self.ff

    @property
    def matrix_weights(self) -> int:
        """Matrix elements that take part in products: all layers and the output projection."""
        return self.layers * self.layer_weights + self.width * self.vocab

    def kv_elements(self, tokens: int) -> int:
        """Elements of the key and value cache for some tokens."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens


def decoder_prefill(shape: DecoderShape, *, batch: int, seq: int, element_bytes: float) -> Work:
    """All prompts read at once, causal; scores for the last position only. dense_flops ignores the mask."""
    tokens = batch * seq
    matrices = 2 * tokens * shape.layers * shape.layer_weights + 2 * batch * shape.width * shape.vocab
    causal = 4 * batch * shape.layers * shape.width * (seq * (seq + 1) // 2)
    full = 4 * batch * shape.layers * shape.width * seq * seq
    traffic = element_bytes * (shape.matrix_weights + shape.kv_elements(tokens) + batch * shape.vocab)
    return Work(matrices + causal, matrices + full, math.ceil(traffic), "decoder-prefill-causal", "weights-kv-scores")


def decoder_decode(shape: DecoderShape, *, batch: int, context: int, element_bytes: float) -> Work:
    """One new token for each sequence after `context` cached tokens: every weight and the whole cache are read."""
    matrices = 2 * batch * shape.matrix_weights
    scores = 4 * batch * shape.layers * shape.width * (context + 1)
    cache = shape.kv_elements(batch * (context + 1))  # the old tokens are read, the new one is written
    traffic = element_bytes * (shape.matrix_weights + cache + batch * shape.vocab)
    return Work(matrices + scores, matrices + scores, math.ceil(traffic), "decoder-decode", "weights-kv-scores")


def train_step(shape: DecoderShape, *, batch: int, seq: int, element_bytes: float, recompute: int = 0) -> Work:
    """Forward and backward, 3 times the forward with scores at every position; what is recomputed is not useful work.

    `recompute` counts extra forward passes (activation checkpointing is 1): they are in dense_flops alone.
    """
    tokens = batch * seq
    matrices = 2 * tokens * shape.matrix_weights
    causal = 4 * batch * shape.layers * shape.width * (seq * (seq + 1) // 2)
    full = 4 * batch * shape.layers * shape.width * seq * seq
    # Weights are read forward and backward, gradients are written; optimizer state depends on the optimizer.
    traffic = element_bytes * 3 * shape.matrix_weights
    useful, dense = 3 * (matrices + causal), (3 + recompute) * (matrices + full)
    return Work(useful, dense, math.ceil(traffic), "decoder-train-causal", "weights-twice-gradients-once")

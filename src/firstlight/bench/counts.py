"""Every count of work in one place: operators, attention and whole models; see the modules for the formulae."""

from __future__ import annotations

from firstlight.bench.attention_counts import (
    AttentionShape,
    attention,
    attention_backward,
    attention_pairs,
    kept_pairs,
)
from firstlight.bench.model_counts import (
    DecoderShape,
    EncoderShape,
    decoder_decode,
    decoder_prefill,
    encoder,
    resnet50,
    train_step,
)
from firstlight.bench.operator_counts import (
    IN_BYTES,
    OUT_BYTES,
    ConvShape,
    Work,
    add,
    conv2d,
    conv2d_inside_share,
    copy,
    elementwise,
    fill,
    gemm,
    layernorm,
    linear,
    softmax,
    transfer,
    triad,
)

__all__ = [
    "IN_BYTES",
    "OUT_BYTES",
    "AttentionShape",
    "ConvShape",
    "DecoderShape",
    "EncoderShape",
    "Work",
    "add",
    "attention",
    "attention_backward",
    "attention_pairs",
    "conv2d",
    "conv2d_inside_share",
    "copy",
    "decoder_decode",
    "decoder_prefill",
    "elementwise",
    "encoder",
    "fill",
    "gemm",
    "kept_pairs",
    "layernorm",
    "linear",
    "resnet50",
    "softmax",
    "train_step",
    "transfer",
    "triad",
]

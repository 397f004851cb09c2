"""Small twins of every family for a processor, and the memory that buffers really take."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from firstlight.bench.attention_counts import AttentionShape
from firstlight.bench.case import Cache, Case, Place, Prepared
from firstlight.bench.cases import (
    attention,
    bandwidth,
    convolution,
    decoder,
    encoder,
    gemm,
    low_precision,
    resnet,
    rows,
)
from firstlight.bench.cases import transfer as copies
from firstlight.bench.cases.convolution import Layout
from firstlight.bench.cases.decoder import DecoderRow, Stage
from firstlight.bench.cases.encoder import EncoderRow
from firstlight.bench.cases.inference import Run
from firstlight.bench.cases.settings import Backend
from firstlight.bench.model_counts import DecoderShape
from firstlight.bench.operator_counts import ConvShape

CPU = Place("cpu", l2_bytes=0, free_bytes=4_000_000_000, capability=(0, 0))
TINY_ATTENTION = AttentionShape.square(2, 3, seq=48, head_dim=16)
TINY_DECODER = DecoderShape(layers=2, width=64, heads=4, kv_heads=4, ff=96, vocab=101)
TINY_ENCODER = EncoderRow(layers=2, width=64, heads=4, ff=96, batch=3, seq=24)
MIB = 1 << 20


def small_cases() -> tuple[Case, ...]:
    """One small case of each kind; ids follow the same scheme as the real ones."""
    return (*_products(), *_layers(), *_models())


def _products() -> tuple[Case, ...]:
    return (
        *(gemm.product_case(dtype, 96, 80, 128) for dtype in ("fp64", "fp32", "tf32", "fp16", "bf16")),
        *(gemm.batched_case(dtype, 3, size=64) for dtype in ("fp16", "bf16", "tf32")),
        low_precision.fp8_case(256, low_precision.Sums.FP32),
        low_precision.int8_case(256),
        *(bandwidth.stream_case(name, "fp32", MIB) for name in ("copy", "add", "triad", "read")),
        bandwidth.stream_case("add", "fp16", MIB),
        *(copies.host_case(way, memory, 1) for way in ("h2d", "d2h") for memory in ("pinned", "pageable")),
    )


def _layers() -> tuple[Case, ...]:
    dense = ConvShape(3, 4, 6, 12, 12, kernel=3, padding=1)
    wide = ConvShape(2, 3, 5, 16, 16, kernel=7, padding=3)
    depthwise = ConvShape(3, 8, 8, 12, 12, kernel=3, padding=1, groups=8)
    return (
        convolution.convolution_case("fp32", Layout.NCHW, dense),
        convolution.convolution_case("tf32", Layout.NCHW, wide),
        convolution.convolution_case("fp16", Layout.NHWC, dense),
        convolution.convolution_case("fp32", Layout.NCHW, depthwise),
        convolution.convolution_case("fp16", Layout.NHWC, depthwise),
        *(
            attention.attention_case(dtype, TINY_ATTENTION, mask, backend=backend)
            for dtype, mask, backend in (
                ("fp16", "full", Backend.FLASH),
                ("fp16", "causal", Backend.FLASH),
                ("bf16", "causal", Backend.MATH),
            )
        ),
        rows.linear_case("fp16", 8, 64, 48),
        rows.linear_case("bf16", 8, 64, 48, cache=Cache.WARM),
        rows.layernorm_case("fp16", (3, 4, 64)),
        rows.softmax_case("fp16", (2, 3, 8, 32)),
    )


def _models() -> tuple[Case, ...]:
    inference = (Stage.PREFILL, Run.EAGER), (Stage.DECODE, Run.EAGER), (Stage.DECODE, Run.GRAPH)
    return (
        resnet.resnet_case("fp32", 2, run=Run.EAGER),
        encoder.encoder_case("fp16", TINY_ENCODER, run=Run.EAGER),
        encoder.encoder_case("bf16", TINY_ENCODER, run=Run.GRAPH),
        *(decoder.decoder_case("bf16", DecoderRow(TINY_DECODER, *kind, 2, 16), name="tiny") for kind in inference),
        decoder.decoder_case("fp32", DecoderRow(TINY_DECODER, Stage.TRAIN, Run.EAGER, 2, 16), name="tiny"),
    )


def bytes_of_tensors(make: Callable[[], Prepared]) -> int:
    """Memory of the tensors that exist after `make` and one round of its calls and did not before."""
    gc.freeze()  # from here on get_objects() has new objects alone
    try:
        prepared = make()
        for call in prepared.calls:
            call()
        size = sum(_storages().values())
        del prepared
        return size
    finally:
        gc.unfreeze()


def _storages() -> dict[int, int]:
    # type() rather than isinstance: torch keeps lazy objects that answer isinstance by importing half of torch.
    tensors: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    tensors += [each.grad for each in tensors if each.is_leaf and each.grad is not None]
    storages = [each.untyped_storage() for each in tensors if each.device.type != "meta"]
    return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}

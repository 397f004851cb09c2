"""A small suite for a machine without a GPU: the whole flow in seconds, nothing to be proud of."""

from __future__ import annotations

from firstlight.bench.case import Case, Effort
from firstlight.bench.cases import bandwidth, block_sparse, encoder, gemm, rows
from firstlight.bench.cases.inference import Run

MIB = 1 << 20
SMALL_ENCODER = encoder.EncoderRow(layers=2, width=256, heads=4, ff=1024, batch=4, seq=128)


def cases() -> tuple[Case, ...]:
    """fp32 product, addition, softmax, layernorm, a block-sparse layer and a small encoder."""
    return (
        gemm.product_case("fp32", 1024, 1024, 1024, devices="cpu"),
        gemm.product_case("fp32", 2048, 2048, 2048, effort=Effort.STANDARD, devices="cpu"),
        bandwidth.stream_case("copy", "fp32", 64 * MIB, devices="cpu"),
        bandwidth.stream_case("add", "fp32", 64 * MIB, devices="cpu"),
        rows.layernorm_case("fp32", (32, 128, 1024), devices="cpu"),
        rows.softmax_case("fp32", (8, 12, 256, 256), devices="cpu"),
        block_sparse.cpu_case(),
        encoder.encoder_case("fp32", SMALL_ENCODER, run=Run.EAGER, effort=Effort.QUICK, devices="cpu"),
    )

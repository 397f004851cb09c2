"""The counts of work, against the published arithmetic and against counting by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.bench.attention_counts import AttentionShape, attention, attention_backward, kept_pairs
from firstlight.bench.model_counts import (
    DecoderShape,
    EncoderShape,
    decoder_decode,
    decoder_prefill,
    encoder,
    resnet50,
    resnet50_convolutions,
    train_step,
)
from firstlight.bench.operator_counts import (
    ConvShape,
    add,
    conv2d,
    conv2d_inside_share,
    copy,
    fill,
    gemm,
    layernorm,
    linear,
    softmax,
    transfer,
    triad,
)
from firstlight.errors import BadInput

SMALL = st.integers(min_value=1, max_value=12)


def test_a_product_of_8192_cubed_is_1099_gflop_and_402_megabytes_in_fp16() -> None:
    work = gemm(8192, 8192, 8192, in_bytes=2, out_bytes=2)
    assert (work.flops, work.dense_flops, work.bytes) == (1099511627776, 1099511627776, 402653184)


@pytest.mark.parametrize(
    ("in_bytes", "out_bytes", "megabytes"),
    [(1, 2, 268.4), (0.5 + 1 / 16, 2, 209.7), (8, 8, 1610.6)],
    ids=["fp8 with bf16 out", "nvfp4 with its scales", "fp64"],
)
def test_low_precision_products_read_their_scales_and_write_bf16(
    in_bytes: float, out_bytes: float, megabytes: float
) -> None:
    assert gemm(8192, 8192, 8192, in_bytes=in_bytes, out_bytes=out_bytes).bytes / 1e6 == pytest.approx(
        megabytes, abs=0.05
    )


def test_a_batched_product_is_the_batch_times_one() -> None:
    one, many = (gemm(1024, 1024, 1024, in_bytes=2, out_bytes=2, batch=count) for count in (1, 32))
    assert (many.flops, many.bytes) == (32 * one.flops, 32 * one.bytes)
    assert many.flops / 1e9 == pytest.approx(68.719, abs=0.001)


@pytest.mark.parametrize(
    ("rows", "outputs", "gflop", "megabytes"),
    [(32, 4096, 1.074, 34.1), (32, 11008, 2.886, 91.1), (16384, 4096, 549.756, 302.0)],
)
def test_linear_layers_have_the_known_counts(rows: int, outputs: int, gflop: float, megabytes: float) -> None:
    work = linear(rows, 4096, outputs, element_bytes=2)
    assert work.flops / 1e9 == pytest.approx(gflop, abs=0.001)
    assert work.bytes / 1e6 == pytest.approx(megabytes, abs=0.1)  # the bias is in it


@pytest.mark.parametrize(
    ("shape", "gflop", "megabytes", "inside"),
    [
        (ConvShape(32, 3, 64, 224, 224, kernel=3, padding=1), 5.549, 430.3, 0.9941),
        (ConvShape(32, 64, 128, 112, 112, kernel=3, padding=1), 59.190, 308.6, 0.9881),
        (ConvShape(32, 128, 256, 56, 56, kernel=3, padding=1), 59.190, 155.3, 0.9763),
        (ConvShape(32, 256, 512, 28, 28, kernel=3, padding=1), 59.190, 81.8, 0.9529),
        (ConvShape(8, 3, 64, 512, 512, kernel=7, padding=3), 39.460, 562.1, 0.9933),
        (ConvShape(32, 64, 64, 112, 112, kernel=3, padding=1, groups=64), 0.462, 205.5, 0.9881),
    ],
)
def test_convolutions_are_counted_direct_and_the_share_inside_the_image_is_known(
    shape: ConvShape, gflop: float, megabytes: float, inside: float
) -> None:
    work = conv2d(shape, element_bytes=4)
    assert work.flops / 1e9 == pytest.approx(gflop, abs=0.001)
    assert work.bytes / 1e6 == pytest.approx(megabytes, abs=0.06)
    assert conv2d_inside_share(shape) == pytest.approx(inside, abs=0.0001)


@given(size=st.integers(1, 9), kernel=st.integers(1, 4), stride=st.integers(1, 3), padding=st.integers(0, 2))
def test_the_inside_share_is_what_counting_every_tap_gives(size: int, kernel: int, stride: int, padding: int) -> None:
    shape = ConvShape(1, 1, 1, size, size, kernel=kernel, stride=stride, padding=padding)
    if shape.out_height < 1:
        return
    places = [place * stride - padding + tap for place in range(shape.out_height) for tap in range(kernel)]
    inside = sum(0 <= place < size for place in places)
    assert conv2d_inside_share(shape) == pytest.approx((inside / len(places)) ** 2)


def test_causal_attention_counts_what_the_mask_leaves_and_keeps_the_careless_count_beside_it() -> None:
    work = attention(AttentionShape.square(16, 96, seq=4096, head_dim=128), element_bytes=2, mask="causal")
    assert work.flops / 1e9 == pytest.approx(6598.680, abs=0.001)
    assert work.dense_flops / 1e9 == pytest.approx(13194.1, abs=0.1)
    assert work.bytes / 1e6 == pytest.approx(6442.5, abs=0.1)
    assert work.flops_model == "attention-causal"


@given(queries=SMALL, keys=SMALL, window=SMALL)
def test_the_pairs_of_every_mask_are_what_looking_at_each_pair_gives(queries: int, keys: int, window: int) -> None:
    shape = AttentionShape(1, 1, 1, queries, keys, 8, 8)
    places = [(query, key) for query in range(queries) for key in range(keys)]
    shift = keys - queries
    assert kept_pairs(shape, "full") == len(places)
    assert kept_pairs(shape, "causal") == sum(key <= query for query, key in places)
    assert kept_pairs(shape, "causal-bottom-right") == sum(key <= query + shift for query, key in places)
    seen = sum(query + shift - window < key <= query + shift for query, key in places)
    assert kept_pairs(shape, f"window-{window}") == seen


def test_the_two_causal_alignments_differ_when_the_lengths_do() -> None:
    shape = AttentionShape(1, 1, 1, 4, 10, 8, 8)
    assert (kept_pairs(shape, "causal"), kept_pairs(shape, "causal-bottom-right")) == (10, 34)


def test_a_mask_nobody_knows_is_refused_with_the_ones_that_are_known() -> None:
    with pytest.raises(BadInput, match="accepted: full, causal"):
        kept_pairs(AttentionShape.square(1, 1, seq=4, head_dim=8), "diagonal")


def test_grouped_query_attention_reads_fewer_keys_but_does_the_same_work() -> None:
    many = attention(AttentionShape.square(1, 32, seq=1024, head_dim=128), element_bytes=2)
    few = attention(AttentionShape.square(1, 32, seq=1024, head_dim=128, kv_heads=8), element_bytes=2)
    assert few.flops == many.flops
    assert few.bytes < many.bytes


def test_backward_attention_is_five_products_to_the_forwards_two() -> None:
    shape = AttentionShape.square(2, 4, seq=128, head_dim=64)
    forward, backward = (make(shape, element_bytes=2, mask="causal") for make in (attention, attention_backward))
    assert backward.flops * 2 == forward.flops * 5
    assert backward.bytes > forward.bytes


def test_streams_count_every_array_they_touch() -> None:
    elements = 2**28
    counts = {make: make(elements, element_bytes=2).bytes for make in (add, copy, fill, triad)}
    assert {make.__name__: count / elements / 2 for make, count in counts.items()} == {
        "add": 3, "copy": 2, "fill": 1, "triad": 3
    }  # fmt: skip
    assert counts[add] == 3 * 512 * 2**20
    assert transfer(1000).bytes == 1000
    assert transfer(1000).flops == 0


def test_layernorm_and_softmax_read_and_write_once() -> None:
    assert layernorm(16384, 4096, element_bytes=2).bytes / 1e6 == pytest.approx(268.4, abs=0.1)
    assert layernorm(16384, 4096, element_bytes=2).flops / 1e9 == pytest.approx(0.537, abs=0.001)
    assert softmax(4 * 32 * 4096, 4096, element_bytes=2).bytes / 1e6 == pytest.approx(8589.9, abs=0.1)
    assert softmax(4 * 32 * 4096, 4096, element_bytes=2).flops / 1e9 == pytest.approx(10.737, abs=0.001)


def test_resnet50_is_8_178_gflop_and_25_557_million_parameters() -> None:
    assert resnet50(1, element_bytes=2).flops / 1e9 == pytest.approx(8.178, abs=0.001)
    assert resnet50(64, element_bytes=2).flops == 64 * resnet50(1, element_bytes=2).flops
    layers = list(resnet50_convolutions())
    weights = sum(each.channels_out * each.channels_in * each.kernel**2 + 2 * each.channels_out for each in layers)
    assert (len(layers), weights + 2048 * 1000 + 1000) == (53, 25557032)
    assert layers[-1].out_height == 7


@pytest.mark.parametrize(
    ("ff", "batch", "seq", "gflop"),
    [
        (2048, 8, 128, 106.3),
        (2048, 8, 512, 463.9),
        (2048, 1, 4096, 824.6),
        (4096, 8, 512, 670.0),
        (4096, 1, 4096, 1030.8),
    ],
)
def test_the_encoder_has_the_known_counts(ff: int, batch: int, seq: int, gflop: float) -> None:
    work = encoder(EncoderShape(6, 1024, ff, batch, seq), element_bytes=2)
    assert work.flops / 1e9 == pytest.approx(gflop, abs=0.05)


DECODER = DecoderShape(layers=32, width=4096, heads=32, kv_heads=8, ff=14336, vocab=128256)


def test_a_decoder_with_8_billion_weights_has_7_5_billion_in_its_products() -> None:
    assert DECODER.matrix_weights / 1e9 == pytest.approx(7.505, abs=0.001)  # 8.03 with the input embedding


def test_decoding_one_token_reads_every_weight_once_and_does_two_operations_with_each() -> None:
    work = decoder_decode(DECODER, batch=1, context=0, element_bytes=2)
    assert work.flops == pytest.approx(2 * DECODER.matrix_weights, rel=0.001)
    assert work.bytes == pytest.approx(2 * DECODER.matrix_weights, rel=0.001)


def test_a_longer_context_costs_cache_reads() -> None:
    short, long = (decoder_decode(DECODER, batch=8, context=context, element_bytes=2) for context in (1000, 9000))
    assert long.bytes - short.bytes == 2 * DECODER.kv_elements(8 * 8000)


def test_prefill_and_training_count_the_causal_half_and_keep_the_dense_count() -> None:
    for work in (
        decoder_prefill(DECODER, batch=1, seq=8192, element_bytes=2),
        train_step(DECODER, batch=1, seq=8192, element_bytes=2),
    ):
        assert work.flops < work.dense_flops < 1.2 * work.flops


def test_recomputed_activations_are_no_useful_work() -> None:
    plain, again = (train_step(DECODER, batch=1, seq=2048, element_bytes=2, recompute=count) for count in (0, 1))
    assert again.flops == plain.flops
    assert again.dense_flops * 3 == plain.dense_flops * 4

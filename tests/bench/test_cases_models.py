"""The models are what they are called: sizes, work and results against independent definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from firstlight.bench.cases import decoder as decoder_cases
from firstlight.bench.cases import encoder as encoder_cases
from firstlight.bench.cases import resnet as resnet_cases
from firstlight.bench.model_counts import DecoderShape, resnet50
from firstlight.bench.models import decoder, encoder
from firstlight.bench.models.resnet50 import ResNet50


def counted_macs(model: nn.Module, given: torch.Tensor) -> int:
    """Multiply-adds of convolutions and linear layers by looking at what goes through them, on the meta device."""
    total = 0

    def count(module: nn.Module, _: Any, out: torch.Tensor) -> None:
        nonlocal total
        assert isinstance(module, (nn.Conv2d, nn.Linear))
        total += out.numel() * module.weight[0].numel()

    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(count)
    model(given)
    return total


def test_resnet50_has_25_557_million_parameters_and_4_089_gmac() -> None:
    with torch.device("meta"):
        model = ResNet50().eval()
        macs = counted_macs(model, torch.empty(1, 3, 224, 224))
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert macs == 4_089_184_256
    assert 2 * macs == resnet50(1, element_bytes=2).flops


def test_resnet50_takes_the_memory_its_cases_say() -> None:
    with torch.device("meta"):
        model = ResNet50()
    numbers = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    assert numbers == resnet_cases.NUMBERS + resnet_cases.COUNTERS


def test_resnet50_scores_stay_inside_half_precision() -> None:
    random = torch.Generator().manual_seed(3)
    model = resnet_cases.build_resnet("fp32", random)
    scores = model(torch.randn(2, 3, 224, 224, generator=random))
    assert scores.shape == (2, 1000)
    assert 0.1 < scores.std().item() < 100
    assert not torch.allclose(scores[0], scores[1], rtol=0.01)


def test_the_encoder_layer_is_the_one_torch_has() -> None:
    size = encoder.EncoderSize(layers=1, width=32, heads=4, ff=48)
    random = torch.Generator().manual_seed(5)
    ours = encoder.build(size, dtype=torch.float64, device="cpu", random=random)
    layer: Any = ours.layers[0]
    theirs: Any = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        pairs = (
            (theirs.self_attn.out_proj, layer.joined),
            (theirs.linear1, layer.widen),
            (theirs.linear2, layer.narrow),
            (theirs.norm1, layer.attention_norm),
            (theirs.norm2, layer.ff_norm),
        )
        for target, source in pairs:
            target.weight.copy_(source.weight)
            target.bias.copy_(source.bias)
        theirs.self_attn.in_proj_weight.copy_(layer.qkv.weight)
        theirs.self_attn.in_proj_bias.copy_(layer.qkv.bias)
        given = torch.randn(2, 7, 32, dtype=torch.float64, generator=random)
        assert torch.allclose(ours(given), theirs.train()(given), atol=1e-12)


@pytest.mark.parametrize(("ff", "millions"), [(2048, 50.3), (4096, 75.5)])
def test_the_encoder_has_the_weights_that_are_counted(ff: int, millions: float) -> None:
    row = encoder_cases.EncoderRow(6, 1024, 16, ff, 1, 1)
    with torch.device("meta"):
        model = encoder.Encoder(encoder.EncoderSize(6, 1024, 16, ff))
    matrices = sum(each.weight.numel() for each in model.modules() if isinstance(each, nn.Linear))
    assert round(matrices / 1e6, 1) == millions
    assert sum(each.numel() for each in model.parameters()) == encoder_cases.parameters(row)


def test_the_decoder_of_a_7b_shape_has_6_738_billion_parameters() -> None:
    with torch.device("meta"):
        model = decoder.Decoder(decoder_cases.SEVEN_B)
    numbers = sum(each.numel() for each in model.parameters())
    assert numbers == 6_738_415_616
    assert numbers == decoder_cases.parameters(decoder_cases.SEVEN_B)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_decoding_a_token_gives_what_reading_the_longer_prompt_gives(kv_heads: int) -> None:
    shape = DecoderShape(layers=3, width=64, heads=4, kv_heads=kv_heads, ff=96, vocab=53)
    random = torch.Generator().manual_seed(7)
    model = decoder.build(shape, dtype=torch.float64, device="cpu", random=random).requires_grad_(requires_grad=False)
    tokens = torch.randint(shape.vocab, (2, 9), generator=random)
    turns = decoder.rotary_turns(9, shape.head_dim, dtype=torch.float64, device="cpu")
    whole = torch.zeros((3, 2, 2, kv_heads, 9, shape.head_dim), dtype=torch.float64)
    wanted = model.prefill(tokens, whole, turns)
    cache = torch.zeros_like(whole)
    model.prefill(tokens[:, :8], cache[..., :8, :], turns[:, :8])
    assert torch.allclose(model.decode(tokens[:, 8:], cache, turns), wanted, atol=1e-10)
    assert torch.allclose(cache, whole, atol=1e-10)


def test_a_decoder_without_rotary_positions_would_not_know_order() -> None:
    heads = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    turns = decoder.rotary_turns(6, 8, dtype=torch.float64, device="cpu")
    turned = decoder.rotate(heads, turns)
    assert torch.allclose(turned[:, :, 0], heads[:, :, 0])
    assert not torch.allclose(turned[:, :, 1], heads[:, :, 1])
    assert torch.allclose(turned.norm(dim=-1), heads.norm(dim=-1))
    # What attention sees depends on the distance alone: query 3 and key 1 as query 5 and key 3 of the same numbers.
    same = heads[:, :, :1].expand(-1, -1, 6, -1)
    scores = decoder.rotate(same, turns) @ decoder.rotate(same, turns).transpose(-1, -2)
    assert torch.allclose(scores[0, 0, 3, 1], scores[0, 0, 5, 3])

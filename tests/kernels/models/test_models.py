"""attn_implementation="firstlight" gives what "eager" gives: small random models of transformers itself."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels import BlockMask
from firstlight.kernels.choose import SlowerPath
from firstlight.kernels.models import attention_calls, forget_attention_calls, register_attention
from tests.kernels.models.small_models import Batch, batch, gradients, in_parts, output, small, tokens

pytest.importorskip("transformers", reason="transformers is not installed")
BY_LISTS = "firstlight-lists"  # the reference walks the lists of a mask, where auto may hand torch a tensor
WAYS = ("firstlight", BY_LISTS)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_attention()
    register_attention(BY_LISTS, block=64, backend="reference")
    forget_attention_calls()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowerPath)
        yield


def same(found: Tensor, wanted: Tensor, given: Batch | None = None) -> None:
    """Equal at the places that are no padding, and not because everything is nearly nothing."""
    if given is not None:
        real = given.real.bool()
        found, wanted = found[real], wanted[real]
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-4 * float(wanted.abs().max()))


def same_gradients(model: Any, given: Batch) -> None:
    wanted = gradients(model, "eager", given)
    for way in WAYS:
        found = gradients(model, way, given)
        assert found.keys() == wanted.keys()
        for name, one in wanted.items():  # that of a key's bias is 0 but for rounding
            atol = max(1e-3 * float(one.abs().max()), 1e-6)
            torch.testing.assert_close(found[name], one, rtol=1e-3, atol=atol, msg=name)


def ours_alone() -> None:
    assert set(attention_calls()) == {"firstlight"}, attention_calls()


@pytest.mark.parametrize("way", WAYS)
def test_a_causal_model_of_a_length_that_is_no_multiple_of_the_block(way: str) -> None:
    model, given = small("llama"), batch(200, (0, 0))
    same(output(model, way, input_ids=given.ids), output(model, "eager", input_ids=given.ids))
    ours_alone()


@pytest.mark.parametrize(("kv_heads", "side"), [(1, "left"), (4, "right")])
def test_padding_of_a_causal_model_in_outputs_and_gradients(kv_heads: int, side: str) -> None:
    model, given = small("llama", kv_heads=kv_heads), batch(150, (0, 31, 140), side=side)
    for way in WAYS:
        same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    same_gradients(model, given)
    ours_alone()


@pytest.mark.parametrize("padding", [(0, 0), (0, 130)])
@pytest.mark.parametrize("way", WAYS)
def test_a_prompt_in_two_parts_through_a_growing_cache(way: str, padding: tuple[int, ...]) -> None:
    model, given = small("llama"), batch(187, padding)
    same(in_parts(model, way, given, 150), in_parts(model, "eager", given, 150))
    ours_alone()


@pytest.mark.parametrize("way", WAYS)
def test_a_prompt_in_two_parts_through_a_cache_that_forgets_what_the_window_leaves(way: str) -> None:
    model, given = small("mistral"), batch(160, (0, 0))
    same(in_parts(model, way, given, 100), in_parts(model, "eager", given, 100))
    ours_alone()


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "gemma3"])
def test_greedy_tokens_are_the_same_with_padding_on_the_left(family: str, cache: str | None) -> None:
    model, given = small(family), batch(45, (0, 17))
    how = {"cache_implementation": cache, "disable_compile": True} if cache else {}
    wanted = tokens(model, "eager", given, **how)
    assert len(set(wanted[0, 45:].tolist())) > 3  # it does not say one word again and again
    for way in WAYS:
        assert torch.equal(tokens(model, way, given, **how), wanted)
    assert any(told.startswith("sdpa: one query") for told in attention_calls())


def test_a_sliding_window_with_padding_in_outputs_and_gradients() -> None:
    model, given = small("mistral"), batch(150, (0, 31))
    for way in WAYS:
        same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    same_gradients(model, given)
    ours_alone()


def test_layers_of_two_kinds_have_a_mask_each() -> None:
    model, given = small("gemma3"), batch(150, (0, 31))
    for way in WAYS:
        same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    ours_alone()


def test_a_soft_cap_is_neither_dropped_nor_left_to_a_kernel_that_drops_it() -> None:
    model, given = small("gemma2"), batch(150, (0, 31), side="right")
    for way in WAYS:
        same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    same_gradients(model, given)
    assert list(attention_calls()) == ["plain: a soft-cap of 5 on the logits"]


@pytest.mark.parametrize("way", WAYS)
def test_sinks_take_their_share_in_every_way(way: str) -> None:
    model, given = small("gpt_oss"), batch(130, (0, 31))
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, std=2.0)
    same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    ours_alone()
    assert torch.equal(tokens(model, way, given), tokens(model, "eager", given))
    model.train()  # dropout is 0: ours still
    wanted, found = gradients(model, "eager", given), gradients(model, way, given)
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, rtol=1e-3, atol=1e-3 * float(one.abs().max()), msg=name)


@pytest.mark.parametrize("way", WAYS)
def test_chunks_begin_where_the_padding_ends(way: str) -> None:
    model, given = small("llama4"), batch(150, (0, 31))
    same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    ours_alone()


def test_an_encoder_with_padding_in_outputs_and_gradients() -> None:
    model, given = small("bert"), batch(150, (0, 31, 149), side="right")
    for way in WAYS:
        same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    same_gradients(model, given)
    ours_alone()


@pytest.mark.parametrize("way", WAYS)
def test_a_decoder_reads_an_encoder_with_padding(way: str) -> None:
    model, given = small("bart"), batch(100, (0, 30), side="right")
    both = {**given.inputs(), "decoder_input_ids": given.ids[:, :70]}
    same(output(model, way, **both), output(model, "eager", **both))
    ours_alone()


@pytest.mark.parametrize("way", WAYS)
def test_windows_to_both_sides_in_an_encoder(way: str) -> None:
    model, given = small("modernbert"), batch(100, (0, 30), side="right")
    same(output(model, way, **given.inputs()), output(model, "eager", **given.inputs()), given)
    ours_alone()


def test_layers_that_are_computed_again_for_their_gradients_give_the_same() -> None:
    model, given = small("mistral").train(), batch(100, (0, 30))
    wanted = gradients(model, "eager", given)
    model.gradient_checkpointing_enable()
    found = gradients(model, "firstlight", given)
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, rtol=1e-3, atol=1e-3 * float(one.abs().max()), msg=name)
    assert attention_calls() == {"firstlight": 4}


@pytest.mark.parametrize("way", WAYS)
def test_packed_texts_do_not_see_each_other(way: str) -> None:
    model, given = small("llama"), batch(150, (0,))
    places = torch.cat([torch.arange(70), torch.arange(50), torch.arange(30)])[None]
    packed = output(model, way, input_ids=given.ids, position_ids=places, use_cache=False)
    alone = [output(model, "eager", input_ids=part) for part in torch.split(given.ids, [70, 50, 30], 1)]
    same(packed, torch.cat(alone, 1))


@pytest.mark.parametrize("way", WAYS)
def test_bfloat16_is_no_farther_from_float32_than_eager_is(way: str) -> None:
    model, given = small("llama"), batch(150, (0, 31))
    real = given.real.bool()
    exact = output(model, "eager", **given.inputs())[real]
    model = model.bfloat16()
    eager, found = (output(model, each, **given.inputs())[real].float() for each in ("eager", way))
    assert (found - exact).square().mean() <= 1.2 * (eager - exact).square().mean()


@pytest.mark.parametrize("way", WAYS)
def test_training_under_autocast_where_positions_leave_queries_in_float32(way: str) -> None:
    """Rotary positions make float32 of bfloat16 queries and keys, and values stay bfloat16."""
    model, given = small("llama"), batch(130, (0, 0))
    exact = gradients(model, "eager", given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        eager, found = gradients(model, "eager", given), gradients(model, way, given)
    ours_alone()
    for name in ("model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.v_proj.weight"):
        assert (found[name] - exact[name]).norm() <= 1.1 * (eager[name] - exact[name]).norm(), name


def test_dropout_in_training_goes_to_torch_with_a_word() -> None:
    model, given = small("llama", attention_dropout=0.1).train(), batch(100, (0, 0))
    model.set_attn_implementation("sdpa")
    torch.manual_seed(3)
    wanted = model(input_ids=given.ids).logits
    model.set_attn_implementation("firstlight")
    torch.manual_seed(3)
    with pytest.warns(SlowerPath, match=r"goes to torch's scaled_dot_product_attention: dropout 0\.1"):
        found = model(input_ids=given.ids).logits
    torch.testing.assert_close(found, wanted)
    assert attention_calls() == {"sdpa: dropout 0.1 of the weights, in training": 2}


@pytest.mark.parametrize("block", [64, 128])
def test_a_mask_function_of_the_callers_is_asked_element_by_element(block: int) -> None:
    from transformers.masking_utils import create_causal_mask, sdpa_mask

    model, given = small("llama"), batch(150, (0, 31))
    model.set_attn_implementation(BY_LISTS if block == 64 else "firstlight")
    allowed = torch.rand(150, 150, generator=torch.Generator().manual_seed(5)) < 0.5
    embeds = torch.zeros(2, 150, 64)
    how: dict[str, Any] = {"inputs_embeds": embeds, "attention_mask": given.real, "past_key_values": None}
    found = create_causal_mask(model.config, **how, and_mask_function=lambda b, h, q, k: allowed[q, k])
    wanted = sdpa_mask(2, 150, 150, attention_mask=given.real.bool(), allow_is_causal_skip=False) & allowed
    assert torch.equal(found.to_bool(), wanted)
    assert found.block == block


def test_a_mask_of_the_callers_own_blocks_takes_the_place_of_the_attention_mask() -> None:
    model, given = small("mistral"), batch(300, (0, 0))
    blocks = BlockMask.causal(300, block=64) & (
        BlockMask.window(300, left=20, block=64) | BlockMask.sink(300, keys=5, block=64)
    )
    min_value = torch.finfo(torch.float32).min
    additive = torch.where(blocks.to_bool(), 0.0, min_value).expand(2, 1, -1, -1)
    wanted = output(model, "eager", input_ids=given.ids, attention_mask=additive)
    for way in WAYS:
        same(output(model, way, input_ids=given.ids, attention_mask=blocks), wanted)
    ours_alone()


def test_a_mask_that_is_a_tensor_goes_to_torch_with_a_word() -> None:
    model, given = small("llama"), batch(40, (0, 0))
    allowed = torch.rand(2, 1, 40, 40, generator=torch.Generator().manual_seed(5)) < 0.5
    additive = torch.where(allowed | torch.eye(40, dtype=torch.bool), 0.0, torch.finfo(torch.float32).min)
    wanted = output(model, "eager", input_ids=given.ids, attention_mask=additive)
    with pytest.warns(SlowerPath, match="a mask that is a tensor"):
        found = output(model, "firstlight", input_ids=given.ids, attention_mask=additive)
    same(found, wanted)


def test_weights_that_are_asked_for_are_given() -> None:
    model, given = small("llama"), batch(70, (0, 20), side="right")
    model.set_attn_implementation("eager")
    wanted = model(**given.inputs(), output_attentions=True).attentions
    model.set_attn_implementation("firstlight")
    found = model(**given.inputs(), output_attentions=True).attentions
    assert len(found) == len(wanted) == 2
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert list(attention_calls()) == ["plain: the weights were asked for (output_attentions)"]


def test_a_compiled_model_is_one_graph_and_gives_the_same() -> None:
    model, given = small("llama", num_hidden_layers=1), batch(150, (0, 31))
    wanted = output(model, "eager", **given.inputs())
    model.set_attn_implementation("firstlight")
    compiled: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        found = compiled(**given.inputs(), use_cache=False).logits
    same(found, wanted, given)


def test_transformers_is_imported_when_attention_is_registered_and_not_before() -> None:
    code = "import sys, firstlight.kernels.models; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_transformers_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnsupportedInput, match=r"transformers cannot be imported.*pip install transformers"):
        register_attention()


def test_a_block_that_no_mask_has_is_refused() -> None:
    with pytest.raises(UnsupportedInput, match="block is 32; 64 and 128 are accepted"):
        register_attention(block=32)

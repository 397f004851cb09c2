"""transformers' models on a GPU under attn_implementation="firstlight": Hopper's and Triton's kernels against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from firstlight.kernels.models import attention_calls, forget_attention_calls, register_attention
from tests.kernels.models.small_models import batch, gradients, output, small, tokens

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
pytest.importorskip("transformers", reason="transformers is not installed")
BACKENDS = ("auto", "triton", "sm90")
WIDE: dict[str, Any] = {"hidden_size": 256, "initializer_range": 0.1}  # head dim 64


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_and_gradients_are_no_farther_from_float32_than_eagers(family: str, backend: str) -> None:
    if backend == "sm90" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("sm90 runs on compute capability 9.0 alone")
    name = f"firstlight-{backend}"
    register_attention(name, backend=backend)
    model, given = small(family, **WIDE).cuda(), batch(600, (0, 150))
    given = type(given)(given.ids.cuda(), given.real.cuda())
    real = given.real.bool()
    exact, exact_gradients = output(model, "eager", **given.inputs())[real], gradients(model, "eager", given)
    model = model.bfloat16()
    forget_attention_calls()
    eager, found = (output(model, way, **given.inputs())[real].float() for way in ("eager", name))
    assert set(attention_calls()) == {"firstlight"}
    assert (found - exact).square().mean() <= 1.2 * (eager - exact).square().mean()
    eagers, founds = gradients(model, "eager", given), gradients(model, name, given)
    far, allowed = (
        sum(float((each[key].float() - one).square().sum()) for key, one in exact_gradients.items())
        for each in (founds, eagers)
    )
    assert far <= 1.3 * allowed


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "gpt_oss"])
def test_greedy_tokens_are_eagers(family: str) -> None:
    register_attention()
    model, given = small(family).cuda(), batch(200, (0, 60))
    given = type(given)(given.ids.cuda(), given.real.cuda())
    assert torch.equal(tokens(model, "firstlight", given), tokens(model, "eager", given))

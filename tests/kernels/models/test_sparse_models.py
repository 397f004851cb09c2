"""A transformers model with block-sparse layers: saved as safetensors and loaded, exported, trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.kernels.checkpoints import load_with_patterns
from firstlight.kernels.models import register_attention
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.sparsify import Report, sparsify_
from tests.kernels.models.small_models import batch, output, small

pytest.importorskip("transformers", reason="transformers is not installed")
GIVEN = batch(60, (0, 11))


def sparse(**more: Any) -> tuple[Any, Report]:
    register_attention()
    model = small("llama", num_hidden_layers=1, **more)
    return model, sparsify_(model, block=16, density=0.5, skip=["lm_head"])


def test_what_is_sparsified_and_what_is_kept_is_told() -> None:
    _, report = sparse()
    done = {layer.name.rpartition(".")[2]: layer.done for layer in report.layers}
    assert [name for name, how in done.items() if how == "sparsified"] == [
        "q_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    ]
    assert report.parameters_after < 0.7 * report.parameters_before


def test_a_head_that_is_tied_to_the_embeddings_is_kept() -> None:
    register_attention()
    model = small("llama", num_hidden_layers=1, tie_word_embeddings=True)
    [head] = [layer for layer in sparsify_(model, block=16, density=0.5).layers if layer.name == "lm_head"]
    assert (head.done, head.why) == ("kept", "its weight is shared with another module")
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.parametrize("saved_by", ["safetensors", "save_pretrained"])
def test_a_fresh_model_takes_weights_and_patterns_of_safetensors(tmp_path: Path, saved_by: str) -> None:
    from safetensors.torch import load_file, save_file

    model, report = sparse()
    if saved_by == "safetensors":
        save_file(model.state_dict(), tmp_path / "model.safetensors")
    else:
        model.save_pretrained(tmp_path)
    fresh = small("llama", num_hidden_layers=1, seed=9)
    wanted = output(model, "firstlight", **GIVEN.inputs())
    assert not torch.allclose(output(fresh, "firstlight", **GIVEN.inputs()), wanted, atol=0.1)
    taken = load_with_patterns(fresh, load_file(tmp_path / "model.safetensors"))
    assert set(taken) == {layer.name for layer in report.layers if layer.done == "sparsified"}
    assert torch.equal(output(fresh, "firstlight", **GIVEN.inputs()), wanted)


class Logits(torch.nn.Module):
    """Tokens in, logits out: what torch.export takes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.model(input_ids=ids, use_cache=False).logits
        return made


def test_an_exported_model_gives_the_same_and_names_our_product() -> None:
    model, report = sparse()
    wanted = output(model, "firstlight", input_ids=GIVEN.ids)
    with torch.no_grad():
        exported = torch.export.export(Logits(model), (GIVEN.ids,))
        found = exported.module()(GIVEN.ids)
    torch.testing.assert_close(found, wanted)
    named = [str(node.target) for node in exported.graph.nodes]
    products = sum(layer.done == "sparsified" for layer in report.layers)
    assert named.count("firstlight.bsr_multiply.default") == products


def test_a_pruned_model_trains_on() -> None:
    model, _ = sparse()
    before = [layer.values.detach().clone() for layer in model.modules() if isinstance(layer, BlockSparseLinear)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.train()
    losses = []
    for _ in range(4):
        loss = model(**GIVEN.inputs(), labels=torch.where(GIVEN.real.bool(), GIVEN.ids, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    after = [layer.values for layer in model.modules() if isinstance(layer, BlockSparseLinear)]
    assert all(not torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.slow
def test_a_model_compiled_ahead_of_time_gives_the_same(tmp_path: Path) -> None:
    model, _ = sparse()
    wanted = output(model, "firstlight", input_ids=GIVEN.ids)
    with torch.no_grad():
        exported = torch.export.export(Logits(model), (GIVEN.ids,))
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
        found = torch._inductor.aoti_load_package(package)(GIVEN.ids)
    torch.testing.assert_close(found, wanted)

"""Train a small language model of transformers from scratch, prune it to a quarter of its blocks, and train on.

    python examples/prune_a_language_model.py                            on the processor: about a minute
    python examples/prune_a_language_model.py --device cuda              wider, with bfloat16 autocast
    python examples/prune_a_language_model.py --device cuda --out result.json --commit HASH

The model is a Mistral with a sliding window and random weights, its attention and its linear layers ours. The text is
made here: each token is drawn after a table by the two before it, so that the least loss that any model can reach is
known. After the first part of the training a copy is pruned while it trains on; the original trains on as it is, on the
same text. Printed are the loss on text that neither saw, and tokens a second in training and in evaluation.
"""

# ruff: noqa: T201 an example prints
from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.models import attention_calls, register_attention
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.pruning import density_at
from firstlight.kernels.sparsify import prune_further_, sparsify_

CHANCES = (0.7, 0.15, 0.1, 0.05)  # of the four tokens that may follow two others
PRUNE_EVERY = 5  # steps


@dataclass(frozen=True)
class Settings:
    """How large the model is and how long it trains."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    window: int
    block: int
    batch: int
    length: int
    first_steps: int
    further_steps: int
    learning_rate: float


PROCESSOR = Settings(12, 64, 128, 1, 4, 2, 32, 16, 8, 64, first_steps=80, further_steps=40, learning_rate=5e-3)
GPU = Settings(32, 2048, 8192, 3, 16, 4, 512, 128, 8, 2048, first_steps=50, further_steps=60, learning_rate=3e-4)


@dataclass(frozen=True)
class Measured:
    """What came out for one of the two models."""

    density: float  # of the linear layers
    loss: float  # on text that was not trained on, in nats a token
    training_tokens_per_s: float
    evaluation_tokens_per_s: float


class Text:
    """Sequences of a chain that looks two tokens back."""

    def __init__(self, settings: Settings, device: str) -> None:
        self.settings, self.device = settings, device
        self.generator = torch.Generator(device).manual_seed(0)
        words = settings.vocabulary
        ranks = torch.rand(words, words, words, generator=self.generator, device=device).argsort(-1)
        self.next = ranks[..., : len(CHANCES)]  # all different
        self.chances = torch.tensor(CHANCES, device=device)
        self.training, self.held_out = self.drawn(16 * settings.batch), self.drawn(4 * settings.batch)

    def drawn(self, count: int) -> Tensor:
        """[count, length + 1] tokens."""
        draws = torch.multinomial(
            self.chances, count * (self.settings.length + 1), replacement=True, generator=self.generator
        ).view(count, -1)
        made = list(
            torch.randint(0, self.settings.vocabulary, (2, count), generator=self.generator, device=self.device)
        )
        for place in range(self.settings.length - 1):
            made.append(self.next[made[-2], made[-1], draws[:, place]])
        return torch.stack(made, 1)

    def batch(self, step: int) -> Tensor:
        """The same for the same step."""
        generator = torch.Generator().manual_seed(step)
        chosen = torch.randperm(len(self.training), generator=generator)[: self.settings.batch]
        return self.training[chosen.to(self.device)]


def new_model(settings: Settings, device: str) -> Any:
    """A Mistral with random weights whose attention is ours."""
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=settings.vocabulary, hidden_size=settings.width, intermediate_size=settings.inner,
        num_hidden_layers=settings.layers, num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_heads, sliding_window=settings.window,
        max_position_embeddings=settings.length, use_cache=False, attn_implementation="firstlight",
    )  # fmt: skip
    return MistralForCausalLM(config).to(device)


def loss_of(model: Any, tokens: Tensor) -> Tensor:
    """Cross entropy of every token but the first two, which nothing tells."""
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=tokens.is_cuda):
        logits = model(input_ids=tokens[:, :-1]).logits[:, 1:]
    return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 2:].reshape(-1))


class Training:
    """A model, its optimizer and its text."""

    def __init__(self, model: Any, text: Text) -> None:
        self.model, self.text, self.settings = model, text, text.settings
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=self.settings.learning_rate, fused=True)

    def step(self, number: int) -> None:
        """One step on the batch of this number."""
        loss = loss_of(self.model, self.text.batch(number))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def steps(self, first: int, count: int, *, every: Any = None) -> float:
        """Trains; returns tokens a second of the last quarter of the steps. every: called with each step's number."""
        timed = max(1, count // 4)
        began = 0.0
        for number in range(first, first + count):
            if number == first + count - timed:
                self.wait()
                began = time.perf_counter()
            if every is not None:
                every(number - first)
            self.step(number)
        self.wait()
        return timed * self.settings.batch * self.settings.length / (time.perf_counter() - began)

    def wait(self) -> None:
        """Until the GPU is through."""
        if self.text.device == "cuda":
            torch.cuda.synchronize()

    @torch.no_grad()
    def held_out(self) -> tuple[float, float]:
        """Loss on text that was not trained on, and tokens a second of the better of three rounds over it."""
        self.model.eval()
        batches, took = torch.split(self.text.held_out, self.settings.batch), []
        for _ in range(3):
            self.wait()
            began = time.perf_counter()
            losses = [float(loss_of(self.model, tokens)) for tokens in batches]
            took.append(time.perf_counter() - began)
        self.model.train()
        return sum(losses) / len(losses), self.text.held_out[:, 1:].numel() / min(took)

    def measured(self, training_tokens_per_s: float) -> Measured:
        """The state of the model, told."""
        layers = [layer for layer in self.model.modules() if isinstance(layer, BlockSparseLinear)]
        density = sum(layer.density for layer in layers) / len(layers) if layers else 1.0
        loss, evaluated = self.held_out()
        return Measured(density, loss, training_tokens_per_s, evaluated)


def pruned(dense: Training, settings: Settings, final: float) -> tuple[Training, Any]:
    """A pruned copy that trains on, and what prunes it further as it does: it reaches `final` at half of the steps."""
    start = (1.0 + final) / 2  # at once a small model forgets
    model = copy.deepcopy(dense.model)
    report = sparsify_(model, block=settings.block, density=start, skip=["lm_head"])
    print(f"pruned {sum(layer.done == 'sparsified' for layer in report.layers)} of {len(report.layers)} linear layers")
    training = Training(model, dense.text)
    layers = [layer for layer in model.modules() if isinstance(layer, BlockSparseLinear)]

    def further(step: int) -> None:
        if step % PRUNE_EVERY:
            return
        density = density_at(step, begin=0, end=settings.further_steps // 2, initial=start, final=final)
        for layer in layers:
            prune_further_(layer, density=density, optimizer=training.optimizer)

    return training, further


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--density", type=float, default=0.25, help="share of the blocks that is kept")
    parser.add_argument("--out", type=Path, help="write what was measured there, as JSON")
    parser.add_argument("--commit", default="not told", help="of the code that is measured, for --out")
    told = parser.parse_args()
    torch.manual_seed(0)
    began = time.monotonic()
    settings = GPU if told.device == "cuda" else PROCESSOR
    if told.device == "cpu":
        torch.set_num_threads(1)  # the model is too small to be worth sharing
    register_attention()
    text = Text(settings, told.device)
    floor = -sum(chance * torch.tensor(chance).log().item() for chance in CHANCES)
    dense = Training(new_model(settings, told.device), text)
    dense.steps(0, settings.first_steps)
    print(f"trained for {settings.first_steps} steps: loss {dense.held_out()[0]:.3f}, the least possible {floor:.3f}")

    sparse, further = pruned(dense, settings, told.density)
    results = {
        "pruned": sparse.measured(sparse.steps(settings.first_steps, settings.further_steps, every=further)),
        "dense": dense.measured(dense.steps(settings.first_steps, settings.further_steps)),
    }
    print(f"{settings.further_steps} steps further        density   loss   tokens/s training   tokens/s evaluation")
    for name, one in results.items():
        speeds = f"{one.training_tokens_per_s:17,.0f}   {one.evaluation_tokens_per_s:19,.0f}"
        print(f"{name:<25} {one.density:7.2f}  {one.loss:.3f}   {speeds}")
    print("attention layers by way:", attention_calls())
    print(f"whole run {time.monotonic() - began:.1f} s")
    if told.out:
        where = torch.cuda.get_device_name() if told.device == "cuda" else "processor"
        document = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": told.commit, "machine": where,
            "torch": torch.__version__, "settings": asdict(settings), "least_loss": floor,
            "attention_calls": attention_calls(), "results": {name: asdict(one) for name, one in results.items()},
        }  # fmt: skip
        told.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

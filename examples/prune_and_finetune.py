"""Train a small transformer, prune its linear layers to blocks, train on, and compare loss and time.

    python examples/prune_and_finetune.py                 on the processor: under a minute
    python examples/prune_and_finetune.py --device cuda   wider, with bfloat16 autocast

The task is synthetic: each token is a sum modulo the vocabulary of two earlier ones, so that the loss can fall to 0.
"""

# ruff: noqa: T201 an example prints
from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from firstlight.kernels import explain_choice
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.pruning import density_at
from firstlight.kernels.sparsify import prune_further_, sparsify_

VOCABULARY = 32


@dataclass(frozen=True)
class Settings:
    """How large the model is and how long it trains."""

    width: int
    layers: int
    block: int
    batch: int
    length: int
    dense_steps: int
    sparse_steps: int


PROCESSOR = Settings(128, 1, 16, 32, 12, dense_steps=300, sparse_steps=300)
GPU = Settings(1024, 2, 64, 256, 32, dense_steps=300, sparse_steps=300)


class Block(nn.Module):
    """Attention and an MLP, each added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.down(functional.gelu(self.up(self.before_mlp(x))))
        return result


class Model(nn.Module):
    """Tokens in, logits of the next token out."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, settings.width)
        self.places = nn.Embedding(settings.length, settings.width)
        self.blocks = nn.Sequential(*(Block(settings.width) for _ in range(settings.layers)))
        self.head = nn.Linear(settings.width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        logits: Tensor = self.head(self.blocks(self.tokens(tokens) + self.places(places)))
        return logits


def sequences(settings: Settings, device: str, generator: torch.Generator) -> Tensor:
    """[batch, length + 1] tokens where each is the sum of the two before it, modulo the vocabulary."""
    made = [torch.randint(0, VOCABULARY, (settings.batch,), generator=generator) for _ in range(2)]
    while len(made) < settings.length + 1:
        made.append((made[-1] + made[-2]) % VOCABULARY)
    return torch.stack(made, 1).to(device)


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """Cross entropy of the tokens that can be known: all but the first two."""
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=tokens.is_cuda):
        logits = model(tokens[:, :-1])[:, 1:]
    return functional.cross_entropy(logits.reshape(-1, VOCABULARY).float(), tokens[:, 2:].reshape(-1))


class Training:
    """A model, its optimizer and its data; `steps` trains and prints."""

    def __init__(self, model: nn.Module, settings: Settings, device: str) -> None:
        self.model, self.settings, self.device = model, settings, device
        self.generator = torch.Generator().manual_seed(0)
        self.new_optimizer()

    def new_optimizer(self) -> None:
        """After the parameters were replaced."""
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3 if self.device == "cpu" else 5e-4)

    def step(self) -> float:
        """One step; the loss before it."""
        loss = loss_of(self.model, sequences(self.settings, self.device, self.generator))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """The loss on sequences of another seed."""
        generator = torch.Generator().manual_seed(1)
        batches = [sequences(self.settings, self.device, generator) for _ in range(4)]
        return sum(float(loss_of(self.model, tokens)) for tokens in batches) / len(batches)

    @torch.no_grad()
    def milliseconds(self) -> float:
        """Time of one evaluation, the best of five."""
        tokens, times = sequences(self.settings, self.device, torch.Generator().manual_seed(2)), []
        for _ in range(6):
            began = time.perf_counter()
            float(loss_of(self.model, tokens))  # reading the number waits for the GPU
            times.append(1e3 * (time.perf_counter() - began))
        return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--density", type=float, default=0.25, help="share of the blocks that is kept")
    told = parser.parse_args()
    torch.manual_seed(0)
    settings = GPU if told.device == "cuda" else PROCESSOR
    if told.device == "cpu":
        torch.set_num_threads(1)  # the model is too small to be worth sharing
    began = time.monotonic()
    model = Model(settings).to(told.device)
    training = Training(model, settings, told.device)
    for _ in range(settings.dense_steps):
        training.step()
    print(f"dense        loss {training.held_out_loss():.4f}, {training.milliseconds():.2f} ms a batch")

    start = (1.0 + told.density) / 2  # the rest goes while it trains on: pruned at once, a small model forgets
    report = sparsify_(model, block=settings.block, density=start, skip=["head"])
    print(report)
    print(f"pruned       loss {training.held_out_loss():.4f} at density {start:g}, before training on")
    training.new_optimizer()
    layers = [layer for layer in model.modules() if isinstance(layer, BlockSparseLinear)]
    settled = 2 * settings.sparse_steps // 3
    for step in range(settings.sparse_steps):
        if step % 10 == 0:
            density = density_at(step, begin=0, end=settled, initial=start, final=told.density)
            for layer in layers:
                prune_further_(layer, density=density, optimizer=training.optimizer)
        training.step()
    took = f"{training.milliseconds():.2f} ms a batch"
    print(f"fine-tuned   loss {training.held_out_loss():.4f} at density {layers[0].density:.3g}, {took}")
    matrix = layers[0].matrix
    if matrix.values.is_cuda:  # what autocast computes in
        matrix = matrix.detach().to(dtype=torch.bfloat16)
    choice = explain_choice(matrix, settings.batch * settings.length)
    print(f"backend      {choice.backend}: {choice.why}")
    print(f"whole run    {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()

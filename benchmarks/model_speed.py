"""A 12-layer model with block-sparse MLPs beside the same model dense, in one run: forward, and a training step.

    python -m benchmarks.model_speed --out FILE --commit HASH [--layers 12] [--tokens 4096]

d_model 4096, 32 heads of 128, causal attention and projections dense in both; the MLP (4096 to 16384 and back, gelu in
its tanh form) holds blocks of 128 at density 0.25, chosen at random. bf16. Both models take turns; each is called twice
in a row and the second call counts, so that none is timed at the clock that the other one left behind. What everything
but the MLPs takes is timed too: no MLP, however fast, makes the model faster than that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from firstlight.kernels import BlockSparseMatrix, linear

WIDTH, HIDDEN, HEADS, BLOCK, DENSITY = 4096, 16384, 32, 128, 0.25
ROUNDS, WARM = 9, 4
NAME, SHOWN = 100, 14  # letters of a kernel's name that are kept, kernels that are printed


class DenseMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down(functional.gelu(self.up(x), approximate="tanh"))
        return found


class SparseMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrices = []
        for name, rows, cols in (("up", HIDDEN, WIDTH), ("down", WIDTH, HIDDEN)):
            matrix = BlockSparseMatrix.random(
                rows, cols, block=BLOCK, density=DENSITY, dtype=torch.bfloat16, device="cuda"
            )
            setattr(self, name, nn.Parameter(matrix.values * cols**-0.5))
            self.matrices.append(matrix)

    def forward(self, x: Tensor) -> Tensor:
        up, down = self.matrices
        values = dict(self.named_parameters())
        hidden = linear(x, up.with_values(values["up"]), activation="gelu_tanh")
        return linear(hidden, down.with_values(values["down"]))


class NoMlp(nn.Module):
    """As much of a layer as every MLP needs: none."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Layer(nn.Module):
    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        given = self.before(x)
        q, k, v = (one(given).view(batch, length, HEADS, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        moved: Tensor = x + self.mlp(self.between(x))
        return moved


def model_of(mlp: Callable[[], nn.Module], layers: int) -> nn.Sequential:
    with torch.device("cuda"):  # the processor would take minutes to draw the weights
        return nn.Sequential(*(Layer(mlp()) for _ in range(layers))).to(torch.bfloat16)


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of one call by events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def steps_of(model: nn.Module, x: Tensor) -> dict[str, Callable[[], object]]:
    """What is timed of a model."""

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def training() -> None:
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()

    return {"forward": forward, "training": training}


def kernels_of(call: Callable[[], object]) -> list[dict[str, Any]]:
    """Each kernel's time in one call by torch's profiler, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    found = [
        {"kernel": one.key[:NAME], "ms": round(one.self_device_time_total / 1e3, 4), "launches": one.count}
        for one in seen.key_averages()
    ]
    return sorted(found, key=lambda one: -one["ms"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--kernels", action="store_true", help="the time of each kernel, too")
    options = parser.parse_args()
    torch.manual_seed(0)
    kinds: dict[str, Callable[[], nn.Module]] = {"dense": DenseMlp, "sparse": SparseMlp, "without": NoMlp}
    models = {name: model_of(kind, options.layers) for name, kind in kinds.items()}
    x = torch.randn(2, options.tokens // 2, WIDTH, dtype=torch.bfloat16, device="cuda")
    calls = {(name, what): call for name, model in models.items() for what, call in steps_of(model, x).items()}
    samples: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    for number in range(WARM + ROUNDS):
        for key, call in calls.items():
            call()
            spent = timed(call)
            if number >= WARM:
                samples[key].append(round(spent, 4))
    found: dict[str, Any] = {
        "schema": "firstlight.kernels-model/2", "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": options.commit, "gpu": torch.cuda.get_device_name(0), "torch": torch.__version__,
        "layers": options.layers, "tokens": options.tokens, "width": WIDTH, "hidden": HIDDEN, "block": BLOCK,
        "density": DENSITY,
    }  # fmt: skip
    for what in ("forward", "training"):
        dense, sparse, without = (statistics.median(samples[name, what]) for name in kinds)
        found[what] = {
            "dense_ms": dense, "sparse_ms": sparse, "without_mlp_ms": without,
            "times_as_fast": round(dense / sparse, 3),
            "mlp_times_as_fast": round((dense - without) / (sparse - without), 3),
        }  # fmt: skip
        found[what] |= {f"{name}_samples_ms": samples[name, what] for name in kinds}
        print(what, {key: value for key, value in found[what].items() if "samples" not in key}, flush=True)
        for name in kinds if options.kernels else ():
            found[what][f"{name}_kernels"] = listed = kernels_of(calls[name, what])
            for one in listed[:SHOWN]:
                print(f"  {name:8} {one['ms']:9.4f} ms {one['launches']:4} x {one['kernel']}", flush=True)
    options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""The Python of the README and of the pages of the library runs, with the names that a reader has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from firstlight.kernels import BlockSparseLinear, BlockSparseMatrix

ROOT = Path(__file__).parents[2]


def snippets(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def sparse(rows: int, columns: int, block: int) -> Tensor:
    """A weight of which every other block is zero."""
    weight = torch.randn(rows, columns)
    tiles = weight.view(rows // block, block, columns // block, block)
    tiles[::2, :, 1::2] = 0.0
    return weight


def test_the_readme_computes_what_torch_computes() -> None:
    [code] = snippets("README.md")
    weight, bias, x = sparse(256, 256, 128), torch.randn(256), torch.randn(8, 256)
    q, k, v = torch.randn(3, 1, 2, 4096, 16)
    told: dict[str, Any] = {"weight": weight, "bias": bias, "x": x, "q": q, "k": k, "v": v}
    exec(compile(code, "README.md", "exec"), told)
    wanted = nn.functional.gelu(nn.functional.linear(x, weight, bias), approximate="tanh")
    assert torch.allclose(told["y"], wanted, atol=2e-3)
    assert told["o"].shape == q.shape


def test_the_library_page_multiplies_prunes_and_says_which_backend() -> None:
    first, second = snippets("docs/kernels/library.md")
    told: dict[str, Any] = {
        "weight": sparse(128, 192, 64), "bias": torch.randn(128), "X": torch.randn(192, 8), "x": torch.randn(5, 192),
        "A": torch.randn(128, 32), "B": torch.randn(32, 192),
    }  # fmt: skip
    exec(compile(first, "library.md", "exec"), told)
    assert torch.allclose(told["Y"], told["weight"] @ told["X"], atol=1e-4)
    assert isinstance(told["G"], BlockSparseMatrix)
    model = nn.Sequential()
    model.add_module("body", nn.Linear(256, 256))
    model.add_module("head", nn.Linear(256, 64))
    names: dict[str, Any] = {"torch": torch, "model": model, "steps": 2}
    prepared, training = second.split("for step in range", 1)
    exec(compile(prepared, "library.md", "exec"), names)
    names["layer"] = next(each for each in model.modules() if isinstance(each, BlockSparseLinear))
    exec(compile("for step in range" + training, "library.md", "exec"), names)
    assert names["report"]


def test_the_checkpoint_of_the_migration_page_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = snippets("docs/kernels/migration.md")
    monkeypatch.chdir(tmp_path)
    weight = sparse(64, 64, 16)
    torch.save({"0.weight": weight.to_sparse_bsr((16, 16)), "0.bias": torch.zeros(64)}, "model.pt")
    model = nn.Sequential(nn.Linear(64, 64))
    exec(compile(code.replace('"model.pt")', '"model.pt", weights_only=False)'), "migration.md", "exec"),
         {"torch": torch, "model": model})  # fmt: skip
    x = torch.randn(3, 64)
    assert torch.allclose(model(x), nn.functional.linear(x, weight), atol=1e-4)

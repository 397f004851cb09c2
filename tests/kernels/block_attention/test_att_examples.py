"""The examples of attention run, and say what they say they do."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples"


def loaded(name: str) -> Any:
    """The example as a module that can be found by its name: dynamo looks names of a mask_mod up there."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_flex_mask_gives_the_same_result_in_blocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded("flex_to_blocks")
    small = example.Settings(1, 2, 1, 300, 16, 90, torch.float32)
    monkeypatch.setattr(example, "PROCESSOR", small)
    monkeypatch.setattr("sys.argv", ["flex_to_blocks.py"])
    example.main()
    printed = capsys.readouterr().out
    assert "same result  relative difference" in printed
    assert "to_flex() gives the same mask: True" in printed
    assert "time         not taken on the processor" in printed


def test_results_that_differ_end_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    example = loaded("flex_to_blocks")
    small = example.Settings(1, 2, 1, 300, 16, 90, torch.float32)
    monkeypatch.setattr(example, "PROCESSOR", small)
    monkeypatch.setattr(example, "attention", lambda q, k, v, mask: q * 0.5)
    monkeypatch.setattr("sys.argv", ["flex_to_blocks.py"])
    with pytest.raises(SystemExit, match="the results differ"):
        example.main()


def test_the_kept_mass_is_shown_for_each_mask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded("kept_mass")
    monkeypatch.setattr("sys.argv", ["kept_mass.py"])
    example.main()
    printed = capsys.readouterr().out
    rows = {line[:28].strip(): [float(cell) for cell in line[28:].split()] for line in printed.splitlines()[4:9]}
    assert list(rows) == [
        "everything before", "sink + window 128", "top 4 blocks", "sink + window 128 + top 4", "sink + window 267",
    ]  # fmt: skip
    kept = {name: row[1] for name, row in rows.items()}
    assert rows["everything before"][1:] == [1.0, 1.0, 0.0]
    assert kept["sink + window 128 + top 4"] > max(kept["sink + window 128"], kept["top 4 blocks"])
    assert kept["sink + window 128 + top 4"] > kept["sink + window 267"]
    assert "no claim about the quality of any model" in printed


def test_the_mass_is_that_of_the_softmax() -> None:
    example = loaded("kept_mass")
    structure = example.Structure(heads=1, length=512)
    q, k, _ = example.planted(structure, torch.Generator().manual_seed(0))
    mask = example.masks(structure, example.block_scores(q, k), top=2, window=64)["top 2 blocks"]
    weights = (
        (q.double() @ k.double().mT / 8.0).masked_fill(torch.ones(512, 512).triu(1).bool(), -torch.inf).softmax(-1)
    )
    wanted = (weights * mask.to_bool()).sum(-1)
    v = torch.zeros_like(q)
    attention = example.attention
    found = attention(q, k, v, mask, return_lse=True)[1] - attention(q, k, v, causal=True, return_lse=True)[1]
    torch.testing.assert_close(found.exp().double(), wanted, rtol=1e-4, atol=1e-5)

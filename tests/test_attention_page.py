"""docs/kernels/attention.md: its snippets run, and its computed and quoted numbers follow from what it says."""

from __future__ import annotations

import json
import re
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "kernels" / "attention.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHAPE_FLOPS, SHAPE_BYTES = 4 * 16 * 96 * 4096**2 * 128, 4 * 2 * 16 * 96 * 4096 * 128 + 4 * 16 * 96 * 4096


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # too small to be worth sharing
    yield
    torch.set_num_threads(before)


def test_the_snippets_run_one_after_the_other() -> None:
    assert len(SNIPPETS) == 7
    told: dict[str, Any] = {}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        for number, snippet in enumerate(SNIPPETS):
            exec(compile(snippet, f"snippet {number} of attention.md", "exec"), told)
    assert tuple(told["kept"].shape) == (1, 8, 1024)
    assert 0.0 < float(told["kept"].min()) <= float(told["kept"].max()) <= 1.0001


def quoted(case: str, regime: str) -> tuple[float, float]:
    """(milliseconds, rate) of a case in the results that the page quotes."""
    found = json.loads((ROOT / "results" / "bench-h200-standard.json").read_text())
    [one] = [each for each in found["cases"] if each["id"] == case]
    [figure] = [each for each in one["figures"] if each["regime"] == regime]
    rate = figure["rate"]
    return 1e3 * figure["time_s"]["median"], rate["tflops"] or rate["gbps"]


def test_what_is_quoted_is_in_the_results() -> None:
    causal = "sdpa/cudnn/fp16/b16-h96-s4096-d128/causal"
    for regime, said in (("burst", "10.9 ms in a burst\n(605 TFLOP/s)"), ("sustained", "12.6 ms sustained (524)")):
        ms, rate = quoted(causal, regime)
        assert f"{ms:.1f} ms" in said
        assert f"{rate:.0f}" in said
        assert said in PAGE
    assert f"{quoted('gemm/fp16/8192x8192x8192', 'burst')[1]:.0f} TFLOP/s" == "767 TFLOP/s"
    assert f"{quoted('bandwidth/copy/fp16/512MiB', 'sustained')[1]:,.0f} GB/s" == "4,192 GB/s"
    assert "767 TFLOP/s" in PAGE
    assert "4,192 GB/s" in PAGE


def test_the_computed_table_follows_from_the_rates() -> None:
    rows = re.findall(r"^\| ([\d.]+) \| (\d\.\d{3}) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [float(row[0]) for row in rows] == [1, 1.6, 2, 3.2, 4, 6, 8, 12, 16, 24, 32]
    memory_ms = SHAPE_BYTES / 4192e9 * 1e3
    assert f"{memory_ms:.2f} ms at the 4,192 GB/s" in PAGE
    for blocks, density, rest in rows:
        flops = SHAPE_FLOPS * float(blocks) / 32
        own = max(flops / 605e12 * 1e3, memory_ms)
        wanted = (
            flops / 1e12, flops / 767e12 * 1e3, max(flops / 767e12 * 1e3, memory_ms), own, 10.91 / own,
        )  # fmt: skip
        assert float(density) == pytest.approx(float(blocks) / 32, abs=6e-4)
        found = [float(cell.strip("x ")) for cell in rest.split(" | ")]
        assert found == pytest.approx(wanted, abs=0.051)


def test_the_links_inside_the_page_lead_somewhere() -> None:
    heads = {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^##+ (.*)$", PAGE, re.M)
    }
    wanted = set(re.findall(r"\]\(#([a-z0-9-]+)\)", PAGE))
    assert wanted <= heads, wanted - heads
    for path in re.findall(r"`((?:src|benchmarks|examples|results|tests)/[\w./-]+\.\w+)`", PAGE):
        assert (ROOT / path).exists() or path == "results/attention-h200.json", path


def test_the_table_of_the_example_is_what_the_example_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"```text\n(mask .*?)```", PAGE, re.DOTALL)
    assert shown is not None
    monkeypatch.setattr("sys.argv", ["kept_mass.py"])
    runpy.run_path(str(ROOT / "examples" / "kept_mass.py"), run_name="__main__")
    printed = capsys.readouterr().out
    table = printed[printed.index("mask  ") : printed.index("\nPlanted data")]
    for one, other in zip(shown[1].splitlines(), table.splitlines(), strict=True):
        assert one[:28] == other[:28]
        if not one.startswith("mask"):  # to a digit: other processors round otherwise
            assert [float(cell) for cell in one[28:].split()] == pytest.approx(
                [float(cell) for cell in other[28:].split()], abs=0.02
            )

"""docs/kernels/models.md: its Python runs, in order, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
PAGE = Path(__file__).parents[3] / "docs" / "kernels" / "models.md"


def test_the_pages_code_runs_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from firstlight.kernels.models import forget_attention_calls

    monkeypatch.chdir(tmp_path)
    forget_attention_calls()
    parts = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(parts) == 3
    names: dict[str, Any] = {}
    for part in parts:
        exec(part, names)  # the page's own code
    said = capsys.readouterr().out
    assert said.startswith("{'firstlight': 2}\n")
    assert "it matches the skip pattern lm_head" in said

"""A second architecture is a folder and a row: a copy of the package gets both, and everything else finds it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from firstlight.kernels.backends import SM90
from firstlight.kernels.sm90 import attention_variants, problem
from firstlight.kernels.sm90.compile import ARCH

SOURCE = Path(__file__).parents[2] / "src" / "firstlight"
ROW = """
from dataclasses import replace as _replace
SM91 = _replace(SM90, name="sm91", capability=(9, 1), called="Second", cards=("S900", "S901"))
ARCHS = (SM90, SM91)
"""
ASKED = """
import json, torch
from firstlight.errors import UnsupportedInput
from firstlight.kernels import backends, choose
from firstlight.kernels.block_attention import choose as seen, lists
from firstlight.kernels.choice.cases import ProductCase
from firstlight.kernels.choice.measuring import attention_hurdle
from firstlight.kernels.choice.rows import Card
from firstlight.kernels.choice.terms import terms_of
from firstlight.kernels.here import kernels_here
from firstlight.kernels.product import Layout

backends.capability_of = lambda device: (9, 1)
backends.why_not_built = lambda arch: ""
question = choose.Question("multiply", 0, torch.float16, (4096, 4096), 64, 400, 4096, Layout.TOKENS, True)
card = Card("S900", "9.1", 132, 1980.0, 4800.0)
case = ProductCase("multiply", "tokens", 64, "float16", 4096, 4096, 400, 4096)
try:
    backends.require("sm91", -1, str)
except UnsupportedInput as error:
    refused = str(error)
print(json.dumps({
    "backends": backends.BACKENDS, "products": choose.SPARSE, "attention": seen.SPARSE, "refused": refused,
    "why not": [backends.why_not(name, 0, torch.float16) for name in ("sm90", "sm91")],
    "asked for": choose.explained("sm91", question).backend,
    "modules": [choose._module("sm91").__name__, seen.module("sm91").__name__, lists._maker_on(0).__name__],
    "terms": terms_of(case, "sm91", card) == terms_of(case, "sm90", card),
    "here": [one.name for one in kernels_here().backends],
}))
"""


def test_a_second_architecture_is_a_folder_and_a_row(tmp_path: Path) -> None:
    package = tmp_path / "firstlight"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__", "tables", "diagnosis"))
    kernels = package / "kernels"
    shutil.copytree(kernels / "sm90", kernels / "sm91")
    for file in (kernels / "sm91").rglob("*.py"):
        file.write_text(file.read_text().replace("kernels.sm90", "kernels.sm91").replace("SM90", "SM91"))
    row = kernels / "backends.py"
    row.write_text(row.read_text().replace(f"\nARCHS = ({SM90.name.upper()},)\n", ROW))
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "FIRSTLIGHT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", ASKED], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["backends"] == ["auto", "sm90", "sm91", "triton", "dense", "reference"]
    assert set(found["products"]) == set(found["attention"]) == {"sm90", "sm91", "triton"}
    assert "it takes tensors on an S900 or S901" in found["refused"]
    assert found["why not"] == [
        "compute capability is 9.1, and the Hopper kernels run on 9.0 (H100, H200, GH200) alone", ""
    ]  # fmt: skip
    assert found["asked for"] == "sm91"
    assert found["modules"] == [f"firstlight.kernels.sm91{part}" for part in ("", ".attention", ".mask_lists")]
    assert found["terms"]
    assert found["here"] == ["sm90", "sm91", "triton", "dense", "reference"]


def test_the_row_says_what_the_folder_has() -> None:
    assert f"sm_{SM90.capability[0]}{SM90.capability[1]}a" == ARCH
    assert SM90.dtypes == problem.DTYPES
    assert SM90.head_dims == attention_variants.HEAD_DIMS
    assert SM90.attention_blocks == attention_variants.BLOCKS

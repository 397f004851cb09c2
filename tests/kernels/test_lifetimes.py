"""The rule of lifetimes.py: who keeps tensors goes by it, and what a graph reads stays as long as the graph.

Streams and real graphs: gpu/test_lifetimes_gpu.py.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNELS = ROOT / "src" / "firstlight" / "kernels"
# Files that keep something from call to call and need no Held, and why.
NOTHING_HELD = {
    "block_attention/again.py": "numbers of calls, no tensor",
    "block_attention/mask.py": "the caller's own tensors, or aliases of them that go with them",
    "block_attention/triton/calls.py": "compiled kernels and numbers",
    "block_attention/triton/launch.py": "compiled kernels",
    "choose.py": "names of backends",
    "sm90/multiply_plan.py": "compiled kernels and numbers",
    "sm90/sample_plan.py": "compiled kernels and numbers",
    "sm90/workspace.py": "zeros, read on the one stream that they belong to",
    "triton_backend/__init__.py": "compiled kernels and numbers",
    "triton_backend/boxes.py": "tensor maps, which lie on the host",
    "triton_backend/launch.py": "compiled kernels",
    "triton_backend/sample_plan.py": "compiled kernels and numbers",
}


def keeps_tensors(tree: ast.Module) -> bool:
    """Whether a file makes a memo, writes into a mask's `derived`, or caches a function that returns something kept."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TensorMemo":
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
            if isinstance(target, ast.Attribute) and target.attr == "derived":
                return True
        if isinstance(node, ast.FunctionDef) and node.returns is not None and "_Kept" in ast.unparse(node.returns):
            return True
    return False


def test_every_file_that_keeps_tensors_holds_them_by_the_rule() -> None:
    found = []
    for file in sorted(KERNELS.rglob("*.py")):
        name, text = file.relative_to(KERNELS).as_posix(), file.read_text(encoding="utf-8")
        if name == "memo.py" or not keeps_tensors(ast.parse(text)) or name in NOTHING_HELD:
            continue
        found.append(name)
        assert "from firstlight.kernels.lifetimes import" in text, f"{name} keeps tensors and never says use() of them"
    assert {"pattern.py", "schedule.py", "unions.py", "sm90/lists.py", "sm90/again.py"} <= set(found)
    assert {"block_attention/lists.py", "block_attention/seen.py", "block_attention/dense.py"} <= set(found)


def test_the_files_that_are_excused_are_there() -> None:
    missing = [name for name in NOTHING_HELD if not (KERNELS / name).exists()]
    assert missing == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to build a stand-in for the driver")
def test_what_a_graph_reads_stays_until_the_driver_says_that_it_went(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*command, str(HERE / "fake_graphs.c")], check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    case = [sys.executable, str(HERE / "captured_cases.py")]
    done = subprocess.run(case, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert seen["held"] == 4  # the second tensor by two graphs
    assert seen["after one went"] == 3
    assert seen["alive"] == [False, True, True, True]
    assert seen["alive at the end"] == [False, False, False, True]  # the last until the process ends
    assert seen["modes"] == [2, 0]

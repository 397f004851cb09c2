"""Real projects built without a GPU, to their end: LightGBM with CUDA, the C++ part of torch-scatter.

Run by hand (LightGBM took 38 minutes on two busy processors): pytest -m slow tests/system/test_build_projects.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.network, pytest.mark.slow]
FOR_LIGHTGBM = ("build", "scikit-build-core", "cmake", "ninja", "nvidia-nccl-cu13")
FOR_TORCH_SCATTER = ("build", "setuptools<82", "wheel", "ninja", "numpy", "torch==2.13.0")


def environment(folder: Path, packages: tuple[str, ...]) -> Path:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *packages], check=True)
    return folder / "bin/python"


def built(target: str, base: Path, python: Path, *words: str) -> tuple[int, dict[str, Any]]:
    argv = [sys.executable, "-m", "firstlight", "build", target, *words, "--python", str(python), "--yes", "--json"]
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(base / "state")}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_lightgbm_with_cuda_is_refused_then_built_and_proved_without_a_gpu(tmp_path: Path) -> None:
    python = environment(tmp_path / "env", FOR_LIGHTGBM)
    words = ("--flag", "USE_CUDA=ON", "--archs", "9.0", "--jobs", "2")
    code, refused = built("lightgbm==4.7.0", tmp_path, python, *words)
    assert (code, refused["ending"]) == (1, "refused")
    assert "nccl-shared-alone" in {each["code"] for each in refused["faults"]}
    code, done = built("lightgbm==4.7.0", tmp_path, python, *words, "--flag", "BUILD_WITH_SHARED_NCCL=ON")
    assert (code, done["ending"]) == (0, "done")
    assert "architectures: machine code for sm_90" in done["proofs"]
    assert "import: lightgbm" in done["proofs"]
    assert any("separates 10 from 190" in each for each in done["proofs"])


def test_the_part_of_torch_scatter_in_cxx_is_built_and_called(tmp_path: Path) -> None:
    python = environment(tmp_path / "env", FOR_TORCH_SCATTER)
    code, done = built("torch-scatter==2.1.2", tmp_path, python, "--flag", "FORCE_ONLY_CPU=1")
    assert (code, done["ending"]) == (0, "done")
    assert "call: scatter_add equals index_add_ on cpu" in done["proofs"]

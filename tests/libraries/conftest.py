"""A small torch of real ELF files in a real virtual environment's folder layout."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.libraries.trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    return Tree(tmp_path)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The stand-in wheels of CUDA 13 in a folder."""
    from tests.libraries.library_wheels import cuda_wheels

    folder = tmp_path / "wheels"
    cuda_wheels(folder, tmp_path / "built")
    return folder

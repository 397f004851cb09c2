"""What a built wheel needs when it runs, for real: a library of another wheel, a project it requires; both undone."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.build.standin import make_environment

pytestmark = pytest.mark.system
PYPROJECT = """
[build-system]
requires = ["scikit-build-core>=0.10"]
build-backend = "scikit_build_core.build"
[project]
name = "nearby"
version = "1.0"
dependencies = ["tinyreq>=1.0", "numpy; python_version < '3'"]
[tool.scikit-build]
wheel.packages = ["nearby"]
"""
CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(nearby LANGUAGES CXX CUDA)
option(USE_CUDA "with CUDA" ON)
option(USE_NCCL "with NCCL" ON)
find_library(NCCL_LIBRARY nccl HINTS $ENV{NCCL_ROOT}/lib REQUIRED)
add_library(nearby SHARED nearby.cpp kernel.cu)
target_link_libraries(nearby PRIVATE ${NCCL_LIBRARY})
install(TARGETS nearby LIBRARY DESTINATION nearby/lib)
"""
IMPORT = """
import ctypes, os
import tinyreq
answer = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libnearby.so")).nearby_answer()
"""


def _tree(folder: Path) -> Path:
    (folder / "nearby").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "nearby/__init__.py").write_text(IMPORT)
    (folder / "nearby.cpp").write_text(
        'extern "C" int ncclAnswer();\nextern "C" int nearby_answer() { return ncclAnswer(); }\n'
    )
    (folder / "kernel.cu").write_text("__global__ void twice(float* x) { *x *= 2; }\n")
    return folder


def _library_of_a_wheel(site: Path) -> None:
    """As nvidia-nccl-cu13 lays it out: libnccl.so.2 and headers, no libnccl.so."""
    lib = site / "nvidia/nccl/lib"
    lib.mkdir(parents=True)
    (site / "nvidia/nccl/include").mkdir()
    (site / "nvidia/nccl/include/nccl.h").write_text(
        "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n"
    )
    source = site.parent / "nccl.c"
    source.write_text("int ncclAnswer() { return 42; }\n")
    argv = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", str(lib / "libnccl.so.2"), str(source)]
    subprocess.run(argv, check=True)
    info = site / "nvidia_nccl_cu13-2.28.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: 2.28.9\n")
    (info / "RECORD").write_text("nvidia/nccl/lib/libnccl.so.2,,\n")


def _wheel(folder: Path, name: str, version: str) -> None:
    folder.mkdir(exist_ok=True)
    info, records = f"{name}-{version}.dist-info", []
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        for path, text in (
            (f"{name}/__init__.py", "here = True\n"),
            (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
            (f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
        ):
            file.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            records.append(f"{path},sha256={digest},{len(text)}\n")
        file.writestr(f"{info}/RECORD", "".join((*records, f"{info}/RECORD,,\n")))


def test_a_library_of_a_wheel_and_a_requirement_are_found_before_and_both_work_after(tmp_path: Path) -> None:
    tree, python = _tree(tmp_path / "tree"), make_environment(tmp_path / "env")
    site = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    _library_of_a_wheel(site)
    _wheel(tmp_path / "wheels", "tinyreq", "1.2")
    env = {
        **os.environ, "FIRSTLIGHT_STATE_DIR": str(tmp_path / "state"), "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }  # fmt: skip

    def firstlight(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "firstlight", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    words = ("build", str(tree), "--python", str(python), "--archs", "9.0")
    planned = firstlight(*words, "--dry-run")
    said = " ".join(planned.stdout.split())
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "runtime-requirements: the wheel requires when it runs what the environment lacks: tinyreq>=1.0" in said
    assert "library-of-a-wheel: the loader does not look into nvidia/nccl/lib" in said
    done = firstlight(*words, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is missing" in done.stdout, done.stdout
    asked = [str(python), "-c", "import nearby, tinyreq; print(nearby.answer)"]
    ran = subprocess.run(asked, capture_output=True, text=True, cwd="/", check=False)
    assert ran.stdout.strip() == "42", ran.stderr
    again = firstlight(*words, "--yes")
    assert (again.returncode, "Successfully installed" in again.stdout + again.stderr) == (0, False)
    undone = firstlight("undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert not (site / "nearby").exists()
    assert not (site / "tinyreq").exists()

"""The direct launch hands every argument of the attention kernels to the driver at its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import triton

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
DRIVER = HERE.parent / "triton_backend"  # its fake_driver.c
HEADERS = Path(triton.__file__).parent / "backends" / "nvidia" / "include"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, as Triton itself does")
def test_a_direct_launch_reaches_the_driver_with_every_argument_at_its_place(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    sources = [str(DRIVER / "fake_driver.c"), str(DRIVER / "fake_driver_rest.c")]
    command = ["gcc", "-shared", "-fPIC", f"-I{HEADERS}", "-Wl,-soname,libcuda.so.1", "-o", str(library), *sources]
    subprocess.run(command, check=True)
    (tmp_path / "libcuda.so").symlink_to(library)
    environ = {**os.environ, "TRITON_LIBCUDA_PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}
    environ |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    case = [sys.executable, str(HERE / "att_triton_launched_cases.py")]
    done = subprocess.run(case, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    names = [line["kernel"] for line in lines[1::2]]
    assert names == ["attention_forward", "attention_dq", "attention_dkdv", "rows_before", "fill_blocks", "order_lists"]
    for launched, said in zip(lines[::2], lines[1::2], strict=True):
        assert launched["params"] == said["wanted"], said["kernel"]
        assert (launched["grid"], launched["threads"], launched["stream"]) == (96, 128, 77)

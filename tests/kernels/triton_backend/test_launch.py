"""The direct launch hands the kernel's launcher every argument at its place, and makes maps of boxes once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import triton

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
HEADERS = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, as Triton itself does")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which Triton finds a driver that writes down what it gets."""
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libcuda.so.1"
    sources = [str(HERE / "fake_driver.c"), str(HERE / "fake_driver_rest.c")]
    command = ["gcc", "-shared", "-fPIC", f"-I{HEADERS}", "-Wl,-soname,libcuda.so.1", "-o", str(library), *sources]
    subprocess.run(command, check=True)
    (folder / "libcuda.so").symlink_to(library)
    environ = {**os.environ, "TRITON_LIBCUDA_PATH": str(folder), "LD_LIBRARY_PATH": str(folder)}
    return environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TRITON_CACHE_DIR": str(folder / "cache")}


def written(name: str, environ: dict[str, str]) -> list[Any]:
    """What the driver wrote down, and what the script says about it last."""
    case = [sys.executable, str(HERE / name)]
    done = subprocess.run(case, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@needs_gcc
def test_a_direct_launch_reaches_the_driver_with_every_argument_at_its_place(stand_in: dict[str, str]) -> None:
    values, dense, out, first, second, seen = written("launched_cases.py", stand_in)
    assert seen["launching"] == "direct"
    addresses = seen["addresses"]
    assert [values["map"], dense["map"], out["map"]] == addresses[4:7]
    assert (values["sizes"], values["stride"], values["box"]) == ([128, 256], 256, [64, 128])
    assert (dense["sizes"], dense["stride"], dense["box"]) == ([256, 128], 512, [64, 64])
    maps = [171, 256, 128, 128, 1, 171, 128, 256, 256, 1, 171, 64, 512, 512, 1]
    assert first["params"] == [*maps, *addresses, 1, 2, 3, 4, 5, 6, 7, 8, 1.5, -2]
    assert second["params"] == first["params"]
    assert (first["grid"], first["threads"], first["stream"], second["stream"]) == (2048, 256, 77, 78)


@needs_gcc
def test_a_product_started_again_reads_and_writes_where_its_tensors_lie_now(stand_in: dict[str, str]) -> None:
    *lines, seen = written("relaunched_cases.py", stand_in)
    launches = [line for line in lines if "grid" in line]
    products, adding = launches[::2], launches[1::2]
    assert seen["limit"] > 0  # rows are split: two kernels in every call
    assert len(products) == len(adding) == 3
    for product, add, (dense, out), partials in zip(products, adding, seen["places"], seen["partials"], strict=True):
        pointers = [seen["values"], dense, out, out, seen["bias"], partials, seen["values"], dense]
        assert product["params"][19:27] == pointers
        assert add["params"][3:11] == pointers
        assert product["params"][27:] == add["params"][11:]
        assert product["params"][-2:] == [2, 0]  # alpha and beta
        assert product["stream"] == add["stream"] == 77
    maps = [line["map"] for line in lines if "map" in line]
    assert sorted(maps) == sorted({seen["values"], *(place for pair in seen["places"] for place in pair)})
    assert seen["kept"] == len({(*pair, part) for pair, part in zip(seen["places"], seen["partials"], strict=True)})

"""What reaches the driver: maps, modules and launches with every number at its place; what it refuses, in words."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton

from firstlight.errors import UnsupportedInput
from firstlight.kernels.sm90.driver import encode_map
from tests.kernels.sm90 import driver_cases
from tests.kernels.sm90.cases import HERE, said
from tests.kernels.sm90.driver_cases import written

HEADERS = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to build a stand-in for the driver")
HANDLE = 0x0FEDCBA987654321


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a libcuda.so.1 that writes down what it gets."""
    if "libcuda.so" in Path("/proc/self/maps").read_text():
        pytest.skip("the real driver is loaded in this process")
    folder = tmp_path_factory.mktemp("driver")
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        f"-I{HEADERS}",
        "-Wl,-soname,libcuda.so.1",
        "-o",
        str(folder / "libcuda.so.1"),
    ]
    subprocess.run([*command, str(HERE / "fake_driver.c")], check=True)
    return str(folder / "libcuda.so.1")


@pytest.fixture(scope="module")
def lines_of_a_run(stand_in: str) -> list[Any]:
    """What the stand-in wrote down of the launches, and what they returned."""
    return written(stand_in, driver_cases.launches)


def test_every_number_reaches_the_driver_at_its_place(lines_of_a_run: list[Any]) -> None:
    *lines, seen = lines_of_a_run
    assert [line["retain"] for line in lines if "retain" in line] == [3, 0]  # once for each device
    assert [(line["attribute"], line["value"]) for line in lines if "attribute" in line] == [(8, 200_000)]
    maps = [line for line in lines if "map" in line]
    assert maps == [
        {"map": 4096 * 7, "type": 9, "misaligned": 0, "sizes": [8192, 100], "strides": [16384], "box": [64, 128],
         "steps": 1, "interleave": 0, "swizzle": 3, "promotion": 3, "fill": 0},
        {"map": 2**40, "type": 6, "misaligned": 0, "sizes": [16, 20, 30], "strides": [32, 640], "box": [16, 4, 2],
         "steps": 1, "interleave": 0, "swizzle": 1, "promotion": 3, "fill": 0},
    ]  # fmt: skip
    launches = [line for line in lines if "launch" in line]
    assert {line["launch"] for line in launches} == {HANDLE}
    assert {line["misaligned"] for line in launches} == {0}
    assert [line["stream"] for line in launches] == [77, 2**47 + 5, 77, 0, 77, 78]
    assert [line["arguments"] for line in launches] == ["first", "first", "other", "first", "first", "first"]
    assert [line["last"] for line in launches] == [0, 0, 5, 0, 0, 0]  # the struct's padded end is ours to read
    assert {line["attributes"] for line in launches} == {0}  # clusters are compiled into the kernels
    first, other = launches[0], launches[2]
    assert (first["grid"], first["block"], first["shared"]) == ([132, 2, 3], [384, 1, 1], 200_000)
    assert (other["grid"], other["block"]) == ([4, 1, 1], [128, 1, 1])
    assert [line["grid"] for line in launches[3:]] == [[132, 2, 3]] * 3
    assert (seen["registers"], seen["local"], seen["argument_bytes"]) == (168, 16, 320)


def test_what_the_driver_refuses_is_said_with_its_name_and_a_reason(lines_of_a_run: list[Any]) -> None:
    seen = lines_of_a_run[-1]
    image, name, shared, threads, long, short = seen["errors"]
    assert image.startswith("cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200), a stand-in's text; the cubin is not one")
    assert name.startswith("cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)")
    assert shared.startswith("cuFuncSetAttribute: CUDA_ERROR_INVALID_VALUE (1)")
    assert threads.startswith("launch of multiply (grid (1, 1, 1), 2048 threads): CUDA_ERROR_INVALID_VALUE (1)")
    assert long == "multiply: 5000 bytes of arguments; at most 4096."
    assert short.startswith("multiply takes 320 bytes of arguments; 128 were given")


def test_a_driver_without_a_device_is_told_apart_from_no_driver(stand_in: str) -> None:
    [seen] = written(stand_in, driver_cases.without_a_device)
    assert seen.startswith("cuInit: CUDA_ERROR_NO_DEVICE (100)")


def test_without_a_driver_everything_imports_and_the_first_call_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")  # hides a real driver, where there is one
    code = (
        "import sys\n"
        "from firstlight.errors import UnsupportedInput\n"
        "from firstlight.kernels.sm90 import cache, compile, driver, maps\n"
        "assert 'triton' not in sys.modules\n"
        "loading = lambda: driver.load(b'', 'x', device=0)\n"
        "mapping = lambda: maps.encode_map(0, 'uint8', (16,), (), (16,), 0)\n"
        "for call in (loading, mapping):\n"
        "    try:\n        call()\n"
        "    except UnsupportedInput as error:\n        print(error)\n"
    )
    lines = said(code, LD_LIBRARY_PATH=str(tmp_path)).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("libcuda.so.1 cannot be loaded (") for line in lines)
    assert all(line.endswith("need an NVIDIA driver. Use backend='auto'.") for line in lines)


GOOD: dict[str, Any] = {
    "address": 4096, "dtype": "float16", "dims": (8192, 100), "strides_bytes": (16384,), "box": (64, 128),
    "swizzle": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"dtype": "complex64"}, "dtype is complex64; accepted: uint8"),
        ({"swizzle": 96}, "swizzle is 96 bytes; accepted: 0, 32, 64, 128"),
        ({"dims": (8192, 100, 2)}, "3 sizes, 1 strides and a box of 2 were given"),
        ({"dims": (), "strides_bytes": (), "box": ()}, "0 sizes"),
        ({"address": 4104}, "the address is 0x1008; it must be a multiple of 16"),
        ({"dims": (0, 100)}, r"the sizes are \(0, 100\)"),
        ({"strides_bytes": (16392,)}, "each must be a multiple of 16"),
        ({"box": (64, 257)}, r"each edge must lie in 1 \.\. 256"),
        ({"box": (4, 128)}, "the box is 8 bytes wide; it must be a multiple of 16"),
        ({"box": (128, 128)}, "the box is 256 bytes wide; a swizzle of 128 takes at most 128"),
    ],
)
def test_a_map_that_the_hardware_does_not_take_says_which_rule_it_breaks(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UnsupportedInput, match=complaint):
        encode_map(**{**GOOD, **wrong})

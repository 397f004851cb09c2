"""Every counter we name, asked of NVIDIA's own metrics library: it knows the chips and needs no GPU.

libnvperf_host comes in the wheel ncu-report (17 MB), so this is run by hand: pytest -m network tests/profile
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from firstlight.profile.metrics import METRICS, OLD_NAMES

pytestmark = pytest.mark.network
CHIPS = ("TU102", "GA100", "AD102", "GH100", "GB100", "GB202")
TENSOR_5 = "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_active"
REQUEST_BYTES = 40  # NVPW_MetricEvalRequest


def record(*names: tuple[str, Any]) -> type[ctypes.Structure]:
    """A parameter record of the library: its size and a reserved pointer come first."""
    fields = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p), *names]
    return type("Record", (ctypes.Structure,), {"_fields_": fields})


Start = record()
Size = record(("chip", ctypes.c_char_p), ("image", ctypes.c_void_p), ("size", ctypes.c_size_t))
Make = record(
    ("buffer", ctypes.c_void_p), ("size", ctypes.c_size_t), ("chip", ctypes.c_char_p), ("image", ctypes.c_void_p),
    ("data", ctypes.c_void_p), ("data_size", ctypes.c_size_t), ("evaluator", ctypes.c_void_p),
)  # fmt: skip
Ask = record(
    ("evaluator", ctypes.c_void_p), ("name", ctypes.c_char_p), ("request", ctypes.c_void_p), ("size", ctypes.c_size_t)
)


class Chip:
    """The counters of one chip."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._library = library
        size = Size(chip=name.encode())
        assert self._call("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", size) == 0, name
        self._buffer = ctypes.create_string_buffer(size.size)
        self._made = Make(buffer=ctypes.addressof(self._buffer), size=size.size, chip=name.encode())
        assert self._call("NVPW_CUDA_MetricsEvaluator_Initialize", self._made) == 0, name

    def has(self, counter: str) -> bool:
        request = ctypes.create_string_buffer(4 * REQUEST_BYTES)
        asked = Ask(
            evaluator=self._made.evaluator,
            name=counter.encode(),
            request=ctypes.addressof(request),
            size=REQUEST_BYTES,
        )
        return self._call("NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest", asked) == 0

    def _call(self, function: str, parameters: Any) -> int:
        parameters.structSize = ctypes.sizeof(parameters)
        status: int = getattr(self._library, function)(ctypes.byref(parameters))
        return status


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("ncu-report")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), "ncu-report"]
    if subprocess.run(pip, capture_output=True, check=False).returncode != 0:
        pytest.skip("ncu-report cannot be had from the package index")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [member] = [name for name in archive.namelist() if Path(name).name == "libnvperf_host.so"]
        loaded = ctypes.CDLL(archive.extract(member, folder))
    start = Start()
    start.structSize = ctypes.sizeof(start)
    assert loaded.NVPW_InitializeHost(ctypes.byref(start)) == 0
    return loaded


@pytest.mark.parametrize("name", CHIPS)
def test_every_metric_has_a_way_on_every_chip_with_memory_of_its_own(library: ctypes.CDLL, name: str) -> None:
    chip = Chip(library, name)
    for metric in METRICS:
        assert all(chip.has(counter) for counter in metric.ways[0].names if counter != TENSOR_5), metric.key
    assert chip.has(TENSOR_5) == (name == "GB100")


@pytest.mark.parametrize("name", CHIPS)
def test_the_stall_counter_of_the_field_report_exists_nowhere(library: ctypes.CDLL, name: str) -> None:
    chip = Chip(library, name)
    for old in OLD_NAMES:
        if "nvprof" in old.why:
            assert not any(chip.has(f"{old.name}{suffix}") for suffix in (".avg.pct", ".pct", ".ratio", ".sum"))


def test_a_chip_that_shares_the_hosts_memory_has_no_memory_counters(library: ctypes.CDLL) -> None:
    chip = Chip(library, "GB10B")
    assert not chip.has("dram__bytes.sum")
    assert chip.has("gpu__time_duration.sum")

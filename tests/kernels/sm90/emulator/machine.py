"""A Hopper GPU that is not there: the real plans, and launches that run in the emulator.

with emulated_gpu(folder, multiprocessors=2) as gpu:
    sm90.multiply(index, values, x, out, layout=Layout.TOKENS, epilogue=Epilogue())   # ordinary tensors
    assert gpu.launched == ["multiply"]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from firstlight.kernels.memo import TensorMemo
from firstlight.kernels.sm90 import (
    again,
    attention,
    driver,
    gradient,
    gradient_once,
    libcuda,
    loaded,
    multiply_plan,
    problem,
    sample_plan,
    workspace,
)
from tests.kernels.sm90.emulated import FAKE_NVCC
from tests.kernels.sm90.emulator.driver import EmulatingDriver

STREAM = 7


@contextmanager
def emulated_gpu(folder: Path, *, multiprocessors: int = 2) -> Iterator[EmulatingDriver]:
    """A driver that emulates, a compiler that keeps its arguments, and so many multiprocessors."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "nvcc").write_text(FAKE_NVCC)
    (folder / "bin" / "nvcc").chmod(0o755)
    made = EmulatingDriver()
    properties = SimpleNamespace(multi_processor_count=multiprocessors)
    with pytest.MonkeyPatch.context() as patch:
        settings = {"FIRSTLIGHT_JIT": "nvcc", "CUDA_HOME": str(folder), "FIRSTLIGHT_CACHE_DIR": str(folder)}
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.setattr(libcuda, "library", lambda: made)
        for module in (again, attention, gradient):
            patch.setattr(module, "_raw_stream", lambda device: STREAM)
        patch.setattr(attention, "_KEPT", made)  # a name of its own for launches that name this driver
        patch.setattr(again, "_is_capturing", lambda: False)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        patch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        for name in ("_PRODUCTS", "_SAMPLES"):  # launches that name this driver
            patch.setattr(again, name, TensorMemo())
        _forget()
        yield made
    _forget()


def _forget() -> None:
    """What the backend keeps of devices and plans."""
    for cached in (driver.load, loaded.loaded, driver.encode_map, libcuda.primary_context, problem.multiprocessors):
        cached.cache_clear()
    multiply_plan._kernels.cache_clear()
    for module in (attention, gradient, gradient_once):
        module._kernel.cache_clear()
    for kept in (multiply_plan._PLANS, sample_plan._PLANS, workspace._KEPT):
        kept.clear()

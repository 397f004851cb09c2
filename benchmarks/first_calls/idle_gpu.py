"""A process whose tensors say that they are on an H200: the Python of a call can be timed where there is no GPU.

Tensors stay on the processor, the driver is idle_driver.c, and streams, events and questions of torch.cuda are answered
by functions of C that do nothing. So a call goes every step that it goes on a GPU, launches nothing, and its result is
never written. What CUDA itself takes (a launch some 4 us, an event 3 to 10, memory 1 to 2) is not in a time from here.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import triton

INCLUDES = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
MULTIPROCESSORS = 132


class IdleEvent:
    """An event that has always happened."""

    __slots__ = ()

    def record(self, stream: object = None) -> None:
        """Nothing."""

    def query(self) -> bool:
        """Yes."""
        return True


class IdleStream:
    """The default stream."""

    __slots__ = ()
    cuda_stream = 0

    def wait_event(self, event: object) -> None:
        """Nothing."""


def pretend() -> None:
    """Before anything of firstlight.kernels is imported."""
    folder = Path(tempfile.mkdtemp(prefix="firstlight-idle-"))
    library = folder / "libcuda.so.1"
    source = Path(__file__).with_name("idle_driver.c")
    command = ["gcc", "-O2", "-shared", "-fPIC", f"-I{INCLUDES}", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*command, str(source)], check=True)
    ctypes.CDLL(str(library))  # found by its soname from now on
    kept = torch.Tensor
    kept.is_cuda = True
    kept.get_device = staticmethod(int)  # type: ignore[assignment,method-assign] # 0
    kept.record_stream = staticmethod(id)  # type: ignore[assignment,method-assign]
    cuda, stream = torch.cuda, IdleStream()
    cuda.Event = IdleEvent  # type: ignore[assignment,misc]
    cuda.current_stream = lambda device=None: stream  # type: ignore[assignment,return-value]
    cuda.current_device = int
    cuda.is_current_stream_capturing = bool
    cuda.get_device_capability = lambda device=None: (9, 0)
    cuda.get_device_properties = lambda device=None: SimpleNamespace(  # type: ignore[assignment,return-value]
        multi_processor_count=MULTIPROCESSORS, name="NVIDIA H200"
    )
    for name, idle in (
        ("_cuda_getCurrentRawStream", {0: 0}.get), ("_cuda_isCurrentStreamCapturing", bool), ("_cuda_getDevice", int)
    ):  # fmt: skip
        setattr(torch._C, name, idle)
    from firstlight.kernels.sm90 import loaded
    from firstlight.kernels.sm90.compile import SOURCES, Compiled, Variant

    def built(variant: Variant, *, debug: bool = False, folder: Path = SOURCES) -> Compiled:
        return Compiled(variant.source.encode(), "", "", "")

    loaded.built = built  # type: ignore[attr-defined] # NVRTC asks the driver, too

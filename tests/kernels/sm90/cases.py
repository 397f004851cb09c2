"""What the tests of the Hopper backend share: small kernels, and which compilers this machine has."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firstlight.kernels.sm90 import nvcc, nvrtc
from firstlight.kernels.sm90.compile import Variant

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KERNELS = HERE / "cuda"
ONE = Variant("one_wgmma", (("TIMES", 1),), hgmma=1)

HAS_NVRTC, HAS_NVCC = nvrtc.find_nvrtc() is not None, nvcc.find_nvcc() is not None
needs_nvrtc = pytest.mark.skipif(not HAS_NVRTC, reason="needs NVRTC: pip install nvidia-cuda-nvrtc")
needs_nvcc = pytest.mark.skipif(not HAS_NVCC, reason="needs nvcc")
needs_compiler = pytest.mark.skipif(not (HAS_NVRTC or HAS_NVCC), reason="needs NVRTC or nvcc")
needs_both = pytest.mark.skipif(not (HAS_NVRTC and HAS_NVCC), reason="needs NVRTC and nvcc")


def in_processes(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What work(0), work(1), ... return, each in a forked process of its own, at the same time."""
    context = multiprocessing.get_context("fork")  # a fresh interpreter would spend seconds on importing torch
    answers = context.Queue()
    start = context.Barrier(count)

    def run(number: int) -> None:
        start.wait(60)
        try:
            answers.put((number, work(number)))
        except BaseException as error:  # noqa: BLE001 told by the parent
            answers.put((number, error))

    running = [context.Process(target=run, args=(number,)) for number in range(count)]
    for process in running:
        process.start()
    found = dict(answers.get(timeout=120) for _ in running)
    for process in running:
        process.join(60)
    for answer in found.values():
        if isinstance(answer, BaseException):
            raise answer
    return [found[number] for number in range(count)]


def said(code: str, **given: str) -> str:
    """What a Python child prints; its failure is the test's."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path, **given}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout

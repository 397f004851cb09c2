"""Runs the sanitizer's cases in the emulator with every access of the kernels to memory checked; a program of its own.

    python -m tests.kernels.sm90.emulator.addresses multiply,gradient 4 [FILE OLD NEW]     every fourth case

AddressSanitizer has to be loaded before Python's first allocation, so this runs as a child of the test, with libasan in
LD_PRELOAD. It stands in for compute-sanitizer's memcheck where there is no GPU: tensors are ordinary memory here, so
that a list, a vector of sums or bits read past its end is seen at the line of the kernel. Boxes that the copy engine
moves are cut at the tensor by the emulator, as by the hardware.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.sanitizer.cases import THREAD_BLOCKS, cases, run_case
from benchmarks.sanitizer.where import Where

from firstlight.kernels import sm90
from firstlight.kernels.sm90 import attention
from tests.kernels.sm90.emulator.build import SOURCES
from tests.kernels.sm90.emulator.machine import STREAM, emulated_gpu


def main(what: str, every: str, *fault: str) -> int:
    """0: all cases right; AddressSanitizer ends the process with its own code and a report otherwise."""
    attention._raw_stream = lambda device: STREAM
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, emulated_gpu(Path(folder), multiprocessors=THREAD_BLOCKS) as gpu:
        if fault:
            file, old, new = fault
            text = (SOURCES / file).read_text()
            assert text.count(old) == 1, f"{file} holds {text.count(old)} times: {old}"
            gpu.replaced = {file: text.replace(old, new)}
        for case in cases(tuple(what.split(",")))[:: int(every)]:
            said = run_case(case, Where("cpu", sm90, attention))
            print(f"{case.id}: {said or 'ok'}", flush=True)
            wrong += bool(said)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Tensors held for graphs by a driver that stands in: LD_LIBRARY_PATH=FOLDER python captured_cases.py prints JSON."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import weakref

import torch

from firstlight.kernels import captured


def main() -> None:
    """Three graphs, two of which go, and one whose driver does not know graphs."""
    driver = ctypes.CDLL("libcuda.so.1")
    tensors = [torch.zeros(4) for _ in range(4)]
    storages = [weakref.ref(tensor.untyped_storage()) for tensor in tensors]
    seen: dict[str, object] = {}
    captured.keep(11, (tensors[0], tensors[1]))
    captured.keep(11, (tensors[0],))
    captured.keep(12, (tensors[1], tensors[2]))
    seen["held"] = captured.held_tensors()
    driver.fake_graph_goes(11)
    os.environ["FAKE_NO_CAPTURE_INFO"] = "1"
    ctypes.CDLL(None).setenv(b"FAKE_NO_CAPTURE_INFO", b"1", 1)
    captured.keep(13, (tensors[3],))  # a new capture: what went is dropped
    seen["after one went"] = captured.held_tensors()
    tensors.clear()
    gc.collect()
    seen["alive"] = [storage() is not None for storage in storages]
    driver.fake_graph_goes(12)
    captured.drop_gone()
    captured.drop_gone()
    gc.collect()
    seen["alive at the end"] = [storage() is not None for storage in storages]
    with captured.relaxed():
        inside = driver.fake_mode()
    seen["modes"] = [inside, driver.fake_mode()]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()

"""Child script: load libcuda.so.1, ask its version, call cuInit, look at the devices; no context is created.

Prints one JSON object. A call that hangs is told apart: after argv[1] seconds the answer so far is printed with
"hung": "cuInit", and the process ends without waiting for it (ctypes lets other threads run during a call).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from typing import Any

MOST_DEVICES = 64
COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


def look(answer: dict[str, Any]) -> None:
    """Fill `answer` step by step; answer['hung'] always names the call that is under way."""
    answer["hung"] = "dlopen"
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        answer["load_error"] = str(error)[:300]
        del answer["hung"]
        return
    try:
        answer["path"] = mapped_path(ctypes.cast(libcuda.cuInit, ctypes.c_void_p).value or 0)
        ask(libcuda, answer)
    except AttributeError as error:  # a symbol is missing: not NVIDIA's library, or a very old one
        answer["missing_symbol"] = str(error)[:300]
    del answer["hung"]


def ask(libcuda: Any, answer: dict[str, Any]) -> None:
    answer["hung"] = "cuDriverGetVersion"
    version = ctypes.c_int(0)
    answer["version_code"] = libcuda.cuDriverGetVersion(ctypes.byref(version))
    answer["version"] = version.value
    answer["hung"] = "cuInit"
    code = libcuda.cuInit(0)
    answer["init_code"] = code
    answer["init_name"] = words(libcuda.cuGetErrorName, code)
    answer["init_text"] = words(libcuda.cuGetErrorString, code)
    if code != 0:
        return
    answer["hung"] = "cuDeviceGetCount"
    count = ctypes.c_int(0)
    answer["count_code"] = libcuda.cuDeviceGetCount(ctypes.byref(count))
    answer["count"] = count.value
    answer["hung"] = "cuDeviceGetName"
    answer["devices"] = []
    for ordinal in range(min(count.value, MOST_DEVICES)):
        answer["devices"].append(device(libcuda, ordinal))


def device(libcuda: Any, ordinal: int) -> dict[str, Any]:
    handle = ctypes.c_int(0)
    name = ctypes.create_string_buffer(256)
    major, minor, memory = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_size_t(0)
    codes = [
        libcuda.cuDeviceGet(ctypes.byref(handle), ordinal),
        libcuda.cuDeviceGetName(name, len(name), handle),
        libcuda.cuDeviceGetAttribute(ctypes.byref(major), COMPUTE_CAPABILITY_MAJOR, handle),
        libcuda.cuDeviceGetAttribute(ctypes.byref(minor), COMPUTE_CAPABILITY_MINOR, handle),
        libcuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle),
    ]
    return {
        "code": next((code for code in codes if code), 0),
        "name": name.value.decode("utf-8", "replace"),
        "major": major.value,
        "minor": minor.value,
        "memory_bytes": memory.value,
    }


def words(function: Any, code: int) -> str:
    """What the library itself calls an error code, e.g. 'CUDA_ERROR_NO_DEVICE'; '' when it does not know it."""
    text = ctypes.c_char_p()
    if function(code, ctypes.byref(text)) != 0 or text.value is None:
        return ""
    return text.value.decode("utf-8", "replace")


def mapped_path(address: int) -> str:
    """The file that holds an address, links resolved, e.g. /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            start, _, end = line.partition(" ")[0].partition("-")
            if int(start, 16) <= address < int(end, 16):
                return "/" + line.rstrip("\n").partition("/")[2]
    return ""


def main() -> None:
    answer: dict[str, Any] = {}
    worker = threading.Thread(target=look, args=(answer,), daemon=True)
    try:
        worker.start()
    except RuntimeError:  # no more threads allowed here: who asked has a limit too
        look(answer)
    else:
        worker.join(float(sys.argv[1]))
    print(json.dumps(dict(answer)), flush=True)
    sys.stdout.close()  # a pipe of its own: who asked reads on while the driver library puts its things away
    os._exit(0)  # a hung call would keep an ordinary exit waiting


if __name__ == "__main__":
    main()

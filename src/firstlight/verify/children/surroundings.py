"""What a program sees from where it is started: interpreter, torch, libcuda, GPUs."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from typing import Any

from firstlight.verify.children.witness import Witness


def prove(question: dict[str, Any], witness: Witness) -> str:
    seen: dict[str, Any] = {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "python": sys.version.split()[0],
        "python_on_path": shutil.which("python3") or "none",
        "ld_library_path": os.environ.get("LD_LIBRARY_PATH", ""),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES", "not set"),
    }
    witness.more.update(seen)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            import torch
        except ImportError as error:
            witness.fault(f"import torch fails here: {type(error).__name__}: {error}")
        seen["file"] = str(torch.__file__)
        seen["version"] = str(torch.__version__)
        seen["available"] = bool(torch.cuda.is_available())
        seen["gpus"] = torch.cuda.device_count() if seen["available"] else 0
    seen["libcuda"] = libcuda()
    witness.more.update(seen)
    for name, value in seen.items():
        witness.saw(name.replace("_", " "), value)
    for warning in said[:2]:
        witness.saw("warning", str(warning.message)[:300])
    gpus = f"{seen['gpus']} GPU{'' if seen['gpus'] == 1 else 's'}" if seen["available"] else "no GPU"
    return f"torch {seen['version']} sees {gpus}" + (f", libcuda {seen['libcuda']}" if seen["libcuda"] else "")


def libcuda() -> str:
    """The libcuda that this process has loaded; '' where none is."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line.split(None, 5)[-1].strip()
                if os.path.basename(path).startswith("libcuda.so"):
                    return path
    except OSError:
        pass
    return ""

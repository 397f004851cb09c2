"""Child: the last bytes of a compressed kernel module, as {"tail": hex} or {"error": text}.

Arguments: the file, and how many bytes. The signature stands at the end, so all of it has to be unpacked.
"""

from __future__ import annotations

import sys
from typing import Any

PIECE = 1 << 20


def unpacked(path: str) -> Any:
    """The file opened through what unpacks it; zstd is in Python since 3.14, and else a program."""
    if path.endswith(".xz"):
        import lzma

        return lzma.open(path)
    if path.endswith(".gz"):
        import gzip

        return gzip.open(path)
    if path.endswith(".zst"):
        import importlib

        try:
            return importlib.import_module("compression.zstd").open(path)
        except ImportError:
            import subprocess

            return subprocess.Popen(["zstd", "-dcq", "--", path], stdout=subprocess.PIPE).stdout
    return open(path, "rb")


def broken() -> tuple[type[Exception], ...]:
    """What the unpackers raise for a file that is not theirs; a Python may be built without one of them."""
    found: list[type[Exception]] = [OSError, EOFError, ValueError, ImportError]
    for module, name in (("lzma", "LZMAError"), ("zlib", "error"), ("compression.zstd", "ZstdError")):
        loaded = sys.modules.get(module)
        if loaded is not None:
            found.append(getattr(loaded, name))
    return tuple(found)


def tail(path: str, count: int) -> dict[str, str]:
    kept = b""
    try:
        with unpacked(path) as file:
            while piece := file.read(PIECE):
                kept = (kept + piece)[-count:]
    except broken() as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"tail": kept.hex()}


def main() -> None:
    import json

    json.dump(tail(sys.argv[1], int(sys.argv[2])), sys.stdout)


if __name__ == "__main__":
    main()

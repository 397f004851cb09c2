"""Small real wheels in a folder: an index that needs no network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, *, requires: tuple[str, ...] = (), size: int = 0, more: tuple[str, ...] = ()
) -> Path:
    """A pure wheel with one module that knows its version; `size` adds bytes that do not compress, `more` files.

    A file of `more` called entry_points.txt names a program.
    """
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{module}/__init__.py": f"VERSION = {version!r}\n".encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    for each in more:
        where = f"{info}/{each}" if each == "entry_points.txt" else each
        files[where] = f"[console_scripts]\n{name} = {module}:main\n".encode() if where != each else version.encode()
    if size:
        files[f"{module}/weights.bin"] = hashlib.shake_256(name.encode()).digest(size)
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, data in files.items():
            archive.writestr(inside, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

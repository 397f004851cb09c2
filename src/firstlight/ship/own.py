"""firstlight for an image that lacks it: an archive of wheels, run by the Python of the image, beside its blobs."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

from firstlight.fleet.tool import tool
from firstlight.ship.image import Blob

_EPOCH = (1980, 1, 1, 0, 0, 0)
_PROGRAM = Path(__file__).parent / "children/in_image.py"
KIND = "firstlight"


def own_blob(blobs: Path) -> Blob:
    """The archive in the cache, under its sha256; the same bytes from the same installed files."""
    data = _packed()
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data), KIND)
    path = blobs / blob.digest
    if not path.exists() or path.stat().st_size != blob.size_bytes:
        part = blobs / f"{blob.digest}.{os.getpid()}.part"
        part.write_bytes(data)
        os.replace(part, path)
    return blob


def _packed() -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _PROGRAM.read_bytes())
        with zipfile.ZipFile(io.BytesIO(tool().data)) as wheels:
            for name in wheels.namelist():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), wheels.read(name))
    return whole.getvalue()

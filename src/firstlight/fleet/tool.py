"""firstlight for a host: its own wheel and the wheels of what it needs, packed from what is installed here.

No index is asked, here or there. Compiled parts stay here: they are of this Python and this processor, and what needs
them (PyYAML, MarkupSafe) works without.
"""

from __future__ import annotations

import functools
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from firstlight.frozen import dataclass
from firstlight.own_wheel import own_wheel

_EPOCH = (1980, 1, 1, 0, 0, 0)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NOT_TAKEN = (".so", ".pyd", ".pyc", ".pyx", ".c", "/INSTALLER", "/REQUESTED", "/direct_url.json")


@dataclass(frozen=True, slots=True)
class Tool:
    """An archive of wheels and its SHA-256, which the host checks before it unpacks anything."""

    data: bytes
    sha256: str

    def __repr__(self) -> str:
        return f"Tool({len(self.data)} bytes, {self.sha256})"


@functools.cache
def tool() -> Tool:
    """The same bytes from the same installed files."""
    own = own_wheel()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(zipfile.ZipInfo(own.name, _EPOCH), own.data)
        for need in _needs():
            name = f"{need.metadata['Name']}-{need.version}-py3-none-any.whl"
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), _packed(need))
    data = whole.getvalue()
    return Tool(data, hashlib.sha256(data).hexdigest())


def _needs() -> Iterator[Distribution]:
    """What firstlight needs, and what that needs; what is for another Python only (tomli) is not installed here.

    `firstlight.toml` does without.
    """
    waiting, seen = ["firstlight"], set()
    while waiting:
        name = waiting.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        if name != "firstlight":
            yield found
        waiting += sorted(_name(text) for text in found.requires or () if "extra ==" not in text)


def _name(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match, requirement
    return match[0]


def _packed(need: Distribution) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for file in sorted(need.files or (), key=str):
            inside = file.as_posix()
            if not inside.endswith(_NOT_TAKEN) and ".." not in file.parts:
                entry = zipfile.ZipInfo(inside, _EPOCH)
                archive.writestr(entry, Path(str(need.locate_file(file))).read_bytes(), zipfile.ZIP_DEFLATED)
    return whole.getvalue()

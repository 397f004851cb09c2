"""The wheel that the firstlight which runs here is made of, packed from its installed files: no index is asked."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import firstlight
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

_PROJECT = "firstlight"
_TAG = "py3-none-any"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip can hold; the same files give the same bytes
_MODE = 0o100644 << 16
_LEVEL = 3  # 0.12 s and 3.7 MB on a machine where 9, the smallest, takes 0.28 s for 3.5 MB; each emit packs it
# Which format METADATA has is up to the tool that built us, and the README of an editable install is that of its day.
_NOT_TAKEN = ("metadata-version", "name", "version", "description", "description-content-type")


@dataclass(frozen=True, slots=True)
class OwnWheel:
    """A wheel, e.g. firstlight-0.1.0-py3-none-any.whl, and its SHA-256, which whoever installs it checks."""

    name: str
    data: bytes
    sha256: str

    def __repr__(self) -> str:
        return f"OwnWheel({self.name}, {len(self.data)} bytes, {self.sha256})"


@functools.cache
def own_wheel() -> OwnWheel:
    """What runs here as a wheel: the same bytes from an editable install and from a wheel of the same source."""
    package = Path(firstlight.__file__).parent
    try:
        about = distribution(_PROJECT)
    except PackageNotFoundError:
        raise BadInput(
            f"firstlight runs from {package} and is not installed, so that what it needs is on no record. "
            f"Install it: python -m pip install --editable {package.parent.parent}"
        ) from None
    info = f"{_PROJECT}-{firstlight.__version__}.dist-info"
    members = dict(sorted(_code(package, about))) | dict(sorted(_information(about, info)))
    members[f"{info}/RECORD"] = _record(members, f"{info}/RECORD")
    data = _zipped(members)
    return OwnWheel(f"{_PROJECT}-{firstlight.__version__}-{_TAG}.whl", data, hashlib.sha256(data).hexdigest())


def _code(package: Path, about: Distribution) -> Iterator[tuple[str, bytes]]:
    """Every file of the package: those that pip wrote down, or, of an editable install, those of its folder."""
    recorded = {file.as_posix(): Path(str(about.locate_file(file))) for file in about.files or ()}
    init = recorded.get(f"{_PROJECT}/__init__.py")
    if init is None or not init.exists() or not init.samefile(package / "__init__.py"):
        recorded = {path.relative_to(package.parent).as_posix(): path for path in package.rglob("*") if path.is_file()}
    for inside, path in recorded.items():
        if inside.startswith(f"{_PROJECT}/") and not _is_left_over(inside):
            yield inside, path.read_bytes()


def _is_left_over(inside: str) -> bool:
    """Whether it was compiled on this machine, or an editor left it."""
    parts = inside.split("/")
    return "__pycache__" in parts or any(part.startswith(".") for part in parts) or inside.endswith((".pyc", "~"))


def _information(about: Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    """METADATA, WHEEL, entry points and licences; nothing of where and how it was installed here."""
    text = about.read_text("METADATA") or ""
    fields = [(name, value) for name, value in HeaderParser().parsestr(text).items() if name.lower() not in _NOT_TAKEN]
    lines = [("Metadata-Version", "2.4"), ("Name", _PROJECT), ("Version", firstlight.__version__), *fields]
    yield f"{info}/METADATA", "".join(f"{name}: {value}\n" for name, value in lines).encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: {_PROJECT} {firstlight.__version__}\nRoot-Is-Purelib: true\nTag: {_TAG}\n"
    yield f"{info}/WHEEL", wheel.encode()
    for file in about.files or ():
        folder, _, name = file.as_posix().partition("/")
        if folder.endswith(".dist-info") and (name == "entry_points.txt" or name.startswith("licenses/")):
            yield f"{info}/{name}", Path(str(about.locate_file(file))).read_bytes()


def _record(members: dict[str, bytes], own: str) -> bytes:
    """One line for each file, with its digest as PEP 376 writes it; RECORD itself has none."""
    lines = []
    for name, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join((*lines, f"{own},,\n")).encode()


def _zipped(members: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, _MODE
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
    return whole.getvalue()

"""A bundle in the hands of somebody else: thirty ways to change it, each of which wants to get its own code in."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from firstlight.apply.bundle import MANIFEST
from firstlight.apply.bundle_download import Chosen, Part, Source, fill
from firstlight.ways.wheel_target import Target
from tests.apply.wheels import make_wheel

HERE = ".".join(platform.python_version_tuple()[:2])
TARGET = Target(platform.machine(), HERE, "2.28")
GOOD = {"demo==1.0", "part==1.0", "extra==0.1"}
PART = "part-1.0-py3-none-any.whl"
EVIL = "EVIL"

Change = Callable[[Path], object]


def good_bundle(folder: Path) -> Path:
    """demo, which needs part and extra, as `firstlight bundle` lays it down."""
    index = folder / "index"
    make_wheel(index, "demo", "1.0", requires=("part", "extra>=0.1"))
    make_wheel(index, "part", "1.0")
    make_wheel(index, "extra", "0.1")
    chosen = Chosen("a test", "another-wheel:demo", TARGET, (Part(("demo==1.0",), Source(folders=(str(index),))),))
    fill(str(folder / "bundle"), chosen, watch=lambda line: None)
    return folder / "bundle"


def evil_wheel(folder: Path, name: str, version: str, *, file: str = "", members: dict[str, str] | None = None) -> Path:
    """A wheel whose module says EVIL, under any file name, with any members more."""
    made = make_wheel(folder / "made", name, version)
    with zipfile.ZipFile(made) as archive:
        texts = {each: archive.read(each).decode() for each in archive.namelist()}
    made.unlink()
    made.parent.rmdir()
    path = folder / (file or made.name)
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in {**texts, **(members or {})}.items():
            archive.writestr(inside, f"{EVIL} = 1\n" if inside.endswith("__init__.py") else text)
    return path


def evil_source(folder: Path, name: str) -> None:
    """An sdist as .tar.gz or .zip that leaves a mark when it is built."""
    text = (
        f"open({str(folder.parent / 'mark')!r}, 'w')\nfrom setuptools import setup\nsetup(name='part', version='99')\n"
    )
    files = {"part-99/setup.py": text, "part-99/PKG-INFO": "Metadata-Version: 2.1\nName: part\nVersion: 99\n"}
    if name.endswith(".tar.gz"):
        with tarfile.open(folder / name, "w:gz") as archive:
            for inside, body in files.items():
                entry = tarfile.TarInfo(inside)
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body.encode()))
        return
    with zipfile.ZipFile(folder / name, "w") as zipped:
        for inside, body in files.items():
            zipped.writestr(inside, body)


def _page(folder: Path, name: str) -> None:
    evil_wheel(folder.parent, "part", "99")
    wheel = (folder.parent / "part-99-py3-none-any.whl").as_uri()
    (folder / name).write_text(f'<html><body><a href="{wheel}">part-99-py3-none-any.whl</a></body></html>')


def _damage(folder: Path, change: Callable[[bytes], bytes]) -> None:
    (folder / PART).write_bytes(change((folder / PART).read_bytes()))


def _instead(folder: Path, make: Callable[[Path], object]) -> None:
    (folder / PART).unlink()
    make(folder / PART)


def _one_bit(data: bytes) -> bytes:
    return data[:60] + bytes([data[60] ^ 1]) + data[61:]


def _manifest(folder: Path, **wheel: object) -> None:
    """The entry of part with other values; its digest and size as the file has them now."""
    path = folder / MANIFEST
    document = json.loads(path.read_text())
    [entry] = [each for each in document["wheels"] if each["project"] == "part"]
    entry.update(wheel)
    path.write_text(json.dumps(document))


def _listed_evil(folder: Path, name: str, version: str, members: dict[str, str] | None = None) -> None:
    """Another file in part's place, and its true digest and size in the list."""
    made = evil_wheel(folder, name, version, file=PART, members=members)
    data = made.read_bytes()
    _manifest(folder, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def _twice(folder: Path) -> None:
    path = folder / MANIFEST
    document = json.loads(path.read_text())
    document["wheels"] += document["wheels"][:1]
    path.write_text(json.dumps(document))


def _manifest_pipe(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)


def _link(folder: Path) -> None:
    evil = evil_wheel(folder.parent, "part", "1.0")
    _instead(folder, lambda path: path.symlink_to(evil))


REFUSED: dict[str, Change] = {
    "a newer sdist": lambda folder: evil_source(folder, "part-99.tar.gz"),
    "a newer sdist as .zip": lambda folder: evil_source(folder, "part-99.zip"),
    "an egg": lambda folder: evil_source(folder, f"part-99-py{HERE}.egg"),
    "an sdist of the same version": lambda folder: evil_source(folder, "part-1.0.tar.gz"),
    "a newer wheel": lambda folder: evil_wheel(folder, "part", "99"),
    "a build tag": lambda folder: evil_wheel(folder, "part", "1.0", file="part-1.0-7-py3-none-any.whl"),
    "a closer tag": lambda folder: (
        evil_wheel(folder, "part", "1.0", file=f"part-1.0-py{HERE[0]}-none-linux_x86_64.whl") and None
    ),
    "another spelling": lambda folder: evil_wheel(folder, "part", "99", file="Part-99-py3-none-any.whl"),
    "capitals": lambda folder: evil_wheel(folder, "part", "99", file="part-99-py3-none-any.WHL"),
    "a page of links": lambda folder: _page(folder, "index.html"),
    "a page of links as .HTM": lambda folder: _page(folder, "links.HTM"),
    "a wheel replaced": lambda folder: evil_wheel(folder, "part", "1.0"),
    "one bit": lambda folder: _damage(folder, _one_bit),
    "cut short": lambda folder: _damage(folder, lambda data: data[:-9]),
    "empty": lambda folder: _damage(folder, lambda data: b""),
    "gone": lambda folder: (folder / PART).unlink(),
    "a link": _link,
    "a pipe": lambda folder: _instead(folder, os.mkfifo),
    "a folder": lambda folder: _instead(folder, Path.mkdir),
    "another project inside": lambda folder: _listed_evil(folder, "other", "1.0"),
    "another version inside": lambda folder: _listed_evil(folder, "part", "2.0"),
    "a member that leads out": lambda folder: _listed_evil(folder, "part", "1.0", {"../../../evil.py": EVIL}),
    "a member from the root": lambda folder: _listed_evil(folder, "part", "1.0", {"/tmp/evil.py": EVIL}),
    "a second METADATA": lambda folder: _listed_evil(folder, "part", "1.0", {"x-1.dist-info/METADATA": "Name: x\n"}),
    "a file elsewhere": lambda folder: _manifest(folder, file=f"../{PART}"),
    "a name with a line end": lambda folder: _manifest(folder, file="part.whl\n--index-url=http://evil.invalid/.whl"),
    "another project in the list": lambda folder: _manifest(folder, project="extra"),
    "another version in the list": lambda folder: _manifest(folder, version="99"),
    "a file twice": _twice,
    "no digest": lambda folder: _manifest(folder, sha256=""),
    "a list that is a pipe": _manifest_pipe,
}

"""A machine as it would be with wheels unpacked into a site-packages folder; nothing is unpacked there.

A member is inflated into an unnamed temporary file when more than its head is asked for: deflate cannot seek, and
the dynamic section of a library lies near its end. Memory stays bounded whatever the wheel holds.
"""

from __future__ import annotations

import fnmatch
import lzma
import os
import posixpath
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import IO

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.machine.interface import (
    CHILD_TIMEOUT_S,
    COMMAND_TIMEOUT_S,
    TEXT_LIMIT,
    ChildAnswer,
    ChildScript,
    Completed,
    Digest,
    Disk,
    Host,
    Machine,
    Stat,
    every_name,
)
from firstlight.opening import open_regular
from firstlight.versions import canonical

SHARED = re.compile(r"\.so(?:\.[0-9]|$)")  # not algorithm.sort_heap.h
_HEAD = 4096
_LARGEST_MEMBER = 8 << 30
_PIECE = 1 << 20
# What zipfile and the decompressors below it raise for an archive that is damaged, encrypted or packed unusually.
_UNREADABLE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error, RuntimeError, EOFError,
    OSError, ValueError, KeyError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WheelName:
    """What the file name of a wheel says, e.g. torch, 2.9.0, manylinux_2_28_aarch64."""

    project: str
    version: str
    platform: str

    @property
    def arch(self) -> str:
        """x86_64 or aarch64; "" for a wheel without compiled code."""
        return next((arch for arch in ("x86_64", "aarch64") if self.platform.endswith(arch)), "")


def wheel_name(path: str) -> WheelName | None:
    """The parts of a wheel's file name; None where it is not named as a wheel."""
    parts = posixpath.basename(path).removesuffix(".whl").split("-")
    if not path.endswith(".whl") or len(parts) not in (5, 6):
        return None
    return WheelName(canonical(parts[0]), parts[1], parts[-1])


class Wheel:
    """An open wheel: its members by their path under site-packages; members are inflated when they are read."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(open_regular(path))
        except _UNREADABLE as error:
            raise BadInput(f"{path}: this is not a wheel ({_why(error)}); accepted: a .whl file, which is a zip "
                           "archive. Fetch it again if a download was cut short.") from error  # fmt: skip
        self.members = {_installed_as(info.filename): info for info in self._archive.infolist() if not info.is_dir()}
        self._files: dict[str, IO[bytes]] = {}
        self._heads: dict[str, bytes] = {}

    def libraries(self) -> tuple[str, ...]:
        """The members that are named as shared libraries, e.g. torch/lib/libtorch_cpu.so."""
        return tuple(sorted(name for name in self.members if SHARED.search(posixpath.basename(name))))

    def metadata(self) -> str:
        """The text of METADATA; "" where there is none."""
        for name in self.members:
            if re.fullmatch(r"[^/]+\.dist-info/METADATA", name):
                return self.read(name, offset=0, size=TEXT_LIMIT).decode("utf-8", "replace")
        return ""

    def read(self, name: str, *, offset: int, size: int) -> bytes:
        """Bytes of a member."""
        try:
            if offset + size <= _HEAD and name not in self._files:
                if name not in self._heads:
                    with self._archive.open(self.members[name]) as stream:
                        self._heads[name] = stream.read(_HEAD)
                return self._heads[name][offset : offset + size]
            file = self._inflated(name)
        except _UNREADABLE as error:
            raise BadInput(f"{self.path}: {name} in it is damaged ({_why(error)}). Fetch the wheel again.") from error
        try:
            return os.pread(file.fileno(), size, offset)
        except (OSError, OverflowError, ValueError):  # an offset from a damaged file
            return b""

    def _inflated(self, name: str) -> IO[bytes]:
        if (there := self._files.get(name)) is not None:
            return there
        info = self.members[name]
        if info.file_size > _LARGEST_MEMBER:
            raise BadInput(f"{self.path}: {name} in it is {info.file_size / 1e9:.0f} GB; at most 8 GB are read.")
        file = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the wheel is open
        with self._archive.open(info) as stream:
            while piece := stream.read(_PIECE):
                file.write(piece)
        file.flush()
        self._files[name] = file
        return file


def _installed_as(name: str) -> str:
    """Where a member ends up under site-packages: torch-2.9.0.data/purelib/x is x."""
    return re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", name)


def _why(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower().rstrip(".")


class WheelMachine:
    """The machine `base` with wheels laid over `site`, and links; where both have a file, the wheel's is seen."""

    def __init__(
        self,
        base: Machine,
        site: str,
        wheels: tuple[Wheel, ...],
        *,
        links: Mapping[str, str] | None = None,
        replaced: tuple[str, ...] = (),
    ) -> None:
        """`replaced`: folders of the machine that installing the wheels takes away, e.g. an older torch."""
        self._base = base
        self._replaced = tuple(f"{folder}/" for folder in replaced)
        self._links = dict(links or {})
        self._files = {
            posixpath.normpath(f"{site}/{name}"): (wheel, name) for wheel in wheels for name in wheel.members
        }
        self._folders = _folders_of([*self._files, *self._links])

    @property
    def host(self) -> Host:
        return self._base.host

    def env(self, name: str) -> str | None:
        return self._base.env(name)

    def read(self, path: str, *, limit: int = TEXT_LIMIT, until: str = "") -> str | None:
        data = self.read_bytes(path, size=limit)
        text = None if data is None else data.decode("utf-8", "replace")
        return text.split(until, 1)[0] if text is not None and until else text

    def read_bytes(self, path: str, *, offset: int = 0, size: int = TEXT_LIMIT) -> bytes | None:
        found = self._files.get(self._plain(path))
        if found is None:
            return (
                None if self._is_gone(path) else self._base.read_bytes(self._followed(path), offset=offset, size=size)
            )
        return found[0].read(found[1], offset=offset, size=size)

    def search(self, path: str, pattern: bytes, *, limit: int = 8) -> tuple[bytes, ...] | None:
        if self._plain(path) not in self._files:
            return None if self._is_gone(path) else self._base.search(self._followed(path), pattern, limit=limit)
        data = self.read_bytes(path, size=TEXT_LIMIT) or b""
        return tuple(match.group(0) for match, _ in zip(re.finditer(pattern, data), range(limit), strict=False))

    def digest(self, path: str, name: str, work: Digest) -> tuple[str, ...] | None:
        return work(self)

    def why_not(self, path: str) -> str:
        if self._plain(path) in self._files:
            return "readable now"
        return "no such file" if self._is_gone(path) else self._base.why_not(self._followed(path))

    def list(self, path: str, pattern: str = "*", *, keep: Callable[[str], bool] = every_name) -> tuple[str, ...]:
        over = self._folders.get(posixpath.normpath(path), ())
        named = {name for name in over if fnmatch.fnmatch(name, pattern) and keep(name)}
        below = () if self._is_gone(f"{path}/") else self._base.list(path, pattern, keep=keep)
        return tuple(sorted(named | set(below)))

    def stat(self, path: str) -> Stat | None:
        plain = self._plain(path)
        if (found := self._files.get(plain)) is not None:
            info = found[0].members[found[1]]
            return Stat("file", info.file_size, 0o644, 0, 0, 0, writable=False)
        below = None if self._is_gone(path) else self._base.stat(self._followed(path))
        if below is None and plain in self._folders:
            return Stat("folder", 0, 0o755, 0, 0, 0, writable=True)  # it will be the installer's own
        return below

    def real_path(self, path: str) -> str:
        plain = self._plain(path)
        return plain if plain in self._files else self._base.real_path(self._followed(path))

    def _plain(self, path: str) -> str:
        """The path without '..', and where a link of ours leads."""
        plain = posixpath.normpath(path)
        return self._links.get(plain, plain)

    def _is_gone(self, path: str) -> bool:
        return bool(self._replaced) and f"{self._plain(path)}/".startswith(self._replaced)

    def _followed(self, path: str) -> str:
        """The path to ask the machine for: a '..' behind a folder that only a wheel has leads nowhere there."""
        plain = posixpath.normpath(path)
        if plain in self._links:
            return self._links[plain]
        return plain if "/../" in path and self._base.stat(path) is None else path

    def disk(self, path: str) -> Disk | None:
        return self._base.disk(path)

    def run(
        self,
        argv: tuple[str, ...],
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        keep: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        return self._base.run(argv, timeout_s=timeout_s, keep=keep, env=env)

    def child(
        self,
        script: ChildScript,
        *args: str,
        timeout_s: float = CHILD_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> ChildAnswer:
        return self._base.child(script, *args, timeout_s=timeout_s, env=env)


def _folders_of(files: Iterable[str]) -> dict[str, set[str]]:
    """Every folder that the files lie in, with the names directly in it."""
    found: dict[str, set[str]] = {}
    for path in files:
        while path != "/":
            folder, name = posixpath.split(path)
            if name in found.setdefault(folder, set()):
                break
            found[folder].add(name)
            path = folder
    return found

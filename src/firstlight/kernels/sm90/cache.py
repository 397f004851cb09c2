"""Built kernels, kept between processes: a folder each under ~/.cache/firstlight/kernels/sm90.

    compiled = built(Variant("multiply", (("BLOCK", 128),)))     # memory, then disk, then the compiler

    <key>/kernel.cubin, log.txt, meta.json        key: the source's texts, the flags, the compiler and the arch, hashed
    locks/0 ... locks/f                           held while compiling, by the key's first digit
    failed/multiply.txt                           the last log of a build that failed

An entry is written beside its place and renamed into it, so a reader meets a whole one or none; one whose checksums do
not fit is built again, and so is one that another user owns or can write. Processes that want the same kernel wait for
the one that builds it. A folder that cannot be written, or is not ours, costs one warning, and the kernels are then
kept in memory alone.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from firstlight.errors import NotOurs
from firstlight.kernels.sm90.compile import (
    ARCH,
    SOURCES,
    Compiled,
    Compiler,
    Program,
    Variant,
    compile_program,
    find_compiler,
    flags,
    read_program,
)  # fmt: skip
from firstlight.kernels.sm90.place import cache_folder, our_cache_folder, private
from firstlight.owned import open_ours, our_folder, read_ours

SCHEMA = "firstlight.sm90-kernel/1"
MOST_BYTES = 256 << 20  # a cubin has some 30 to 100 kB
WAIT_S = 120.0  # for another process that builds the same kernel; then both do
LEFT_BEHIND_S = 3600.0  # a half-written folder older than this belongs to a process that died
_HALF = ".half-"
_KEY_LENGTH = 64
_TRIES = 8  # where files cannot be locked, others may be at the same entry
_in_memory: dict[str, Compiled] = {}


class KernelsNotKept(UserWarning):
    """The cache folder cannot be written; kernels are compiled in each process."""


def built(variant: Variant, *, debug: bool = False, folder: Path = SOURCES) -> Compiled:
    """The compiled variant from memory, from disk, or from the compiler, in this order."""
    program, compiler = read_program(variant, debug=debug, folder=folder), find_compiler()
    key = key_of(program, compiler)
    found = _in_memory.get(key)
    if found is None:
        found = _in_memory[key] = _from_disk_or_compiler(key, program, compiler)
    return found


def key_of(program: Program, compiler: Compiler) -> str:
    """64 hexadecimal digits over all that decides what the compiler makes."""
    parts = (
        ARCH,
        compiler.identity,
        *flags(program, compiler),
        program.text,
        *(x for pair in program.headers for x in pair),
    )
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def read_entry(key: str) -> Compiled | None:
    """An entry of the disk; None where there is none or it is damaged."""
    try:
        with our_folder(str(cache_folder() / key)) as folder:
            meta = json.loads(read_ours(folder, "meta.json"))
            cubin, log = read_ours(folder, "kernel.cubin"), read_ours(folder, "log.txt")
        if (meta["schema"], meta["cubin_sha256"], meta["log_sha256"]) != (SCHEMA, _sum(cubin), _sum(log)):
            return None
        return Compiled(cubin, log.decode(), str(meta["compiler"]), str(meta["command"]))
    except NotOurs as error:
        _warn_once(str(cache_folder()), str(error))
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def kept_keys() -> tuple[str, ...]:
    """The keys of all entries of the disk."""
    try:
        return tuple(name for name in os.listdir(cache_folder()) if len(name) == _KEY_LENGTH)
    except OSError:
        return ()


def write_entry(key: str, compiled: Compiled) -> None:
    """Puts an entry into its place, in one step; raises OSError where the folder cannot be written, or is not ours."""
    base = our_cache_folder()
    half = Path(tempfile.mkdtemp(prefix=_HALF, dir=base))
    log = compiled.log.encode()
    meta = {
        "schema": SCHEMA, "compiler": compiled.compiler, "command": compiled.command,
        "cubin_sha256": _sum(compiled.cubin), "log_sha256": _sum(log),
    }  # fmt: skip
    try:
        for name, data in (("kernel.cubin", compiled.cubin), ("log.txt", log), ("meta.json", _encoded(meta))):
            with open(half / name, "xb", opener=private) as file:
                file.write(data)
        _put(half, base / key)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _put(half: Path, place: Path) -> None:
    """Renames an entry into its place; a whole one that is there already is as good and stays."""
    for _ in range(_TRIES):
        try:
            half.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        if read_entry(place.name) is not None:
            return
        _drop(place)


def drop_oldest(most_bytes: int = MOST_BYTES) -> None:
    """Keeps the folder below a size: entries not used for longest go first; the last used one always stays."""
    base = cache_folder()
    entries = []
    for path in base.iterdir():
        with contextlib.suppress(OSError):
            used = path.stat().st_mtime
            if path.name.startswith(_HALF):
                if used < time.time() - LEFT_BEHIND_S:
                    shutil.rmtree(path, ignore_errors=True)
            elif len(path.name) == _KEY_LENGTH:
                entries.append((used, sum(file.stat().st_size for file in path.iterdir()), path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries)[:-1]:
        if total <= most_bytes:
            break
        _drop(path)
        total -= size


def _from_disk_or_compiler(key: str, program: Program, compiler: Compiler) -> Compiled:
    if found := _taken(key):
        return found
    with _waiting_for_others(key):
        if found := _taken(key):
            return found
        made = compile_program(program, compiler)
        try:
            write_entry(key, made)
            drop_oldest()
        except OSError as error:
            _warn_once(str(cache_folder()), str(error))
        return made


def _taken(key: str) -> Compiled | None:
    found = read_entry(key)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(cache_folder() / key)  # used now, so not the first to be dropped
    return found


@contextlib.contextmanager
def _waiting_for_others(key: str) -> Iterator[None]:
    """Holds the key's lock; goes on without it where files cannot be written or locked, or after two minutes."""
    import fcntl

    try:
        with our_folder(str(our_cache_folder() / "locks"), make=0o755) as folder:
            file = os.fdopen(open_ours(folder, key[0], os.O_RDWR | os.O_CREAT), "wb")
    except (OSError, NotOurs):
        yield
        return
    with file:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go when the process ends, however it ends
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        yield


def _drop(path: Path) -> None:
    """Renames first: a reader meets a whole entry or none."""
    aside = Path(tempfile.mkdtemp(prefix=_HALF, dir=path.parent)) / "old"
    with contextlib.suppress(OSError):
        path.rename(aside)
    shutil.rmtree(aside.parent, ignore_errors=True)


def _encoded(meta: dict[str, str]) -> bytes:
    return json.dumps(meta, indent=1).encode()


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.lru_cache(maxsize=8)
def _warn_once(folder: str, error: str) -> None:
    warnings.warn(
        f"{folder} cannot be used ({error}); the Hopper kernels are compiled again in each process. "
        "Set FIRSTLIGHT_CACHE_DIR to a folder of your own.",
        KernelsNotKept,
        stacklevel=2,
    )

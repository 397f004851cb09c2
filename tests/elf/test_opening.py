"""Files that are damaged, cut, of the wrong kind or not files at all: the real loader, in a child, is the referee."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firstlight.elf.closure import Closure, closure, closure_of_many
from firstlight.elf.loader import whole_setup
from firstlight.machine.live import LiveMachine

Build = Callable[..., Path]
NAME = "libwanted.so.1"
LENGTHS = 56
HANGS = ("fifo",)
# Bytes that a file really has to the end of its last segment: data that is not zero, after a page of code and text.
SOURCE = (
    'asm(".pushsection .rodata,\\"a\\"\\n.fill 3000,1,0x41\\n.popsection\\n.pushsection .data\\n.globl last\\nlast:\\n'
    '.fill 5000,1,0x42\\n.popsection");\nextern unsigned char last[];\nint wanted(void) { return last[4999]; }\n'
)
# Opens one path as Python does; a damaged file may kill it. 3: it is open, and its last byte is not the right one.
REFEREE = """
#include <dlfcn.h>
int main(int count, char **words) {
    void *handle = dlopen(words[count - 1], RTLD_NOW);
    if (!handle) return 1;
    int (*wanted)(void) = (int (*)(void))dlsym(handle, "wanted");
    return !wanted || wanted() == 0x42 ? 0 : 3;
}
"""


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    path = tmp_path_factory.mktemp("referee") / "opens"
    subprocess.run([gcc, "-x", "c", "-", "-o", str(path), "-ldl"], input=REFEREE, text=True, check=True)
    return path


def _environ(**variables: object) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", **{name: str(value) for name, value in variables.items()}}


def _really(referee: Path, path: Path, **variables: object) -> int:
    """How the loader ends: 0, 1 for an error, 3 for wrong bytes, below 0 for the signal it died of."""
    done = subprocess.run([referee, path], env=_environ(**variables), capture_output=True, check=False, timeout=20)
    return done.returncode


def _ours(referee: Path, path: Path, **variables: object) -> Closure:
    machine = LiveMachine(environ=_environ(**variables))
    found = closure_of_many(machine, (str(path),), setup=whole_setup(machine), program=str(referee))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Path:
    return build(tmp_path_factory.mktemp("whole") / NAME, f"-Wl,-soname,{NAME}", source=SOURCE)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, build: Build, wanted: Path) -> Path:
    return build(tmp_path_factory.mktemp("asking") / "libasking.so", str(wanted))


def _lengths(wanted: Path) -> list[int]:
    size = wanted.stat().st_size
    near = [0, 1, 19, 20, 63, 64, 65, 119, 120, 400, 1023, 1024, 4095, 4096, 4097, 8191, 8192, 8193, size - 1, size]
    return sorted({*near, *range(0, size, size // (LENGTHS - len(near)))})


def test_a_library_cut_at_any_length_is_judged_as_by_the_loader(
    tmp_path: Path, referee: Path, wanted: Path, build: Build
) -> None:
    """Alone and one level down; section headers at the end of a file matter to nobody."""
    data = wanted.read_bytes()
    lengths = _lengths(wanted)
    assert len(lengths) >= 40
    asks = build(tmp_path / "libabove.so", str(wanted), "-Wl,-rpath,$ORIGIN").read_bytes()
    above = [tmp_path / str(length) / "libabove.so" for length in lengths]
    for length, path in zip(lengths, above, strict=True):
        path.parent.mkdir()
        path.write_bytes(asks)
        (path.parent / NAME).write_bytes(data[:length])
    really = [_really(referee, path) for path in above]
    for path, end in zip(above, really, strict=True):
        found = _ours(referee, path)
        assert (not found.missing) == (end == 0), (path.parent.name, end, found.missing)
        if found.missing:
            [gap] = found.missing
            assert (gap.name, gap.damaged) == (NAME, str(path.parent / NAME))
            assert gap.is_fatal == (end not in (0, 1)) or end == 3, (path.parent.name, end, gap)
    assert {0, 1, -7} <= set(really)


def _kinds(folder: Path, wanted: Path) -> Iterator[str]:
    """Folders with one odd thing in each, all named like the library."""
    data = wanted.read_bytes()
    bent = {  # name -> (offset, byte)
        "other-machine": (18, 0xF7), "other-class": (4, 1), "no-class": (4, 7), "other-order": (5, 2),
        "other-ident": (6, 2), "other-system": (7, 9), "system-version": (8, 1), "padding": (9, 1), "version": (20, 2),
        "object": (16, 1), "core": (16, 4), "program": (16, 2), "entry-size": (54, 55), "no-segments": (56, 0),
    }  # fmt: skip
    for name, (offset, byte) in bent.items():
        changed = bytearray(data)
        changed[offset] = byte
        (folder / name).mkdir()
        (folder / name / NAME).write_bytes(changed)
        yield name
    texts = {"empty": b"", "text": b"INPUT(libwanted.so)\n" * 9, "short-text": b"hello\n"}
    for name, text in texts.items():
        (folder / name).mkdir()
        (folder / name / NAME).write_bytes(text)
        yield name
    for name in ("folder", "loop", "dangling", "device", "zeros", "fifo", "socket", "nothing"):
        (folder / name).mkdir()
    (folder / "folder" / NAME).mkdir()
    (folder / "loop" / NAME).symlink_to(NAME)
    (folder / "dangling" / NAME).symlink_to("nowhere")
    (folder / "device" / NAME).symlink_to("/dev/null")
    (folder / "zeros" / NAME).symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo" / NAME)
    here = os.getcwd()
    os.chdir(folder / "socket")  # the whole path is longer than a socket's name may be
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(NAME)
    os.chdir(here)
    yield from ("folder", "loop", "dangling", "device", "zeros", "fifo", "socket", "nothing")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, wanted: Path) -> tuple[Path, tuple[str, ...]]:
    folder = tmp_path_factory.mktemp("odd")
    names = tuple(_kinds(folder, wanted))
    (folder / "notafolder").write_text("")
    (folder / "circle").symlink_to("circle")
    return folder, (*names, "notafolder", "circle")


def test_what_is_named_like_a_library_stops_the_search_where_it_stops_the_loaders(
    odd: tuple[Path, tuple[str, ...]], referee: Path, wanted: Path, asking: Path, build: Build, tmp_path: Path
) -> None:
    """First in LD_LIBRARY_PATH; the good one behind it in the same variable, in RUNPATH, and nowhere."""
    folder, names = odd
    later = build(tmp_path / "liblater.so", str(wanted), f"-Wl,--enable-new-dtags,-rpath,{wanted.parent}")
    ends: dict[str, set[bool]] = {}
    for name in names:
        for path, behind in ((asking, f":{wanted.parent}"), (later, ""), (asking, "")):
            given = {"LD_LIBRARY_PATH": f"{folder / name}{behind}"}
            found = _ours(referee, path, **given)
            if name in HANGS:
                assert [gap.is_fatal for gap in found.missing] == [True]
                continue
            end = _really(referee, path, **given)
            assert (not found.missing) == (end == 0), (name, behind, end, found.missing)
            ends.setdefault(name, set()).add(end == 0)
    assert ends["folder"] == {False}
    assert ends["loop"] == ends["socket"] == ends["dangling"] == {True, False}


def _preloaded(path: Path) -> tuple[int, bool]:
    """The exit code of a program under LD_PRELOAD, and whether the loader warned."""
    done = subprocess.run(
        ["/bin/true"], env=_environ(LD_PRELOAD=path), capture_output=True, text=True, check=False, timeout=20
    )
    return done.returncode, "cannot be preloaded" in done.stderr


def test_a_preload_that_cannot_be_opened_is_a_warning_and_what_it_needs_is_not(
    odd: tuple[Path, tuple[str, ...]], wanted: Path, asking: Path, tmp_path: Path
) -> None:
    folder, names = odd
    cut = tmp_path / "cut.so"
    cut.write_bytes(wanted.read_bytes()[:5000])
    paths = [folder / name / NAME for name in names if name not in HANGS]
    for path in (*paths, cut, asking, wanted, Path("/no/such.so")):
        machine = LiveMachine(environ=_environ(LD_PRELOAD=path))
        found = closure(machine, "/bin/true", setup=whole_setup(machine))
        assert found is not None
        code, warned = _preloaded(path)
        assert (not found.missing) == (code == 0), (path, code, found.missing)
        assert bool(found.ignored) == warned, (path, found.ignored)
    machine = LiveMachine(environ=_environ(LD_PRELOAD=folder / "fifo" / NAME))
    waits = closure(machine, "/bin/true", setup=whole_setup(machine))
    assert waits is not None
    assert [gap.is_fatal for gap in waits.missing] == [True]


def test_a_program_is_no_library(tmp_path: Path, referee: Path, asking: Path) -> None:
    (tmp_path / NAME).symlink_to(os.path.realpath("/bin/true"))
    found = _ours(referee, asking, LD_LIBRARY_PATH=tmp_path)
    with pytest.raises(OSError, match="cannot dynamically load"):
        ctypes.CDLL(str(tmp_path / NAME))
    assert [gap.fault.startswith("cannot dynamically load") for gap in found.missing] == [True]
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)
    assert _ours(referee, Path(libc)).missing == ()  # it has a loader's name in it as programs have, and is a library

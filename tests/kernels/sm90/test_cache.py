"""A kernel is built once and found again, whatever happens to the folder in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from firstlight.kernels.sm90 import cache
from firstlight.kernels.sm90.cache import KernelsNotKept, built, drop_oldest, key_of, read_entry, write_entry
from firstlight.kernels.sm90.compile import (
    Compiled,
    Compiler,
    Program,
    Variant,
    compile_program,
    find_compiler,
    read_program,
)
from tests.kernels.sm90.cases import KERNELS, ONE, in_processes, needs_compiler


def build_counting(number: int) -> tuple[int, Compiled]:
    """How often the compiler ran for the test kernel in this process, asked for twice, and what came."""
    made: list[int] = []

    def counting(program: Program, compiler: Compiler) -> Compiled:
        made.append(number)
        return compile_program(program, compiler)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "compile_program", counting)
        first = built(ONE, folder=KERNELS)
        assert built(ONE, folder=KERNELS) is first
    return len(made), first


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, on disk and in memory; returns where the entries go."""
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_in_memory", {})
    cache._warn_once.cache_clear()
    return tmp_path / "kernels" / "sm90"


def key() -> str:
    """Of the one test kernel, here."""
    return key_of(read_program(ONE, folder=KERNELS), find_compiler())


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in ("locks", "failed"))


@needs_compiler
def test_a_second_process_finds_what_the_first_built(folder: Path) -> None:
    [first] = in_processes(1, build_counting)
    [second] = in_processes(1, build_counting)
    assert first[0] == 1
    assert second[0] == 0
    assert second[1] == first[1]
    assert len(entries(folder)) == 1


@needs_compiler
def test_an_entry_holds_the_cubin_the_log_and_what_made_them(folder: Path) -> None:
    compiled = built(ONE, folder=KERNELS)
    assert entries(folder) == [key()]
    entry = folder / key()
    assert sorted(path.name for path in entry.iterdir()) == ["kernel.cubin", "log.txt", "meta.json"]
    assert (entry / "kernel.cubin").read_bytes() == compiled.cubin
    meta = json.loads((entry / "meta.json").read_text())
    assert (meta["compiler"], meta["command"]) == (compiled.compiler, compiled.command)
    assert read_entry(key()) == compiled


@needs_compiler
def test_processes_that_want_it_at_once_build_it_once(folder: Path) -> None:
    answers = in_processes(4, build_counting)
    assert sorted(count for count, _ in answers) == [0, 0, 0, 1]
    assert len({compiled.cubin for _, compiled in answers}) == 1
    assert entries(folder) == [key()]


@needs_compiler
def test_where_locks_cannot_be_had_each_builds_and_one_is_kept(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "locks").write_text("a file where the folder should be")
    answers = in_processes(2, build_counting)
    assert all(compiled.cubin == answers[0][1].cubin for _, compiled in answers)
    assert entries(folder) == [key()]


@needs_compiler
def test_a_holder_of_the_lock_that_dies_holds_nobody_up(folder: Path) -> None:
    code = (
        "import fcntl, os, signal, sys\n"
        "file = open(sys.argv[1], 'wb'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (folder / "locks").mkdir(parents=True)
    lock = folder / "locks" / key()[0]
    done = subprocess.run([sys.executable, "-c", code, str(lock)], capture_output=True, text=True, check=False)
    assert done.stdout == "held\n"
    before = time.monotonic()
    built(ONE, folder=KERNELS)
    assert time.monotonic() - before < cache.WAIT_S / 2


@needs_compiler
def test_after_waiting_long_enough_it_builds_all_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(cache, "WAIT_S", 0.1)
    (folder / "locks").mkdir(parents=True)
    with open(folder / "locks" / key()[0], "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert built(ONE, folder=KERNELS).cubin
    assert read_entry(key()) is not None


@needs_compiler
@pytest.mark.parametrize(
    ("file", "content"),
    [("kernel.cubin", b"\x7fELF half of it"), ("log.txt", b"another"), ("meta.json", b"{"), ("meta.json", b"[]"),
     ("meta.json", None)],
)  # fmt: skip
def test_a_damaged_entry_is_built_again(folder: Path, file: str, content: bytes | None) -> None:
    whole = Compiled(b"\x7fELF that no compiler made", "", "", "")
    write_entry(key(), whole)
    assert built(ONE, folder=KERNELS) == whole  # nothing says that it is damaged
    cache._in_memory.clear()
    if content is None:
        (folder / key() / file).unlink()
    else:
        (folder / key() / file).write_bytes(content)
    assert read_entry(key()) is None
    again = built(ONE, folder=KERNELS)
    assert b"one_wgmma" in again.cubin
    assert read_entry(key()) == again
    assert entries(folder) == [key()]


def unwritable(tmp_path: Path) -> str:
    """A folder that this user cannot write, root included."""
    if os.geteuid():
        home = tmp_path / "home"
        home.mkdir(mode=0o555)
        return str(home)
    return "/sys/firstlight"


@needs_compiler
def test_in_a_read_only_home_kernels_are_kept_in_memory_with_one_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", unwritable(tmp_path))
    with pytest.warns(KernelsNotKept, match=r"cannot be used .* Set FIRSTLIGHT_CACHE_DIR"):
        first = built(ONE, folder=KERNELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert built(ONE, folder=KERNELS) is first
        other = built(Variant("one_wgmma", (("TIMES", 2),)), folder=KERNELS)
    assert other.cubin != first.cubin
    assert not folder.exists()


@needs_compiler
def test_what_decides_the_result_decides_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n')
    (tmp_path / "b.cuh").write_text("int b;\n")
    (tmp_path / "unused.cuh").write_text("int c;\n")
    compiler = find_compiler()

    plain = Variant("a")

    def now(variant: Variant = plain, *, debug: bool = False) -> str:
        return key_of(read_program(variant, debug=debug, folder=tmp_path), compiler)

    start = now()
    assert len(start) == 64
    assert now() == start
    (tmp_path / "unused.cuh").write_text("int d;\n")
    assert now() == start
    assert now(Variant("a", hgmma=3)) == start  # what the gate expects is not compiled in
    different = {now(debug=True), now(Variant("a", (("X", 1),))), now(Variant("a", (("X", 11),)))}
    (tmp_path / "b.cuh").write_text("int b2;\n")
    different |= {now()}
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n\n')
    different |= {now(), start}
    newer = type(compiler)(compiler.path, compiler.version, compiler.identity + " and a patch")
    different |= {key_of(read_program(Variant("a"), folder=tmp_path), newer)}
    assert len(different) == 7


def test_the_entries_not_used_for_longest_are_dropped_above_the_size(folder: Path) -> None:
    keys = [letter * 64 for letter in "abcd"]
    for age, name in enumerate(keys):
        write_entry(name, Compiled(b"\x7fELF" + b"0" * 10_000, "", "", ""))
        os.utime(folder / name, (1e9 + age, 1e9 + age))
    os.utime(folder / keys[0])  # used last
    drop_oldest(23_000)
    assert entries(folder) == [keys[0], keys[3]]
    drop_oldest(0)
    assert entries(folder) == [keys[0]]


def test_what_a_killed_process_left_half_written_goes_after_an_hour(folder: Path) -> None:
    for name in (".half-old", ".half-new"):
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.cubin").write_bytes(b"half")
    os.utime(folder / ".half-old", (1e9, 1e9))
    drop_oldest()
    assert entries(folder) == [".half-new"]


def test_of_two_that_write_the_same_entry_the_reader_meets_a_whole_one(folder: Path) -> None:
    def write_and_read(number: int) -> int:
        made, seen = Compiled(b"\x7fELF" + bytes([65 + number]) * 200_000, f"log {number}", "", ""), 0
        for _ in range(60):
            write_entry("e" * 64, made)
            found = read_entry("e" * 64)
            if found is not None:
                assert found.cubin[4:] == bytes([65 + int(found.log[-1])]) * 200_000
                seen += 1
            (folder / ("e" * 64) / "meta.json").unlink(missing_ok=True)  # damaged, so that it is written again
        return seen

    assert min(in_processes(2, write_and_read)) > 0
    assert [name for name in entries(folder) if name != "e" * 64] == []

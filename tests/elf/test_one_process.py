"""Several files opened by one program: what is loaded stays loaded, against a real process that does the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.elf.closure import DLOPEN, Closure, closure, closure_of_many
from firstlight.elf.loader import FoundBy, loader_setup
from firstlight.machine.live import LiveMachine

Build = Callable[..., Path]

RPATH = "-Wl,--disable-new-dtags,-rpath,"
# Opens each path it is given, goes on where one fails, and prints the files that are mapped in the end.
OPENER = """
import ctypes, sys
for path in sys.argv[1:]:
    try:
        ctypes.CDLL(path)
    except OSError:
        pass
with open("/proc/self/maps") as maps:
    print("\\n".join(sorted({line.split(None, 5)[5].strip() for line in maps if "/" in line})))
"""


def _mapped(*paths: Path, environ: dict[str, str] | None = None) -> set[str]:
    argv = [sys.executable, "-I", "-S", "-c", OPENER, *map(str, paths)]
    return set(subprocess.run(argv, env=environ or {}, capture_output=True, text=True, check=True).stdout.splitlines())


def _many(
    roots: tuple[Path, ...], *, preloaded: tuple[Path, ...] = (), environ: dict[str, str] | None = None
) -> Closure:
    found = closure_of_many(
        LiveMachine(environ=environ or {}),
        tuple(map(str, roots)),
        preloaded=tuple(map(str, preloaded)),
        program=sys.executable,
    )
    assert found is not None
    return found


def _below(folder: Path, paths: set[str]) -> set[str]:
    return {path for path in paths if path.startswith(str(folder))}


def _real_paths(found: Closure) -> set[str]:
    return {os.path.realpath(item.found.path) for item in found.objects}


@pytest.fixture
def family(tmp_path: Path, build: Build) -> Path:
    """libtop.so needs libpart.so.1 from its folder; another libpart.so.1 lies in `other`."""
    for folder in ("own", "other"):
        build(tmp_path / folder / "libpart.so.1", "-Wl,-soname,libpart.so.1")
    return build(tmp_path / "own" / "libtop.so", str(tmp_path / "own" / "libpart.so.1"), f"{RPATH}$ORIGIN")


def test_what_was_opened_by_path_before_answers_to_its_soname(tmp_path: Path, family: Path) -> None:
    other = tmp_path / "other" / "libpart.so.1"
    found = _many((family,), preloaded=(other,))
    assert _below(tmp_path, _real_paths(found)) == _below(tmp_path, _mapped(other, family)) == {str(other), str(family)}
    [part] = [item for item in found.objects if item.file.soname == "libpart.so.1"]
    assert (part.found.rule, part.requested_by) == (FoundBy.PATH, (DLOPEN, str(family)))


def test_without_it_the_search_path_decides(tmp_path: Path, family: Path) -> None:
    own = tmp_path / "own" / "libpart.so.1"
    assert (
        _below(tmp_path, _real_paths(_many((family,)))) == _below(tmp_path, _mapped(family)) == {str(own), str(family)}
    )


def test_a_preload_that_lacks_something_leaves_nothing_behind(tmp_path: Path, build: Build, family: Path) -> None:
    stub = build(tmp_path / "link" / "libgone.so.1", "-Wl,-soname,libgone.so.1")
    other = tmp_path / "other" / "libpart.so.1"
    half = build(tmp_path / "libhalf.so", str(other), str(stub), f"{RPATH}$ORIGIN/other")
    found = _many((family,), preloaded=(half,))
    assert [(item.name, item.requested_by) for item in found.not_preloaded] == [("libgone.so.1", str(half))]
    assert found.missing == ()
    assert _below(tmp_path, _real_paths(found)) == _below(tmp_path, _mapped(half, family))
    assert str(other) not in _real_paths(found)
    assert not any(str(half) in item.requested_by for item in found.objects)


def test_a_preload_that_is_not_there_is_told(tmp_path: Path, family: Path) -> None:
    absent = tmp_path / "absent.so"
    [refused] = _many((family,), preloaded=(absent,)).not_preloaded
    assert (refused.name, refused.requested_by) == (str(absent), DLOPEN)


def test_roots_share_one_process_and_each_has_its_own_search_path(tmp_path: Path, build: Build, family: Path) -> None:
    other = tmp_path / "other" / "libpart.so.1"
    second = build(tmp_path / "other" / "libsecond.so", str(other), f"{RPATH}$ORIGIN")
    for order in ((family, second), (second, family)):
        found = _many(order)
        assert _below(tmp_path, _real_paths(found)) == _below(tmp_path, _mapped(*order))


def test_everything_that_several_roots_lack_comes_in_one_answer(tmp_path: Path, build: Build) -> None:
    roots = []
    for number in (1, 2):
        stub = build(tmp_path / "link" / f"libgone{number}.so", f"-Wl,-soname,libgone{number}.so")
        roots.append(build(tmp_path / f"libroot{number}.so", str(stub)))
    found = _many((roots[0], tmp_path / "absent.so", roots[1]))
    assert [(item.name, item.requested_by) for item in found.missing] == [
        ("libgone1.so", str(roots[0])),
        (str(tmp_path / "absent.so"), DLOPEN),
        ("libgone2.so", str(roots[1])),
    ]


def test_the_libraries_of_the_program_are_there_first() -> None:
    found = _many(())
    real = _mapped()
    ours = {path for path in _real_paths(found) if "/ld-linux" not in path}
    assert ours <= real
    assert found.root.path == os.path.realpath(sys.executable)


def test_the_rpath_of_the_program_counts_for_what_it_opens(tmp_path: Path, build: Build) -> None:
    """conda's Python has one: it decides about every library without a RUNPATH."""
    gcc = shutil.which("gcc")
    assert gcc is not None
    part = build(tmp_path / "lib" / "libpart9.so", "-Wl,-soname,libpart9.so")
    top = build(tmp_path / "elsewhere" / "libtop9.so", str(part))
    source = "#include <dlfcn.h>\nint main(int n, char **a) { return dlopen(a[1], RTLD_NOW) ? 0 : 1; }\n"
    program = tmp_path / "bin" / "opener"
    program.parent.mkdir()
    for rpath, status in (("$ORIGIN/../lib", 0), ("$ORIGIN/nowhere", 1)):
        flags = [f"{RPATH}{rpath}", "-o", str(program), "-x", "c", "-", "-ldl"]
        subprocess.run([gcc, *flags], input=source, text=True, check=True)
        assert subprocess.run([str(program), str(top)], env={}, check=False).returncode == status
        found = closure_of_many(LiveMachine(environ={}), (str(top),), program=str(program))
        assert found is not None
        assert [item.name for item in found.missing] == (["libpart9.so"] if status else [])


def test_without_a_program_the_first_root_that_reads_is_the_root(tmp_path: Path, family: Path) -> None:
    machine = LiveMachine(environ={})
    found = closure_of_many(machine, (str(tmp_path / "absent.so"), str(family)))
    assert found is not None
    assert found.root.path == str(family)
    assert [item.name for item in found.objects] == ["libpart.so.1"]
    assert closure_of_many(machine, (str(tmp_path / "absent.so"),)) is None


def test_closure_takes_preloads_too(tmp_path: Path, family: Path) -> None:
    other = str(tmp_path / "other" / "libpart.so.1")
    found = closure(LiveMachine(environ={}), str(family), preloaded=(other,))
    assert found is not None
    assert found.root.path == str(family)
    assert [item.found.path for item in found.objects] == [other]


def test_ld_preload_comes_before_what_the_program_opens(tmp_path: Path, family: Path) -> None:
    other = tmp_path / "other" / "libpart.so.1"
    environ = {"LD_PRELOAD": str(other)}
    found = _many((family,), environ=environ)
    assert _below(tmp_path, _real_paths(found)) == _below(tmp_path, _mapped(family, environ=environ))
    assert str(other) in _real_paths(found)


def test_a_hard_link_is_the_same_file(tmp_path: Path, build: Build) -> None:
    """The loader compares device and inode: the second name leads to what is loaded already."""
    part = build(tmp_path / "one" / "libpart7.so", "-Wl,-soname,libpart7.so")
    (tmp_path / "two").mkdir()
    os.link(part, tmp_path / "two" / "libalias7.so")
    alias = build(tmp_path / "link" / "libalias7.so", "-Wl,-soname,libalias7.so")
    flags = (str(part), str(alias), f"{RPATH}$ORIGIN/one:$ORIGIN/two")
    top = build(tmp_path / "libtop7.so", *flags)
    found = _many((top,))
    assert _below(tmp_path, _real_paths(found)) == _below(tmp_path, _mapped(top))
    [loaded] = [item for item in found.objects if item.name == "libpart7.so"]
    assert loaded.other_names == ("libalias7.so",)
    shutil.copy(part, tmp_path / "two" / "copy")
    os.replace(tmp_path / "two" / "copy", tmp_path / "two" / "libalias7.so")
    assert _below(tmp_path, _real_paths(_many((top,)))) == _below(tmp_path, _mapped(top))


def test_a_file_of_another_arch_is_looked_for_in_the_folders_of_that_arch(tmp_path: Path, build: Build) -> None:
    """An aarch64 wheel analysed on x86_64, or the other way round: nothing of this host may answer."""
    here = os.uname().machine
    other, number = ("aarch64", 183) if here == "x86_64" else ("x86_64", 62)
    for folder in ("own", f"usr/lib/{here}-linux-gnu", f"usr/lib/{other}-linux-gnu"):
        path = build(tmp_path / folder / "libpart5.so", "-Wl,-soname,libpart5.so")
        if folder == f"usr/lib/{other}-linux-gnu":
            _set_machine(path, number)
    top = build(tmp_path / "own" / "libtop5.so", str(tmp_path / "own" / "libpart5.so"))
    _set_machine(top, number)
    (tmp_path / "own" / "libpart5.so").unlink()
    (tmp_path / "lib").symlink_to("usr/lib")
    machine = LiveMachine(root=str(tmp_path), environ={})
    for setup in (None, loader_setup(machine)):
        found = closure(machine, "/own/libtop5.so", setup=setup)
        assert found is not None
        assert [item.found.path for item in found.objects] == [f"/lib/{other}-linux-gnu/libpart5.so"]
        assert found.interpreter.endswith({"aarch64": "aarch64.so.1", "x86_64": "x86-64.so.2"}[other])


def _set_machine(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    data[18:20] = number.to_bytes(2, "little")
    path.write_bytes(data)

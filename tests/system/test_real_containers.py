"""podman with and without root, LXC, systemd-nspawn and a chroot, started for real: the facts inside name them.

Apptainer, Incus and Alpine are not among them: the distribution has no packages of them, so they are known from folder
trees alone (tests/facts/test_container_kind.py, tests/machines).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firstlight.cli.zipapp import write_zipapp
from firstlight.facts.known import Known
from firstlight.facts.runtime_libraries import Libc, probe_runtime_libraries
from firstlight.machine.live import LiveMachine
from tests.system.bare_root import make_bare_root
from tests.system.real_containers import USER, NotStarted, chroot, lxc, nspawn, podman, rootless_podman

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.getuid() != 0, reason="another root folder and its mounts need root"),
]
Start = Callable[[Path, Path, tuple[str, ...]], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Path, str]]:
    """A folder that a plain user may enter, with a bare root and the facts program in it; and the root's Python."""
    work = Path(tempfile.mkdtemp(prefix="containers-"))
    work.chmod(0o755)
    root = work / "root"
    root.mkdir()
    python = make_bare_root(root)
    write_zipapp(str(root / "facts.pyz"))
    for folder in ("etc", "usr", "dev", "proc", "sys", "tmp"):
        (root / folder).mkdir(exist_ok=True)
    (root / "etc/os-release").write_text("ID=debian\nVERSION_ID=12\n")  # nspawn starts no root without one
    yield work, python
    shutil.rmtree(work, ignore_errors=True)


def a_root(work: Path, name: str) -> Path:
    """A root of its own: an engine leaves its marks in the folder."""
    root = work / name
    shutil.copytree(work / "root", root, symlinks=True)
    return root


def facts_in(start: Start, work: Path, root: Path, python: str) -> dict[str, Any]:
    """The document of the container; skips with the step that failed where this kernel does not let it start."""
    try:
        tried = start(work, root, (python, "-I", "-S", "-c", "print('started')"))
    except NotStarted as error:
        pytest.skip(str(error))
    if "started" not in tried.stdout:
        pytest.skip(f"{start.__name__} did not start a program: {tried.stderr.strip()[-300:]}")
    done = start(work, root, (python, "-I", "-S", "/facts.pyz", "--json"))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return document


@pytest.mark.parametrize(("start", "kind"), [(podman, "podman"), (lxc, "lxc"), (nspawn, "nspawn"), (chroot, "chroot")])
def test_a_container_of_root_is_named(place: tuple[Path, str], start: Start, kind: str) -> None:
    work, python = place
    container = facts_in(start, work, a_root(work, kind), python)["container"]
    assert container["kind"]["value"] == kind
    assert container["rootless"]["value"] is False


def test_a_podman_container_of_a_plain_user_is_named_rootless(place: tuple[Path, str]) -> None:
    work, python = place
    root = a_root(work, "users")
    for path in (root, *root.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    container = facts_in(rootless_podman, work, root, python)["container"]
    assert container["kind"]["value"] == "podman"
    assert container["rootless"] == {"value": True, "seen_in": "/proc/self/uid_map"}


def test_a_root_with_debians_musl_alone_is_musl_and_debian_beside_it_stays_glibc(tmp_path: Path) -> None:
    loader = Path("/lib/ld-musl-x86_64.so.1")
    if not loader.exists():
        pytest.skip("the package musl is not installed")
    (tmp_path / "lib").mkdir()
    shutil.copy(loader.resolve(), tmp_path / "lib" / loader.name)
    said = subprocess.run(["chroot", str(tmp_path), f"/lib/{loader.name}"], capture_output=True, text=True, check=False)
    assert said.stderr.startswith("musl libc"), said.stderr
    alone = probe_runtime_libraries(LiveMachine(root=str(tmp_path), environ={})).libc
    assert alone == Known(Libc.MUSL, seen_in="/lib/ld-musl-x86_64.so.1")
    beside = probe_runtime_libraries(LiveMachine()).libc
    assert isinstance(beside, Known)
    assert beside.value is Libc.GLIBC

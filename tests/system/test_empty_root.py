"""In a root with nothing but Python 3.10 the zipapp gives the document that the installed command gives there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from firstlight.cli.zipapp import write_zipapp
from tests.cli.test_zipapp import bare_pythons

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.getuid() != 0, reason="chroot needs root"),
]
SOURCE = Path(__file__).parents[2] / "src"


def _copy_with_libraries(program: Path, root: Path) -> None:
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    paths = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
    for path in [str(program), *paths]:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(os.path.realpath(path), target)


@pytest.fixture(scope="module")
def empty_root(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A root with one Python, its standard library and the shared libraries of both; and that Python's path."""
    root = tmp_path_factory.mktemp("empty-root")
    python = Path(os.path.realpath(bare_pythons()[0]))
    code = "import sys, sysconfig; print(sysconfig.get_path('stdlib'))"
    stdlib = Path(
        subprocess.run([str(python), "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    )
    _copy_with_libraries(python, root)
    shutil.copytree(
        stdlib,
        root / str(stdlib).lstrip("/"),
        ignore=shutil.ignore_patterns("test", "site-packages", "__pycache__", "idlelib"),
    )
    for extension in (stdlib / "lib-dynload").glob("*.so"):
        _copy_with_libraries(extension, root)
    return root, str(python)


def _in_root(root: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin") or "chroot", str(root), *argv],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environ},
    )


def _without_clocks(document: dict[str, Any]) -> dict[str, Any]:
    document.pop("collected_at")
    for disk in document["resources"]["disks"]:
        disk.pop("free_bytes")
    return document


def test_the_zipapp_and_the_installed_command_agree_in_an_empty_root(empty_root: tuple[Path, str]) -> None:
    root, python = empty_root
    write_zipapp(str(root / "facts.pyz"))
    zipped = _in_root(root, python, "-I", "-S", "/facts.pyz", "--json", "--record", "/kept")
    assert zipped.returncode == 0, zipped.stderr
    import click

    shutil.copytree(SOURCE / "firstlight", root / "packages" / "firstlight")
    shutil.copytree(Path(click.__file__).parent, root / "packages" / "click")
    installed = _in_root(root, python, "-S", "-m", "firstlight", "facts", "--json", PYTHONPATH="/packages")
    assert installed.returncode == 0, installed.stderr
    one, two = (_without_clocks(json.loads(done.stdout)) for done in (zipped, installed))
    for document in (one, two):
        document["python"].pop("python_path")  # how the command was started, not what the machine is
    assert one == two
    replayed = _in_root(root, python, "-I", "-S", "/facts.pyz", "--json", "--facts", "/kept")
    assert replayed.stdout == zipped.stdout


def test_nothing_was_written_into_the_root_by_looking(empty_root: tuple[Path, str]) -> None:
    root, python = empty_root
    write_zipapp(str(root / "facts.pyz"))
    before = sorted(str(path) for path in root.rglob("*"))
    assert _in_root(root, python, "-I", "-S", "-B", "/facts.pyz").returncode == 0
    assert sorted(str(path) for path in root.rglob("*")) == before

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
from tests.system.bare_root import make_bare_root

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.getuid() != 0, reason="chroot needs root"),
]
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def empty_root(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A root with one Python, its standard library and the shared libraries of both; and that Python's path."""
    root = tmp_path_factory.mktemp("empty-root")
    return root, make_bare_root(root)


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

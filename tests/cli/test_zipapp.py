"""One file gives the same facts on a host that has nothing but Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from firstlight.cli.zipapp import write_zipapp
from firstlight.errors import BadInput


def bare_pythons() -> list[str]:
    """Every Python from 3.10 on that this machine has, the oldest first."""
    found = [shutil.which(f"python3.{minor}") for minor in range(10, 16)]
    pyenv = Path(os.environ.get("PYENV_ROOT", "/nonexistent")) / "versions"
    found += [str(path) for path in sorted(pyenv.glob("3.1[0-9].*/bin/python3.1[0-9]"))]
    working = [path for path in found if path and _version(path) >= (3, 10)]
    return sorted(dict.fromkeys(working), key=_version) or [sys.executable]


def _version(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    return tuple(int(part) for part in done.stdout.split()) if done.returncode == 0 else (0, 0)


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zipapp") / "firstlight-facts.pyz"
    write_zipapp(str(path))
    return path


@pytest.mark.parametrize("python", bare_pythons(), ids=lambda path: ".".join(str(part) for part in _version(path)))
def test_the_zipapp_and_the_command_give_the_same_document(zipapp: Path, python: str, tmp_path: Path) -> None:
    """Both replay the same evidence, so that a clock or a free byte that moved in between cannot differ."""
    kept = tmp_path / "kept"
    isolated = [python, "-I", "-S", str(zipapp)]
    live = subprocess.run([*isolated, "--json", "--record", str(kept)], capture_output=True, text=True, check=False)
    assert live.returncode == 0, live.stderr
    command = [sys.executable, "-m", "firstlight", "facts", "--json", "--facts", str(kept)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == live.stdout


def test_the_zipapp_replays_a_machine_and_complains_in_one_line(zipapp: Path, tmp_path: Path) -> None:
    isolated = [bare_pythons()[0], "-I", "-S", str(zipapp)]
    text = subprocess.run(
        [*isolated, "--facts", "example:h100-driver-570"], capture_output=True, text=True, check=False
    )
    assert "570.133.20" in text.stdout, text.stderr
    bad = subprocess.run([*isolated, "--facts", str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1


def test_the_zipapp_is_the_same_bytes_every_time_and_carries_nvml(zipapp: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    write_zipapp(str(again))
    assert again.read_bytes() == zipapp.read_bytes()
    names = zipfile.ZipFile(zipapp).namelist()
    assert "pynvml.py" in names
    assert not any("click" in name or name.startswith("firstlight/tables") for name in names)


def test_a_place_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(BadInput):
        write_zipapp("/no/such/folder/x.pyz")


def test_the_zipapp_document_is_valid_json_with_the_schema_first(zipapp: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(zipapp), "--json"], capture_output=True, text=True, check=True
    )
    assert next(iter(json.loads(done.stdout))) == "schema"

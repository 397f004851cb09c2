"""An environment that tests are given is the one that `python -m venv` makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.environments import _made_once, environment_with_pip


def _files(folder: Path) -> dict[str, str]:
    """What is where, with the folder's own name left out; of bytecode that it is there."""
    return {
        str(path.relative_to(folder)): path.readlink().name
        if path.is_symlink()
        else ""
        if path.suffix == ".pyc" or path.name == "RECORD"  # scripts, which name their folder, have their hash there
        else path.read_text("utf-8", errors="replace").replace(str(folder), "FOLDER")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_it_has_the_files_of_one_that_was_made_whole_and_its_pip_is_its_own(tmp_path: Path) -> None:
    made = environment_with_pip(tmp_path / "venv")
    ours, whole = _files(made), _files(_made_once())
    assert ours.pop("pyvenv.cfg").replace(" --without-pip", "") == whole.pop("pyvenv.cfg")
    assert ours == whole
    for pip in ([made / "bin/pip"], [made / "bin/python", "-m", "pip"]):
        said = subprocess.run([*pip, "--version"], capture_output=True, text=True, check=True)
        assert f" from {made}/lib/" in said.stdout

"""The wheel of the firstlight that runs here: whole, the same every time, and installed by the real pip and uv."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest

import firstlight
from firstlight.own_wheel import own_wheel
from tests.system.wheels_again import pack_again, with_needs

ROOT = Path(__file__).parents[1]
INFO = f"firstlight-{firstlight.__version__}.dist-info"
PRINT = "from firstlight.own_wheel import own_wheel as w; print(w().sha256)"


@pytest.fixture(scope="module")
def members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(own_wheel().data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_no_file_of_the_package_is_lost_and_nothing_else_is_in_it(members: dict[str, bytes]) -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "src/firstlight"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("needs the git checkout, which knows the files of the package")
    of_source = {name.removeprefix("src/") for name in done.stdout.split("\0") if name and (ROOT / name).exists()}
    about = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert set(members) == of_source | about
    kinds = {Path(name).suffix for name in of_source}
    assert {".cu", ".cuh", ".j2", ".json", ".css", ".js", ".toml"} <= kinds


def test_record_has_the_digest_of_every_file_but_its_own(members: dict[str, bytes]) -> None:
    lines = [line.rsplit(",", 2) for line in members[f"{INFO}/RECORD"].decode().splitlines()]
    assert [name for name, _, _ in lines] == list(members)
    for name, digest, size in lines[:-1]:
        seen = base64.urlsafe_b64encode(hashlib.sha256(members[name]).digest()).decode().rstrip("=")
        assert (digest, int(size)) == (f"sha256={seen}", len(members[name]))
    assert lines[-1] == [f"{INFO}/RECORD", "", ""]


def test_metadata_names_what_it_needs_and_no_folder_of_this_machine(members: dict[str, bytes]) -> None:
    read = Parser().parsestr(members[f"{INFO}/METADATA"].decode())
    assert (read["Name"], read["Version"], read.get_payload()) == ("firstlight", firstlight.__version__, "")
    assert read.get_all("Requires-Dist") == distribution("firstlight").requires
    assert {"bench", "kernels"} <= set(read.get_all("Provides-Extra") or ())
    assert "firstlight = firstlight.__main__:main" in members[f"{INFO}/entry_points.txt"].decode()
    assert not any(str(ROOT).encode() in data for name, data in members.items() if name.startswith(INFO))


def test_another_time_umask_and_hash_seed_give_the_same_bytes() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "7", "TZ": "Pacific/Auckland"}
    script = f'umask 077; exec "$0" -c "{PRINT}"'
    done = subprocess.run(["sh", "-c", script, sys.executable], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == own_wheel().sha256


def test_what_an_editor_or_python_left_behind_is_not_shipped(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src/firstlight", tmp_path / "firstlight")
    for name in ("emit/.bash.py.swp", "emit/bash.py~", "emit/old.pyc", ".DS_Store"):
        (tmp_path / "firstlight" / name).write_text("left\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PRINT], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == own_wheel().sha256


def test_without_an_installation_it_says_what_to_do() -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {PRINT}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    [line] = [each for each in done.stderr.splitlines() if each.startswith("firstlight.errors.BadInput: ")]
    assert f"python -m pip install --editable {ROOT}" in line


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """firstlight's own wheel and those of what it needs."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in with_needs("firstlight"):
        if name != "firstlight":
            pack_again(name, folder)
    (folder / own_wheel().name).write_bytes(own_wheel().data)
    return folder


def _pip(place: Path) -> tuple[str, ...]:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    return (sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--quiet", "--no-compile")


def _uv(place: Path) -> tuple[str, ...]:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if uv is None:
        pytest.skip("needs uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    return (uv, "pip", "install", "--quiet", "--offline", "--python", str(place / "bin/python"))


@pytest.fixture(scope="module", params=[_pip, _uv], ids=["pip", "uv"])
def installed(request: pytest.FixtureRequest, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment into which it was installed without an index."""
    place = tmp_path_factory.mktemp("installed") / "env"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
    install = [*request.param(place), "--no-index", "--find-links", str(wheels), str(wheels / own_wheel().name)]
    done = subprocess.run(install, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    yield place
    shutil.rmtree(place)


def _said(*argv: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=60)


def test_where_it_is_installed_firstlight_runs_and_packs_the_same_wheel_again(installed: Path) -> None:
    program = str(installed / "bin/firstlight")
    assert firstlight.__version__ in _said(program, "--version").stdout
    doctor = _said(program, "doctor", "--facts", "example:h100-driver-570")
    assert (doctor.returncode, "BLOCKED: The GPU driver is too old" in doctor.stdout) == (1, True), doctor.stderr
    again = _said(str(installed / "bin/python"), "-c", PRINT)
    assert again.stdout.strip() == own_wheel().sha256, again.stderr

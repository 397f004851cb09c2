"""A pip or uv killed after the wheel's own files and before its own: what it left is made whole, not believed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import Acting, StepFailed
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.errors import CouldNotAct
from firstlight.frozen import dataclass
from firstlight.ways.back import Back, BackKind, moved_back
from firstlight.ways.building import COPY
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from tests.apply.acting import acting, step
from tests.apply.wheels import make_wheel

UV = Path(sys.executable).with_name("uv")
pytestmark = pytest.mark.skipif(not UV.exists(), reason="needs uv beside the interpreter")

# The real uv behind a script that, told so once, has unpacked the wheel and removed the other version, and dies there;
# or has finished what it was asked for, and not what that needs.
DYING = """\
#!/bin/sh
if [ -e "{mark}" ]; then case " $* " in *" sync "*|*" pip install "*)
    version=$(cat "{mark}"); rm "{mark}"; rm -rf "{site}"/demo "{site}"/demo-*.dist-info
    "{python}" -m zipfile -e "{wheels}/demo-$version-py3-none-any.whl" "{site}"; kill -9 $$;;
esac; fi
if [ -e "{late}" ]; then case " $* " in *" sync "*|*" pip install "*)
    rm "{late}"; "{uv}" "$@"; rm -rf "{site}"/part*
    "{python}" -m zipfile -e "{wheels}/part-1.0-py3-none-any.whl" "{site}"; kill -9 $$;;
esac; fi
exec "{uv}" "$@"
"""
MANIFEST = """\
[project]
name = "app"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["demo==1.0"]

[tool.uv]
package = false
no-index = true
find-links = ["{wheels}"]
"""


@dataclass(frozen=True, slots=True)
class Place:
    """An environment with demo 1.0, made by uv, and a uv that can be made to die."""

    folder: Path
    app: Path
    wheels: Path

    @property
    def python(self) -> str:
        return str(self.app / ".venv/bin/python")

    @property
    def site(self) -> Path:
        [site] = (self.app / ".venv/lib").glob("python3*/site-packages")
        return site

    def acting(self) -> Acting:
        env = {"PATH": f"{self.folder}:{os.environ['PATH']}", "HOME": str(self.folder), **_uv_environ(self.folder)}
        return replace(acting(self.folder), env=env)

    def die_at(self, version: str) -> None:
        (self.folder / "die").write_text(version)

    def die_late(self) -> None:
        (self.folder / "die-late").touch()

    def files(self) -> dict[str, bytes]:
        """The app's files but the compiled ones, which hold the second in which their source was written."""
        found = (each for each in self.app.rglob("*") if each.is_file() and not each.is_symlink())
        return {str(each.relative_to(self.app)): each.read_bytes() for each in found if each.suffix != ".pyc"}


def _uv_environ(folder: Path) -> dict[str, str]:
    return {
        "UV_CACHE_DIR": str(folder / "cache"), "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable,
        "UV_OFFLINE": "1", "UV_LINK_MODE": "copy",
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path, tmp_path / "app", tmp_path / "wheels")
    for version in ("1.0", "2.0"):
        make_wheel(made.wheels, "demo", version, size=1000, requires=("part",) if version == "2.0" else ())
    make_wheel(made.wheels, "part", "1.0")
    made.app.mkdir()
    (made.app / "pyproject.toml").write_text(MANIFEST.format(wheels=made.wheels))
    env = {**os.environ, **_uv_environ(tmp_path)}
    subprocess.run([str(UV), "sync", "--quiet", "--project", str(made.app)], check=True, env=env)
    program, words = tmp_path / "uv", {"mark": tmp_path / "die", "site": made.site, "wheels": made.wheels}
    program.write_text(DYING.format(python=sys.executable, uv=UV, late=tmp_path / "die-late", **words))
    program.chmod(0o755)
    return made


def _project(place: Place) -> Step:
    manifest, lock = str(place.app / "pyproject.toml"), str(place.app / "uv.lock")
    before = (place.app / "pyproject.toml").read_text()
    change = FileChange(manifest, before, before.replace("demo==1.0", "demo==2.0"))
    saved, done = f"{lock}.before-firstlight", Condition(CheckKind.DISTRIBUTIONS, place.python, "demo==2.0")
    commands = ((*COPY, lock, saved), *(("uv", verb, "--project", str(place.app)) for verb in ("lock", "sync")))
    made = step("01-project", kind=StepKind.PROJECT, files=(change,), commands=commands, done_when=(done,))
    return replace(made, back=(moved_back(saved, lock), Back(BackKind.SYNC_UV, (str(place.app),))))


def _by_uv(place: Place) -> Step:
    argv = (str(place.folder / "uv"), "pip", "install", "--python", place.python, "--no-index", "--find-links",
            str(place.wheels), "demo==2.0")  # fmt: skip
    done = Condition(CheckKind.DISTRIBUTIONS, place.python, "demo==2.0")
    return step("01-uv", kind=StepKind.UV, commands=(argv,), done_when=(done,))


STEPS = pytest.mark.parametrize("made", [_project, _by_uv], ids=["a project", "uv"])


def _undo(doing: Acting) -> None:
    for run in newest_to_undo(doing):
        undo(doing, run)


@STEPS
def test_an_undo_that_was_cut_off_brings_every_file_back(place: Place, made: Callable[[Place], Step]) -> None:
    before = place.files()
    act(place.acting(), Asked((made(place),), "d" * 16, "o", "t"))
    place.die_at("1.0")
    with pytest.raises(CouldNotAct, match="status -9"):
        _undo(place.acting())
    assert (place.site / "demo-1.0.dist-info/RECORD").exists(), "uv takes it for installed"
    _undo(place.acting())
    after = place.files()
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()


@STEPS
def test_an_apply_that_was_cut_off_is_made_whole_and_taken_back(place: Place, made: Callable[[Place], Step]) -> None:
    before = place.files()
    place.die_at("2.0")
    with pytest.raises(StepFailed, match="status -9"):
        act(place.acting(), Asked((made(place),), "d" * 16, "o", "t"))
    doing = place.acting()
    for run in interrupted(doing):
        finish(doing, run)
    assert (place.site / "demo-2.0.dist-info/INSTALLER").read_text().strip() == "uv"
    _undo(place.acting())
    after = place.files()
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()


@STEPS
def test_what_is_needed_is_made_whole_though_all_that_was_asked_for_is(
    place: Place, made: Callable[[Place], Step]
) -> None:
    before = place.files()
    place.die_late()
    with pytest.raises(StepFailed, match="status -9"):
        act(place.acting(), Asked((made(place),), "d" * 16, "o", "t"))
    assert (place.site / "demo-2.0.dist-info/INSTALLER").exists(), "what was asked for is whole"
    assert not (place.site / "part-1.0.dist-info/INSTALLER").exists(), "what it needs is not"
    doing = place.acting()
    for run in interrupted(doing):
        finish(doing, run)
    assert (place.site / "part-1.0.dist-info/INSTALLER").read_text().strip() == "uv"
    _undo(place.acting())
    after = place.files()
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()

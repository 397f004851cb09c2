"""Builds carried out for real: killed and gone on with, refused places, a fault among the units, undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import jsonschema
import pytest

from firstlight.build.ninja_output import read_ninja_log
from tests.build.kills import kill_all
from tests.build.standin import make_environment, make_standin

pytestmark = pytest.mark.system
UNITS = 24
SCHEMA = Path(__file__).parents[2] / "src/firstlight/schemas/build-1.json"


class Room:
    """A stand-in, an environment and a state folder; `build` runs the command line."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.tree = make_standin(base / "tree", units=UNITS, header="string")
        self.python = make_environment(base / "env")
        self.env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(base / "state")}

    def argv(self, *more: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "firstlight",
            "build",
            str(self.tree),
            "--python",
            str(self.python),
            "--yes",
            *more,
        ]

    def build(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(*more), env=self.env, capture_output=True, text=True, check=False)

    def firstlight(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "firstlight", *words]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False)

    @property
    def folder(self) -> Path:
        return next((self.base / "state/builds").iterdir())

    def objects(self) -> dict[str, int]:
        return {str(each): each.stat().st_mtime_ns for each in self.folder.glob("build/CMakeFiles/**/*.o")}

    def total(self) -> str:
        asked = [str(self.python), "-c", "import standin; print(standin.total())"]
        return subprocess.run(asked, capture_output=True, text=True, cwd="/", check=False).stdout.strip()


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(tmp_path_factory.mktemp("build"))


def test_killed_while_it_compiles_it_goes_on_and_is_proved(room: Room) -> None:
    process = subprocess.Popen(room.argv(), env=room.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not any(room.base.glob("state/builds/*/build/CMakeFiles/_standin.dir/src/*.o")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kill_all(process)
    compiled = {each.output for each in read_ninja_log(str(room.folder / "build")) if each.output.endswith(".o")}
    times = {each: os.stat(room.folder / "build" / each).st_mtime_ns for each in compiled}
    told = room.firstlight("build", "--status")
    assert "not running: the same command continues where it stopped" in told.stdout
    done = room.build()
    assert done.returncode == 0, done.stderr
    assert "taking back" not in done.stderr, "what was stopped goes on; nothing of it is given up"
    assert times == {each: os.stat(room.folder / "build" / each).st_mtime_ns for each in compiled}
    assert room.total() == str(sum(range(UNITS)))
    again = room.build("--json", "--rate", "2.69")
    assert (again.returncode, again.stderr.count("done already")) == (0, 0), again.stderr
    document = json.loads(again.stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert "import: standin, standin._standin" in document["proofs"]
    assert Path(document["wheel"]).exists()
    assert "built, installed and proved" in room.firstlight("build", "--status").stdout


def test_an_archive_that_is_refused_leaves_no_build_in_the_list(room: Room) -> None:
    archive = room.base / "x-1.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(__file__, "x-1/../../x.py")
    done = room.firstlight("build", str(archive), "--yes")
    assert (done.returncode, "leads out of the folder" in done.stderr) == (2, True), done.stderr
    assert str(archive) not in room.firstlight("build", "--list").stdout


def test_a_lost_wheel_is_made_and_installed_again_without_compiling(room: Room) -> None:
    before = room.objects()
    (wheel,) = (room.folder / "wheel").glob("*.whl")
    wheel.unlink()
    done = room.build()
    assert done.returncode == 0, done.stderr
    assert room.objects() == before
    assert "done already: compile" in done.stderr


def test_another_folder_for_a_build_that_is_kept_is_refused_by_a_dry_run_too(room: Room) -> None:
    done = room.build("--build-dir", str(room.base / "other"), "--dry-run")
    assert done.returncode == 2
    assert f"this build is kept in {room.folder}. Leave --build-dir out" in done.stderr


def test_a_folder_that_cannot_be_written_to_is_refused_before_a_unit_is_compiled(room: Room) -> None:
    before = room.objects()
    done = room.build("--prefix", "/proc/firstlight", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["ending"] == "refused"
    assert "prefix-not-writable" in {each["code"] for each in document["faults"]}
    assert room.objects() == before


def test_into_a_prefix_nothing_is_compiled_again(room: Room) -> None:
    before = room.objects()
    done = room.build("--prefix", str(room.base / "prefix"))
    assert done.returncode == 0, done.stderr
    assert room.objects() == before
    assert list((room.base / "prefix").rglob("standin/__init__.py"))
    assert "done already: prove it" not in done.stderr, "another copy is proved for itself"
    assert room.total() == str(sum(range(UNITS))), "the environment keeps its own"
    undone = room.firstlight("undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert not (room.base / "prefix").exists()
    assert room.total() == str(sum(range(UNITS)))


def test_a_faulty_unit_is_told_with_its_error_and_the_rest_is_compiled(room: Room) -> None:
    unit = room.tree / "src/unit_3.cpp"
    kept = unit.read_text()
    unit.write_text("#include <nccl.h>\n" + kept)
    (room.tree / "src/unit_5.cpp").write_text((room.tree / "src/unit_5.cpp").read_text() + "// touched\n")
    done = room.build()
    assert done.returncode == 1
    assert "unit_3.cpp.o did not compile" in done.stderr
    assert "fatal error: nccl.h: No such file or directory" in done.stderr
    unit.write_text(kept)
    done = room.build()
    assert done.returncode == 0, done.stderr
    assert "taking back" not in done.stderr, "its objects stay"


def test_a_changed_flag_is_said_before_and_one_that_nothing_reads_is_refused(room: Room) -> None:
    refused = room.build("--flag", "USE_LUOD=1", "--dry-run")
    assert refused.returncode == 1
    assert "USE_LOUD" in refused.stdout
    planned = room.build("--flag", "USE_LOUD=OFF", "--dry-run")
    assert (planned.returncode, "USE_LOUD was not set and is OFF" in planned.stdout) == (0, True)


def test_undo_takes_the_wheel_away_and_leaves_the_tree_and_clean_takes_the_folder(room: Room) -> None:
    undone = room.firstlight("undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert room.objects()
    listed = room.firstlight("build", "--list", "--json")
    (kept,) = json.loads(listed.stdout)["builds"]
    cleaned = room.firstlight("build", "--clean", kept["id"], "--yes")
    assert cleaned.returncode == 0, cleaned.stderr
    assert not Path(kept["folder"]).exists()
    assert room.tree.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("/nowhere",), "nothing that can be built"),
        (("--jobs", "0", "x==1"), "--jobs 0"),
        (("--archs", "9", "x==1"), "is not an architecture"),
        (("--with", "cudn", "x==1"), "Did you mean cudnn?"),
        (("--patch", "/nowhere", "x==1"), "--patch"),
        (("--clean", "nobody"), "no build of that id"),
        ((), "no TARGET"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(tmp_path)}
    argv = [sys.executable, "-m", "firstlight", "build", *words]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1

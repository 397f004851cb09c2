"""pod_setup.sh after kill -9 inside apt: the next start finishes what was begun, also in a step that is optional."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from firstlight.emit.kinds import emit
from tests.apply.debs import Repository
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.emit.subjects import OLD_H100, subject, text_of, write
from tests.system.apt_room import FILES, HOME, add_package, in_a_room, sign, states
from tests.system.pods import emitted_for

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own"),
    pytest.mark.skipif(shutil.which("apt-get") is None or shutil.which("gpg") is None, reason="needs apt and gpg"),
]
# What main does first, with a Python whose headers are in a package of the room.
FIRST = f"""
python={HOME}/python python_minor=3.99
finish_packages || say "what a killed apt left could not be finished; continuing without it"
need_compiler
"""


class Pod:
    """The emitted script in a room, with a repository."""

    def __init__(self) -> None:
        self.repository = Repository(HOME / "repository")
        os.environ["APT_CONFIG"] = str(self.repository.config)
        add_package(self.repository, "part")
        add_package(self.repository, "python3.99-dev", depends="part", more={f"{FILES}/include/Python.h": "\n"})
        self.script = HOME / "pod_setup.sh"
        write(emitted_for("torch==2.13.0+cpu", str(HOME)), HOME)
        text = self.script.read_text()
        assert "    finish_packages || say" in text
        (HOME / "functions.sh").write_text(text.removesuffix('main "$@"\n'))
        (HOME / "python").write_text(f"#!/bin/sh\necho {FILES}/include\n")
        (HOME / "python").chmod(0o755)
        (HOME / "firstlight/apt").mkdir(parents=True)
        for folder in ("lists", "archives"):  # as an earlier start on this volume left them
            shutil.copytree(HOME / "repository/lists", HOME / "firstlight/apt" / folder)

    def start(self) -> subprocess.CompletedProcess[str]:
        """The part of a start that installs packages."""
        argv = ["sh", "-c", f". {HOME}/functions.sh; {FIRST}"]
        return subprocess.run(argv, env=self.repository.env, capture_output=True, text=True, check=False)


def test_a_compiler_step_killed_at_any_turn_is_done_by_the_next_start() -> None:
    def work() -> None:
        pod = Pod()
        for name in ("part", "python3.99-dev"):
            for script in ("preinst", "postinst"):
                sign(name, script).touch()
                killed = pod.start()
                assert not sign(name, script).exists(), killed.stderr
                assert "install ok installed python3.99-dev" not in states()
                again = pod.start()
                assert "dpkg was interrupted: finishing that first" in again.stderr
                assert again.returncode == 0, again.stderr
                assert "install ok installed python3.99-dev 1.0" in states(), states() + again.stderr
                assert "notes: []" in states()
                quiet = pod.start()
                assert "interrupted" not in quiet.stderr
                subprocess.run(["dpkg", "--purge", "python3.99-dev", "part"], capture_output=True, check=True)

    in_a_room(work)


def test_a_repair_that_would_remove_a_package_is_said_and_not_done() -> None:
    def work() -> None:
        pod = Pod()
        add_package(pod.repository, "needy", depends="nowhere")
        deb = str(pod.repository.packages / "needy_1.0_all.deb")
        subprocess.run(["dpkg", "--install", deb], capture_output=True, check=False)
        (FILES / "include").mkdir()
        (FILES / "include/Python.h").touch()
        before = states()
        said = pod.start().stderr
        assert "apt would remove others to finish them" in said
        assert "  apt-get install --fix-broken" in said
        assert states() == before

    in_a_room(work)


def test_the_whole_script_finishes_packages_before_anything_else(tmp_path: Path) -> None:
    def work() -> None:
        pod = Pod()
        sign("part", "postinst").touch()
        pod.start()
        env = {**pod.repository.env, "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}
        done = subprocess.run(["sh", str(pod.script)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 1  # there is no index to bring torch from
        assert "finishing that first" in done.stderr
        assert "notes: []" in states()
        assert "half" not in states()

    in_a_room(work)


def test_a_kill_while_a_file_of_the_user_gets_its_line_loses_nothing(tmp_path: Path) -> None:
    """The file is the old one or the new one at every moment, whoever is killed."""
    text = emitted_for("torch==2.13.0+cpu", str(tmp_path)).files[0].text.removesuffix('main "$@"\n')
    (tmp_path / "functions.sh").write_text(text)
    file, line = tmp_path / "home/.bashrc", "# a line"
    file.parent.mkdir()
    old = "alias ll='ls -l'\n" * 200_000
    for number in range(25):
        file.write_text(old)
        file.chmod(0o640)
        argv = ["sh", "-c", f". {tmp_path}/functions.sh; begin_with {file} '{line}'"]
        process = subprocess.Popen(argv, start_new_session=True, stderr=subprocess.DEVNULL)
        time.sleep(0.004 + number * 0.0008)
        os.killpg(process.pid, 9)
        process.wait()
        assert file.read_text() in (old, f"{line}\n{old}"), f"kill {number}"
        assert file.stat().st_mode & 0o777 == 0o640
    subprocess.run(argv, check=True)
    assert file.read_text() == f"{line}\n{old}"
    assert [each.name for each in file.parent.iterdir()] == [".bashrc"]


@pytest.mark.parametrize("script", ["preinst", "postinst"])
def test_a_play_killed_inside_apt_is_finished_by_the_first_task_of_the_next(script: str) -> None:
    def work() -> None:
        pod = Pod()
        subprocess.run(["apt-get", "update"], env=pod.repository.env, capture_output=True, check=True)
        argv = ["sh", "-c", text_of(emit("ansible", subject(OLD_H100)), "files/finish_packages.sh")]
        whole = subprocess.run(argv, env=pod.repository.env, capture_output=True, text=True, check=True)
        assert whole.stdout + whole.stderr == ""
        sign("part", script).touch()
        killed = ["apt-get", "install", "--yes", "python3.99-dev"]
        subprocess.run(killed, env=pod.repository.env, capture_output=True, check=False)
        shutil.rmtree(lists := HOME / "repository/lists")  # a host that was cleaned has no lists of packages
        (lists / "partial").mkdir(parents=True)
        done = subprocess.run(argv, env=pod.repository.env, capture_output=True, text=True, check=False)
        assert "dpkg was interrupted" in done.stderr
        assert "install ok installed part 1.0" in states(), states() + done.stderr
        assert "notes: []" in states()
        subprocess.run(["apt-get", "update"], env=pod.repository.env, capture_output=True, check=True)
        subprocess.run(killed, env=pod.repository.env, capture_output=True, check=True)

    in_a_room(work)

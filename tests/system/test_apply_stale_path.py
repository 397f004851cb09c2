"""A login shell that a stale compat folder breaks: `apply` mends it, `undo` breaks it again to the byte.

The kernel driver and its device files are in mounts of the test's own; libcuda is a stand-in with the real note. The
shell, its start-up files, the dynamic loader and the command line are the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apply.acting import tree
from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts
from tests.schemas import fits
from tests.system.test_run_wiring import WHICH, Pod

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
]
SCHEMAS = Path(__file__).parents[2] / "src/firstlight/schemas"
# What a machine with a GPU has that this one lacks: the modules under /sys and the device files.
MACHINE = """
mkdir -p "$OLD" && mount --rbind /dev "$OLD" && mount -t tmpfs t /dev && mkdir /dev/shm && ln -s /proc/self/fd /dev/fd
for each in null zero full random urandom tty; do touch /dev/$each && mount --bind "$OLD/$each" /dev/$each; done
mknod /dev/nvidiactl c 195 255 && mknod /dev/nvidia0 c 195 0 && mknod /dev/nvidia-uvm c 510 0
mount -t tmpfs t /sys/module && mkdir /sys/module/nvidia /sys/module/nvidia_uvm
echo "$DRIVER" > /sys/module/nvidia/version && exec "$@"
"""


class Login:
    """A pod whose user logs in with a start-up file that puts an old compat folder first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.pod = Pod(folder, driver="580.159.04", compat="580.95.05", answer="803")
        shutil.rmtree(self.pod.own)
        build_libcuda(self.pod.own, version=self.pod.driver, cuda=13000)  # as a driver of branch 580 has it
        self.home.mkdir()
        stale = f"export LD_LIBRARY_PATH={self.pod.compat}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n"
        (self.home / ".profile").write_bytes(b"# caf\xe9, in an old encoding\n" + stale.encode() + b". ~/.bashrc\n")
        (self.home / ".bashrc").write_text(f"alias ll='ls -l'\n{stale}export EDITOR=vi")
        (self.home / ".bashrc").chmod(0o600)

    def shell(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a fresh login shell."""
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(self.home), "CONDA_PREFIX": str(self.pod.prefix),
            "LD_LIBRARY_PATH": str(self.pod.own), "FIRSTLIGHT_STATE_DIR": str(self.folder / "state"),
            "OLD": str(self.folder / "dev"), "DRIVER": self.pod.driver,
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
        }  # fmt: skip
        login = ("bash", "--login", "-c", 'exec "$@"', "bash")
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", MACHINE, "sh", *login, *argv], env=environment, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip

    def firstlight(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = self.shell(sys.executable, "-m", "firstlight", *words)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def loads(self) -> str:
        """What cuInit says in a fresh login shell, and whose libcuda said it."""
        return self.shell(str(self.pod.prefix / "bin/python"), "-c", WHICH).stdout.strip()


def test_apply_mends_the_login_shell_and_undo_breaks_it_again(tmp_path: Path) -> None:
    login = Login(tmp_path)
    before = tree(login.home)
    broken = f"803 {login.pod.compat}/libcuda.so.580.95.05"
    assert login.loads() == broken
    done = login.firstlight("apply", "--yes", "--no-verify")
    assert done.returncode == 0, done.stderr
    assert "run 1: 2 steps done in" in done.stdout
    assert f"      export LD_LIBRARY_PATH={login.pod.own}" in done.stdout, "what an open shell has to be told"
    assert login.loads() == f"0 {login.pod.own}/libcuda.so.580.159.04"
    assert (login.home / ".profile").read_bytes() == b"# caf\xe9, in an old encoding\n. ~/.bashrc\n"
    assert (login.home / ".bashrc").read_text() == "alias ll='ls -l'\nexport EDITOR=vi"
    mended = tree(tmp_path)
    again = login.firstlight("apply", "--yes", "--no-verify")
    assert (again.returncode, tree(tmp_path)) == (0, mended), again.stderr
    assert "nothing to do" in again.stdout
    undone = login.firstlight("undo", "--yes", "--json")
    assert undone.returncode == 0, undone.stderr
    fits(json.loads(undone.stdout), json.loads((SCHEMAS / "undo-1.json").read_text()))
    assert tree(login.home) == before
    assert login.loads() == broken


def test_from_the_broken_shell_itself_the_second_apply_has_nothing_to_do_either(tmp_path: Path) -> None:
    login = Login(tmp_path)
    path = f"{login.pod.compat}:{login.pod.own}"
    words = (sys.executable, "-m", "firstlight", "apply", "--yes", "--no-verify")
    assert login.shell("env", f"LD_LIBRARY_PATH={path}", *words).returncode == 0
    before = tree(tmp_path)
    again = login.shell("env", f"LD_LIBRARY_PATH={path}", *words)
    assert again.returncode == 0, again.stderr
    assert "nothing to do: run 1 did this; this shell still has the old environment" in again.stdout
    assert tree(tmp_path) == before


def test_a_start_up_file_edited_since_is_not_lost(tmp_path: Path) -> None:
    login = Login(tmp_path)
    assert login.firstlight("apply", "--yes", "--no-verify").returncode == 0
    mine = (login.home / ".bashrc").read_text() + "\nexport MINE=1\n"
    (login.home / ".bashrc").write_text(mine)
    refused = login.firstlight("undo", "--yes")
    assert refused.returncode == 1
    assert "was changed after firstlight wrote it" in " ".join(refused.stderr.split())
    assert (login.home / ".bashrc").read_text() == mine


def test_a_body_a_here_document_and_a_file_that_is_read_in_are_mended_and_undone(tmp_path: Path) -> None:
    login = Login(tmp_path)
    stale = f"export LD_LIBRARY_PATH={login.pod.compat}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n"
    data = f"cat > /dev/null <<EOF\n{stale}EOF\n"
    (login.home / ".profile").write_text(f". ~/.cuda_env\nif [ -d / ]; then\n  {stale}fi\n{data}. ~/.bashrc\n")
    (login.home / ".bashrc").write_text(f"for each in 1; do\n{stale}done\nexport EDITOR=vi")
    (login.home / ".cuda_env").write_text(stale)
    before, broken = tree(login.home), login.loads()
    assert broken.startswith("803 ")
    done = login.firstlight("apply", "--yes", "--no-verify")
    assert done.returncode == 0, done.stderr
    assert login.loads() == f"0 {login.pod.own}/libcuda.so.580.159.04"
    assert (login.home / ".profile").read_text() == f". ~/.cuda_env\nif [ -d / ]; then\n  :\nfi\n{data}. ~/.bashrc\n"
    assert (login.home / ".bashrc").read_text() == "for each in 1; do\n:\ndone\nexport EDITOR=vi"
    assert login.firstlight("undo", "--yes").returncode == 0
    assert (tree(login.home), login.loads()) == (before, broken)


def test_a_line_that_is_no_plain_assignment_is_told_and_left(tmp_path: Path) -> None:
    login = Login(tmp_path)
    odd = f"A=1\neval 'export LD_LIBRARY_PATH={login.pod.compat}:$LD_LIBRARY_PATH'\n"
    (login.home / ".profile").write_text(odd)
    (login.home / ".bashrc").unlink()
    done = login.firstlight("apply", "--yes", "--no-verify")
    assert done.returncode == 1, done.stderr
    assert f"      sed -n 2p {login.home}/.profile" in done.stdout
    assert "eval" in done.stdout
    assert (login.home / ".profile").read_text() == odd


def test_an_edit_that_its_shell_refuses_is_not_written_and_the_rest_is_done(tmp_path: Path) -> None:
    """The file counts the lines of itself: without one of them it says something else."""
    login = Login(tmp_path)
    stale = f"export LD_LIBRARY_PATH={login.pod.compat}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n"
    odd = f"{stale}export LINES_OF_MINE=$(wc -l < ~/.profile)\n. ~/.bashrc\n"
    (login.home / ".profile").write_text(odd)
    done = login.firstlight("apply", "--yes", "--no-verify")
    assert done.returncode == 1, done.stderr
    assert "Not written: LINES_OF_MINE would change with it." in " ".join(done.stdout.split())
    assert (login.home / ".profile").read_text() == odd
    assert (login.home / ".bashrc").read_text() == "alias ll='ls -l'\nexport EDITOR=vi"

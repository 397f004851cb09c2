"""`firstlight run` under a kernel driver that is not there, with libraries that are not NVIDIA's: the right one loads.

The kernel driver's version is a file in mounts of the test's own; the libraries are stand-ins with the real note. The
dynamic loader, the child processes and the command line are the real ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts, fake_torch, under_driver

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
]
WHICH = (
    "import ctypes, os; l = ctypes.CDLL('libcuda.so.1'); code = l.cuInit(0); "
    "print(code, [line.split()[-1] for line in open('/proc/self/maps') if 'libcuda.so' in line][0])"
)


class Pod:
    """A venv with a torch for CUDA 13, a driver's own libcuda and a compat folder."""

    def __init__(self, folder: Path, *, driver: str, compat: str, answer: str = "0", native: str = "0") -> None:
        self.driver = driver
        self.prefix = folder / "venv"
        self.compat = self.prefix / "cuda-compat"  # where conda puts it, and where the facts look in an environment
        self.own = folder / "driver"
        build_libcuda(self.own, version=driver, cuda=12080, answer=native)
        build_libcuda(self.compat, version=compat, cuda=13000, answer=answer)
        site = self.prefix / f"lib/python3.{sys.version_info.minor}/site-packages"
        fake_torch(site)
        (self.prefix / "bin").mkdir()
        (self.prefix / "bin/python").symlink_to(sys.executable)
        (self.prefix / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
        (self.prefix / "conda-meta").mkdir()

    def run(self, *, path: tuple[Path, ...] = (), **env: str) -> tuple[int, str, str]:
        """Status, output and complaints of `firstlight run -- python -c WHICH`."""
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.prefix),
            "CONDA_PREFIX": str(self.prefix),
            "LD_LIBRARY_PATH": ":".join(str(each) for each in (*path, self.own)),
            "FIRSTLIGHT_STATE_DIR": str(self.prefix / "state"),
            **env,
        }
        python = str(self.prefix / "bin/python")
        argv = (sys.executable, "-m", "firstlight", "run", "--why", "--", python, "-c", WHICH)
        done = under_driver(self.driver, *argv, env=environment)
        return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_an_old_driver_and_a_torch_for_cuda_13_get_the_compat_library(tmp_path: Path) -> None:
    pod = Pod(tmp_path, driver="570.133.20", compat="580.95.05")
    assert pod.run()[:2] == (0, f"0 {pod.compat}/libcuda.so.580.95.05")


def test_off_leaves_the_drivers_own(tmp_path: Path) -> None:
    pod = Pod(tmp_path, driver="570.133.20", compat="580.95.05")
    assert pod.run(FIRSTLIGHT_COMPAT="off")[:2] == (0, f"0 {pod.own}/libcuda.so.570.133.20")


@pytest.mark.parametrize("answer", ["803", "804", "hang", "crash"])
def test_a_compat_library_that_does_not_start_is_not_used(tmp_path: Path, answer: str) -> None:
    pod = Pod(tmp_path, driver="570.133.20", compat="580.95.05", answer=answer)
    status, out, said = pod.run()
    assert (status, out) == (0, f"0 {pod.own}/libcuda.so.570.133.20")
    assert "cannot be used" in said


@pytest.mark.parametrize("answer", ["803", "804", "hang", "crash"])
def test_on_refuses_to_start_where_compat_cannot_work(tmp_path: Path, answer: str) -> None:
    pod = Pod(tmp_path, driver="570.133.20", compat="580.95.05", answer=answer)
    status, out, said = pod.run(FIRSTLIGHT_COMPAT="on")
    assert (status, out) == (1, "")
    assert "was not started" in said


def test_a_newer_driver_never_gets_an_older_compat_library_even_when_told_to(tmp_path: Path) -> None:
    pod = Pod(tmp_path, driver="580.159.04", compat="580.95.05")
    status, out, said = pod.run(FIRSTLIGHT_COMPAT="on")
    assert (status, out) == (1, "")
    assert "580.95.05 is not newer than driver 580.159.04: cuInit would give 803" in said


def test_a_stale_compat_folder_first_in_the_path_is_taken_out(tmp_path: Path) -> None:
    pod = Pod(tmp_path, driver="580.159.04", compat="580.95.05", answer="803")
    status, out, said = pod.run(path=(pod.compat,))
    assert (status, out) == (0, f"0 {pod.own}/libcuda.so.580.159.04")
    assert "take out" in said
    assert "gives 803; without it cuInit works" in said


def test_a_compat_library_that_is_in_use_and_works_is_left_alone(tmp_path: Path) -> None:
    pod = Pod(tmp_path, driver="570.133.20", compat="580.95.05")
    status, out, said = pod.run(path=(pod.compat,))
    assert (status, out) == (0, f"0 {pod.compat}/libcuda.so.580.95.05")
    assert "is in use already" in said


def test_a_driver_branch_that_the_note_does_not_list_is_not_tried(tmp_path: Path) -> None:
    pod = Pod(tmp_path, driver="560.35.03", compat="580.95.05")
    status, out, said = pod.run()
    assert (status, out) == (0, f"0 {pod.own}/libcuda.so.560.35.03")
    assert "does not take driver branch 560" in said

"""pod_setup.sh with a compat library: fetched where the driver needs it, decided at each start, kept on the volume.

torch and libcuda are stand-ins; apt, pip, the loader and the shells are the real ones.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apply.debs import Repository
from tests.apply.stand_ins import build_libcuda
from tests.apply.wheels import make_wheel
from tests.system.pods import NEEDS, Pod, pod_in

pytestmark = [*NEEDS, pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")]
VOLUME = "/work space"
STATE = f"{VOLUME}/firstlight"
FOLDER = f"{STATE}/compat/cuda-13.0"
LOADED = """
import ctypes
ctypes.CDLL("libcuda.so.1")
print([line.split(None, 5)[-1].strip() for line in open("/proc/self/maps") if "libcuda" in line][0])
"""


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    folder = tmp_path_factory.mktemp("compat-pod")
    make_wheel(folder / "wheels", "torch", "2.9.0+cu130")
    make_wheel(folder / "wheels", "numpy", "2.4.0")
    repository = Repository(folder / "apt")
    _add_compat(repository)
    want, wheels = "torch==2.9.0+cu130", folder / "wheels"
    with pod_in(folder, want, wheels=wheels, repository=repository, volume=VOLUME) as made:
        for root in (made.pristine, made.root):
            _have_compiler(root)
        yield made


def _have_compiler(root: Path) -> None:
    """What stands for a compiler that the image has: nothing here compiles."""
    header = root / "usr/include/python3.11/Python.h"
    header.parent.mkdir(parents=True)
    header.write_text("")
    shutil.copy("/bin/true", root / "usr/bin/g++")


def _add_compat(repository: Repository) -> None:
    tree = repository.folder / "compat"
    build_libcuda(tree / "usr/local/cuda-13.0/compat", version="580.95.05", cuda=13000)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        "Package: cuda-compat-13-0\nVersion: 580.95.05-1\nArchitecture: amd64\n"
        "Maintainer: tests <tests@example.invalid>\nDescription: stand-in\n"
    )
    deb = repository.packages / "cuda-compat-13-0.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)]
    subprocess.run(command, check=True, capture_output=True)


def _python(pod: Pod, *before: str, code: str = LOADED) -> str:
    done = pod.run(*before, f"{STATE}/env/bin/python", "-c", code)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_driver_that_nothing_makes_up_for_is_refused_before_anything_is_changed(pod: Pod) -> None:
    pod.load_driver("560.35.03")
    before = pod.everything()
    done = pod.set_up("--no-verify")
    assert done.returncode == 1
    assert "driver 560.35.03 is loaded; torch 2.9.0+cu130 needs 580.65.06 or newer" in done.stderr
    assert pod.everything() == before


def test_a_new_driver_gets_no_compat_library(pod: Pod) -> None:
    pod.load_driver("580.95.05")
    done = pod.set_up("--no-verify")
    assert done.returncode == 0, done.stderr
    assert not Path(f"{pod.root}{FOLDER}").exists()
    assert not any("cuda-compat" in each for each in pod.apt_asked)


def test_on_an_older_one_it_comes_to_the_volume_and_is_installed_nowhere(pod: Pod) -> None:
    pod.load_driver("570.133.20")
    done = pod.set_up("--no-verify")
    assert done.returncode == 0, done.stderr
    assert Path(f"{pod.root}{FOLDER}/libcuda.so.1").exists()
    assert not (pod.root / "usr/local/cuda-13.0").exists()
    assert "cuda-compat" not in (pod.root / "var/lib/dpkg/status").read_text()
    before = pod.everything()
    assert pod.set_up("--no-verify").returncode == 0
    assert pod.everything() == before


@pytest.mark.parametrize(
    ("shell", "first"),
    [
        (("bash", "-lc"), ""),
        (("sh", "-lc"), ""),
        (("bash", "-ic"), ""),  # a terminal of Jupyter or an editor
        (("bash", "-c"), ". /root/.bashrc; "),  # what bash does by itself for a command that comes by ssh
    ],
    ids=["login-bash", "login-sh", "terminal", "command-by-ssh"],
)
def test_shells_have_the_environment_and_the_library(pod: Pod, shell: tuple[str, ...], first: str) -> None:
    done = pod.run(*shell, f'{first}command -v python; echo "$LD_LIBRARY_PATH"')
    assert done.stdout.splitlines() == [f"{STATE}/env/bin/python", FOLDER], done.stderr


def test_pam_gives_cron_the_path(pod: Pod) -> None:
    text = (pod.root / "etc/environment").read_text()
    assert text.count(f"{STATE}/env/bin:") == 1
    done = pod.run("su", "root", "-s", "/bin/sh", "-c", "command -v python")
    assert done.stdout.strip() == f"{STATE}/env/bin/python", done.stderr


def test_cron_and_notebook_kernels_get_the_library_by_the_interpreter_alone(pod: Pod) -> None:
    bare = ("env", "-i", "PATH=/usr/bin:/bin", "HOME=/root")
    assert pod.run(*bare, f"{STATE}/compat/run", "true").returncode == 0  # asks cuInit, as every shell does
    assert _python(pod, *bare) == f"{FOLDER}/libcuda.so.580.95.05"


def test_after_a_restart_on_a_newer_driver_the_same_volume_goes_without(pod: Pod) -> None:
    pod.apt_asked.clear()
    pod.index.asked.clear()
    pod.restart()
    pod.load_driver("580.159.04")
    done = pod.set_up("--no-verify")
    assert done.returncode == 0, done.stderr
    assert (pod.apt_asked, pod.index.asked) == ([], [])
    assert "libcuda.so.1" in _python(pod)  # cannot open shared object file: the stand-in root has no driver library
    assert pod.run("bash", "-lc", 'echo "[$LD_LIBRARY_PATH]"').stdout.strip() == "[]"


def test_and_back_on_the_older_driver_it_is_used_again_without_a_download(pod: Pod) -> None:
    pod.restart()
    pod.load_driver("570.133.20")
    assert pod.set_up("--no-verify").returncode == 0
    assert (pod.apt_asked, pod.index.asked) == ([], [])
    assert _python(pod, "env", "-i") == f"{FOLDER}/libcuda.so.580.95.05"


def test_an_environment_that_was_lost_is_made_again_from_the_wheels_on_the_volume(pod: Pod) -> None:
    for folder in Path(f"{pod.root}{STATE}").glob("env-*"):
        shutil.rmtree(folder)
    done = pod.set_up("--no-verify")
    assert done.returncode == 0, done.stderr
    assert pod.index.asked == []
    assert _python(pod, code="import torch; print(torch.VERSION)") == "2.9.0+cu130"


def test_a_run_that_was_killed_half_way_is_finished_by_the_next(pod: Pod) -> None:
    [environment] = [each for each in Path(f"{pod.root}{STATE}").glob("env-*") if not each.is_symlink()]
    (environment / ".firstlight-ready").unlink()
    shutil.rmtree(next(environment.glob("lib/python3*/site-packages/torch")))
    assert pod.set_up("--no-verify").returncode == 0
    assert _python(pod, code="import torch; print(torch.VERSION)") == "2.9.0+cu130"


def test_a_word_that_it_does_not_know_is_refused(pod: Pod) -> None:
    done = pod.set_up("--verify")
    assert (done.returncode, done.stderr) == (2, "firstlight: --verify: accepted is --no-verify, --help, or nothing\n")

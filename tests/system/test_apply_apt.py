"""apt steps against a signed repository in a folder: real apt and dpkg, a stand-in cuda-compat package."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import Acting
from firstlight.apply.package_sets import manual_packages, packages
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import Quiet, acting, step
from tests.apply.debs import Repository

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.getuid() != 0 or shutil.which("apt-get") is None, reason="needs root and apt"),
    pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg to sign the repository"),
]
LIBRARY = "/usr/local/cuda-99.0/compat/libcuda.so.1"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    made = Repository(tmp_path / "apt")
    made.add("cuda-compat-base-99", "1.0", files={"/usr/local/cuda-99.0/compat/README": "stand-in\n"})
    made.add("cuda-compat-99-0", "1.0", files={LIBRARY: "one\n"}, depends="cuda-compat-base-99")
    monkeypatch.setenv("APT_CONFIG", str(made.config))
    subprocess.run(["apt-get", "update"], check=True, capture_output=True, env=made.env)
    yield made
    left = ["apt-get", "purge", "--yes", "cuda-compat-99-0", "cuda-compat-base-99"]
    subprocess.run(left, capture_output=True, env=made.env, check=False)


def _doing(tmp_path: Path, repository: Repository) -> Acting:
    return replace(acting(tmp_path), env=repository.env)


def _install(*, version: str = "") -> Step:
    package = "cuda-compat-99-0"
    argv = (
        "apt-get",
        "-o",
        "DPkg::Lock::Timeout=60",
        "install",
        "--yes",
        f"{package}={version}" if version else package,
    )
    done = (Condition(CheckKind.APT_PACKAGE, package, version), Condition(CheckKind.FILE_EXISTS, LIBRARY))
    return step("01-install-cuda-compat-99-0", kind=StepKind.APT, commands=(argv,), done_when=done)


def _undo(tmp_path: Path, repository: Repository) -> None:
    doing = _doing(tmp_path, repository)
    for run in newest_to_undo(doing):
        undo(doing, run)


def test_a_package_and_what_it_needs_come_and_go_without_a_trace(tmp_path: Path, repository: Repository) -> None:
    before, manual = packages(), manual_packages()
    asked = Asked((_install(),), "d", "o", "t")
    act(_doing(tmp_path, repository), asked)
    assert Path(LIBRARY).read_text() == "one\n"
    assert act(_doing(tmp_path, repository), asked) == ()
    _undo(tmp_path, repository)
    assert (packages(), manual_packages()) == (before, manual)
    assert not Path("/usr/local/cuda-99.0").exists()


def test_an_upgraded_package_comes_back_in_its_old_version(tmp_path: Path, repository: Repository) -> None:
    subprocess.run(
        ["apt-get", "install", "--yes", "cuda-compat-99-0"], check=True, capture_output=True, env=repository.env
    )
    subprocess.run(["apt-mark", "auto", "cuda-compat-99-0"], check=True, capture_output=True, env=repository.env)
    before, manual = packages(), manual_packages()
    repository.add("cuda-compat-99-0", "2.0", files={LIBRARY: "two\n"}, depends="cuda-compat-base-99")
    subprocess.run(["apt-get", "update"], check=True, capture_output=True, env=repository.env)
    act(_doing(tmp_path, repository), Asked((_install(version="2.0"),), "d", "o", "t"))
    assert Path(LIBRARY).read_text() == "two\n"
    _undo(tmp_path, repository)
    assert Path(LIBRARY).read_text() == "one\n"
    assert (packages(), manual_packages()) == (before, manual)


def test_a_lock_that_another_apt_holds_is_waited_for(tmp_path: Path, repository: Repository) -> None:
    with open("/var/lib/dpkg/lock-frontend", "w", encoding="ascii") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        timer = threading.Timer(3.0, lambda: fcntl.lockf(lock, fcntl.LOCK_UN))
        timer.start()
        begun = time.monotonic()
        doing = _doing(tmp_path, repository)
        act(doing, Asked((_install(),), "d", "o", "t"))
        assert time.monotonic() - begun > 2.5
    watcher = doing.watcher
    assert isinstance(watcher, Quiet)
    assert any("lock" in line.lower() for line in watcher.heard), "it says what it waits for"
    _undo(tmp_path, repository)

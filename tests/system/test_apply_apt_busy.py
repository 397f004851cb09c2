"""Another apt at work: plain apt and dpkg commands, which give up at once by themselves, are waited with."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.package_sets import manual_packages, packages
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.step import CheckKind, Condition, StepKind
from tests.apply.acting import Quiet, acting, step
from tests.apply.debs import Repository

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.getuid() != 0 or shutil.which("apt-get") is None, reason="needs root and apt"),
    pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg to sign the repository"),
]
PACKAGE = "cuda-compat-98-0"


def test_commands_that_find_the_lock_taken_are_tried_again_and_what_others_install_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "apt")
    repository.add(PACKAGE, "1.0", files={"/usr/local/cuda-98.0/compat/libcuda.so.1": "one\n"})
    repository.add("somebody-elses", "1.0", files={"/usr/local/share/somebody-elses": "mine\n"})
    monkeypatch.setenv("APT_CONFIG", str(repository.config))
    subprocess.run(["apt-get", "update"], check=True, capture_output=True, env=repository.env)
    install = step(
        "01-install", kind=StepKind.APT,
        commands=(("apt-get", "-o", "DPkg::Lock::Timeout=0", "install", "--yes", PACKAGE),),
        done_when=(Condition(CheckKind.APT_PACKAGE, PACKAGE),),
    )  # fmt: skip
    before, manual = packages(), manual_packages()
    doing = replace(acting(tmp_path), env=repository.env)
    try:
        with open("/var/lib/dpkg/lock-frontend", "w", encoding="ascii") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            threading.Timer(3.0, lambda: fcntl.lockf(lock, fcntl.LOCK_UN)).start()
            act(doing, Asked((install,), "d", "o", "t"))
        watcher = doing.watcher
        assert isinstance(watcher, Quiet)
        assert any("waiting for another package manager" in line for line in watcher.heard)
        theirs = ["apt-get", "install", "--yes", "somebody-elses"]
        subprocess.run(theirs, check=True, capture_output=True, env=repository.env)
        for run in newest_to_undo(doing):
            undo(doing, run)
        assert [each for each in packages() if each not in before] == ["somebody-elses==1.0"]
        assert [each for each in manual_packages() if each not in manual] == ["somebody-elses"]
    finally:
        left = ["apt-get", "purge", "--yes", PACKAGE, "somebody-elses"]
        subprocess.run(left, capture_output=True, env=repository.env, check=False)
    assert (packages(), manual_packages()) == (before, manual)

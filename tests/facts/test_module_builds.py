"""What dkms and akmods left behind, read from their own folders; the log lines are those of dkms 3.0.10 and 3.2."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.facts.module_builds import FailedBuild, ModuleSource, probe_module_builds
from firstlight.machine.live import LiveMachine
from firstlight.versions import DriverVersion

KERNEL = "6.17.1-surface-2"
OLDER = "DKMS make.log for nvidia-current-550.163.01 for kernel 6.17.1-surface-2 (x86_64)\nWed Nov 18\n"
NEWER = "DKMS (dkms-3.2.2) make.log for nvidia-current/550.163.01 for kernel 6.17.1-surface-2 (x86_64)\n"


def write(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def version(text: str) -> DriverVersion:
    return DriverVersion.parse(text)


@pytest.mark.parametrize("log", [OLDER, NEWER])
def test_a_build_that_failed_is_told_with_its_kernel_and_its_log(tmp_path: Path, log: str) -> None:
    write(tmp_path, "/usr/src/nvidia-current-550.163.01/dkms.conf")
    path = "/var/lib/dkms/nvidia-current/550.163.01/build/make.log"
    write(tmp_path, path, log)
    found = probe_module_builds(LiveMachine(root=str(tmp_path))).value
    assert found.sources == (ModuleSource("dkms", "nvidia-current", version("550.163.01")),)
    assert found.failed == (FailedBuild(version("550.163.01"), KERNEL, path),)


def test_a_build_that_came_to_its_end_has_its_log_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, f"/var/lib/dkms/nvidia/595.80/{KERNEL}/x86_64/log/make.log", OLDER)
    write(tmp_path, "/var/lib/dkms/nvidia/595.84/build/make.log", "something else\n")
    assert probe_module_builds(LiveMachine(root=str(tmp_path))).value.failed == ()


def test_akmods_keeps_its_sources_as_packages_and_its_failures_by_name(tmp_path: Path) -> None:
    write(tmp_path, "/usr/src/akmods/nvidia-kmod-580.126.18-1.fc43.src.rpm")
    write(tmp_path, "/usr/src/akmods/nvidia-kmod.latest")
    log = "/var/cache/akmods/nvidia/580.142-1.fc43-for-6.18.4-200.fc43.x86_64.failed.log"
    write(tmp_path, log)
    found = probe_module_builds(LiveMachine(root=str(tmp_path))).value
    assert found.sources == (ModuleSource("akmods", "nvidia-kmod", version("580.126.18")),)
    assert found.failed == (FailedBuild(version("580.142"), "6.18.4-200.fc43.x86_64", log),)


def test_other_folders_of_that_name_are_no_source(tmp_path: Path) -> None:
    write(tmp_path, "/usr/src/nvidia-595.84/Makefile")  # no dkms.conf: unpacked by hand
    write(tmp_path, "/usr/src/nvidia-fs-2.17.5/dkms.conf")
    assert probe_module_builds(LiveMachine(root=str(tmp_path))).value.sources == ()

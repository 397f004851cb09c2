"""dnf, zypper and dkms themselves, from Debian's packages, in a root made for it: what we tell them is what they do.

Run by hand (it fetches some 200 MB and takes three minutes): pytest -m network tests/system/test_other_managers.py
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.containers import ContainerKind
from firstlight.facts.module_builds import probe_module_builds
from firstlight.machine.live import LiveMachine
from firstlight.tables.system_rows import Family
from firstlight.versions import DriverVersion
from firstlight.ways.argv import commands
from firstlight.ways.kinds import BuildModules, InstallPackages
from firstlight.ways.managers import of_driver
from firstlight.ways.platform import Manager, Platform, platform_of
from tests.diagnosis.rule_case import facts_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]
KERNEL = "6.1.0-of-nobody"
PACKAGES = "dnf,zypper,createrepo-c,rpm,dkms,make"
VERSIONS = ("575.64", "575.64.03")
EPOCHS = {"nvidia-driver-cuda-libs": 3, "nvidia-compute-G06": 0}  # as NVIDIA and SUSE number theirs
SPEC = """Name: {name}
Version: {version}
Release: 1.1
Epoch: {epoch}
Summary: t
License: t
BuildArch: noarch
%description
t
%files
"""
CONF = """PACKAGE_NAME="nvidia"
PACKAGE_VERSION="{version}"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make"
AUTOINSTALL="yes"
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("managers") / "root"
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(made)], check=True)
    mounts = (made / "proc", made / "dev")
    subprocess.run(["mount", "-t", "proc", "proc", str(mounts[0])], check=True)
    subprocess.run(["mount", "--bind", "/dev", str(mounts[1])], check=True)
    try:
        _repository(made)
        yield made
    finally:
        for each in mounts:
            subprocess.run(["umount", str(each)], check=True)


def _repository(root: Path) -> None:
    (root / "repo").mkdir()
    for name, epoch in EPOCHS.items():
        for version in VERSIONS:
            (root / "s.spec").write_text(SPEC.format(name=name, version=version, epoch=epoch))
            inside(root, "rpmbuild", "-bb", "--define", "_rpmdir /repo", "/s.spec")
    inside(root, "createrepo_c", "-q", "/repo")
    text = "[t]\nname=t\nbaseurl=file:///repo\nenabled=1\ngpgcheck=0\n"
    for folder in ("etc/yum.repos.d", "etc/zypp/repos.d"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "t.repo").write_text(text)


def inside(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    return subprocess.run(["chroot", str(root), *argv], env=env, capture_output=True, text=True, check=False)


def platform(family: Family, manager: Manager) -> Platform:
    here = platform_of(facts_of("h100-driver-570"))
    return replace(
        here, family=family, release="", manager=manager, is_root=True, container=ContainerKind.NONE, kernel=KERNEL
    )


@pytest.mark.parametrize(
    ("family", "manager", "name"),
    [(Family.RHEL, Manager.DNF, "nvidia-driver-cuda-libs"), (Family.SUSE, Manager.ZYPPER, "nvidia-compute-G06")],
)
def test_a_version_is_had_and_gone_back_from(root: Path, family: Family, manager: Manager, name: str) -> None:
    for version in ("575.64.03", "575.64", "575.64.03"):
        way = InstallPackages((name,), version=of_driver(DriverVersion.parse(version)))
        [argv] = commands(way, platform(family, manager))
        done = inside(root, *argv)
        assert done.returncode == 0, done.stdout + done.stderr
        # Debian's rpm keeps root's own database under /root; libzypp has the system's.
        base = "/var/lib/rpm" if manager is Manager.ZYPPER else "/root/.rpmdb"
        assert inside(root, "rpm", "--dbpath", base, "-q", "--qf", "%{version}", name).stdout == version


def _source(root: Path, version: str, recipe: str) -> None:
    folder = root / "usr" / "src" / f"nvidia-{version}"
    folder.mkdir(parents=True)
    (folder / "dkms.conf").write_text(CONF.format(version=version))
    (folder / "Makefile").write_text(f"all:\n\t{recipe}\n")


def test_dkms_keeps_the_old_module_unless_the_source_is_named_and_leaves_a_log_where_it_fails(root: Path) -> None:
    build = root / "lib" / "modules" / KERNEL / "build"
    (build / "include").mkdir(parents=True)
    (build / "Makefile").touch()
    where = platform(Family.ARCH, Manager.PACMAN)
    for version in ("595.80", "595.84"):
        _source(root, version, "cp /bin/true nvidia.ko")
    inside(root, "dkms", "install", "nvidia/595.80", "-k", KERNEL)
    for way, first in (
        (BuildModules(KERNEL, ""), "nvidia/595.80"),
        (BuildModules(KERNEL, "", source="nvidia/595.84"), "nvidia/595.84"),
    ):
        [argv] = commands(way, where)
        assert inside(root, *argv).returncode == 0
        installed = [line for line in inside(root, "dkms", "status").stdout.splitlines() if "installed" in line]
        assert [line.split(",")[0] for line in installed] == [first]
    assert probe_module_builds(LiveMachine(root=str(root))).value.failed == ()
    _source(root, "550.163.01", "false")
    [argv] = commands(BuildModules(KERNEL, "", source="nvidia/550.163.01"), where)
    assert inside(root, *argv).returncode != 0
    [failed] = probe_module_builds(LiveMachine(root=str(root))).value.failed
    assert (str(failed.version), failed.kernel) == ("550.163.01", KERNEL)

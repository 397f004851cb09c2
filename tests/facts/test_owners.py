"""Who owns a driver library, from the files of dpkg, pacman and rpm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from firstlight.facts.driver import probe_driver
from firstlight.facts.known import Known, Unknown
from firstlight.facts.libcuda import probe_libcuda
from firstlight.facts.nvml import NvmlAnswer, Readings
from firstlight.facts.owners import NOT_NAMED, FileOwner, probe_owners
from firstlight.machine.live import LiveMachine

NVML = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.565.57.01"


def _put(root: Path, path: str, content: str | bytes) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content.encode() if isinstance(content, str) else content)


def _program(root: Path, name: str, script: str) -> None:
    _put(root, f"/bin/{name}", f"#!/bin/sh\n{script}\n")
    (root / "bin" / name).chmod(0o755)


def _owners(root: Path, *, module: str = "535.183.01") -> Known[tuple[FileOwner, ...]] | Unknown:
    _put(root, "/sys/module/nvidia/version", f"{module}\n")
    machine = LiveMachine(root=str(root), environ={"PATH": f"{root}/bin"})
    said = NvmlAnswer(
        library=Known(NVML, "maps"),
        init_code=Known(18, "nvmlInit"),
        init_message=Unknown("not asked"),
        count=Unknown("not asked"),
        system=Readings({}, "NVML", absent="not asked"),
        devices=(),
    )
    return probe_owners(machine, probe_driver(machine, said), probe_libcuda(machine))


def test_dpkg_names_the_package_that_has_the_file(tmp_path: Path) -> None:
    _put(tmp_path, "/var/lib/dpkg/info/libnvidia-compute-565:amd64.list", f"/.\n{NVML}\n")
    _put(tmp_path, "/var/lib/dpkg/info/nvidia-utils-565.list", "/usr/bin/nvidia-smi\n")
    assert _owners(tmp_path) == Known((FileOwner(NVML, "libnvidia-compute-565", "dpkg"),), "dpkg")


def test_a_file_that_no_package_has_was_put_there_by_the_runtime(tmp_path: Path) -> None:
    _put(tmp_path, "/var/lib/dpkg/info/libnvidia-compute-565.list", f"{NVML}.bak\n")
    assert _owners(tmp_path) == Known((), "dpkg")


def test_dpkg_is_asked_where_its_lists_do_not_have_the_file(tmp_path: Path) -> None:
    _put(tmp_path, "/var/lib/dpkg/info/libnvidia-compute-565.list", "/.\n")
    _program(tmp_path, "dpkg", f'echo "libnvidia-compute-565:amd64: {NVML}"')
    assert _owners(tmp_path) == Known((FileOwner(NVML, "libnvidia-compute-565", "dpkg"),), "dpkg")


def test_pacman_names_it_without_version_and_release(tmp_path: Path) -> None:
    name = NVML.rpartition("/")[2]
    _put(tmp_path, "/var/lib/pacman/local/nvidia-utils-565.57.01-1/files", f"%FILES%\nusr/lib/{name}\n")
    assert _owners(tmp_path) == Known((FileOwner(NVML, "nvidia-utils", "pacman"),), "pacman")


def test_rpm_is_asked_for_the_package(tmp_path: Path) -> None:
    _put(tmp_path, "/var/lib/rpm/rpmdb.sqlite", b"SQLite format 3\0")
    _program(tmp_path, "rpm", "echo nvidia-driver-NVML-565.57.01-1.el9.x86_64")
    assert _owners(tmp_path) == Known((FileOwner(NVML, "nvidia-driver-NVML", "rpm"),), "rpm")


def test_rpm_that_says_that_no_package_has_it_is_believed(tmp_path: Path) -> None:
    _put(tmp_path, "/var/lib/rpm/rpmdb.sqlite", b"\0libnvidia-ml.so.565.57.01\0")
    _program(tmp_path, "rpm", 'echo "file $2 is not owned by any package"; exit 1')
    assert _owners(tmp_path) == Known((), "rpm")


@pytest.mark.parametrize(("held", "package"), [(b"\0libnvidia-ml.so.565.57.01\0", NOT_NAMED), (b"\0libz.so\0", "")])
def test_where_rpm_cannot_be_asked_its_database_tells_that_some_package_has_it(
    tmp_path: Path, held: bytes, package: str
) -> None:
    _put(tmp_path, "/var/lib/rpm/rpmdb.sqlite", b"SQLite format 3\0" + held)
    found = (FileOwner(NVML, package, "rpm"),) if package else ()
    assert _owners(tmp_path) == Known(found, "rpm")


@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="no rpmbuild here")
def test_a_database_that_rpm_made(tmp_path: Path) -> None:
    """The real thing: a package built, put into a new database, and its file looked for there."""
    name = NVML.rpartition("/")[2]
    spec = tmp_path / "nvml.spec"
    spec.write_text(
        "Name: nvidia-driver-NVML\nVersion: 565.57.01\nRelease: 1\nSummary: x\nLicense: x\nAutoReqProv: no\n"
        f"%description\nx\n%install\nmkdir -p %{{buildroot}}/usr/lib64; echo x > %{{buildroot}}/usr/lib64/{name}\n"
        f"%files\n/usr/lib64/{name}\n"
    )
    top, database = tmp_path / "top", tmp_path / "root" / "var" / "lib" / "rpm"
    database.mkdir(parents=True)
    plain = ("--define", f"_topdir {top}", "--define", "debug_package %{nil}", "--define", "_build_id_links none")
    subprocess.run(("rpmbuild", "--quiet", "-bb", *plain, str(spec)), check=True, capture_output=True)
    [built] = top.glob("RPMS/*/*.rpm")
    install = ("rpm", "--dbpath", str(database), "-i", "--justdb", "--nodeps", "--nosignature", str(built))
    subprocess.run(install, check=True, capture_output=True)
    assert _owners(tmp_path / "root") == Known((FileOwner(NVML, NOT_NAMED, "rpm"),), "rpm")


def test_nothing_is_read_where_the_versions_are_one(tmp_path: Path) -> None:
    _put(tmp_path, "/var/lib/dpkg/info/libnvidia-compute-565.list", f"{NVML}\n")
    found = _owners(tmp_path, module="565.57.01")
    assert isinstance(found, Unknown)
    assert found.reason.startswith("not looked up")


def test_no_database_is_not_the_same_as_no_owner(tmp_path: Path) -> None:
    assert _owners(tmp_path) == Unknown("no package database of dpkg, rpm or pacman can be read")

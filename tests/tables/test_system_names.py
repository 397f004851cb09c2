"""The rows of system names: ranges, branches, slots, and what the archives of Debian and Ubuntu said of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from firstlight.tables import load
from firstlight.tables.row import Confidence
from firstlight.tables.system_rows import Family, Role, RowKind, SystemName
from firstlight.ways.platform import Manager, Platform, platform_of
from firstlight.ways.system_names import kernel_kind, names_for, renamed_libraries, roles_of
from tests.diagnosis.rule_case import facts_of
from tools.check_system_names import ARCHIVES, RESULTS, is_for, label, lacking

TABLES = load()
ROWS = TABLES.system_name_rows
SLOTS = {
    "branch", "number", "major", "minor", "kernel", "kernel_plain", "kernel_version", "kernel_flavour",
    "kernel_variant", "arch", "nvidia_arch", "release", "major_release", "source",
}  # fmt: skip


def on(family: Family, release: str, *, kernel: str = "6.8.0-60-generic", arch: str = "x86_64") -> Platform:
    base = platform_of(facts_of("h100-driver-570"))
    return replace(base, family=family, release=release, kernel=kernel, arch=arch, manager=Manager.NONE)


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_a_row_has_only_slots_that_are_filled(row: SystemName) -> None:
    for text in (*row.names, row.version):
        assert set(re.findall(r"\{(\w+)\}", text)) <= SLOTS, row
    if any("{branch}" in name or "{number}" in name for name in row.names) and row.confidence is Confidence.MEASURED:
        covered = (
            Role.DRIVER_LIBRARIES,
            Role.SIGNED_MODULES,
            Role.PERSISTENCE,
            Role.FABRIC_MANAGER,
            Role.MODULE_FOLDER,
        )
        assert row.numbers or row.role in covered, f"it says which branches there are: {row}"
    if row.kind is RowKind.COMMAND:
        assert not row.names[0].startswith("sudo")


def test_a_release_lies_in_its_range_by_as_many_numbers_as_the_end_has() -> None:
    assert names_for(Role.REPOSITORY, on(Family.RHEL, "9.7"), TABLES, of="nvidia")[0].endswith("/rhel9/x86_64")
    assert names_for(Role.REPOSITORY, on(Family.UBUNTU, "24.04", arch="aarch64"), TABLES, of="nvidia")[0].endswith(
        "/sbsa"
    )
    assert names_for(Role.REPOSITORY, on(Family.UBUNTU, "25.10"), TABLES, of="nvidia") == ()
    assert names_for(Role.REPOSITORY, on(Family.FEDORA, "40"), TABLES, of="nvidia") == ()
    assert names_for(Role.REPOSITORY, on(Family.UBUNTU, ""), TABLES, of="nvidia") == ()
    assert names_for(Role.REPOSITORY, on(Family.SUSE, "20261110"), TABLES, of="nvidia")[0].endswith("/suse16/x86_64")


def test_a_thing_that_is_asked_for_by_name_is_not_another() -> None:
    assert names_for(Role.REPOSITORY, on(Family.RHEL, "9.7"), TABLES, of="rpmfusion") == ()
    assert names_for(Role.SERVICE, on(Family.RHEL, "9.7"), TABLES, of="fabric-manager") == ("nvidia-fabricmanager",)
    assert names_for(Role.SERVICE, on(Family.ALPINE, "3.22"), TABLES, of="fabric-manager") == ()


@pytest.mark.parametrize(
    ("family", "kernel", "name"),
    [
        (Family.ARCH, "6.12.1-arch1-1", "linux-headers"),
        (Family.ARCH, "6.6.63-1-lts", "linux-lts-headers"),
        (Family.ARCH, "6.16.8-zen3-1-zen", "linux-zen-headers"),
        (Family.RHEL, "5.15.0-302.el9uek.x86_64", "kernel-uek-devel-5.15.0-302.el9uek.x86_64"),
        (Family.RHEL, "5.14.0-427.el9.x86_64", "kernel-devel-5.14.0-427.el9.x86_64"),
        (Family.AMAZON, "6.1.119-129.amzn2023.x86_64", "kernel-devel-6.1.119-129.amzn2023.x86_64"),
        (Family.DEBIAN, "6.1.0-41-cloud-amd64", "linux-headers-6.1.0-41-cloud-amd64"),
        (Family.SUSE, "6.4.0-150600.23-default", "kernel-default-devel"),
    ],
)
def test_the_headers_are_those_of_the_kernel_that_runs(family: Family, kernel: str, name: str) -> None:
    platform = on(family, "9", kernel=kernel)
    assert names_for(Role.KERNEL_HEADERS, platform, TABLES, of=kernel_kind(platform)) == (name,)


def test_a_name_is_recognised_on_its_own_family_alone() -> None:
    def roles(name: str, family: Family) -> set[Role]:
        return {row.role for row in roles_of(name, on(family, "24.04"), TABLES)}

    assert roles("nvidia-driver-580-server-open", Family.UBUNTU) == {Role.DRIVER}
    assert roles("nvidia-driver-580-server-open", Family.DEBIAN) == set()
    assert roles("akmod-nvidia", Family.FEDORA) == {Role.DRIVER}
    assert roles("linux-headers-6.8.0-60-generic", Family.FEDORA) == set()
    assert roles("libcudnn9-*", Family.RHEL) == {Role.CUDNN}


@pytest.mark.parametrize(
    ("family", "release", "names"),
    [
        (Family.UBUNTU, "24.04", ("librdmacm1t64", "libnuma1")),
        (Family.UBUNTU, "22.04", ("librdmacm1", "libnuma1")),
        (Family.DEBIAN, "13", ("librdmacm1t64", "libnuma1")),
        (Family.DEBIAN, "12", ("librdmacm1", "libnuma1")),
        (Family.FEDORA, "44", ()),
    ],
)
def test_a_library_has_the_name_of_its_release(family: Family, release: str, names: tuple[str, ...]) -> None:
    assert renamed_libraries(("librdmacm1", "libnuma1"), family, release, TABLES) == names


def test_a_package_that_a_release_does_not_have_is_not_named() -> None:
    assert renamed_libraries(("libopenmpi3",), Family.UBUNTU, "26.04", TABLES) == ()


def test_the_archives_were_asked_for_every_row_that_they_can_have() -> None:
    written = json.loads(RESULTS.read_text())
    verdicts = {(each["row"], each["archive"]): each["verdict"] for each in written["checked"]}
    for archive in ARCHIVES:
        for row in ROWS:
            if is_for(row, archive):
                found = verdicts.get((label(row), f"{archive.family.value} {archive.release}"))
                assert found == "found", f"run: python -m tools.check_system_names --write ({label(row)})"


def test_a_measured_row_of_packages_was_found_in_an_archive() -> None:
    found = {each["row"] for each in json.loads(RESULTS.read_text())["checked"] if each["verdict"] == "found"}
    measured = [row for row in ROWS if row.confidence is Confidence.MEASURED and row.kind is RowKind.PACKAGES]
    # Of Ubuntu's fabric manager the table names NVIDIA's repository, which keeps the older versions.
    assert {label(row) for row in measured if row.role is not Role.FABRIC_MANAGER} <= found


def test_the_check_sees_a_branch_that_an_archive_lacks() -> None:
    row = next(row for row in ROWS if row.role is Role.DRIVER and row.numbers == (580, 595, 615) and not row.of)
    names = frozenset({"nvidia-driver-580-server-open", "nvidia-driver-595-server-open"})
    assert lacking(row, names) == ("nvidia-driver-615-server-open",)
    assert lacking(row, names | {"nvidia-driver-615-server-open"}) == ()
    gone = next(row for row in ROWS if row.role is Role.LIBRARY and not row.names)
    assert lacking(gone, frozenset({gone.of})) == (gone.of,)

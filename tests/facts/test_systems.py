"""What a system is made of: its names, whether it comes as an image, its early image, its C library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.boot_system import EarlyImage, ModuleBuilder, probe_boot_system
from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import PlaceFacts, probe_place
from firstlight.facts.runtime_libraries import Libc, probe_runtime_libraries
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from tools.machines.elf_writer import ElfSpec, make_elf

MINT = (
    'NAME="Linux Mint"\nVERSION="22 (Wilma)"\nID=linuxmint\nID_LIKE="ubuntu debian"\nPRETTY_NAME="Linux Mint 22"\n'
    'VERSION_ID="22"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n'
)
SILVERBLUE = 'NAME="Fedora Linux"\nID=fedora\nVERSION_ID=42\nPLATFORM_ID="platform:f42"\nVARIANT_ID=silverblue\n'


def put(root: Path, path: str, text: str | bytes = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def machine_of(root: Path) -> LiveMachine:
    return LiveMachine(root=str(root), environ={}, host=replace(LiveMachine().host, arch="x86_64"))


def place_of(root: Path, os_release: str) -> PlaceFacts:
    put(root, "/etc/os-release", os_release)
    return probe_place(machine_of(root))


def test_a_derivative_names_what_it_is_made_from(tmp_path: Path) -> None:
    place = place_of(tmp_path, MINT)
    assert place.os_like == Known(("ubuntu", "debian"), seen_in="/etc/os-release")
    assert place.os_base == Known("noble", seen_in="UBUNTU_CODENAME in /etc/os-release")
    assert place.os_codename == Known("wilma", seen_in="/etc/os-release")
    assert place.image_based == Known(ImageSystem.NONE, seen_in="/etc/os-release")


def test_a_missing_release_file_leaves_every_name_unknown(tmp_path: Path) -> None:
    place = probe_place(machine_of(tmp_path))
    why = Unknown("/etc/os-release: no such file")
    assert (place.os_like, place.os_variant, place.os_base, place.image_based) == (why, why, why, why)


@pytest.mark.parametrize(
    ("os_release", "marker", "system"),
    [
        (SILVERBLUE, "", ImageSystem.OSTREE),
        ("ID=fedora\nVERSION_ID=42\n", "/run/ostree-booted", ImageSystem.OSTREE),
        ("ID=nixos\nVERSION_ID=24.11\n", "", ImageSystem.NIXOS),
        ("ID=talos\nVERSION_ID=v1.9.1\n", "", ImageSystem.TALOS),
        ("ID=flatcar\nID_LIKE=coreos\n", "", ImageSystem.FLATCAR),
        ('ID="opensuse-microos"\nID_LIKE="suse opensuse"\n', "", ImageSystem.TRANSACTIONAL),
        ("ID=fedora\nVARIANT_ID=workstation\n", "", ImageSystem.NONE),
    ],
)
def test_a_system_that_comes_as_an_image_is_named(
    tmp_path: Path, os_release: str, marker: str, system: ImageSystem
) -> None:
    if marker:
        put(tmp_path, marker)
    found = place_of(tmp_path, os_release).image_based
    assert isinstance(found, Known)
    assert found.value is system


@pytest.mark.parametrize(
    ("paths", "tool"),
    [
        (("/usr/sbin/update-initramfs", "/etc/initramfs-tools/initramfs.conf"), EarlyImage.INITRAMFS_TOOLS),
        (("/usr/bin/dracut",), EarlyImage.DRACUT),
        (("/usr/sbin/update-initramfs", "/usr/bin/dracut"), EarlyImage.DRACUT),
        (("/etc/initramfs-tools/initramfs.conf", "/usr/bin/dracut"), EarlyImage.INITRAMFS_TOOLS),
        (("/usr/bin/mkinitcpio",), EarlyImage.MKINITCPIO),
    ],
)
def test_the_tool_of_the_early_image_is_known_by_its_files(
    tmp_path: Path, paths: tuple[str, ...], tool: EarlyImage
) -> None:
    for path in paths:
        put(tmp_path, path)
    found = probe_boot_system(machine_of(tmp_path)).early_image
    assert isinstance(found, Known)
    assert found.value is tool


def test_builders_of_modules_are_those_that_are_installed(tmp_path: Path) -> None:
    assert probe_boot_system(machine_of(tmp_path)).module_builders == Known((), "no dkms, akmods or weak-modules")
    put(tmp_path, "/usr/sbin/akmods")
    put(tmp_path, "/usr/sbin/dkms")
    found = probe_boot_system(machine_of(tmp_path)).module_builders
    assert isinstance(found, Known)
    assert found.value == (ModuleBuilder.DKMS, ModuleBuilder.AKMODS)


def test_a_recording_that_was_never_asked_does_not_know(tmp_path: Path) -> None:
    recording = RecordingMachine(machine_of(tmp_path))
    recording.read("/etc/os-release")
    old = probe_boot_system(RecordedMachine(recording.evidence))
    assert isinstance(old.module_builders, Unknown)
    assert old.early_image == Unknown("/etc/initramfs-tools/initramfs.conf: not in this recording")
    probe_boot_system(recording)
    assert probe_boot_system(RecordedMachine(recording.evidence)) == probe_boot_system(machine_of(tmp_path))


def libc_of(root: Path) -> Libc:
    found = probe_runtime_libraries(machine_of(root)).libc
    assert isinstance(found, Known)
    return found.value


def test_alpine_is_musl_also_with_a_libc_so_6_of_gcompat(tmp_path: Path) -> None:
    put(tmp_path, "/lib/ld-musl-x86_64.so.1", make_elf(ElfSpec(soname="libc.musl-x86_64.so.1")))
    assert libc_of(tmp_path) is Libc.MUSL
    put(tmp_path, "/lib/libc.so.6", make_elf(ElfSpec(soname="libc.musl-x86_64.so.1")))
    assert libc_of(tmp_path) is Libc.MUSL


def test_debian_with_the_package_musl_is_glibc(tmp_path: Path) -> None:
    put(tmp_path, "/lib/x86_64-linux-gnu/libc.so.6", make_elf(ElfSpec(soname="libc.so.6", defines=("GLIBC_2.36",))))
    assert libc_of(tmp_path) is Libc.GLIBC
    put(tmp_path, "/lib/ld-musl-x86_64.so.1", make_elf(ElfSpec(soname="libc.musl-x86_64.so.1")))
    assert libc_of(tmp_path) is Libc.GLIBC


def test_neither_library_is_not_known(tmp_path: Path) -> None:
    assert isinstance(probe_runtime_libraries(machine_of(tmp_path)).libc, Unknown)

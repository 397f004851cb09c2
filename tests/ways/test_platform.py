"""A platform from facts: families of unknown derivatives, releases of what they are made from, kinds of guests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.boot_system import EarlyImage
from firstlight.facts.collect import Facts
from firstlight.facts.gpus import Virtualization
from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import probe_place
from firstlight.facts.runtime_libraries import Libc
from firstlight.machine.live import LiveMachine
from firstlight.tables.system_rows import Family
from firstlight.ways.guests import GuestKind
from firstlight.ways.platform import Manager, Platform, platform_of
from tests.diagnosis.rule_case import facts_of

# ID, ID_LIKE, VERSION_ID and what names the base, as each system's own os-release has them.
SYSTEMS = (
    ('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"\nUBUNTU_CODENAME=noble', Family.UBUNTU, "24.04"),
    ('ID=linuxmint\nID_LIKE=debian\nVERSION_ID="6"\nDEBIAN_CODENAME=bookworm', Family.DEBIAN, "12"),
    ('ID=pop\nID_LIKE="ubuntu debian"\nVERSION_ID="22.04"\nUBUNTU_CODENAME=jammy', Family.UBUNTU, "22.04"),
    ('ID=zorin\nID_LIKE="ubuntu debian"\nVERSION_ID="17"\nUBUNTU_CODENAME=jammy', Family.UBUNTU, "22.04"),
    ("ID=kali\nID_LIKE=debian\nVERSION_ID=2025.1\nVERSION_CODENAME=kali-rolling", Family.DEBIAN, ""),
    ("ID=debian\nVERSION_CODENAME=trixie", Family.DEBIAN, "13"),
    ('ID=nobara\nID_LIKE="fedora"\nVERSION_ID=42\nPLATFORM_ID="platform:f42"', Family.FEDORA, "42"),
    ('ID=rocky\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nPLATFORM_ID="platform:el9"', Family.RHEL, "9.4"),
    ('ID=eurolinux\nID_LIKE="rhel fedora centos"\nVERSION_ID="9.2"\nPLATFORM_ID="platform:el9"', Family.RHEL, "9.2"),
    ('ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"\nPLATFORM_ID="platform:al2023"', Family.AMAZON, "2023"),
    ('ID=azurelinux\nVERSION_ID="3.0"', Family.AZURE, "3.0"),
    ('ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"', Family.SUSE, "15.6"),
    ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\nVERSION_ID="15.6"', Family.SUSE, "15.6"),
    ("ID=manjaro\nID_LIKE=arch", Family.ARCH, ""),
    ("ID=endeavouros\nID_LIKE=arch", Family.ARCH, ""),
    ('ID=cachyos\nID_LIKE="arch"', Family.ARCH, ""),
    ("ID=nixos\nVERSION_ID=24.11", Family.NIXOS, "24.11"),
    ("ID=fedora\nVERSION_ID=42\nVARIANT_ID=silverblue", Family.OSTREE, "42"),
    ("ID=bottlerocket\nVERSION_ID=1.30.0", Family.IMAGE, "1.30.0"),
    ("ID=alpine\nVERSION_ID=3.20.3", Family.ALPINE, "3.20.3"),
    ("ID=postmarketos\nID_LIKE=alpine\nVERSION_ID=v24.06", Family.ALPINE, "v24.06"),
    ("ID=gentoo", Family.OTHER, ""),
)  # fmt: skip


def on_system(root: Path, os_release: str, facts: Facts | None = None) -> Platform:
    """A healthy machine's facts with the place of another system."""
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text(f"{os_release}\n")
    facts = facts or facts_of("devices-masked")
    place = probe_place(LiveMachine(root=str(root), environ={}, host=replace(LiveMachine().host, arch="x86_64")))
    runtime = replace(facts.runtime, libc=Unknown("not looked at"))
    ability = replace(facts.ability, package_managers=())
    return platform_of(replace(facts, place=place, runtime=runtime, ability=ability))


@pytest.mark.parametrize(("os_release", "family", "release"), SYSTEMS, ids=[each[0][:24] for each in SYSTEMS])
def test_a_system_belongs_to_the_family_it_is_made_from(
    tmp_path: Path, os_release: str, family: Family, release: str
) -> None:
    platform = on_system(tmp_path, os_release)
    assert (platform.family, platform.release) == (family, release)


def test_no_package_manager_is_used_where_the_system_is_an_image(tmp_path: Path) -> None:
    platform = on_system(tmp_path, "ID=fedora\nVERSION_ID=42\nVARIANT_ID=silverblue")
    assert (platform.image_based, platform.manager) == (ImageSystem.OSTREE, Manager.NONE)
    assert platform.is_image_based


def test_the_early_image_is_that_of_the_family_where_nobody_looked(tmp_path: Path) -> None:
    assert on_system(tmp_path, "ID=manjaro\nID_LIKE=arch").early_image is EarlyImage.MKINITCPIO


def test_alpine_is_musl_where_nobody_looked(tmp_path: Path) -> None:
    assert on_system(tmp_path, "ID=alpine\nVERSION_ID=3.20.3").libc is Libc.MUSL


def guest(facts: Facts, **changed: object) -> GuestKind:
    first = replace(facts.gpus.devices[0], **changed)  # type: ignore[arg-type]
    return platform_of(replace(facts, gpus=replace(facts.gpus, devices=(first, *facts.gpus.devices[1:])))).guest


def test_the_guest_is_what_nvml_and_the_name_of_the_gpu_say() -> None:
    facts = facts_of("devices-masked")
    bare = replace(facts, place=replace(facts.place, hypervisor=Known("none", "/proc/cpuinfo")))
    assert guest(bare) is GuestKind.BARE
    assert guest(bare, virtualization=Known(Virtualization.PASSTHROUGH, "NVML")) is GuestKind.PASSTHROUGH
    assert guest(bare, virtualization=Known(Virtualization.VGPU, "NVML")) is GuestKind.VGPU
    for name in ("NVIDIA L4-12Q", "GRID T4-16Q", "NVIDIA A100-1-5C", "NVIDIA RTX6000-Ada-48Q", "NVIDIA H100L-94C"):
        assert guest(bare, name=Known(name, "NVML")) is GuestKind.VGPU, name
    for name in ("NVIDIA A100-SXM4-40GB", "NVIDIA A10G", "GRID K520", "NVIDIA T1000", "NVIDIA GeForce RTX 4090"):
        assert guest(bare, name=Known(name, "NVML")) is GuestKind.BARE, name


def test_a_virtual_machine_of_a_cloud_is_told_from_one_of_ones_own() -> None:
    facts = facts_of("devices-masked")
    virtual = replace(facts.place, hypervisor=Known("present", "/proc/cpuinfo"))
    assert platform_of(replace(facts, place=virtual)).guest is GuestKind.PASSTHROUGH
    rented = replace(virtual, system_vendor=Known("OpenStack Foundation", "/sys/class/dmi/id/sys_vendor"))
    assert platform_of(replace(facts, place=rented)).guest is GuestKind.CLOUD


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("5.15.0-1057-aws", GuestKind.CLOUD),
        ("6.8.0-1019-oracle", GuestKind.CLOUD),
        ("6.1.119-129.201.amzn2023.x86_64", GuestKind.CLOUD),
        ("6.8.0-60-generic", GuestKind.BARE),
        ("6.14.6-300.fc42.x86_64", GuestKind.BARE),
    ],
)
def test_in_a_container_a_cloud_is_known_by_its_kernel(kernel: str, kind: GuestKind) -> None:
    facts = facts_of("docker-no-gpus")
    place = replace(facts.place, kernel_release=kernel, hypervisor=Unknown("not told"))
    assert platform_of(replace(facts, place=place)).guest is kind


@pytest.mark.parametrize(
    ("machine", "kind"), [("wsl2-linux-libcuda", GuestKind.WSL2), ("h100-mig-slice", GuestKind.MIG)]
)
def test_recorded_machines_keep_their_kind(machine: str, kind: GuestKind) -> None:
    assert platform_of(facts_of(machine)).guest is kind

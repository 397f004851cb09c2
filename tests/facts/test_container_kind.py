"""Kinds of containers, each by the marks that its own engine leaves in a folder tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.containers import ContainerFacts, ContainerKind, probe_containers
from firstlight.facts.device_numbers import DeviceNumber
from firstlight.facts.known import Known, Unknown
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordingMachine

HOST_ROOT = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
PROC = "30 22 0:5 / /proc rw - proc proc rw\n"


def put(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def look(root: Path, *, kernel: str = "6.8.0-60-generic", **environ: str) -> ContainerFacts:
    host = replace(LiveMachine().host, arch="x86_64", kernel_release=kernel)
    return probe_containers(LiveMachine(root=str(root), environ=environ, host=host))


def kind_of(root: Path, **given: str) -> ContainerKind:
    kind = look(root, **given).kind
    assert isinstance(kind, Known)
    return kind.value


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("lxc", ContainerKind.LXC),
        ("systemd-nspawn", ContainerKind.NSPAWN),
        ("podman", ContainerKind.PODMAN),
        ("wsl-toolbox", ContainerKind.OTHER),
    ],
)
def test_a_user_without_root_learns_the_kind_from_the_note_of_systemd(
    tmp_path: Path, word: str, kind: ContainerKind
) -> None:
    put(tmp_path, "/run/systemd/container", f"{word}\n")
    assert kind_of(tmp_path) is kind


def test_nspawn_without_a_booted_system_is_known_by_its_manager_file(tmp_path: Path) -> None:
    put(tmp_path, "/run/host/container-manager", "systemd-nspawn\n")
    assert kind_of(tmp_path) is ContainerKind.NSPAWN


def test_lxc_of_proxmox_is_known_by_its_kernel_or_by_the_files_it_writes(tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/environ", "container=lxc\0TERM=linux\0")
    assert kind_of(tmp_path) is ContainerKind.LXC
    assert kind_of(tmp_path, kernel="6.8.12-4-pve") is ContainerKind.PROXMOX
    put(tmp_path, "/etc/hosts", "127.0.0.1 localhost\n# --- BEGIN PVE ---\n192.0.2.7 box\n# --- END PVE ---\n")
    assert kind_of(tmp_path) is ContainerKind.PROXMOX


def test_a_docker_container_on_a_proxmox_kernel_is_a_docker_container(tmp_path: Path) -> None:
    put(tmp_path, "/.dockerenv")
    assert kind_of(tmp_path, kernel="6.8.12-4-pve") is ContainerKind.DOCKER


def test_the_proxmox_host_itself_is_no_container(tmp_path: Path) -> None:
    assert kind_of(tmp_path, kernel="6.8.12-4-pve") is ContainerKind.NONE


def test_incus_comes_before_the_lxc_that_it_uses(tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/environ", "container=lxc\0")
    put(tmp_path, "/dev/incus/sock")
    assert kind_of(tmp_path) is ContainerKind.INCUS


def test_a_chroot_is_known_by_no_mount_at_its_root(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/mountinfo", PROC)
    put(tmp_path, "/proc/1/mountinfo", HOST_ROOT + PROC)
    assert look(tmp_path).kind == Known(ContainerKind.CHROOT, seen_in="no mount is at / in /proc/self/mountinfo")


def test_a_chroot_into_a_volume_is_known_by_the_other_root_of_pid_1(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/mountinfo", "41 22 8:17 / / rw - ext4 /dev/sdb1 rw\n" + PROC)
    put(tmp_path, "/proc/1/mountinfo", HOST_ROOT)
    assert kind_of(tmp_path) is ContainerKind.CHROOT


def test_a_mount_namespace_of_its_own_is_no_chroot(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/mountinfo", HOST_ROOT.replace("22 1", "512 490") + PROC)
    put(tmp_path, "/proc/1/mountinfo", HOST_ROOT + PROC)
    assert kind_of(tmp_path) is ContainerKind.NONE


def test_an_overlay_at_the_root_of_ostree_or_of_live_media_is_no_container(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/mounts", "composefs / overlay ro,relatime 0 0\n/dev/sda3 /sysroot btrfs ro 0 0\n")
    assert kind_of(tmp_path) is ContainerKind.NONE
    put(tmp_path, "/proc/self/mounts", "/cow / overlay rw,relatime 0 0\n")
    assert kind_of(tmp_path) is ContainerKind.NONE
    put(tmp_path, "/proc/self/mounts", "overlay / overlay rw,relatime 0 0\n")
    assert kind_of(tmp_path) is ContainerKind.OTHER


def test_no_mount_but_that_of_the_root_is_kept_in_a_recording(tmp_path: Path) -> None:
    shares = "44 22 0:51 / /home/jane/work rw - nfs4 files.corp.example:/jane rw\n"
    put(tmp_path, "/proc/self/mountinfo", HOST_ROOT + shares)
    put(tmp_path, "/proc/1/mountinfo", HOST_ROOT + shares)
    recording = RecordingMachine(LiveMachine(root=str(tmp_path), environ={}))
    probe_containers(recording)
    assert "corp.example" not in repr(recording.evidence)
    assert "jane" not in repr(recording.evidence)


def test_the_numbers_of_devices_are_the_kernels(tmp_path: Path) -> None:
    put(
        tmp_path,
        "/proc/devices",
        "Character devices:\n  1 mem\n195 nvidia\n508 nvidia-uvm\n\nBlock devices:\n259 blkext\n",
    )
    assert look(tmp_path).device_numbers == (DeviceNumber("nvidia", 195), DeviceNumber("nvidia-uvm", 508))


def test_podmans_own_word_on_root_comes_before_the_map_of_users(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/uid_map", "         0       1000          1\n         1     100000      65536\n")
    put(tmp_path, "/run/.containerenv", "")
    assert look(tmp_path).rootless == Known(value=True, seen_in="/proc/self/uid_map")
    put(tmp_path, "/run/.containerenv", 'engine="podman-4.3.1"\nrootless=0\n')
    assert look(tmp_path).rootless == Known(value=False, seen_in="/run/.containerenv")


def test_a_label_is_kept_by_its_type_alone(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/attr/current", "system_u:system_r:container_t:s0:c12,c400\0")
    put(tmp_path, "/sys/fs/selinux/enforce", "1")
    facts = look(tmp_path)
    assert facts.label == Known("container_t", seen_in="/proc/self/attr/current")
    assert facts.label_enforced == Known(value=True, seen_in="/sys/fs/selinux/enforce")
    put(tmp_path, "/proc/self/attr/current", "docker-default (enforce)\n")
    assert look(tmp_path).label == Unknown("/proc/self/attr/current holds no SELinux label")

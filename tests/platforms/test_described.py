"""Machines described by people who had seen neither rules nor tests, with the answers put aside with them.

Of the sixteen that are DESCRIBED twelve were right at first, none was wrong; of four the cause was, and the way out or
its words were not.
"""

from __future__ import annotations

import pytest

from tests.platforms.cases import Make, judged
from tests.platforms.test_platforms import _first_option, _screen
from tools.machines import described_machines, examined_machines

MACHINES = (*described_machines.MACHINES, *examined_machines.MACHINES)
APT, DNF = ("apt-get", "apt "), ("dnf ", "yum ")
Told = tuple[str, tuple[str, ...], tuple[str, ...]]
# name -> (the primary finding, "" for none; words of the first option; what must not be said on the screen)
DESCRIBED: dict[str, Told] = {
    "rtx5090-closed-module": (
        "blackwell-needs-open-module", ("nvidia-driver-570-server-open",), ("too old", "pip install", "no nvidia gpu"),
    ),
    "debian13-dkms-key-not-enrolled": (
        "module-key-not-enrolled", ("mokutil --import /var/lib/dkms/mok.pub",),
        ("shim-signed", "update-secureboot-policy", "/etc/pki", "linux-modules-nvidia", "nouveau", "too old"),
    ),
    "rocky9-l40s-seven-of-eight": (
        "gpu-left-out", ("power the machine off",), ("healthy", "nouveau", "pip install", "xid 79", "answers now"),
    ),
    "fedora42-podman-denied": (
        "label-refuses-gpu", ("podman run --device nvidia.com/gpu=all --security-opt label=disable",),
        ("--gpus", "dnf ", "apt-get", "--privileged", "group video", "setenforce", "version mismatch"),
    ),
    "leap156-kmp-missing": (
        "nouveau-loaded", ("nvidia-open-driver-g06-signed-cuda-kmp-default", "nvidia-compute-utils-g06"),
        ("akmod", "kmod-nvidia-open-dkms", "update-initramfs", "mokutil --import", "version mismatch"),
    ),
    "al2023-flash-attn-of-other-torch": (
        "extension-for-other-torch", ("flash-attn==2.8.3",), ("healthy", "dnf ", "warning[xf", "cudnn", "torch==2.7"),
    ),
    "aks-pod-without-gpu": (
        "no-gpu-in-container", ("nvidia.com/gpu",), ("--gpus", "podman", "tdnf", "apt-get", "too old", "no nvidia gpu"),
    ),
    "arch-pascal-beside-ada": (
        "gpu-left-out", ("nvidia-580xx-dkms", "nvidia-580xx-utils"), ("healthy", "off the bus", "apt-get", "dnf "),
    ),
    "nixos-libcuda-out-of-reach": (
        "libcuda-missing", ("ld_library_path=/run/opengl-driver/lib",),
        ("apt-get", "pacman", "ldconfig", "nix-env", "cuda-compat", "reboot", "pip install"),
    ),
    "wsl2-noisy-log": ("", (), ("modprobe", "nouveau", "/dev/nvidia", "not loaded", "dxg", "mismatch")),
    "proxmox-libraries-went-ahead": (
        "image-brings-driver-libraries", ("libcuda1=580.95.05", "libnvidia-ml1=580.95.05"),
        ("--gpus", "nvidia-ctk", "cgroup2", "reboot", "modprobe", "pip install"),
    ),
    "slurm-apptainer-one-slice": ("", (), ("missing", "does not exist", "--gpus", "persistenced", "hides")),
    "vgpu-without-licence": (
        "vgpu-unlicensed", ("clientconfigtoken", "nvidia-gridd"), ("healthy", "nvidia-driver-", "too old", "throttl"),
    ),
    "thor-server-wheel": (
        "arch-not-in-wheel", ("torch==2.14.1+cu130",), ("healthy", "too old", "cuda-compat", "memory", "apt-get"),
    ),
    "gh200-cpu-torch-hides-good-one": (
        "torch-shadowed", ("uninstall --yes torch", "pythonuserbase"), ("install a driver", "64k", "jetson"),
    ),
    "docker-alpine-image": (
        "musl-has-no-cuda", ("python:3.12-slim",), ("apk add", "gcompat", "ldconfig", "nvidia-utils", "nvidia-ctk"),
    ),
}  # fmt: skip
EXAMINED: dict[str, Told] = {
    "hgx-h100-fabricmanager-older": (
        "fabric-manager-differs", ("nvidia-fabricmanager-580", "580.126.20"), ("pip install", "datacenter-gpu-manager"),
    ),
    "hgx-a100-one-off-the-bus": ("gpu-left-out", ("power the machine off",), ("gpu-reset", "pip install", "healthy")),
    "rhel10-h200-secure-boot-dkms": (
        "module-key-not-enrolled", ("mokutil --import /var/lib/dkms/mok.pub",), ("shim-signed", "pip install"),
    ),
    "rocky9-a100-kernel-without-headers": (
        "driver-not-loaded", ("kernel-devel-5.14.0-611.9.1.el9_7.x86_64", "dkms autoinstall"), ("mokutil", *APT),
    ),
    "amazonlinux2023-kernel612-devel": (
        "driver-not-loaded", ("kernel6.12-devel-", "dkms autoinstall"), ("linux-headers", "matched", "grid"),
    ),
    "azurelinux3-h100-no-driver": (
        "driver-not-loaded", ("azl3", "azurelinux-repos-extended", "tdnf install --assumeyes nvidia-open"),
        ("cuda-drivers", "dnf module", "grid"),
    ),
    "debian12-rtx4090-torch-cu130": (
        "driver-too-old-for-wheel", ("torch==2.14.1+cu126",), ("cuda-compat-", "-server-open", "ubuntu-drivers"),
    ),
    "debian13-v100-open-module": (
        "gpu-does-not-start", ("cu126", "nonfree", "nvidia-kernel-dkms"), (*DNF, "-server", "cuda-compat-"),
    ),
    "docker-image-ships-own-driver-libs": (
        "image-brings-driver-libraries", ("libnvidia-compute-550",), ("reboot", "container-toolkit"),
    ),
    "fedora43-akmods-key-not-enrolled": (
        "module-key-not-enrolled", ("/etc/pki/akmods/certs/public_key.der",), ("/var/lib/dkms", "shim-signed"),
    ),
    "fedora44-rtx5090-nouveau": ("nouveau-loaded", ("rpmfusion", "akmod-nvidia"), APT),
    "centos7-glibc217": ("", (), ()),
    "mig-enabled-no-instances": ("mig-without-slices", ("nvidia-smi -mig 0",), ("pip install",)),
    "mig-stale-uuid": ("mig-device-unknown", ("unset",), ("pip install", "-cgi")),
    "rtx5090-torch113-py310": ("arch-not-in-wheel", ("+cu130",), ("torch==1.13.1", "build torch 1.13", "cuda-compat-")),
    "k8s-pod-no-gpu-request": ("no-gpu-in-container", ("nvidia.com/gpu",), ("--gpus", "systemctl", "pip install")),
    "pyxis-visible-devices-void": (
        "no-gpu-in-container", ("srun --export=", "nvidia_visible_devices=all"), ("--gpus all", "--nv ", "nvidia-ctk"),
    ),
    "nspawn-no-devices": ("no-gpu-in-container", ("systemd-nspawn", "/dev/nvidia0"), ("docker ", "podman", "mknod")),
    "healthy-h200-ubuntu2404": ("", (), ("missing", "install")),
    "healthy-rocky9-l4-old-but-right": ("", (), ("kernel-devel", "dkms", "too old", "mokutil")),
    "healthy-vgpu-licensed": ("", (), ("unlicensed", "nvidia-driver-580")),
    "a100-row-remap-failed-examined": ("gpu-memory-faulty", ("replaced",), ("gpu-reset", "out of memory")),
    "h100-row-remap-pending": ("gpu-memory-faulty", ("gpu-reset",), ("replaced", "healthy")),
}  # fmt: skip


@pytest.mark.parametrize("make", MACHINES, ids=lambda make: make.__name__)
def test_the_answer_is_the_one_that_was_put_aside(make: Make) -> None:
    seen = judged(make)
    code, words, never = {**DESCRIBED, **EXAMINED}[make().name]
    screen, first = _screen(seen).lower(), _first_option(seen).lower()
    assert seen.diagnosis.primary == code, screen
    assert [word for word in words if word not in first] == [], first
    assert [word for word in never if word in screen] == [], screen


def test_every_machine_has_its_expectation() -> None:
    assert {make().name for make in MACHINES} == {*DESCRIBED, *EXAMINED}


def test_a_pod_is_told_of_the_device_plugin_too() -> None:
    make = next(each for each in MACHINES if each().name == "aks-pod-without-gpu")
    assert "device plugin" in _screen(judged(make))

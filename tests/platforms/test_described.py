"""Machines described by somebody who had seen neither rules nor tests, with the answers put aside with them.

Of the sixteen twelve were right at first, none was wrong; of four the cause was, and the way out or its words were not.
"""

from __future__ import annotations

import pytest

from tests.platforms.cases import Make, judged
from tests.platforms.test_platforms import _first_option, _screen
from tools.machines.described_machines import MACHINES

# name -> (the primary finding, "" for none; words of the first option; what must not be said on the screen)
EXPECTED: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
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


@pytest.mark.parametrize("make", MACHINES, ids=lambda make: make.__name__)
def test_the_answer_is_the_one_that_was_put_aside(make: Make) -> None:
    seen = judged(make)
    code, words, never = EXPECTED[make().name]
    screen, first = _screen(seen).lower(), _first_option(seen).lower()
    assert seen.diagnosis.primary == code, screen
    assert [word for word in words if word not in first] == [], first
    assert [word for word in never if word in screen] == [], screen


def test_every_machine_has_its_expectation() -> None:
    assert {make().name for make in MACHINES} == set(EXPECTED)


def test_a_pod_is_told_of_the_device_plugin_too() -> None:
    make = next(each for each in MACHINES if each().name == "aks-pod-without-gpu")
    assert "device plugin" in _screen(judged(make))

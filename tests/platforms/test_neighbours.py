"""Beside a fault: the rule next door stays silent, and the words are those of the machine at hand."""

from __future__ import annotations

import pytest

from tests.platforms.cases import Make, judged
from tests.platforms.test_platforms import _screen
from tools.machines.neighbour_machines import MACHINES

# name -> (blocked, codes that must not be found, words that must stand on the screen, words that must not)
EXPECTED: dict[str, tuple[bool, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "lmde-no-driver": (True, (), ("nvidia-open",), ("-server-open", "ubuntu", "dnf ")),
    "mint-no-driver": (True, (), ("nvidia-driver-", "-server"), ("dnf ", "debian12")),
    "rocky-arm-no-driver": (True, (), ("sbsa", "dnf", "kernel-64k-devel-5.14.0-570.el9.aarch64 "), ("rhel9/x86_64",)),
    "v100-beside-h100-proprietary": (False, ("gpus-need-different-modules",), (), ("nvidia-open",)),
    "one-of-eight-for-a-guest": (False, (), ("vfio-pci",), ("fallen off", "power the machine off")),
    "gpu-with-sound": (False, ("gpu-left-out", "cuda-sees-fewer-devices"), (), ("0000:19:00.1",)),
    "mask-leaves-one-out": (False, ("gpu-left-out",), (), ("fallen off", "power the machine off")),
    "container-with-seven": (False, ("gpu-lost",), (), ("fallen off", "power the machine off", "reseat")),
    "line-nobody-knows": (False, (), ("not explained", "unheard-of condition"), ()),
    "path-brings-the-good-torch": (False, ("torch-cpu-only",), ("remove the torch without cuda",), ()),
    "blackwell-under-python-38": (True, (), ("uv venv --seed --python 3.1",), ("install torch==2.4",)),
    "centos-7-without-torch": (True, (), ("torch==2.6.0+cu118",), ("torch==2.11", "torch==2.8", "torch==2.9")),
    "vgpu-before-it-is-capped": (False, (), ("full speed for now",), ("runs at 3", "3 frames")),
    "two-pcie-without-fabric": (False, ("fabric-manager-missing",), (), ("fabric manager", "fabricmanager")),
    "b200-of-one-node": (False, ("imex-missing", "imex-differs", "subnet-manager-missing"), (), ("imex",)),
    "mps-alive": (False, ("mps-left-behind",), (), ()),
    "ecc-corrected-alone": (False, ("gpu-memory-faulty", "pages-retired"), (), ("replace",)),
    "xid-13-alone": (False, ("gpu-memory-faulty", "gpu-lost"), ("13",), ("rma", "replace", "power the machine")),
    "secure-boot-all-enrolled": (False, ("module-key-not-enrolled", "secure-boot-blocks-module"), (), ("mokutil",)),
    "secure-boot-off-not-loaded": (
        True, ("module-key-not-enrolled", "secure-boot-blocks-module"), ("modprobe",), ("mokutil --import",),
    ),
    "selinux-permissive": (False, ("label-refuses-gpu",), (), ("label=disable",)),
    "acs-with-one-gpu": (False, ("gpus-behind-acs",), (), ()),
    "small-shm-with-one-gpu": (False, (), (), ()),
}  # fmt: skip


@pytest.mark.parametrize("make", MACHINES, ids=lambda make: make.__name__)
def test_the_rule_next_door_stays_silent(make: Make) -> None:
    seen = judged(make)
    name = make().name
    blocked, absent, present, silent = EXPECTED[name]
    screen = _screen(seen).lower()
    found = {each.code for each in seen.diagnosis.findings}
    assert seen.diagnosis.blocked is blocked, (sorted(found), screen)
    assert not found & set(absent)
    assert [word for word in present if word not in screen] == [], screen
    assert [word for word in silent if word in screen] == [], screen


def test_every_neighbour_has_its_expectation() -> None:
    assert {make().name for make in MACHINES} == set(EXPECTED)

"""A GPU that is not there, not to be seen, a share of one, or hidden by a slice: each is told of its machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Diagnosis, Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.document import replay
from firstlight.facts.known import Known, Unknown
from firstlight.tables import load
from firstlight.ways.argv import commands
from firstlight.ways.guests import GuestKind, guest_of, refused_shares
from firstlight.ways.kinds import AskPerson, RegisterFolder, StartContainer, Why
from firstlight.ways.platform import platform_of
from tools.machines import (
    guest_machines,
    guest_machines_closed,
    more_lxc_machines,
    slice_machines,
    slice_machines_closed,
)
from tools.machines.reconstruction import Reconstruction

TABLES = load()


def _facts(machine: Reconstruction) -> Facts:
    return replay(machine.document(), "")


def _judged(facts: Facts) -> Diagnosis:
    return judge(Question(facts, TABLES, Goal.INFER), RULES)


def test_a_virtual_machine_that_lost_its_gpu_asks_for_one_and_a_plain_machine_for_hands() -> None:
    guest = _facts(guest_machines_closed.openstack_a100_passthrough_near_miss())
    place = replace(guest.place, hypervisor=Known("none", "/proc/cpuinfo"), system_vendor=Known("Supermicro", "DMI"),
                    system_product=Known("AS -4124GO", "DMI"))  # fmt: skip
    for facts, why in ((guest, Why.HYPERVISOR), (replace(guest, place=place), Why.HARDWARE)):
        found = _judged(facts).of("no-nvidia-device")
        assert found is not None
        assert _judged(facts).primary == "no-nvidia-device"
        [asked] = found.answers[0].ways
        assert isinstance(asked, AskPerson)
        assert asked.why is why


def test_without_a_driver_nothing_says_that_a_gpu_is_meant() -> None:
    guest = _facts(guest_machines_closed.openstack_a100_passthrough_near_miss())
    driver = replace(guest.driver, packages=Unknown("not looked for"), module_file=Unknown("none"))
    assert not _judged(replace(guest, driver=driver)).blocked


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("(PCI ID: 10de:26b9) installed in this system is not supported by the NVIDIA 570.86.15 driver release.", True),
        (
            "(PCI ID: 10de:2b85) installed in this system is not supported by the NVIDIA 550.54.15 driver release.",
            False,
        ),
        (
            "(PCI ID: 10de:26b9) installed in this system is not supported by the NVIDIA 515.43.04 driver release.",
            False,
        ),
    ],
    ids=["whole GPUs of that id are driven", "newer than the driver", "driver older than the chip"],
)
def test_a_refused_device_is_a_share_where_the_driver_drives_the_whole(line: str, *, share: bool) -> None:
    facts = _facts(guest_machines_closed.openstack_l40s_public_driver())
    said = Known((f"The NVIDIA GPU 0000:05:00.0 {line}",), "dmesg")
    facts = replace(facts, health=replace(facts.health, driver_messages=said))
    assert bool(refused_shares(facts)) is share
    assert (guest_of(facts) is GuestKind.VGPU) is share
    plain = replace(facts.place, hypervisor=Known("none", "/proc/cpuinfo"), system_vendor=Known("Dell", "DMI"))
    assert refused_shares(replace(facts, place=plain)) == ()


def test_a_guest_set_up_for_shares_whose_driver_is_silent_is_a_share() -> None:
    assert guest_of(_facts(guest_machines.vgpu_guest_older_than_host())) is GuestKind.VGPU


def test_a_mask_explains_a_gpu_that_cuda_does_not_count() -> None:
    facts = _facts(slice_machines_closed.mig_left_on_one_gpu())
    masked = replace(facts, gpus=replace(facts.gpus, cuda_visible_devices=Known("1", "CUDA_VISIBLE_DEVICES")))
    assert _judged(facts).primary == "mig-without-slices"
    assert _judged(masked).of("mig-without-slices") is None


def test_libraries_are_bound_whole_into_a_container_of_lxc_too() -> None:
    platform = replace(platform_of(_facts(more_lxc_machines.nspawn_short_library())), container=ContainerKind.PROXMOX)
    way = StartContainer(("--bind-ro=/usr/lib/x86_64-linux-gnu/nvidia/current",), gives_gpus=True)
    line = commands(way, platform)[0][-1]
    folder = "/usr/lib/x86_64-linux-gnu/nvidia/current"
    assert f"lxc.mount.entry: {folder} {folder[1:]} none bind,ro,create=dir" in line


def test_a_driver_file_without_its_name_is_found_beside_the_loaders_folders() -> None:
    machine = slice_machines.xavier_no_libcuda_link()
    machine.host = replace(machine.host, kernel_release="5.15.0-generic")
    machine.without("/etc/nv_tegra_release", "/proc/device-tree")
    facts = _facts(machine)
    assert facts.libcuda.out_of_reach == ("/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1.1",)
    found = _judged(facts).of("libcuda-missing")
    assert found is not None
    assert isinstance(found.answers[0].ways[0], RegisterFolder)  # no board: nothing names that folder to ldconfig


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (guest_machines.l40_node_seven_of_eight, "gpu-left-out"),
        (guest_machines.rke2_vm_bar1_zero, "gpu-left-out"),
    ],
    ids=["fallen off the bus", "no room for its memory"],
)
def test_a_gpu_that_does_not_start_is_the_hosts_only_in_a_virtual_machine(
    make: Callable[[], Reconstruction], code: str
) -> None:
    facts = _facts(make())
    for hypervisor, vendor, outside in (("none", "Supermicro", False), ("kvm", "QEMU", True)):
        place = replace(
            facts.place, hypervisor=Known(hypervisor, "/proc/cpuinfo"), system_vendor=Known(vendor, "DMI"),
            system_product=Known("", "DMI"),
        )  # fmt: skip
        found = _judged(replace(facts, place=place)).of(code)
        assert found is not None
        asked = found.answers[0].ways[0]
        assert isinstance(asked, AskPerson)
        assert (asked.why is Why.OUTSIDE) is outside, asked

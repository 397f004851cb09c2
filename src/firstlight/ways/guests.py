"""How the machine got its GPU: its own, handed through to a virtual machine, a part of one, Windows', a board's."""

from __future__ import annotations

import enum
import re

from firstlight.facts.collect import Facts
from firstlight.facts.containers import Provider
from firstlight.facts.gpus import Virtualization
from firstlight.facts.known import Known, value_or
from firstlight.facts.place import Platform as MachineKind

# NVIDIA L4-12Q, GRID T4-16Q, NVIDIA A100-1-5C: the profile of a vGPU ends its name. A T1000 or an A10G does not.
_VGPU_NAME = r"[\w-]+-(?:\d{1,2}-)?\d{1,3}[ABCQ](?:ME\w*|GFX)?"
# What the driver says of a device that is not in its list: "(PCI ID: 10de:26b9) ... supported by the NVIDIA 570.86".
_NOT_LISTED = r"\(PCI ID: 10de:([0-9a-f]{4})\).{1,40} not supported by the NVIDIA (\d{3,4})\."
# Turing to Ada: every public driver from 525 on lists the whole GPUs of these ids, and none the shares of them.
_LISTED_IDS, _LISTED_SINCE = range(0x1E00, 0x2900), 525
# What the guest's driver says of the host; src/nvidia/src/kernel/vgpu/rpc.c of NVIDIA's open kernel modules.
_SAYS_VGPU = ("SetGuestSystemInfo", "Incompatible Guest/Host drivers", "host VGX version")
_CLOUDS = (Provider.AWS, Provider.GCP, Provider.AZURE, Provider.ORACLE)
# A kernel that a distribution builds for one cloud; it is seen in a container too, where the firmware's names are not.
_CLOUD_KERNEL = r"-(?:aws|azure|gcp|gke|oracle|ibm)(?:-|$)|\.amzn\d|\.(?:cm|azl)\d"
_VIRTUAL_VENDORS = ("QEMU", "VMware", "Xen", "innotek", "Parallels", "Red Hat", "oVirt", "Nutanix", "KubeVirt")
# DMI names of clouds beside those that have a provider of their own.
_CLOUD_VENDORS = ("OpenStack", "DigitalOcean", "Hetzner", "Alibaba Cloud", "Tencent Cloud", "OVHcloud", "Scaleway",
                  "Vultr", "Linode", "Akamai", "Nebius", "Crusoe", "Oracle Cloud", "Huawei Cloud")  # fmt: skip


class GuestKind(enum.Enum):
    """What stands between this kernel and the GPU; it decides which driver may be installed, and by whom."""

    BARE = "bare"
    PASSTHROUGH = "passthrough"  # a virtual machine that has a whole GPU
    VGPU = "vgpu"  # a share of one, by NVIDIA's vGPU software: the driver comes from the vendor's portal
    MIG = "mig"  # slices of a GPU
    WSL2 = "wsl2"
    WSL1 = "wsl1"
    JETSON = "jetson"
    CLOUD = "cloud"  # a virtual machine of a cloud, with a whole GPU


def guest_of(facts: Facts) -> GuestKind:
    """What this machine is to its GPU, e.g. VGPU for NVML's word or for the name NVIDIA L4-12Q."""
    by_kind = _BY_MACHINE.get(value_or(facts.place.platform, MachineKind.X86_64))
    if by_kind is not None:
        return by_kind
    if is_vgpu(facts):
        return GuestKind.VGPU
    if any(value_or(gpu.mig_mode, default=False) or " MIG " in value_or(gpu.name, "") for gpu in facts.gpus.devices):
        return GuestKind.MIG
    if _is_cloud(facts):
        return GuestKind.CLOUD
    given = any(value_or(gpu.virtualization, Virtualization.NONE) is Virtualization.PASSTHROUGH
                for gpu in facts.gpus.devices)  # fmt: skip
    return GuestKind.PASSTHROUGH if given or is_virtual(facts) else GuestKind.BARE


_BY_MACHINE = {MachineKind.WSL1: GuestKind.WSL1, MachineKind.WSL2: GuestKind.WSL2, MachineKind.JETSON: GuestKind.JETSON}


def is_vgpu(facts: Facts) -> bool:
    """Whether a GPU here is a share of a host's: by NVML, by the profile in its name, by how the guest is set up."""
    named = any(
        value_or(gpu.virtualization, Virtualization.NONE) is Virtualization.VGPU
        or (isinstance(gpu.name, Known) and re.fullmatch(_VGPU_NAME, gpu.name.value.split(" ")[-1]) is not None)
        for gpu in facts.gpus.devices
    )
    return named or value_or(facts.fleet.vgpu.guest, default=False) or _is_silent_share(facts)


def _is_silent_share(facts: Facts) -> bool:
    """Whether a share of a GPU does not answer, and the guest's settings or the driver's log tell that it is one."""
    if any(isinstance(gpu.virtualization, Known) for gpu in facts.gpus.devices):
        return False
    return is_set_up_for_shares(facts) or bool(said_of_shares(facts)) or bool(refused_shares(facts))


def is_set_up_for_shares(facts: Facts) -> bool:
    """Whether this is a virtual machine with the settings of a vGPU guest driver (gridd.conf)."""
    return is_virtual(facts) and value_or(facts.fleet.vgpu.software, default=False)


def said_of_shares(facts: Facts) -> tuple[str, ...]:
    """Lines of the driver that only a guest with a share of a GPU has."""
    lines = value_or(facts.health.driver_messages, ())
    return tuple(line for line in lines if any(part in line for part in _SAYS_VGPU))


def refused_shares(facts: Facts) -> tuple[str, ...]:
    """Lines by which a public driver refuses, in a virtual machine, a device whose whole GPU it does drive."""
    if not is_virtual(facts):
        return ()
    found = ((line, re.search(_NOT_LISTED, line)) for line in value_or(facts.health.driver_messages, ()))
    return tuple(
        line for line, told in found
        if told is not None and int(told[1], 16) in _LISTED_IDS and int(told[2]) >= _LISTED_SINCE
    )  # fmt: skip


def is_virtual(facts: Facts) -> bool:
    """Whether this is a virtual machine; a processor that tells of no hypervisor is known too, as "none"."""
    virtual = value_or(facts.place.hypervisor, "none") != "none"
    return virtual or value_or(facts.place.system_vendor, "").startswith(_VIRTUAL_VENDORS)


def _is_cloud(facts: Facts) -> bool:
    if any(seen.provider in _CLOUDS for seen in facts.container.providers):
        return True
    if re.search(_CLOUD_KERNEL, facts.place.kernel_release):
        return True
    words = f"{value_or(facts.place.system_vendor, '')} {value_or(facts.place.system_product, '')}"
    # Hyper-V hands whole GPUs out too; where it does, the machine is nearly always one of Azure's.
    return words == "Microsoft Corporation Virtual Machine" or any(
        name.lower() in words.lower() for name in _CLOUD_VENDORS
    )

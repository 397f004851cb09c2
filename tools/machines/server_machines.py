"""Machines of fleets: virtual GPUs, slices, fabrics and boot keys that are not as they should be."""

from __future__ import annotations

from typing import Any

from tools.machines import parts
from tools.machines.driver_parts import (
    A100_PCIE,
    B200,
    TORCH_28_CU128,
    TORCH_211_CU130,
    fails,
    init_fails,
    log,
    nvml_fails,
    pci,
    reading,
    torch_of,
    user,
    works,
)
from tools.machines.elf_writer import ElfSpec, make_elf
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.signing import certificate, efi_list, signed

L4_12Q = GpuSpec("NVIDIA L4-12Q", "8.9", 10, 12.0, "0x27b8")
A100_40 = GpuSpec("NVIDIA A100-SXM4-40GB", "8.0", 14, 39.4, "0x20b0")
EFI = "/sys/firmware/efi/efivars"
SHIM, FIRMWARE = "605dab50-e046-4300-abb6-3dd810dd8b23", "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
OWN_KEY = "ubuntu Secure Boot Module Signature key"
OLD_SLICE = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


def unit(machine: Reconstruction, name: str, active: str, *lines: str, source: str = SUPPOSED) -> Reconstruction:
    """A service as systemctl and journalctl show it."""
    machine.sources[name] = source
    sub, result = ("running", "success") if active == "active" else ("dead", "success")
    text = f"ActiveState={active}\nSubState={sub}\nResult={result}\nExecMainStatus=0\n"
    machine.command(f"systemctl show {name} --property=ActiveState,SubState,Result,ExecMainStatus", text)
    said = "".join(f"{line}\n" for line in lines) or "-- No entries --\n"
    return machine.command(f"journalctl --unit={name} --lines=40 --no-pager --output=cat", said)


def slices(machine: Reconstruction, index: int, profile: str, *, gib: float, count: int) -> Reconstruction:
    """A GPU of the machine cut into slices of a profile."""
    name = machine.children["nvml"].answer["devices"][index]["name"]  # type: ignore[index]
    made = [
        {
            "name": f"{name} MIG {profile}",
            "uuid": f"MIG-00000000-0000-0000-0000-{index:04d}{number:08d}",
            "memory_bytes": int(gib * 2**30),
        }
        for number in range(count)
    ]
    return reading(machine, index, mig_mode=1, mig_pending=1, mig_devices=made)


def vgpu_unlicensed() -> Reconstruction:
    """A guest whose licence server is named nowhere."""
    machine = Reconstruction("vgpu-unlicensed", "KVM guest with the virtual GPU L4-12Q and no licence: slowed down")
    source = "docs.nvidia.com/vgpu, client licensing user guide (states of a licence); the machine is supposed"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    licence = {"product": "NVIDIA RTX Virtual Workstation", "state": 3, "enabled": 0, "expires": ""}
    works(machine, "570.172.08", L4_12Q, source=source, virtualization=2, ecc_mode=0, licences=[licence])
    machine.file("/etc/nvidia/gridd.conf", "FeatureType=0\n", source=source)
    machine.file("/usr/bin/nvidia-gridd", "", source=source)
    said = "Failed to acquire license from server: no client configuration token"
    unit(machine, "nvidia-gridd", "active", said, source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def vgpu_old_host() -> Reconstruction:
    """The guest's driver went ahead of the host's manager, and says so."""
    machine = Reconstruction("vgpu-old-host", "vGPU guest with driver 580.95.05 on a host of an older vGPU release")
    source = "NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/vgpu/rpc.c (the lines); the machine is supposed"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    parts.driver(machine, "580.95.05", source=source)
    machine.without("/dev/nvidia0")
    pci(machine, "0000:06:10.0", "0x27b8", driver="nvidia", source=SUPPOSED)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
    answer = {"init": {"code": 0}, "library": library, "driver_version": "580.95.05", "count": 0, "devices": []}
    machine.child("nvml", answer)
    init_fails(machine, "580.95.05", code=100)
    machine.file("/etc/nvidia/gridd.conf", "FeatureType=0\n", source=SUPPOSED)
    log(
        machine,
        "NVRM: NVRM_RPC: SetGuestSystemInfo: The host version (18.9) is too old.",
        "NVRM: GPU 0000:06:10.0: RmInitAdapter failed! (0x22:0x40:667)",
        source=source,
    )
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def a100_mig_other_id() -> Reconstruction:
    """The slices were cut anew; the variable names one of before."""
    machine = Reconstruction("a100-mig-other-id", "A100 in seven new 1g.5gb slices; the mask names one that is gone")
    source = "NVIDIA/k8s-device-plugin#225 (A100 in 7 x 1g.5gb, gone after a restart)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "570.133.20", A100_40, code=100, source=source)
    slices(machine, 0, "1g.5gb", gib=4.75, count=7)
    machine.env(CUDA_VISIBLE_DEVICES=OLD_SLICE)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def a100_mig_by_number() -> Reconstruction:
    """The container toolkit's form in CUDA's variable."""
    machine = Reconstruction("a100-mig-by-number", "A100 in two 3g.20gb slices; CUDA_VISIBLE_DEVICES is 0:1")
    source = "docs.nvidia.com/datacenter/tesla/mig-user-guide (0:1 is Docker's form); the machine is supposed"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "570.133.20", A100_40, code=100, source=source)
    slices(machine, 0, "3g.20gb", gib=19.6, count=2)
    machine.env(CUDA_VISIBLE_DEVICES="0:1")
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def mig_beside_whole() -> Reconstruction:
    """One of three GPUs is cut, and MIG on another waits for a reset."""
    machine = Reconstruction("mig-beside-whole", "Three A100: one in slices, two whole; CUDA counts one device")
    source = "docs.nvidia.com/datacenter/tesla/mig-user-guide (device enumeration); the machine is supposed"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.133.20", *[A100_PCIE] * 3, source=source)
    slices(machine, 0, "3g.40gb", gib=39.5, count=2)
    reading(machine, 2, mig_pending=1)
    counted: Any = machine.children["libcuda"].answer
    counted["count"], counted["devices"] = 1, counted["devices"][:1]
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def _waits_for_module(machine: Reconstruction, module: bytes, *, source: str) -> Reconstruction:
    """Secure Boot on, and a module on disk that is not loaded."""
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    pci(machine, "0000:00:05.0", "0x2236", source=SUPPOSED)
    machine.file(f"/lib/modules/{machine.host.kernel_release}/updates/dkms/nvidia.ko", module, source=source)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    machine.file("/sys/module/module/parameters/sig_enforce", "Y\n", source=SUPPOSED)
    machine.file(f"{EFI}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\x01", source=source)
    microsoft = certificate("Microsoft Windows Production PCA 2011", 0x61077656000000000008)
    machine.file(f"{EFI}/db-{FIRMWARE}", efi_list(microsoft), source=SUPPOSED)
    parts.user_driver(machine, "580.95.05", source=SUPPOSED)
    nvml_fails(machine, "580.95.05", code=9, text="Driver Not Loaded", source=SUPPOSED)
    init_fails(machine, "580.95.05", code=100)
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def secure_boot_other_key() -> Reconstruction:
    """DKMS signed with a key of this machine; the MOK list has the distribution's alone."""
    about = "Secure Boot on; nvidia.ko is signed with this machine's own key, which is not enrolled"
    machine = Reconstruction("secure-boot-other-key", about)
    source = "docs.kernel.org/admin-guide/module-signing (the trailer), UEFI specification (signature lists)"
    elf = make_elf(ElfSpec(soname="nvidia.ko"))
    _waits_for_module(machine, signed(elf, OWN_KEY, 0x1D2C3B4A59687706), source=source)
    vendor = certificate("Canonical Ltd. Master Certificate Authority", 0xB94124A0182C9267)
    machine.file(f"{EFI}/MokListRT-{SHIM}", efi_list(vendor), source=source)
    key = certificate(OWN_KEY, 0x1D2C3B4A59687706)
    machine.file("/var/lib/shim-signed/mok/MOK.der", key, source=SUPPOSED)
    return machine


def nouveau_in_early_image() -> Reconstruction:
    """The ban was written, and the image not made anew."""
    about = "GTX 970 bound to nouveau although a file forbids it: the early boot image has it"
    machine = user(Reconstruction("nouveau-in-early-image", about))
    source = "negativo17/nvidia-driver#73 (GTX 970, Kernel driver in use: nouveau); the image's list is supposed"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    pci(machine, "0000:01:00.0", "0x13c2", driver="nouveau", code="0x030000", source=source)
    machine.file("/sys/module/nouveau/version", "1.0\n", source=source)
    machine.file(
        "/etc/modprobe.d/blacklist-nouveau.conf", "blacklist nouveau\noptions nouveau modeset=0\n", source=source
    )
    machine.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro quiet\n", source=SUPPOSED)
    kernel = machine.host.kernel_release
    machine.file(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko", "", source=source)
    listed = f"usr/lib/modules/{kernel}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst\netc/modprobe.d/amd64.conf\n"
    machine.command(f"lsinitramfs /boot/initrd.img-{kernel}", listed)
    parts.user_driver(machine, "580.95.05", source=SUPPOSED)
    nvml_fails(machine, "580.95.05", code=9, text="Driver Not Loaded", source=SUPPOSED)
    init_fails(machine, "580.95.05", code=100)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def h100_confidential() -> Reconstruction:
    """Confidential computing is on, and nobody set the GPU ready after the start."""
    machine = Reconstruction(
        "h100-confidential", "Confidential VM with an H100 that is not set ready: cuInit gives 802"
    )
    source = "NVML, nvmlSystemGetConfComputeGpusReadyState; the machine is supposed"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    fails(machine, "580.95.05", H100, code=802, source=source)
    answer: Any = machine.children["nvml"].answer
    answer.update(confidential_environment=2, confidential_feature=1, confidential_tools=0, confidential_ready=0)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def b200(name: str, about: str, *, state: int, source: str) -> Reconstruction:
    """An HGX B200 server: its switches are behind InfiniBand devices, none is an NVIDIA device on the bus."""
    machine = Reconstruction(name, about)
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    machine.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    code = {"code": 802} if state < 3 else {}
    make: Any = fails if state < 3 else works
    make(machine, "580.95.05", *[B200] * 8, source=source, fabric_state=state, fabric_status=0, **code)
    machine.file("/usr/bin/nv-fabricmanager", "", source=source)
    machine.command("/usr/bin/nv-fabricmanager --version", "Fabric Manager version is : 580.95.05\n")
    torch_of(machine, TORCH_211_CU130)
    return machine


MACHINES = (
    vgpu_unlicensed,
    vgpu_old_host,
    a100_mig_other_id,
    a100_mig_by_number,
    mig_beside_whole,
    secure_boot_other_key,
    nouveau_in_early_image,
    h100_confidential,
)

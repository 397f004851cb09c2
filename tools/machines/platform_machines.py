"""Machines whose system is the point: musl, an image, a label, containers that are configured on their host."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts
from tools.machines.driver_parts import (
    A10,
    RTX_3090,
    RTX_4090,
    TORCH_28_CU128,
    fails,
    nvml_fails,
    pci,
    red_hat,
    torch_of,
    user,
    works,
)
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import CU130, TorchWheel

NUMBERS = (
    "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n508 nvidia-uvm\n511 nvidia-caps\n"
)


def alpine_with_torch() -> Reconstruction:
    """An Alpine image with the GPUs handed in, and a torch wheel that was forced into it."""
    machine = Reconstruction("alpine-with-torch", "Docker container of python:3.9-alpine with a GPU, and torch in it")
    source = "pytorch/pytorch#102592 (python:3.9-alpine, torch 2.0.0, pthread_attr_setaffinity_np: symbol not found)"
    machine.file(
        "/etc/os-release",
        'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.18.0\nPRETTY_NAME="Alpine Linux v3.18"\n',
        source=source,
    )
    machine.elf("/lib/ld-musl-x86_64.so.1", ElfSpec(soname="libc.musl-x86_64.so.1"), source=source)
    machine.env(PATH="/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin")
    machine.file("/.dockerenv", "", source=source)
    parts.driver(machine, "570.133.20", source=SUPPOSED)
    pci(machine, "0000:01:00.0", "0x2684", driver="nvidia", source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128, source=source)
    return machine


def silverblue_works() -> Reconstruction:
    """A Silverblue with RPM Fusion's driver in its image."""
    machine = user(
        Reconstruction("silverblue-works", "Fedora Silverblue 42 with an RTX 3090 and driver 580.95.05: works")
    )
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    works(machine, "580.95.05", RTX_3090, source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128)
    red_hat(machine, "Fedora Linux", os_id="fedora", version="42", source=SUPPOSED)
    machine.file("/run/ostree-booted", "", source="ostreedev.github.io/ostree: made at every start of an ostree system")
    return machine


def podman_label() -> Reconstruction:
    """A podman container of Fedora whose label keeps it from the GPU."""
    machine = Reconstruction("podman-label", "podman container on Fedora: NVML says Insufficient Permissions (SELinux)")
    source = "NVIDIA/nvidia-container-toolkit#33 (Fedora 36, Insufficient Permissions, SELinux)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "570.133.20", RTX_4090, code=100, source=SUPPOSED)
    nvml_fails(machine, "570.133.20", code=4, text="Insufficient Permissions", source=source)
    machine.file("/run/.containerenv", "", source=source)
    machine.file("/proc/self/attr/current", "system_u:system_r:container_t:s0:c1,c2", source=SUPPOSED)
    machine.file("/sys/fs/selinux/enforce", "1", source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def podman_host_no_cdi() -> Reconstruction:
    """A host with podman and the toolkit, and no description of the GPUs yet."""
    machine = user(Reconstruction("podman-host-no-cdi", "A10 host with podman and nvidia-ctk, without a CDI file"))
    source = "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.133.20", A10, source=SUPPOSED)
    machine.file("/usr/bin/podman", "#!", source=source)
    machine.file("/usr/bin/nvidia-ctk", "#!", source=source)
    machine.command("nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.17.8\n")
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def lxc_no_nodes() -> Reconstruction:
    """An LXC container that nobody gave the GPU; the kernel's numbers can be read in it."""
    machine = Reconstruction("lxc-no-nodes", "LXC container on a host with driver 570.133.20, without its nodes")
    source = "gist.github.com/paul-chambers/26a111e8f5206aab38c14be35bc3964e (NVIDIA GPU in an LXC container, Debian)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    machine.file("/sys/module/nvidia/version", "570.133.20\n", source=SUPPOSED)
    pci(machine, "0000:01:00.0", "0x2684", driver="nvidia", source=SUPPOSED)
    machine.file("/proc/1/environ", "container=lxc\0TERM=linux\0", source=source)
    machine.file("/proc/devices", NUMBERS, source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def podman_groups() -> Reconstruction:
    """A rootless podman container whose nodes belong to the group video of the host."""
    machine = Reconstruction("podman-groups", "rootless podman container: the nodes are 0660 root:video on the host")
    source = "NVIDIA/nvidia-docker#1608 (openSUSE Tumbleweed, rootless podman, Insufficient Permissions)"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "570.133.20", RTX_4090, code=100, source=SUPPOSED)
    nvml_fails(machine, "570.133.20", code=4, text="Insufficient Permissions", source=source)
    machine.file("/run/.containerenv", 'engine="podman-4.3.1"\nrootless=1\n', source=source)
    for node in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        machine.owned(f"/dev/{node}", mode=0o20660, owner=65534)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def proxmox_uvm_file() -> Reconstruction:
    """A container of Proxmox VE that was started before the host had /dev/nvidia-uvm."""
    machine = Reconstruction(
        "proxmox-uvm-file", "Proxmox container: /dev/nvidia-uvm is an empty file, cuInit gives 999"
    )
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "570.133.20", RTX_3090, code=999, source=SUPPOSED)
    machine.kinds["/dev/nvidia-uvm"] = "file"
    machine.sources["/dev/nvidia-uvm"] = (
        "man lxc.container.conf: create=file makes an empty file where nothing is bound"
    )
    machine.file("/proc/1/environ", "container=lxc\0TERM=linux\0", source=SUPPOSED)
    machine.file("/etc/hosts", "127.0.0.1 localhost\n# --- BEGIN PVE ---\n", source=SUPPOSED)
    machine.file("/proc/devices", NUMBERS, source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def jetson_container_no_runtime() -> Reconstruction:
    """A container on a Jetson Thor, started without NVIDIA's runtime."""
    machine = Reconstruction("jetson-container-no-runtime", "Docker container on a Jetson, without NVIDIA's runtime")
    source = (
        "docs.nvidia.com/datacenter/cloud-native/container-toolkit: on Tegra the nvidia runtime mounts what is listed"
    )
    machine.host = replace(machine.host, arch="aarch64", kernel_release="6.8.12-tegra")
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    machine.file("/.dockerenv", "", source=source)
    torch_of(machine, TorchWheel("2.9.1+cu130", "13.0", CU130))
    return parts.loader_cache(machine)


def lxc_uvm_refused() -> Reconstruction:
    """An LXC container whose device rules name yesterday's number of nvidia-uvm."""
    machine = Reconstruction("lxc-uvm-refused", "LXC container: NVML works, cuInit gives 999, /dev/nvidia-uvm is there")
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    fails(machine, "570.133.20", RTX_3090, code=999, source=SUPPOSED)
    machine.file("/proc/1/environ", "container=lxc\0TERM=linux\0", source=SUPPOSED)
    machine.file("/proc/devices", NUMBERS, source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def cdi_of_older_driver() -> Reconstruction:
    """A host whose driver was upgraded after the description of its GPUs was written."""
    machine = user(Reconstruction("cdi-of-older-driver", "A10 host: the CDI file is of driver 535, the driver is 570"))
    source = "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.133.20", A10, source=SUPPOSED)
    line = "  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01\n"
    machine.file("/etc/cdi/nvidia.yaml", f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\nmounts:\n{line}", source=source)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def docker_host_without_rules() -> Reconstruction:
    """A host whose toolkit was set up for Docker without root, and whose Docker runs as root."""
    machine = user(Reconstruction("docker-host-without-rules", "A10 host: no-cgroups = true beside Docker as root"))
    source = "NVIDIA/nvidia-container-toolkit#381, NVIDIA/nvidia-container-toolkit#85"
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    works(machine, "570.133.20", A10, source=SUPPOSED)
    machine.socket("/var/run/docker.sock", source=source)
    runtime = '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}\n'
    machine.file("/etc/docker/daemon.json", runtime, source=source)
    machine.file("/etc/nvidia-container-runtime/config.toml", "[nvidia-container-cli]\nno-cgroups = true\n\n"
                 '[nvidia-container-runtime]\nmode = "auto"\n', source=source)  # fmt: skip
    machine.file("/usr/bin/nvidia-ctk", "#!", source=SUPPOSED)
    machine.command("/usr/bin/nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.17.8\n")
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


MACHINES = (alpine_with_torch, silverblue_works, podman_label, podman_host_no_cdi, lxc_no_nodes, podman_groups,
            proxmox_uvm_file, jetson_container_no_runtime, lxc_uvm_refused, cdi_of_older_driver,
            docker_host_without_rules)  # fmt: skip

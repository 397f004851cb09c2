"""Parts for machines inside containers: distributions, what an engine leaves as its marks, who owns a library."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tools.machines import parts, wheels
from tools.machines.driver_parts import ERRORS, pci
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

_DEBIAN = "/usr/lib/x86_64-linux-gnu"
_CUDA_OF_BRANCH = {
    375: "8.0",
    384: "9.0",
    390: "9.1",
    418: "10.1",
    450: "11.0",
    460: "11.2",
    470: "11.4",
    515: "11.7",
    520: "11.8",
    525: "12.0",
    535: "12.2",
    545: "12.3",
    550: "12.4",
    560: "12.6",
    565: "12.7",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
    610: "13.3",
}


@dataclass(frozen=True, slots=True)
class Distribution:
    """The release file of an image with its glibc, its libstdc++ and the programs that install packages."""

    release: str
    glibc: int  # 2.x
    glibcxx: int  # 3.4.x
    libraries: str
    programs: tuple[str, ...]


def _release(name: str, pretty: str, identity: str, version: str, like: str = "", codename: str = "") -> str:
    lines = [f'NAME="{name}"', f'PRETTY_NAME="{pretty}"', f"ID={identity}"]
    lines += [f'VERSION_ID="{version}"'] if version else []
    lines += [f'ID_LIKE="{like}"'] if like else []
    lines += [f"VERSION_CODENAME={codename}"] if codename else []
    return "".join(f"{line}\n" for line in lines)


_APT = ("/usr/bin/apt-get", "/usr/bin/dpkg")
_DNF = ("/usr/bin/dnf", "/usr/bin/rpm")
_YUM = ("/usr/bin/yum", "/usr/bin/rpm")
DISTRIBUTIONS = {
    "ubuntu-16.04": Distribution(
        _release("Ubuntu", "Ubuntu 16.04.7 LTS", "ubuntu", "16.04", "debian", "xenial"), 23, 21, _DEBIAN, _APT
    ),
    "ubuntu-18.04": Distribution(
        _release("Ubuntu", "Ubuntu 18.04.6 LTS", "ubuntu", "18.04", "debian", "bionic"), 27, 25, _DEBIAN, _APT
    ),
    "ubuntu-20.04": Distribution(
        _release("Ubuntu", "Ubuntu 20.04.6 LTS", "ubuntu", "20.04", "debian", "focal"), 31, 28, _DEBIAN, _APT
    ),
    "ubuntu-22.04": Distribution(
        _release("Ubuntu", "Ubuntu 22.04.5 LTS", "ubuntu", "22.04", "debian", "jammy"), 35, 30, _DEBIAN, _APT
    ),
    "ubuntu-24.04": Distribution(
        _release("Ubuntu", "Ubuntu 24.04.3 LTS", "ubuntu", "24.04", "debian", "noble"), 39, 33, _DEBIAN, _APT
    ),
    "ubuntu-25.04": Distribution(
        _release("Ubuntu", "Ubuntu 25.04", "ubuntu", "25.04", "debian", "plucky"), 41, 33, _DEBIAN, _APT
    ),
    "debian-10": Distribution(
        _release("Debian GNU/Linux", "Debian GNU/Linux 10 (buster)", "debian", "10", codename="buster"),
        28,
        25,
        _DEBIAN,
        _APT,
    ),
    "debian-11": Distribution(
        _release("Debian GNU/Linux", "Debian GNU/Linux 11 (bullseye)", "debian", "11", codename="bullseye"),
        31,
        28,
        _DEBIAN,
        _APT,
    ),
    "debian-12": Distribution(
        _release("Debian GNU/Linux", "Debian GNU/Linux 12 (bookworm)", "debian", "12", codename="bookworm"),
        36,
        30,
        _DEBIAN,
        _APT,
    ),
    "debian-13": Distribution(
        _release("Debian GNU/Linux", "Debian GNU/Linux 13 (trixie)", "debian", "13", codename="trixie"),
        41,
        33,
        _DEBIAN,
        _APT,
    ),
    "ubi-8": Distribution(
        _release("Red Hat Enterprise Linux", "Red Hat Enterprise Linux 8.9 (Ootpa)", "rhel", "8.9", "fedora"),
        28,
        25,
        "/usr/lib64",
        _DNF,
    ),
    "ubi-9": Distribution(
        _release("Red Hat Enterprise Linux", "Red Hat Enterprise Linux 9.6 (Plow)", "rhel", "9.6", "fedora"),
        34,
        29,
        "/usr/lib64",
        _DNF,
    ),
    "centos-7": Distribution(
        _release("CentOS Linux", "CentOS Linux 7 (Core)", "centos", "7", "rhel fedora"), 17, 19, "/usr/lib64", _YUM
    ),
    "centos-8": Distribution(
        _release("CentOS Linux", "CentOS Linux 8", "centos", "8", "rhel fedora"), 28, 25, "/usr/lib64", _DNF
    ),
    "rocky-8": Distribution(
        _release("Rocky Linux", "Rocky Linux 8.6 (Green Obsidian)", "rocky", "8.6", "rhel centos fedora"),
        28,
        25,
        "/usr/lib64",
        _DNF,
    ),
    "rocky-9": Distribution(
        _release("Rocky Linux", "Rocky Linux 9.5 (Blue Onyx)", "rocky", "9.5", "rhel centos fedora"),
        34,
        29,
        "/usr/lib64",
        _DNF,
    ),
    "fedora-25": Distribution(
        _release("Fedora", "Fedora 25 (Twenty Five)", "fedora", "25"), 24, 22, "/usr/lib64", _DNF
    ),
    "fedora-31": Distribution(
        _release("Fedora", "Fedora 31 (Workstation Edition)", "fedora", "31"), 30, 28, "/usr/lib64", _DNF
    ),
    "fedora-43": Distribution(
        _release("Fedora Linux", "Fedora Linux 43 (Container Image)", "fedora", "43"), 42, 34, "/usr/lib64", _DNF
    ),
    "amazon-2023": Distribution(
        _release("Amazon Linux", "Amazon Linux 2023.7.20250414", "amzn", "2023", "fedora"), 34, 33, "/usr/lib64", _DNF
    ),
    "tumbleweed": Distribution(
        _release("openSUSE Tumbleweed", "openSUSE Tumbleweed", "opensuse-tumbleweed", "20250615", "opensuse suse"),
        41,
        34,
        "/usr/lib64",
        ("/usr/bin/zypper", "/usr/bin/rpm"),
    ),
    "arch": Distribution(_release("Arch Linux", "Arch Linux", "arch", ""), 40, 33, "/usr/lib", ("/usr/bin/pacman",)),
}

_PYTHONS = {
    "ubuntu-16.04": "3.5",
    "ubuntu-18.04": "3.6",
    "ubuntu-20.04": "3.8",
    "ubuntu-22.04": "3.10",
    "ubuntu-24.04": "3.12",
    "ubuntu-25.04": "3.13",
    "debian-10": "3.7",
    "debian-11": "3.9",
    "debian-12": "3.11",
    "debian-13": "3.13",
    "ubi-8": "3.6",
    "ubi-9": "3.9",
    "centos-7": "3.6",
    "centos-8": "3.6",
    "rocky-8": "3.6",
    "rocky-9": "3.9",
    "fedora-25": "3.5",
    "fedora-31": "3.7",
    "fedora-43": "3.14",
    "amazon-2023": "3.9",
    "tumbleweed": "3.13",
    "arch": "3.12",
}


def start(
    name: str, about: str, key: str, *, source: str, kernel: str, user: str = "root", cwd: str = ""
) -> Reconstruction:
    """A machine of a distribution, under a kernel of its host, seen by a user."""
    machine = Reconstruction(name, about)
    home = "/root" if user == "root" else f"/home/{user}"
    machine.host = replace(
        machine.host, user=user, home=home, cwd=cwd or home, uid=0 if user == "root" else 1000, kernel_release=kernel
    )
    made = DISTRIBUTIONS[key]
    machine.file("/etc/os-release", made.release, source=source)
    glibc = tuple(f"GLIBC_2.{number}" for number in range(2, made.glibc + 1))
    stdcxx = tuple(f"GLIBCXX_3.4.{number}" for number in range(1, made.glibcxx + 1))
    machine.elf(f"{made.libraries}/libc.so.6", ElfSpec(soname="libc.so.6", defines=glibc), source=SUPPOSED)
    machine.elf(f"{made.libraries}/libstdc++.so.6", ElfSpec(soname="libstdc++.so.6", defines=stdcxx), source=SUPPOSED)
    for program in made.programs:
        machine.file(program, "#!", source=SUPPOSED)
    system_python(machine, _PYTHONS[key], source=SUPPOSED)
    own_python(machine)
    machine.file("/proc/sys/kernel/osrelease", f"{kernel}\n", source=source)
    return machine.env(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def system_python(machine: Reconstruction, version: str, *, source: str) -> Reconstruction:
    """/usr/bin/python3 is a link to this version, whatever it was before."""
    machine.file(f"/usr/bin/python{version}", "#!", source=source)
    machine.link("/usr/bin/python3", f"python{version}", source=source)
    return machine.file(f"/usr/lib/python{version}/os.py", "", source=source)


def own_python(machine: Reconstruction) -> Reconstruction:
    """firstlight runs from an environment of its own, so that its Python is none of those that are looked at."""
    prefix = f"{machine.host.home}/.local/share/uv/tools/firstlight"
    machine.file(f"{prefix}/pyvenv.cfg", "home = /usr/bin\nuv = 0.13.7\nversion_info = 3.12.3\n", source=SUPPOSED)
    machine.file(f"{prefix}/uv-receipt.toml", "[tool]\n", source=SUPPOSED)
    machine.file(f"{prefix}/bin/python3", "#!", source=SUPPOSED)
    machine.host = replace(machine.host, python_prefix=prefix, python_executable=f"{prefix}/bin/python3")
    return machine


def libraries_of(machine: Reconstruction) -> str:
    """The distribution's own library folder: where its libc lies."""
    return next(path for path in machine.files if path.endswith("/libc.so.6")).rpartition("/")[0]


def cuda_of(version: str) -> str:
    return _CUDA_OF_BRANCH[int(version.partition(".")[0])]


def module(machine: Reconstruction, version: str, *, source: str, kind: str = "open") -> Reconstruction:
    """The host's loaded driver as /proc and /sys show it everywhere on that host."""
    line = {
        "open": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build",
        "proprietary": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}",
    }[kind]
    machine.file("/proc/driver/nvidia/version", f"{line}\n", source=source)
    machine.file("/sys/module/nvidia/version", f"{version}\n", source=source)
    machine.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n", source=SUPPOSED)
    machine.file(
        "/proc/modules",
        "nvidia_uvm 1507328 0 - Live 0x0 (POE)\nnvidia 56823808 8 nvidia_uvm, Live 0x0\n",
        source=SUPPOSED,
    )
    return machine.file(
        "/proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n511 nvidia-uvm\n", source=SUPPOSED
    )


def bus(machine: Reconstruction, *specs: GpuSpec, source: str = SUPPOSED) -> Reconstruction:
    """The host's GPUs on the PCI bus, which containers see too."""
    for index, spec in enumerate(specs):
        pci(machine, f"0000:{0x18 + index:02x}:00.0", spec.pci_device, driver="nvidia", source=source)
    return machine


def nodes(machine: Reconstruction, count: int, *, source: str, uvm: bool = True) -> Reconstruction:
    """The device nodes of so many GPUs."""
    names = ["nvidiactl", *(f"nvidia{index}" for index in range(count))]
    names += ["nvidia-uvm", "nvidia-uvm-tools"] if uvm else []
    for name in names:
        machine.file(f"/dev/{name}", "", source=source)
    return machine


def libraries(
    machine: Reconstruction,
    version: str,
    *,
    source: str,
    folder: str = "",
    names: tuple[str, ...] = ("cuda", "nvidia-ml"),
) -> Reconstruction:
    """libcuda and libnvidia-ml of a driver, by links as ldconfig makes them."""
    where = folder or libraries_of(machine)
    for name in names:
        file = f"lib{name}.so.{version}"
        machine.elf(f"{where}/{file}", ElfSpec(soname=f"lib{name}.so.1", needed=("libc.so.6",)), source=source)
        machine.link(f"{where}/lib{name}.so.1", file, source=source)
    return machine


def cache(machine: Reconstruction, *more: str) -> Reconstruction:
    """/etc/ld.so.cache over the distribution's own folder and what else is named."""
    where = libraries_of(machine)
    own = sorted(
        path for path in (*machine.files, *machine.links) if path.rpartition("/")[0] == where and ".so" in path
    )
    return parts.loader_cache(machine, *own, *more)


def nvml_lists(
    machine: Reconstruction, version: str, *specs: GpuSpec, source: str, folder: str = "", **fields: Any
) -> Reconstruction:
    """NVML that starts and lists these GPUs."""
    parts.gpus(machine, version, *specs, source=source, **fields)
    where = folder or libraries_of(machine)
    answer = {**machine.children["nvml"].answer, "library": f"{where}/libnvidia-ml.so.{version}"}
    return machine.child("nvml", answer)


def nvml_says(
    machine: Reconstruction, code: int, text: str, *, source: str, library: str = "", more: str = ""
) -> Reconstruction:
    """NVML that does not start; nvidia-smi says the same words, and `more` below them."""
    machine.sources["the nvml child"] = source
    machine.child("nvml", {"init": {"code": code, "error": text}, "library": library})
    if not library:
        return machine
    return machine.every_call_of("nvidia-smi", f"Failed to initialize NVML: {text}\n{more}", status=code)


def no_nvml(machine: Reconstruction, *, source: str = SUPPOSED) -> Reconstruction:
    """No libnvidia-ml.so.1 anywhere the loader looks."""
    return nvml_says(machine, 12, "NVML Shared Library Not Found", source=source)


def cuda_starts(machine: Reconstruction, version: str, *specs: GpuSpec, folder: str = "") -> Reconstruction:
    where = folder or libraries_of(machine)
    return parts.cuda_answers(machine, f"{where}/libcuda.so.{version}", cuda=cuda_of(version), specs=specs)


def cuda_says(machine: Reconstruction, version: str, code: int, *, folder: str = "") -> Reconstruction:
    """A libcuda whose cuInit gives an error."""
    name, text = ERRORS[code]
    path = f"{folder or libraries_of(machine)}/libcuda.so.{version}"
    return parts.cuda_fails(machine, path, cuda=cuda_of(version), code=code, name=name, text=text)


def given(
    machine: Reconstruction,
    version: str,
    *specs: GpuSpec,
    source: str,
    kind: str = "open",
    folder: str = "",
    **fields: Any,
) -> Reconstruction:
    """All that an engine hands in when it is told to: nodes, libraries, and a driver that answers."""
    module(machine, version, source=source, kind=kind)
    nodes(machine, len(specs), source=source)
    libraries(machine, version, source=source, folder=folder)
    nvml_lists(machine, version, *specs, source=source, folder=folder, **fields)
    return cuda_starts(machine, version, *specs, folder=folder)


def torch(
    machine: Reconstruction,
    version: str,
    *,
    source: str = SUPPOSED,
    prefix: str = "/opt/venv",
    python: str = "3.12",
    archs: tuple[str, ...] = (),
) -> Reconstruction:
    """torch in a venv that is active; version as 2.8.0+cu128."""
    site = wheels.python(machine, prefix, version=python, source=source)
    machine.link(f"{prefix}/bin/python", "python3", source=source)
    machine.env(PATH=f"{prefix}/bin:{machine.environ['PATH']}")
    return wheels.torch(machine, site, wheel(version, python, archs), source=source)


def wheel(version: str, python: str = "3.12", archs: tuple[str, ...] = ()) -> TorchWheel:
    """The wheel of a version: its CUDA, what it was compiled for, and its tag."""
    local = version.partition("+")[2]
    cuda = f"{local[2:-1]}.{local[-1]}" if local.startswith("cu") else ""
    known = {"cu128": CU128, "cu130": CU130}
    older = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    tag = f"cp{python.replace('.', '')}-cp{python.replace('.', '')}-"
    tag += "manylinux_2_28_x86_64" if local in known else "linux_x86_64"
    return TorchWheel(version, cuda, archs or known.get(local, older) if cuda else (), tag=tag)


def conda(machine: Reconstruction, prefix: str, version: str, *, python: str, source: str) -> Reconstruction:
    """torch in a conda prefix that is first on PATH."""
    machine.file(f"{prefix}/conda-meta/history", "", source=source)
    for name in ("python", "python3", f"python{python}"):
        machine.file(f"{prefix}/bin/{name}", "#!", source=source)
    wheels.torch(machine, f"{prefix}/lib/python{python}/site-packages", wheel(version, python), source=source)
    return machine.env(PATH=f"{prefix}/bin:{machine.environ['PATH']}")

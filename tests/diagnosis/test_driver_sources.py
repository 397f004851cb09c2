"""Where each family gets a driver from: its own names, its own manager, and what has to come before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.compat_answers import compat_answers
from firstlight.diagnosis.driver_answers import driver_answers
from firstlight.diagnosis.driver_packages import closed_only_gpus, open_only_gpus
from firstlight.diagnosis.driver_rules import DRIVER_RULES
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.judge import judge
from firstlight.facts.boot_system import ModuleBuilder
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind
from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.versions import CudaVersion, DriverVersion
from firstlight.ways.asks import words_asked
from firstlight.ways.at import At
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import (
    AskPerson,
    BuildModules,
    EnrolKey,
    Flavour,
    InstallDriver,
    InstallPackages,
    RemovePackages,
    SetUpRepository,
    StartKernel,
    Why,
)
from firstlight.ways.platform import platform_of
from firstlight.ways.steps import steps_of
from firstlight.ways.way import Chain
from tests.diagnosis.rule_case import facts_of, ways_of
from tests.platforms.cases import judged
from tools.machines.distro_vendor_held import azl3_rt_kernel

TABLES = load()
CUDA_12, CUDA_13 = CudaVersion(12, 8), CudaVersion(13, 0)


def system(
    name: str, release: str, *managers: str, kernel: str = "", builders: tuple[ModuleBuilder, ...] = ()
) -> Facts:
    """A machine with an A100 and no driver, of another distribution."""
    facts = facts_of("a100-no-driver")
    boot = replace(facts.place.boot, module_builders=Known(builders, "t"))
    place = replace(
        facts.place,
        os_id=Known(name, "t"),
        os_version=Known(release, "t"),
        kernel_release=kernel or facts.place.kernel_release,
        boot=boot,
    )
    ability = replace(facts.ability, package_managers=managers, is_root=True, uid=0)
    driver = replace(facts.driver, packages=Unknown("not dpkg"), nvml_library_version=Unknown("no library"))
    libcuda = replace(facts.libcuda, candidates=(), would_load=Unknown("no library"))
    return replace(facts, place=place, ability=ability, driver=driver, libcuda=libcuda)


def on_volta(facts: Facts) -> Facts:
    pci = tuple(replace(each, device_id=Known("0x1db6", "t")) for each in facts.gpus.pci)
    return replace(facts, gpus=replace(facts.gpus, pci=pci))


def answers(facts: Facts, cuda: CudaVersion | None = CUDA_13) -> tuple[Chain, ...]:
    return driver_answers(Question(facts, TABLES), cuda)


def commands(facts: Facts, chain: Chain) -> list[str]:
    at = At(facts, TABLES, platform_of(facts), Extras(), "t")
    return [" ".join(argv) for way in chain.ways for step in steps_of(way, at) for argv in step.commands]


def driver_of(chain: Chain) -> InstallDriver:
    return next(way for way in chain.ways if isinstance(way, InstallDriver))


NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            system("ubuntu", "24.04", "apt-get"),
            ["apt-get install --yes nvidia-driver-580-server-open", "systemctl reboot"],
        ),
        (
            system("rocky", "9.4", "dnf", "yum", kernel="5.14.0-427.el9.x86_64"),
            [
                "dnf install --assumeyes https://dl.fedoraproject.org/pub/epel/epel-release-latest-9.noarch.rpm",
                f"curl -fsSL -o /etc/yum.repos.d/cuda-rhel9.repo {NVIDIA}/rhel9/x86_64/cuda-rhel9.repo",
                "dnf install --assumeyes kernel-devel-5.14.0-427.el9.x86_64",
                "dnf module reset --assumeyes nvidia-driver",
                "dnf module enable --assumeyes nvidia-driver:580-open",
                "dnf install --assumeyes nvidia-driver-cuda kmod-nvidia-open-dkms",
                "systemctl reboot",
            ],
        ),
        (
            system("almalinux", "10.1", "dnf", kernel="6.12.0-55.el10.x86_64", builders=(ModuleBuilder.DKMS,)),
            [
                f"curl -fsSL -o /etc/yum.repos.d/cuda-rhel10.repo {NVIDIA}/rhel10/x86_64/cuda-rhel10.repo",
                "dnf install --assumeyes kernel-devel-6.12.0-55.el10.x86_64",
                "dnf install --assumeyes nvidia-open-580*",
                "systemctl reboot",
            ],
        ),
        (
            system("sles", "15.7", "zypper", kernel="6.4.0-150700.53-default"),
            [
                f"curl -fsSL -o /etc/zypp/repos.d/cuda-sles15.repo {NVIDIA}/sles15/x86_64/cuda-sles15.repo",
                "zypper --non-interactive --gpg-auto-import-keys refresh",
                "zypper --non-interactive install --oldpackage kernel-default-devel=6.4.0-150700.53",
                "zypper --non-interactive install nvidia-open-driver-G06 nvidia-compute-utils-G06",
                "systemctl reboot",
            ],
        ),
        (
            system("azurelinux", "3.0", "tdnf", kernel="6.6.78.1-3.azl3"),
            [
                "tdnf install --assumeyes azurelinux-repos-extended",
                f"curl -fsSL -o /etc/yum.repos.d/cuda-azl3.repo {NVIDIA}/azl3/x86_64/cuda-azl3.repo",
                "tdnf install --assumeyes kernel-devel-6.6.78.1-3.azl3",
                "tdnf install --assumeyes nvidia-open",
                "systemctl reboot",
            ],
        ),
        (
            system("arch", "", "pacman", kernel="6.12.1-arch1-1"),
            ["pacman --sync --noconfirm --needed nvidia-open nvidia-utils", "systemctl reboot"],
        ),
        (
            system("arch", "", "pacman", kernel="6.16.8-zen3-1-zen"),
            [
                "pacman --sync --noconfirm --needed linux-zen-headers",
                "pacman --sync --noconfirm --needed nvidia-open-dkms nvidia-utils",
                "systemctl reboot",
            ],
        ),
        (
            system("amzn", "2023", "dnf", kernel="6.12.58-82.amzn2023.x86_64"),
            [
                f"curl -fsSL -o /etc/yum.repos.d/cuda-amzn2023.repo {NVIDIA}/amzn2023/x86_64/cuda-amzn2023.repo",
                "dnf install --assumeyes kernel6.12-devel-6.12.58-82.amzn2023.x86_64",
                "dnf module reset --assumeyes nvidia-driver",
                "dnf module enable --assumeyes nvidia-driver:580-open",
                "dnf install --assumeyes nvidia-driver-cuda kmod-nvidia-open-dkms",
                "systemctl reboot",
            ],
        ),
    ],
    ids=("ubuntu", "rocky-9", "alma-10", "sles-15", "azure-3", "arch", "arch-zen", "al2023"),
)
def test_a_driver_is_installed_in_the_words_of_its_family(facts: Facts, said: list[str]) -> None:
    assert commands(facts, answers(facts)[0]) == said


def test_fedora_has_rpm_fusion_and_nvidias_repository() -> None:
    facts = system("fedora", "44", "dnf", kernel="6.17.1-300.fc44.x86_64")
    first, second = answers(facts)
    assert driver_of(first).packages == ("akmod-nvidia", "xorg-x11-drv-nvidia-cuda")
    assert (driver_of(second).packages, driver_of(second).version) == (("nvidia-open",), "580*")
    assert (first.ways[0], second.ways[0]) == (SetUpRepository("rpmfusion"), SetUpRepository("nvidia"))
    by_dkms = system("fedora", "44", "dnf", kernel="6.17.1-300.fc44.x86_64", builders=(ModuleBuilder.DKMS,))
    assert [driver_of(one).packages for one in answers(by_dkms)] == [("nvidia-open",)]
    by_akmods = system("fedora", "44", "dnf", kernel="6.17.1-300.fc44.x86_64", builders=(ModuleBuilder.AKMODS,))
    assert [driver_of(one).packages[0] for one in answers(by_akmods)] == ["akmod-nvidia"]
    [old, _] = answers(on_volta(facts))
    assert driver_of(old).packages == ("akmod-nvidia-580xx", "xorg-x11-drv-nvidia-580xx-cuda")


def test_debian_has_its_own_archive_where_its_branch_will_do() -> None:
    facts = system("debian", "13", "apt-get", kernel="6.12.48+deb13-amd64")
    [only] = answers(facts, CUDA_13)
    assert [way for way in only.ways if isinstance(way, (SetUpRepository, InstallPackages))] == [
        SetUpRepository("debian-nonfree"), SetUpRepository("nvidia"),
        InstallPackages(("linux-headers-6.12.48+deb13-amd64",)), InstallPackages(("nvidia-driver-pinning-595",)),
    ]  # fmt: skip
    assert driver_of(only).packages == ("nvidia-open",)
    _, own = answers(facts, CUDA_12)
    assert (driver_of(own).branch, own.ways[0]) == (550, SetUpRepository("debian-nonfree"))
    assert driver_of(own).packages == ("nvidia-open-kernel-dkms", "libcuda1", "nvidia-smi", "nvidia-modprobe")
    [closed] = answers(on_volta(facts), CUDA_12)  # NVIDIA's repository of Debian 13 begins with 590
    assert driver_of(closed).packages[0] == "nvidia-kernel-dkms"


def test_a_newer_driver_gives_way_before_debians_own_comes() -> None:
    facts = on_volta(system("debian", "13", "apt-get"))
    newer = Known(DriverVersion.parse("595.71.05"), "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.595.71.05")
    packages = Known(("libnvidia-ml1", "nvidia-kernel-open-dkms"), "/var/lib/dpkg/info")
    driver = replace(facts.driver, nvml_library_version=newer, packages=packages)
    [own] = answers(replace(facts, driver=driver), CUDA_12)
    gone = ("libnvidia-ml1", "nvidia-kernel-open-dkms", "libcuda1", "cuda-keyring")
    assert own.ways[:2] == (RemovePackages(gone, purge=True), SetUpRepository("debian-nonfree"))
    assert RemovePackages not in {type(way) for way in answers(facts, CUDA_12)[0].ways}


def test_blackwell_is_not_offered_a_branch_that_does_not_know_it() -> None:
    facts = system("debian", "13", "apt-get")
    pci = tuple(replace(each, device_id=Known("0x2901", "t")) for each in facts.gpus.pci)
    [only] = answers(replace(facts, gpus=replace(facts.gpus, pci=pci)), CUDA_12)
    assert driver_of(only).branch == 595


def test_ubuntu_20_04_has_no_580_and_says_so() -> None:
    facts = system("ubuntu", "20.04", "apt-get")
    [only] = answers(facts, CUDA_13)
    assert driver_of(only) == InstallDriver(580, Flavour.OPEN)
    [step, _] = [s for way in only.ways for s in steps_of(way, At(facts, TABLES, platform_of(facts), Extras(), "t"))]
    assert "which packages bring that driver on ubuntu 20.04 is not known here" in step.note
    assert driver_of(answers(facts, CUDA_12)[0]).packages == ("nvidia-driver-570-server-open",)


@pytest.mark.parametrize(("name", "release"), [("gentoo", "2.17"), ("openeuler", "24.03"), ("void", "")])
def test_a_system_without_rows_gets_no_other_systems_names(name: str, release: str) -> None:
    facts = system(name, release, "dnf")
    [only] = answers(facts)
    assert driver_of(only).packages == ()
    assert not [line for line in commands(facts, only) if "nvidia" in line]


def test_in_a_container_no_driver_is_installed() -> None:
    facts = system("ubuntu", "24.04", "apt-get")
    inside = replace(facts, container=replace(facts.container, kind=Known(ContainerKind.PODMAN, "t")))
    [only] = answers(inside)
    assert "container" in only.why_not


def test_a_vgpu_guest_is_sent_to_the_portal_and_never_given_a_public_package() -> None:
    facts = override(facts_of("l4-vgpu"), ("driver=535.129.03",))
    facts = replace(facts, ability=replace(facts.ability, is_root=True, uid=0))
    [only] = answers(facts)
    [asked, _] = only.ways
    assert isinstance(asked, AskPerson)
    assert (asked.why, asked.commands) == (Why.PORTAL, ())


def test_gpus_that_no_one_module_drives_are_told_so() -> None:
    facts = system("ubuntu", "24.04", "apt-get")
    [one] = facts.gpus.pci
    pci = (
        replace(one, device_id=Known("0x2901", "t")),
        replace(one, address="0000:41:00.0", device_id=Known("0x1db6", "t")),
    )
    question = Question(replace(facts, gpus=replace(facts.gpus, pci=pci)), TABLES)
    assert open_only_gpus(question)
    assert closed_only_gpus(question) == ["0000:41:00.0 is a Volta GPU (device 0x1db6, /sys/bus/pci/devices)"]
    told, *parts = driver_answers(question, CUDA_13)
    assert "takes the open module alone" in told.why_not
    assert "takes the proprietary one alone" in told.why_not
    assert [driver_of(part).flavour for part in parts] == [Flavour.OPEN, Flavour.PROPRIETARY]


def test_a_system_of_images_is_told_what_brings_the_driver() -> None:
    facts = system("nixos", "26.05")
    image = Known(ImageSystem.NIXOS, "t")
    [only] = answers(replace(facts, place=replace(facts.place, image_based=image)))
    assert isinstance(only.ways[0], AskPerson)
    assert "hardware.nvidia.open" in words_asked(only.ways[0])
    [old] = answers(on_volta(replace(facts, place=replace(facts.place, image_based=image))))
    assert isinstance(old.ways[0], AskPerson)
    assert "legacy_580" in words_asked(old.ways[0])


@pytest.mark.parametrize(
    ("name", "release", "file", "key"),
    [
        ("ubuntu", "24.04", "updates/dkms/nvidia.ko", "/var/lib/shim-signed/mok/MOK.der"),
        ("debian", "13", "updates/dkms/nvidia-current.ko", "/var/lib/dkms/mok.pub"),
        ("fedora", "44", "extra/nvidia/nvidia.ko.xz", "/etc/pki/akmods/certs/public_key.der"),
        ("fedora", "44", "extra/nvidia.ko.xz", "/var/lib/dkms/mok.pub"),
        ("rocky", "9.4", "extra/nvidia.ko.xz", "/var/lib/dkms/mok.pub"),
        ("opensuse-leap", "15.6", "updates/nvidia.ko", "/var/lib/dkms/mok.pub"),
    ],
)
def test_the_key_is_the_one_that_modules_are_signed_with_here(name: str, release: str, file: str, key: str) -> None:
    facts = facts_of("secure-boot")
    module = Known(f"/lib/modules/{facts.place.kernel_release}/{file}", "t")
    place = replace(facts.place, os_id=Known(name, "t"), os_version=Known(release, "t"))
    facts = replace(facts, place=place, driver=replace(facts.driver, module_file=module))
    found = judge(Question(facts, TABLES), DRIVER_RULES).of("secure-boot-blocks-module")
    assert found is not None
    keys = [way.key for ways in ways_of(found) for way in ways if isinstance(way, EnrolKey)]
    assert keys == [key]


def test_where_no_key_is_known_a_person_finds_it() -> None:
    facts = facts_of("secure-boot")
    facts = replace(facts, place=replace(facts.place, os_id=Known("arch", "t"), os_version=Unknown("rolling")))
    found = judge(Question(facts, TABLES), DRIVER_RULES).of("secure-boot-blocks-module")
    assert found is not None
    assert not [way for ways in ways_of(found) for way in ways if isinstance(way, EnrolKey)]


def test_modules_are_built_by_whoever_builds_them_here() -> None:
    facts = system("fedora", "44", "dnf", kernel="6.17.1-300.fc44.x86_64", builders=(ModuleBuilder.AKMODS,))
    library = Known(TABLES.cuda_majors[-1].min_driver_same_major, "/usr/lib64/libnvidia-ml.so.580.65.06")
    facts = replace(facts, driver=replace(facts.driver, nvml_library_version=library))
    found = judge(Question(facts, TABLES), DRIVER_RULES).of("driver-not-loaded")
    assert found is not None
    first = ways_of(found)[0][0]
    assert first == BuildModules(facts.place.kernel_release, f"kernel-devel-{facts.place.kernel_release}", by="akmods")
    said = commands(facts, Chain((first,)))
    assert said[-1] == "akmods --force --rebuild --kernels 6.17.1-300.fc44.x86_64"


def test_a_kernel_that_has_the_module_is_named() -> None:
    facts = system("almalinux", "9.7", "dnf", kernel="5.14.0-611.49.1.el9_7.x86_64")
    driver = replace(facts.driver, kernels_with_module=Known(("5.14.0-611.41.1.el9_7.x86_64",), "t"))
    found = judge(Question(replace(facts, driver=driver), TABLES), DRIVER_RULES).of("driver-not-loaded")
    assert found is not None
    [told] = [each for each in found.answers if any(isinstance(way, StartKernel) for way in each.ways)]
    assert commands(facts, told)[0] == "grubby --set-default /boot/vmlinuz-5.14.0-611.41.1.el9_7.x86_64"


def test_under_windows_no_compat_library_is_offered() -> None:
    facts = override(facts_of("wsl2-healthy"), ("driver=531.61",))
    [only] = compat_answers(Question(facts, TABLES), CUDA_13)
    assert "that of Windows" in only.why_not


@pytest.mark.parametrize(
    ("kernel", "other"),
    [
        ("6.6.35.1-rt34-1.azl3", True),
        ("5.14.0-503.11.1.el9_5.aarch64+64k", True),
        ("5.14.0-503.11.1.rt14.348.el9_5.x86_64", True),
        ("6.6.78.1-3.azl3", False),
        ("5.14.0-503.11.1.el9_5.x86_64", False),
    ],
)
def test_headers_of_the_plain_kernel_are_not_taken_for_another_kind(kernel: str, *, other: bool) -> None:
    facts = judged(azl3_rt_kernel).facts
    facts = replace(facts, place=replace(facts.place, kernel_release=kernel))
    installs = [
        way for way in driver_answers(Question(facts, TABLES), None)[0].ways if isinstance(way, InstallPackages)
    ]
    assert bool(installs) is not other
    assert other or installs[0].packages == (f"kernel-devel-{kernel}",)

"""Distributions as their own /etc/os-release names them, with their libc, library folder and package programs."""

from __future__ import annotations

from dataclasses import dataclass

MUSL = 0  # stands for "no glibc here" in Release.glibc


@dataclass(frozen=True, slots=True)
class Release:
    """One release: the text of /etc/os-release, glibc 2.N, where its libraries lie, who installs packages."""

    text: str
    glibc: int
    folder: str
    packages: str  # dpkg, rpm, pacman, apk, xbps, nix or "" where the image has none
    programs: tuple[str, ...]


def _lines(**fields: str) -> str:
    return "".join(f'{key}="{value}"\n' for key, value in fields.items())


_DEB = ("/usr/bin/apt-get", "/usr/bin/apt", "/usr/bin/dpkg", "/usr/sbin/update-initramfs", "/usr/bin/systemctl")
_DNF = ("/usr/bin/dnf", "/usr/bin/rpm", "/usr/bin/dracut", "/usr/sbin/grubby", "/usr/bin/systemctl")
_OSTREE = ("/usr/bin/rpm-ostree", "/usr/bin/rpm", "/usr/bin/systemctl")
_ZYPP = ("/usr/bin/zypper", "/usr/bin/rpm", "/usr/bin/dracut", "/usr/bin/systemctl")
_DEB_FOLDER, _RPM_FOLDER = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"


def _deb(glibc: int, *more: str, **fields: str) -> Release:
    return Release(_lines(**fields), glibc, _DEB_FOLDER, "dpkg", (*_DEB, *more))


def _rpm(glibc: int, programs: tuple[str, ...], **fields: str) -> Release:
    return Release(_lines(**fields), glibc, _RPM_FOLDER, "rpm", programs)


UBUNTU_22 = _deb(35, "/usr/bin/ubuntu-drivers", PRETTY_NAME="Ubuntu 22.04.5 LTS", NAME="Ubuntu", VERSION_ID="22.04",
                 VERSION="22.04.5 LTS (Jammy Jellyfish)", VERSION_CODENAME="jammy", ID="ubuntu", ID_LIKE="debian",
                 UBUNTU_CODENAME="jammy")  # fmt: skip
UBUNTU_24 = _deb(39, "/usr/bin/ubuntu-drivers", PRETTY_NAME="Ubuntu 24.04.3 LTS", NAME="Ubuntu", VERSION_ID="24.04",
                 VERSION="24.04.3 LTS (Noble Numbat)", VERSION_CODENAME="noble", ID="ubuntu", ID_LIKE="debian",
                 UBUNTU_CODENAME="noble")  # fmt: skip
UBUNTU_20 = _deb(31, PRETTY_NAME="Ubuntu 20.04.6 LTS", NAME="Ubuntu", VERSION_ID="20.04", ID="ubuntu",
                 VERSION="20.04.6 LTS (Focal Fossa)", VERSION_CODENAME="focal", ID_LIKE="debian",
                 UBUNTU_CODENAME="focal")  # fmt: skip
POP_22 = _deb(35, "/usr/bin/system76-power", NAME="Pop!_OS", VERSION="22.04 LTS", ID="pop", ID_LIKE="ubuntu debian",
              PRETTY_NAME="Pop!_OS 22.04 LTS", VERSION_ID="22.04", VERSION_CODENAME="jammy",
              UBUNTU_CODENAME="jammy")  # fmt: skip
DEBIAN_12 = _deb(36, PRETTY_NAME="Debian GNU/Linux 12 (bookworm)", NAME="Debian GNU/Linux", VERSION_ID="12",
                 VERSION="12 (bookworm)", VERSION_CODENAME="bookworm", ID="debian")  # fmt: skip
DEBIAN_13 = _deb(41, PRETTY_NAME="Debian GNU/Linux 13 (trixie)", NAME="Debian GNU/Linux", VERSION_ID="13",
                 VERSION="13 (trixie)", VERSION_CODENAME="trixie", DEBIAN_VERSION_FULL="13.1", ID="debian")  # fmt: skip

ALMA_9 = _rpm(34, _DNF, NAME="AlmaLinux", VERSION="9.7 (Moss Jungle Cat)", ID="almalinux",
              ID_LIKE="rhel centos fedora", VERSION_ID="9.7", PLATFORM_ID="platform:el9",
              PRETTY_NAME="AlmaLinux 9.7 (Moss Jungle Cat)")  # fmt: skip
RHEL_9 = _rpm(34, (*_DNF, "/usr/sbin/subscription-manager"), NAME="Red Hat Enterprise Linux", VERSION="9.7 (Plow)",
              ID="rhel", ID_LIKE="fedora", VERSION_ID="9.7", PLATFORM_ID="platform:el9",
              PRETTY_NAME="Red Hat Enterprise Linux 9.7 (Plow)")  # fmt: skip
RHEL_9_6 = _rpm(34, (*_DNF, "/usr/sbin/subscription-manager"), NAME="Red Hat Enterprise Linux", VERSION="9.6 (Plow)",
                ID="rhel", ID_LIKE="fedora", VERSION_ID="9.6", PLATFORM_ID="platform:el9",
                PRETTY_NAME="Red Hat Enterprise Linux 9.6 (Plow)")  # fmt: skip
ROCKY_9 = _rpm(34, _DNF, NAME="Rocky Linux", VERSION="9.8 (Blue Onyx)", ID="rocky", ID_LIKE="rhel centos fedora",
               VERSION_ID="9.8", PLATFORM_ID="platform:el9", PRETTY_NAME="Rocky Linux 9.8 (Blue Onyx)")  # fmt: skip
ROCKY_10 = _rpm(39, _DNF, NAME="Rocky Linux", VERSION="10.0 (Red Quartz)", ID="rocky", ID_LIKE="rhel centos fedora",
                VERSION_ID="10.0", PLATFORM_ID="platform:el10",
                PRETTY_NAME="Rocky Linux 10.0 (Red Quartz)")  # fmt: skip
ORACLE_8 = _rpm(28, _DNF, NAME="Oracle Linux Server", VERSION="8.10", ID="ol", ID_LIKE="fedora", VARIANT="Server",
                VARIANT_ID="server", VERSION_ID="8.10", PLATFORM_ID="platform:el8",
                PRETTY_NAME="Oracle Linux Server 8.10")  # fmt: skip
CENTOS_7 = _rpm(17, ("/usr/bin/yum", "/usr/bin/rpm", "/usr/bin/dracut", "/usr/bin/systemctl"), NAME="CentOS Linux",
                VERSION="7 (Core)", ID="centos", ID_LIKE="rhel fedora", VERSION_ID="7",
                PRETTY_NAME="CentOS Linux 7 (Core)")  # fmt: skip


def fedora(version: int, glibc: int, variant: str = "Workstation Edition") -> Release:
    """Fedora Linux with dnf."""
    kind = variant.split(" ", maxsplit=1)[0].lower()
    return _rpm(glibc, (*_DNF, "/usr/sbin/akmods", "/usr/bin/mokutil"), NAME="Fedora Linux", ID="fedora",
                VERSION=f"{version} ({variant})", VERSION_ID=str(version), PLATFORM_ID=f"platform:f{version}",
                PRETTY_NAME=f"Fedora Linux {version} ({variant})", VARIANT=variant, VARIANT_ID=kind)  # fmt: skip


SILVERBLUE_42 = _rpm(41, _OSTREE, NAME="Fedora Linux", VERSION="42.20250518.0 (Silverblue)", ID="fedora",
                     VERSION_ID="42", PLATFORM_ID="platform:f42", PRETTY_NAME="Fedora Linux 42.20250518.0 (Silverblue)",
                     VARIANT="Silverblue", VARIANT_ID="silverblue", OSTREE_VERSION="42.20250518.0")  # fmt: skip
BAZZITE_39 = _rpm(38, (*_OSTREE, "/usr/bin/ujust"), NAME="Fedora Linux", VERSION="39.20240117.0 (Kinoite)",
                  ID="bazzite", ID_LIKE="fedora", VERSION_ID="39", PLATFORM_ID="platform:f39",
                  PRETTY_NAME="Bazzite 39 (FROM Fedora Kinoite)", VARIANT="Kinoite", VARIANT_ID="bazzite-nvidia",
                  OSTREE_VERSION="39.20240117.0")  # fmt: skip
AURORA_41 = _rpm(40, (*_OSTREE, "/usr/bin/ujust", "/usr/bin/bootc"), NAME="Aurora", ID="aurora", ID_LIKE="fedora",
                 VERSION="41.20250123.3 (Kinoite)", VERSION_ID="41", PLATFORM_ID="platform:f41",
                 PRETTY_NAME="Aurora-dx (Version: stable-daily-41.20250123.3 / FROM Fedora Kinoite 41)",
                 VARIANT_ID="aurora-dx-nvidia", OSTREE_VERSION="41.20250123.3")  # fmt: skip

LEAP_16 = _rpm(40, _ZYPP, NAME="openSUSE Leap", VERSION="16.0", ID="opensuse-leap", ID_LIKE="suse opensuse",
               VERSION_ID="16.0", PRETTY_NAME="openSUSE Leap 16.0")  # fmt: skip
LEAP_15 = _rpm(38, _ZYPP, NAME="openSUSE Leap", VERSION="15.6", ID="opensuse-leap", ID_LIKE="suse opensuse",
               VERSION_ID="15.6", PRETTY_NAME="openSUSE Leap 15.6")  # fmt: skip
TUMBLEWEED = _rpm(40, _ZYPP, NAME="openSUSE Tumbleweed", ID="opensuse-tumbleweed", ID_LIKE="opensuse suse",
                  VERSION_ID="20241226", PRETTY_NAME="openSUSE Tumbleweed")  # fmt: skip
SLE_MICRO_55 = _rpm(31, (*_ZYPP, "/usr/sbin/transactional-update"), NAME="SLE Micro", VERSION="5.5", VERSION_ID="5.5",
                    PRETTY_NAME="SUSE Linux Enterprise Micro 5.5", ID="sle-micro", ID_LIKE="suse")  # fmt: skip
SLES_15 = _rpm(38, _ZYPP, NAME="SLES", VERSION="15-SP6", VERSION_ID="15.6", ID="sles", ID_LIKE="suse",
               PRETTY_NAME="SUSE Linux Enterprise Server 15 SP6")  # fmt: skip

AL2 = _rpm(26, ("/usr/bin/yum", "/usr/bin/amazon-linux-extras", "/usr/bin/rpm", "/usr/bin/systemctl"),
           NAME="Amazon Linux", VERSION="2", ID="amzn", ID_LIKE="centos rhel fedora", VERSION_ID="2",
           PRETTY_NAME="Amazon Linux 2")  # fmt: skip
AL2023 = _rpm(34, ("/usr/bin/dnf", "/usr/bin/rpm", "/usr/bin/dracut", "/usr/bin/systemctl"), NAME="Amazon Linux",
              VERSION="2023", ID="amzn", ID_LIKE="fedora", VERSION_ID="2023", PLATFORM_ID="platform:al2023",
              PRETTY_NAME="Amazon Linux 2023.10.20260105")  # fmt: skip
AZL3 = Release(_lines(NAME="Microsoft Azure Linux", VERSION="3.0.20250402", ID="azurelinux", VERSION_ID="3.0",
                      PRETTY_NAME="Microsoft Azure Linux 3.0"), 38, "/usr/lib", "rpm",
               ("/usr/bin/tdnf", "/usr/bin/dnf", "/usr/bin/rpm", "/usr/bin/systemctl"))  # fmt: skip
MARINER_2 = Release(_lines(NAME="Common Base Linux Mariner", VERSION="2.0.20240425", ID="mariner", VERSION_ID="2.0",
                           PRETTY_NAME="CBL-Mariner/Linux"), 35, "/usr/lib", "rpm",
                    ("/usr/bin/tdnf", "/usr/bin/dnf", "/usr/bin/yum", "/usr/bin/rpm",
                     "/usr/bin/systemctl"))  # fmt: skip

ARCH = Release(_lines(NAME="Arch Linux", PRETTY_NAME="Arch Linux", ID="arch", BUILD_ID="rolling"), 42, "/usr/lib",
               "pacman", ("/usr/bin/pacman", "/usr/bin/mkinitcpio", "/usr/bin/systemctl"))  # fmt: skip
NIXOS = Release(_lines(NAME="NixOS", ID="nixos", VERSION_ID="26.05", VERSION_CODENAME="yarara",
                       VERSION="26.05 (Yarara)", PRETTY_NAME="NixOS 26.05 (Yarara)"), 42,
                "/nix/store/00000000000000000000000000000000-glibc-2.42/lib", "nix",
                ("/run/current-system/sw/bin/nixos-rebuild", "/run/current-system/sw/bin/nix"))  # fmt: skip
FLATCAR = Release(_lines(NAME="Flatcar Container Linux by Kinvolk", ID="flatcar", ID_LIKE="coreos", VERSION="4230.2.2",
                         VERSION_ID="4230.2.2", SYSEXT_LEVEL="1.0", FLATCAR_BOARD="amd64-usr",
                         PRETTY_NAME="Flatcar Container Linux by Kinvolk 4230.2.2 (Oklo)"), 40, "/usr/lib64", "",
                  ("/usr/bin/systemctl", "/usr/bin/systemd-sysext", "/usr/bin/docker"))  # fmt: skip
COS = Release(_lines(NAME="Container-Optimized OS", ID="cos", VERSION="113", VERSION_ID="113", BUILD_ID="18244.85.29",
                     PRETTY_NAME="Container-Optimized OS from Google"), 35, "/usr/lib64", "",
              ("/usr/bin/systemctl", "/usr/bin/docker", "/usr/bin/cos-extensions"))  # fmt: skip
TALOS = Release(_lines(NAME="Talos", ID="talos", VERSION_ID="v1.12.0", PRETTY_NAME="Talos (v1.12.0)"), 42,
                "/usr/local/glibc/usr/lib", "", ())  # fmt: skip

ALPINE_318 = Release('NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.18.0\nPRETTY_NAME="Alpine Linux v3.18"\n', MUSL,
                     "/usr/lib", "apk", ("/sbin/apk",))  # fmt: skip
ALPINE_321 = Release('NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.21.0\nPRETTY_NAME="Alpine Linux v3.21"\n', MUSL,
                     "/usr/lib", "apk", ("/sbin/apk",))  # fmt: skip
VOID_MUSL = Release('NAME="Void"\nID="void"\nPRETTY_NAME="Void Linux"\nDISTRIB_ID="void"\n', MUSL, "/usr/lib", "xbps",
                    ("/usr/bin/xbps-install", "/usr/bin/xbps-query"))  # fmt: skip
VOID_GLIBC = Release(VOID_MUSL.text, 41, "/usr/lib", "xbps", VOID_MUSL.programs)
WOLFI = Release(_lines(ID="wolfi", NAME="Wolfi", PRETTY_NAME="Wolfi", VERSION_ID="20230201"), 42, "/usr/lib", "apk",
                ("/sbin/apk",))  # fmt: skip

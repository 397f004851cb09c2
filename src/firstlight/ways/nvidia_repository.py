"""Package repositories beside the system's own: NVIDIA's, RPM Fusion, EPEL, and Debian's own non-free parts."""

from __future__ import annotations

from firstlight.tables.system_rows import Family, Role
from firstlight.ways.platform import Platform
from firstlight.ways.system_names import names_for, shipped

REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"
NVIDIA, RPM_FUSION, EPEL, DEBIAN_NONFREE = "nvidia", "rpmfusion", "epel", "debian-nonfree"
WORDS = {
    NVIDIA: "NVIDIA's package repository",
    RPM_FUSION: "RPM Fusion's package repositories",
    EPEL: "the package repository EPEL, which has dkms",
    DEBIAN_NONFREE: "contrib and non-free of Debian",
}


def repository_of(platform: Platform) -> str:
    """The folder of NVIDIA's network repository, e.g. .../ubuntu2404/x86_64; '' where the tables have none."""
    found = addresses_of(NVIDIA, platform)
    if not found and platform.family is Family.SUSE:  # of 15 NVIDIA has one for openSUSE and one for SLES
        of_15 = "nvidia-opensuse" if platform.distribution.startswith("opensuse") else "nvidia-sles"
        found = addresses_of(of_15, platform)
    return found[0] if found else ""


def addresses_of(name: str, platform: Platform) -> tuple[str, ...]:
    """The addresses of a repository for this system; of Debian's own the address, the suite and the components."""
    return names_for(Role.REPOSITORY, platform, shipped(), of=name)


def is_known(name: str, platform: Platform) -> bool:
    """Whether the tables have the repository for this system."""
    return bool(repository_of(platform) if name == NVIDIA else addresses_of(name, platform))

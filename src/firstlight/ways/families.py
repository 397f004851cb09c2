"""Which family of distributions a system belongs to, and which release of it: Mint 22 is Ubuntu 24.04."""

from __future__ import annotations

import re

from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import Known, value_or
from firstlight.facts.place import PlaceFacts
from firstlight.tables.system_rows import Family

# ID and the words of ID_LIKE. Amazon's and Azure's say fedora or nothing there, so their own names come first.
_BY_NAME = {
    "ubuntu": Family.UBUNTU,
    "debian": Family.DEBIAN,
    "rhel": Family.RHEL,
    "rocky": Family.RHEL,
    "almalinux": Family.RHEL,
    "centos": Family.RHEL,
    "ol": Family.RHEL,
    "fedora": Family.FEDORA,
    "suse": Family.SUSE,
    "sles": Family.SUSE,
    "opensuse": Family.SUSE,
    "opensuse-leap": Family.SUSE,
    "opensuse-tumbleweed": Family.SUSE,
    "amzn": Family.AMAZON,
    "azurelinux": Family.AZURE,
    "mariner": Family.AZURE,
    "arch": Family.ARCH,
    "archlinux": Family.ARCH,
    "nixos": Family.NIXOS,
    "alpine": Family.ALPINE,
}
_BY_IMAGE = {
    ImageSystem.OSTREE: Family.OSTREE,
    ImageSystem.NIXOS: Family.NIXOS,
    ImageSystem.GUIX: Family.IMAGE,
    ImageSystem.TALOS: Family.IMAGE,
    ImageSystem.BOTTLEROCKET: Family.IMAGE,
    ImageSystem.FLATCAR: Family.IMAGE,
    ImageSystem.COS: Family.IMAGE,
    ImageSystem.UBUNTU_CORE: Family.IMAGE,
    ImageSystem.STEAMOS: Family.IMAGE,
    ImageSystem.OTHER: Family.IMAGE,
    ImageSystem.TRANSACTIONAL: Family.SUSE,  # zypper's packages, put into the next snapshot
}
# wiki.ubuntu.com/Releases and wiki.debian.org/DebianReleases.
_RELEASES = {
    "bionic": "18.04",
    "focal": "20.04",
    "jammy": "22.04",
    "noble": "24.04",
    "oracular": "24.10",
    "plucky": "25.04",
    "questing": "25.10",
    "resolute": "26.04",
    "buster": "10",
    "bullseye": "11",
    "bookworm": "12",
    "trixie": "13",
    "forky": "14",
}
_PLATFORM = r"(?:el|f|al)(\d{1,4})"  # PLATFORM_ID: el9, f42, al2023


def family_of(place: PlaceFacts) -> Family:
    """The family, e.g. UBUNTU for Pop!_OS and Mint, OSTREE for Silverblue; OTHER where nothing names one."""
    image = _BY_IMAGE.get(value_or(place.image_based, ImageSystem.NONE))
    if image is not None:
        return image
    for name in (value_or(place.os_id, ""), *value_or(place.os_like, ())):
        if name in _BY_NAME:
            return _BY_NAME[name]
    return Family.OTHER


def release_of(place: PlaceFacts) -> str:
    """The release of the family: of a derivative that of the system it is made from; "" where it is not known."""
    own, number = value_or(place.os_id, ""), value_or(place.os_version, "")
    if own in _BY_NAME and number:
        return number
    named = (value_or(fact, "") for fact in (place.os_base, place.os_codename))
    found = next((_RELEASES[name] for name in named if name in _RELEASES), "")
    if found or not isinstance(place.os_base, Known):
        return found or ("" if _is_from_names(place) else number)
    base = re.fullmatch(_PLATFORM, place.os_base.value)
    return number if base is None or number.split(".")[0] == base[1] else base[1]


def _is_from_names(place: PlaceFacts) -> bool:
    """Whether a derivative counts its own releases: of Ubuntu's and Debian's the number then says nothing."""
    derived = value_or(place.os_id, "") not in _BY_NAME
    return derived and family_of(place) in (Family.UBUNTU, Family.DEBIAN)

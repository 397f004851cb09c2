"""Systems whose programs come with an image or a description, so that no package is installed beside them."""

from __future__ import annotations

import enum

from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.os_release import OsNames
from firstlight.facts.presence import presence
from firstlight.machine import Machine

_OSTREE = "/run/ostree-booted"  # made by ostree at every start; bootc systems have it too


class ImageSystem(enum.Enum):
    """What the system's own programs come from, where a package manager does not put them there one by one."""

    NONE = "none"
    OSTREE = "ostree"  # Silverblue, CoreOS, Bazzite, bootc: rpm-ostree or a new image
    NIXOS = "nixos"
    GUIX = "guix"
    TRANSACTIONAL = "transactional-update"  # openSUSE MicroOS, SLE Micro
    TALOS = "talos"
    BOTTLEROCKET = "bottlerocket"
    FLATCAR = "flatcar"
    COS = "cos"  # Container-Optimized OS
    UBUNTU_CORE = "ubuntu-core"
    STEAMOS = "steamos"
    OTHER = "other"


_BY_ID = {
    "nixos": ImageSystem.NIXOS,
    "guix": ImageSystem.GUIX,
    "opensuse-microos": ImageSystem.TRANSACTIONAL,
    "opensuse-leap-micro": ImageSystem.TRANSACTIONAL,
    "opensuse-aeon": ImageSystem.TRANSACTIONAL,
    "opensuse-kalpa": ImageSystem.TRANSACTIONAL,
    "sle-micro": ImageSystem.TRANSACTIONAL,
    "sl-micro": ImageSystem.TRANSACTIONAL,
    "suse-microos": ImageSystem.TRANSACTIONAL,
    "talos": ImageSystem.TALOS,
    "bottlerocket": ImageSystem.BOTTLEROCKET,
    "flatcar": ImageSystem.FLATCAR,
    "cos": ImageSystem.COS,
    "ubuntu-core": ImageSystem.UBUNTU_CORE,
    "steamos": ImageSystem.STEAMOS,
    "vanilla": ImageSystem.OTHER,
    "endless": ImageSystem.OSTREE,
    "rhcos": ImageSystem.OSTREE,
    "bazzite": ImageSystem.OSTREE,
    "bluefin": ImageSystem.OSTREE,
    "aurora": ImageSystem.OSTREE,
    "ublue-os": ImageSystem.OSTREE,
}
# Fedora's and Red Hat's image editions keep the plain system's ID.
_BY_VARIANT = frozenset(
    ("silverblue", "kinoite", "sericea", "onyx", "sway-atomic", "budgie-atomic", "cosmic-atomic", "coreos", "iot",
     "atomic.host", "bazzite", "bazzite-nvidia", "bluefin", "aurora", "ucore")
)  # fmt: skip


def probe_image_system(machine: Machine, names: OsNames) -> Fact[ImageSystem]:
    """What the system is made from, e.g. ostree; NONE where packages are installed one by one."""
    booted = presence(machine, _OSTREE)
    if isinstance(booted, Known) and booted.value:
        return Known(ImageSystem.OSTREE, seen_in=_OSTREE)
    found = _BY_ID.get(value_or(names.id, ""))
    if found is not None and isinstance(names.id, Known):
        return Known(found, seen_in=names.id.seen_in)
    variant = names.variant
    if isinstance(variant, Known) and variant.value in _BY_VARIANT:
        return Known(ImageSystem.OSTREE, seen_in=f"VARIANT_ID in {variant.seen_in}")
    if isinstance(names.id, Unknown):
        return names.id
    return Known(ImageSystem.NONE, seen_in=names.id.seen_in)

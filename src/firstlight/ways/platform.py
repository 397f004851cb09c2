"""What commands depend on: family, release, container, guest, boot system, C library, rights. Made from facts once."""

from __future__ import annotations

import enum

from firstlight.facts.ability import Sudo
from firstlight.facts.boot_system import EarlyImage, ModuleBuilder
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider
from firstlight.facts.device_numbers import DeviceNumber
from firstlight.facts.gpus import PciKind
from firstlight.facts.image_systems import ImageSystem
from firstlight.facts.known import Known, value_or
from firstlight.facts.runtime_libraries import Libc
from firstlight.frozen import dataclass
from firstlight.tables.system_rows import Family
from firstlight.ways.families import family_of, release_of
from firstlight.ways.guests import GuestKind, guest_of

__all__ = ["EarlyImage", "Family", "GuestKind", "ImageSystem", "Libc", "ModuleBuilder"]  # besides what is here

_EARLY_IMAGES = {
    Family.UBUNTU: EarlyImage.INITRAMFS_TOOLS,
    Family.DEBIAN: EarlyImage.INITRAMFS_TOOLS,
    Family.RHEL: EarlyImage.DRACUT,
    Family.FEDORA: EarlyImage.DRACUT,
    Family.SUSE: EarlyImage.DRACUT,
    Family.AMAZON: EarlyImage.DRACUT,
    Family.AZURE: EarlyImage.DRACUT,
    Family.ARCH: EarlyImage.MKINITCPIO,
}


# Where the files did not tell: Image-based systems but NixOS may have either, so they are not here.
_LIBCS = {**dict.fromkeys((*_EARLY_IMAGES, Family.NIXOS, Family.OSTREE), Libc.GLIBC), Family.ALPINE: Libc.MUSL}


class Manager(enum.Enum):
    """The package manager of the system."""

    APT = "apt"
    DNF = "dnf"
    YUM = "yum"
    TDNF = "tdnf"
    ZYPPER = "zypper"
    PACMAN = "pacman"
    NONE = "none"  # another one, or none: no package step is offered

    @property
    def is_rpm(self) -> bool:
        """Whether rpm keeps the packages."""
        return self in (Manager.DNF, Manager.YUM, Manager.TDNF, Manager.ZYPPER)


_PROGRAMS = {
    "apt-get": Manager.APT,
    "apt": Manager.APT,
    "dnf": Manager.DNF,
    "yum": Manager.YUM,
    "tdnf": Manager.TDNF,
    "zypper": Manager.ZYPPER,
    "pacman": Manager.PACMAN,
}
_OWN_MANAGERS: dict[Family, tuple[Manager, ...]] = {
    Family.UBUNTU: (Manager.APT,),
    Family.DEBIAN: (Manager.APT,),
    Family.RHEL: (Manager.DNF, Manager.YUM),
    Family.FEDORA: (Manager.DNF,),
    Family.AMAZON: (Manager.DNF, Manager.YUM),
    Family.AZURE: (Manager.TDNF, Manager.DNF),
    Family.SUSE: (Manager.ZYPPER,),
    Family.ARCH: (Manager.PACMAN,),
}


@dataclass(frozen=True, slots=True)
class Platform:
    """Distribution, container and rights at one machine, e.g. ubuntu 24.04, apt, docker, root."""

    distribution: str  # os-release's ID, "" where it is not known
    release: str  # of the family: 24.04 on Mint 22
    arch: str
    kernel: str
    manager: Manager
    container: ContainerKind
    guest: GuestKind
    is_root: bool
    has_sudo: bool
    has_docker: bool = False  # this user may start containers
    family: Family = Family.OTHER
    rootless: bool = False  # root in this container is a plain user of the host
    early_image: EarlyImage | None = None  # None: not known, or another
    module_builders: tuple[ModuleBuilder, ...] = ()  # of what is installed; () also where nobody looked
    libc: Libc | None = None  # None: not known
    image_based: ImageSystem = ImageSystem.NONE
    engines: tuple[str, ...] = ()  # docker, podman, ... on PATH
    labelled: bool = False  # SELinux keeps containers from devices that are not theirs
    device_numbers: tuple[DeviceNumber, ...] = ()  # (): not known
    in_slurm: bool = False  # in a job of Slurm
    gpu_count: int = 0  # on the bus or by NVML; 0: not known

    @property
    def in_container(self) -> bool:
        return self.container is not ContainerKind.NONE

    @property
    def has_no_kernel(self) -> bool:
        """Whether kernel modules and services are somebody else's: in a container, under Windows."""
        return self.in_container or self.guest in (GuestKind.WSL1, GuestKind.WSL2)

    @property
    def is_image_based(self) -> bool:
        """Whether the system's own programs come with an image: nothing is installed into it step by step."""
        return self.image_based is not ImageSystem.NONE and not self.in_container


def platform_of(facts: Facts) -> Platform:
    """The platform of a machine."""
    socket, libc = facts.container.runtime.docker_socket, facts.runtime.libc
    family = family_of(facts.place)
    image = value_or(facts.place.image_based, ImageSystem.NONE)
    return Platform(
        distribution=value_or(facts.place.os_id, ""),
        release=release_of(facts.place),
        arch=facts.place.arch,
        kernel=facts.place.kernel_release,
        manager=Manager.NONE if image is not ImageSystem.NONE else _manager_of(facts, family),
        container=value_or(facts.container.kind, ContainerKind.NONE),
        guest=guest_of(facts),
        is_root=facts.ability.is_root,
        has_sudo=facts.ability.sudo is not Sudo.ABSENT,
        has_docker=isinstance(socket, Known) and socket.value,
        family=family,
        rootless=value_or(facts.container.rootless, default=False),
        early_image=_early_image(facts, family),
        module_builders=value_or(facts.place.boot.module_builders, ()),
        libc=libc.value if isinstance(libc, Known) else _LIBCS.get(family),
        image_based=image,
        engines=facts.container.runtime.engines,
        labelled=_is_labelled(facts),
        device_numbers=facts.container.device_numbers,
        in_slurm=any(seen.provider is Provider.SLURM for seen in facts.container.providers),
        gpu_count=max(len(facts.gpus.devices), sum(each.kind is PciKind.GPU for each in facts.gpus.pci)),
    )


def _is_labelled(facts: Facts) -> bool:
    """Whether this process runs under a label of SELinux that is enforced, as far as can be seen from here."""
    label, enforced = facts.container.label, facts.container.label_enforced
    return isinstance(label, Known) and label.value.startswith("container_") and value_or(enforced, default=True)


def _early_image(facts: Facts, family: Family) -> EarlyImage | None:
    """The tool that is here; where nobody looked, the one that the family comes with."""
    found = facts.place.boot.early_image
    return found.value if isinstance(found, Known) else _EARLY_IMAGES.get(family)


def _manager_of(facts: Facts, family: Family) -> Manager:
    """The family's own that is here; where nobody looked, the one that the family comes with."""
    there, own = facts.ability.package_managers, _OWN_MANAGERS.get(family, ())
    if not there:
        return own[0] if own else Manager.NONE
    programs = {_PROGRAMS[name] for name in there if name in _PROGRAMS}
    found = next((each for each in own if each in programs), None)
    return found or (next((each for each in Manager if each in programs), Manager.NONE))

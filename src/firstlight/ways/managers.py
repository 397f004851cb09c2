"""What each package manager is told: to install, remove and hold packages, and to choose a stream of them."""

from __future__ import annotations

from firstlight.versions import DriverVersion
from firstlight.ways.back import Argv
from firstlight.ways.platform import Manager, Platform

_INSTALL: dict[Manager, Argv] = {
    Manager.APT: ("apt-get", "install", "--yes"),
    Manager.DNF: ("dnf", "install", "--assumeyes"),
    Manager.YUM: ("yum", "install", "--assumeyes"),
    Manager.TDNF: ("tdnf", "install", "--assumeyes"),
    Manager.ZYPPER: ("zypper", "--non-interactive", "install"),
    Manager.PACMAN: ("pacman", "--sync", "--noconfirm", "--needed"),
}
_REMOVE: dict[Manager, Argv] = {
    Manager.APT: ("apt-get", "remove", "--yes"),
    Manager.DNF: ("dnf", "remove", "--assumeyes"),
    Manager.YUM: ("yum", "remove", "--assumeyes"),
    Manager.TDNF: ("tdnf", "remove", "--assumeyes"),
    Manager.ZYPPER: ("zypper", "--non-interactive", "remove"),
    Manager.PACMAN: ("pacman", "--remove", "--noconfirm"),
}
_AGAIN: dict[Manager, Argv] = {
    Manager.APT: ("apt-get", "install", "--reinstall", "--yes"),
    Manager.DNF: ("dnf", "reinstall", "--assumeyes"),
    Manager.YUM: ("yum", "reinstall", "--assumeyes"),
    Manager.TDNF: ("tdnf", "reinstall", "--assumeyes"),
    Manager.ZYPPER: ("zypper", "--non-interactive", "install", "--force"),
    Manager.PACMAN: ("pacman", "--sync", "--noconfirm"),
}
# tdnf and pacman hold packages by their configuration files alone.
_HOLD: dict[Manager, Argv] = {
    Manager.APT: ("apt-mark", "hold"),
    Manager.DNF: ("dnf", "versionlock", "add"),
    Manager.YUM: ("yum", "versionlock", "add"),
    Manager.ZYPPER: ("zypper", "addlock"),
}
_EQUALS = (Manager.APT, Manager.ZYPPER)
# Without it apt refuses, and zypper does nothing and ends with 0; dnf goes back as it goes forward.
_GOES_BACK = {Manager.APT: "--allow-downgrades", Manager.ZYPPER: "--oldpackage"}


def of_driver(version: DriverVersion) -> str:
    """One driver as a package manager is told: 570.133.20*, and 575.64-*, because 575.64* is 575.64.03 too."""
    return f"{version}-*" if str(version).count(".") == 1 else f"{version}*"


def versioned(package: str, version: str, platform: Platform) -> str:
    """A package in a version as its manager is told: libcuda=570.133.20* of apt, libcuda-570.133.20* of dnf."""
    if not version or platform.manager is Manager.PACMAN:  # pacman has one version of each
        return package
    if platform.manager is Manager.ZYPPER:  # a version without its release stands for every release of it
        version = version.removesuffix("-*")
    return f"{package}{'=' if platform.manager in _EQUALS else '-'}{version}"


def installed(packages: tuple[str, ...], platform: Platform, *, version: str = "") -> Argv:
    """The command that installs packages, without sudo; () where no manager is known."""
    argv = _INSTALL.get(platform.manager, ())
    if argv and version and platform.manager in _GOES_BACK:
        argv = (*argv, _GOES_BACK[platform.manager])  # a newer build of the same package may be there
    return (*argv, *(versioned(each, version, platform) for each in packages)) if argv else ()


def again(packages: tuple[str, ...], platform: Platform) -> Argv:
    """The command that writes the files of installed packages anew; () where no manager is known."""
    argv = _AGAIN.get(platform.manager, ())
    return (*argv, *packages) if argv else ()


def taken_out(packages: tuple[str, ...], platform: Platform, *, settings: bool = False) -> Argv:
    """The command that removes packages, with their settings where the manager can be told."""
    argv = _REMOVE.get(platform.manager, ())
    if settings and platform.manager is Manager.APT:
        argv = ("apt-get", "purge", "--yes")
    return (*argv, *packages) if argv else ()


def held(packages: tuple[str, ...], platform: Platform) -> Argv:
    """The command that keeps packages at their version; () where the manager has none."""
    argv = _HOLD.get(platform.manager, ())
    return (*argv, *packages) if argv else ()


def reset_and_enabled(stream: str) -> tuple[Argv, ...]:
    """dnf told to take a module from one stream: another one that was chosen before would be in the way."""
    module = stream.partition(":")[0]
    return (("dnf", "module", "reset", "--assumeyes", module), ("dnf", "module", "enable", "--assumeyes", stream))

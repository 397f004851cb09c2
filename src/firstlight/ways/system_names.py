"""What the system at hand calls a thing: the one door to package names, repositories, folders, services."""

from __future__ import annotations

import functools
import re

from firstlight.tables import Tables, load
from firstlight.tables.system_rows import Family, Role, RowKind, SystemName
from firstlight.ways.platform import Platform

_SLOT = r"\\\{(\w+)\\\}"  # as re.escape writes {branch}
_FILLS = {"branch": r"(?:\d{3}|\*)", "number": r"\d{1,2}", "major": r"\d{1,2}", "minor": r"\d{1,2}"}
_ANY = "[0-9A-Za-z.+~_-]+"  # a kernel, a release
_NAMED = (RowKind.PACKAGES, RowKind.UNIT, RowKind.PATH)
_ARCH_KERNELS = ("lts", "zen", "hardened")
# Kernels beside the plain one whose packages have names of their own there: 6.6.35.1-rt34-1.azl3, 5.14.0-503.el9+64k.
_RPM_FAMILIES = (Family.RHEL, Family.FEDORA, Family.AMAZON, Family.AZURE)
_LARGE_PAGES = "64k"
_PROXMOX = "pve"  # a host of Proxmox VE: Debian with a kernel of its own, 6.8.12-4-pve
_OTHER_KERNEL = r"[-.+](rt|64k|debug)\d*(?=[-.+]|$)"


def rows_for(
    role: Role, platform: Platform, tables: Tables, *, flavour: str = "", of: str = "", number: int = 0
) -> tuple[SystemName, ...]:
    """The rows of a role that fit, best first: those for the very thing (`of`) before those for any."""
    rows = tables.system_names(role, platform.family, release=platform.release, arch=platform.arch)
    fitting = [
        row
        for row in rows
        if row.flavour in ("", flavour)
        and row.of in ("", of)
        and (not number or not row.numbers or number in row.numbers)
    ]
    return tuple(sorted(fitting, key=lambda row: row.of != of))


def name_row(
    role: Role, platform: Platform, tables: Tables, *, flavour: str = "", of: str = "", number: int = 0
) -> SystemName | None:
    """The first row of a role that fits; None: the tables have none, and the way is by a person."""
    return next(iter(rows_for(role, platform, tables, flavour=flavour, of=of, number=number)), None)


def names_for(
    role: Role, platform: Platform, tables: Tables, *, flavour: str = "", of: str = "", number: int = 0, **slots: str
) -> tuple[str, ...]:
    """The names with their slots filled: nvidia-driver-580-server-open for DRIVER, branch="580" on Ubuntu."""
    row = name_row(role, platform, tables, flavour=flavour, of=of, number=number)
    return () if row is None else filled(row, platform, **slots)


def filled(row: SystemName, platform: Platform, **slots: str) -> tuple[str, ...]:
    """The names of a row for this system."""
    return tuple(name.format_map(_given(platform, slots)) for name in row.names)


def version_of(row: SystemName, platform: Platform, **slots: str) -> str:
    """What the package manager is told beside the name, e.g. 580*; "" = its newest."""
    return row.version.format_map(_given(platform, slots))


def _given(platform: Platform, slots: dict[str, str]) -> dict[str, str]:
    kernel_version, _, variant = platform.kernel.rpartition("-")
    return {
        "kernel": platform.kernel,
        "kernel_plain": platform.kernel.partition("+")[0],  # without the +64k of Red Hat's kernel for Arm
        "kernel_version": kernel_version,
        "kernel_variant": variant,  # default, azure: what SUSE ends its kernels' names with
        "kernel_flavour": _flavour(platform.kernel),
        "arch": platform.arch,
        "nvidia_arch": "sbsa" if platform.arch == "aarch64" else platform.arch,
        "release": platform.release,
        "major_release": platform.release.partition(".")[0],
        **slots,
    }


def _flavour(kernel: str) -> str:
    """What Ubuntu's packages for all kernels of a series end with: generic-6.8 of 6.8.0-60-generic."""
    version, *rest = kernel.split("-", 2)
    return f"{''.join(rest[1:])}-{'.'.join(version.split('.')[:2])}"


def kernel_kind(platform: Platform) -> str:
    """Which of a family's kernels runs, where their packages have names of their own: lts of Arch, uek of Oracle."""
    kernel = platform.kernel
    if platform.family is Family.ARCH:
        own = next((each for each in _ARCH_KERNELS if kernel.endswith(f"-{each}")), "")
        return own or ("linux" if "-arch" in kernel else "other-kernel")
    if platform.family is Family.DEBIAN and kernel.endswith(f"-{_PROXMOX}"):
        return _PROXMOX
    if platform.family is Family.AMAZON and kernel.startswith("6.12."):
        return "6.12"
    if platform.family is Family.RHEL and _has_large_pages(platform):
        return _LARGE_PAGES
    return "uek" if platform.family is Family.RHEL and "uek" in kernel else ""


def _has_large_pages(platform: Platform) -> bool:
    """Whether it is the kernel with 64 KiB pages that Red Hat has beside the plain one for Arm, from 9 on."""
    major = platform.release.partition(".")[0]
    return platform.kernel.endswith(f"+{_LARGE_PAGES}") and major.isdecimal() and int(major) >= 9


def other_kernel(platform: Platform) -> str:
    """rt, 64k or debug where such a kernel runs and the rows are of the plain one's packages; "" where they fit."""
    if platform.family is Family.RHEL and _has_large_pages(platform):
        return ""
    match = re.search(_OTHER_KERNEL, platform.kernel) if platform.family in _RPM_FAMILIES else None
    return match[1] if match is not None else ""


def headers_row(platform: Platform, tables: Tables) -> SystemName | None:
    """The row of the headers of the kernel that runs; None where the tables have those of other kernels alone."""
    if other_kernel(platform):
        return None
    return name_row(Role.KERNEL_HEADERS, platform, tables, of=kernel_kind(platform))


def roles_of(name: str, platform: Platform, tables: Tables) -> tuple[SystemName, ...]:
    """The rows of this family that have a name, whatever is filled into their slots: the driver's for nvidia-open."""
    return tuple(
        row
        for row in tables.system_name_rows
        if row.family is platform.family
        and row.kind in _NAMED
        and any(name.startswith(each.partition("{")[0]) and _pattern(each).fullmatch(name) for each in row.names)
    )


def renamed_libraries(packages: tuple[str, ...], family: Family, release: str, tables: Tables) -> tuple[str, ...]:
    """Libraries' packages of Debian 12 as this release calls them: librdmacm1t64 on Ubuntu 24.04.

    () on a system that is neither, and where it has none for one of them.
    """
    if family not in (Family.UBUNTU, Family.DEBIAN):
        return ()
    found: list[str] = []
    for package in packages:
        rows = [row for row in tables.system_names(Role.LIBRARY, family, release=release) if row.of == package]
        if rows and not rows[0].names:
            return ()
        found += rows[0].names if rows else (package,)
    return tuple(found)


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.sub(_SLOT, lambda slot: _FILLS.get(slot[1], _ANY), re.escape(name)))


@functools.cache
def shipped() -> Tables:
    """The tables that come with the package, for commands, which are made from a way and a platform alone."""
    return load()

"""Which package installed the driver libraries that load, read from the package databases' own files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.facts.driver import DriverFacts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.libcuda import LibcudaFacts
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import DriverVersion

_DPKG = "/var/lib/dpkg/info"
_PACMAN = "/var/lib/pacman/local"
_RPM = tuple(
    f"{folder}/{name}"
    for folder in ("/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm")
    for name in ("rpmdb.sqlite", "Packages.db", "Packages")
)
_RPM_LIMIT = 256 << 20
_NAMES = ("*nvidia*", "*cuda*")  # how packages that hold driver libraries are called
_MOST_PACKAGES = 40
NOT_NAMED = "?"  # rpm has the file, and rpm could not be asked for the package


@dataclass(frozen=True, slots=True)
class FileOwner:
    """A file and the package that put it there, e.g. libnvidia-ml.so.560.35.03 of libnvidia-compute-560 (dpkg)."""

    path: str
    package: str
    database: str  # dpkg, rpm, pacman


def probe_owners(machine: Machine, driver: DriverFacts, libcuda: LibcudaFacts) -> Fact[tuple[FileOwner, ...]]:
    """The packages of the NVML and libcuda that load; looked up where one is of another version than the module."""
    kernel = driver.kernel_version
    if isinstance(kernel, Unknown):
        return Unknown("not looked up: no driver is loaded")
    paths = tuple(dict.fromkeys(_of_another_version(kernel.value, driver, libcuda)))
    if not paths:
        return Unknown(
            "not looked up: the driver's libraries are of the module's version, or their version is not known"
        )
    looked, found = [], []
    for database, look in (("dpkg", _by_dpkg), ("pacman", _by_pacman), ("rpm", _by_rpm)):
        owners = [(path, look(machine, path)) for path in paths]
        if any(owner is not None for _, owner in owners):
            looked.append(database)
            found += [FileOwner(path, owner, database) for path, owner in owners if owner]
    if not looked:
        return Unknown("no package database of dpkg, rpm or pacman can be read")
    return Known(tuple(found), ", ".join(looked))


def _of_another_version(kernel: DriverVersion, driver: DriverFacts, libcuda: LibcudaFacts) -> Iterator[str]:
    nvml, loads = driver.nvml_library, libcuda.would_load
    version = driver.nvml_library_version
    if isinstance(nvml, Known) and isinstance(version, Known) and version.value != kernel:
        yield nvml.value
    if isinstance(loads, Known):
        number, library = loads.value.version, loads.value
        on_purpose = library.is_compat or library.is_stub  # the rules about those know where they come from
        if isinstance(number, Known) and number.value != kernel and not on_purpose:
            yield loads.value.real_path


def _by_dpkg(machine: Machine, path: str) -> str | None:
    """The package, '' where none has it, None where there is no such database."""
    if machine.stat(_DPKG) is None:
        return None
    names = dict.fromkeys(name for each in _NAMES for name in machine.list(_DPKG, f"{each}.list"))
    for name in tuple(names)[:_MOST_PACKAGES]:
        if _holds(machine, f"{_DPKG}/{name}", path):
            return name.removesuffix(".list").partition(":")[0]
    done = machine.run(("dpkg", "-S", path))  # it knows of diversions, which the lists do not
    package = done.first_line.partition(":")[0]
    return package if done.ok and re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", package) else ""


def _by_pacman(machine: Machine, path: str) -> str | None:
    if machine.stat(_PACMAN) is None:
        return None
    for name in dict.fromkeys(name for each in _NAMES for name in machine.list(_PACMAN, each)):
        if _holds(machine, f"{_PACMAN}/{name}/files", path):
            return name.rsplit("-", 2)[0]  # nvidia-utils-565.57.01-1
    return ""


def _holds(machine: Machine, listing: str, path: str) -> bool:
    """Whether a list of files names this one: by its own name, since /lib may be a link to /usr/lib."""
    name = re.escape(path.rpartition("/")[2]).encode()
    return bool(machine.search(listing, rb"/" + name + rb"(?=\n|\Z)", limit=1))


def _by_rpm(machine: Machine, path: str) -> str | None:
    """As rpm itself says; where it cannot be asked, its database tells whether some package has the file.

    The database keeps names of files in clear, but the pages of one package apart from each other: which one it is of
    cannot be read off without all of sqlite.
    """
    if not any(machine.stat(database) is not None for database in _RPM):
        return None
    done = machine.run(("rpm", "-qf", path))
    named = done.first_line.rsplit("-", 2)  # nvidia-driver-libs-580.95.05-1.el9.x86_64
    if done.ok and len(named) == 3:
        return named[0]
    if "not owned" in done.stdout + done.stderr:
        return ""
    return _in_rpm_database(machine, path)


def _in_rpm_database(machine: Machine, path: str) -> str | None:
    """NOT_NAMED where the file is in rpm's database, '' where it is not, None where none can be read."""
    name = re.escape(path.rpartition("/")[2]).encode()
    for database in _RPM:
        seen = machine.stat(database)
        if seen is None or seen.kind != "file" or seen.size > _RPM_LIMIT:
            continue
        found = machine.search(database, rb"(?<=\x00)" + name + rb"(?=\x00)", limit=1)
        if found is not None:
            return NOT_NAMED if found else ""
    return None

"""What every reader of lint is given, and what it asks of the machine: the processor, for markers."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import lru_cache
from typing import Union

from firstlight.frozen import dataclass
from firstlight.lint.images import image_named
from firstlight.lint.model import Install, Place, ProjectAsked, Ran, Service, Syntax, Target, Where
from firstlight.lint.shell import Simple

# Text of another file by its path, or None where it cannot be read.
ReadFile = Callable[[str], Union[str, None]]


@dataclass(frozen=True, slots=True)
class Reading:
    """A file to read: its name and text, how files beside it are read, and the processor that it is read for."""

    file: str
    text: str
    syntax: Syntax
    read: ReadFile
    arch: str = "x86_64"
    target: str = ""
    variables: tuple[tuple[str, str], ...] = ()

    def path(self, *parts: str) -> str:
        """The path of a file that this one names, from its own folder."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.file), *parts))

    @property
    def of_platform(self) -> tuple[tuple[str, str], ...]:
        """The arguments that a build has by itself where a Dockerfile declares them: TARGETARCH=arm64."""
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(self.arch, self.arch)
        named = (("OS", "linux"), ("ARCH", arch), ("PLATFORM", f"linux/{arch}"))
        return tuple((f"{side}{name}", value) for side in ("TARGET", "BUILD") for name, value in named)

    def place(self, line: int) -> Place:
        return Place(self.file, line, self.syntax)

    def listed(self, *requirements: ProjectAsked, line: int = 1) -> Install:
        """A list of packages as one install from PyPI."""
        ran = Ran(Simple((posixpath.basename(self.file),), line), self.place(line))
        return Install(ran, requirements, "", (), (), (), "", "pip")

    def packages(self, *installs: Install, name: str = "") -> Target:
        """What a list of packages is to the rules: something installed on the machine itself, in no image."""
        return Target(name, image_named(""), self.place(1), installs, where=Where.MACHINE)


@lru_cache(maxsize=4096)
def marker_holds(marker: str, arch: str, *, python: str = "", extra: str = "") -> bool:
    """Whether a marker such as `platform_machine == 'x86_64'` holds there; one that is no marker holds.

    Where no Python is known it is read for 3.12, so that of two lines for two Pythons one is taken.
    """
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

    version = python or "3.12"
    there = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": arch,
             "python_version": version, "python_full_version": f"{version}.0", "implementation_name": "cpython",
             "platform_python_implementation": "CPython", "platform_release": "", "platform_version": "",
             "extra": extra}  # fmt: skip
    try:
        return not marker.strip() or Marker(marker).evaluate(there)
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True


def plain_service(name: str, place: Place) -> Service:
    """A service that asks for nothing."""
    return Service(name, place, (), gpus=False, runtime="", shm_size="", ipc="")

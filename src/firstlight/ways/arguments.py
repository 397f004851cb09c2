"""What ways take besides names and paths: packages, variables, and the few words that each accepts."""

from __future__ import annotations

import enum

from firstlight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Package:
    """A Python package in one version, e.g. torch 2.9.0+cu128; version "": the newest that the index has."""

    project: str
    version: str = ""
    extras: tuple[str, ...] = ()
    bounds: str = ""  # in place of a version: >=2.29,<3

    @property
    def requirement(self) -> str:
        """What pip is told: cuda-toolkit[nvcc]==13.0.2."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.project}{extras}{f'=={self.version}' if self.version else self.bounds}"


class Manner(enum.Enum):
    """How wheels are installed where the plain way is not enough."""

    PLAIN = "plain"
    AGAIN = "again"  # the same number once more, without what it requires: only the build or a lost file changes
    COMPILED = "compiled"  # built here against the torch that is installed
    EARLY = "early"  # the newest of a channel without releases


class Flavour(enum.Enum):
    """Which of NVIDIA's kernel modules comes with a driver."""

    OPEN = "open"
    PROPRIETARY = "proprietary"


CDI_FILE = "/etc/cdi/nvidia.yaml"  # where container engines look for the description of the GPUs


class Service(enum.Enum):
    """What is done to a service."""

    START = "start"  # now and at every start of the machine
    RESTART = "restart"


class WiredBy(enum.Enum):
    """What leads the loader to a folder or a library."""

    LIBRARY_PATH = "LD_LIBRARY_PATH"
    PRELOAD = "LD_PRELOAD"
    LOADER_CONF = "ld.so.conf"
    CONTAINER_RUNTIME = "container runtime"  # the image's compat library is put over the host's


class Scope(enum.Enum):
    """For whom a variable is set or unset."""

    LOGIN = "login shells"  # in the start-up files, so that new shells have it
    BUILD = "the shell that builds"  # in a file of ours that such a shell reads: . ~/.local/state/firstlight/...
    PROGRAM = "one program"  # told, for the program at hand


@dataclass(frozen=True, slots=True)
class Variable:
    """A name and a value, e.g. CUDA_HOME=/usr/local/cuda-12.8."""

    name: str
    value: str


class Why(enum.Enum):
    """Why no program here can do it."""

    HOST = "the host under this container has to change"
    OUTSIDE = "the host of this virtual machine has to change"
    PROVIDER = "it is done on the provider's page"
    HYPERVISOR = "it is in the hands of whoever runs the virtual machines"
    FIRMWARE = "it is set in the firmware"
    HARDWARE = "somebody has to be at the machine: power, a cable, another GPU"
    COOLING = "somebody has to look at the machine itself: fans, air flow, cables"
    WINDOWS = "it is done in Windows"
    BOARD = "it comes with the board's own system image (JetPack)"
    PORTAL = "the driver of a vGPU guest comes from NVIDIA's licensing portal, of the host's vGPU release"
    INSTALLER = "NVIDIA's own installer is fetched and run by hand"
    IMAGE = "the programs of this system come with its image"
    PROGRAM = "the program itself, or how it is started, has to change"
    DECISION = "it is yours to decide"

"""Parts for machines where more than one torch is in reach: interpreters of a module command, folders."""

from __future__ import annotations

from tools.machines import container_parts as inside
from tools.machines import wheels
from tools.machines.container_marks import mounts
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction


def host(machine: Reconstruction, driver: str, gpu: GpuSpec, *, source: str, kind: str = "open") -> Reconstruction:
    """A host, no container, with a driver and a GPU that work."""
    inside.given(machine, driver, gpu, source=source, kind=kind)
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    return mounts(machine, "/dev/sda2 / xfs rw,relatime", "devtmpfs /dev devtmpfs rw,nosuid")


def interpreter(machine: Reconstruction, prefix: str, version: str, *, source: str) -> Reconstruction:
    """A Python in a prefix of its own, first on PATH, as a module command sets it."""
    machine.file(f"{prefix}/bin/python{version}", "#!", source=source)
    for name in ("python3", "python"):
        machine.link(f"{prefix}/bin/{name}", f"python{version}", source=source)
    machine.file(f"{prefix}/lib/python{version}/os.py", "", source=source)
    return machine.env(PATH=f"{prefix}/bin:{machine.environ['PATH']}")


def torch_in(
    machine: Reconstruction, folder: str, version: str, *, python: str, source: str, archs: tuple[str, ...] = ()
) -> Reconstruction:
    """torch in a folder that some search path names."""
    return wheels.torch(machine, folder, inside.wheel(version, python, archs), source=source)

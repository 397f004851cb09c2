"""What releases require of each other, of Python and of the processor: questions that solving asks of the tables."""

from __future__ import annotations

import re
from functools import cache

from firstlight.diagnosis.observed import listed
from firstlight.frozen import dataclass
from firstlight.specifiers import satisfies
from firstlight.tables import Tables
from firstlight.tables.pin_rows import PackagePins
from firstlight.tables.row import Pin
from firstlight.versions import TorchVersion

_ABI3 = re.compile(r"cp3(\d+)-abi3")
_PURE = re.compile(r"py3(\d*)")


@dataclass(frozen=True, slots=True)
class Place:
    """What wheels have to fit: x86_64 and Python 3.12.3; python "" = not known, every Python is taken."""

    machine: str
    python: str

    @property
    def minor(self) -> str:
        """3.12 of 3.12.3."""
        return ".".join(self.python.split(".")[:2])


@cache
def admits(specifier: str, version: str) -> bool:
    """Whether bounds take a version: admits('==2.8.0', '2.9.0') is False; what cannot be read takes nothing."""
    return satisfies(version, specifier) is True


def python_takes(tag: str, minor: str) -> bool:
    """Whether a Python takes a wheel: 3.12 takes cp312, cp38-abi3 and py3, not cp313t; "" takes all."""
    if not minor:
        return True
    number = minor.removeprefix("3.")
    if match := _ABI3.fullmatch(tag) or _PURE.fullmatch(tag):
        return number.isdigit() and int(number) >= int(match[1] or 0)
    return tag == f"cp3{number}"


def misfit(row: PackagePins, place: Place) -> str:
    """Why no file of a release fits the processor and Python, as a sentence; "" where one does."""
    what = f"{row.project} {row.version}"
    if place.python and row.requires_python and not admits(row.requires_python, place.python):
        return f"{what} requires Python {row.requires_python}; this is Python {place.python}."
    if compiled_here(row):
        return ""
    tags = row.pythons(place.machine)
    if not tags:
        others = [machine for machine in ("x86_64", "aarch64") if row.pythons(machine)]
        built = f"; it has some for {listed(others)}" if others else ""
        return f"{what} has no wheel for {place.machine} on PyPI{built}."
    if not any(python_takes(tag, place.minor) for tag in tags):
        return f"{what} has wheels for {listed(tags)}; this is Python {place.python}."
    return ""


def compiled_here(row: PackagePins) -> bool:
    """Whether PyPI has the source alone, as of flash-attn: it is compiled against the torch that is here."""
    return row.sdist and not row.x86_64 and not row.aarch64


def pin_on(row: PackagePins, project: str, *, machine: str) -> Pin | None:
    """What a release requires of a project on a machine: torch==2.8.0 of vllm 0.11.0."""
    return next((pin for pin in row.pins(machine) if pin.project == project), None)


def torch_pin(tables: Tables, torch: TorchVersion, project: str, *, machine: str) -> Pin | None:
    """What torch requires of a project: triton==3.5.0 of 2.9.0, by PyPI's wheel.

    PyPI's wheels for aarch64 before 2.11 have no CUDA and require nothing: those of x86_64 stand for other builds.
    """
    for each in (machine, "x86_64"):
        release = tables.torch_release(torch, each)
        if release is not None and (pin := release.pin(project)) is not None:
            return pin
    return None


def takes_torch(tables: Tables, row: PackagePins, torch: TorchVersion, *, machine: str) -> bool:
    """Whether a release goes with a torch, by the requirement that either has on the other.

    A wheel that names no torch is taken with the torch of its own number and later: vllm 0.32.0 requires torchaudio
    2.11.0, which names none, beside torch 2.13.0. What is compiled here goes with any.
    """
    if row.project == "triton":
        pin = torch_pin(tables, torch, "triton", machine=machine)
        return pin is None or admits(pin.spec, row.version)
    pin = pin_on(row, "torch", machine=machine)
    if pin is not None:
        return admits(pin.spec, torch.public)
    return compiled_here(row) or torch.release >= TorchVersion.parse(row.version).release

"""Wheels as tests write them: wheels("torch==2.9.0+cu128", cuda="cu128")."""

from __future__ import annotations

from firstlight.diagnosis.finding import Finding, Seen
from firstlight.tables.torch_index import index_of_build
from firstlight.ways.kinds import InstallWheels, Manner, Package
from tests.diagnosis.rule_case import ways_of


def wheels(*requirements: str, cuda: str = "", manner: Manner = Manner.PLAIN) -> InstallWheels:
    """The way that installs them, from PyTorch's index of a CUDA where one is named."""
    packages = (each.partition("==") for each in requirements)
    named = tuple(Package(project, version) for project, _, version in packages)
    return InstallWheels(named, index_of_build(cuda) if cuda else "", manner)


def torches(found: Seen | Finding) -> list[str]:
    """The version of the torch that each answer installs, in order."""
    installs = (way for ways in ways_of(found) for way in ways if isinstance(way, InstallWheels))
    return [torch.version for way in installs if (torch := way.package("torch")) is not None]

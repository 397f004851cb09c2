"""Copies of one package in several folders of a search path, as ways that take out those of one folder alone."""

from __future__ import annotations

from firstlight.facts.distributions import DuplicateDistribution
from firstlight.ways.kinds import RemoveDistributions


def copies_in(name: str, twice: DuplicateDistribution, folder: str) -> RemoveDistributions:
    """The copies in a folder taken out, e.g. torch 2.4.1+cpu of /home/user/.local/lib/python3.12/site-packages."""
    there = versions_in(twice, folder)
    return RemoveDistributions((name,), copies=len(there), folder=folder, version=there[0] if len(there) == 1 else "")


def versions_in(twice: DuplicateDistribution, folder: str) -> tuple[str, ...]:
    """The versions of the copies in a folder: two where an installation left the record of another."""
    return tuple(version for version, where in zip(twice.versions, twice.folders, strict=True) if where == folder)


def hiding(name: str, twice: DuplicateDistribution, behind: str) -> tuple[RemoveDistributions, ...]:
    """The copies in the folders before one, first found first, each folder by itself."""
    before = dict.fromkeys(twice.folders[: twice.folders.index(behind)])
    return tuple(copies_in(name, twice, folder) for folder in before)

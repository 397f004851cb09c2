"""What pip fetches for a way: exact where a row has it, about as the closest release where none has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Distribution
from firstlight.facts.known import Known, Origin, Unknown
from firstlight.tables import load
from firstlight.tables.pin_rows import WheelSize
from firstlight.ways.costs import bytes_of
from firstlight.ways.index_sizes import IndexSize, IndexSizes
from firstlight.ways.kinds import CloseLibraries, InstallWheels, Manner, Package
from tests.diagnosis.rule_case import facts_of

TABLES = load()
X86, ARM = facts_of("h200-healthy"), facts_of("gh200-torch-pypi")
BARE = replace(X86, python=replace(X86.python, selected=Unknown("no Python")))
BARE_ARM = replace(ARM, python=replace(ARM.python, selected=Unknown("no Python")))
PYTORCH = "https://download.pytorch.org/whl/"


def wheels(*requirements: str, index: str = "", manner: Manner = Manner.PLAIN) -> InstallWheels:
    packages = (Package(each.partition("==")[0], each.partition("==")[2]) for each in requirements)
    return InstallWheels(tuple(packages), index, manner)


def size_of(way: InstallWheels | CloseLibraries, facts: Facts = BARE) -> Known[int]:
    found = bytes_of(way, facts, TABLES)
    assert isinstance(found, Known), found
    return found


def test_torch_from_pypi_downloads_itself_and_every_wheel_it_pulls() -> None:
    row = TABLES.wheel_size("torch", "2.9.0", machine="x86_64")
    assert row is not None
    pieces = [TABLES.wheel_size(pin.project, pin.version, machine="x86_64") for pin in row.pulls]
    expected = row.bytes + sum(piece.bytes for piece in pieces if piece is not None)
    found = size_of(wheels("torch==2.9.0"))
    assert found == Known(expected, "sizes on PyPI, 2026-11-15")
    assert found.value == 4057767342


def test_the_same_build_on_pytorchs_index_is_as_large_as_on_pypi() -> None:
    assert size_of(wheels("torch==2.9.0+cu128", index=f"{PYTORCH}cu128")) == size_of(wheels("torch==2.9.0"))


@pytest.mark.parametrize(
    ("requirement", "neighbour"),
    [
        ("torch==2.9.0+cu130", "size estimated from torch 2.11.0 of CUDA 13.0"),
        ("torch==2.9.0+cu126", "size estimated from torch 2.7.1 of CUDA 12.6"),
        ("torch==2.14.1+cu126", "size estimated from torch 2.7.1 of CUDA 12.6"),
        ("torch==2.9.0+cpu", "size estimated from torch 2.9.0 of no CUDA"),
    ],
)
def test_a_build_without_a_row_is_about_as_large_as_the_closest_one(requirement: str, neighbour: str) -> None:
    found = size_of(wheels(requirement))
    assert (found.seen_in, found.origin) == (neighbour, Origin.ASSUMED)


def test_a_nightly_is_about_as_large_as_the_newest_release_of_its_cuda() -> None:
    found = size_of(wheels("torch", index=f"{PYTORCH}nightly/cu130", manner=Manner.EARLY))
    assert found.seen_in.startswith("size estimated from torch 2.14.1 of CUDA 13.0")


def test_a_torch_for_aarch64_with_cuda_is_no_cpu_build() -> None:
    assert size_of(wheels("torch==2.9.0+cu128"), BARE_ARM).value > 2_000_000_000
    assert size_of(wheels("torch==2.9.0"), BARE_ARM).value < 200_000_000  # PyPI's has no CUDA


def test_what_is_installed_in_that_version_is_not_fetched_again() -> None:
    environment = X86.environment
    assert environment is not None
    [cudnn] = [pin for pin in _row("2.9.0").pulls if pin.project == "nvidia-cudnn-cu12"]
    template = environment.distributions[0]
    has = replace(template, name="nvidia_cudnn_cu12", version=cudnn.version)
    assert isinstance(has, Distribution)
    chosen = X86.python.selected
    assert isinstance(chosen, Known)
    environments = list(X86.python.environments)
    environments[chosen.value] = replace(environment, distributions=(has,))
    facts = replace(X86, python=replace(X86.python, environments=tuple(environments)))
    fewer = size_of(wheels("torch==2.9.0")).value - size_of(wheels("torch==2.9.0"), facts).value
    row = TABLES.wheel_size("nvidia-cudnn-cu12", cudnn.version, machine="x86_64")
    assert row is not None
    assert fewer == row.bytes


def test_installed_again_fetches_the_wheel_alone() -> None:
    assert size_of(wheels("torch==2.9.0", manner=Manner.AGAIN)).value == _row("2.9.0").bytes


def test_what_an_index_said_beats_the_neighbour_and_what_it_pulls_stays() -> None:
    way = wheels("torch==2.9.0+cu126", index=f"{PYTORCH}cu126")
    said = IndexSize("torch", "2.9.0+cu126", way.index, 826_000_000, "the index itself")
    near, exact = bytes_of(way, BARE, TABLES), bytes_of(way, BARE, TABLES, IndexSizes((said,)))
    assert isinstance(near, Known)
    assert isinstance(exact, Known)
    assert (exact.seen_in, exact.origin) == ("the index itself; sizes on PyPI, 2026-11-15", Origin.SEEN)
    assert near.value - _row("2.7.1").bytes == exact.value - 826_000_000


def test_the_parts_of_a_toolkit_are_counted_by_its_extras() -> None:
    alone = InstallWheels((Package("cuda-toolkit", "13.0.2"),))
    whole = InstallWheels((Package("cuda-toolkit", "13.0.2", ("nvcc", "cudart", "cccl", "crt", "nvvm")),))
    assert size_of(alone).value < 10_000
    assert 100_000_000 < size_of(whole).value < 200_000_000


def test_missing_libraries_are_the_wheels_that_ship_them_each_once() -> None:
    one = size_of(CloseLibraries(("libcudss.so.0",)))
    assert one.value > 50_000_000
    assert size_of(CloseLibraries(("libcudss.so.0", "libcudss.so.0"))) == one


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (wheels("no-such-project"), "the size of no-such-project is not in the tables"),
        (CloseLibraries(("libnosuch.so.1",)), "which wheel ships libnosuch.so.1 is not in the tables"),
    ],
)
def test_what_nobody_knows_is_unknown_with_the_reason(way: InstallWheels | CloseLibraries, reason: str) -> None:
    assert bytes_of(way, BARE, TABLES) == Unknown(reason)


def test_every_piece_that_a_torch_pulls_has_a_size() -> None:
    for row in TABLES.wheel_sizes:
        for pin in row.pulls:
            assert TABLES.wheel_size(pin.project, pin.version, machine=row.machine) is not None, f"{row.version} {pin}"


def _row(version: str) -> WheelSize:
    row = TABLES.wheel_size("torch", version, machine="x86_64")
    assert row is not None
    return row

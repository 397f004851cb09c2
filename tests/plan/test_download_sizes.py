"""What a set downloads, from dated sizes; what has no row is unknown and never a constant."""

from __future__ import annotations

from firstlight.diagnosis.finding import Question
from firstlight.facts.known import Known, Unknown
from firstlight.plan.sets import PackageSet
from firstlight.plan.sizes import download_bytes
from firstlight.plan.solve import solve
from firstlight.plan.want import Channel, parse_wants
from firstlight.tables import load
from tests.diagnosis.rule_case import facts_of

TABLES = load()


def best(machine: str, *wants: str) -> PackageSet:
    return solve(Question(facts_of(machine), TABLES), parse_wants(wants), channel=Channel.STABLE).sets[0]


def test_torch_from_pypi_downloads_itself_and_every_wheel_it_pulls() -> None:
    row = TABLES.wheel_size("torch", "2.9.0", machine="x86_64")
    assert row is not None
    pieces = [TABLES.wheel_size(pin.project, pin.version, machine="x86_64") for pin in row.pulls]
    expected = row.bytes + sum(piece.bytes for piece in pieces if piece is not None)
    found = download_bytes(best("h200-healthy", "torch==2.9.0"), TABLES)
    assert isinstance(found, Known)
    assert found.value == expected == 4057767342
    assert found.seen_in.startswith("sizes on PyPI, 2026-")


def test_a_companion_adds_its_own_file_and_a_wanted_triton_is_not_counted_twice() -> None:
    alone = download_bytes(best("h200-healthy", "torch==2.9.0"), TABLES)
    with_triton = download_bytes(best("h200-healthy", "torch==2.9.0", "triton"), TABLES)
    assert alone == with_triton
    vision = TABLES.wheel_size("torchvision", "0.24.0", machine="x86_64")
    more = download_bytes(best("h200-healthy", "torch==2.9.0", "torchvision"), TABLES)
    assert isinstance(alone, Known)
    assert isinstance(more, Known)
    assert vision is not None
    assert more.value - alone.value == vision.bytes


def test_a_build_of_pytorchs_index_has_no_known_size() -> None:
    found = download_bytes(best("h200-healthy", "torch==2.9.0+cu130"), TABLES)
    assert found == Unknown("the sizes of torch==2.9.0+cu130 and of what it pulls are not in the tables")


def test_a_companion_of_pytorchs_index_leaves_the_whole_unknown() -> None:
    found = download_bytes(best("h200-healthy", "torch==2.13.0", "xformers"), TABLES)
    assert found == Unknown("the size of xformers 0.0.35+cu130 is not in the tables")


def test_vllm_brings_more_than_has_rows_so_that_only_a_lower_bound_is_told() -> None:
    found = download_bytes(best("h200-healthy", "vllm"), TABLES)
    assert isinstance(found, Unknown)
    assert found.reason == "at least 3.1 GB; what else vllm==0.32.0 brings is not in the tables"


def test_every_piece_that_a_torch_pulls_has_a_size() -> None:
    for row in TABLES.wheel_sizes:
        for pin in row.pulls:
            assert TABLES.wheel_size(pin.project, pin.version, machine=row.machine) is not None, f"{row.version} {pin}"


def test_a_torch_for_aarch64_with_cuda_has_a_size() -> None:
    found = download_bytes(best("gh200-torch-pypi", "torch==2.11.0"), TABLES)
    assert isinstance(found, Known)
    assert found.value > 2_000_000_000

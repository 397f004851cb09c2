"""The table of what orders races: every function and barrier of it is in the sources, and the other way round."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from benchmarks.sanitizer.attention_cases import AttentionCase, GradientCase
from benchmarks.sanitizer.cases import (
    Case,
    ProductCase,
    SampleCase,
    with_lines,
)
from benchmarks.sanitizer.orders import ORDERS, function_at, functions_of, order_of
from benchmarks.sanitizer.reports import Place

from firstlight.kernels.product import Layout
from firstlight.kernels.sm90.compile import SOURCES, Variant
from tests.kernels.sanitizer.texts import line_of
from tests.kernels.sm90.gate import find_disassembler


def source(name: str) -> str:
    return (SOURCES / name).read_text()


ALL_SOURCES = tuple(path.name for path in sorted(SOURCES.iterdir()) if path.suffix in (".cu", ".cuh"))


def test_every_function_and_barrier_of_the_table_is_in_the_sources() -> None:
    functions = {name for file in ALL_SOURCES for _, name in functions_of(file)}
    members = {
        word
        for file in ("roles.cuh", "attention.cu", "gradient.cu", "gradient_once.cu", "attention_queue.cuh")
        for struct in re.findall(r"struct (?:Shared|Counter) \{(.*?)\};", source(file), re.DOTALL)
        for word in re.findall(r"\w+", struct)
    }
    for order in ORDERS:
        assert not {*order.writes, *order.others} - functions, order.name
        assert not set(order.barriers) - members - functions - {"__syncthreads"}, order.name
        assert order_of(order.writes[0], order.others[0]) == order.name


def test_the_function_of_a_line_is_found_in_headers_templates_and_kernels() -> None:
    def at(file: str, text: str) -> str:
        return function_at(Place("", "", "", file, line_of(file, text)))

    assert at("multiply_loads.cuh", "shared->present[place.slot] = present") == "run_loader"
    assert at("multiply.cu", "run_consumer(args, shared, base, warpgroup)") == "multiply"
    assert at("ptx.cuh", "cp.async.bulk.wait_group.read") == "stores_read"
    assert function_at(Place("", "void x::walk<1>(int)", "0x1", "", 0)) == "walk<1>"


FILE_LINE = re.compile(r'//## File "([^"]+)", line (\d+)')
ACCESS = re.compile(r"\b(?:LDS|STS|LDSM|STSM|UBLKCP|UTMALDG|UTMASTG|ATOMS)\b")
NEVER = {"seem_used", "still_needed"}  # stores behind a branch that is never taken
SYNCED = {"turn"}  # one tile, __syncthreads between its writes and its reads: a race there would be one


@pytest.mark.parametrize(
    "case",
    [
        ProductCase(16, Layout.TOKENS, 600), ProductCase(64, Layout.COLUMNS, 40),
        SampleCase(128, Layout.TOKENS, 200), AttentionCase(64, 64, "causal", 300, 300),
        AttentionCase(128, 128, "causal", 300, 300), GradientCase(128, "causal", 300, 300),
        GradientCase(64, "causal", 300, 300, bf16=True),
    ],
    ids=lambda case: case.id,
)  # fmt: skip
def test_every_instruction_that_touches_shared_memory_is_in_a_function_of_the_table(case: Case, tmp_path: Path) -> None:
    """So a place that racecheck may name is one that somebody has thought about."""
    known = {name for order in ORDERS for name in (*order.writes, *order.others)} | NEVER | SYNCED
    found = {name for variant in case.variants for name in touching(variant, tmp_path)}
    assert found - known == set()
    assert len(found) >= 4


def touching(variant: Variant, folder: Path) -> set[str]:
    path = folder / "kernel.cubin"
    path.write_bytes(with_lines(variant).cubin)
    listing = subprocess.run([find_disassembler(), "-g", "-c", str(path)], capture_output=True, text=True, check=True)
    found, place = set(), Place("", "", "", "", 0)
    for line in listing.stdout.splitlines():
        if told := FILE_LINE.search(line):
            place = Place("", "", "", told.group(1).rpartition("/")[2], int(told.group(2)))
        elif ACCESS.search(line):
            found.add(function_at(place))
    return found

"""The reader and the loader simulation against ldd, LD_DEBUG=libs and pyelftools, on files that are really there.

A sample of what tools/check_loader_agreement.py sweeps; its whole sweep is kept in results/libs-agreement.json.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from firstlight.elf.loader import whole_setup
from firstlight.elf.reader import read_elf, why_not_elf
from firstlight.machine.live import LiveMachine
from tools.check_loader_agreement import ENVIRON, Tally, compare_fields, compare_loading, elf_files
from tools.fuzz_elf import fuzz

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
RESULTS = Path(__file__).parents[2] / "results" / "libs-agreement.json"

needs_loader = pytest.mark.skipif(
    not any(os.access(loader, os.X_OK) for loader in LOADERS), reason="glibc's loader is not installed"
)


def _sample(folder: str, most: int) -> list[str]:
    found = list(elf_files(folder))
    return found[:: max(1, len(found) // most)][:most]


def _compared(paths: list[str]) -> Tally:
    tally = Tally()
    machine = LiveMachine(environ=ENVIRON)
    setup = whole_setup(machine)
    for path in paths:
        file = read_elf(machine, path)
        assert file is not None
        if file.arch == machine.host.arch and not why_not_elf(machine, path):
            compare_fields(path, tally)
            compare_loading(path, setup=setup, tally=tally)
    return tally


@needs_loader
def test_every_library_of_a_real_torch_is_read_and_loaded_as_by_the_referees() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("torch is not installed")
    tally = _compared([path for path in elf_files(spec.submodule_search_locations[0]) if path.endswith(".so")])
    assert tally.differences == []
    assert tally.loader_files >= 5
    assert tally.paths > 30


@needs_loader
@pytest.mark.parametrize("folder", ["/usr/lib", "/usr/bin", "/usr/sbin"])
def test_files_of_this_system_are_read_and_loaded_as_by_the_referees(folder: str) -> None:
    tally = _compared(_sample(folder, 50))
    assert tally.differences == []
    assert tally.loader_files > 10


def test_twenty_thousand_bent_or_cut_files_crash_nothing_and_cost_little() -> None:
    told = fuzz(20_000, seed=20)
    assert told["still_elf"] > 15_000
    assert told["most_bytes_read_of_one"] < 4 << 20


def test_the_whole_sweep_that_is_kept_found_no_difference() -> None:
    kept = json.loads(RESULTS.read_text())
    assert kept["differences"] == []
    assert kept["loader_files"] > 2000
    assert (kept["fuzz"]["inputs"], kept["fuzz"]["crashes"]) == (1_000_000, 0)

"""Machines that show the rules about compat libraries and libcuda, and what changes in the near-miss."""

from __future__ import annotations

from dataclasses import replace

from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.libcuda import LibcudaCandidate
from tests.diagnosis.rule_case import RuleCase


def with_the_driver_folder_in_the_library_path(facts: Facts) -> Facts:
    """As if LD_LIBRARY_PATH named GKE's folder."""
    path = facts.libcuda.out_of_reach[0]
    folder = path.rpartition("/")[0]
    found = LibcudaCandidate(
        path=path,
        real_path=path,
        version=Unknown("not of interest"),
        found_by=FoundBy.LIBRARY_PATH,
        entry=folder,
        is_stub=False,
        is_compat=False,
        is_damaged=False,
    )
    libcuda = replace(
        facts.libcuda,
        would_load=Known(found, f"LD_LIBRARY_PATH: {folder}"),
        candidates=(found,),
        out_of_reach=(),
        ld_library_path=(folder,),
    )
    return replace(facts, libcuda=libcuda)


CASES: tuple[RuleCase, ...] = (
    RuleCase("compat-stale", "h200-compat-stale", ("driver=580.65.06",)),
    RuleCase("compat-stale", "h100-driver-595-compat-580", ("cuinit=0",)),
    RuleCase("compat-not-eligible", "rtx4090-compat-image", ("cuinit=0",)),
    RuleCase("compat-unused", "h100-driver-570-compat-unused", ("brand=5",)),
    RuleCase("compat-branch-not-accepted", "h100-driver-560-compat-13-1", ("driver=550.54.15",)),
    RuleCase("compat-baked-in", "h100-driver-570-compat", ("cuinit=803",)),
    RuleCase("stub-libcuda-wins", "h100-stub-libcuda", ("cuinit=0",)),
    RuleCase("libcuda-missing", "gke-libcuda-out-of-reach", with_the_driver_folder_in_the_library_path),
    RuleCase("libcuda-damaged", "container-empty-libcuda", ("libcuda.candidates.0.is_damaged=false",)),
)

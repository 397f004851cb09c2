"""Plans for machines that people really built PyTorch on: python -m tests.build.plans writes plans.json anew.

The machines are recorded or rebuilt ones under tests/machines with what a report says of them put in (processors,
memory, GPU); CUDA 12.8, 13.0 and 13.1 take turns as the toolkit. Read what changed after writing it.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firstlight.build.archs import parse_archs
from firstlight.build.case import BuildPlace, case_of
from firstlight.build.flags import parse_flag
from firstlight.build.planning import source_of, source_spec, spec_of
from firstlight.build.preflight import preflight
from firstlight.build.request import BuildRequest, Target
from firstlight.build.tools import tools_of_saved
from firstlight.build.tree_state import TreeState
from firstlight.facts.collect import Facts
from firstlight.facts.document import read_machine_or_facts
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.tables import load
from firstlight.versions import CudaVersion
from firstlight.ways.compile_jobs import GIB
from tests.build.trees import read_tree

GOLDEN = Path(__file__).parent / "plans.json"
MACHINES = Path(__file__).parents[1] / "machines"
TOOLKITS = ("12.8.93", "13.0.88", "13.1.80")
GCC_MAX = {"12": 14, "13": 15}


@dataclass(frozen=True)
class Place:
    """A machine and what is said of it where that is not recorded."""

    name: str
    recorded: str
    said: tuple[str, ...] = ()


PLACES = (
    Place("thor", "thor-source-build"),
    Place("gh200", "gh200-torch-pypi", ("resources.processors=72", f"resources.memory_bytes={480 * GIB}")),
    Place("rtx-pro-4000-x2", "rtx5090-source-build", ("gpu=NVIDIA RTX PRO 4000 Blackwell", "resources.processors=8",
          f"resources.memory_bytes={64 * GIB}", f"resources.memory_available_bytes={60 * GIB}",
          f"resources.memory_total_bytes={64 * GIB}")),
    Place("h200", "h200"),
    Place("rtx-5090-x2", "rtx5090-source-build", ("resources.processors=122", f"resources.memory_bytes={396 * GIB}",
          f"resources.memory_available_bytes={380 * GIB}")),
)  # fmt: skip
REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("as it comes", {}),
    ("without nccl, flash attention and fbgemm", {"features_off": ("nccl", "flash-attention", "fbgemm")}),
    ("with cudnn and nccl, PTX too", {"features_on": ("cudnn", "nccl"), "archs": "+PTX"}),
    ("the flags of the CUDA 13.1 fork", {"flags": ("USE_FBGEMM=1", "USE_TENSOREXPR=1", "USE_CUDNN_FRONTEND=1",
      "USE_FLASH_ATTENTION=1", "USE_MEM_EFF_ATTENTION=1", "USE_MSLK=1", "CUDNN_ALLOW_TF32_CUBLAS_OVERRIDE=1")}),
)  # fmt: skip


@functools.cache
def _recorded(name: str) -> Facts:
    return read_machine_or_facts(str(MACHINES / name))


def facts_of(place: Place, toolkit: str) -> Facts:
    facts = override(_recorded(place.recorded), place.said)
    version = CudaVersion.parse(toolkit)
    path = f"/usr/local/cuda-{version.release}"
    there = Toolkit(
        path, ("CUDA_HOME",), Known(version, path), Known(version, path), tuple(Part), (), (f"{path}/include",),
        (f"{path}/lib64",), Known(GCC_MAX[str(version.major)], "crt/host_config.h"), Known(20, "crt/host_config.h"),
    )  # fmt: skip
    home = Known(path, seen_in="CUDA_HOME")
    return replace(facts, toolkits=replace(facts.toolkits, toolkits=(there,), cpp_extension_home=home, cuda_home=home))


def plan(place: Place, toolkit: str, given: dict[str, Any]) -> dict[str, Any]:
    project, source = _TREE
    facts = facts_of(place, toolkit)
    here = [gpu.capability.value for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)]
    archs = parse_archs(f"{max(here)}+PTX") if given.get("archs") else ()
    request = BuildRequest(
        Target("torch==2.6.0", "torch", "2.6.0"), archs=archs, features_on=given.get("features_on", ()),
        features_off=given.get("features_off", ()), flags=tuple(map(parse_flag, given.get("flags", ()))),
    )  # fmt: skip
    case = case_of(request, project, source, BuildPlace(facts, tools_of_saved(facts), _TABLES))
    where = source_spec("torch-2.6.0", "/builds/torch-2.6.0", source_of(request.target, "/src/tree", ()))
    spec = spec_of(case, where, TreeState("", (), ""))
    return {
        "archs": list(spec.archs),
        "jobs": {each.kind.value: each.jobs for each in case.needs.by_kind},
        "memory": case.needs.bound_by,
        "per_unit_gib": {each.kind.value: round(each.peak_bytes / GIB, 2) for each in case.needs.by_kind},
        "disk_gib": round(case.needs.disk_bytes / GIB, 1),
        "environment": {each.name: each.value for each in spec.settings},
        "wheel": spec.local,
        "faults": [f"{each.weight.value}: {each.code}: {each.saw}" for each in preflight(case)],
    }


_TABLES = load()
_TREE = read_tree("torch-2.6.0")


def plans() -> dict[str, Any]:
    """Every machine with every toolkit and request."""
    return {
        f"{place.name}, CUDA {toolkit.rpartition('.')[0]}, {words}": plan(place, toolkit, given)
        for place in PLACES
        for toolkit in TOOLKITS
        for words, given in REQUESTS
    }


def main() -> None:
    GOLDEN.write_text(json.dumps(plans(), indent=1) + "\n")


if __name__ == "__main__":
    main()

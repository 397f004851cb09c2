"""The GPUs of a run of `fleet bench` as a document: which are slow, in what, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.bench.slow_gpus import LEAST_EQUAL, LEAST_RUNS, MADS, SLOWER_BY, GpuClass, JudgedGpu, JudgedGpus
from firstlight.report.host_names import HostNames

if TYPE_CHECKING:
    from firstlight.report.documents.fleets import FleetGpusDocument, GpuClassShown, GpuShown

SCHEMA = "firstlight.fleet-gpus/1"


def gpus_document(judged: JudgedGpus, names: HostNames) -> FleetGpusDocument:
    """The part `gpus` of firstlight.fleet-run/1, and the data of the page (schema firstlight.fleet-gpus/1)."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "rule": {"slower_by": SLOWER_BY, "mads": MADS, "least_equal": LEAST_EQUAL, "least_runs": LEAST_RUNS},
        "slow": len(judged.slow),
        "classes": [_class(each, names) for each in judged.classes],
    }


def _class(each: GpuClass, names: HostNames) -> GpuClassShown:
    return {
        "name": each.sort.name,
        "torch": each.sort.torch,
        "effort": each.sort.effort,
        "note": each.note,
        "gpus": [_gpu(gpu, names) for gpu in each.gpus],
    }


def _gpu(gpu: JudgedGpu, names: HostNames) -> GpuShown:
    return {
        "host": names[gpu.host],
        "device": gpu.device,
        "state": gpu.state.value,
        "held_against": [each.value for each in gpu.against],
        "figures": gpu.figures,
        "low_by": round(gpu.by, 4),
        "causes": [{"why": each.why.value, "saw": each.saw} for each in gpu.causes],
        "low": [
            {
                "figure": each.name,
                "by": round(each.by, 4),
                "mads": round(each.mads, 1) if each.mads < 1e6 else None,
                "why": each.cause.why.value,
                "saw": each.cause.saw,
            }
            for each in gpu.low
        ],
        "reason": gpu.reason,
        "shares": {family: round(share, 4) for family, share in gpu.shares},
    }

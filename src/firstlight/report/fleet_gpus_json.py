"""The GPUs of a run of `fleet bench` as a document: which are slow, in what, and why. Pure."""

from __future__ import annotations

from firstlight import __version__
from firstlight.bench.slow_gpus import LEAST_EQUAL, LEAST_RUNS, MADS, SLOWER_BY, GpuClass, JudgedGpu, JudgedGpus
from firstlight.report.documents.fleets import FleetGpusDocument, GpuClassShown, GpuShown, LowFigure
from firstlight.report.documents.making import shown
from firstlight.report.host_names import HostNames

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
    return shown(GpuClassShown, each.sort, note=each.note, gpus=[_gpu(gpu, names) for gpu in each.gpus])


def _gpu(gpu: JudgedGpu, names: HostNames) -> GpuShown:
    return shown(
        GpuShown,
        gpu,
        host=names[gpu.host],
        held_against=gpu.against,
        low_by=round(gpu.by, 4),
        causes=[{"why": each.why.value, "saw": each.saw} for each in gpu.causes],
        low=[
            shown(
                LowFigure,
                each.cause,
                figure=each.name,
                by=round(each.by, 4),
                mads=round(each.mads, 1) if each.mads < 1e6 else None,
            )
            for each in gpu.low
        ],
        shares={family: round(share, 4) for family, share in gpu.shares},
    )

"""A profile as a JSON document (schema firstlight.profile/1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.profile.metrics import metric_named
from firstlight.profile.result import Kernel, Profile, Value
from firstlight.records import encode

if TYPE_CHECKING:
    from firstlight.report.documents.measuring import KernelSeen, ProfileDocument, ValueSeen

SCHEMA = "firstlight.profile/1"


def profile_document(profile: Profile) -> ProfileDocument:
    """The document, schema first; what is not known is null with the reason beside it."""
    work = profile.work
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "what": work.what,
        "is_case": work.is_case,
        "device": profile.device or None,
        "source": profile.source.value,
        "tool": profile.tool or None,
        "command": list(profile.command),
        "report": profile.report or None,
        "work": {
            "flops": work.flops,
            "least_bytes": work.least_bytes,
            "kind": work.kind.value,
            "kind_from": work.kind_from,
            "correct": work.correct,
            "correct_from": work.correct_from,
        },
        "excess_traffic": profile.excess_traffic,
        "values": [_value(each) for each in profile.values],
        "kernels": [_kernel(kernel) for kernel in profile.kernels],
        "limit": encode(profile.limit),
        "tiers_file": profile.tiers_file,
        "reached": profile.reached or None,
        "not_refuted": profile.not_refuted or None,
        "tiers": encode(profile.tiers),
        "changed": encode(profile.changed),
        "notes": list(profile.notes),
        "trouble": encode(profile.trouble),
    }


def _value(each: Value) -> ValueSeen:
    metric = metric_named(each.key)
    return {
        "key": each.key,
        "what": metric.what if metric is not None else "",
        "unit": metric.unit if metric is not None else "",
        "value": each.value,
        "counters": list(each.names),
        "why_not": each.why_not or None,
    }


def _kernel(kernel: Kernel) -> KernelSeen:
    return {
        "name": kernel.name,
        "on_gpu": kernel.on_gpu,
        "launches": kernel.launches,
        "time_s": kernel.time_s,
        "grid": kernel.grid or None,
        "block": kernel.block or None,
        "values": {each.key: each.value for each in kernel.values},
    }

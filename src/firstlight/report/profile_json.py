"""A profile as a JSON document (schema firstlight.profile/1)."""

from __future__ import annotations

from typing import Any

from firstlight import __version__
from firstlight.profile.metrics import metric_named
from firstlight.profile.result import Condition, Kernel, Profile, TierResult, Value

SCHEMA = "firstlight.profile/1"


def profile_document(profile: Profile) -> dict[str, Any]:
    """The document, schema first; what is not known is null with the reason beside it."""
    work, limit, trouble = profile.work, profile.limit, profile.trouble
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
        "limit": {"tier": limit.tier, "pct": limit.pct, "time_s": limit.time_s, "seen_in": limit.seen_in},
        "tiers_file": profile.tiers_file,
        "reached": profile.reached or None,
        "not_refuted": profile.not_refuted or None,
        "tiers": [_tier(tier) for tier in profile.tiers],
        "changed": [
            {"was": each.was, "now": each.now, "why": each.why, "source": each.source} for each in profile.changed
        ],
        "notes": list(profile.notes),
        "trouble": None if trouble is None else {"code": trouble.code, "says": trouble.says, "do": list(trouble.do)},
    }


def _value(each: Value) -> dict[str, Any]:
    metric = metric_named(each.key)
    return {
        "key": each.key,
        "what": metric.what if metric is not None else "",
        "unit": metric.unit if metric is not None else "",
        "value": each.value,
        "counters": list(each.names),
        "why_not": each.why_not or None,
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "on_gpu": kernel.on_gpu,
        "launches": kernel.launches,
        "time_s": kernel.time_s,
        "grid": kernel.grid or None,
        "block": kernel.block or None,
        "values": {each.key: each.value for each in kernel.values},
    }


def _tier(tier: TierResult) -> dict[str, Any]:
    return {
        "name": tier.name,
        "title": tier.title,
        "met": tier.met.value,
        "conditions": [_condition(each) for each in tier.conditions],
        "hints": [_condition(each) for each in tier.hints],
    }


def _condition(condition: Condition) -> dict[str, str]:
    return {"text": condition.text, "met": condition.met.value, "saw": condition.saw}

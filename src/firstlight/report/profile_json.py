"""A profile as a JSON document (schema firstlight.profile/1)."""

from __future__ import annotations

from firstlight.profile.metrics import metric_named
from firstlight.profile.result import Kernel, Profile, Value
from firstlight.report.documents.making import headed, shown
from firstlight.report.documents.measuring import KernelSeen, ProfileDocument, ValueSeen, WorkSeen

SCHEMA = "firstlight.profile/1"


def profile_document(profile: Profile) -> ProfileDocument:
    """The document, schema first; what is not known is null with the reason beside it."""
    may_be_null = ("device", "tool", "report", "reached", "not_refuted")
    return headed(
        ProfileDocument,
        SCHEMA,
        profile,
        what=profile.work.what,
        is_case=profile.work.is_case,
        work=shown(WorkSeen, profile.work),
        values=[_value(each) for each in profile.values],
        kernels=[_kernel(kernel) for kernel in profile.kernels],
        **{name: getattr(profile, name) or None for name in may_be_null},
    )


def _value(each: Value) -> ValueSeen:
    metric = metric_named(each.key)
    what, unit = (metric.what, metric.unit) if metric is not None else ("", "")
    return shown(ValueSeen, each, what=what, unit=unit, counters=each.names, why_not=each.why_not or None)


def _kernel(kernel: Kernel) -> KernelSeen:
    values = {each.key: each.value for each in kernel.values}
    return shown(KernelSeen, kernel, grid=kernel.grid or None, block=kernel.block or None, values=values)

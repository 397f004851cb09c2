"""Facts with what was learned taken out again and their shape kept: so many GPUs, nothing known of any."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from firstlight.facts.known import Known, Unknown
from firstlight.versions import ComputeCapability, CudaVersion, DriverVersion, TorchVersion

_VERSIONS = (ComputeCapability, CudaVersion, DriverVersion, TorchVersion)


def forgotten(value: Any) -> Any:
    """The same shape with every fact Unknown for no reason that tells anything; lists keep their items."""
    if isinstance(value, (Known, Unknown)):
        return Unknown("forgotten")
    if isinstance(value, tuple):
        return tuple(forgotten(item) for item in value)
    if is_dataclass(value) and not isinstance(value, (type, *_VERSIONS)):
        return replace(value, **{field.name: forgotten(getattr(value, field.name)) for field in fields(value)})
    return value

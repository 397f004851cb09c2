"""Knowledge of the outside world, as JSON rows with sources.

    tables = load()
    tables.cuda_major(13).min_driver_same_major      580.65.06
    tables.accepts_kernel_branch(cuda, 550).verdict  accepts

A subject is read when it is first asked for. What the tables do not know is None or ().
"""

from __future__ import annotations

import os

from firstlight.tables.build_lookups import BuildLookups
from firstlight.tables.compat_lookups import CompatAnswer, CompatLookups, CompatVerdict
from firstlight.tables.cost_lookups import CostLookups
from firstlight.tables.error_lookups import ErrorLookups
from firstlight.tables.gpu_lookups import GpuLookups
from firstlight.tables.peak_lookups import PeakLookups
from firstlight.tables.pin_lookups import PinLookups
from firstlight.tables.setting_lookups import SettingLookups
from firstlight.tables.soname_lookups import SonameLookups
from firstlight.tables.stored import STALE_AFTER_DAYS
from firstlight.tables.system_lookups import SystemLookups
from firstlight.tables.torch_lookups import TorchLookups

__all__ = ["STALE_AFTER_DAYS", "CompatAnswer", "CompatVerdict", "Tables", "load"]


class Tables(
    BuildLookups,
    CompatLookups,
    CostLookups,
    GpuLookups,
    PeakLookups,
    PinLookups,
    TorchLookups,
    SonameLookups,
    ErrorLookups,
    SettingLookups,
    SystemLookups,
):
    """Every question that the tables answer; see docs/tables.md."""

    __slots__ = ()


def load(folder: str = os.path.join(os.path.dirname(__file__), "data")) -> Tables:
    """The tables that ship with the package, or those of another folder."""
    return Tables(folder)

"""What this machine cannot say of a target for another arch: whether a system there has the system's own libraries."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.provider_choice import TORCHS_OWN
from firstlight.libraries.analysis import Analysis, Missing, Whose
from firstlight.tables import Tables


def told_apart(analysis: Analysis, tables: Tables, *, here: str) -> Analysis:
    """The analysis with libraries of the system not judged: libnuma.so.1 of an aarch64 wheel, looked at on x86_64.

    What the tables know from NVIDIA's or PyPI's packages stays missing, and so do torch's own and the driver's.
    """
    if analysis.target.arch == here:
        return analysis
    system = tuple(each.name for each in analysis.missing if _is_of_the_system(each, tables))
    return replace(
        analysis,
        missing=tuple(each for each in analysis.missing if each.name not in system),
        not_judged=(*analysis.not_judged, *system),
    )


def _is_of_the_system(missing: Missing, tables: Tables) -> bool:
    if missing.whose is Whose.DRIVER or missing.damaged or missing.name.startswith(TORCHS_OWN):
        return False
    stem = missing.name.partition(".so")[0]
    packaged = any(row.soname.partition(".so")[0] == stem for row in tables.soname_wheels)
    return not packaged and not any(tables.nvidia_packages_with(missing.name, cuda_major=each) for each in (12, 13))

"""A diagnosis in one line, for prompts and scripts."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.agreement import doubts
from firstlight.diagnosis.finding import Diagnosis, Severity
from firstlight.diagnosis.observed import has_nvidia_gpu
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.numerals import counted
from firstlight.report.layout import Painted, Part, Style
from firstlight.report.summary import is_wanted, machine_summary

_WORDS = {
    Severity.BLOCKS: Painted("BLOCKED", Style.BAD),
    Severity.DEGRADES: Painted("WORKS, BUT", Style.WARN),
    Severity.NOTE: Painted("NOTE", Style.HEAD),
}


def doctor_short(facts: Facts, diagnosis: Diagnosis) -> Iterator[Part]:
    """'BLOCKED driver-too-old-for-wheel: The GPU driver is too ... (and 5 more)', or 'healthy: NVIDIA H200 ...'."""
    primary = diagnosis.of(diagnosis.primary) if diagnosis.primary else None
    if primary is not None:
        more = len(diagnosis.findings) - 1
        yield _WORDS[primary.severity]
        yield f" {primary.code}: {primary.title}" + (f" (and {more} more)" if more else "") + "\n"
        return
    if not has_nvidia_gpu(facts) and not isinstance(facts.driver.kernel_version, Known):
        yield "no NVIDIA GPU was found, and none was asked for\n"
        return
    if against := doubts(facts, diagnosis):
        yield Painted("unclear", Style.WARN)
        yield f": {'; '.join(each.text for each in against)}\n"
        return
    notes = f" ({counted(len(diagnosis.findings), 'note')})" if diagnosis.findings else ""
    yield Painted("nothing keeps it from working" if is_wanted(facts) else "healthy", Style.GOOD)
    yield f": {machine_summary(facts)[0]}{notes}\n"

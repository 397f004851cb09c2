"""Rules about variables that a program reads when it runs: those that make it slower."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.tables.setting_rows import SettingReader
from firstlight.versions import ComputeCapability
from firstlight.ways.kinds import UnsetVariables
from firstlight.ways.way import chain

# The GPUs of servers, which are joined by NVLink: V100, A100, H100 and H200, B200, B300.
_DIRECT = tuple(ComputeCapability(*each) for each in ((7, 0), (8, 0), (9, 0), (10, 0), (10, 3)))


def setting_slows(question: Question) -> Iterator[Seen]:
    """CUDA_LAUNCH_BLOCKING=1, left over from a search for an error: every launch waits for the one before."""
    for each in question.facts.build_variables:
        row = question.tables.runtime_setting(each.name)
        if row is not None and row.slows and each.value == row.slows and _matters(row.read_by, question.facts):
            yield Seen(
                saw=f"{each.name}={each.value} is set in the environment",
                answers=(chain(UnsetVariables((each.name,))),),
                means=f"{row.does} Programs run slower than they could here.",
            )


def _matters(read_by: SettingReader, facts: Facts) -> bool:
    """NCCL's are about copies between GPUs: two or more of those that have a direct way; a GeForce has none."""
    if read_by is not SettingReader.NCCL:
        return True
    found = [gpu.capability.value for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)]
    return len(found) > 1 and all(each in _DIRECT for each in found)


SETTING_RULES: tuple[Rule, ...] = (
    Rule(
        check=setting_slows,
        severity=Severity.DEGRADES,
        depth=70,
        title="A variable is set that makes programs slower.",
        fires_when="A variable for debugging or for experiments has a value that costs speed, e.g. "
        "CUDA_LAUNCH_BLOCKING=1.",
        looks_at=("build_variables",),
        means="Everything works, but slower than it could, and no measurement can be trusted.",
        source="docs.pytorch.org/docs/2.15/cuda_environment_variables.html; NVIDIA/nccl, userguide/source/env.rst",
        ways=(UnsetVariables,),
    ),
)

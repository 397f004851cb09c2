"""Confidential computing: whether the GPUs run in it, and whether they were told to take work."""

from __future__ import annotations

import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.nvml import NvmlAnswer
from firstlight.frozen import dataclass
from firstlight.machine import Machine

# What a confidential guest asks its processor through: AMD's SEV-SNP, Intel's TDX.
_GUESTS = ("/dev/sev-guest", "/dev/tdx_guest")
_FEATURE, _READY = ("nvidia-smi", "conf-compute", "-f"), ("nvidia-smi", "conf-compute", "-grs")


@dataclass(frozen=True, slots=True)
class ConfidentialFacts:
    """NVML's word on confidential computing, e.g. on and ready; a GPU that is not ready refuses every CUDA program."""

    enabled: Fact[bool]
    ready: Fact[bool]
    developer_tools: Fact[bool]  # a mode for debuggers, in which nothing is confidential


def probe_confidential(machine: Machine, nvml: NvmlAnswer) -> ConfidentialFacts:
    """The state that NVML tells, or nvidia-smi in a confidential guest; drivers before 535 know none."""
    said = nvml.system
    enabled, ready = said.flag("confidential_feature"), said.flag("confidential_ready")
    if isinstance(enabled, Unknown) and any(machine.stat(path) is not None for path in _GUESTS):
        enabled = _told(machine, _FEATURE, r"CC status:\s*(ON|OFF)\b", yes="ON")
        ready = _told(machine, _READY, r"Ready state:\s*([\w-]+)", yes="ready")
    return ConfidentialFacts(enabled, ready, said.flag("confidential_tools"))


def _told(machine: Machine, argv: tuple[str, ...], pattern: str, *, yes: str) -> Fact[bool]:
    done = machine.run(argv)
    match = re.search(pattern, done.stdout)
    line = " ".join(argv)
    if not done.ok or match is None:
        return Unknown(done.complaint if not done.ok else f"{line} names no state")
    return Known(match.group(1) == yes, line)

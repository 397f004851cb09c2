"""Another machine as an option, with the exact filter of the provider: CUDA of the driver, capability of the GPU."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.observed import at
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.facts.containers import Provider
from firstlight.plan.costs import not_known
from firstlight.plan.option import Kind, Option, Proof, Reversible, Risk
from firstlight.plan.situation import Situation
from firstlight.plan.with_set import with_set
from firstlight.versions import CudaVersion

_KIND = Kind.MACHINE


def machine_options(situation: Situation) -> Iterator[Option]:
    """A machine whose driver and GPU fit; rejected where what blocks would come along."""
    code = situation.diagnosis.primary
    option = replace(
        situation.blank(_KIND, "any"),
        title=_title(situation),
        proof=Proof.DOCUMENTED if situation.needs is not None else Proof.GUESSED,
        proof_by="docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
        if situation.needs is not None
        else "the fault is of this machine; another one need not have it",
        cost=not_known(situation.request, "how long it takes to get another machine and set it up is not known"),
        reversible=Reversible.NO,
        risk=Risk.HIGH,
        brings=tuple(_filters(situation)),
    )
    if situation.answered_by(_KIND) and not _comes_along(situation):
        yield with_set(situation, option)
    else:
        yield replace(option, feasible=False, why_not=f"{code} can be answered here, and may come along")


def _comes_along(situation: Situation) -> bool:
    """Whether only removing something answers it: the driver here runs what has to run."""
    return situation.answered_by(Kind.REMOVE) and situation.needs is None


def needed_cuda(situation: Situation) -> CudaVersion | None:
    """The first CUDA of the major that has to run: hosts are filtered by what their driver offers at least."""
    cuda = situation.needs or situation.torch_cuda
    return None if cuda is None else CudaVersion(cuda.major, 0)


def _title(situation: Situation) -> str:
    cuda, gpus = needed_cuda(situation), gpus_of(situation.question)
    row = None if cuda is None else situation.question.tables.cuda_major(cuda.major)
    parts = []
    if row is not None and (situation.needs is not None or situation.wanted):
        parts.append(f"driver {row.min_driver_same_major.branch} or newer (CUDA {cuda})")
    if gpus:
        parts.append(f"compute capability {min(gpu.capability for gpu in gpus)}")
    return f"another machine{' with ' if parts else ''}{' and '.join(parts)}; everything is set up anew there"


def _filters(situation: Situation) -> Iterator[str]:
    """The command or the filter of the provider that this machine is from."""
    facts, cuda, gpus = situation.facts, needed_cuda(situation), gpus_of(situation.question)
    floor = "" if cuda is None else str(cuda)
    if at(facts, Provider.RUNPOD):
        gpu = f" --gpu-id {shlex.quote(min(gpu.name for gpu in gpus))}" if gpus else ""
        yield f"runpodctl pod create{gpu}{f' --min-cuda-version {floor}' if floor else ''}"
    elif at(facts, Provider.VAST):
        capability = min((gpu.capability for gpu in gpus), default=None)
        # Vast counts a capability in hundreds: 8.9 is 890.
        cap = f" compute_cap>={capability.major * 100 + capability.minor * 10}" if capability is not None else ""
        yield f"vastai search offers '{f'cuda_max_good>={floor}' if floor else ''}{cap}'"

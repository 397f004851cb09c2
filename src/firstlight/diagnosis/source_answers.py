"""A build from source as the last answer."""

from __future__ import annotations

from firstlight.diagnosis.compat_choice import offered_cuda
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_bounds import variants_of
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.facts.known import Known, Unknown
from firstlight.versions import TorchVersion
from firstlight.ways.kinds import BuildFromSource
from firstlight.ways.way import Chain, Proof, chain

_RELEASE = 2  # the stage of a TorchVersion that has a tag of its own


def source_answers(question: Question) -> tuple[Chain, ...]:
    """torch built here for these GPUs and a CUDA that runs: the judged release, else the newest."""
    facts = question.facts
    version = facts.torch.value.version if isinstance(facts.torch, Known) else Unknown("no torch")
    newest = question.tables.newest_torch(facts.place.arch)
    release = "" if newest is None else newest.torch.public
    if isinstance(version, Known) and version.value.stage >= _RELEASE:
        release = version.value.public
    if _is_beyond_driver(question, release) or _is_before_gpus(question, release):
        return ()
    capabilities = tuple(sorted({gpu.capability for gpu in gpus_of(question)}))
    by = "github.com/pytorch/pytorch#from-source; not tried on this machine"
    return (chain(BuildFromSource("torch", release, capabilities), proof=Proof.GUESSED, by=by),)


def _is_before_gpus(question: Question, release: str) -> bool:
    """Whether only CUDA majors that came after the release know a GPU here: torch 1.13 has CUDA 11, sm_120 CUDA 12."""
    tables = question.tables
    known = variants_of(tables, TorchVersion.parse(release), machine=question.facts.place.arch) if release else set()
    firsts = [next(iter(tables.toolkits_for(gpu.capability)), None) for gpu in gpus_of(question)]
    return bool(known) and any(first is not None and first.major > max(known).major for first in firsts)


def _is_beyond_driver(question: Question, release: str) -> bool:
    """Whether every CUDA that this release can be built with is of a major that the driver does not run.

    Of releases before those whose floor is on record: the oldest CUDA that they were published for.
    """
    oldest, offered = None, offered_cuda(question)
    if release and isinstance(question.facts.place.l4t, Unknown):  # a board has one torch alone: NVIDIA's, or a build
        torch, tables = TorchVersion.parse(release), question.tables
        published = variants_of(tables, torch, machine=question.facts.place.arch)
        oldest = tables.oldest_toolkit("torch", torch) or min(published, default=None)
    return oldest is not None and offered is not None and offered.major < oldest.major

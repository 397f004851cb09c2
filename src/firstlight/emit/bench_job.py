"""What jobs that measure collectives have in common: the call of `firstlight bench`, and where its nodes meet."""

from __future__ import annotations

from firstlight.emit.subject import Subject

PORT = 29500  # of the rendezvous; torchrun's own default
NOT_RUN = "Not tested on several GPUs or nodes when this was written; tested with gloo on one machine."


def bench_words(subject: Subject) -> tuple[str, ...]:
    """The arguments of firstlight, without where nodes meet: GPUs with NCCL, or processes with gloo without CUDA."""
    device = "all" if subject.gates.asks_for_gpu else "cpu"
    return ("bench", "--only", "collective", "--device", device)


def bench_name(subject: Subject, name: str) -> str:
    """The name of such a job: 'bench-torch-2.9.0-cu130', or the one that was given."""
    return name if subject.choices.name or subject.bench is None else f"bench-{name}"

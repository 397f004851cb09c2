"""What every kind that starts the image of `emit dockerfile` has in common: the gate, the proof, shared memory."""

from __future__ import annotations

from firstlight.diagnosis.observed import platform
from firstlight.emit.dockerfile import HOME
from firstlight.emit.subject import Subject
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.facts.place import Platform
from firstlight.tables.gpu_rows import GpuKind

SHARED_MEMORY_GIB = 8  # a container's own 64 MB end data loaders of torch, and NCCL, with a bus error
ENTRYPOINT = f"{HOME}/entrypoint.sh"


def gate_command(subject: Subject) -> tuple[str, ...]:
    """Asks the gates of the image and, for a build with CUDA, whether the driver still answers; its exit code tells."""
    asks_driver = subject.gates.asks_for_gpu and not is_board(subject)  # a board's nvidia-smi is not in every container
    return (ENTRYPOINT, *(("nvidia-smi", "--list-gpus") if asks_driver else ("true",)))


def proof_arguments() -> tuple[str, ...]:
    """What the entrypoint is given where nobody says anything else."""
    return ("firstlight", "verify", "--python", f"{HOME}/env/bin/python")


def refuse_base_of_an_image(subject: Subject) -> None:
    """Refuse --base beside --image: one of them would say nothing."""
    if subject.choices.image and subject.choices.base:
        raise BadInput(
            f"--image {subject.choices.image[:40]!a} and --base {subject.choices.base[:40]!a}: accepted is one of "
            "them. An image that was built has its base already; leave --base out, or --image to build one."
        )


def is_board(subject: Subject) -> bool:
    """Whether it is a Jetson, whose containers get the GPU from the runtime and not by a device request."""
    names = (gpu.name.value for gpu in subject.facts.gpus.devices if isinstance(gpu.name, Known))
    rows = (subject.tables.gpu_named(name) for name in names)
    return platform(subject.facts) is Platform.JETSON or any(
        row is not None and row.kind is GpuKind.JETSON for row in rows
    )

"""What the verdict on an image leaves out, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.lint.driver_rules import branches_not_known
from firstlight.lint.frameworks import in_base
from firstlight.lint.host import driver_cuda, driver_of, machine_words
from firstlight.lint.images import Flavour
from firstlight.lint.installs import installs, installs_of
from firstlight.lint.model import Place, Target, Where
from firstlight.lint.torches import InImage, runs_on_gpu, torches
from firstlight.lint.wheels import torch_asked
from firstlight.tables.gpu_rows import Runs
from firstlight.versions import CudaVersion


def not_judged(target: Target, question: Question, *, decided: frozenset[Place]) -> Iterator[str]:
    """What could not be read, then what the tables do not know of the torch inside.

    `decided` are places whose torch is judged already: of one that does not exist nothing else is asked.
    """
    yield from _not_read(target, question)
    gate_of_its_own = {"NVIDIA_REQUIRE_CUDA", "NVIDIA_DISABLE_REQUIRE"} & set(target.env)
    if not gate_of_its_own and (branches_not_known(target.image, question) or _of_a_newer_base(target, question)):
        yield f"{target.place}: whether {target.image.name} lets in {machine_words(question)} is not in the tables"
    yield from _torch_not_known(target, question, decided)


def _of_a_newer_base(target: Target, question: Question) -> bool:
    """vLLM's image stands on NVIDIA's of its CUDA and keeps its gate (vllm-project/vllm#5635)."""
    own = driver_cuda(question)
    served = in_base(target, question) if target.image.server_release else None
    if own is None or served is None or not served.cuda:
        return False
    return CudaVersion.parse(served.cuda).release > own


def _not_read(target: Target, question: Question) -> Iterator[str]:
    image = target.image
    if target.service is not None and not image.name and target.where is Where.BUILD:
        yield f"{target.place}: service {target.name}: it names no image, or its Dockerfile was not found"
    elif "$" in image.name:
        yield f"{target.place}: {image.name}: give the value with --build-arg"
    elif image.flavour is Flavour.UNKNOWN and image.cuda is None and image.name and not in_base(target, question):
        yield f"{target.place}: the name {image.name} does not tell what is inside"
    for install in installs_of(target):
        for name in install.files:
            if name not in dict(target.lists):
                yield f"{install.ran.place}: {name} was not found beside it, or could not be read"
    for other in target.copied_from:
        yield from _not_read(other, question)


def _torch_not_known(target: Target, question: Question, decided: frozenset[Place]) -> Iterator[str]:
    """A torch that cannot be held against the driver or the GPUs; nothing where the machine has neither."""
    if driver_of(question) is None and not gpus_of(question):
        return
    torch = torches(target, question).last
    if torch is not None:
        yield from () if torch.place in decided else _cuda_or_code_not_known(torch, question)
        return
    for install in installs(target):
        if torch_asked(install) is not None and install.ran.place not in decided:
            yield f"{install.ran.place}: {install.ran.shown}: which torch it brings is not known"


def _cuda_or_code_not_known(torch: InImage, question: Question) -> Iterator[str]:
    if torch.cuda is None:
        if not torch.variant:
            yield f"{torch.place}: {torch.how}: which CUDA torch {torch.version.public} is built for is not known"
        return
    open_ = [gpu for gpu in gpus_of(question) if runs_on_gpu(torch, gpu.capability, question) is Runs.NOT_KNOWN]
    if open_:
        names = ", ".join(dict.fromkeys(gpu.name for gpu in open_))
        yield f"{torch.place}: whether {torch.shown} has code for {names} is not in the tables"

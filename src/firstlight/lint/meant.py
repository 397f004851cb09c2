"""Whether an image or a service is meant for a GPU, or for processors alone, as far as its file tells."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.lint.model import Copied, Ran, Service, Target

_CPU_IN_NAME = re.compile(r"(?:^|[-_.])cpu(?:$|[-_.])", re.IGNORECASE)
_FILES_ALONE = ("chown", "chmod", "cp", "mkdir", "mv", "rm", "tar", "unzip", "wget", "curl", "rsync", "git", "ls")
_DEVICE = re.compile(r"(?:.*_)?(?:DEVICE|ACCELERATOR)")
_ON_CPU = re.compile(r"\bgloo\b|--(?:use[-_])?cpu\b|--(?:device|accelerator)[= ]cpu")
_SEVERAL_WORKERS = re.compile(r"--nproc[-_]per[-_]node[= ](?:gpu|auto|[2-9]|[1-9]\d)")
_ON_GPU = re.compile(
    r"\bnccl\b|--(?:device|accelerator)[= ](?:cuda|gpu)|\bcuda:\d|--multi[-_]gpu|^(?:deepspeed|vllm serve)\b"
)
NO_DEVICES = ("void", "none", "")  # values of NVIDIA_VISIBLE_DEVICES that ask for no GPU
_RUNS_ELSEWHERE = ("echo", "printf", "grep", "sbatch", "ssh", "pip", "conda", "export", "git", "cat", "sed")


def for_cpu_alone(target: Target) -> bool:
    """Whether the file says that no GPU is meant, and nothing in it speaks of one."""
    return meant_for_cpu(target) and not gpu_is_meant(target)


def meant_for_cpu(target: Target) -> bool:
    """Whether it is to run without a GPU: by the name of its file, service or stage, --cpu, or DEVICE=cpu."""
    if named_for_cpu(target):
        return True
    if target.service is not None and target.starts and all(_on_files_alone(ran) for ran in target.starts):
        return True  # a service that makes a volume ready for the others
    if any(_DEVICE.fullmatch(each.name) and each.value.strip().lower() == "cpu" for each in target.env.values()):
        return True
    return any(_ON_CPU.search(" ".join(ran.words)) for ran in target.starts) and needs_gpu(target) is None


def named_for_cpu(target: Target) -> bool:
    """Whether a name says so: Dockerfile.cpu, docker/cpu/Dockerfile, requirements-cpu.txt, a stage `cpu`."""
    files, names = [target.place.file], [target.name]
    if target.service is not None:
        files, names = [*files, target.service.place.file], [*names, target.service.name]
    return any(_CPU_IN_NAME.search(name) for name in names) or any(_is_cpu_file(file) for file in files)


def _is_cpu_file(path: str) -> bool:
    *folders, name = path.split("/")
    return _CPU_IN_NAME.search(name) is not None or folders[-1:] == ["cpu"]


def _on_files_alone(ran: Ran) -> bool:
    return ran.command.program in _FILES_ALONE


def needs_gpu(target: Target) -> Ran | None:
    """The command that shows a GPU is meant: NCCL, --device cuda, several workers of torchrun on one node."""
    for ran in target.starts:
        said = " ".join(ran.words)
        if _ON_CPU.search(said) or ran.command.program in _RUNS_ELSEWHERE:
            continue
        if _ON_GPU.search(said) or (_SEVERAL_WORKERS.search(said) and re.search(r"torchrun|torch\.distributed", said)):
            return ran
    return None


def said_in(target: Target) -> Iterator[str]:
    """All that the file shows of programs: what RUN and the start run, and files that it writes itself."""
    for ran in (*target.ran, *target.starts):
        yield " ".join(ran.words)
        yield ran.command.stdin
    yield from (event.text for event in target.events if isinstance(event, Copied))


def gpu_is_meant(target: Target) -> bool:
    """Whether the file shows that a GPU is used: its base, its variables, a reservation, a program that names CUDA."""
    service = target.service
    devices = target.env.get("NVIDIA_VISIBLE_DEVICES")
    if target.image.is_cuda or "NVIDIA_DRIVER_CAPABILITIES" in target.env:
        return True
    if devices is not None and devices.value.strip() not in NO_DEVICES:
        return True
    if service is not None and _asks_for_gpus(service):
        return True
    return any(re.search(r"CUDAExecutionProvider|--gpus\b|nvidia-smi|\bcuda\b", text) for text in said_in(target))


def _asks_for_gpus(service: Service) -> bool:
    """Whether a service, pod or job asks for GPUs, be it where nobody reads it."""
    by_itself = service.gpus or service.runtime == "nvidia" or service.limits_place is not None
    return by_itself or bool(service.devices)

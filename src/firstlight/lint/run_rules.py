"""Rules about how the image runs: whether it gets the GPUs, who it runs as, and what it will be tomorrow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.lint.host import runs_major
from firstlight.lint.images import CUDA_REPOSITORIES, Flavour
from firstlight.lint.model import Target
from firstlight.lint.rule import LintRule, Seen
from firstlight.lint.torches import torches

_TOOLKIT_ENV = "docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
_HOMES = re.compile(r"(?:HF_|TORCH|TRITON_|XDG_|TRANSFORMERS_|PIP_|UV_|NUMBA_|MPL|CUDA_)\w*(?:HOME|CACHE\w*|DIR|PATH)?")
_ROOT = re.compile(r"(?:^|:)/root(?:/|:|$)")


def uses_cuda(target: Target, question: Question) -> bool:
    """Whether the image is for a GPU: by its base, or by the torch inside."""
    if target.image.is_cuda:
        return True
    torch = torches(target, question).last
    return torch is not None and torch.cuda is not None


def gpus_not_asked_for(target: Target, question: Question) -> Iterator[Seen]:
    """python:3.12 with torch: nothing in the image asks the NVIDIA runtime for GPUs."""
    asked = target.env.get("NVIDIA_VISIBLE_DEVICES")
    service = target.service
    if service is not None and service.runtime != "nvidia":
        return  # a reservation asks by itself, and service-without-gpu speaks where there is none
    plain = target.image.flavour is Flavour.NONE and not target.image.asks_for_gpus
    if asked is None and plain and uses_cuda(target, question):
        yield Seen(
            target.place if service is None else service.place,
            f"{target.image.name} sets no NVIDIA_VISIBLE_DEVICES, and the torch inside needs a GPU",
            ("ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",),
            severity=Severity.BLOCKS if service is not None else None,
        )


def gpus_switched_off(target: Target, question: Question) -> Iterator[Seen]:
    """ENV CUDA_VISIBLE_DEVICES="" or NVIDIA_VISIBLE_DEVICES=void: no GPU in the container."""
    masked, given = target.env.get("CUDA_VISIBLE_DEVICES"), target.env.get("NVIDIA_VISIBLE_DEVICES")
    if masked is not None and masked.value.strip() in ("", "-1", "NoDevFiles"):
        saw = f"CUDA_VISIBLE_DEVICES={masked.written or '(empty)'} hides every GPU from CUDA"
        yield Seen(masked.place, saw, ("take it out; choose GPUs when the container is started",))
    elif masked is not None:
        numbers = [int(each) for each in masked.value.split(",") if each.strip().isdigit()]
        count = len(gpus_of(question))
        if numbers and count and min(numbers) >= count:
            saw = f"CUDA_VISIBLE_DEVICES={masked.value}: the machine has {count} GPU{'s' if count > 1 else ''}, from 0"
            yield Seen(masked.place, saw, ("take it out; choose GPUs when the container is started",))
    if given is not None and given.value.strip() in ("void", "none", ""):
        saw = f"NVIDIA_VISIBLE_DEVICES={given.value} asks for no GPU (`docker run --gpus` overrides it)"
        yield Seen(given.place, saw, ("NVIDIA_VISIBLE_DEVICES=all",), severity=Severity.DEGRADES)


def compute_left_out(target: Target, question: Question) -> Iterator[Seen]:
    """ENV NVIDIA_DRIVER_CAPABILITIES=graphics,utility: libcuda is not mounted."""
    given = target.env.get("NVIDIA_DRIVER_CAPABILITIES")
    if given is None or "$" in given.value:
        return
    names = {each.strip() for each in given.value.split(",") if each.strip()}
    if names and not names & {"compute", "all"}:
        saw = f"NVIDIA_DRIVER_CAPABILITIES={given.value} leaves out compute"
        yield Seen(given.place, saw, (f"NVIDIA_DRIVER_CAPABILITIES=compute,{given.value}",))
    elif names and not names & {"utility", "all"}:
        saw = f"NVIDIA_DRIVER_CAPABILITIES={given.value} leaves out utility: no nvidia-smi, no NVML"
        do = (f"NVIDIA_DRIVER_CAPABILITIES={given.value},utility",)
        yield Seen(given.place, saw, do, severity=Severity.DEGRADES)


def user_without_access(target: Target, question: Question) -> Iterator[Seen]:
    """USER app, and HF_HOME=/root/.cache/huggingface: /root is closed to everybody else."""
    user = target.user
    if user is None or user.name.split(":")[0] in ("root", "0") or "$" in user.name:
        return
    for event in target.env.values():
        if _ROOT.search(event.value) and (event.name == "PATH" or _HOMES.fullmatch(event.name)):
            yield Seen(
                event.place,
                f"{event.name}={event.written}, and the image runs as {user.name} (line {user.place.line})",
                (f"put it where {user.name} may go, e.g. /opt or /home/{user.name.split(':')[0]}",),
                severity=None if event.name == "PATH" else Severity.DEGRADES,
            )


def base_not_pinned(target: Target, question: Question) -> Iterator[Seen]:
    """FROM pytorch/pytorch:latest is another torch and another CUDA next month."""
    image = target.image
    if image.pinned or "$" in image.name or image.name in ("", "scratch") or image.tag not in ("", "latest"):
        return
    if target.service is not None and not uses_cuda(target, question):
        return
    if image.repository in CUDA_REPOSITORIES:
        return  # image_does_not_exist speaks for these
    yield Seen(target.place, f"{image.name} names no version", ("name a version, best with its @sha256 digest",))


def image_does_not_exist(target: Target, question: Question) -> Iterator[Seen]:
    """nvidia/cuda:latest and nvidia/cuda:12.4-devel: NVIDIA's tags have three numbers; those of CUDA 10 are gone."""
    image = target.image
    if image.repository not in CUDA_REPOSITORIES or image.pinned or "$" in image.name:
        return
    if image.tag in ("", "latest"):
        saw = f"{image.name}: NVIDIA publishes no tag `latest`"
    elif image.cuda is not None and image.cuda.major <= 10:
        saw = f"{image.name}: the images of CUDA 10 and older were removed"
    elif image.cuda is not None and image.cuda.patch < 0:
        saw = f"{image.name}: tags name three numbers, e.g. {image.cuda}.1"
    else:
        return
    yield Seen(target.place, saw, ("take a tag of hub.docker.com/r/nvidia/cuda/tags, e.g. 12.8.1-base-ubuntu22.04",))


def torch_not_pinned(target: Target, question: Question) -> Iterator[Seen]:
    """pip install torch: what it gives changes with every release, and with it the oldest driver."""
    torch = torches(target, question).last
    if torch is None or torch.pinned or torch.install is None:
        return
    does_not_run = torch.cuda is not None and runs_major(question, torch.cuda.major) is False
    do = (
        "pin one that runs there: see torch-needs-newer-driver"
        if does_not_run
        else f"pin it: torch=={torch.version.public}"
    )
    yield Seen(
        torch.place,
        f"{torch.how} names no version; on {question.tables.newest_date()} it gives torch {torch.version}",
        (do,),
    )


RUN_LINT_RULES = (
    LintRule(
        "gpus-not-asked-for",
        gpus_not_asked_for,
        Severity.DEGRADES,
        "nothing in the image asks for GPUs",
        "`docker run --gpus` asks by itself; where nvidia is the default runtime (Kubernetes, many rented machines) "
        "the image's variable decides.",
        "RuntimeError: Found no NVIDIA driver on your system",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "gpus-switched-off",
        gpus_switched_off,
        Severity.BLOCKS,
        "a variable of the image hides the GPUs",
        "The variable is set for every program in the container.",
        "RuntimeError: No CUDA GPUs are available",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "compute-left-out",
        compute_left_out,
        Severity.BLOCKS,
        "NVIDIA_DRIVER_CAPABILITIES leaves out what CUDA needs",
        "The container toolkit mounts only the libraries of the capabilities named: libcuda belongs to compute, "
        "nvidia-smi and NVML to utility.",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        _TOOLKIT_ENV,
    ),
    LintRule(
        "user-without-access",
        user_without_access,
        Severity.BLOCKS,
        "the user of the image cannot use a folder of root's",
        "/root has mode 700: another user can neither read nor write below it.",
        "PermissionError: [Errno 13] Permission denied: '/root/...'",
        "docs.docker.com/reference/dockerfile/#user",
    ),
    LintRule(
        "base-not-pinned",
        base_not_pinned,
        Severity.NOTE,
        "the base image names no version",
        "What is inside, and with it the oldest driver, changes without a change in the file.",
        "",
        "docs.docker.com/build/building/best-practices/#pin-base-image-versions",
    ),
    LintRule(
        "image-does-not-exist",
        image_does_not_exist,
        Severity.BLOCKS,
        "the build fails: NVIDIA has no image of this name",
        "Every image is named by three numbers, content and system; old ones are removed.",
        "manifest for nvidia/cuda:... not found: manifest unknown",
        "github.com/NVIDIA/nvidia-docker/issues/1454, 1735 and 1768",
    ),
    LintRule(
        "torch-not-pinned",
        torch_not_pinned,
        Severity.NOTE,
        "torch is installed without a version",
        "The next build may bring a torch for a CUDA that the driver does not run.",
        "",
        "pip.pypa.io/en/stable/user_guide/#pinned-version-numbers",
    ),
)

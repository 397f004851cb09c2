"""Rules about services of a compose file: who gives them GPUs, and how much shared memory they have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.facts.known import Known
from firstlight.lint.meant import gpu_is_meant, meant_for_cpu, needs_gpu
from firstlight.lint.model import Device, Joined, Ran, Syntax, Target, Where
from firstlight.lint.rule import LintRule, SeenAt
from firstlight.lint.run_rules import computes, uses_cuda
from firstlight.lint.shell import whole_number
from firstlight.lint.split_over import OF_TORCH, STOPS, Split, less_split, splits
from firstlight.lint.torches import torches
from firstlight.lint.written import ask
from firstlight.ways.kinds import StartContainer, Why
from firstlight.ways.way import Chain, chain

_DOCKER = "docs.docker.com/compose/how-tos/gpu-support"
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SMALL = 1 << 30  # what a DataLoader with a few workers needs at least; Docker's default is 64 MB
_DRIVER_CAPABILITIES = {"utility", "video", "graphics", "display", "ngx", "compat32"}
_RESERVATION = "--gpus=driver=nvidia,count=all,capabilities=gpu"


# By which words each kind of file asks for GPUs, and who gives none where they are missing.
_ASKS = {
    Syntax.COMPOSE: ("no `gpus`, no device reservation and no nvidia runtime", ""),
    Syntax.KUBERNETES: (
        "no nvidia.com/gpu under resources.limits",
        "Kubernetes gives a container no devices that its limits do not name.",
    ),
    Syntax.DEVCONTAINER: (
        "no --gpus in runArgs and no hostRequirements.gpu",
        "Docker gives a container no devices that it is not started with.",
    ),
    Syntax.WORKFLOW: (
        "no --gpus in the options of its container",
        "Docker gives a container no devices that it is not started with, on a runner with GPUs too.",
    ),
    Syntax.SHELL: (
        "no --gres=gpu, --gpus or --gpus-per-node",
        "Slurm hides the GPUs that a job did not ask for.",
    ),
}


def service_without_gpu(target: Target, question: Question) -> Iterator[SeenAt]:
    """A service on nvidia/cuda without a reservation of devices runs without a GPU."""
    service = target.service
    if service is not None and service.joined:
        yield _as_one_word(service.joined)
        return
    if service is None or service.gpus or service.runtime == "nvidia":
        return
    if service.devices and not service.without_driver:
        return
    if service.starts_others or meant_for_cpu(target):
        return
    if target.where is Where.RUNNER and not target.image.name:
        return  # on the runner itself, of which runner-without-gpu speaks
    why = _for_a_gpu(target, question)
    if not why or (target.where is Where.RUNNER and "NVIDIA_VISIBLE_DEVICES" in target.env):
        return  # a runner of one's own whose runtime goes by the variable
    if service.limits_place is not None:
        saw = f"service {service.name} names devices under `limits`, where compose does not look for them"
        yield SeenAt(service.limits_place, saw, (ask("move them under `reservations`", Why.PROGRAM),))
        return
    asks, because = _ASKS[service.place.syntax]
    if service.without_driver:
        asks, because = "no --nv in the command that starts its container", "Apptainer takes the driver in with --nv."
    elif service.place.syntax is Syntax.SHELL and target.image.name:
        asks, because = (
            f"{asks}, or its container no --nv",
            f"{because} Apptainer takes the driver in with --nv.",
        )
    needs = needs_gpu(target)
    place = service.place if needs is None or service.place.syntax is not Syntax.SHELL else needs.place
    saw = f"{service.name} is for a GPU ({why}) and has {asks}"
    if service.without_driver:
        yield SeenAt(service.place, saw, (ask("start the container with --nv"),), because)
        return
    if service.place.syntax is not Syntax.COMPOSE:
        yield SeenAt(place, saw, (_as_many_as_run(target, question),), because)
        return
    reserved = chain(StartContainer((_RESERVATION,), gives_gpus=True), title="where compose does not know that key")
    yield SeenAt(service.place, saw, (chain(StartContainer(("--gpus=all",), gives_gpus=True)), reserved))


def _as_one_word(joined: Joined) -> SeenAt:
    name, _, value = joined.words.partition(" ")
    title = f'write "{name}={value.strip()}", or "{name}", "{value.strip()}"'
    saw = f'runArgs has "{joined.words}" as one word, which docker takes for the name of an option'
    because, error = "Each word of runArgs is one argument of `docker run`.", f"unknown flag: {joined.words}"
    return SeenAt(joined.place, saw, (ask("write it as two words", title=title),), because, error)


def _as_many_as_run(target: Target, question: Question) -> Chain:
    """A GPU for each process or part of a model; where the machine has fewer, fewer of these too."""
    split = max(splits(target), key=lambda each: each.gpus, default=None)
    count = question.facts.gpus.count
    if split is None or split.gpus < 2:
        return chain(StartContainer(("--gpus=all",), gives_gpus=True))
    if not isinstance(count, Known) or not 0 < count.value < split.gpus:
        return chain(StartContainer((f"--gpus={split.gpus}",), gives_gpus=True))
    fewer = less_split(split, count.value)
    return chain(StartContainer((f"--gpus={count.value}",), gives_gpus=True), *fewer.ways, title=fewer.title)


def _for_a_gpu(target: Target, question: Question) -> str:
    """What shows that a service is for a GPU: its image, its torch, its variables, what it runs; '' nothing does."""
    assert target.service is not None, target
    if uses_cuda(target, question):
        return target.image.name if target.image.is_cuda else "its torch"
    asked = target.env.get("NVIDIA_VISIBLE_DEVICES")
    if asked is not None and asked.place.syntax is target.service.place.syntax:  # not of an image's own
        return "its environment"
    needs = needs_gpu(target)
    return "" if needs is None else f"`{needs.shown}`"


def reservation_without_gpu(target: Target, question: Question) -> Iterator[SeenAt]:
    """A device reservation without `capabilities: [gpu]` is refused."""
    for device in target.service.devices if target.service is not None else ():
        if not device.capabilities:
            saw = "the device reservation names no capabilities"
            yield SeenAt(device.place, saw, (ask("write `capabilities: [gpu]` in it", Why.PROGRAM),))
            continue
        if device.count and device.ids:
            saw = "the device reservation has both count and device_ids"
            error = '"count" and "device_ids" attributes are exclusive'
            yield SeenAt(device.place, saw, (ask("keep one of them"),), error=error)
        named = set(device.capabilities)
        if named & _DRIVER_CAPABILITIES and "compute" not in named and computes(target, question):
            yield SeenAt(
                device.place,
                f"capabilities: [{', '.join(device.capabilities)}] leaves out compute",
                (ask("write `capabilities: [gpu]`, which gives compute and utility", Why.PROGRAM),),
                because="What is named besides gpu becomes NVIDIA_DRIVER_CAPABILITIES; libcuda belongs to compute "
                "(github.com/docker/compose/issues/8583).",
                error="libcuda.so.1: cannot open shared object file: No such file or directory",
            )


def more_gpus_than_machine(target: Target, question: Question) -> Iterator[SeenAt]:
    """count: 8, or --tensor-parallel-size 8, on a machine with one GPU."""
    count = question.facts.gpus.count
    if target.service is None or not isinstance(count, Known) or count.value == 0:
        return
    more = '; where it has more, name them: --for "8x H100, ..."' if count.seen_in == "--for" else ""
    split = next((each for each in splits(target) if each.gpus > count.value), None)
    said = False
    for device in target.service.devices:
        wanted = whole_number(device.count) or 0
        beyond = [each for each in device.ids if (whole_number(each) or 0) >= count.value]
        if wanted > count.value or beyond:
            asked = f"{wanted} GPUs" if wanted > count.value else f"device_ids {', '.join(beyond)}, counted from 0,"
            saw = f"{asked} are asked for; the machine has {count.value}{more}"
            because, error = _NO_SUCH_NODE.get(device.place.syntax, ("", ""))
            yield SeenAt(device.place, saw, (_fewer(device, count.value, split),), because, error)
            said = True
    if not said and (short := _gets_fewer(target, count.value)) is not None:
        yield short
        return
    asks = target.service.place.syntax is Syntax.COMPOSE or bool(target.service.devices) or target.service.gpus
    if split is not None and not said and asks:
        saw = f"{split.option} {split.gpus} asks for {split.gpus} GPUs; the machine has {count.value}{more}"
        because, error = STOPS[split.is_model]
        error = error.format(asked=split.gpus, has=count.value)
        yield SeenAt(split.place, saw, (less_split(split, count.value),), because, error)


def _gets_fewer(target: Target, there: int) -> SeenAt | None:
    """nvidia.com/gpu: 1, or count: 1, of a container whose command takes two, on a machine that has them."""
    assert target.service is not None
    devices = target.service.devices
    if target.service.place.syntax not in (Syntax.COMPOSE, Syntax.KUBERNETES, Syntax.SHELL) or len(devices) != 1:
        return None
    [device] = devices
    gets = len(device.ids) or whole_number(device.count) or 0
    split = next((each for each in splits(target) if 0 < gets < each.gpus <= there), None)
    if split is None:
        return None
    saw = f"{split.option} {split.gpus} takes {split.gpus} GPUs; {target.service.name} gets {gets}"
    because, error = STOPS[split.is_model]
    more = chain(StartContainer((f"--gpus={split.gpus}",), gives_gpus=True), title=f"ask for {split.gpus} there")
    fewer = chain(StartContainer((f"{split.option}={gets}",)), title=f"{split.option} {gets}")
    answers = (more, fewer) if target.service.place.syntax is Syntax.KUBERNETES else (fewer,)
    return SeenAt(split.place, saw, answers, because, error.format(asked=split.gpus, has=gets))


_NO_SUCH_NODE = {
    Syntax.KUBERNETES: (
        "A pod waits until a node has that many free; this machine never has.",
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
    ),
    Syntax.SHELL: (
        "Slurm takes no job that no node can hold; the count is for each node.",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    ),
}


# How fewer GPUs are asked for where they are asked for: what is written, and the argument it stands for.
_FEWER = {
    Syntax.COMPOSE: ("count: all", "--gpus=all"),
    Syntax.KUBERNETES: ("nvidia.com/gpu: {count}", "--gpus={count}"),
    Syntax.SHELL: ("--gpus-per-node={count}", "--gpus={count}"),
}


def _fewer(device: Device, count: int, split: Split | None) -> Chain:
    """As many as there are, and the command's own number with it: a rank without a GPU ends."""
    written, argument = (each.format(count=count) for each in _FEWER.get(device.place.syntax, ("{count}",) * 2))
    if split is not None:
        return less_split(split, count, also=(written, argument))
    if device.ids:
        written = f"{written}` in place of `device_ids"
    title = f"write `{written}`" if device.place.syntax is Syntax.COMPOSE else f"ask for {count}: `{written}`"
    return chain(StartContainer((argument,)), title=f"{title}, or take a machine with more")


def small_shared_memory(target: Target, question: Question) -> Iterator[SeenAt]:
    """A training service with Docker's 64 MB of /dev/shm: DataLoader workers die."""
    service = target.service
    if service is None or service.ipc in ("host", "shareable") or service.ipc.startswith(("service:", "container:")):
        return
    if service.starts_others or not uses_shared_memory(target, question):
        return
    size = _bytes(service.shm_size)
    if size is None or size >= _SMALL:
        return
    how = _SHM_BY.get(service.place.syntax, "no shm_size, no ipc: host")
    has = f"{service.shm_size} of /dev/shm" if service.shm_size else f"64 MB of /dev/shm, as a container has it ({how})"
    answers = tuple(chain(StartContainer((each,))) for each in ("--shm-size=16gb", "--ipc=host"))
    yield SeenAt(service.place, f"{service.name} has {has}", answers)


_SHM_BY = {
    Syntax.KUBERNETES: "no emptyDir in memory mounted there, no hostIPC",
    Syntax.DEVCONTAINER: "no --shm-size and no --ipc=host in runArgs",
    Syntax.WORKFLOW: "no --shm-size and no --ipc=host in the options",
    Syntax.SHELL: "no --shm-size and no --ipc=host",
}
# What others have as well: a DataLoader's workers, or those of any program; MPI's ranks; --tp.
_OF_ANY = re.compile(r"\bmpirun\b|--(?:num[-_])?workers[= ][1-9]|--tp\b")
# Their workers answer requests, each by itself: nothing goes from one to another through /dev/shm.
_WEB = re.compile(r"\b(?:gunicorn|uvicorn|hypercorn|granian|daphne|uwsgi|celery|fastapi|waitress-serve|sanic)\b")


def uses_shared_memory(target: Target, question: Question) -> bool:
    """Whether it shows that /dev/shm is used: DataLoader workers, several GPUs under NCCL, or a server that does."""
    service = target.service
    assert service is not None
    several = any(len(each.ids) > 1 or (whole_number(each.count) or 0) > 1 for each in service.devices)
    if (several and not _only_waits(target)) or target.image.is_server:
        return True
    said = [" ".join(ran.words) for ran in target.starts]
    if any(OF_TORCH.search(text) for text in said):
        return True
    workers = any(_OF_ANY.search(text) and not _WEB.search(text) for text in said)
    return workers and _has_torch_or_gpu(target, question)


def _has_torch_or_gpu(target: Target, question: Question) -> bool:
    """Whether the service has a torch, by its image or what is installed, or asks for a GPU."""
    torch_inside = target.image.vendor_torch or torches(target, question).last is not None
    return torch_inside or "torch" in target.image.name or gpu_is_meant(target) or needs_gpu(target) is not None


# Programs that use no GPU, or each GPU by itself: what is run to look at one, or to keep a container there.
_WAITING = re.compile(
    r"sleep|tail|cat|true|echo|ls|env|exec|while|trap|wait|date|nvidia-smi|nvtop|gpustat|vectorAdd|deviceQuery"
)
_SHELLS = ("sh", "bash", "ash", "zsh")
_SAMPLES = re.compile(r"cuda-?sample|cuda-vector-add|gpu-burn|dcgm")


def _only_waits(target: Target) -> bool:
    """Whether nothing shows that several GPUs pass something to each other: no program, `sleep`, `nvidia-smi`."""
    if _SAMPLES.search(target.image.name):
        return True
    return all(_WAITING.fullmatch(ran.command.program) or _is_shell(ran) for ran in target.starts)


def _is_shell(ran: Ran) -> bool:
    """A shell alone, or `sh -c ...`, whose commands are read by themselves; not one that runs a script."""
    options = ran.words[1:2]
    return ran.command.program in _SHELLS and (not options or options[0].startswith("-"))


def _bytes(text: str) -> int | None:
    """64 MB where nothing is said; None where it cannot be read, e.g. a variable."""
    if not text:
        return 64 << 20
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([bkmg]?)i?b?", text.strip().lower())
    return None if match is None else int(float(match.group(1)) * _UNITS[match.group(2)])


_HOSTED = re.compile(r"(?:ubuntu|windows|macos)-[\w.-]*")
_WITH_GPU = re.compile(r"gpu|cuda|nvidia|t4|a10|a100|h100|l4", re.IGNORECASE)
_NEEDS_GPU = re.compile(
    r"\bnvidia-smi\b|--gpus\b|assert torch\.cuda|torch\.cuda\.get_device|\.cuda\(\)|--device[= ]cuda|device=['\"]cuda"
)


def hosted_without_gpu(target: Target) -> bool:
    """Whether a job runs on one of GitHub's own runners, by labels that name no GPU."""
    labels = () if target.service is None or target.where is not Where.RUNNER else target.service.runs_on
    return bool(labels) and all(_HOSTED.fullmatch(each) and not _WITH_GPU.search(each) for each in labels)


_NO_DEVICE_DRIVER = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]'


def runner_without_gpu(target: Target, question: Question) -> Iterator[SeenAt]:
    """runs-on: ubuntu-latest, and a step that runs nvidia-smi: GitHub's runners have no GPU."""
    service = target.service
    if service is None or not hosted_without_gpu(target):
        return
    said = ((ran, f"{' '.join(ran.words)}\n{ran.command.stdin}") for ran in (*target.starts, *target.ran))
    needs = next((ran for ran, text in said if _NEEDS_GPU.search(text) and ran.command.ends != "||"), None)
    if needs is None and not service.gpus:
        return
    what = "the container options ask for GPUs" if needs is None else f"`{needs.shown}` needs one"
    saw = f"job {service.name} runs on {', '.join(service.runs_on)}, which has no GPU; {what}"
    in_container = needs is None or needs.command.program in ("docker", "podman")
    answers = (ask("name a runner with a GPU: self-hosted, or a larger one", Why.PROGRAM),)
    yield SeenAt(service.place, saw, answers, error=_NO_DEVICE_DRIVER if in_container else "")


COMPOSE_LINT_RULES = (
    LintRule(
        "service-without-gpu",
        service_without_gpu,
        Severity.BLOCKS,
        "no GPU is asked for, so none is there",
        "Compose gives a service no devices that it does not ask for.",
        "RuntimeError: Found no NVIDIA driver on your system",
        _DOCKER,
    ),
    LintRule(
        "reservation-without-gpu",
        reservation_without_gpu,
        Severity.BLOCKS,
        "the device reservation is not accepted",
        "capabilities is the one field that compose demands; count and device_ids exclude each other.",
        "",
        _DOCKER,
    ),
    LintRule(
        "more-gpus-than-machine",
        more_gpus_than_machine,
        Severity.BLOCKS,
        "more GPUs are asked for than there are",
        "The container toolkit refuses the whole container.",
        "nvidia-container-cli: device error: ... unknown device",
        _DOCKER,
    ),
    LintRule(
        "small-shared-memory",
        small_shared_memory,
        Severity.DEGRADES,
        "there is little shared memory",
        "DataLoader workers and NCCL pass tensors through /dev/shm.",
        "RuntimeError: DataLoader worker (pid ...) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        "docs.pytorch.org/docs/stable/multiprocessing.html",
    ),
    LintRule(
        "runner-without-gpu",
        runner_without_gpu,
        Severity.BLOCKS,
        "the job needs a GPU, and its runner has none",
        "GitHub's standard runners are virtual machines without a GPU.",
        "nvidia-smi: command not found",
        "docs.github.com/en/actions/reference/runners/github-hosted-runners",
    ),
)

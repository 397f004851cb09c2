"""Rules about services of a compose file: who gives them GPUs, and how much shared memory they have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Severity
from firstlight.facts.known import Known
from firstlight.lint.model import Target
from firstlight.lint.rule import LintRule, Seen
from firstlight.lint.run_rules import uses_cuda

_DOCKER = "docs.docker.com/compose/how-tos/gpu-support"
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SMALL = 1 << 30  # what a DataLoader with a few workers needs at least; Docker's default is 64 MB
_DRIVER_CAPABILITIES = {"utility", "video", "graphics", "display", "ngx", "compat32"}
_RESERVATION = "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}"


def service_without_gpu(target: Target, question: Question) -> Iterator[Seen]:
    """A service on nvidia/cuda without a reservation of devices runs without a GPU."""
    service = target.service
    if service is None or service.devices or service.gpus or service.runtime == "nvidia":
        return
    wanted = uses_cuda(target, question) or "NVIDIA_VISIBLE_DEVICES" in target.env
    if not wanted:
        return
    why = (
        target.image.name if target.image.is_cuda else "its torch" if uses_cuda(target, question) else "its environment"
    )
    if service.limits_place is not None:
        saw = f"service {service.name} names devices under `limits`, where compose does not look for them"
        yield Seen(service.limits_place, saw, ("move them under `reservations`",))
        return
    saw = f"service {service.name} is for a GPU ({why}) and has no `gpus`, no device reservation and no nvidia runtime"
    yield Seen(service.place, saw, ("gpus: all", f"or, where compose does not know it: {_RESERVATION}"))


def reservation_without_gpu(target: Target, question: Question) -> Iterator[Seen]:
    """A device reservation without `capabilities: [gpu]` is refused."""
    for device in target.service.devices if target.service is not None else ():
        if not device.capabilities:
            saw = "the device reservation names no capabilities"
            yield Seen(device.place, saw, ("capabilities: [gpu]",))
            continue
        if device.count and device.ids:
            saw = "the device reservation has both count and device_ids"
            yield Seen(
                device.place, saw, ("keep one of them",), error='"count" and "device_ids" attributes are exclusive'
            )
        named = set(device.capabilities)
        if named & _DRIVER_CAPABILITIES and "compute" not in named:
            yield Seen(
                device.place,
                f"capabilities: [{', '.join(device.capabilities)}] leaves out compute",
                ("capabilities: [gpu], which gives compute and utility",),
                because="What is named besides gpu becomes NVIDIA_DRIVER_CAPABILITIES; libcuda belongs to compute "
                "(github.com/docker/compose/issues/8583).",
                error="libcuda.so.1: cannot open shared object file: No such file or directory",
            )


def more_gpus_than_machine(target: Target, question: Question) -> Iterator[Seen]:
    """count: 8 on a machine with one GPU."""
    count = question.facts.gpus.count
    if target.service is None or not isinstance(count, Known) or count.seen_in == "--for" or count.value == 0:
        return
    for device in target.service.devices:
        wanted = int(device.count) if device.count.isdigit() else 0
        beyond = [each for each in device.ids if each.isdigit() and int(each) >= count.value]
        if wanted > count.value or beyond:
            asked = f"count {wanted}" if wanted > count.value else f"device_ids {', '.join(beyond)}"
            yield Seen(device.place, f"{asked}; the machine has {count.value}, counted from 0", ("count: all",))


def small_shared_memory(target: Target, question: Question) -> Iterator[Seen]:
    """A training service with Docker's 64 MB of /dev/shm: DataLoader workers die."""
    service = target.service
    if service is None or service.ipc in ("host", "shareable") or service.ipc.startswith(("service:", "container:")):
        return
    if not (service.devices or service.gpus or uses_cuda(target, question)):
        return
    size = _bytes(service.shm_size)
    if size is None or size >= _SMALL:
        return
    has = (
        f"shm_size {service.shm_size}" if service.shm_size else "Docker's 64 MB of /dev/shm (no shm_size, no ipc: host)"
    )
    yield Seen(service.place, f"service {service.name} has {has}", ("shm_size: 16gb", "or ipc: host"))


def _bytes(text: str) -> int | None:
    """64 MB where nothing is said; None where it cannot be read, e.g. a variable."""
    if not text:
        return 64 << 20
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?", text.strip().lower())
    return None if match is None else int(float(match.group(1)) * _UNITS[match.group(2)])


COMPOSE_LINT_RULES = (
    LintRule(
        "service-without-gpu",
        service_without_gpu,
        Severity.BLOCKS,
        "the service gets no GPU",
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
        "the service asks for GPUs that the machine does not have",
        "The container toolkit refuses the whole container.",
        "nvidia-container-cli: device error: ... unknown device",
        _DOCKER,
    ),
    LintRule(
        "small-shared-memory",
        small_shared_memory,
        Severity.DEGRADES,
        "the service has little shared memory",
        "DataLoader workers and NCCL pass tensors through /dev/shm.",
        "RuntimeError: DataLoader worker (pid ...) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        "docs.pytorch.org/docs/stable/multiprocessing.html",
    ),
)

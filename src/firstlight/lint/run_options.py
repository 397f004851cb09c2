"""What options of `docker run` give a container: GPUs, runtime, shared memory, variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.lint.model import Service


def pairs(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Option and value: --gpus=all and --gpus all alike."""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            behind = words[index + 1] if index + 1 < len(words) else ""
            yield name, value if equals or behind.startswith("-") else behind


def with_run_options(service: Service, words: tuple[str, ...]) -> Service:
    """The service with what the options add to it."""
    for name, value in pairs(words):
        if name == "--gpus" or (name == "--device" and "nvidia.com/gpu" in value):
            service = replace(service, gpus=True)
        elif name == "--runtime":
            service = replace(service, runtime=value)
        elif name == "--shm-size":
            service = replace(service, shm_size=value)
        elif name == "--ipc":
            service = replace(service, ipc=value)
        elif name in ("-v", "--volume", "--mount", "--tmpfs") and "/dev/shm" in value:  # noqa: S108
            service = replace(service, shm_size="1g")
    return service


def variables(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The variables of -e NAME=value."""
    for name, value in pairs(words):
        if name in ("-e", "--env") and "=" in value:
            variable, _, content = value.partition("=")
            yield variable, content

"""Wheels at hand in a folder: what pip's --find-links takes."""

from __future__ import annotations

import os

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.libraries.wheel_machine import WheelName, wheel_name


@dataclass(frozen=True, slots=True)
class LocalWheel:
    """A wheel in a folder, e.g. /opt/wheels/nvidia_cudss_cu13-0.8.0.10-py3-none-manylinux_2_27_x86_64.whl."""

    path: str
    name: WheelName
    bytes: int


def wheels_in(folder: str, *, arch: str) -> tuple[LocalWheel, ...]:
    """The wheels of a folder that fit an arch; one that does not exist or holds none is refused."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise BadInput(
            f"--find-links {folder}: {(error.strerror or '').lower()}; accepted: a folder of wheels."
        ) from error
    found: list[LocalWheel] = []
    for each in names:
        path = os.path.join(os.path.abspath(folder), each)
        parts = wheel_name(path)
        if parts is not None and parts.arch in (arch, "") and os.path.isfile(path):
            found.append(LocalWheel(path, parts, os.path.getsize(path)))
    if not found:
        raise BadInput(f"--find-links {folder}: no wheel for {arch} is in it; accepted: a folder of .whl files.")
    return tuple(found)

"""The torch that the tag of somebody's own image names: 2.1.0 of runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel."""

from __future__ import annotations

import re

from firstlight.errors import BadVersion
from firstlight.versions import TorchVersion

# Words before a number that is another thing's: py3.10, cuda11.8.0, ubuntu22.04, transformers4.36.0.
_NUMBER = re.compile(r"(?:^|[-_])(?:v|th)?(\d+\.\d+(?:\.\d+)?)(?=[-_+]|$)")
_WITH_NAME = re.compile(r"(?:^|[-_])(?:py)?torch[-_]?(\d+\.\d+(?:\.\d+)?)(?=[-_+]|$)")
_PACKED = re.compile(r"(?:^|[-_])(?:py)?torch[-_]?(\d{2,4})(?=[-_]|$)")
_BEHIND_CUDA = re.compile(r"[-_]cu\d{3}[-_](\d+\.\d+\.\d+)(?=-|$)")  # as in main-py3.11-cu124-2.6.0 of axolotl
# From 1.4 on wheels were built as they are today; a smaller number before a torch is the image's own release.
_OLDEST, _BEYOND = (1, 4), (3, 0)


def torch_in_tag(repository: str, tag: str) -> TorchVersion | None:
    """The torch that a tag names, by its word (torch280) or, in a repository of that name, by the first number."""
    if (named := _WITH_NAME.search(tag)) is not None:
        return _torch(named.group(1))
    if (packed := _PACKED.search(tag)) is not None:
        return _torch(_spread(packed.group(1)))
    if (behind := _BEHIND_CUDA.search(tag)) is not None:
        return _torch(behind.group(1))
    if re.search(r"torch", repository.rpartition("/")[2]) is None:
        return None
    return next((found for text in _NUMBER.findall(tag) if (found := _torch(text)) is not None), None)


def _spread(digits: str) -> str:
    """2.8.0 of 280, 1.12 of 112, 2.10.0 of 2100, 1.13.1 of 1131."""
    major, rest = digits[0], digits[1:]
    if len(rest) == 3 or (major == "1" and len(rest) == 2 and rest[0] == "1"):
        return f"{major}.{rest[:2]}" + (f".{rest[2]}" if len(rest) == 3 else "")
    return ".".join((major, *rest))


def _torch(text: str) -> TorchVersion | None:
    try:
        found = TorchVersion.parse(text)
    except BadVersion:
        return None
    return found if _OLDEST <= found.release[:2] < _BEYOND else None

"""TORCH_CUDA_ARCH_LIST: numbers or names, with or without PTX, as torch/utils/cpp_extension.py takes them."""

from __future__ import annotations

import re

from firstlight.frozen import dataclass
from firstlight.versions import ComputeCapability

# The names that torch takes for numbers.
_NAMES = {
    "kepler": ("3.5",),
    "maxwell": ("5.0", "5.2"),
    "pascal": ("6.0", "6.1"),
    "volta": ("7.0",),
    "turing": ("7.5",),
    "ampere": ("8.0", "8.6"),
    "ada": ("8.9",),
    "hopper": ("9.0",),
    "blackwell": ("10.0", "10.3", "12.0", "12.1"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One target: 9.0a is capability 9.0, written sm_90a; 8.6+PTX has PTX besides."""

    text: str
    code: ComputeCapability
    sm: str
    with_ptx: bool


def named_targets(value: str) -> tuple[Asked, ...]:
    """The targets of a list such as '8.0;8.6 9.0a+PTX' or 'Hopper'; what cannot be read is left out."""
    found: list[Asked] = []
    for word in re.split(r"[;,\s]+", value.strip().strip("\"'")):
        plain, ptx, _ = word.partition("+")
        for number in _NAMES.get(plain.lower(), (plain,)):
            match = re.fullmatch(r"(\d{1,2})\.(\d)([af]?)", number)
            if match is not None:
                code = ComputeCapability(int(match.group(1)), int(match.group(2)))
                found.append(Asked(word, code, code.sm + match.group(3), bool(ptx or "+" in word)))
    return tuple(found)

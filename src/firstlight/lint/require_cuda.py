"""NVIDIA_REQUIRE_CUDA as the container toolkit reads it: a space is or, a comma is and."""

from __future__ import annotations

import re

from firstlight.frozen import dataclass
from firstlight.lint.shell import whole_number
from firstlight.versions import CudaVersion, DriverVersion

_CONDITION = re.compile(r"(?P<what>cuda|driver|brand|arch)(?P<how>>=|<=|!=|>|<|=)(?P<value>[^,\s]+)")


@dataclass(frozen=True, slots=True)
class Offered:
    """What a host has: CUDA 12.4, driver 550.127.05, brand tesla; None and '' where it is not known."""

    cuda: CudaVersion | None
    driver: DriverVersion | None
    brand: str
    capability: str  # arch: 9.0


def meets(expression: str, host: Offered) -> bool | None:
    """Whether a host is let in: 'cuda>=12.4 brand=tesla,driver>=535,driver<536'; None where it cannot be told."""
    alternatives = expression.split()
    if not alternatives:
        return True
    answers = [_all_of(each, host) for each in alternatives]
    if True in answers:
        return True
    return None if None in answers else False


def _all_of(text: str, host: Offered) -> bool | None:
    answers = [_holds(each, host) for each in text.split(",") if each]
    if False in answers:
        return False
    return None if None in answers else True


def _holds(condition: str, host: Offered) -> bool | None:
    match = _CONDITION.fullmatch(condition)
    if match is None:
        return None
    how, value = match["how"], match["value"]
    if match["what"] == "brand":
        return None if not host.brand else (host.brand == value.lower()) == (how == "=")
    has = {
        "cuda": () if host.cuda is None else (host.cuda.major, host.cuda.minor),
        "driver": () if host.driver is None else host.driver.parts,
        "arch": tuple(int(part) for part in host.capability.split(".") if part.isdigit()),
    }[match["what"]]
    wanted = tuple(number for part in value.split(".") if (number := whole_number(part)) is not None)
    if not has or not wanted:
        return None
    width = max(len(has), len(wanted))
    left, right = has + (0,) * (width - len(has)), wanted + (0,) * (width - len(wanted))
    return {
        ">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right, "=": left == right,
        "!=": left != right,
    }[how]  # fmt: skip

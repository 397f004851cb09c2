"""Ten ways to look fast, planted: every case of this file must fail, each by the guard that it is named after.

    firstlight bench examples/user_kernels/cheats.py --device cpu --effort quick

cheat_clock.py has the patched clock, which would take the other cases with it; cheats_gpu.py those that need a GPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from firstlight.bench.user_cases import Maker, UserCase

N = 1 << 16
SIZE = 128
HONEST_CALLS = 8  # of "tired": enough for the checks before timing


def pair(make: Maker) -> tuple[Tensor, ...]:
    return make.normal((N,)), make.normal((N,))


def added(x: Tensor, y: Tensor) -> Tensor:
    return 2.0 * x + y


def addition(name: str, run: Callable[..., Any], **changed: Any) -> UserCase:
    """An addition of 65536 numbers, done in this way."""
    given: dict[str, Any] = {"inputs": pair, "reference": added, "flops": 2 * N, "bytes": 12 * N, **changed}
    return UserCase(name=name, run=run, **given)


_kept: dict[int, Tensor] = {}
_calls = [0]


def remembers(x: Tensor, y: Tensor) -> Tensor:
    """Works once for every buffer, and hands the same result out ever after."""
    if x.data_ptr() not in _kept:
        _kept[x.data_ptr()] = added(x, y)
    return _kept[x.data_ptr()]


def tired(x: Tensor, y: Tensor) -> Tensor:
    """Works while it is being checked, and stops working once it has been called often enough to be timed."""
    _calls[0] += 1
    if _calls[0] > HONEST_CALLS:
        return _kept[-1]
    _kept[-1] = added(x, y)
    return _kept[-1]


def in_a_thread(x: Tensor, y: Tensor) -> Tensor:
    """Returns at once; the numbers come later."""
    out = torch.empty_like(x)

    def work() -> None:
        time.sleep(0.01)
        out.copy_(added(x, y))

    threading.Thread(target=work).start()
    return out


def sorts_for_good(x: Tensor) -> Tensor:
    """Leaves its input sorted, so that the next call has little to do."""
    x.copy_(x.sort().values)
    return x.clone()


def most_rows(left: Tensor, right: Tensor) -> Tensor:
    """Leaves the last row of the product out."""
    out = torch.zeros_like(left)
    out[:-1] = left[:-1] @ right
    return out


def square_pair(make: Maker) -> tuple[Tensor, ...]:
    return make.normal((SIZE, SIZE)), make.normal((SIZE, SIZE), std=SIZE**-0.5)


def product(name: str, run: Callable[..., Any], **changed: Any) -> UserCase:
    """A product of 128 x 128, done in this way."""
    given: dict[str, Any] = {"flops": 2 * SIZE**3, "bytes": 12 * SIZE * SIZE, **changed}
    return UserCase(name=name, inputs=square_pair, run=run, reference=torch.matmul, **given)


def pair_and_answer(make: Maker) -> tuple[Tensor, ...]:
    x, y = pair(make)
    return x, y, added(x, y)


CASES = (
    addition("cached-output", remembers),
    addition("cached-output/tired", tired),
    addition("late-output", in_a_thread),
    addition("constant-data", added, inputs=lambda make: (torch.zeros(N, device=make.device), make.normal((N,)))),
    addition("inflated-count/bytes", added, bytes=120 * N),
    product("inflated-count/flops", torch.matmul, flops=20 * SIZE**3),
    UserCase(
        "changed-input", lambda make: (make.normal((N,)),), sorts_for_good, lambda x: x.sort().values, bytes=8 * N
    ),
    UserCase("aliased-output", lambda make: (make.normal((N,)),), lambda x: x, torch.clone, bytes=8 * N),
    addition("given-answer", lambda x, y, z: z.clone(), inputs=pair_and_answer, reference=lambda x, y, z: 2.0 * x + y),
    product("wrong-result/half-precision", lambda left, right: (left.half() @ right.half()).float()),
    product("wrong-result/last-row", most_rows),
)

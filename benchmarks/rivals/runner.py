"""One contender for one case: what is called, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from benchmarks.rivals.cases import CHECKED_HEADS, Answer, Case, Setting
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Gradients = tuple[Tensor, Tensor, Tensor]


class Refused(NamedTuple):
    """Why a contender takes no part in a case."""

    why: str


class Runner(NamedTuple):
    """call: what is timed, again and again; answer: of the heads that are checked, from a run of its own."""

    call: Callable[[], object]
    answer: Callable[[], Answer]


def by_autograd(case: Case, setting: Setting, attend: Attend) -> Runner:
    """A function of q, k and v: its forward pass, or the backward pass of one that was made before."""
    q, k, v = setting[:3]
    if not case.backward:
        return Runner(lambda: attend(q, k, v), lambda: Answer(checked(attend(q, k, v)), None))
    leaves = tuple(each.detach().requires_grad_() for each in (q, k, v))
    out = attend(*leaves)

    def gradients() -> Gradients:
        dq, dk, dv = torch.autograd.grad(out, leaves, setting.grad, retain_graph=True)
        return dq, dk, dv

    return of_gradients(gradients, out)


def of_gradients(gradients: Callable[[], Gradients], out: Tensor) -> Runner:
    """A backward pass; out: what the forward pass before it gave, [batch, heads, queries, head dim]."""

    def answer() -> Answer:
        dq, dk, dv = gradients()
        return Answer(checked(out), (checked(dq), checked(dk), checked(dv)))

    return Runner(gradients, answer)


def checked(tensor: Tensor) -> Tensor:
    """The heads that are held against float64."""
    return tensor.detach()[0, :CHECKED_HEADS].double()

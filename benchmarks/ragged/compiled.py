"""FlashAttention-4's kernels for sequences of different lengths, for Hopper without a GPU; see rivals/compiled.py."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from benchmarks.ragged.cases import Case, Setting, setting_of
from benchmarks.ragged.contenders import flash4_calls
from benchmarks.rivals.compiled import TARGET, Compiled, shape_alone
from torch._subclasses.fake_tensor import FakeTensorMode


def compiled(case: Case) -> Iterator[Compiled]:
    """The forward kernel, and of a backward case the one that adds dQ in any order."""
    os.environ.update(TARGET)  # read when the package is imported
    setting = setting_of(case, "cpu")
    with FakeTensorMode():
        forward, backward = flash4_calls(case, Setting(*(shape_alone(each) for each in setting)))
        began = time.monotonic()
        made = forward()
        yield Compiled(case.id, "forward", time.monotonic() - began)
        if case.backward:
            began = time.monotonic()
            backward(made[0], made[1])
            yield Compiled(case.id, "backward", time.monotonic() - began)

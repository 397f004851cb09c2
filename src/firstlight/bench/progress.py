"""What is said on stderr while a run goes on: one line rewritten on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from firstlight.bench.attempts import Turn
from firstlight.secrets import masked
from firstlight.visible import one_line, visible

LOG_EVERY_S = 10.0
WIDTH = 100


class Progress:
    """Counts steps and says how long the rest will take, at the pace of the steps so far."""

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._rewrites = stream.isatty()
        self._began: float | None = None
        self._said_at = float("-inf")
        self._steps = 0

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        self._stream.write(f"firstlight: {visible(masked(text))}\n")
        self._stream.flush()

    def tell(self, step: Turn) -> None:
        """A case is about to run."""
        now = self._now()
        self._began = now if self._began is None else self._began
        text = one_line(step_text(step, left_s=self._left_s(step, now)))
        self._steps += 1
        if self._rewrites:
            self._stream.write("\r" + text[:WIDTH].ljust(WIDTH))
        elif now - self._said_at >= LOG_EVERY_S:
            self._stream.write(f"firstlight: {text}\n")
        else:
            return
        self._said_at = now
        self._stream.flush()

    def clear(self) -> None:
        """Take the rewritten line off the screen."""
        if self._rewrites:
            self._stream.write("\r" + " " * WIDTH + "\r")
            self._stream.flush()

    def _left_s(self, step: Turn, now: float) -> float | None:
        """None until a few cases have run."""
        if self._began is None or self._steps < 3:
            return None
        done = (step.pass_number - 1) * step.cases + step.number - 1
        return (now - self._began) / done * (step.passes * step.cases - done) if done > 0 else None


def step_text(step: Turn, *, left_s: float | None) -> str:
    """'[ 12/97] pass 1 of 3  gemm/fp16/8192x8192x8192  about 2 min left'."""
    width = len(str(step.cases))
    left = "" if left_s is None else f"  about {rough_time(left_s)} left"
    return f"[{step.number:>{width}}/{step.cases}] pass {step.pass_number} of {step.passes}  {step.case_id}{left}"


def rough_time(seconds: float) -> str:
    """A time nobody should set a clock by: '40 s', '3 min'."""
    return (
        f"{max(1, round(seconds / 5) * 5) if seconds >= 10 else max(1, round(seconds))} s"
        if seconds < 100
        else (f"{round(seconds / 60)} min")
    )

"""A limit of time on a decision: what takes longer is denied, never waited for by a tool that would go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from firstlight.guard.call import Unreadable

SECONDS = 1.5  # of the processor
WAIT_SECONDS = 10.0  # on a busy machine


@contextmanager
def within_the_limit() -> Iterator[None]:
    """Unreadable after 1.5 s of the processor or 10 s of waiting."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise Unreadable("it takes too long to read")

    kept = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in kept.items():
            signal.signal(number, handler)

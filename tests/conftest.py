"""What holds for every test, however this run itself was started: signals reach the programs that tests start, and what
is imported is compiled once."""

from __future__ import annotations

import gc
import os
import signal
import sys

import pytest

# A shell without job control starts what runs beside it with Ctrl-C ignored, nohup with hang-ups ignored; every child
# inherits both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Images of containers often set this: each of the programs that tests start would compile all of firstlight again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _has_room_for_files(folder: str) -> bool:
    try:
        there = os.statvfs(folder)
    except OSError:
        return False
    fits = there.f_bavail * there.f_frsize >= 4 << 30 and not there.f_flag & os.ST_NOEXEC
    return fits and os.access(folder, os.W_OK | os.X_OK)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Files of tests lie in memory, and what was collected stays out of the collector of garbage.

    Hundreds of environments, trees and homes are written and removed: in memory half of the system's time goes away.
    Those of system tests lie on the disk: they mount over /dev, and hold whole systems.
    """
    in_memory = all(item.get_closest_marker("system") is None for item in session.items)
    if in_memory and _has_room_for_files("/dev/shm"):
        os.environ.setdefault(
            "PYTEST_DEBUG_TEMPROOT", "/dev/shm"
        )  # pytest reads it when a test first asks for a folder
    gc.collect()
    gc.freeze()

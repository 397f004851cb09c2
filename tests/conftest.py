"""What holds for every test, however this run itself was started: signals reach the programs that tests start, and what
is imported is compiled once."""

from __future__ import annotations

import gc
import os
import signal
import sys

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


# Hundreds of environments, trees and homes are written and removed: in memory half of the system's time goes away.
if _has_room_for_files("/dev/shm"):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


def pytest_collection_finish() -> None:
    """What was collected lives as long as the run: the collector of garbage need not go through it again and again."""
    gc.collect()
    gc.freeze()

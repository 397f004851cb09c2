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


def pytest_collection_finish() -> None:
    """What was collected lives as long as the run: the collector of garbage need not go through it again and again."""
    gc.collect()
    gc.freeze()

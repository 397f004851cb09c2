"""Children that end with us: an rsync that outlived a killed ship would write beside the next one, an ssh to a host
that ignores the end of its input would stay for ever."""

from __future__ import annotations

import os
import sys

# PR_SET_PDEATHSIG, SIGTERM; kept across exec. A parent that is gone by then would never be heard of again.
_BIND = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15, 0, 0, 0); "
    "os.getppid() == int(sys.argv[1]) or os._exit(143); os.execvp(sys.argv[2], sys.argv[2:])"
)


def ends_with_us(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command, started so that Linux ends it when this process does, also by kill -9."""
    return (sys.executable, "-I", "-S", "-c", _BIND, str(os.getpid()), *argv)

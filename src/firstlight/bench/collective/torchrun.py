"""torchrun as a program of ours: `python -m torch.distributed.run`, whose outcome is written down as data.

torchrun prints which rank failed as a banner for people. The same function raises it as a type, which is what is kept.
It ends with the process that started it, and so do its ranks: nothing is left behind when that one is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

FOLDER = "FIRSTLIGHT_COLLECTIVE_FOLDER"  # set by us for our own children alone
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; at once where that has ended already."""
    import ctypes

    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):  # not Linux: whoever started us ends us by our group
        return
    if parent and os.getppid() != parent:
        os._exit(1)


def main(argv: list[str]) -> int:
    """Run torchrun with these arguments; 1 where a rank failed."""
    end_with_parent(0)
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from firstlight.bench.collective.folder import Failure, Failures, report_failures

    try:
        program: Any = torchrun
        program.run(program.parse_args(argv))
    except ChildFailedError as error:
        failed = tuple(Failure(int(rank), int(each.exitcode)) for rank, each in sorted(error.failures.items()))
        report_failures(os.environ[FOLDER], Failures(failed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Stands where Ansible expects ssh: the same ssh, which may say 8 MB and take some seconds, and is ended at more.

Called as: bounded_ssh.py SECONDS BYTES WORDS-BEFORE... --firstlight WORDS-OF-ANSIBLE... The words before are
options that win over those of Ansible and of every config, because ssh takes the first value that it is given.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main(limit_s: float, limit: int, argv: list[str]) -> int:
    """The exit code of ssh; 255, as ssh has it for a lost connection, where a limit was reached."""
    process = subprocess.Popen(["ssh", *argv], stdout=subprocess.PIPE)
    assert process.stdout is not None

    def too_late(number: int, frame: object) -> None:
        os._exit(_ended(process, f"it gave no answer within {limit_s:g} s"))

    signal.signal(signal.SIGALRM, too_late)  # also while whoever reads this takes its time
    signal.signal(signal.SIGTERM, lambda number, frame: process.kill())
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    read = 0
    while data := os.read(process.stdout.fileno(), 1 << 16):
        read += len(data)
        if read > limit:
            return _ended(process, f"it printed more than {limit >> 20} MB; nothing of that was read")
        with open(1, "wb", closefd=False) as out:
            out.write(data)
    return process.wait()


def _ended(process: subprocess.Popen[bytes], why: str) -> int:
    process.kill()
    process.wait()
    print(why, file=sys.stderr, flush=True)
    return 255


if __name__ == "__main__":
    before, after = sys.argv[3 : sys.argv.index("--firstlight")], sys.argv[sys.argv.index("--firstlight") + 1 :]
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), [*before, *after]))

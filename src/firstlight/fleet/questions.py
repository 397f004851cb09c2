"""What is sent to a host: the facts zipapp for its Python, and plain questions for its sh where it has none.

One connection a host. The login shell is given one line that every shell reads alike (no newline, no single quote, no
`!`); everything else comes through stdin. Python runs the zipapp from a file without a name, so that nothing is left,
and ends by itself when the connection does: stdin stays open until the answer came, and its end says that nobody waits.
"""

from __future__ import annotations

import re

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+-]{1,1000}")
NEWEST_FIRST = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python")

# Runs on the host, in its Python; the words behind it are the size of the zipapp, the token and the options.
_BOOT = """\
import os, sys, threading
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.dont_write_bytecode = True
size, token = int(sys.argv[2]), sys.argv[3]
app = b""
while len(app) < size:
    part = sys.stdin.buffer.read(min(size - len(app), 65536))
    if not part:
        sys.exit(1)
    app += part
try:
    handle = os.memfd_create("firstlight")
except (AttributeError, OSError):
    import tempfile
    handle = os.dup(tempfile.TemporaryFile().fileno())
with open(handle, "wb", closefd=False) as file:
    file.write(app)

def ends_with_the_connection():
    try:
        while sys.stdin.buffer.read1(4096):
            pass
    except (OSError, ValueError):
        pass
    os.killpg(os.getpgrp(), 9)

threading.Thread(target=ends_with_the_connection, daemon=True).start()
sys.path.insert(0, "/proc/%d/fd/%d" % (os.getpid(), handle))
from firstlight.cli.standalone import answer
answer(token, sys.argv[4:])
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to a host: the command that ssh hands over, and what goes in through stdin."""

    command: str
    stdin: bytes


def refuse_odd_python(python: str) -> None:
    """Stop where a path cannot be handed to every login shell as it is; "" is no path, and fine."""
    if python and not _PLAIN_PATH.fullmatch(python):
        raise BadInput(
            f"--python {ascii(python)[:80]}: accepted for other hosts: an absolute path, e.g. /opt/venv/bin/python"
        )


def asked(zipapp: bytes, sh_probe: str, *, token: str, python: str = "") -> Asked:
    """The facts by the host's Python from 3.10 on, by its sh where there is none; `python` is whose torch is meant."""
    refuse_odd_python(python)
    boot, plain = _BOOT.encode(), sh_probe.encode("ascii")
    options = f"--python={python}" if python else ""
    new_enough = "import sys; sys.exit(sys.version_info < (3, 10))"
    run = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
    everything = len(boot) + len(zipapp) + len(plain)
    line = (
        f'for p in {" ".join(NEWEST_FIRST)}; do if "$p" -I -B -c "{new_enough}" </dev/null 2>/dev/null; then '
        f'exec "$p" -I -B -c "{run}" {len(boot)} {len(zipapp)} {token} {options}; fi; done; '
        f'exec sh -c "$(head -c {everything} | tail -c {len(plain)})"'
    )
    return Asked(f"exec sh -c '{line}'", boot + zipapp + plain)

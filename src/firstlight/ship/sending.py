"""Blobs through rsync over our ssh: what is there of one is kept, and its end is appended."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from firstlight.errors import BadInput, CouldNotLook
from firstlight.fleet.child import ends_with_us
from firstlight.fleet.ssh import ssh_argv
from firstlight.fleet.target import Target
from firstlight.frozen import dataclass
from firstlight.ship.deciding import Missing

_SILENT_S = 60
_DONE = re.compile(rb"(\d{1,15}) ([0-9a-f]{64})")
_SO_FAR = re.compile(rb"\s*([\d,]{1,20})\s+\d+%")
_COMPLAINT_LIMIT = 16 << 10


@dataclass(frozen=True, slots=True)
class Sending:
    """How blobs get there: from which folder, to which, over which ssh, at most so many KiB a second (0: no limit)."""

    blobs: Path
    folder: str
    target: Target
    config: str = ""
    rate_kib: int = 0


def rsync_argv(way: Sending) -> tuple[str, ...]:
    """rsync with our ssh; the names of the blobs come through stdin."""
    target = way.target
    *words, host = ssh_argv(target, config=way.config)
    shell = " ".join(_quoted(word) for word in words)
    named = f"[{host}]" if ":" in host else host
    return (
        "rsync", "--partial", "--append-verify", f"--timeout={_SILENT_S}", "--info=progress2", "--outbuf=L",
        "--out-format=%b %n", "--files-from=-", *((f"--bwlimit={way.rate_kib}",) if way.rate_kib else ()),
        "-e", shell, f"{way.blobs}/", f"{named}:{way.folder}/blobs/sha256/",
    )  # fmt: skip


def send(way: Sending, missing: tuple[Missing, ...], told: Callable[[int], None]) -> int:
    """Send what is missing; the bytes that went over the wire. `told` hears how far it is.

    CouldNotLook where it was cut off: what arrived stays there and is gone on from.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RSYNC_")} | {"LC_ALL": "C"}
    names = "".join(f"{each.blob.digest}\n" for each in missing).encode()
    with tempfile.TemporaryFile() as complaint:
        process = subprocess.Popen(
            ends_with_us(rsync_argv(way)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaint, env=environ
        )
        try:
            sent = _served(process, names, told)
            status = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        complaint.seek(0)
        said = complaint.read(_COMPLAINT_LIMIT).decode("utf-8", "replace")
    if status:
        ended = f"ended with {status}" if status > 0 else f"was ended by signal {-status}"
        raise CouldNotLook(
            f"sending was cut off: rsync {ended} ({_first(said)}). What arrived is kept there; the same command "
            "continues from it."
        )
    return sent


def _served(process: subprocess.Popen[bytes], names: bytes, told: Callable[[int], None]) -> int:
    """Hand the names over and read what rsync says until it ends; the bytes on the wire of what it finished."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(names)
        process.stdin.close()
    except OSError:  # it ended at once: what it complained of is read
        pass
    sent, left = 0, b""
    while data := os.read(process.stdout.fileno(), 1 << 16):
        *lines, left = re.split(rb"[\r\n]", left + data)
        for line in lines:
            if match := _DONE.fullmatch(line):
                sent += int(match[1])
            elif match := _SO_FAR.match(line):
                told(int(match[1].replace(b",", b"")))
        left = left[-4096:]
    process.stdout.close()
    return sent


def _quoted(word: str) -> str:
    """A word of rsync's -e, which knows quotes and no backslashes."""
    if re.fullmatch(r"[A-Za-z0-9_./=:@%+,-]+", word):
        return word
    if '"' in word or not word.isprintable():
        raise BadInput(
            f"--ssh-config {ascii(word)[:80]}: rsync cannot be given a path with a quotation mark; rename it"
        )
    return f'"{word}"'


def _first(said: str) -> str:
    """What tells most: ssh's own line or rsync's first one; its last only counts."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("rsync error:", "Warning: Permanently"))]
    return (plain or lines or ["it said nothing"])[0][:300]

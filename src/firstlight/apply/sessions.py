"""What a killed command leaves running: its children go on writing, and must end before anybody looks or clears."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from firstlight.apply.commands import process_start

LIMIT_S, PAUSE_S = 60.0, 0.05  # a service that a package started in the same session is not waited for longer


def wait_for_session(leader: int, *, start: str, say: Callable[[str], None], limit_s: float = LIMIT_S) -> None:
    """Wait until nobody of the session that a command led is left; `start` is when the command itself began."""
    begun, told = time.monotonic(), False
    while process_start(leader) in ("", start) and (left := members_of(leader)):
        if time.monotonic() - begun > limit_s:
            say(f"continuing beside process {left[0]}, which did not end within {limit_s:.0f} s")
            return
        if not told:
            say(f"waiting for process {left[0]}, which the killed command had started")
            told = True
        time.sleep(PAUSE_S)


def members_of(leader: int) -> tuple[int, ...]:
    """The processes of a session that are alive."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                state, _, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it ended meanwhile
        if int(session) == leader and state != "Z":
            found.append(int(name))
    return tuple(found)

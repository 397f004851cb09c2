"""Why ssh did not get an answer, from what it wrote: in a line, with the one command that helps where there is one."""

from __future__ import annotations

import re
import shlex
import subprocess

from firstlight.errors import HostNotReached
from firstlight.fleet.ssh import Said
from firstlight.fleet.target import Target

_OFFENDING = re.compile(r"Offending \S+ key in (.+):(\d+)")
_SENT = re.compile(r"fingerprint for the \S+ key sent by the remote host is\s+(SHA256:\S+?)\.?\s")
_KNOWN_AS = re.compile(r"Host key for (\S+) has changed")


def why_not(said: Said, target: Target, *, config: str = "") -> HostNotReached:
    """The reason, to be raised or to be shown."""
    text = said.complaint
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return _changed_key(text, target, config)
    if "No " in text and "host key is known for" in text:
        why = "its key is not known here. If it is yours, compare the fingerprint that this shows, and say yes"
        return HostNotReached(why, do=_asks(target, config))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Warning: Permanently")]
    if lines:
        return HostNotReached(f"ssh: {lines[-1].removeprefix('ssh: ')[:300]}")
    if said.printed:
        return HostNotReached(f"it stopped in the middle of its answer (ssh ended with {said.status})")
    return HostNotReached(f"ssh ended with {said.status} and said nothing")


def _changed_key(text: str, target: Target, config: str) -> HostNotReached:
    sent, at, name = _SENT.search(text + "\n"), _OFFENDING.search(text), _KNOWN_AS.search(text)
    old = _fingerprint(at.group(1), int(at.group(2))) if at else ""
    told = f"known: {old or 'not readable'}; sent: {sent.group(1) if sent else 'not said'}"
    known_as = name.group(1) if name else target.host
    forget = ("ssh-keygen", "-R", known_as, *(("-f", at.group(1)) if at else ()))
    why = f"its key has changed ({told}). If that is right, this forgets the old one and asks for the new one"
    return HostNotReached(why, do=f"{shlex.join(forget)} && {_asks(target, config)}")


def _asks(target: Target, config: str) -> str:
    """ssh as a person calls it to see a fingerprint and to say yes."""
    named = ("-F", config) if config else ()
    port = ("-p", str(target.port)) if target.port else ()
    host = f"{target.user}@{target.host}" if target.user else target.host
    return shlex.join(("ssh", *named, "-o", "StrictHostKeyChecking=ask", *port, host, "true"))


def _fingerprint(file: str, line: int) -> str:
    """SHA256:... of one line of a known_hosts file; "" where ssh-keygen does not say."""
    try:
        with open(file, encoding="utf-8", errors="replace") as known:
            key = next((text for number, text in enumerate(known, 1) if number == line), "")
        argv = ("ssh-keygen", "-l", "-f", "-")
        done = subprocess.run(argv, input=key.encode(), capture_output=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((word for word in done.stdout.decode("utf-8", "replace").split() if word.startswith("SHA256:")), "")

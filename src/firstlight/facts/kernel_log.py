"""What the driver said in the kernel log: Xid events, its other complaints, and which GPU each is about."""

from __future__ import annotations

import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Completed, Machine, Outcome

MOST_XIDS = 50
MOST_MESSAGES = 20
_LINE_LIMIT = 300
_LOG_FILES = ("/var/log/kern.log", "/var/log/syslog", "/var/log/messages")
_LOG_FILE_LIMIT = 64 << 20
# A log starts with its oldest lines, so more than the newest 50 are asked for.
_LOG_MATCHES = 2000
_LOG_PATTERN = rb"(?:NVRM:? (?!loading )|nvidia-nvswitch\d+: SXid |nvidia [0-9a-f:.]{10,14}: (?!\[drm\]))[^\n]{1,300}"
_XIDS_ALONE = rb"(?:NVRM: |nvidia-nvswitch\d+: S)Xid \([^\n]{1,300}"  # all that older recordings have of a file
_DMESG = (("dmesg", "--kernel", "--time-format", "iso"), ("dmesg",))
# The line that greets a freshly loaded module names the user and host that built it: not kept.
# [drm] on a card without a screen complains of having no screen.
_DMESG_KEEP = r"NVRM:? (?!loading )|SXid|\bnvidia(?:: probe of)? [0-9a-f]{4}:[0-9a-f:.]+:? (?!\[drm\])"
_NOT_PERMITTED = "not permitted"
# Expressions are compiled when first used: most machines have no line to try them on.
_XID = r"\b(S?)Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): (\d{1,6})(?:,\s*(.*))?"
_WHOSE = r"pid='?[^,']*'?,\s*(?:name=[^,]*,\s*)?"  # the process is nobody else's business
_ISO_TIME = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.,\d]*(?:[+-]\d\d:?\d\d|Z)?\s"
_SAID = r"NVRM:? +(.*)|\b(nvidia(?:: probe of)? [0-9a-f]{4}:[0-9a-f:.]+:? (?!\[drm\]).*)"
# One message of the driver over several lines; the first names the GPU, the last ends the sentence.
_PARAGRAPH = (
    r"The NVIDIA GPU [0-9a-f]{4,8}:|The NVIDIA .*GPU installed in this system is$|API mismatch:"
    r"|This PCI I/O region .* is invalid:$"
)
_LAST_LINE = r"\.$|\(PCI:[^)]*\)$"
_PARAGRAPH_LINES = 8
_TROUBLE = (
    r"(?i)fail|mismatch|requires use|fallen off|error|denied|unable|cannot|can't|not supported|probe routine"
    r"|already bound|no nvidia|too old|incompatible|none of the nvidia|will ignore|timeout|timed out|not responding"
    r"|insufficient|unexpected|is invalid|too old|incompatible"
)
_ADDRESS = r"\b([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?\b"


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One fault the driver logged: 79 at 0000:18:00, "GPU has fallen off the bus"; those of NVSwitches are SXid."""

    family: str  # "Xid" or "SXid"
    code: int
    pci: str
    text: str
    when: Fact[str]  # 2026-11-15T02:38:25, in the machine's own time


def probe_kernel_log(machine: Machine) -> Fact[tuple[str, ...]]:
    """The driver's lines in the kernel log: from dmesg, or from a log file where dmesg is not for everybody."""
    done = _dmesg(machine)
    if done.ok:
        return Known(tuple(done.stdout.splitlines()), "dmesg")
    if done.outcome is Outcome.TOO_MUCH_OUTPUT:  # the buffer of a large server; its oldest part was read
        return Known(tuple(done.stdout.splitlines()), "dmesg (its first part)")
    reasons = [done.complaint]
    for path in _LOG_FILES:
        seen = machine.stat(path)
        if seen is None:
            continue
        if seen.size > _LOG_FILE_LIMIT:
            reasons.append(f"{path}: too large to search")
        elif seen.size == 0:
            return Known((), path)
        elif (found := _lines_of(machine, path)) is not None:
            return Known(tuple(line.decode("utf-8", "replace") for line in found), path)
        else:
            reasons.append(f"{path}: {machine.why_not(path)}")
    return Unknown("; ".join(reasons))


def _lines_of(machine: Machine, path: str) -> tuple[bytes, ...] | None:
    found = machine.search(path, _LOG_PATTERN, limit=_LOG_MATCHES)
    return machine.search(path, _XIDS_ALONE, limit=_LOG_MATCHES) if found is None else found


def _dmesg(machine: Machine) -> Completed:
    """dmesg with times; a dmesg that does not know the options (BusyBox) is asked without."""
    done = machine.run(_DMESG[0], keep=_DMESG_KEEP)
    if done.outcome is Outcome.EXITED and not done.ok and _NOT_PERMITTED not in done.stderr.lower():
        return machine.run(_DMESG[1], keep=_DMESG_KEEP)
    return done


def xids_in(log: Fact[tuple[str, ...]]) -> Fact[tuple[XidEvent, ...]]:
    """The newest Xid events, oldest first."""
    if isinstance(log, Unknown):
        return log
    events = [_xid_event(line, match) for line in log.value if (match := re.search(_XID, line)) is not None]
    return Known(tuple(events[-MOST_XIDS:]), log.seen_in)


def _xid_event(line: str, match: re.Match[str]) -> XidEvent:
    stamp = re.match(_ISO_TIME, line)
    return XidEvent(
        family=f"{match.group(1)}Xid",
        code=int(match.group(3)),
        pci=match.group(2).lower(),
        text=re.sub(_WHOSE, "", match.group(4) or "").strip()[:_LINE_LIMIT],
        when=Unknown("the line carries no date") if stamp is None else Known(stamp.group(1), "dmesg"),
    )


def messages_in(log: Fact[tuple[str, ...]]) -> Fact[tuple[str, ...]]:
    """Complaints that are no Xid, each once, without the time: ("GPU 0000:18:00.0: RmInitAdapter failed! (0x26)",)."""
    if isinstance(log, Unknown):
        return log
    found: dict[str, None] = {}
    for said in _paragraphs(log.value):
        if re.search(_TROUBLE, said):
            text = re.sub(_WHOSE, "", said).strip()[:_LINE_LIMIT]
            found.pop(text, None)  # a message that came again counts as new
            found[text] = None
    return Known(tuple(found)[-MOST_MESSAGES:], log.seen_in)


def _paragraphs(lines: tuple[str, ...]) -> list[str]:
    """What was said, a message of several lines in one piece: its first line alone names the GPU it speaks of."""
    found: list[str] = []
    rest = 0  # lines that may still belong to the message before
    for line in lines:
        match = re.search(_SAID, line)
        if match is None or re.search(_XID, line):
            continue
        said = (match.group(1) or match.group(2)).strip()
        if rest and match.group(1):
            found[-1] = f"{found[-1]} {said}"
            rest = 0 if re.search(_LAST_LINE, said) else rest - 1
            continue
        rest = _PARAGRAPH_LINES if re.match(_PARAGRAPH, said) and not said.endswith(".") else 0
        found.append(said)
    return found


def address_in(text: str) -> str:
    """The GPU that a line of the log names, as sysfs writes it without the function: 0000:18:00; '' for none."""
    match = re.search(_ADDRESS, text.lower())
    return "" if match is None else f"{int(match.group(1), 16):04x}:{match.group(2)}"

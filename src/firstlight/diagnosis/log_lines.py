"""The lines of logs that the rules read, and those of them that no finding accounts for. Pure."""

from __future__ import annotations

from firstlight.diagnosis.finding import Diagnosis, LogLine
from firstlight.facts.collect import Facts
from firstlight.facts.kernel_log import XidEvent, address_in
from firstlight.facts.known import Known
from firstlight.frozen import dataclass

# What the driver says of all its GPUs together once it has failed with one of them.
_SUMMED_UP = ("probe routine failed", "None of the NVIDIA", "No NVIDIA devices probed", "No NVIDIA GPU found")


@dataclass(frozen=True, slots=True)
class NotExplained:
    """A line that no finding accounts for, and how often it is in the log."""

    line: LogLine
    count: int


def log_lines(facts: Facts) -> tuple[LogLine, ...]:
    """Every line that was kept of the kernel log, complaints first, Xid events as they came."""
    return (*message_lines(facts), *xid_lines(facts))


def message_lines(facts: Facts) -> tuple[LogLine, ...]:
    """The driver's complaints that are no Xid."""
    said = facts.health.driver_messages
    if not isinstance(said, Known):
        return ()
    return tuple(LogLine(text, said.seen_in, address_in(text)) for text in said.value)


def xid_lines(facts: Facts) -> tuple[LogLine, ...]:
    """The Xid events, each as one line."""
    xids = facts.health.xids
    return tuple(line_of(event, xids.seen_in) for event in xids.value) if isinstance(xids, Known) else ()


def line_of(event: XidEvent, seen_in: str) -> LogLine:
    """'Xid 79 at 0000:18:00: GPU has fallen off the bus.'"""
    text = f"{event.family} {event.code} at {event.pci}" + (f": {event.text}" if event.text else "")
    return LogLine(text, seen_in, address_in(event.pci))


def lines_about(facts: Facts, address: str) -> tuple[LogLine, ...]:
    """What the log has of the GPU at an address, with or without its function."""
    place = address_in(address)
    return tuple(line for line in log_lines(facts) if place and line.pci == place)


def lines_with(facts: Facts, *words: str) -> tuple[LogLine, ...]:
    """The complaints that hold one of these words."""
    return tuple(line for line in message_lines(facts) if any(word in line.text for word in words))


def summing_up(facts: Facts) -> tuple[LogLine, ...]:
    """What the driver says of how many it could not start: it belongs to whatever finding names them."""
    return lines_with(facts, *_SUMMED_UP)


def not_explained(facts: Facts, diagnosis: Diagnosis) -> tuple[NotExplained, ...]:
    """The lines that no finding accounts for, each once."""
    explained = {line for finding in diagnosis.findings for line in finding.lines}
    left = [line for line in log_lines(facts) if line not in explained]
    return tuple(NotExplained(line, left.count(line)) for line in dict.fromkeys(left))

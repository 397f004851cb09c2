"""Reads a log of any size in constant memory and hands out the places worth a closer look.

A log is read in blocks and never split into lines as a whole: each block is searched for the anchors of all
patterns (plain byte search, about 28 MB/s for all of them together), and only around a hit are lines cut out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 1 << 20
LINE_CAP = 1 << 16  # a longer line is looked at in pieces of this size
CONTEXT_BYTES = 4096  # how far before and after a line its neighbours are looked for
NEIGHBOURS = 3
ERROR_WORD = b"rror"

# Colours, cursor moves, terminal titles and links; an unfinished one at the end of a block is kept for the next.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_=>]|\([0-9A-B])")
_UNFINISHED_ESCAPE = re.compile(rb"\x1b[^\x07\n]{0,64}\Z")
_LINE_ENDS = re.compile(rb"[\r\n]+")
_NOT_ONLY_DIFF = re.compile(rb"-\S|[+-] \S")  # '-lcuda' of a wrapped line, an item of a list

_PREFIXES = re.compile(
    r"(?:\s+"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]?(?:\d\d:\d\d:\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"|\[?(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?:"  # syslog
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+\]"  # glog
    r"|\[\s*\d+\.\d+\]"  # dmesg
    r"|[\[(]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)[\])]?[:|]?(?=[\s:])"
    r"|\[?(?:rank|worker|node|local_rank|default)[-_ =]?\d+\]?:?"
    r"|\([\w-]{1,30} (?:pid|rank)=\d+[^)]{0,40}\)"
    r"|\[[\w,.:-]{1,20}\]<std(?:out|err)>:"  # mpirun
    r"|[\w.-]{1,40} +\| "  # docker compose
    r"|\[[\w./-]+\.\w+:\d+\]|#\d+ \d+\.\d+ |E(?=\s{2})"  # vLLM, BuildKit, pytest
    r"|NVRM: |[|>│•×╰─]+\s)*"
)


@dataclass(frozen=True, slots=True)
class Spot:
    """A line that holds at least one anchor, e.g. line 3 of a log; `anchors` are those found on it."""

    line: int
    anchors: frozenset[bytes]
    begin: int
    end: int
    buffer: bytes

    def text(self) -> str:
        """The line itself."""
        return _readable(self.buffer[self.begin : self.end])

    def in_diff(self) -> bool:
        """Whether the line is one of a diff: '+    raise OSError(...)' is source that speaks of the error, no log."""
        if self.buffer[self.begin : self.begin + 1] not in (b"+", b"-"):
            return False
        if self.begin == 0 and not self.buffer[self.end :].strip():
            return False  # the only line, given as it is
        if not _NOT_ONLY_DIFF.match(self.buffer, self.begin):
            return True
        # only the head of a diff before it tells them apart
        before = max(0, self.begin - LINE_CAP)
        return any(self.buffer.find(head, before, self.begin) >= 0 for head in (b"\n@@ -", b"diff --git "))

    def neighbours(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The lines before and after that are not blank, without log prefixes: a message may be wrapped over them."""
        before = self.buffer[max(0, self.begin - CONTEXT_BYTES) : self.begin]
        after = self.buffer[self.end : self.end + CONTEXT_BYTES]
        return _lines(before)[-NEIGHBOURS:], _lines(after)[:NEIGHBOURS]


@dataclass(frozen=True, slots=True)
class Passed:
    """What lies behind us after a block: line ends and bytes so far, and the last line that reads like an error."""

    line_ends: int
    size_bytes: int
    open_line: bool
    error: tuple[Spot, ...]


def scan(stream: BinaryIO, anchors: tuple[bytes, ...]) -> Iterator[Spot | Passed]:
    """Every line with an anchor, in order, then after each block how far we are."""
    buffer, start, line, size = b"", 0, 1, 0
    for block, read_bytes in _blocks(stream):
        size += read_bytes
        buffer += block
        # The last stretch waits for the next block, so that no line and no wrapped message is cut in two.
        limit = max(start, len(buffer) - LINE_CAP) if block else len(buffer)
        yield from _spots(buffer, anchors, start=start, limit=limit, line=line)
        error = _last_error(buffer, start=start, limit=limit, line=line)
        line += buffer.count(b"\n", start, limit)
        yield Passed(line - 1, size, open_line=bool(buffer) and not buffer.endswith(b"\n"), error=error)
        cut = max(0, limit - LINE_CAP)
        buffer, start = buffer[cut:], limit - cut


def without_prefix(text: str) -> str:
    """The line without time, level, rank and the like: '2026-11-15 02:38:25,123 INFO [rank0]: boom' is 'boom'."""
    match = _PREFIXES.match(text)
    return text[match.end() :] if match else text


def _blocks(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The stream without terminal escapes, each block with the bytes read for it; an empty block ends it."""
    held = b""
    while data := stream.read(BLOCK_BYTES):
        block, held = held + data, b""
        if b"\x1b" in block:
            block = _ESCAPE.sub(b"", block)
            if tail := _UNFINISHED_ESCAPE.search(block, max(0, len(block) - 66)):
                block, held = block[: tail.start()], block[tail.start() :]
        yield block or b"\0", len(data)
    if held:
        yield held, 0
    yield b"", 0


def _spots(buffer: bytes, anchors: tuple[bytes, ...], *, start: int, limit: int, line: int) -> Iterator[Spot]:
    hits: list[tuple[int, bytes]] = []
    for anchor in anchors:
        stop = min(len(buffer), limit + len(anchor) - 1)
        at = buffer.find(anchor, start, stop)
        while at >= 0:
            hits.append((at, anchor))
            at = buffer.find(anchor, at + len(anchor), stop)
    hits.sort()
    counted, first = start, 0
    while first < len(hits):
        at = hits[first][0]
        begin, end = _segment(buffer, at)
        after = first
        while after < len(hits) and hits[after][0] < end:
            after += 1
        line += buffer.count(b"\n", counted, at)
        yield Spot(line, frozenset(anchor for _, anchor in hits[first:after]), begin, end, buffer)
        counted, first = at, after


def _segment(buffer: bytes, at: int) -> tuple[int, int]:
    """Where the line around a position begins and ends; a carriage return ends a line as well (progress bars)."""
    low, high = max(0, at - LINE_CAP // 2), min(len(buffer), at + LINE_CAP // 2)
    begin = max(buffer.rfind(b"\n", low, at), buffer.rfind(b"\r", low, at), low - 1) + 1
    ends = [found for end in (b"\n", b"\r") if (found := buffer.find(end, at, high)) >= 0]
    return begin, min(ends, default=high)


def _last_error(buffer: bytes, *, start: int, limit: int, line: int) -> tuple[Spot, ...]:
    at = buffer.rfind(ERROR_WORD, start, limit)
    if at < 0:
        return ()
    begin, end = _segment(buffer, at)
    return (Spot(line + buffer.count(b"\n", start, at), frozenset(), begin, end, buffer),)


def _lines(data: bytes) -> tuple[str, ...]:
    return tuple(without_prefix(_readable(line)) for line in _LINE_ENDS.split(data) if line.strip())


def _readable(data: bytes) -> str:
    """Text of a line; rsyslog writes a line end inside a message as #012."""
    return data.decode("utf-8", "replace").replace("#012", "\n")

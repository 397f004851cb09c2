"""Reads a log of any size in constant memory and hands out the places worth a closer look.

A log is read in blocks and never split into lines as a whole: each block is searched for the anchors of all
patterns by its words, and only around a hit are lines cut out.
"""

from __future__ import annotations

import enum
import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from firstlight.diagnosis.explain_anchors import Anchors
from firstlight.diagnosis.explain_telling import is_end, is_exception, is_information, is_telling
from firstlight.frozen import dataclass
from firstlight.secrets import without_credentials

BLOCK_BYTES = 1 << 20
LINE_CAP = 1 << 16  # a longer line is looked at in pieces of this size
CONTEXT_BYTES = 4096  # how far before and after a line its neighbours are looked for
NEIGHBOURS = 3
ERROR_WORDS = (b"rror", b"ERROR", b"xception")
LINES_TRIED = 40  # with such a word at the beginning and at the end of a block, for the one that tells most
LINES_KEPT = 16  # of those that read like errors: the last may be a wrapper's own, on every rank
PASTED_BYTES = 1 << 14  # what is copied from a terminal; a log in a file is not cut at its width

# Colours, cursor moves, terminal titles and links; an unfinished one at the end of a block is kept for the next.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_=>]|\([0-9A-B])")
_UNFINISHED_ESCAPE = re.compile(rb"\x1b[^\x07\n]{0,64}\Z")
_NOT_ONLY_DIFF = re.compile(rb"-\S|[+-] \S")  # '-lcuda' of a wrapped line, an item of a list

FULL_LINE = 60  # a shorter one was not cut by a terminal
WIDEST_TERMINAL = 240  # a longer one neither
_SUFFIX = re.compile(rb"(?:so|py|dll|cu|cpp|cc|h|json|txt|whl|gz|com|org|io)\b")
BLANKS_LOST = 4  # at the end of a line, when it is copied
_FULL_LINE_END = re.compile(rb"(?<=[^\n]{%d})\n(?=[^\n])" % FULL_LINE)
_ANY_END = re.compile(rb"[ \t]*\r?\n[ \t]*(?=\S)")
_CUT_BEFORE = re.compile(rb"(?:[^\n]{%d,}\n){1,12}\Z" % FULL_LINE)
_CUT_AFTER = re.compile(rb"\n(?:[^\n]{%d,}\n){0,12}[^\n]*" % FULL_LINE)

# How a message of its own begins: a time, a level in brackets, Python's prompt, a name with a colon, an exception.
_RECORD = re.compile(
    rb"\[?\d{4}[-/]\d\d[-/]\d\d[T ]|\[?\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |[IWEF]\d{4} \d\d:\d\d"
    rb"|\[ *\d+\.\d+\] |>>> |Traceback \(|\[?(?:DEBUG|INFO|WARNING|ERROR)\b|[a-z]+(?:_[a-z]+)+: "
    rb"|  File \"|(?:[a-z_]\w*\.)*[A-Z]\w+(?:Error|Exception|Warning): "
)

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


class Readable(Protocol):
    """What a log is read from."""

    def read(self, size: int, /) -> bytes: ...


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
        before, after = self._around(CONTEXT_BYTES // 4)
        if min(len(before), len(after)) <= NEIGHBOURS:  # the outermost may be cut
            before, after = self._around(CONTEXT_BYTES)
        return _plain(before[-NEIGHBOURS:]), _plain(after[:NEIGHBOURS])

    def uncut(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The lines that a terminal cut off before and behind this one; none in a long log."""
        if len(self.buffer) > PASTED_BYTES:
            return (), ()
        head = _CUT_BEFORE.search(self.buffer[: self.begin])
        tail = _CUT_AFTER.match(self.buffer[self.end :]) if self.end - self.begin >= FULL_LINE else None
        before, after = ([each for each in (part[0] if part else b"").split(b"\n") if each] for part in (head, tail))
        line = self.buffer[self.begin : self.end]
        full = max(map(_columns, self.buffer.splitlines()), default=0) - BLANKS_LOST
        before = _cut_off((line, *reversed(before)), _CutAt.BEGINNING, full)
        after = _cut_off((line, *after), _CutAt.END, full)
        return tuple(map(_readable, reversed(before))), tuple(map(_readable, after))

    def surroundings(self) -> bytes:
        """The line with as much before and after it as is pasted, for what they show of the system."""
        return self.buffer[max(0, self.begin - PASTED_BYTES) : self.end + PASTED_BYTES]

    def place(self) -> int:
        """Where the line begins in its surroundings."""
        return min(self.begin, PASTED_BYTES)

    def near(self, size_bytes: int) -> str:
        """The line with at most so much before and after it."""
        return self.buffer[max(0, self.begin - size_bytes) : self.end + size_bytes].decode("utf-8", "replace")

    def _around(self, size_bytes: int) -> tuple[list[bytes], list[bytes]]:
        before = self.buffer[max(0, self.begin - size_bytes) : self.begin]
        return _lines(before), _lines(self.buffer[self.end : self.end + size_bytes])


class _CutAt(enum.Enum):
    """Which end of a line its other parts may stand at."""

    BEGINNING = "beginning"
    END = "end"


def _columns(line: bytes) -> int:
    return len(line.decode("utf-8", "replace"))


def _cut_off(lines: tuple[bytes, ...], at: _CutAt, full: int) -> list[bytes]:
    """Of the lines next to the first, outwards, those that belong to it: a part that is cut is as long as the next.

    A terminal cuts all lines at its width, so a line that another one is longer than was not cut. One that begins as
    records do is a message of its own.
    """
    found: list[bytes] = []
    for inner, outer in itertools.pairwise(lines):
        first, second = (outer, inner) if at is _CutAt.BEGINNING else (inner, outer)
        is_sentence = first.endswith(b".") and second[:1].isalpha() and not _SUFFIX.match(second)
        was_cut = full <= _columns(first) <= WIDEST_TERMINAL and not is_sentence
        if len(second) > len(first) or not was_cut or _RECORD.match(second):
            break
        found.append(outer)
    return found


@dataclass(frozen=True, slots=True)
class Stretch:
    """A line and those around it that may belong to it, and what stood between them."""

    before: tuple[str, ...]
    line: str
    after: tuple[str, ...]
    glue: str

    def parts(self) -> tuple[str, str]:
        """What stands before the line, and the whole."""
        before, line, after = self.before, self.line, self.after
        if self.glue:  # a program that breaks a line at a space may leave the space at its end
            before, line, after = tuple(map(str.strip, before)), line.rstrip(), tuple(map(str.strip, after))
        head = self.glue.join(before) + self.glue if before else ""
        return head, head + self.glue.join((line, *after))

    def without_secrets(self) -> Stretch:
        """The same with each line masked by itself: a token that is glued to a word has no beginning."""
        before, after = (tuple(map(without_credentials, lines)) for lines in (self.before, self.after))
        return Stretch(before, without_credentials(self.line), after, self.glue)


@dataclass(frozen=True, slots=True)
class Passed:
    """What lies behind us after a block: line ends and bytes so far, and what reads like an error."""

    line_ends: int
    size_bytes: int
    open_line: bool
    told: Told


def scan(stream: Readable, anchors: tuple[bytes, ...]) -> Iterator[Spot | Passed]:
    """Every line with an anchor, in order, then after each block how far we are."""
    buffer, start, line, size = b"", 0, 1, 0
    wanted, told = Anchors(anchors), Told()
    for block, read_bytes in _blocks(stream):
        size += read_bytes
        buffer += block
        # The last stretch waits for the next block, so that no line and no wrapped message is cut in two.
        limit = max(start, len(buffer) - LINE_CAP) if block else len(buffer)
        yield from _spots(buffer, wanted.within(buffer, start=start, limit=limit), start=start, line=line)
        if not block and size <= PASTED_BYTES:
            ends = ((_FULL_LINE_END, b""), (_ANY_END, b" "))
            broken = sorted({hit for end, glue in ends for hit in _over_ends(buffer, wanted, end, glue)})
            yield from _spots(buffer, broken, start=start, line=line)
        told = told.after(buffer, start=start, limit=limit, line=line)
        line += buffer.count(b"\n", start, limit)
        yield Passed(line - 1, size, open_line=bool(buffer) and not buffer.endswith(b"\n"), told=told)
        cut = max(0, limit - LINE_CAP)
        buffer, start = buffer[cut:], limit - cut


def _over_ends(buffer: bytes, wanted: Anchors, ends: re.Pattern[bytes], glue: bytes) -> list[tuple[int, bytes]]:
    """Where anchors begin that go over the end of a line, with `glue` in its place.

    A terminal cuts words where its width ends, and then nothing is between the halves; a program, a mail or a person
    breaks a line at a space, and may indent what follows.
    """
    cuts = list(ends.finditer(buffer))
    if not cuts:
        return []
    whole = ends.sub(glue, buffer)
    joints, shifts, removed = [], [0], 0
    for cut in cuts:
        joints.append(cut.start() - removed)
        removed += cut.end() - cut.start() - len(glue)
        shifts.append(removed)
    found = []
    for at, anchor in wanted.within(whole, start=0, limit=len(whole)):
        before = bisect_right(joints, at)
        begins_with_glue = bool(glue) and joints[before - 1 : before] == [at]
        if not begins_with_glue and bisect_right(joints, at + len(anchor) - 1) > before:
            found.append((at + shifts[before], anchor))
    return found


def without_prefix(text: str) -> str:
    """The line without time, level, rank and the like: '2026-11-15 02:38:25,123 INFO [rank0]: boom' is 'boom'."""
    match = _PREFIXES.match(text)
    return text[match.end() :] if match else text


def _blocks(stream: Readable) -> Iterator[tuple[bytes, int]]:
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


def _spots(buffer: bytes, hits: list[tuple[int, bytes]], *, start: int, line: int) -> Iterator[Spot]:
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


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of a log, buffer[start:limit], whose first line has this number."""

    buffer: bytes
    start: int
    limit: int
    line: int

    def spot(self, at: int) -> Spot:
        """The line there by itself: the block that it stands in may go."""
        begin, end = _segment(self.buffer, at)
        line = self.line + self.buffer.count(b"\n", self.start, at)
        return Spot(line, frozenset(), 0, end - begin, self.buffer[begin:end])

    def end(self) -> tuple[Spot, ...]:
        """Its last line that is not blank, where that says how a program was ended."""
        at = len(self.buffer[max(self.start, self.limit - LINE_CAP) : self.limit].rstrip()) - 1
        at += max(self.start, self.limit - LINE_CAP)
        return (self.spot(at),) if at >= self.start and is_end(self.bare(at)) else ()

    def bare(self, at: int) -> str:
        return without_prefix(self.whole(at))

    def whole(self, at: int) -> str:
        begin, end = _segment(self.buffer, at)
        return _readable(self.buffer[begin:end])


@dataclass(frozen=True, slots=True)
class Told:
    """The lines of a log that read like errors: exceptions, the last first; those that are no note, the first first;
    the last of all; and the end of the log, where it says that a signal ended the program. Of each only some are kept.

    The newest block waits until it is asked for: where a cause is known, nobody asks.
    """

    exceptions: tuple[Spot, ...] = ()
    named: tuple[Spot, ...] = ()
    last: tuple[Spot, ...] = ()
    end: tuple[Spot, ...] = ()
    waiting: tuple[_Block, ...] = ()

    def after(self, buffer: bytes, *, start: int, limit: int, line: int) -> Told:
        """The same, and buffer[start:limit] behind it, whose first line has this number."""
        read = self._read()
        return Told(read.exceptions, read.named, read.last, read.end, (_Block(buffer, start, limit, line),))

    def candidates(self) -> tuple[Spot, ...]:
        """The lines that may be the one that tells most, best first."""
        read = self._read()
        return (*read.end, *read.exceptions, *read.named, *read.last)

    def _read(self) -> Told:
        told = self
        for block in self.waiting:
            last = list(_from_the_end(block.buffer, start=block.start, limit=block.limit))
            thrown = (at for at in last if is_exception(block.bare(at)))
            loud = (at for at in last if not is_information(block.whole(at)))
            ahead = _from_the_start(block.buffer, start=block.start, limit=block.limit)
            room = LINES_KEPT - len(told.named)
            named = itertools.islice((at for at in ahead if room and is_telling(block.bare(at))), room)
            told = Told(
                (*map(block.spot, itertools.islice(thrown, LINES_KEPT)), *told.exceptions)[:LINES_KEPT],
                (*told.named, *map(block.spot, named)),
                tuple(map(block.spot, itertools.islice(loud, 1))) or told.last,
                block.end(),
            )
        return told


def _from_the_end(buffer: bytes, *, start: int, limit: int) -> Iterator[int]:
    """Where words for an error stand, one a line, the last line first."""
    for _ in range(LINES_TRIED):
        at = max(buffer.rfind(word, start, limit) for word in ERROR_WORDS)
        if at < 0:
            return
        yield at
        limit = max(start, _segment(buffer, at)[0])


def _from_the_start(buffer: bytes, *, start: int, limit: int) -> Iterator[int]:
    """Where words for an error stand, one a line, the first line first."""
    for _ in range(LINES_TRIED):
        places = [place for word in ERROR_WORDS if (place := buffer.find(word, start, limit)) >= 0]
        if not places:
            return
        yield min(places)
        start = _segment(buffer, min(places))[1]


def _lines(data: bytes) -> list[bytes]:
    return [line for line in data.replace(b"\r", b"\n").split(b"\n") if line and not line.isspace()]


def _plain(lines: list[bytes]) -> tuple[str, ...]:
    return tuple(without_prefix(_readable(line)) for line in lines)


def _readable(data: bytes) -> str:
    """Text of a line; rsyslog writes a line end inside a message as #012, a log of JSON lines as backslash and n."""
    text = data.decode("utf-8", "replace").replace("#012", "\n")
    if "\\" in text and text.lstrip().startswith("{"):
        text = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    return text

"""Run a command as a child, pass all that it prints through, and keep the end of it to explain a failure."""

from __future__ import annotations

import errno
import fcntl
import os
import selectors
import signal
import termios
import threading
import time
import tty
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from firstlight.frozen import dataclass

KEPT_BYTES = 1 << 20  # of the end of the output
_PIECE = 1 << 18
_WIDE = 1 << 20
_SMALL = 1 << 16  # a larger piece comes from a command that writes faster than we nap
_SHORT = 1 << 12
_NAP_S = 0.001
_STDOUT, _STDERR = 1, 2
# Sent to us alone by a scheduler or a supervisor; those of the keyboard reach the child by themselves.
_HANDED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCONT")
_OF_THE_KEYBOARD = ("SIGINT", "SIGQUIT")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: status as os.waitstatus_to_exitcode has it (-9: killed by signal 9), and its last output."""

    status: int
    tail: bytes
    is_cut: bool  # more was printed than was kept


class _Tail:
    """The last pieces of what went by; whole ones are dropped, so that nothing is copied before it is asked for."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._dropped = False

    def add(self, piece: bytes) -> None:
        if self._pieces and len(self._pieces[-1]) < _SHORT:
            self._pieces[-1] += piece  # a letter at a time would be a million of them
        else:
            self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= KEPT_BYTES:
            self._size -= len(self._pieces.popleft())
            self._dropped = True

    def ended(self, status: int) -> Ended:
        data = b"".join(self._pieces)
        return Ended(status, data[-KEPT_BYTES:], self._dropped or len(data) > KEPT_BYTES)


def watched(become: Callable[[], NoReturn]) -> Ended:
    """Fork, have the child `become` the command with outputs that go through us, and wait for its end.

    An output that is a terminal stays one for the child: a second terminal of the same size stands in for it. Two
    outputs that are one file go through one pipe, so that their lines keep their order.
    """
    ends = _Outputs()
    child = os.fork()
    if child == 0:
        ends.into_child()
        become()
    ends.close_childs()
    restore = _hand_on_signals(child, ends)
    try:
        status, tail = _passed_through(child, ends)
    finally:
        for number, handler in restore.items():
            signal.signal(number, handler)
    return tail.ended(os.waitstatus_to_exitcode(status))


def end_as(status: int) -> NoReturn:
    """End this process as the command ended: with its code, or by the signal that killed it."""
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):  # which nobody can catch
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        os._exit(128 - status)  # a signal that does not kill
    os._exit(status)


class _Outputs:
    """The pipes or terminals between the child's outputs and ours: our end -> where it goes on."""

    def __init__(self) -> None:
        self.onward: dict[int, int] = {}
        self._for_child: dict[int, int] = {}
        self.terminals: list[int] = []
        joined = _same_file(_STDOUT, _STDERR)
        for number in (_STDOUT,) if joined else (_STDOUT, _STDERR):
            ours, childs = self._terminal(number) if os.isatty(number) else _wide_pipe()
            self.onward[ours] = number
            self._for_child[number] = childs
        if joined:
            self._for_child[_STDERR] = self._for_child[_STDOUT]

    def _terminal(self, number: int) -> tuple[int, int]:
        ours, childs = os.openpty()
        tty.setraw(childs)  # the real terminal does what there is to do with line ends
        self.terminals.append(childs)
        self.resize(number)
        return ours, os.dup(childs)

    def resize(self, number: int = _STDOUT) -> None:
        """Give the terminals the size of the real one."""
        for each in self.terminals:
            try:
                size = fcntl.ioctl(number, termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(each, termios.TIOCSWINSZ, size)
            except OSError:
                return  # the real one is gone

    def into_child(self) -> None:
        for number, end in self._for_child.items():
            os.dup2(end, number)
        for end in {*self._for_child.values(), *self.onward, *self.terminals}:
            os.close(end)

    def close_childs(self) -> None:
        for end in set(self._for_child.values()):
            os.close(end)


def _wide_pipe() -> tuple[int, int]:
    """A pipe that holds a megabyte where the kernel allows it, so that the command waits for us seldom."""
    ours, childs = os.pipe()
    with suppress(OSError):
        fcntl.fcntl(childs, fcntl.F_SETPIPE_SZ, _WIDE)
    return ours, childs


def _same_file(one: int, other: int) -> bool:
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _hand_on_signals(child: int, ends: _Outputs) -> dict[int, Any]:
    """What is sent to us goes to the child; the keyboard's signals it has already, and we wait for what it does."""

    def hand_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    before: dict[int, Any] = {}
    for name in _HANDED_ON:
        if hasattr(signal, name):
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # what was ignored stays ignored, there and here
                before[number] = signal.signal(number, hand_on)
    for name in _OF_THE_KEYBOARD:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda *_: None)
    if ends.terminals:
        before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: ends.resize())
    return before


def _passed_through(child: int, ends: _Outputs) -> tuple[int, _Tail]:
    """Copy until the child has ended and nothing more is waiting; a grandchild that keeps a pipe is not waited for."""
    statuses: list[int] = []
    woken, wake = os.pipe()

    def wait() -> None:
        statuses.append(os.waitpid(child, 0)[1])
        os.write(wake, b".")

    threading.Thread(target=wait, daemon=True).start()
    tail = _Tail()
    # poll asks a terminal anew each time, which then takes in what lies in the kernel's queue; epoll waits for that
    with selectors.PollSelector() as selector:
        for ours in (*ends.onward, woken):
            selector.register(ours, selectors.EVENT_READ)
        while not statuses or len(selector.get_map()) > 1:
            has_ended = bool(statuses)  # by now, not while the outputs are asked: what came last is asked for once more
            ready = [int(key.fd) for key, _ in selector.select(0 if has_ended else None)]
            if has_ended and ready in ([], [woken]):
                break
            largest = 0
            for ours in ready:
                if ours == woken:
                    continue
                size_bytes = _copied(ours, ends, tail)
                largest = max(largest, size_bytes)
                if not size_bytes:
                    selector.unregister(ours)
                    os.close(ours)
            if not statuses and largest < _SMALL:
                time.sleep(_NAP_S)  # what is written line by line comes in larger pieces then, at a tenth of the cost
    return statuses[0], tail


def _copied(ours: int, ends: _Outputs, tail: _Tail) -> int:
    """Pass one piece on; its size, 0 at the end or where our own reader is gone: the child's next write fails too."""
    try:
        piece = os.read(ours, _PIECE)
    except OSError as error:
        if error.errno == errno.EIO:  # the terminal's other side was closed by all
            return 0
        raise
    if not piece:
        return 0
    tail.add(piece)
    left = memoryview(piece)
    while left:
        try:
            left = left[os.write(ends.onward[ours], left) :]
        except BrokenPipeError:
            return 0
    return len(piece)

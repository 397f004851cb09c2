"""torchrun and its ranks as children: started, watched, ended; whoever stopped them is named."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO

from firstlight.bench.collective.folder import Failure, Measured, Told, failures_in, measured_in, told_in
from firstlight.bench.collective.order import Order
from firstlight.bench.collective.torchrun import FOLDER
from firstlight.errors import CouldNotLook
from firstlight.frozen import dataclass
from firstlight.records import encode

LOOK_EVERY_S = 0.1
HEARD_OUT_S = 1.0  # after the first complaint the other ranks have this long for theirs
START_S = 180.0  # to import torch on every rank of a busy machine, and to meet
END_S = 20.0  # torchrun itself ends after its ranks
SLACK_S = 15.0  # beside the limit of a step: two of them may follow each other without a word
TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where ranks meet: node count and rendezvous of torchrun; a standalone one where all are on this machine."""

    per_node: int
    nodes: int = 1
    rendezvous: str = ""  # HOST:PORT
    name: str = "firstlight"  # of the run, the same on every node


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of ranks ended: what was measured (None: rank 0 is on another node), and what went wrong ('')."""

    measured: Measured | None
    trouble: str
    case_id: str  # where it was then
    interrupted: bool = False


Listening = Callable[[Told], None]


def run_ranks(order: Order, meeting: Meeting, *, listen: Listening, keep: Callable[[Measured], None]) -> Ended:
    """Start the ranks of this machine, wait for their end, and say what became of them."""
    folder = tempfile.mkdtemp(prefix="firstlight-collective-")
    try:
        with open(os.path.join(folder, "said"), "w+b") as said:
            process = _start(order, meeting, folder, said)
            try:
                return _watched(process, folder, _Limits(order.limit_s), listen=listen, keep=keep)
            except KeyboardInterrupt:
                told = told_in(folder)
                end_all(process, told)
                return Ended(measured_in(folder), "", _case_of(told), interrupted=True)
            finally:
                end_all(process, told_in(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(order: Order, meeting: Meeting, folder: str, said: IO[bytes]) -> subprocess.Popen[bytes]:
    where: tuple[str, ...] = ("--standalone",)
    if meeting.nodes > 1:
        where = (
            f"--nnodes={meeting.nodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={meeting.rendezvous}",
            f"--rdzv-id={meeting.name}",
        )
    argv = (
        sys.executable,
        "-m",
        "firstlight.bench.collective.torchrun",
        *where,
        f"--nproc-per-node={meeting.per_node}",
        "--max-restarts=0",
        "-m",
        "firstlight.bench.collective.worker",
        json.dumps(encode(order)),
    )
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=_environment(meeting, folder),
            start_new_session=True,
        )
    except OSError as error:
        raise CouldNotLook(f"torchrun could not be started with {sys.executable}: {error.strerror}") from None


def _environment(meeting: Meeting, folder: str) -> dict[str, str]:
    """What the user has set stays; on one machine gloo is told the loopback, which needs no name of the host."""
    given = {**os.environ, FOLDER: folder}
    given.setdefault("OMP_NUM_THREADS", "1")  # torchrun sets this, and warns
    if meeting.nodes == 1:
        given.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return given


@dataclass(frozen=True, slots=True)
class _Limits:
    step_s: float

    def silence_s(self, told: tuple[Told, ...]) -> float:
        """How long nobody may say anything: longer before the first case, when torch is imported."""
        return self.step_s + SLACK_S if any(each.case_id for each in told) else START_S + self.step_s


def _watched(
    process: subprocess.Popen[bytes],
    folder: str,
    limits: _Limits,
    *,
    listen: Listening,
    keep: Callable[[Measured], None],
) -> Ended:
    """Until torchrun ends, a rank complains, or nobody moves on."""
    last: tuple[Told, ...] = ()
    moved = kept = time.monotonic()
    heard: float | None = None
    while process.poll() is None:
        time.sleep(LOOK_EVERY_S)
        now, told = time.monotonic(), told_in(folder)
        if told != last:
            moved, last = now, told
            if told and told[0].case_id:
                listen(told[0])
        if heard is None and any(each.complaint for each in told):
            heard = now
        if now - kept >= 10 and (measured := measured_in(folder)) is not None:
            kept = now
            keep(measured)
        if heard is not None and now - heard >= HEARD_OUT_S:
            break
        if now - moved > limits.silence_s(told):
            break
    ended_by_itself = process.poll() is not None
    alive = {each.rank for each in last if _is_there(each.pid)}
    end_all(process, told_in(folder))
    told = told_in(folder)
    measured = measured_in(folder)
    if process.returncode == 0 and ended_by_itself:
        return Ended(measured, "", "")
    trouble = name_trouble(told, failures_in(folder), alive=frozenset(alive), step_s=limits.step_s)
    return Ended(measured, trouble or _last_words(folder, process.returncode), _case_of(told))


def name_trouble(told: tuple[Told, ...], failed: tuple[Failure, ...], *, alive: frozenset[int], step_s: float) -> str:
    """Who stopped the run, and how: an error of a rank's own, its end, or that the others wait for it; '' unknown."""
    own = [each for each in told if each.complaint and not each.waited]
    if own:
        return f"rank {own[0].rank} stopped: {own[0].complaint}"
    silent = {each.rank for each in told if not each.complaint and not each.done}
    waiting = [each for each in told if each.complaint]
    # torchrun ends the rank that the others wait for as soon as one of them has ended.
    by_torchrun = -signal.SIGTERM if waiting else None
    died = [each for each in failed if (each.rank in silent or not told) and each.exit_code != by_torchrun]
    if died:
        others = f"; so did {len(died) - 1} more" if len(died) > 1 else ""
        return f"rank {died[0].rank} {_end_words(died[0].exit_code)}{others}"
    if waiting and silent:
        named = ", ".join(str(rank) for rank in sorted(silent))
        ended = {each.rank for each in failed}
        gone = "" if silent & (alive | ended) else ", and its process has ended"
        return (
            f"rank {named} did not answer within {step_s:.0f} s{gone}; "
            f"rank {waiting[0].rank} said: {waiting[0].complaint}"
        )
    if waiting:
        return f"a rank of another node did not answer; rank {waiting[0].rank} said: {waiting[0].complaint}"
    if silent:
        return f"no rank moved on for {step_s + SLACK_S:.0f} s"
    return ""


def _end_words(exit_code: int) -> str:
    if exit_code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-exit_code).name} (signal {-exit_code})"
        return f"was ended by signal {-exit_code}"
    return f"ended with exit code {exit_code} and said nothing"


def _last_words(folder: str, status: int | None) -> str:
    """The end of what torchrun and the ranks printed."""
    with open(os.path.join(folder, "said"), "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    said = next((line for line in reversed(lines) if line and set(line) - set("=-")), "nothing was printed")
    return f"torchrun ended with status {status}: {said[:300]}"


def _case_of(told: tuple[Told, ...]) -> str:
    """The case that the ranks were at: the furthest, because a rank that hangs is behind."""
    return max(told, key=lambda each: (each.pass_number, each.number)).case_id if told else ""


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def end_all(process: subprocess.Popen[bytes], told: tuple[Told, ...]) -> None:
    """Nothing of it is left: torchrun starts each rank in a group of its own, so that every one is ended by itself.

    A rank says its process before anything else, and is ended by the kernel with torchrun in any case.
    """
    if process.poll() is None and not any(each.complaint for each in told):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)  # a rank that died was seen by torchrun, whose words are worth having
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=END_S)
    for each in told:
        if _is_ours(each.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(each.pid, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while any(_is_ours(each.pid) for each in told) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_ours(pid: int) -> bool:
    """Whether the process is still that rank: a number may be another's by now."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"firstlight.bench.collective.worker" in file.read(1 << 16)
    except OSError:
        return False

"""Run the checks: lanes side by side, within a lane one after the other."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.gpus import ComputeMode
from firstlight.facts.known import Known
from firstlight.near import nearest
from firstlight.verify.check import Answer, Case, Check, CheckOutcome, Lane, Result
from firstlight.verify.child import ask_child
from firstlight.verify.judges import as_said
from firstlight.verify.needs import lacking

Tell = Callable[[Result], None]
Running = Callable[[tuple[str, ...]], None]
_MANY_CORES = 8


def chosen(checks: tuple[Check, ...], only: tuple[str, ...]) -> tuple[Check, ...]:
    """The checks of those names, in their own order; all of them where none is named."""
    names = [check.name for check in checks]
    for name in only:
        if name not in names:
            near = nearest(name, names)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(f"there is no check called {name!r}; accepted: {', '.join(names)}.{hint}")
    return tuple(check for check in checks if not only or check.name in only)


def work_folder() -> str:
    """A folder of this run."""
    try:
        return tempfile.mkdtemp(prefix="firstlight-verify-")
    except OSError as error:
        raise CouldNotLook(f"no folder for temporary files: {error.strerror}. Set TMPDIR to one with room.") from error


def remove_folder(path: str) -> None:
    """Remove what a run left; compilers and caches may still be writing, so errors do not count."""
    shutil.rmtree(path, ignore_errors=True)


def run_checks(
    checks: tuple[Check, ...], case: Case, tell: Tell, *, skip: tuple[str, ...] = (), running: Running | None = None
) -> tuple[tuple[Result, ...], dict[str, Answer]]:
    """Every check's result in the order given, and what the children said.

    `tell` hears each result as it is known, `running` the names of the checks at work whenever these change.
    """
    run = _Run(checks, case, tell, skip, running)
    lanes: dict[str, list[Check]] = {}
    for check in checks:
        lanes.setdefault(_lane(check, case), []).append(check)
    threads = [threading.Thread(target=run.lane, args=(lane,), daemon=True) for lane in lanes.values()]
    before = _let_sigterm_interrupt()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # a join without a limit would not let Ctrl-C through
    except BaseException:
        run.stopped = True
        _end_children()
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    if run.errors:
        raise run.errors[0]
    return tuple(run.results[check.name] for check in checks), run.answers


def _let_sigterm_interrupt() -> Any:
    """Make the signal that CI systems and `timeout` send act as Ctrl-C does; returns what stood before, or None."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    return signal.signal(signal.SIGTERM, interrupted)


def _lane(check: Check, case: Case) -> str:
    """One lane for all where a GPU takes one process at a time; on many cores one for each compiler."""
    modes = [gpu.compute_mode for gpu in case.facts.gpus.devices]
    one = any(isinstance(mode, Known) and mode.value is ComputeMode.EXCLUSIVE_PROCESS for mode in modes)
    if one:
        return Lane.GPU.value
    alone = check.lane is Lane.BUILD and len(os.sched_getaffinity(0)) >= _MANY_CORES
    return check.name if alone else check.lane.value


class _Run:
    """The state of one run: fills up as checks end, which is what it is for."""

    def __init__(
        self, checks: tuple[Check, ...], case: Case, tell: Tell, skip: tuple[str, ...], running: Running | None
    ) -> None:
        self.case, self.tell, self.skip = case, tell, skip
        self._running, self._at_work = running, list[str]()
        self.results: dict[str, Result] = {}
        self.answers: dict[str, Answer] = {}
        self.errors: list[BaseException] = []
        self.stopped = False
        self._ended = {check.name: threading.Event() for check in checks}
        self._lock = threading.Lock()

    def lane(self, checks: list[Check]) -> None:
        try:
            for check in checks:
                for name in check.after:
                    if name in self._ended:
                        self._ended[name].wait()
                if self.stopped:
                    return
                self._run(check)
        except BaseException as error:  # noqa: BLE001 handed to the thread that asked
            self.errors.append(error)
        finally:
            for check in checks:
                self._ended[check.name].set()

    def _run(self, check: Check) -> None:
        with self._lock:
            self._at_work.append(check.name)
            self._say_running()
        result = self._result(check)
        with self._lock:
            self.results[check.name] = result
            self._at_work.remove(check.name)
            if not self.stopped:
                self.tell(result)
                self._say_running()
        self._ended[check.name].set()

    def _say_running(self) -> None:
        if self._running is not None and not self.stopped:
            self._running(tuple(self._at_work))

    def _result(self, check: Check) -> Result:
        if check.name in self.skip:
            return Result(check.name, check.title, CheckOutcome.SKIPPED, "you said --skip")
        if (lacks := lacking(check, self.case, self.answers)) is not None:
            return Result(check.name, check.title, lacks[0], lacks[1])
        if not check.script:
            assert check.judge is not None, check.name
            return check.judge(check, _NOTHING_SAID, self.case, self.answers)
        answer = ask_child(check, self.case)
        self.answers[check.name] = answer
        return as_said(check, answer) if check.judge is None else check.judge(check, answer, self.case, self.answers)


_NO_MORE: dict[str, Any] = {}
_NOTHING_SAID = Answer(CheckOutcome.OK, "", (), (), _NO_MORE, (), 0.0, "")


def _end_children() -> None:
    """End the groups of the processes that this one started: each child leads a group of its own."""
    deadline = time.monotonic() + 1
    while (mine := _children()) and time.monotonic() < deadline:
        for pid in mine:
            try:
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.05)


def _children() -> list[int]:
    """Process ids of the direct children of every thread of this process."""
    found: list[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except (OSError, ValueError):  # a kernel without this file, a thread that ended meanwhile
        pass
    return found

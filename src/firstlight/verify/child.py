"""Run one child script and read its answer; whatever it does, something is learned and it ends."""

from __future__ import annotations

import json
import os
import secrets
import time
from typing import Any

from firstlight.errors import CouldNotLook
from firstlight.machine.interface import Completed
from firstlight.machine.interface import Outcome as Ended
from firstlight.machine.spawn import run_bounded
from firstlight.verify.check import Answer, Case, Check, CheckOutcome, Evidence
from firstlight.verify.fresh import in_shell
from firstlight.visible import visible

CHILDREN = os.path.join(os.path.dirname(__file__), "children")
MARK = "firstlight-proof"  # stands for the mark of one run where its command is shown; see children/run.py
_STDERR_KEPT = 4000
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def ask_child(check: Check, case: Case) -> Answer:
    """Run a check's script in the interpreter under proof, in the shell it names, within its time limit."""
    work = os.path.join(case.work, check.name)
    try:
        os.makedirs(work, exist_ok=True)
    except OSError as error:
        raise CouldNotLook(f"{work}: no folder can be made for the proof ({error.strerror}). Set TMPDIR.") from error
    question = json.dumps({**check.asks(case), "work": work})
    mark = secrets.token_hex(16)  # nothing that a shell or a library prints can be taken for the answer
    argv = (case.interpreter, os.path.join(CHILDREN, "run.py"), check.script, question, mark)
    shelled = in_shell(check.shell, argv)
    started = time.monotonic()
    caches = {} if check.shell else _caches(work)  # a fresh shell starts without them, as without everything
    done = run_bounded(shelled.argv, timeout_s=check.limit_s, env={**shelled.environ, **caches})
    return read_answer(done, mark, limit_s=check.limit_s, seconds=time.monotonic() - started)


def _caches(work: str) -> dict[str, str]:
    """Cold caches in a folder of this run: nothing old can help, nothing is left behind."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": f"{work}/inductor",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its worker processes would outlive a killed child
        "TRITON_CACHE_DIR": f"{work}/triton",
        "TORCH_EXTENSIONS_DIR": f"{work}/extensions",
        "CUDA_CACHE_PATH": f"{work}/ptx",
        "TMPDIR": work,
    }


def read_answer(done: Completed, mark: str, *, limit_s: float, seconds: float) -> Answer:
    """What a finished child said; a crash, a hang or a foreign answer is a failure told in one sentence."""
    stderr = visible(done.stderr[-_STDERR_KEPT:])
    if done.outcome is Ended.EXITED and (said := _marked(done.stdout, mark)) is not None:
        try:
            return Answer(
                outcome=CheckOutcome(said["outcome"]),
                says=visible(str(said["says"])),
                do=tuple(visible(str(each)) for each in said["do"]),
                evidence=tuple(Evidence(str(what), _value(value)) for what, value in said["evidence"]),
                more=dict(said["more"]),
                command=_shown(done.argv, mark),
                seconds=seconds,
                stderr=stderr if said["outcome"] == "failed" else "",
            )
        except (KeyError, ValueError, TypeError):
            pass
    says, *do = _how_it_ended(done, limit_s)
    return Answer(CheckOutcome.FAILED, says, tuple(do), (), {}, _shown(done.argv, mark), seconds, stderr)


def _how_it_ended(done: Completed, limit_s: float) -> list[str]:
    if done.outcome is Ended.TIMED_OUT:
        return [
            f"no answer within {limit_s:g} s; it was killed",
            "Run: firstlight doctor (a hung driver answers nothing)",
        ]
    if done.outcome is Ended.KILLED:
        name = _SIGNALS.get(-done.status, f"signal {-done.status}")
        return [f"the process was killed by {name}", *_after_signal(-done.status)]
    if done.outcome is Ended.NOT_FOUND:
        return [f"{done.argv[0]} was not found", "Name an interpreter that exists: firstlight verify --python PATH"]
    if done.outcome is not Ended.EXITED:
        return [f"{done.argv[0]}: {done.outcome.value}" + (f" ({visible(done.stderr)[:200]})" if done.stderr else "")]
    last = visible(done.stderr.strip().rpartition("\n")[2])[:300]
    return [f"it ended with exit status {done.status} and no answer" + (f": {last}" if last else "")]


def _after_signal(number: int) -> list[str]:
    if number == 9:
        return ["Something outside ended it, as the kernel does when memory runs out: dmesg | grep -i 'out of memory'"]
    if number == 4:
        return ["An instruction this processor lacks: the build of torch is for another processor."]
    return ["Two libraries that do not fit can do this: see the check `libraries`, and firstlight doctor."]


def _marked(text: str, mark: str) -> dict[str, Any] | None:
    """The answer among whatever else a shell's start-up files printed."""
    for line in reversed(text.splitlines()):
        if mark in line:
            try:
                found = json.loads(line)[mark]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if isinstance(found, dict):
                return found
    return None


def _value(value: object) -> str | int | float | bool:
    return value if isinstance(value, (int, float, bool)) else visible(str(value))[:1000]


def _shown(argv: tuple[str, ...], mark: str) -> tuple[str, ...]:
    """The command as it can be run again by hand, with a word in place of the mark of this run."""
    words = [part.replace(mark, MARK) for part in argv]
    return tuple(part if len(part) <= 400 else f"{part[:397]}..." for part in words)

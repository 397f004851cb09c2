"""Start the programs that are profiled: what they print goes to stderr or a file, a limit ends the whole group."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

UNDER_TORCH = Path(__file__).with_name("under_torch.py")
CASE_MODULE = "firstlight.profile.case_child"
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_WITH_VALUE = ("-X", "-W")
_LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit status or that its time was up; the end of what it printed where that was kept."""

    status: int
    in_time: bool
    printed: str = ""

    @property
    def ok(self) -> bool:
        return self.in_time and self.status == 0

    @property
    def how(self) -> str:
        """'exit status 1: ValueError: no such file', 'no end within 300 s'."""
        how = f"exit status {self.status}" if self.in_time else "its time was up"
        if self.in_time and self.status < 0:
            how = f"killed by signal {-self.status}"
        lines = [line.strip() for line in self.printed.splitlines() if line.strip()]
        return f"{how}: {' | '.join(lines[-_LAST_LINES:])[:300]}" if lines else how


def run_shown(argv: tuple[str, ...], *, limit_s: float) -> Ended:
    """Run a program of the user's: its output, both kinds, on our stderr, so that our stdout is the result alone."""
    sys.stderr.flush()
    return _run(argv, limit_s=limit_s, out=None)


def run_kept(argv: tuple[str, ...], *, limit_s: float, out: Path) -> Ended:
    """Run a program of ours: its output in a file, quoted if it fails."""
    return _run(argv, limit_s=limit_s, out=out)


def _run(argv: tuple[str, ...], *, limit_s: float, out: Path | None) -> Ended:
    target = open(out, "wb") if out is not None else None  # noqa: SIM115 closed below, with the process
    try:
        shown = target if target is not None else _stderr()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=shown, stderr=shown, start_new_session=True)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", "") or str(error)).lower()
        raise BadInput(f"{argv[0]!a} cannot be started: {reason}; accepted: a program, with its arguments.") from None
    finally:
        if target is not None:
            target.close()
    in_time = True
    try:
        process.wait(timeout=limit_s if limit_s > 0 else None)
    except subprocess.TimeoutExpired:
        in_time = False
    finally:  # also when the user breaks off: Nsight Compute leaves its program behind otherwise
        _end_group(process)
    printed = out.read_bytes()[-20_000:].decode("utf-8", "replace") if out is not None else ""
    return Ended(process.returncode, in_time, printed)


def _stderr() -> int:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # replaced by something without a file behind it
        return subprocess.DEVNULL


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def case_argv(case_id: str, device: str, *, answer: Path, looker: str) -> tuple[str, ...]:
    """The child that runs one case: looker 'counters' marks one call for Nsight Compute, 'torch' times with torch."""
    return (sys.executable, "-m", CASE_MODULE, case_id, device, str(answer), looker)


def under_torch_argv(command: tuple[str, ...], answer: Path) -> tuple[str, ...]:
    """A Python program under the torch profiler, in its own interpreter; () for a program that is not Python's."""
    program = _of_python(command)
    if not program:
        return ()
    return (*command[: len(command) - len(program)], str(UNDER_TORCH), str(answer), *program)


def program_name(command: tuple[str, ...]) -> str:
    """A short name for what is run: 'train' of `python -u train.py`, 'my_kernel' of `./my_kernel --size 4`."""
    program = _of_python(command)
    if program and program[0] == "-c":
        return "python"
    name = program[1] if program and program[0] == "-m" else (program or command)[0]
    return os.path.basename(name).removesuffix(".py")


def _of_python(command: tuple[str, ...]) -> tuple[str, ...]:
    """What a Python interpreter is given to run: script, -m module or -c code, with arguments; () for others."""
    if _PYTHON.fullmatch(os.path.basename(command[0])) is None:
        return ()
    place = 1
    while place < len(command) and command[place].startswith("-") and command[place] not in ("-m", "-c", "-"):
        place += 2 if command[place] in _WITH_VALUE else 1
    rest = command[place:]
    return () if not rest or rest[0] == "-" or (rest[0] in ("-m", "-c") and len(rest) == 1) else rest

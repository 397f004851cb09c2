"""Child processes begun before what reads their answers is imported: the driver answers after a quarter of a second.

Whoever asks for just that child (same interpreter, script, arguments, environment) gets the one that was begun; one
that nobody asked for is ended by `end_unasked`. Nothing but the standard library's smallest parts is imported here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

NVML_LIMIT_S = 8.0  # after that nothing more is asked
CUINIT_LIMIT_S = 8  # the child's own limit, below the machine's, so that what came before a hung cuInit is kept
_LOOKING = ("doctor", "facts", "plan", "check")  # verbs that always ask cuInit of this machine
_COMPLETING = "_FIRSTLIGHT_COMPLETE"  # the shell asks for words to complete with, at each press of a key
_NOT_HERE = ("--facts", "--host", "--explain-rule", "--help", "-h", "--version")
_DRIVER_NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu")

# What is printed at start (sitecustomize, a .pth, a preloaded library) goes to fd 1; `print` of the script does not.
# The pipe is closed when the script is through: what a driver library does at the end of its process may take long.
_ON_ITS_OWN_PIPE = (
    "import os, sys; sys.stdout = os.fdopen(int(sys.argv.pop(1)), 'w', encoding='utf-8'); "
    "os.set_inheritable(sys.stdout.fileno(), False); "
    "exec(compile(sys.argv.pop(1), 'child', 'exec')); sys.stdout.close()"
)


class Begun:
    """A process that answers through a pipe of its own; `answers` is the reading end."""

    __slots__ = ("answers", "process")

    def __init__(self, process: subprocess.Popen[bytes], answers: int) -> None:
        self.process = process
        self.answers = answers


_Asked = tuple[tuple[str, ...], str, tuple[str, ...], dict[str, str]]
_unasked: list[tuple[_Asked, Begun]] = []


def interpreter() -> tuple[str, ...]:
    """A bare interpreter of our own kind; -B: looking leaves no compiled files behind."""
    return (sys.executable or "python3", "-I", "-S", "-B")


def start(argv: tuple[str, ...], env: Mapping[str, str], *passed: int) -> subprocess.Popen[bytes]:
    """A process in a group of its own with pipes for what it prints; raises OSError or ValueError where none starts."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        start_new_session=True,
        pass_fds=passed,
    )


def child(python: tuple[str, ...], source: str, args: tuple[str, ...], env: Mapping[str, str]) -> Begun:
    """The child of a script: the one that was begun for just this, else a new one."""
    asked = (python, source, args, dict(env))
    for place, (before, begun) in enumerate(_unasked):
        if before == asked:
            del _unasked[place]
            return begun
    return _begin(asked)


def _begin(asked: _Asked) -> Begun:
    python, source, args, env = asked
    answers, given = _pipe()
    try:
        process = start((*python, "-c", _ON_ITS_OWN_PIPE, str(given), source, *args), env, given)
    except BaseException:
        os.close(answers)
        raise
    finally:
        os.close(given)
    return Begun(process, answers)


def _pipe() -> tuple[int, int]:
    """The ends of a pipe, none of them 0 to 2: the child's own streams take those, and ours may be closed."""
    ends = os.pipe()
    if min(ends) > 2:
        return ends
    import fcntl

    try:
        answers, given = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    finally:
        for end in ends:
            os.close(end)
    return answers, given


def begin_for(args: list[str]) -> None:
    """Begin the children that ask the driver where a command line will ask it and its nodes are there."""
    if _COMPLETING in os.environ:
        return
    verb = args[0] if args else "doctor"
    elsewhere = any(arg.split("=", 1)[0] in _NOT_HERE for arg in args)
    if verb in _LOOKING and not elsewhere and any(map(os.path.exists, _DRIVER_NODES)):
        begin("libcuda", str(CUINIT_LIMIT_S), env=os.environ)
        begin("nvml", pynvml_place(), f"{NVML_LIMIT_S:g}", env=os.environ)


def begin(name: str, *args: str, env: Mapping[str, str]) -> None:
    """Begin a child script of the facts; where it cannot be begun, who asks later is told why."""
    path = os.path.join(os.path.dirname(__file__), "facts", "children", f"{name}.py")
    try:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        asked = (interpreter(), source, args, dict(env))
        _unasked.append((asked, _begin(asked)))
    except (OSError, ValueError):
        return


def pynvml_place() -> str:
    """The folder or zip that holds pynvml, found without importing it; '' when there is none."""
    from importlib.util import find_spec

    try:
        spec = find_spec("pynvml")
    except (ImportError, ValueError):
        return ""
    if spec is None or spec.origin is None:
        return ""
    place = os.path.dirname(os.path.abspath(spec.origin))
    return place if spec.submodule_search_locations is None else os.path.dirname(place)


def end_unasked() -> None:
    """End what was begun and not asked for."""
    while _unasked:
        _, begun = _unasked.pop()
        try:
            os.killpg(begun.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        os.close(begun.answers)

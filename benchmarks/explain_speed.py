"""What `explain` says of 50 MB of logs without GPU errors, how fast it reads, and what `run --explain` costs.

    python -m benchmarks.explain_speed                 write results/explain/speed.json (about 3 minutes)
    python -m benchmarks.explain_speed --quiet-mb 2    the answers alone, to the screen

Times of one process are its own processor time: other work on the machine is not in them. Pairs are measured in turns.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.quiet_logs import quiet_log

from firstlight.diagnosis.explain import Explained, explain_stream

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "explain" / "speed.json"
UNRELATED = ROOT / "tests" / "diagnosis" / "logs" / "unrelated"
MB = 10**6
ONE_LINE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
_TRAINING = (
    "2026-11-15 02:{0:02}:{1:02},123 INFO [rank{2}]: step {3} loss=2.{3} lr=0.0003 tokens/s=12{1} gpu_mem=43.2GB\n"
)
# Not ru_maxrss: that starts from the size of the process that started this one.
_READS = """
import re, sys, time
from firstlight.diagnosis.explain import explain_stream
explain_stream(sys.stdin.buffer)
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1], time.process_time())
"""
_PRINTS = "import sys\nfor _ in range(100000): sys.stdout.write('loss=2.31 tokens/s=12345 ' * 4 + chr(10))"


class Stream(io.RawIOBase):
    """Pieces as a binary stream of at most so many bytes; nothing is kept."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")


def answers(size_mb: float) -> Explained:
    """What is said of the logs without GPU errors, those of the tests after them."""
    kept = b"".join(path.read_bytes() + b"\n" for path in sorted(UNRELATED.glob("*.log")))
    return explain_stream(Stream(_then(quiet_log(int(size_mb * MB), seed=25), kept)))  # type: ignore[arg-type]


def _then(pieces: Iterator[bytes], last: bytes) -> Iterator[bytes]:
    yield from pieces
    yield last


def kinds(size_bytes: int) -> dict[str, bytes]:
    """Logs of four kinds, each of that size."""
    quiet = b"".join(quiet_log(size_bytes * 2, seed=3)).splitlines(keepends=True)
    prose = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))
    builds = b"".join(path.read_bytes() for path in sorted(UNRELATED.glob("*.log")))
    training = "".join(_TRAINING.format(n // 60 % 60, n % 60, n % 8, n) for n in range(size_bytes // 90)).encode()
    json_lines = b"".join(json.dumps({"level": "info", "message": line.decode()}).encode() + b"\n" for line in quiet)
    return {
        "training log": training,
        "prose (our docs)": (prose * (size_bytes // len(prose) + 1))[:size_bytes],
        "build logs": (builds * (size_bytes // len(builds) + 1))[:size_bytes],
        "JSON lines": json_lines[:size_bytes],
    }


def speeds(size_bytes: int) -> dict[str, float]:
    """MB per second of processor time, the best of three."""
    found = {}
    for name, data in kinds(size_bytes).items():
        seconds = []
        for _ in range(3):
            begin = time.process_time()
            explain_stream(io.BytesIO(data))
            seconds.append(time.process_time() - begin)
        found[name] = round(len(data) / MB / min(seconds), 1)
    return found


def long_log(size_mb: int) -> dict[str, float]:
    """Peak memory and time of a child that reads a log of that size from a pipe, and of one that reads a megabyte."""
    found: dict[str, float] = {"mb": size_mb}
    for name, much in (("peak_mb_of_1_mb", 1), ("peak_mb", size_mb)):
        with subprocess.Popen([sys.executable, "-c", _READS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin
            assert child.stdout
            for piece in _training(much * MB):
                child.stdin.write(piece)
            child.stdin.close()
            peak_kb, seconds = child.stdout.read().split()
        found |= {name: round(int(peak_kb) * 1024 / MB, 1), "seconds": round(float(seconds), 1)}
    return found


def _training(size_bytes: int) -> Iterator[bytes]:
    block = "".join(_TRAINING.format(n // 60 % 60, n % 60, n % 8, n) for n in range(10000)).encode()
    for _ in range(size_bytes // len(block) + 1):
        yield block


def _spent(words: tuple[str, ...]) -> dict[str, float]:
    """Processor and wall time of one firstlight command, its output written to a file."""
    with tempfile.TemporaryFile() as file, open(os.devnull, "rb") as null:
        moves = [(os.POSIX_SPAWN_DUP2, null.fileno(), 0), *((os.POSIX_SPAWN_DUP2, file.fileno(), n) for n in (1, 2))]
        argv = [sys.executable, "-m", "firstlight", *words]
        begin = time.perf_counter()
        child = os.posix_spawn(sys.executable, argv, {**os.environ, "FIRSTLIGHT_COMPAT": "off"}, file_actions=moves)
        _, _, used = os.wait4(child, 0)
        wall_ms = (time.perf_counter() - begin) * 1e3
    return {"cpu_ms": (used.ru_utime + used.ru_stime) * 1e3, "wall_ms": wall_ms}


def pair(one: tuple[str, ...], other: tuple[str, ...], turns: int) -> dict[str, float]:
    """Medians of two commands in turns, and what the other takes more."""
    spent: list[tuple[dict[str, float], dict[str, float]]] = [(_spent(one), _spent(other)) for _ in range(turns)]
    found: dict[str, float] = {"turns": turns}
    for unit in ("cpu_ms", "wall_ms"):
        first, second = (statistics.median(each[side][unit] for each in spent) for side in (0, 1))
        found |= {f"{unit}_without": round(first, 1), unit: round(second, 1), f"{unit}_more": round(second - first, 1)}
    return found


def run_costs(turns: int) -> dict[str, dict[str, float]]:
    """`run --explain` against `run`: a command that does nothing, 10 MB at once, 10 MB line by line."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(_training(10 * MB))[: 10 * MB])
        file.flush()
        commands = {
            "nothing": ("true",),
            "10 MB by cat": ("cat", file.name),
            "10 MB in lines, by Python": (sys.executable, "-S", "-u", "-c", _PRINTS),
        }
        return {
            name: pair(("run", "--", *command), ("run", "--explain", "--", *command), turns)
            for name, command in commands.items()
        }


def measured(turns: int) -> dict[str, Any]:
    said = answers(50)
    return {
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "quiet": {
            "mb": round(said.size_bytes / MB, 1),
            "lines": said.lines,
            "answers": [each.signature.code for each in said.explanations],
        },
        "mb_per_s": speeds(8 * MB),
        "long_log": long_log(200),
        "one_line_over_help": pair(("--help",), ("explain", ONE_LINE), turns),
        "run_explain": run_costs(turns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What explain costs, and what it says of logs without GPU errors.")
    parser.add_argument("--quiet-mb", type=float, help="only the answers to so many MB, to the screen")
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    if options.quiet_mb:
        said = answers(options.quiet_mb)
        told = [f"{each.signature.code}: {each.sightings[0].text}" for each in said.explanations]
        sys.stdout.write(f"{said.lines:,} lines, {len(told)} answers\n" + "".join(f"  {each}\n" for each in told))
        return
    RESULT.write_text(json.dumps(measured(options.turns), indent=1) + "\n")
    sys.stdout.write(RESULT.read_text())


if __name__ == "__main__":
    main()

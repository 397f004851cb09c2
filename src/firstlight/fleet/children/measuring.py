"""Runs on a host, in the environment that came with firstlight: `bench` once for each GPU and run, one after another.

Called as: -m firstlight.fleet.children.measuring FOLDER RUNS DEVICE PYTHON WORDS-OF-BENCH... PYTHON is "" for the
environment that `doctor` judges: its torch is measured, and firstlight is put before its packages for that process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_LIMIT_S = 3600  # of one call of bench; the longest effort takes a fifth of it
_COUNT = "import torch; print(torch.cuda.device_count())"
_BENCH = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); sys.argv[0] = 'firstlight'; "
    "runpy.run_module('firstlight', run_name='__main__')"
)


def main(folder: str, runs: int, device: str, given: str, words: list[str]) -> int:
    """0: all of it was measured; else the code of the first call that was not."""
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)  # Python looks for modules where it is started: not in somebody's home
    python = given or _interpreter()
    devices = {"cpu": "cpu"} if device == "cpu" else {f"gpu-{n}": f"cuda:{n}" for n in range(_gpus(python))}
    codes = [
        _measured(python, name=f"{name}-run-{number}", words=[*words, "--device", where])
        for number in range(1, runs + 1)
        for name, where in devices.items()
    ]
    return next((code for code in codes if code), 0)


def _measured(python: str, *, name: str, words: list[str]) -> int:
    packages = str(Path(__file__).parents[3])
    argv = [python, "-c", _BENCH, packages, "bench", "--json", *words, "--out", f"{name}.json"]
    print(f"{name}: {' '.join(words)}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"{name}: bench was ended after {_LIMIT_S} s", file=sys.stderr)
        return 1
    return done.returncode if done.returncode >= 0 else 1


def _interpreter() -> str:
    from firstlight.facts.known import Known
    from firstlight.facts.look import Look, look_at

    environment = look_at(Look()).environment
    if environment is None or not isinstance(environment.interpreter, Known):
        sys.exit("no Python environment was found there; name one with --python PATH")
    return environment.interpreter.value


def _gpus(python: str) -> int:
    try:
        done = subprocess.run(
            [python, "-c", _COUNT], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"{python} did not say how many GPUs there are: {error}")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        sys.exit(f"{python} cannot import torch: {lines[-1] if lines else 'it said nothing'}")
    if (count := int(done.stdout.split()[-1])) == 0:
        sys.exit(
            f"the torch of {python} sees no GPU; `firstlight fleet doctor` says why, --device cpu measures without"
        )
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]))

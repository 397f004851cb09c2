"""Builds three real CUDA projects for an H200, one of them killed half-way, and calls them on the GPU.

    python3 -m benchmarks.build_h200 --carry build/carry --out RESULT [--only NAME] [--minutes 8]

The folder of --carry has sdists/ (causal-conv1d 1.7.0, torch-scatter 2.1.2, flash-attn 2.8.3) and wheels/ (what
firstlight and the builds need and the environment lacks): nothing is fetched. The three builds run beside each
other, each with a state folder of its own: torch-scatter's setup.py compiles one unit after the other whatever the
machine has. flash-attn has no switch for one head size, so a patch keeps the forward units of head size 64;
causal-conv1d names nine architectures itself, so a patch keeps sm_90. flash-attn is killed -9 with half of its units
done, and the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from firstlight.build.memory_watch import processes, under
from firstlight.build.ninja_output import BuiltUnit, kind_of_unit, read_ninja_log
from firstlight.frozen import dataclass

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "benchmarks/build_patches"
NEEDED = ("click", "rich", "packaging", "nvidia-ml-py", "jinja2", "tomlkit", "pyyaml", "build", "setuptools", "wheel",
          "ninja", "einops")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One project, and the words of its build beside the sdist."""

    name: str
    sdist: str
    words: tuple[str, ...]
    called: str  # what the line of a call on the GPU says
    killed: bool = False


CASES = (
    Case("causal-conv1d", "causal_conv1d-1.7.0.tar.gz",
         ("--patch", str(PATCHES / "causal-conv1d-1.7.0-sm90.patch")), "differs from conv1d by"),
    Case("torch-scatter", "torch_scatter-2.1.2.tar.gz", ("--flag", "FORCE_ONLY_CUDA=1"), "on cpu and cuda"),
    Case("flash-attn", "flash_attn-2.8.3.tar.gz",
         ("--patch", str(PATCHES / "flash-attn-2.8.3-forward-64.patch")), "differs from torch's attention by",
         killed=True),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--carry", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--only", choices=[each.name for each in CASES])
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--python", default=sys.executable, help="whose environment gets the wheels")
    options = parser.parse_args()
    ends = time.time() + 60 * options.minutes
    _bring(options.python, options.carry / "wheels")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="firstlight-build-") as scratch:
        runs = [
            threading.Thread(target=_kept, args=(found, case, options, Path(scratch) / case.name, ends))
            for case in CASES
            if options.only in (None, case.name)
        ]
        for each in runs:
            each.start()
        for each in runs:
            each.join()
    document = {**_about(options.python), "builds": dict(sorted(found.items()))}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))
    sys.exit(0 if all(each.get("right") for each in found.values()) else 1)


def _bring(python: str, wheels: Path) -> None:
    """What is missing in the environment, from the carried wheels, by the carried pip."""
    pip = next(wheels.glob("pip-*.whl"))
    argv = [python, f"{pip}/pip", "install", "--quiet", "--no-index", "--find-links", str(wheels), *NEEDED]
    subprocess.run(argv, check=True, timeout=120)
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False, timeout=60).returncode:
        subprocess.run([*argv[: -len(NEEDED)], "pip"], check=True, timeout=120)


def _kept(found: dict[str, Any], case: Case, options: argparse.Namespace, folder: Path, ends: float) -> None:
    try:
        found[case.name] = _built(case, options, folder, ends)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        found[case.name] = {"right": False, "error": f"{type(error).__name__}: {error}"}


def _built(case: Case, options: argparse.Namespace, folder: Path, ends: float) -> dict[str, Any]:
    folder.mkdir()
    words = ["build", str((options.carry / "sdists" / case.sdist).resolve()), "--archs", "9.0", *case.words]
    argv = [sys.executable, "-m", "firstlight", *words, "--python", options.python, "--yes", "--json"]
    begun = time.time()
    cut = _killed_half_way(argv, folder, ends) if case.killed else {}
    resumed = time.time()
    before = _objects(folder)
    status, said = _run(argv, folder, ends)
    after = _objects(folder)
    answer: dict[str, Any] = (
        json.loads(said) if said.strip().startswith("{") else {"ending": said[-2000:], "proofs": []}
    )
    proofs = [str(each) for each in answer.get("proofs", [])]
    again = [each for each, at in before.items() if after.get(each) != at]
    return {
        "command": "firstlight " + " ".join(word.replace(f"{ROOT}/", "") for word in words),
        "exit_code": status, "ending": answer["ending"], "jobs": answer.get("needs", {}).get("jobs"),
        "faults": answer.get("faults", []), "wheel": os.path.basename(answer.get("wheel", "")), "proofs": proofs,
        "killed": {**cut, "compiled_again": again} if case.killed else None,
        "wall_s": round(time.time() - begun, 1), "after_kill_s": round(time.time() - resumed, 1) if cut else None,
        "compile_minutes": answer.get("minutes"), "units": _units(folder),
        "units_a_minute": round(len(after) / max(1e-9, (time.time() - begun) / 60), 2),
        "right": status == 0 and any(case.called in each for each in proofs) and not again and bool(cut) == case.killed,
        **({} if status == 0 else {"log": (folder / "err").read_text(errors="replace")[-4000:]}),
    }  # fmt: skip


def _start(argv: list[str], folder: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "FIRSTLIGHT_STATE_DIR": str(folder / "state"), "PYTHONPATH": str(ROOT / "src")}
    with (folder / "out").open("wb") as out, (folder / "err").open("ab") as err:
        return subprocess.Popen(argv, env=env, cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL)


def _run(argv: list[str], folder: Path, ends: float) -> tuple[int, str]:
    process = _start(argv, folder)
    try:
        status = process.wait(timeout=max(1.0, ends - time.time()))
    except subprocess.TimeoutExpired:
        _kill(process)
        status = -1
    return status, (folder / "out").read_text(errors="replace")


def _killed_half_way(argv: list[str], folder: Path, ends: float) -> dict[str, Any]:
    """Start the build, and kill everything of it when half of its units are done; {} where it ended before that."""
    begun = time.time()
    process = _start(argv, folder)
    while process.poll() is None and time.time() < ends:
        done, all_units = len(_logged(folder)), _wanted(folder)
        if all_units and done >= (all_units + 1) // 2:
            _kill(process)
            return {"after_s": round(time.time() - begun, 1), "done": len(_logged(folder)), "of": all_units}
        time.sleep(0.2)
    _kill(process)
    return {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    for each in (*under(process.pid, processes()), None):
        try:
            os.kill(each.number if each else process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _logged(folder: Path) -> tuple[BuiltUnit, ...]:
    logs = (folder / "state").glob("builds/*/tree/build/**/.ninja_log")
    return tuple(each for log in logs for each in read_ninja_log(str(log.parent)) if each.output.endswith(".o"))


def _wanted(folder: Path) -> int:
    files = (folder / "state").glob("builds/*/tree/build/**/build.ninja")
    return sum(line.startswith("build ") and ".o:" in line for file in files for line in file.read_text().splitlines())


def _objects(folder: Path) -> dict[str, int]:
    """Finished objects with their times: of ninja those in its log, else those that are there."""
    logged = {each.output for each in _logged(folder)}
    objects = (folder / "state").glob("builds/*/tree/build/**/*.o")
    return {each.name: each.stat().st_mtime_ns for each in objects if not logged or str(each) in logged}


def _units(folder: Path) -> list[dict[str, Any]]:
    """Each unit with its kind, the most memory it was seen to hold and, of ninja, its seconds."""
    seconds = {os.path.basename(each.output): each.seconds for each in _logged(folder)}
    files = list((folder / "state").glob("builds/*/units.json"))
    peaks = json.loads(files[0].read_text()) if files else []
    return [
        {"unit": name, "kind": kind.value, "peak_bytes": each["bytes"], "seconds": seconds.get(name)}
        for each in peaks
        if (kind := kind_of_unit(each["unit"])) and (name := os.path.basename(each["unit"]))
    ]


def _about(python: str) -> dict[str, Any]:
    asked = "import torch; print(torch.__version__); print(torch.cuda.is_available() and torch.cuda.get_device_name())"
    answer = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False, timeout=120)
    told = answer.stdout.splitlines() or ["torch was not imported"]
    nvcc = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "what": "real CUDA projects built by firstlight build on a GPU machine, beside each other",
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit.stdout.strip(), "torch": told[0],
        "gpu": told[1] if len(told) > 1 else "", "nvcc": nvcc.strip().splitlines()[-1] if nvcc else "",
        "python": platform.python_version(), "cores": os.cpu_count(),
    }  # fmt: skip


if __name__ == "__main__":
    main()

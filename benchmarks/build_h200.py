"""Builds three real CUDA projects for an H200, one of them killed while it compiles, and calls them on the GPU.

    python3 -m benchmarks.build_h200 --carry build/carry --out FOLDER [--only NAME] [--minutes 8]

The folder of --carry has sdists/ (causal-conv1d 1.7.0, torch-scatter 2.1.2, flash-attn 2.8.3) and wheels/ (what
firstlight and the builds need and the environment lacks): nothing is fetched. The builds run beside each other, each
with a state folder of its own. flash-attn has no switch for one head size, so a patch keeps the eight
forward units of head size 64 and turns on the six switches of its setup.py (no dropout, ALiBi, softcap, ...) that make
them small enough for one run; causal-conv1d names nine architectures itself, so a patch keeps sm_90; torch-scatter
turns ninja off and compiles one unit after the other, so a patch turns it on and lets its modules compile side by side.
flash-attn is killed -9 when three of its nine units are compiled, and the same command is given again.

build-h200.json in FOLDER is written every ten seconds, so that a run which is cut off leaves its figures too; the
logs of all stages lie beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.build_case import Case, Place, built, can_stand_beside, units_of
from benchmarks.build_machine import about, bring

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "benchmarks/build_patches"
WRITE_EVERY_S = 10.0
CASES = (
    Case("causal-conv1d", "causal_conv1d-1.7.0.tar.gz",
         ("--patch", str(PATCHES / "causal-conv1d-1.7.0-sm90.patch")), "differs from conv1d by"),
    Case("torch-scatter", "torch_scatter-2.1.2.tar.gz",
         ("--flag", "FORCE_ONLY_CUDA=1", "--patch", str(PATCHES / "torch-scatter-2.1.2-side-by-side.patch")),
         "on cpu and cuda"),
    Case("flash-attn", "flash_attn-2.8.3.tar.gz",
         ("--flag", "FLASH_ATTENTION_FORCE_BUILD=TRUE",
          "--patch", str(PATCHES / "flash-attn-2.8.3-forward-64-switches.patch")),
         "differs from torch's attention by", killed=3),
)  # fmt: skip


class Run:
    """The builds of one run, what came of them so far, and when all of it has to end."""

    def __init__(self, options: argparse.Namespace, scratch: Path, begun: float) -> None:
        self._options, self._begun = options, begun
        self._cases = [case for case in CASES if not options.only or case.name in options.only]
        self._folders = {case.name: scratch / case.name for case in self._cases}
        self._beside = can_stand_beside()
        self._head = {**about(options.python), "beside_each_other": self._beside}
        self.found: dict[str, Any] = {}
        print(json.dumps(self._head), f"ready after {time.time() - begun:.1f} s", flush=True)

    def all(self) -> None:
        """Every case, beside each other where that can be; the results are written down meanwhile."""
        groups = [[case] for case in self._cases] if self._beside else [self._cases]
        runs = [threading.Thread(target=self._in_turn, args=(group,)) for group in groups]
        for each in runs:
            each.start()
        while any(each.is_alive() for each in runs):
            for each in runs:
                each.join(timeout=WRITE_EVERY_S / len(runs))
            self._write()

    def _in_turn(self, cases: list[Case]) -> None:
        """What goes wrong in one build is its own result, and the others go on."""
        options = self._options
        for case in cases:
            self._folders[case.name].mkdir()
            words = [str((options.carry / "sdists" / case.sdist).resolve()), "--archs", "9.0", *case.words]
            words += ["--jobs", str(options.jobs)] if options.jobs else []
            ends = self._begun + 60 * options.minutes
            place = Place(self._folders[case.name], options.python, ends, self._beside)
            try:
                self.found[case.name] = built(case, words, place)
            except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                self.found[case.name] = {"right": False, "error": f"{type(error).__name__}: {error}"}
            told = {name: value for name, value in self.found[case.name].items() if name != "units"}
            print(json.dumps({case.name: told}, indent=1), flush=True)

    def _write(self) -> None:
        """What there is so far; of a build that is still going on its units."""
        going = {
            name: {"going_on": True, "units": units_of(folder)}
            for name, folder in self._folders.items()
            if folder.is_dir() and name not in self.found
        }
        builds = dict(sorted({**going, **self.found}.items()))
        document = {**self._head, "wall_s": round(time.time() - self._begun, 1), "builds": builds}
        new = self._options.out / "build-h200.json.new"
        new.write_text(json.dumps(document, indent=1) + "\n")
        new.replace(self._options.out / "build-h200.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--carry", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path, help="a folder")
    parser.add_argument("--only", choices=[each.name for each in CASES], action="append")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--jobs", type=int, default=0, help="0 = as firstlight plans")
    parser.add_argument("--python", default=sys.executable, help="whose environment gets the wheels")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.time()
    bring(options.python, options.carry / "wheels")
    with tempfile.TemporaryDirectory(prefix="firstlight-build-") as scratch:
        run = Run(options, Path(scratch), begun)
        run.all()
        _logs(options.out, Path(scratch))
    sys.exit(0 if all(each.get("right") for each in run.found.values()) else 1)


def _logs(out: Path, scratch: Path) -> None:
    """The logs of all stages, and what was printed, in one file."""
    with tarfile.open(out / "logs.tar.gz", "w:gz") as file:
        for pattern in ("*/out", "*/err", "*/state/**/*.log", "*/state/builds/*/*.json"):
            for each in sorted(scratch.glob(pattern)):
                file.add(each, each.relative_to(scratch))


if __name__ == "__main__":
    main()

"""A GPU machine locked through its kit, then a stale compat folder and another cuDNN planted, and `check` asked.

    python3 -m benchmarks.lock_h200 --carry build/lock --out RESULT [--before FOLDER] [--runs 10] [--commit TEXT]
    python3 -m benchmarks.lock_h200 --trim WHEEL --carry build/lock

The folder of --carry has a wheel of pip, one of another nvidia-cudnn-cu13, and, where firstlight is not installed, its
own wheel (as `firstlight emit kit` writes it); nothing is fetched. A whole cuDNN is
350 MB: --trim keeps the files of a wheel that are under 6 MB, among them the real libcudnn.so.9, which is what torch
loads first and what says its version. What runs as `firstlight` is the wheel that lies in the kit. --before is a
folder with an older `src`, timed in turns with it. The environment is put back as it was: the cuDNN that is there is
renamed, not removed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CUDNN = "nvidia_cudnn_cu13"
STALE = Path("/usr/local/cuda-12.9/compat")  # where the package cuda-compat-12-9 puts its library
SMALL = 6 << 20
VERSION = "import torch; print(torch.backends.cudnn.version())"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--carry", required=True, type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--trim", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--commit", default="")
    parser.add_argument("--python", default=sys.executable, help="of the environment that holds torch")
    parser.add_argument("--compat", type=Path, default=Path("/usr/local/cuda/compat"), help="what is planted as stale")
    options = parser.parse_args()
    if options.trim:
        _trim(options.trim, options.carry)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was planted is taken back then too
    with tempfile.TemporaryDirectory(prefix="firstlight-lock-") as scratch:
        document = _Run(options, Path(scratch)).document()
    text = json.dumps(document, indent=1) + "\n"
    options.out.write_text(text)
    print(text, end="")
    sys.exit(0 if all(document["right"].values()) else 1)


def _trim(wheel: Path, folder: Path) -> None:
    """The same wheel without its large files, and without their rows in RECORD."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(folder / wheel.name, "w", zipfile.ZIP_DEFLATED) as small:
        kept = [each for each in whole.infolist() if each.file_size < SMALL and not each.filename.endswith("/RECORD")]
        [record] = [each.filename for each in whole.infolist() if each.filename.endswith(".dist-info/RECORD")]
        names = {record, *(each.filename for each in kept)}
        for each in kept:
            small.writestr(each, whole.read(each), zipfile.ZIP_DEFLATED)
        rows = [row for row in whole.read(record).decode().splitlines() if row.partition(",")[0] in names]
        small.writestr(record, "\n".join(rows) + "\n")


class _Run:
    """One run in a folder of its own; `firstlight` there is a file that starts the kit's wheel."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.kit, self.tool, self.program = folder / "kit", folder / "tool", folder / "bin/firstlight"
        self.python: str = options.python
        self.carry: Path = options.carry.resolve()
        asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
        self.site = Path(self.ask(self.python, "-c", asked).stdout.strip())
        self.began = time.time()

    def ask(self, *argv: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return subprocess.run(
            argv, cwd=cwd, env={**environ, **env}, capture_output=True, text=True, check=False, timeout=150
        )

    def say(self, text: str) -> None:
        print(f"{time.time() - self.began:6.1f} s  {text}", flush=True)

    def pip(self, *words: str) -> None:
        [pip] = self.carry.glob("pip-*.whl")
        done = self.ask(self.python, f"{pip}/pip", *words)
        if done.returncode:
            raise SystemExit(f"pip {' '.join(words)}: {done.stderr[-2000:]}")

    def document(self) -> dict[str, Any]:
        kit = self._kit()
        untouched = self._check()
        seconds = self._timed()
        planted = self._planted()
        again = self._check()
        compat, cudnn = self._named(planted["drifts"], STALE.as_posix()), self._named(planted["drifts"], "cudnn")
        right = {
            "make build, run, lock and verify end with 0": all(each["exit_code"] == 0 for each in kit.values()),
            "untouched: no drift": untouched == {"exit_code": 0, "drifts": []},
            "the stale compat folder is named and blocks": "blocks" in compat,
            "the other cuDNN is named and is abi or blocks": bool({"abi", "blocks"} & set(cudnn)),
            "exit code 3": planted["exit_code"] == 3,
            "taken back: no drift": again == {"exit_code": 0, "drifts": []},
        }
        return {
            "schema": "firstlight.lock-h200/2", "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "commit": self.options.commit, "machine": self._machine(), "right": right, "kit": kit,
            "check": {"untouched": untouched, "planted": planted, "taken_back": again}, "check_s": seconds,
            "whole_s": round(time.time() - self.began, 1),
        }  # fmt: skip

    def _machine(self) -> dict[str, Any]:
        asked = (
            "import platform, torch; has = torch.cuda.is_available(); print(platform.python_version(),"
            " torch.__version__, torch.cuda.get_device_name() if has else 'no GPU', sep='|')"
        )
        python, torch, gpu = self.ask(self.python, "-c", asked).stdout.strip().split("|")
        driver = Path("/sys/module/nvidia/version")
        found = self.ask("sh", "-c", "nvcc --version | tail -n 2; command -v docker podman")
        return {
            "gpu": gpu, "driver": driver.read_text().strip() if driver.exists() else "none",
            "python": python, "torch": torch, "nvcc": found.stdout.strip().splitlines()[:1],
            "container_engine": "docker" in found.stdout or "podman" in found.stdout,
            "processors": os.cpu_count(), "packages": len(list(self.site.glob("*.dist-info"))),
        }  # fmt: skip

    # the kit

    def _kit(self) -> dict[str, Any]:
        words = ("--for", "H200, driver >= 580", "--want", "torch==2.11.0+cu130", "--base", "none")
        emit = (sys.executable, "-m", "firstlight", "emit", "kit", *words, "--out", str(self.kit))
        done = self.ask(*emit, PYTHONPATH=str(self._emitter()))
        if done.returncode:
            raise SystemExit(done.stderr)
        sums = self.ask("sha256sum", "-c", "SHA256SUMS", cwd=self.kit / "wheels")
        [wheel] = (self.kit / "wheels").glob("firstlight-*.whl")
        self.pip("install", "--quiet", "--no-index", "--no-deps", "--target", str(self.tool), str(wheel))
        self.program.parent.mkdir()
        self.program.write_text(f'#!/bin/sh\nPYTHONPATH="{self.tool}" exec "{self.python}" -m firstlight "$@"\n')
        self.program.chmod(0o755)
        made: dict[str, Any] = {"sha256sum -c": {"exit_code": sums.returncode}}
        for target in ("build", "run", "lock", "verify"):
            begun = time.time()
            done = self.ask("make", target, "BUILDS=128-0-256-0", f"FIRSTLIGHT={self.program}", cwd=self.kit)
            tail = (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip().splitlines()[-6:]
            made[f"make {target}"] = {
                "exit_code": done.returncode, "seconds": round(time.time() - begun, 1), "said": tail,
            }  # fmt: skip
            self.say(f"make {target}: {done.returncode}")
        return made

    def _emitter(self) -> Path:
        """The folder of an installed firstlight: emit packs what is installed, and a tree alone is not."""
        wheels = list(self.carry.glob("firstlight-*.whl"))
        if not wheels:
            return ROOT / "src"
        folder = self.folder / "emitter"
        self.pip("install", "--quiet", "--no-index", "--no-deps", "--target", str(folder), str(wheels[0]))
        return folder

    # the check

    def _check(self, *words: str, **env: str) -> dict[str, Any]:
        done = self.ask(str(self.program), "check", "--json", *words, cwd=self.kit, **env)
        if not done.stdout.startswith("{"):
            return {"exit_code": done.returncode, "drifts": [], "error": done.stderr[-1000:]}
        found = json.loads(done.stdout)
        drifts = [
            {
                "part": each["drift"]["part"], "name": each["drift"]["name"], "change": each["drift"]["change"],
                "locked": each["drift"]["locked"], "here": each["drift"]["here"], "seen_in": each["drift"]["seen_in"],
                "consequence": each["consequence"], "findings": [one["code"] for one in each["because"]],
                "follows": [f"{one['part']} {one['name']}" for one in each["follows"]],
            }
            for each in found["drifts"]
        ]  # fmt: skip
        deep = {"deep": found["deep"]} if found["deep"] else {}
        return {"exit_code": done.returncode, "drifts": drifts, **deep}

    def _named(self, drifts: list[dict[str, Any]], word: str) -> list[str]:
        """The consequences of the drifts that a word stands in."""
        return [each["consequence"] for each in drifts if word in json.dumps(each)]

    def _timed(self) -> dict[str, Any]:
        """Whole processes in turns, the first of each left out; bytecode compiled, as an installer does."""
        folders = {"now": self.tool}
        if self.options.before:
            folders["before"] = self.options.before.resolve() / "src"
            self.ask(sys.executable, "-m", "compileall", "-q", "-j", "0", str(folders["before"]))
        samples: dict[str, list[float]] = {name: [] for name in (*folders, "help")}
        for turn in range(self.options.runs + 1):
            for name, taken in samples.items():
                words = ("--help",) if name == "help" else ("check",)
                begun = time.perf_counter()
                argv = (self.python, "-m", "firstlight", *words)
                self.ask(*argv, cwd=self.kit, PYTHONPATH=str(folders.get(name, self.tool)))
                if turn:
                    taken.append(round(time.perf_counter() - begun, 3))
        medians = {name: round(statistics.median(each), 3) for name, each in samples.items()}
        self.say(f"check: {medians}")
        return {"method": (self._timed.__doc__ or ""), "median_s": medians, "samples_s": samples}

    def _planted(self) -> dict[str, Any]:
        before = self._cudnn_version()
        with _stale_compat(self.options.compat), self._other_cudnn():
            path = f"{STALE}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
            found = self._check(LD_LIBRARY_PATH=path)
            screen = self.ask(str(self.program), "check", cwd=self.kit, LD_LIBRARY_PATH=path).stdout
            after = self._cudnn_version()
            deep = self._check("--deep")
        self.say(f"planted: {found['exit_code']}, cuDNN says {before}, then {after}")
        print(screen, flush=True)
        return {
            **found,
            "cudnn_version_by_torch": {"before": before, "planted": after},
            "deep_without_the_compat_folder": {"exit_code": deep["exit_code"], "deep": deep.get("deep", [])},
            "screen": screen.splitlines(),
        }

    @contextmanager
    def _other_cudnn(self) -> Iterator[None]:
        """The carried wheel in the place of the one that is there, installed by pip; then the other one again."""
        aside = {path: path.with_name(f"{path.name}.aside") for path in self._cudnn()}
        for path, other in aside.items():
            path.rename(other)
        try:
            [wheel] = self.carry.glob(f"{CUDNN}-*.whl")
            self.pip("install", "--quiet", "--no-index", "--no-deps", str(wheel))
            yield
        finally:
            for path in self._cudnn():
                shutil.rmtree(path)
            for path, other in aside.items():
                other.rename(path)

    def _cudnn_version(self) -> str:
        """What torch says of the cuDNN that it loaded: 91900, or the last line of its error."""
        done = self.ask(self.python, "-c", VERSION)
        return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]

    def _cudnn(self) -> list[Path]:
        """Its folder and its records in site-packages."""
        records = [each for each in self.site.glob(f"{CUDNN}-*.dist-info") if each.is_dir()]
        return [each for each in (self.site / "nvidia/cudnn", *records) if each.exists()]


@contextmanager
def _stale_compat(real: Path) -> Iterator[None]:
    """A copy of an older libcuda where the package of another CUDA would put it."""
    made = [each for each in (STALE, STALE.parent) if not each.exists()]
    STALE.mkdir(parents=True, exist_ok=False)
    try:
        for file in real.iterdir():
            if file.is_symlink():
                (STALE / file.name).symlink_to(os.readlink(file))
            elif file.is_file():
                shutil.copy2(file, STALE / file.name)
        yield
    finally:
        for each in made:
            shutil.rmtree(each)


if __name__ == "__main__":
    main()

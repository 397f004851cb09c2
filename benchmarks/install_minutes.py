"""Real installs beside the seconds that were said before: python -m benchmarks.install_minutes [FILE]

Needs an index, root and apt. The rate is measured as apply does it, by a first download; each install is timed three
times into new environments, without caches, in turns with the others, and the median is compared. What the tables have
is a quiet machine: the load is written down beside the figures.
Writes results/install-minutes.json.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.usage import print_usage

from firstlight.apply.account import Account
from firstlight.apply.download_rate import measured_rate
from firstlight.cli.index_lookup import index_sizes
from firstlight.facts.collect import Facts, collect
from firstlight.facts.known import Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine.live import LiveMachine
from firstlight.tables import load
from firstlight.ways.costs import ASSUMED_SPEED, bytes_of, seconds_of
from firstlight.ways.kinds import CloseLibraries, InstallPackages, InstallWheels, MakeEnvironment, Manner, Package
from firstlight.ways.step import Step, StepKind
from firstlight.ways.way import Way

TIMES = 3
Argv = tuple[str, ...]
_LIBRARIES = ("nvidia-cuda-nvrtc==13.0.88", "nvidia-nvvm==13.0.88")
_CUBLAS = "nvidia-cublas==13.1.0.3"


@dataclass(frozen=True, slots=True)
class Install:
    """A way and the command that does the same here, given a new environment's folder."""

    name: str
    way: Way
    command: Callable[[Path], Argv]
    uv: bool = False


def _pip(*packages: str) -> Callable[[Path], Argv]:
    return lambda folder: (f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir", *packages)


def _uv(*packages: str) -> Callable[[Path], Argv]:
    tool = str(Path(sys.executable).parent / "uv")
    options = ("pip", "install", "--quiet", "--no-cache")
    return lambda folder: (tool, *options, "--python", f"{folder}/bin/python", *packages)


def _wheels(*requirements: str) -> InstallWheels:
    packages = tuple(Package(name, version) for name, _, version in (each.partition("==") for each in requirements))
    return InstallWheels(packages, manner=Manner.AGAIN)


INSTALLS = (
    Install("a virtual environment", MakeEnvironment(), lambda folder: (sys.executable, "-m", "venv", f"{folder}/new")),
    Install("pip: numpy, scipy", _wheels("numpy==2.3.4", "scipy==1.16.3"), _pip("numpy==2.3.4", "scipy==1.16.3")),
    Install("pip: two CUDA libraries", _wheels(*_LIBRARIES), _pip(*_LIBRARIES)),
    Install("uv: two CUDA libraries", _wheels(*_LIBRARIES), _uv(*_LIBRARIES), uv=True),
    Install("pip: libcudss.so.0", CloseLibraries(("libcudss.so.0",)), _pip("--no-deps", "nvidia-cudss-cu13==0.8.0.10")),
    Install("pip: cuBLAS", _wheels(_CUBLAS), _pip("--no-deps", _CUBLAS)),
    Install("uv: cuBLAS", _wheels(_CUBLAS), _uv("--no-deps", _CUBLAS), uv=True),
    Install(
        "apt: git",
        InstallPackages(("git",)),
        lambda _: ("apt-get", "install", "--yes", "--quiet", "--reinstall", "git"),
    ),
)


def main(argv: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rate = _measured(Path(folder))
        expected = [_expected(Path(folder), install, rate) for install in INSTALLS]
        took: list[list[float]] = [[] for _ in INSTALLS]
        for _ in range(TIMES):
            for install, seconds in zip(INSTALLS, took, strict=True):
                seconds.append(_timed(Path(folder), install))
    rows = [_row(*each) for each in zip(INSTALLS, expected, took, strict=True)]
    document = {
        "schema": "firstlight.install-minutes/1",
        "machine": f"{os.cpu_count()} processors, Debian 12, load {os.getloadavg()[1]:.1f}",
        "download_rate_bytes_per_s": round(rate.value),
        "download_rate_from": "the first download, as apply measures it",
        "method": f"each timed {TIMES} times in turns, without caches; the median is compared; the rows "
        "for pip and uv come from some of the same wheels",
        "within_factor_2": sum(bool(row["within_factor_2"]) for row in rows),
        "of": len(rows),
        "installs": rows,
    }
    file = Path(argv[0] if argv else "results/install-minutes.json")
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Expected:
    """What the recommender says before."""

    bytes: int | None
    seconds: Known[float]


def _expected(folder: Path, install: Install, rate: Known[float]) -> Expected:
    facts, tables = _facts(folder, install), load()
    sizes = index_sizes((install.way,), facts)
    size = bytes_of(install.way, facts, tables, sizes)
    said = seconds_of(install.way, facts, tables, rate, sizes)
    assert isinstance(said, Known), said
    return Expected(size.value if isinstance(size, Known) else None, said)


def _row(install: Install, expected: Expected, took: list[float]) -> dict[str, object]:
    said, usual = expected.seconds.value, statistics.median(took)
    print(f"{install.name:<28} said {said:6.1f} s, took {usual:6.1f} s, {said / usual:.2f}")
    return {
        "install": install.name,
        "bytes": expected.bytes,
        "said_s": round(said, 2),
        "from": expected.seconds.seen_in,
        "took_s": [round(each, 2) for each in took],
        "said_over_took": round(said / usual, 2),
        "within_factor_2": 0.5 <= said / usual <= 2,
    }


def _measured(folder: Path) -> Known[float]:
    """The rate of a first pip install, by what came in."""
    environment = _environment(folder, uv=False)
    step = Step(
        id="01-first", kind=StepKind.PIP, title="first", because="rate", commands=(), files=(), needs_root=False,
        done_when=(), back=(), seconds=Unknown("not measured"), bytes=Known(500_000_000, "a bound"),
    )  # fmt: skip
    account = Account()
    account.begins(step)
    subprocess.run(_pip("--no-deps", "torch==2.15.0")(environment), check=True)
    found = measured_rate((account.ended(step, "done"),), load())
    return found if isinstance(found, Known) else ASSUMED_SPEED


def _facts(folder: Path, install: Install) -> Facts:
    return collect(LiveMachine(), python=str(_environment(folder, uv=install.uv)))


def _environment(folder: Path, *, uv: bool) -> Path:
    place = Path(tempfile.mkdtemp(dir=folder))
    tool: Argv = (
        (str(Path(sys.executable).parent / "uv"), "venv", "--quiet", "--clear")
        if uv
        else (sys.executable, "-m", "venv")
    )
    subprocess.run((*tool, str(place)), check=True)
    return place


def _timed(folder: Path, install: Install) -> float:
    environment = _environment(folder, uv=install.uv)
    begun = time.monotonic()
    subprocess.run(install.command(environment), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    shutil.rmtree(environment)
    return seconds


if __name__ == "__main__":
    print_usage(__doc__, least=0)
    main(sys.argv[1:])

"""What `fleet bench` kept, read back: every GPU of a run with its documents, and the baseline it is held against."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from firstlight.bench.equal_gpus import GpuRun, gpu_runs, measured_gpus
from firstlight.bench.results import read_run
from firstlight.bench.slow_gpus import JudgedGpus, judged_gpus
from firstlight.errors import BadInput
from firstlight.tables import Tables

HOSTS = "hosts"
_MEASURED = re.compile(r"(gpu-\d{1,3})-run-([1-9])\.json")
_BASELINE = re.compile(r"baseline-\d{1,2}\.json")


def baseline_name(number: int) -> str:
    """What a baseline is called in the folder of a run, so that every later look has the same one."""
    return f"baseline-{number}.json"


def is_run_folder(path: str) -> bool:
    """Whether a path is the folder of a run of `fleet bench`."""
    return os.path.isdir(f"{path}/{HOSTS}")


def judged_folder(path: str, tables: Tables, hosts: Mapping[str, str]) -> JudgedGpus:
    """Every GPU that was measured on these hosts, judged; BadInput names a file that is no run of bench.

    `hosts` has the name of each by that of its folder.
    """
    files = [f"{path}/{name}" for name in _names(path) if _BASELINE.fullmatch(name)]
    baselines = [run for file in files for run in baseline_runs(file, tables)]
    there = [name for name in host_folders(path) if name in hosts]
    runs = [run for name in there for run in _of_host(f"{path}/{HOSTS}/{name}", hosts[name], tables)]
    return judged_gpus(measured_gpus(runs), baselines)


def host_folders(path: str) -> tuple[str, ...]:
    """The names of the folders of hosts; none where no host has sent anything yet."""
    return tuple(_names(f"{path}/{HOSTS}")) if os.path.lexists(f"{path}/{HOSTS}") else ()


def baseline_runs(path: str, tables: Tables) -> Iterator[GpuRun]:
    """The GPUs of a run of bench that others are held against."""
    yield from gpu_runs(read_run(path), tables, host="baseline", device="gpu-0", number=1)


def _of_host(folder: str, host: str, tables: Tables) -> Iterator[GpuRun]:
    for name in _names(folder):
        if match := _MEASURED.fullmatch(name):
            run = read_run(f"{folder}/{name}")
            yield from gpu_runs(run, tables, host=host, device=match[1], number=int(match[2]))


def _names(folder: str) -> list[str]:
    """What lies in a folder, in order; links are not followed, because a folder may have come from somebody else."""
    if os.path.islink(folder):
        raise BadInput(f"{folder} is a link; accepted is the folder of a run itself")
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if not entry.is_symlink())
    except NotADirectoryError:
        return []
    except OSError as error:
        raise BadInput(f"{folder}: {(error.strerror or 'cannot be read').lower()}") from None

"""Which GPUs of a run of `fleet bench` are slow, and the baseline that few equal ones are held against."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from firstlight.errors import BadInput
from firstlight.fleet.run import FleetRun, Kept, Verb

if TYPE_CHECKING:
    from firstlight.bench.slow_gpus import JudgedGpus
    from firstlight.lock.stack import Lock

DIFFERS = 3  # the exit code where nothing failed and a GPU is slow
_MOST_FILES = 200


def judged_run(run: FleetRun, folder: str) -> JudgedGpus | None:
    """The GPUs of a run as its folder has them; None where there are none to judge, as of the other verbs."""
    if run.verb is not Verb.BENCH:
        return None
    from firstlight.fleet.measurements import judged_folder
    from firstlight.fleet.run_folder import file_name
    from firstlight.tables import load

    judged = judged_folder(folder, load(), {file_name(host.name): host.name for host in run.hosts})
    return judged if judged.classes else None


def code_of(run: FleetRun, judged: JudgedGpus | None) -> int:
    """1: a host failed; 4: one was not reached; 3: a GPU is slow; of several the first of these."""
    return run.exit_code or (DIFFERS if judged is not None and judged.slow else 0)


def baselines(given: dict[str, Any]) -> tuple[Kept, ...]:
    """The runs of bench that are kept as baselines: those that were named, or those that the lock names."""
    from firstlight.bench.results import read_run, to_text
    from firstlight.fleet.measurements import baseline_name
    from firstlight.report.html.bench_page import without_samples

    lock = _lock(given["lock_file"])
    paths = list(given["baseline"])
    runs = [read_run(path) for path in paths]
    if lock is not None:
        wanted = {each.bench: each.name for each in lock.classes if each.bench}
        if not wanted:
            raise BadInput(
                f"--lock {lock.path}: no class of it names a run of bench; `firstlight lock --bench RUN.json` keeps "
                "one, and --baseline RUN.json takes a file without the lock"
            )
        if not runs:
            runs = [read_run(path) for path in _beside(lock, set(wanted))]
        for path, run in zip(paths, runs, strict=False):
            if run.run.id not in wanted:
                raise BadInput(
                    f"--baseline {path}: it is run {run.run.id}, and the lock names {', '.join(sorted(wanted))}; "
                    "leave --lock out, or give that run"
                )
    for path, run in zip(paths, runs, strict=False):
        if not run.gpus:
            raise BadInput(f"--baseline {path}: no GPU was measured in it; accepted is a run of bench on a GPU")
    return tuple(Kept(baseline_name(place), to_text(without_samples(run))) for place, run in enumerate(runs, 1))


def _lock(path: str) -> Lock | None:
    if not path:
        return None
    from firstlight.lock.reading import read_lock

    return read_lock(path)


def _beside(lock: Lock, wanted: set[str]) -> list[str]:
    """The files beside the lock that hold the runs it names; BadInput where one is not there."""
    from firstlight.bench.results import read_run

    folder = os.path.dirname(os.path.abspath(lock.path))
    found: dict[str, str] = {}
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".json"))[:_MOST_FILES]:
        try:
            found.setdefault(read_run(f"{folder}/{name}").run.id, f"{folder}/{name}")
        except BadInput:
            continue
    if missing := sorted(wanted - set(found)):
        raise BadInput(
            f"--lock {lock.path}: it names run {missing[0]} of bench, and no file beside it holds that run; "
            "give the file with --baseline"
        )
    return [found[each] for each in sorted(wanted)]

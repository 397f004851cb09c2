"""The stages configure and compile: passes by kind of unit, fewer jobs where memory ends, all faults at once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time

from firstlight.build.backend import BY_NINJA, Backend
from firstlight.build.engines import Engine, common_settings, compile_engine, configure_engine, ninja_of, wheel_engine
from firstlight.build.keys import mark_done
from firstlight.build.ninja_output import FailedUnit, failed_units, first_error, kind_of_unit, read_ninja_log
from firstlight.build.ninja_units import ninja_folder, units_of_ninja_file
from firstlight.build.progress import Progress
from firstlight.build.running import EngineEnded, run_engine, say
from firstlight.build.spec import BuildSpec, Stage
from firstlight.errors import BadInput, CouldNotAct
from firstlight.near import nearest
from firstlight.tables.build_rows import UnitKind

_TOLD = 5


def configure(spec: BuildSpec) -> None:
    """Make build.ninja; a backend that cannot do that alone does it while it compiles."""
    _make_links(spec)
    engine = configure_engine(spec)
    if engine is None:
        say(f"{spec.backend.value} configures while it compiles")
        mark_done(spec, Stage.CONFIGURE, {})
        return
    shutil.rmtree(f"{spec.folder}/scratch", ignore_errors=True)
    progress = Progress(spec, Stage.CONFIGURE)
    ended = run_engine(spec, engine, progress)
    shutil.rmtree(f"{spec.folder}/scratch", ignore_errors=True)
    if ended.status != 0 or not os.path.isfile(f"{spec.build_dir}/build.ninja"):
        raise CouldNotAct(f"configuring ended with status {ended.status}: {first_error(ended.lines)}")
    mark_done(spec, Stage.CONFIGURE, {"units": len(units_of_ninja_file(spec.build_dir))})


def compile_all(spec: BuildSpec) -> None:
    """Compile every unit; what was compiled before is not compiled again."""
    progress = Progress(spec, Stage.COMPILE)
    until = time.time() + spec.max_minutes * 60 if spec.max_minutes else 0.0
    os.makedirs(spec.raw, exist_ok=True)
    try:
        if spec.backend in BY_NINJA:
            _by_ninja(spec, progress, until)
        else:
            _by_backend(spec, progress, until)
    finally:
        progress.keep_peaks()
        progress.write()
    worst = max(progress.watch.peaks.values(), default=0)
    about = {
        "minutes": round(progress.compiled.seconds() / 60, 2),
        "worst_unit_bytes": worst,
        "together_bytes": progress.watch.together,
    }
    units = sum(
        kind_of_unit(each.output) is not None for each in read_ninja_log(ninja_folder(spec))
    )  # code is made too
    mark_done(spec, Stage.COMPILE, {**about, "units": units})


def _by_ninja(spec: BuildSpec, progress: Progress, until: float) -> None:
    """The heavy kinds first and few at a time, where their number of jobs is smaller; then everything."""
    _require_target(spec)
    for kind, jobs in _heavier(spec):
        units = tuple(each.output for each in units_of_ninja_file(spec.build_dir) if each.kind is kind)
        if units and not spec.only:
            say(f"firstlight: {len(units)} {kind.value} units first, {jobs} at a time: memory does not allow more")
            _in_passes(spec, progress, jobs=jobs, units=units, until=until)
    most = max((each.jobs for each in spec.kinds), default=spec.jobs)
    _in_passes(spec, progress, jobs=most, units=(), until=until)


def _require_target(spec: BuildSpec) -> None:
    """BadInput where --target names none of this build: which there are is known once it is configured."""
    if not spec.only:
        return
    asked = subprocess.run(
        [ninja_of(spec), "-C", spec.build_dir, "-t", "targets", "all"], capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    names = [line.rpartition(":")[0] for line in asked.stdout.splitlines() if ": " in line]
    if asked.returncode != 0 or not names or spec.only in names:
        return
    plain = sorted({each for each in names if "/" not in each and not each.endswith((".o", ".txt", ".cmake"))})
    near = nearest(spec.only, plain)
    hint = f"Did you mean {near[0]}?" if near else f"Among those it has: {', '.join(plain[:12])}."
    raise BadInput(f"--target {spec.only}: this build has no target of that name. {hint}")


def _heavier(spec: BuildSpec) -> tuple[tuple[UnitKind, int], ...]:
    most = max((each.jobs for each in spec.kinds), default=spec.jobs)
    return tuple((each.kind, each.jobs) for each in spec.kinds if each.jobs < most)


def _in_passes(spec: BuildSpec, progress: Progress, *, jobs: int, units: tuple[str, ...], until: float) -> None:
    """One pass of ninja; units that were killed for memory again at half the jobs, and at last each alone."""
    while True:
        progress.jobs = jobs
        ended = run_engine(spec, compile_engine(spec, jobs, units), progress, until=until)
        _require_time(ended, spec)
        if ended.status == 0:
            return
        failed = failed_units(list(ended.lines))
        starved = [each for each in failed if each.for_memory]
        if not starved or (jobs == 1 and len(starved) == len(failed)) or len(starved) < len(failed):
            raise CouldNotAct(failure_text(failed, ended.lines))
        jobs = fewer_jobs(jobs, len(starved))
        first = starved[0].output
        say(f"firstlight: {len(starved)} units were killed for memory ({first}); they continue, {jobs} at a time")


def fewer_jobs(jobs: int, starved: int) -> int:
    """Half of the jobs; one at a time where a single unit is left or half did not help either."""
    return 1 if starved == 1 else max(1, jobs // 2)


def _require_time(ended: EngineEnded, spec: BuildSpec) -> None:
    if ended.out_of_time:
        raise CouldNotAct(
            f"--max-minutes {spec.max_minutes}: the time is over; everything that was compiled is kept. Run the same "
            "command again to continue."
        )


def _by_backend(spec: BuildSpec, progress: Progress, until: float) -> None:
    """setuptools drives ninja itself; after a failure ninja is asked for all faults in the folder it left."""
    os.makedirs(spec.build_dir, exist_ok=True)  # a setup.py that is told this folder takes it where it is there
    jobs = spec.jobs
    while True:
        progress.jobs = jobs
        ended = run_engine(spec, wheel_engine(spec, jobs), progress, until=until)
        _require_time(ended, spec)
        if ended.status == 0:
            return
        failed = failed_units(list(ended.lines))
        if failed and all(each.for_memory for each in failed) and jobs > 1:
            jobs = fewer_jobs(jobs, len(failed))
            say(f"firstlight: {len(failed)} units were killed for memory; the rest continues, {jobs} at a time")
            continue
        left = ninja_folder(spec)
        if failed and left and spec.backend is Backend.TORCH_EXTENSION:
            say("firstlight: the other units continue, so that all faults are known at once")
            argv = (ninja_of(spec), "-C", left, "-k", "0", "-j", str(jobs))
            again = run_engine(spec, Engine(argv, common_settings(spec, jobs), spec.tree), progress, until=until)
            failed = failed_units(list(again.lines)) or failed
        raise CouldNotAct(failure_text(failed, ended.lines))


def failure_text(failed: tuple[FailedUnit, ...], lines: tuple[str, ...]) -> str:
    """The first real error with its command, and how many others there are."""
    if not failed:
        return f"the build failed: {first_error(lines)}"
    first = failed[0]
    others = [each.output for each in failed[1:]]
    more = (
        f" {len(others)} more failed: {', '.join(others[:_TOLD])}{' ...' if len(others) > _TOLD else ''}."
        if others
        else ""
    )
    told = {_without_place(first.first_error): ""}  # one missing header fails many units, and is one fault
    for each in failed[1:]:
        told.setdefault(_without_place(each.first_error), f" Another fault, of {each.output}: {each.first_error}")
    besides = "".join([each for each in told.values() if each][:_TOLD])
    return f"{first.output} did not compile: {first.first_error}{more}{besides} Its command: {first.command}"


def _without_place(error: str) -> str:
    """The words of an error without file, line and column, by which two are the same."""
    return re.sub(r"^\S+?(?::\d+|\(\d+\))[^a-z]*", "", error)


def _make_links(spec: BuildSpec) -> None:
    """A folder in which a linker finds libNAME.so, and headers, of libraries that wheels have under another name."""
    root = f"{spec.folder}/links"
    shutil.rmtree(root, ignore_errors=True)
    for each in spec.links:
        os.makedirs(f"{root}/lib", exist_ok=True)
        os.symlink(each.value, f"{root}/lib/{each.name}")
        include = os.path.join(os.path.dirname(os.path.dirname(each.value)), "include")
        if os.path.isdir(include):
            os.makedirs(f"{root}/include", exist_ok=True)
            for name in os.listdir(include):
                if not os.path.lexists(f"{root}/include/{name}"):
                    os.symlink(f"{include}/{name}", f"{root}/include/{name}")

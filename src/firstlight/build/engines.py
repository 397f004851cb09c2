"""The commands that do the work: git, cmake, ninja, `python -m build`, pip. Pure: a spec to argv and variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

from firstlight.build.backend import Backend
from firstlight.build.spec import BuildSpec, Setting
from firstlight.frozen import dataclass

# Jobs, whatever a setup.py calls them; natten's takes a quarter of the processors where this says nothing.
JOB_VARIABLES = ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "NATTEN_N_WORKERS")
STATUS = "[%f/%t] "  # ninja's own line, by which units are counted


@dataclass(frozen=True, slots=True)
class Engine:
    """A command, the variables it gets besides the user's, and the folder it runs in."""

    argv: tuple[str, ...]
    settings: tuple[Setting, ...]
    folder: str


def environment_for(spec: BuildSpec, engine: Engine, given: Mapping[str, str]) -> dict[str, str]:
    """The user's variables less those that would leak in, and the build's own."""
    kept = {name: value for name, value in given.items() if name not in spec.removed}
    own = {each.name: each.value for each in engine.settings}
    folders = [os.path.dirname(spec.python), *([f"{spec.toolkit}/bin"] if spec.toolkit else [])]
    return {**kept, **own, "PATH": ":".join((*folders, kept.get("PATH", os.defpath)))}


def common_settings(spec: BuildSpec, jobs: int) -> tuple[Setting, ...]:
    """What every engine of a build is told."""
    return (
        *spec.settings,
        *(Setting(name, str(jobs)) for name in JOB_VARIABLES),
        Setting("NINJA_STATUS", STATUS),
    )


def configure_engine(spec: BuildSpec) -> Engine | None:
    """What configures and compiles nothing; None where the backend cannot do one without the other."""
    if spec.backend is Backend.SKBUILD:
        # rebuild_cache is a target that every CMake tree has and that compiles nothing, and no file belongs to the
        # component: the backend configures as it will for the wheel, and stops there.
        alone = ("-Cbuild.targets=rebuild_cache", "-Cinstall.components=firstlight-nothing")
        return _wheel(spec, f"{spec.folder}/scratch", spec.jobs, alone)
    if spec.backend is Backend.PYTORCH:
        argv = (spec.python, "setup.py", "build", "--cmake-only")
        settings = (*common_settings(spec, spec.jobs), Setting("CMAKE_ONLY", "1"))
        return Engine(argv, settings, spec.tree)
    return None


def compile_engine(spec: BuildSpec, jobs: int, units: tuple[str, ...] = ()) -> Engine:
    """ninja on what was configured: every fault in one go, units or targets where some are named."""
    wanted = units or ((spec.only,) if spec.only else spec.targets)
    argv = (ninja_of(spec), "-C", spec.build_dir, "-k", "0", "-j", str(jobs), *wanted)
    return Engine(argv, common_settings(spec, jobs), spec.tree)


def wheel_engine(spec: BuildSpec, jobs: int) -> Engine:
    """The wheel, in the tree that stays where it is."""
    return _wheel(spec, spec.raw, jobs, ())


def ninja_of(spec: BuildSpec) -> str:
    beside = f"{os.path.dirname(spec.python)}/ninja"
    return beside if os.path.exists(beside) else "ninja"


def _wheel(spec: BuildSpec, outdir: str, jobs: int, more: tuple[str, ...]) -> Engine:
    defines: tuple[str, ...] = ()
    if spec.backend is Backend.SKBUILD:
        defines = (
            f"-Cbuild-dir={spec.build_dir}",
            *(f"-Ccmake.define.{each.name}={each.value}" for each in spec.defines),
        )
    # What the tree requires was judged before; build would also refuse a torch whose own pins are not met exactly.
    alone = ("--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", outdir)
    argv = (spec.python, "-m", "build", *alone, *defines, *more, spec.tree)
    return Engine(argv, common_settings(spec, jobs), spec.tree)

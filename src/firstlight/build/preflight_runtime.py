"""The part of preflight that looks at what the wheel needs when it runs: other projects, libraries of wheels."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstlight.build.case import BuildCase
from firstlight.build.fault import Fault, note, stops
from firstlight.build.run_paths import run_paths, wheel_folders
from firstlight.build.runtime_needs import RuntimeGaps, applying, gaps_in
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.ways.names import normal

_NOT_BY_THE_WAY = "torch"  # which torch it is decides what is compiled; it never comes by the way


def runtime_gaps(case: BuildCase) -> RuntimeGaps:
    """What the wheel requires and the environment does not have; nothing where that was not asked."""
    if isinstance(case.tools.installed, Unknown):
        return RuntimeGaps((), (), ())
    return gaps_in(
        case.project.runtime, case.tools.installed.value, python=python_version(case), by_program=programs(case)
    )


def requirements_to_bring(case: BuildCase) -> tuple[str, ...]:
    """What a step brings into the environment before anything is compiled, all of it where only some is missing: the
    step is the same before and after it was done.
    """
    request = case.request
    if request.wheel_only or request.only or request.prefix or request.no_deps:
        return ()
    found = []
    for each in applying(case.project.runtime, python_version(case)):
        extras = f"[{','.join(sorted(each.extras))}]" if each.extras else ""
        if normal(each.name) not in (_NOT_BY_THE_WAY, *programs(case)):
            found.append(f"{each.name}{extras}{each.specifier}")
    return tuple(found)


def runtime_requirements(case: BuildCase) -> Iterator[Fault]:
    """Found after an hour of compiling, by the import: narwhals, which LightGBM 4.7 requires."""
    if case.request.wheel_only or case.request.only:
        return
    gaps = runtime_gaps(case)
    command = shlex.join((_python(case), "-m", "pip", "install", *gaps.missing, *gaps.wanted))
    if gaps.unfit:
        saw = f"the wheel requires when it runs what the environment has in another version: {', '.join(gaps.unfit)}"
        weigh = note if case.request.no_deps else stops
        yield weigh("runtime-requirements-differ", saw, "Install it, or give --wheel-only or --no-deps.",
                    command=command)  # fmt: skip
    missing = [each for each in gaps.missing if not _is_torch(each)]
    if len(missing) < len(gaps.missing):
        saw = "the wheel requires torch when it runs, and there is none in the environment"
        yield stops("no-torch-to-run-with", saw, "Install torch first: which one decides what is compiled.",
                    command="firstlight plan --want torch")  # fmt: skip
    if not missing:
        return
    saw = f"the wheel requires when it runs what the environment lacks: {', '.join(missing)}"
    if case.request.no_deps:
        yield note("runtime-requirements", f"{saw} (--no-deps: it is not brought)", command=command)
    elif case.request.prefix:
        yield stops("runtime-requirements", f"{saw}; --prefix leaves the environment as it is",
                    "Install it there, or give --no-deps.", command=command)  # fmt: skip
    else:
        yield note("runtime-requirements", f"{saw}: pip brings it before anything is compiled, and all that is "
                   "installed stays in its version")  # fmt: skip


def libraries_of_wheels(case: BuildCase) -> Iterator[Fault]:
    """The loader does not look into site-packages: an import would fail for libnccl.so.2 after everything is built."""
    if case.request.only or not (folders := wheel_folders(case)):
        return
    listed = ", ".join(folders)
    if not run_paths(case):
        return
    saw = f"the loader does not look into {listed} of site-packages: the library gets an RPATH that leads there"
    yield note("library-of-a-wheel", saw)
    if case.request.prefix:
        yield note("library-of-a-wheel-and-prefix",
                   f"that RPATH leads from the library's own folder: below {case.request.prefix} it finds {listed} "
                   "only if the wheel that has it is installed there too")  # fmt: skip


def python_version(case: BuildCase) -> str:
    """3.12.4 of the environment that gets the wheel; "" where it is not known."""
    environment = case.facts.environment
    return "" if environment is None else str(value_or(environment.python_version, ""))


def programs(case: BuildCase) -> tuple[str, ...]:
    """Projects whose programs the machine has: causal-conv1d requires ninja, and any will do."""
    tools = (("cmake", case.tools.cmake), ("ninja", case.tools.ninja))
    return tuple(name for name, tool in tools if isinstance(tool, Known))


def _is_torch(text: str) -> bool:
    return next((normal(each.name) == _NOT_BY_THE_WAY for each in applying((text,), "")), False)


def _python(case: BuildCase) -> str:
    return case.tools.python.value if isinstance(case.tools.python, Known) else "python3"


RUNTIME_CHECKS = (runtime_requirements, libraries_of_wheels)

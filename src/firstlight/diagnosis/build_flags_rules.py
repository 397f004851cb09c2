"""Rules about how a build would be run: architectures and flags, jobs and memory, rights, tools."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import has_nvidia_gpu, listed, may_become_root
from firstlight.diagnosis.toolkit_answers import TOOLKIT_WAYS, else_conda, toolkits_of
from firstlight.diagnosis.toolkit_in_use import toolkit_in_use, variable
from firstlight.diagnosis.wheel_answers import cuda_of_torch
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment
from firstlight.tables.compiler_rows import ToolkitTargets
from firstlight.tables.system_rows import Role
from firstlight.versions import ComputeCapability
from firstlight.ways import kinds
from firstlight.ways.platform import Manager, platform_of
from firstlight.ways.system_names import names_for
from firstlight.ways.way import Chain, Proof, chain

BUILDING = (Goal.BUILD_EXTENSIONS, Goal.KERNELS)
BLOCKS_BUILDS = tuple((goal, Severity.BLOCKS) for goal in BUILDING)
DEGRADES_BUILDS = tuple((goal, Severity.DEGRADES) for goal in BUILDING)

_FLAGS = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "TORCH_NVCC_FLAGS", "CUDAFLAGS")
_PAIR = r"arch=compute_(\d{2,3})([af]?),code=\[?([\w,]+)\]?"
_REAL = r"sm_(\d{2,3})([af])"
_LISTED_ARCH = r"(\d{1,2})\.(\d)([af]?)(?:\+PTX)?"
_CMAKE_ARCH = r"(\d{1,2})(\d)([af]?)(?:-real|-virtual)?"
_GIB = 1 << 30
_GIB_PER_JOB = 4
# flash-attention: about 5 GB for each thread of nvcc, of which it starts four per job
# (github.com/Dao-AILab/flash-attention/pull/2079; 65 GB with 3 jobs: issues/1581)
_GIB_PER_FLASH_THREAD = 5
_FLASH = ("FLASH_ATTENTION_FORCE_BUILD", "FLASH_ATTN_CUDA_ARCHS")
_OWN_ENVIRONMENT = (chain(kinds.MakeEnvironment()),)


def arch_flag_drops_features(question: Question) -> Iterator[Seen]:
    """arch=compute_90,code=sm_90a compiles, without the features that the `a` is there for."""
    for name in _FLAGS:
        flags = variable(question.facts, name)
        for pair in re.finditer(_PAIR, flags):
            number, suffix, codes = pair.groups()
            for code in re.finditer(_REAL, codes):
                if code.group(1) == number and suffix != code.group(2):
                    right = f"arch=compute_{number}{code.group(2)},code=sm_{number}{code.group(2)}"
                    yield Seen(
                        saw=f"{name} has {pair.group(0)}: the front end compiles for compute_{number}{suffix}, which "
                        f"lacks the features of sm_{number}{code.group(2)}",
                        answers=(_told(**{name: flags.replace(pair.group(0), right)}),),
                    )


def arch_unknown_to_toolkit(question: Question) -> Iterator[Seen]:
    """An architecture is asked for that this toolkit does not know yet, or no longer."""
    facts, toolkit = question.facts, toolkit_in_use(question.facts)
    if toolkit is None or isinstance(toolkit.nvcc_version, Unknown):
        return
    row = question.tables.targets(toolkit.nvcc_version.value)
    if row is None:
        return
    yield from _family_names(question)
    for name, split, pattern in (
        ("TORCH_CUDA_ARCH_LIST", r"[; ,]+", _LISTED_ARCH),
        ("CUDAARCHS", r"[;,]+", _CMAKE_ARCH),
    ):
        given = variable(facts, name)
        parts = [part for part in re.split(split, given) if part]
        bad = [part for part in parts if _is_unknown(question, part, pattern=pattern, row=row)]
        if bad:
            kept = [part for part in parts if part not in bad]
            yield Seen(
                saw=f"{name}={given} names {listed(bad)}; nvcc {toolkit.nvcc_version.value} "
                f"({toolkit.nvcc_version.seen_in}) compiles for {row.targets[0]} to {row.targets[-1]} without it",
                answers=tuple(_other_list(question, name, kept=kept, bad=bad)),
            )


def _family_names(question: Question) -> Iterator[Seen]:
    """torch's list takes 9.0a and 10.0a, but no name with an f, whatever nvcc knows."""
    given = variable(question.facts, "TORCH_CUDA_ARCH_LIST")
    parts = [part for part in re.split(r"[; ,]+", given) if part]
    bad = [part for part in parts if (match := re.fullmatch(_LISTED_ARCH, part)) and match.group(3) == "f"]
    if bad:
        yield Seen(
            saw=f"TORCH_CUDA_ARCH_LIST={given} names {listed(bad)}; torch accepts no name with an f there",
            answers=(_told(TORCH_CUDA_ARCH_LIST=";".join(part.replace("f", "") for part in parts)),),
            means=f"torch stops with: ValueError: Unknown CUDA arch ({bad[0]}) or GPU not supported",
        )


def _is_unknown(question: Question, part: str, *, pattern: str, row: ToolkitTargets) -> bool:
    if match := re.fullmatch(pattern, part):
        return f"sm_{match.group(1)}{match.group(2)}{match.group(3)}" not in row.targets
    name = part.removesuffix("+PTX")  # Volta, Hopper: names that torch spells out as numbers
    meant = [each.capability.sm for each in question.tables.capabilities if each.architecture == name]
    return bool(meant) and not any(sm in row.targets for sm in meant)


def _other_list(question: Question, name: str, *, kept: list[str], bad: list[str]) -> Iterator[Chain]:
    renamed = {row.capability: row.renamed_to for row in question.tables.capabilities if row.renamed_to is not None}
    new = [str(renamed[each]) for part in bad if (each := _capability(part)) is not None and each in renamed]
    own = [str(gpu.capability) for gpu in gpus_of(question)] if name == "TORCH_CUDA_ARCH_LIST" else []
    wanted = list(dict.fromkeys([*kept, *new])) or own
    if wanted:
        yield _told(**{name: ";".join(wanted)})
    sms = [each for part in bad if (each := _capability(part)) is not None]
    torch = cuda_of_torch(question)
    older = [toolkit for sm in sms[:1] for toolkit in question.tables.toolkits_for(sm)]
    fitting = [toolkit for toolkit in older if torch is None or toolkit.major == torch.major]
    if fitting and not new:  # where code for it is needed: the newest toolkit of torch's major that knows it
        yield from toolkits_of(question, fitting[-1])


def _told(**variables: str) -> Chain:
    """Variables of the shell that builds."""
    return chain(
        kinds.SetVariables(tuple(kinds.Variable(name, value) for name, value in variables.items()), kinds.Scope.BUILD)
    )


def _capability(part: str) -> ComputeCapability | None:
    match = re.fullmatch(_LISTED_ARCH, part) or re.fullmatch(_CMAKE_ARCH, part)
    return None if match is None else ComputeCapability(int(match.group(1)), int(match.group(2)))


def too_little_memory_per_job(question: Question) -> Iterator[Seen]:
    """More compilers at once than the memory holds: one is killed, and the build ends far from the cause."""
    facts = question.facts
    memory, processors = facts.resources.memory_bytes, facts.resources.processors
    flash = next((name for name in _FLASH if variable(facts, name)), "")
    asked = variable(facts, "MAX_JOBS") or variable(facts, "CMAKE_BUILD_PARALLEL_LEVEL")
    if isinstance(memory, Unknown) or not (question.goal in BUILDING or flash or asked):
        return
    if asked.isdecimal() and int(asked) > 0:
        jobs, why = int(asked), "MAX_JOBS" if variable(facts, "MAX_JOBS") else "CMAKE_BUILD_PARALLEL_LEVEL"
    elif isinstance(processors, Known) and 1 <= processors.value < math.inf:
        jobs, why = int(processors.value), "one for each processor: MAX_JOBS is not set"
    else:
        return
    threads = variable(facts, "NVCC_THREADS")
    need = _GIB_PER_FLASH_THREAD * (int(threads) if threads.isdecimal() else 4) if flash else _GIB_PER_JOB
    share = memory.value / _GIB / jobs
    if share >= need:
        return
    fitting = max(1, int(memory.value / _GIB / need))
    what = f"flash-attention ({flash}) takes about {need}" if flash else f"torch's kernels take about {need}"
    yield Seen(
        saw=f"{jobs} jobs ({why}) share {memory.value / _GIB:.1f} GiB ({memory.seen_in}), {share:.1f} GiB each; {what}",
        answers=(_told(MAX_JOBS=str(fitting), **_one_architecture(question)),),
    )


def _one_architecture(question: Question) -> dict[str, str]:
    own = dict.fromkeys(str(gpu.capability) for gpu in gpus_of(question))
    is_set = bool(variable(question.facts, "TORCH_CUDA_ARCH_LIST"))
    return {"TORCH_CUDA_ARCH_LIST": ";".join(own)} if own and not is_set else {}


def prefix_not_writable(question: Question) -> Iterator[Seen]:
    """A build can run for hours and fail at its last step, where it installs."""
    facts, environment = question.facts, question.facts.environment
    folder = "" if environment is None else _closed_folder(facts, environment)
    if folder and _is_to_be_installed_into(question):
        yield Seen(saw=f"{folder} cannot be written to by user {facts.ability.uid}", answers=_OWN_ENVIRONMENT)


def _closed_folder(facts: Facts, environment: PythonEnvironment) -> str:
    """Where an install into this environment would go, if we may not write there; pip's --user folder is none."""
    writable = {prefix.path: prefix.writable for prefix in facts.ability.prefixes}
    for folder in environment.site_packages:
        if "/.local/lib/" not in folder:
            return folder if writable.get(folder) is False else ""
    return ""


def externally_managed_python(question: Question) -> Iterator[Seen]:
    """PEP 668: the distribution owns this Python, and pip refuses to install into it."""
    environment = question.facts.environment
    if environment is None or not _is_to_be_installed_into(question):
        return
    if environment.externally_managed and environment.kind is EnvironmentKind.SYSTEM:
        yield Seen(
            saw=f"{environment.prefix} is marked EXTERNALLY-MANAGED; it is the environment that was judged",
            answers=_OWN_ENVIRONMENT,
        )


def _is_to_be_installed_into(question: Question) -> bool:
    """Something is to be built, is wanted, or torch is still missing on a machine with a GPU."""
    facts = question.facts
    lacks_torch = isinstance(facts.torch, Unknown) and has_nvidia_gpu(facts)
    return question.goal in BUILDING or bool(question.wants) or lacks_torch


def build_tools_missing(question: Question) -> Iterator[Seen]:
    """What every build of an extension starts: a C++ compiler, and ninja beside it."""
    facts = question.facts
    if question.goal not in BUILDING:
        return
    compilers = [tool.name for tool in facts.compilers.compilers]
    chosen = [each for each in facts.compilers.chosen if each.variable == "CXX" and isinstance(each.path, Known)]
    has_compiler = bool(chosen) or any(name in compilers for name in ("c++", "g++", "clang++"))
    if not has_compiler:
        yield Seen(saw="no c++, g++ or clang++ on PATH, and CXX names none", answers=_compiler(question))
    if isinstance(facts.compilers.find("ninja"), Unknown):
        yield Seen(saw="no ninja on PATH", answers=_ninja(question)[: 2 if has_compiler else 1])


def _compiler(question: Question) -> tuple[Chain, ...]:
    """The system's package, else conda's, which takes no root."""
    return else_conda(_packages(question, Role.COMPILER, ("/usr/bin/g++",)), conda_compilers(question.facts))


def _ninja(question: Question) -> tuple[Chain, ...]:
    """The system's package or its wheel; the first alone beside a compiler, so that root is taken for both or none."""
    return (*_packages(question, Role.NINJA, ()), chain(kinds.InstallWheels((kinds.Package("ninja"),))))


def _packages(question: Question, role: Role, brings: tuple[str, ...]) -> tuple[Chain, ...]:
    platform = platform_of(question.facts)
    names = names_for(role, platform, question.tables)
    there = names and platform.manager is not Manager.NONE and may_become_root(question.facts)
    return (chain(kinds.InstallPackages(names, brings)),) if there else ()


def conda_compilers(facts: Facts, major: int = 0) -> Chain:
    """gcc and g++ of a major (0: the newest) from conda-forge, in a folder of their own."""
    prefix, name = f"~/gcc-{major}" if major else "~/gcc", f"{facts.place.arch}-conda-linux-gnu"
    package = "gxx_linux-aarch64" if facts.place.arch == "aarch64" else "gxx_linux-64"
    conda = kinds.InstallConda(f"{package}={major}" if major else package, "conda-forge", prefix, f"bin/{name}-g++")
    variables = host_compilers(f"{prefix}/bin/{name}-gcc", f"{prefix}/bin/{name}-g++")
    return chain(conda, variables, proof=Proof.REPORTED, by=f"anaconda.org/conda-forge/{package}")


def host_compilers(gcc: str, gxx: str) -> kinds.SetVariables:
    """The compilers that torch, CMake and nvcc start, for the shell that builds."""
    return kinds.SetVariables(
        (kinds.Variable("CC", gcc), kinds.Variable("CXX", gxx), kinds.Variable("CUDAHOSTCXX", gxx)), kinds.Scope.BUILD
    )


BUILD_FLAGS_RULES = (
    Rule(
        check=arch_flag_drops_features,
        severity=Severity.NOTE,
        depth=60,
        title="A compiler flag asks for sm_90a code but compiles without its features.",
        fires_when="A variable with flags for nvcc has arch=compute_NN with code=sm_NNa or sm_NNf.",
        looks_at=("build_variables",),
        means="It compiles, but what the suffix stands for is off (sm_90a: __CUDA_ARCH_FEAT_SM90_ALL is not defined): "
        "wgmma does not assemble, and CUTLASS says 'Arch conditional MMA instruction used without targeting'.",
        error="ptxas error : Instruction 'wgmma.fence' not supported on .target 'sm_90'",
        source="docs.nvidia.com/cuda/cuda-compiler-driver-nvcc (GPU feature list)",
        ways=(kinds.SetVariables,),
        for_goals=DEGRADES_BUILDS,
    ),
    Rule(
        check=arch_unknown_to_toolkit,
        severity=Severity.NOTE,
        depth=60,
        title="A build is set to compile for an architecture that this CUDA toolkit does not know.",
        fires_when="TORCH_CUDA_ARCH_LIST or CUDAARCHS names an architecture that is not among the toolkit's targets.",
        looks_at=("build_variables", "toolkits.cpp_extension_home", "toolkits.toolkits"),
        needs=("toolkits.cpp_extension_home",),
        means="nvcc stops at the first file. CUDA 13 dropped everything below 7.5, and 10.1 is called 11.0 since then.",
        error="nvcc fatal   : Unsupported gpu architecture 'compute_70'",
        source="github.com/Dao-AILab/fast-hadamard-transform/issues/16",
        ways=TOOLKIT_WAYS,
        for_goals=BLOCKS_BUILDS,
    ),
    Rule(
        check=too_little_memory_per_job,
        severity=Severity.NOTE,
        depth=60,
        title="A build would run more compilers at once than the memory holds.",
        fires_when="Memory, or the container's limit, divided by the number of jobs is below 4 GiB, or below 5 GiB for "
        "each thread of nvcc where a variable says that flash-attention is built.",
        looks_at=("resources.memory_bytes", "resources.processors", "build_variables"),
        needs=("resources.memory_bytes",),
        means="The kernel kills a compiler when memory runs out, and the build fails far from the cause.",
        error="c++: fatal error: Killed signal terminated program cc1plus",
        source="github.com/Dao-AILab/flash-attention/issues/1581",
        ways=(kinds.SetVariables,),
        for_goals=DEGRADES_BUILDS,
    ),
    Rule(
        check=externally_managed_python,
        severity=Severity.NOTE,
        depth=60,
        title="The distribution manages this Python, and pip may not install into it.",
        fires_when="Something is to be installed, and the judged Python is the system's and marked EXTERNALLY-MANAGED.",
        looks_at=("python.environments", "python.selected"),
        means="Pip refuses. --break-system-packages would install, and can break the system's own tools.",
        error="error: externally-managed-environment",
        source="peps.python.org/pep-0668",
        ways=(kinds.MakeEnvironment,),
        explains=("prefix-not-writable",),
        for_goals=BLOCKS_BUILDS,
    ),
    Rule(
        check=prefix_not_writable,
        severity=Severity.NOTE,
        depth=60,
        title="What is built cannot be installed: the folder of this Python is not writable.",
        fires_when="Something is to be installed, and the site-packages folder of the judged Python is not writable.",
        looks_at=("ability.prefixes", "python.environments", "python.selected"),
        means="A source build compiles to the end and fails when it installs. Running cmake_install.cmake with another "
        "prefix does not help: it installs no package that Python can import.",
        error='CMake Error: file INSTALL cannot make directory "/usr/local/lib/python3.12/dist-packages/caffe2": '
        "Permission denied.",
        source="docs.python.org/3/library/venv.html",
        ways=(kinds.MakeEnvironment,),
        for_goals=BLOCKS_BUILDS,
    ),
    Rule(
        check=build_tools_missing,
        severity=Severity.NOTE,
        depth=60,
        title="Tools that every extension build starts are missing.",
        fires_when="An extension is to be built, and no C++ compiler or no ninja is on PATH.",
        looks_at=("compilers.compilers", "compilers.chosen", "compilers.tools"),
        means="The extension builder of torch cannot compile here.",
        error="RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",
        source="docs.pytorch.org/docs/stable/cpp_extension.html",
        ways=(kinds.InstallPackages, kinds.InstallWheels, kinds.InstallConda, kinds.SetVariables),
        for_goals=BLOCKS_BUILDS,
    ),
)

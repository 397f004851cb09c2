"""Rules about the driver's version: what CUDA it runs, for the torch wheel, for the toolkit, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.compat_choice import offered_cuda
from firstlight.diagnosis.cuinit_rules import CUINIT_RULES
from firstlight.diagnosis.driver_answers import DRIVER_WAYS, installed
from firstlight.diagnosis.driver_module_rules import MODULE_RULES
from firstlight.diagnosis.driver_packages import flavour_of, why_not_branch
from firstlight.diagnosis.driver_start_rules import START_RULES
from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.module_flavour_rules import MODULE_FLAVOUR_RULES
from firstlight.diagnosis.observed import container, has_own_kernel_driver, init_code, shown
from firstlight.diagnosis.old_driver_answers import (
    FOR_A_TOOLKIT,
    FOR_A_TORCH,
    for_a_toolkit,
    for_a_torch,
    runs_only_older,
    toolkits_in_use,
)
from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Part
from firstlight.ways.kinds import InstallDriver, WireCompat
from firstlight.ways.way import Chain

_MINOR_COMPAT = "docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
_LIMITS = (
    "It works, by minor-version compatibility. What does not: PTX made by a newer toolkit than the driver knows (error "
    "222), and the few calls that are newer than the driver (error 36)."
)
_NO_FIXES = "It keeps working, but gets no fixes, and newer CUDA releases are not tested with it."


def driver_too_old_for_wheel(question: Question) -> Iterator[Seen]:
    """A cu130 wheel on driver 570 imports without error, then sees no GPU."""
    facts = question.facts
    if isinstance(facts.torch, Unknown):
        return
    torch = facts.torch.value
    if isinstance(torch.wheel_cuda, Unknown) or isinstance(torch.version, Unknown):
        return
    wheel_cuda = torch.wheel_cuda.value
    needed, offered = question.tables.oldest_driver(wheel_cuda), offered_cuda(question)
    if needed is None or not runs_only_older(question, wheel_cuda):
        return
    answers = for_a_torch(question, wheel_cuda)
    by_compat = any(isinstance(way, WireCompat) for one in answers for way in one.ways)
    number = "" if offered is None else f" Its message says: found version {offered.major * 1000 + offered.minor * 10}."
    yield Seen(
        f"{_driver_and_offer(question)}; torch {torch.version.value} needs {needed} or newer"
        + (", or a compat library" if by_compat else ""),
        answers=answers,
        means=f"torch imports, but torch.cuda.is_available() is False.{number}",
    )


def driver_too_old_for_toolkit(question: Question) -> Iterator[Seen]:
    """What nvcc 13 builds does not start on driver 550: its runtime is newer than the driver's major."""
    for toolkit in toolkits_in_use(question):
        if isinstance(toolkit.version, Unknown) or Part.NVCC not in toolkit.has:
            continue
        version = toolkit.version.value
        if question.tables.oldest_driver(version) is None or not runs_only_older(question, version):
            continue
        yield Seen(
            f"{_driver_and_offer(question)}; the toolkit in use is {version} ({toolkit.path})",
            answers=for_a_toolkit(question, version),
        )


def minor_version_limits(question: Question) -> Iterator[Seen]:
    """cu128 on a 12.4 driver runs, except for PTX that a newer toolkit made."""
    facts, offered = question.facts, offered_cuda(question)
    if isinstance(facts.torch, Unknown) or offered is None or init_code(facts) > 0:
        return
    torch = facts.torch.value
    if isinstance(torch.wheel_cuda, Unknown) or isinstance(torch.version, Unknown):
        return
    wheel_cuda = torch.wheel_cuda.value.release
    if wheel_cuda.major != offered.major or wheel_cuda <= offered.release or runs_only_older(question, wheel_cuda):
        return
    names = {gpu.capability.value.sm for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)}
    target = f" ({', '.join(sorted(names))})" if names else ""
    yield Seen(
        f"{_driver_and_offer(question)}; torch {torch.version.value} was built with {wheel_cuda}, of the same major",
        means=f"{_LIMITS} If error 222 comes up, build machine code for this GPU{target} instead of PTX.",
    )


def driver_branch_ended(question: Question) -> Iterator[Seen]:
    """NVIDIA supports each driver branch for a time: 535 until June 2026."""
    facts = question.facts
    if isinstance(facts.driver.kernel_version, Unknown) or not has_own_kernel_driver(facts):
        return
    driver = facts.driver.kernel_version
    life = question.tables.branch_life(driver.value.branch)
    if life is None or facts.collected_at[:7] <= life.supported_until:
        return
    lives = (question.tables.branch_life(row.branch) for row in question.tables.driver_branches)
    alive = [each for each in lives if each is not None and facts.collected_at[:7] <= each.supported_until]
    longest = max(alive, key=lambda each: each.supported_until, default=None)
    answers = () if longest is None else _at_the_next_service(question, longest.branch)
    to_install = next((way.branch for each in answers for way in each.ways if isinstance(way, InstallDriver)), None)
    named = longest if to_install is None else question.tables.branch_life(to_install)
    if to_install is not None and named not in alive:  # this system has none that lives on
        answers, named = (), longest
    until = "" if named is None else f"supported until {named.supported_until}"
    next_one = "" if named is None else f" Branch {named.branch} ({named.kind.value}) is {until}."
    yield Seen(
        f"driver {shown(driver)}: NVIDIA supported branch {driver.value.branch} ({life.kind.value}) "
        f"until {life.supported_until}",
        answers=answers,
        means=f"{_NO_FIXES}{next_one}",
    )


def _at_the_next_service(question: Question, branch: int) -> tuple[Chain, ...]:
    """The branch that is supported longest, where the driver is this system's to change and it drives these GPUs."""
    if container(question.facts) is not None or why_not_branch(question, branch):
        return ()
    return (installed(question, branch, flavour_of(question)),)


def _driver_and_offer(question: Question) -> str:
    """'driver 570.133.20 (/sys/module/nvidia/version) offers CUDA 12.8'."""
    driver, offered = question.facts.driver.kernel_version, offered_cuda(question)
    has = f"driver {shown(driver)}" if isinstance(driver, Known) else "the driver"
    return has if offered is None else f"{has} offers CUDA {offered}"


_VERSION_RULES: tuple[Rule, ...] = (
    Rule(
        check=driver_too_old_for_wheel,
        severity=Severity.BLOCKS,
        depth=20,
        title="The GPU driver is too old for the installed torch wheel.",
        wanted_title="The GPU driver is too old for the wanted torch wheel.",
        fires_when="The CUDA major of the torch wheel (before CUDA 11 its release) is above what the driver runs: by "
        "the CUDA that libcuda offers when cuInit works, else by the driver's version against the floor of that CUDA.",
        looks_at=(
            "torch.wheel_cuda",
            "torch.version",
            "driver.kernel_version",
            "libcuda.driver_cuda",
            "libcuda.init_code",
        ),
        needs=("torch",),
        means="torch imports, but torch.cuda.is_available() is False.",
        error="CUDA initialization: The NVIDIA driver on your system is too old (found version ...). "
        "Please update your GPU driver",
        source=_MINOR_COMPAT,
        ways=FOR_A_TORCH,
        explains=("driver-too-old-for-toolkit",),
    ),
    Rule(
        check=driver_too_old_for_toolkit,
        severity=Severity.NOTE,
        depth=60,
        title="Programs that this toolkit's nvcc builds do not start on this driver.",
        fires_when="The toolkit in use has nvcc and a CUDA major above what the driver runs.",
        looks_at=(
            "toolkits.cpp_extension_home",
            "toolkits.nvcc_on_path",
            "toolkits.toolkits",
            "driver.kernel_version",
            "libcuda.driver_cuda",
            "libcuda.init_code",
        ),
        needs=("toolkits.cpp_extension_home",),
        means="nvcc compiles, but the program it makes links a CUDA runtime that this driver refuses with error 35. "
        "Setting LD_LIBRARY_PATH to an older toolkit does not change that: the runtime is linked in.",
        error="CUDA driver version is insufficient for CUDA runtime version",
        source=_MINOR_COMPAT,
        ways=FOR_A_TOOLKIT,
        for_goals=((Goal.BUILD_EXTENSIONS, Severity.DEGRADES), (Goal.KERNELS, Severity.BLOCKS)),
    ),
    Rule(
        check=minor_version_limits,
        severity=Severity.NOTE,
        depth=20,
        title="The driver has the wheel's CUDA major but an earlier minor.",
        fires_when="The wheel's CUDA has the major that the driver offers and a later minor.",
        looks_at=("torch.wheel_cuda", "driver.kernel_version", "libcuda.driver_cuda", "libcuda.init_code"),
        needs=("torch",),
        means=_LIMITS,
        error="the provided PTX was compiled with an unsupported toolchain.",
        source=_MINOR_COMPAT,
        ways=(),
    ),
    Rule(
        check=driver_branch_ended,
        severity=Severity.NOTE,
        depth=20,
        title="NVIDIA no longer supports this driver branch.",
        fires_when="The month the facts were collected in is after the month in which the branch's support ended.",
        looks_at=("driver.kernel_version", "collected_at"),
        means=_NO_FIXES,
        source="docs.nvidia.com/datacenter/tesla/drivers/615/supported-drivers-and-cuda-toolkit-versions.html",
        ways=DRIVER_WAYS,
    ),
)

DRIVER_RULES: tuple[Rule, ...] = (*MODULE_RULES, *MODULE_FLAVOUR_RULES, *START_RULES, *CUINIT_RULES, *_VERSION_RULES)

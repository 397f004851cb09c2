"""Rules about the driver's version: what CUDA it runs, for the torch wheel, for the toolkit, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.compat_choice import driver_runs, offered_cuda
from firstlight.diagnosis.driver_module_rules import MODULE_RULES
from firstlight.diagnosis.driver_start_rules import START_RULES
from firstlight.diagnosis.driver_ways import compat_way, driver_way, install_wanted, wheel_way
from firstlight.diagnosis.finding import Goal, Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import as_root, has_own_kernel_driver, init_code, install, observed_cuda, shown
from firstlight.facts.known import Known, Unknown
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.versions import CudaVersion

_MINOR_COMPAT = "docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"


def driver_too_old_for_wheel(question: Question) -> Iterator[Seen]:
    """A cu130 wheel on driver 570 imports without error, then sees no GPU."""
    facts = question.facts
    if isinstance(facts.torch, Unknown):
        return
    torch = facts.torch.value
    if isinstance(torch.wheel_cuda, Unknown) or isinstance(torch.version, Unknown):
        return
    wheel_cuda = torch.wheel_cuda.value
    floor = question.tables.cuda_major(wheel_cuda.major)
    if floor is None or not _runs_only_older(question, wheel_cuda.major):
        return
    needed, offered = floor.min_driver_same_major, offered_cuda(question)
    driver = facts.driver.kernel_version
    compat = compat_way(question, wheel_cuda, driver=driver.value) if isinstance(driver, Known) else ""
    first = install_wanted(question) if compat else ""
    steps = (
        first,
        compat,
        wheel_way(question, torch.version.value),
        driver_way(question, branch=needed.branch, cuda=CudaVersion(wheel_cuda.major, 0)),
    )
    number = "" if offered is None else f" It says: found version {offered.major * 1000 + offered.minor * 10}."
    yield Seen(
        f"{_driver_and_offer(question)}; torch {torch.version.value} needs {needed} or newer"
        + (", or a compat library" if compat else ""),
        do=tuple(step for step in steps if step),
        means=f"torch imports, but torch.cuda.is_available() is False.{number}",
    )


def driver_too_old_for_toolkit(question: Question) -> Iterator[Seen]:
    """What nvcc 13 builds does not start on driver 550: its runtime is newer than the driver's major."""
    for toolkit in _toolkits_in_use(question):
        if isinstance(toolkit.version, Unknown) or Part.NVCC not in toolkit.has:
            continue
        version = toolkit.version.value
        floor = question.tables.cuda_major(version.major)
        if floor is None or not _runs_only_older(question, version.major):
            continue
        driver = question.facts.driver.kernel_version
        ways = (
            _older_toolkit(question, offered_cuda(question)),
            compat_way(question, version, driver=driver.value, program="./your_program")
            if isinstance(driver, Known)
            else "",
            driver_way(question, branch=floor.min_driver_same_major.branch, cuda=CudaVersion(version.major, 0)),
        )
        yield Seen(
            f"{_driver_and_offer(question)}; the toolkit in use is {version} ({toolkit.path})",
            do=tuple(way for way in ways if way),
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
    if wheel_cuda.major != offered.major or wheel_cuda <= offered.release:
        return
    names = {gpu.capability.value.sm for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)}
    target = f" ({', '.join(sorted(names))})" if names else ""
    yield Seen(
        f"{_driver_and_offer(question)}; torch {torch.version.value} was built with {wheel_cuda}, of the same major",
        do=(f"nothing, unless error 222 comes up; then build machine code for this GPU{target} instead of PTX",),
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
    next_one = "" if longest is None else f"branch {longest.branch} ({longest.kind.value}) is supported until "
    yield Seen(
        f"driver {shown(driver)}: NVIDIA supported branch {driver.value.branch} ({life.kind.value}) "
        f"until {life.supported_until}",
        do=() if longest is None else (f"at the next service: {next_one}{longest.supported_until}",),
    )


def _older_toolkit(question: Question, offered: CudaVersion | None) -> str:
    """A toolkit of the major that the driver runs: torch's own minor where torch has that major."""
    if offered is None:
        return ""
    torch = question.facts.torch
    wheel = torch.value.wheel_cuda if isinstance(torch, Known) else torch
    cuda = wheel.value.release if isinstance(wheel, Known) and wheel.value.major == offered.major else offered.release
    package = install(question.facts, f"cuda-toolkit-{cuda.major}-{cuda.minor}")
    return f"{as_root(question.facts, package)}, then export CUDA_HOME=/usr/local/cuda-{cuda}"


def _runs_only_older(question: Question, major: int) -> bool:
    """Whether this driver is known not to run a CUDA major: by what its libcuda says, else by its version."""
    observed, driver = observed_cuda(question.facts), question.facts.driver.kernel_version
    if observed is not None:
        return observed.major < major
    return isinstance(driver, Known) and not driver_runs(question, driver.value, major=major)


def _driver_and_offer(question: Question) -> str:
    """'driver 570.133.20 (/sys/module/nvidia/version) offers CUDA 12.8'."""
    driver, offered = question.facts.driver.kernel_version, offered_cuda(question)
    has = f"driver {shown(driver)}" if isinstance(driver, Known) else "the driver"
    return has if offered is None else f"{has} offers CUDA {offered}"


def _toolkits_in_use(question: Question) -> Iterator[Toolkit]:
    """The toolkit that torch's extension builder takes and the one whose nvcc is on PATH."""
    facts = question.facts.toolkits
    used = {facts.cpp_extension_home.value} if isinstance(facts.cpp_extension_home, Known) else set()
    if isinstance(facts.nvcc_on_path, Known) and isinstance(facts.nvcc_on_path.value.toolkit, Known):
        used.add(facts.nvcc_on_path.value.toolkit.value)
    return (toolkit for toolkit in facts.toolkits if used & {toolkit.path, *toolkit.found_by})


_VERSION_RULES: tuple[Rule, ...] = (
    Rule(
        code="driver-too-old-for-wheel",
        check=driver_too_old_for_wheel,
        severity=Severity.BLOCKS,
        depth=20,
        title="The GPU driver is too old for the installed torch wheel.",
        fires_when="The CUDA major of the torch wheel is above what the driver runs: by the CUDA that libcuda offers "
        "when cuInit works, else by the driver's version against the floor of that major.",
        looks_at=(
            "torch.wheel_cuda",
            "torch.version",
            "driver.kernel_version",
            "libcuda.driver_cuda",
            "libcuda.init_code",
        ),
        means="torch imports, but torch.cuda.is_available() is False.",
        error="CUDA initialization: The NVIDIA driver on your system is too old (found version ...). "
        "Please update your GPU driver",
        source=_MINOR_COMPAT,
        remedies=("install-forward-compat", "install-other-wheel", "upgrade-driver", "other-machine"),
        explains=("driver-too-old-for-toolkit",),
    ),
    Rule(
        code="driver-too-old-for-toolkit",
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
        means="nvcc compiles, but the program it makes links a CUDA runtime that this driver refuses with error 35. "
        "Setting LD_LIBRARY_PATH to an older toolkit does not change that: the runtime is linked in.",
        error="CUDA driver version is insufficient for CUDA runtime version",
        source=_MINOR_COMPAT,
        remedies=("install-toolkit-wheels", "install-forward-compat", "upgrade-driver"),
        for_goals=((Goal.BUILD_EXTENSIONS, Severity.DEGRADES), (Goal.KERNELS, Severity.BLOCKS)),
    ),
    Rule(
        code="minor-version-limits",
        check=minor_version_limits,
        severity=Severity.NOTE,
        depth=20,
        title="The driver is of the wheel's CUDA major but of an earlier minor.",
        fires_when="The wheel's CUDA has the major that the driver offers and a later minor.",
        looks_at=("torch.wheel_cuda", "driver.kernel_version", "libcuda.driver_cuda", "libcuda.init_code"),
        means="It works, by minor-version compatibility. What does not: PTX made by a newer toolkit than the driver "
        "knows (error 222), and the few calls that are newer than the driver (error 36).",
        error="the provided PTX was compiled with an unsupported toolchain.",
        source=_MINOR_COMPAT,
        remedies=("upgrade-driver",),
    ),
    Rule(
        code="driver-branch-ended",
        check=driver_branch_ended,
        severity=Severity.NOTE,
        depth=20,
        title="NVIDIA no longer supports this driver branch.",
        fires_when="The month the facts were collected in is after the month in which the branch's support ended.",
        looks_at=("driver.kernel_version", "collected_at"),
        means="It goes on working, but gets no fixes, and newer CUDA releases are not tested with it.",
        error="",
        source="docs.nvidia.com/datacenter/tesla/drivers/615/supported-drivers-and-cuda-toolkit-versions.html",
        remedies=("upgrade-driver",),
    ),
)

DRIVER_RULES: tuple[Rule, ...] = (*MODULE_RULES, *START_RULES, *_VERSION_RULES)

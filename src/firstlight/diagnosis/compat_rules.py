"""Rules about forward compatibility (cuda-compat-X-Y): forgotten, forbidden, stale, refused, or baked in."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.compat_answers import UNWIRE_WAYS, unwire_compat, wired
from firstlight.diagnosis.compat_choice import (
    InUse,
    all_eligible,
    branches_of,
    compat_in_use,
    cuda_of,
    driver_runs,
    ineligible_gpus,
    init_code,
    init_said,
    takes_branch,
    wheel_needs_compat,
)
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.libcuda_rules import LIBCUDA_RULES
from firstlight.diagnosis.observed import while_nvml_works
from firstlight.diagnosis.old_driver_answers import FOR_A_TORCH, for_a_torch
from firstlight.elf.loader import FoundBy
from firstlight.facts.compat import CompatLibrary
from firstlight.facts.known import Known, Unknown
from firstlight.ways.kinds import AskPerson, Why, WireCompat
from firstlight.ways.way import Chain, Proof, chain

_FORWARD = "docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
_STARTS = "cuInit of that library returned 0 on this machine"
_MISMATCH, _NOT_ELIGIBLE = 803, 804
_WHO_MAY = "forward compatibility is for data-center GPUs, some workstation ones and Jetson."
_TORCH_PREFIX = (
    "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
    "before calling NumCudaDevices() that might have already set an error? Error "
)


def compat_stale(question: Question) -> Iterator[Seen]:
    """A compat library older than the kernel driver answers every cuInit with 803, even within one branch."""
    facts = question.facts
    found, code = compat_in_use(facts), init_code(facts)
    if found is None or found.version >= found.kernel or code not in (None, _MISMATCH):
        return
    yield Seen(
        saw=f"libcuda {found.version} from {found.place} is older than the kernel driver {found.kernel} "
        f"({found.seen_in}); {init_said(facts, _MISMATCH)}",
        answers=unwire_compat(facts, found),
        means=f"torch sees no GPU{while_nvml_works(facts)}; the driver alone runs newer CUDA than that library does.",
    )


def compat_not_eligible(question: Question) -> Iterator[Seen]:
    """GeForce and Titan cards may not use forward compatibility: cuInit gives 804."""
    facts = question.facts
    found, code = compat_in_use(facts), init_code(facts)
    if code not in (None, _NOT_ELIGIBLE) or (found is None and code is None):
        return
    refused = tuple(ineligible_gpus(question))
    if found is None:
        yield _refused_for_no_visible_reason(question)
    elif code == _NOT_ELIGIBLE or (refused and found.version > found.kernel):
        gpus = " and ".join(refused) or "the GPU"
        yield Seen(
            saw=f"libcuda {found.version} from {found.place} is a compat library for the kernel driver {found.kernel} "
            f"({found.seen_in}), which {gpus} may not use; {init_said(facts, _NOT_ELIGIBLE)}",
            answers=unwire_compat(facts, found),
            means=f"torch sees no GPU{while_nvml_works(facts)}; {_WHO_MAY}",
        )


def _refused_for_no_visible_reason(question: Question) -> Seen:
    """cuInit gave 804, and the libcuda that would load is no compat library by its path or version."""
    facts = question.facts
    kernel, loads, loaded = facts.driver.kernel_version, facts.libcuda.would_load, facts.libcuda.loaded_path
    below = f"the kernel driver is {kernel.value} ({kernel.seen_in})" if isinstance(kernel, Known) else ""
    which = "the libcuda that was loaded"
    path = loads.value.path if isinstance(loads, Known) else loaded.value if isinstance(loaded, Known) else ""
    if isinstance(loads, Known):
        version = loads.value.version
        number = f" {version.value}" if isinstance(version, Known) else ""
        which = f"libcuda{number} at {path} ({loads.seen_in})"
        if isinstance(version, Known) and isinstance(kernel, Known) and version.value != kernel.value:
            order = "newer" if version.value > kernel.value else "older"
            below = f"it is {order} than the kernel driver {kernel.value} ({kernel.seen_in})"
    real = loads.value.real_path if isinstance(loads, Known) else path
    which_one = (("ldconfig", "-p"), *((("dpkg", "-S", real),) if real else ()))
    return Seen(
        saw=f"cuInit of {which} gives {_NOT_ELIGIBLE}" + (f"; {below}" if below else ""),
        answers=(chain(AskPerson("load-own-libcuda", Why.DECISION, which_one)), *_for_an_old_driver(question)),
        means="The library believes that it runs in compatibility mode, which this GPU may not use; torch sees no GPU.",
    )


def compat_unused(question: Question) -> Iterator[Seen]:
    """The library that would let this wheel run lies on the disk, and nothing loads it."""
    facts, kernel = question.facts, question.facts.driver.kernel_version
    needed, library = wheel_needs_compat(question), _usable_library(question)
    if isinstance(kernel, Unknown) or isinstance(facts.torch, Unknown) or needed is None or library is None:
        return
    if compat_in_use(facts) is not None or isinstance(library.version, Unknown):
        return  # one is in use and fails: the rule for that failure speaks
    folder = library.folder
    branches, says = branches_of(question, library)
    built = f"{facts.torch.value.folder}/version.py"
    takes = f"takes branches {', '.join(str(each) for each in branches)} ({says})" if branches else "takes this branch"
    yield Seen(
        saw=f"libcuda {library.version.value} in {folder} is not loaded; it {takes}, the kernel driver is "
        f"{kernel.value} ({kernel.seen_in}) and torch was built with CUDA {needed} ({built})",
        answers=_for_an_old_driver(question),
    )


def compat_branch_not_accepted(question: Question) -> Iterator[Seen]:
    """A compat library works only with the kernel-driver branches in its own list."""
    facts, kernel = question.facts, question.facts.driver.kernel_version
    if isinstance(kernel, Unknown) or _usable_library(question) is not None:
        return
    found, code = compat_in_use(facts), init_code(facts)
    needed = wheel_needs_compat(question)
    for library in facts.compat:
        if isinstance(library.version, Unknown) or library.version.value <= kernel.value:
            continue
        if takes_branch(question, library, branch=kernel.value.branch) is not False:
            continue
        in_use = found is not None and found.version == library.version.value and code in (None, _MISMATCH)
        cuda = cuda_of(question, library)
        wanted = found is None and needed is not None and cuda is not None and cuda.major >= needed.major
        if in_use or wanted:
            branches, says = branches_of(question, library)
            how = "is loaded" if in_use else "is not loaded"
            yield Seen(
                saw=f"libcuda {library.version.value} in {library.folder} {how}; it takes kernel driver branches "
                f"{', '.join(str(each) for each in branches) or 'of no kind'} ({says}), and the kernel driver is "
                f"{kernel.value} ({kernel.seen_in})" + (f"; {init_said(facts, _MISMATCH)}" if in_use else ""),
                answers=unwire_compat(facts, found) if in_use and found is not None else _for_an_old_driver(question),
            )


def compat_baked_in(question: Question) -> Iterator[Seen]:
    """A compat library that works today, wired for good: the next driver upgrade turns it into error 803."""
    facts = question.facts
    found = compat_in_use(facts)
    if found is None or found.copied or init_code(facts) != 0:
        return
    # Decided at each start, not for good: NVIDIA's container hook writes 00-compat-*.conf, NGC's entry point links lib.
    by_hook = found.library.entry.rpartition("/")[2].startswith("00-compat-")
    by_entry_point = found.library.path.endswith("/compat/lib/libcuda.so.1")
    if by_hook or by_entry_point or found.library.found_by not in (FoundBy.LIBRARY_PATH, FoundBy.CACHE):
        return
    yield Seen(
        saw=f"libcuda {found.version} from {found.place} works on the kernel driver {found.kernel} ({found.seen_in}); "
        "with a newer driver than the library it will not",
        answers=_decided_at_start(question, found),
    )


def _decided_at_start(question: Question, found: InUse) -> tuple[Chain, ...]:
    """The folder out of the path, and wired at each start where the driver alone does not run this CUDA."""
    first, *rest = unwire_compat(question.facts, found)
    for library in question.facts.compat:
        cuda = cuda_of(question, library)
        same = isinstance(library.version, Known) and library.version.value == found.version
        if same and cuda is not None and not driver_runs(question, found.kernel, cuda):
            return (chain(*first.ways, wired(question, library, cuda), proof=Proof.PROVED_HERE, by=_STARTS),)
    return (first, *rest)


def _usable_library(question: Question) -> CompatLibrary | None:
    """The newest compat library here that takes the kernel driver and these GPUs and is of the wheel's CUDA major."""
    facts, kernel, needed = question.facts, question.facts.driver.kernel_version, wheel_needs_compat(question)
    if isinstance(kernel, Unknown) or needed is None:
        return None
    fitting = [
        (library.version.value, library)
        for library in facts.compat
        if isinstance(library.version, Known)
        and library.version.value > kernel.value
        and (cuda := cuda_of(question, library)) is not None
        and cuda.major >= needed.major
        and takes_branch(question, library, branch=kernel.value.branch)
        and all_eligible(question, library)
    ]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _for_an_old_driver(question: Question) -> tuple[Chain, ...]:
    """What makes up for a driver that the wheel's CUDA is too new for; () where it runs it."""
    needed = wheel_needs_compat(question)
    return () if needed is None else for_a_torch(question, needed)


_WIRING = ("libcuda.would_load", "libcuda.ld_library_path", "driver.kernel_version", "libcuda.init_code", "compat")

COMPAT_RULES = (
    Rule(
        check=compat_stale,
        severity=Severity.BLOCKS,
        depth=30,
        title="An old compat library is loaded in place of the driver's own libcuda.",
        fires_when="The libcuda that loads is a compat library older than the kernel driver, and cuInit does not work.",
        looks_at=_WIRING,
        means="torch sees no GPU; the driver alone runs newer CUDA than that library does.",
        error=f"{_TORCH_PREFIX}803: system has unsupported display driver / cuda driver combination",
        source=_FORWARD,
        ways=UNWIRE_WAYS,
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
    Rule(
        check=compat_not_eligible,
        severity=Severity.BLOCKS,
        depth=30,
        title="A compat library is loaded on a GPU that may not use one.",
        fires_when="The libcuda that loads is a compat library and cuInit gives 804, or the GPU is a GeForce or Titan.",
        looks_at=(*_WIRING, "gpus.devices.brand"),
        means=f"torch sees no GPU; {_WHO_MAY}",
        error=f"{_TORCH_PREFIX}804: forward compatibility was attempted on non supported HW",
        source=_FORWARD,
        ways=(*UNWIRE_WAYS, *FOR_A_TORCH),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
    Rule(
        check=compat_unused,
        severity=Severity.BLOCKS,
        depth=30,
        title="The compat library that would make this torch run is installed, but nothing loads it.",
        fires_when="The wheel needs a newer driver, and a compat library here takes this kernel driver and these GPUs.",
        looks_at=(
            "compat.note",
            "compat.version",
            "driver.kernel_version",
            "gpus.devices.brand",
            "torch.wheel_cuda",
            "libcuda.driver_cuda",
        ),
        means="torch imports and sees no GPU; the cuda-compat package only copies files, it configures nothing.",
        error="UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version ...).",
        source=_FORWARD,
        ways=FOR_A_TORCH,
        explains=("driver-too-old-for-wheel",),
    ),
    Rule(
        check=compat_branch_not_accepted,
        severity=Severity.BLOCKS,
        depth=30,
        title="The compat library here was not made for this kernel driver.",
        fires_when="A compat library is loaded or needed, and its list of driver branches lacks the one running here.",
        looks_at=("compat.note.driver_branches", *_WIRING, "torch.wheel_cuda"),
        means="This library cannot make the wheel run; NVIDIA's container hook leaves it out for the same reason.",
        error="ERROR: This container was built for NVIDIA Driver Release ... or later, but version ... was "
        "detected and compatibility mode is UNAVAILABLE.",
        source=_FORWARD,
        ways=(*UNWIRE_WAYS, *FOR_A_TORCH),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
    Rule(
        check=compat_baked_in,
        severity=Severity.DEGRADES,
        depth=30,
        title="A compat library is wired in for good and will break with the next driver upgrade.",
        fires_when="LD_LIBRARY_PATH or an ldconfig file makes every process load a compat library, and cuInit works.",
        looks_at=_WIRING,
        means="It works today; once the driver is newer than the library, every CUDA program fails with error 803.",
        error=f"{_TORCH_PREFIX}803: system has unsupported display driver / cuda driver combination",
        source=_FORWARD,
        ways=(*UNWIRE_WAYS, WireCompat),
    ),
    *LIBCUDA_RULES,
)

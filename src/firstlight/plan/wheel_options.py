"""Another torch as an option: by driver, capability, Python and processor, with the packages that have to follow it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_choice import driver_runs
from firstlight.diagnosis.observed import listed
from firstlight.diagnosis.specifiers import newest
from firstlight.diagnosis.wheel_choice import Wheel, gpus_of, unproved_wheel, wheels_that_run
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.plan.costs import cost
from firstlight.plan.option import Cost, Kind, Option, Proof, Risk
from firstlight.plan.removals import after_removal
from firstlight.plan.sets import PackageSet, Pick
from firstlight.plan.situation import Situation
from firstlight.plan.sizes import download_bytes
from firstlight.tables.row import Confidence
from firstlight.tables.torch_rows import TorchRelease

_KIND = Kind.WHEEL
# One release of each goes with one of torch; who changes torch changes them with it.
_COMPANIONS = ("torchvision", "torchaudio")
_COMPANION_FAULTS = (
    "companion-wants-other-torch",
    "companions-disagree",
    "extension-for-other-cuda",
    "extension-for-other-torch",
)


_CURED_BY_A_NEWER_ONE = ("cudnn-mix", "missing-library", "triton-too-old-for-gpu")


def wheel_options(situation: Situation) -> Iterator[Option]:
    """The torch of the same release that runs here and the newest one; else one rejection that says why not."""
    if why_not := _why_not(situation):
        yield _rejected(situation, why_not)
        return
    found = tuple(_candidates(situation))
    for wheel in found:
        yield set_option(situation, _set_of(situation, wheel), proof=proof_of_wheel(situation, wheel))
    if found:
        return
    unproved = unproved_wheel(situation.question)
    if unproved is None or situation.is_primary(*_COMPANION_FAULTS, "nvcc-major-differs"):
        yield _rejected(situation, _no_wheel(situation))
    else:
        yield set_option(situation, _set_of(situation, unproved), proof=Proof.GUESSED)


def _why_not(situation: Situation) -> str:
    """Why no torch helps; '' where one might."""
    primary = situation.primary
    if primary is None:
        return "the torch that is here runs"
    if not situation.answered_by(_KIND):
        return f"{primary.code} is not cured by another torch"
    if primary.code == "compat-not-eligible" and situation.needs is None:
        return "the torch that is here runs once the compat library is out of the way"
    return ""


def _candidates(situation: Situation) -> Iterator[Wheel]:
    """The same release built for a CUDA that runs here, or the nearest; and the newest of all; never what is here."""
    wheels = tuple(_down_to_the_installed(situation))
    if situation.is_primary("nvcc-major-differs"):
        wheels = tuple(wheel for wheel in wheels if wheel.cuda.major in _nvcc_majors(situation))
    if situation.is_primary(*_COMPANION_FAULTS):
        pins = _pinned_releases(situation)
        every = (wheel for wheel in wheels_that_run(situation.question) if _fits(situation, wheel))
        yield from tuple(wheel for wheel in every if wheel.torch.public in pins)[:1]
        return
    near = () if situation.is_primary(*_CURED_BY_A_NEWER_ONE) else _nearest(situation, wheels)
    yield from dict.fromkeys((*near, *wheels[:1]))


def _down_to_the_installed(situation: Situation) -> Iterator[Wheel]:
    """The wheels that run here, newest first, down to the minor release that is installed, and one at least."""
    installed, found = situation.installed, False
    for wheel in wheels_that_run(situation.question):
        if found and installed is not None and wheel.torch.release[:2] < installed.release[:2]:
            return
        if _fits(situation, wheel):
            found = True
            yield wheel


def _fits(situation: Situation, wheel: Wheel) -> bool:
    """Whether a wheel is another one than the installed and runs on the driver by itself."""
    installed, kernel = situation.installed, situation.kernel
    if installed is not None and wheel.torch.public == installed.public and situation.torch_cuda == wheel.cuda:
        return False
    too_new = kernel is not None and not driver_runs(situation.question, kernel, major=wheel.cuda.major)
    return not (too_new and situation.needs is not None)


def _nearest(situation: Situation, wheels: tuple[Wheel, ...]) -> tuple[Wheel, ...]:
    """The installed release, else its minor, as the first wheel that runs; for a GPU that newer CUDA dropped in the
    CUDA that the newest torch still has for it."""
    installed = situation.installed
    if installed is None:
        return ()
    for size in (3, 2):
        same = [wheel for wheel in wheels if wheel.torch.release[:size] == installed.release[:size]]
        kept = [wheel for wheel in same if wheel.cuda == wheels[0].cuda]
        if same:
            return (kept[0] if kept and _is_dropped(situation) else same[0],)
    return ()


def _is_dropped(situation: Situation) -> bool:
    """Whether a GPU here is of an architecture that NVIDIA's drivers and CUDA 13 no longer know: Volta and older."""
    tables = situation.question.tables
    rows = [tables.capability(gpu.capability) for gpu in gpus_of(situation.question)]
    return any(row is not None and tables.architecture_limit(row.architecture) is not None for row in rows)


def _pinned_releases(situation: Situation) -> set[str]:
    """The torch releases that every installed package which pins one pins, e.g. {'2.8.0'}; none where they differ."""
    pins = {
        wanted.specifier.removeprefix("==").strip()
        for each in situation.facts.companions
        for wanted in each.requires
        if wanted.name == "torch" and not wanted.open_marker and wanted.specifier.startswith("==")
    }
    return pins if len(pins) == 1 else set()


def _nvcc_majors(situation: Situation) -> set[int]:
    toolkits = situation.facts.toolkits.toolkits
    return {each.nvcc_version.value.major for each in toolkits if isinstance(each.nvcc_version, Known)}


def _set_of(situation: Situation, wheel: Wheel) -> PackageSet:
    """torch with the installed companions of PyTorch's own that follow it, e.g. torchvision 0.24.0 for torch 2.9.0."""
    tables, facts = situation.question.tables, situation.facts
    local = wheel.cuda.tag if wheel.index else ""
    names, versions = {each.name for each in facts.companions}, {"torch": wheel.torch.public}
    for project in _COMPANIONS:
        rows = tables.companions_for(project, wheel.torch) if project in names else ()
        if version := newest(tuple(row.version for row in rows)):
            versions[project] = version
    picks = tuple(_pick(situation, wheel, project, version, local=local) for project, version in versions.items())
    return PackageSet(picks, _source(situation, wheel), facts.place.arch)


def _pick(situation: Situation, wheel: Wheel, project: str, version: str, *, local: str) -> Pick:
    arch = situation.facts.place.arch
    row = situation.question.tables.wheel_size(project, version, machine=arch) if not wheel.index else None
    size: Fact[int] = Unknown(f"the size of {project} {version}{f'+{local}' if local else ''} is not in the tables")
    if row is not None:
        size = Known(row.bytes, f"PyPI, {row.date}")
    tag = local if project == "torch" or arch == "x86_64" else ""  # PyTorch's other wheels for aarch64 go without it
    return Pick(project, version, Known(wheel.cuda, "tables"), wheel.index, size, tag)


def set_option(
    situation: Situation, packages: PackageSet, *, proof: Proof, leaves_out: tuple[str, ...] | None = None
) -> Option:
    """A set of packages as an option of its own, e.g. another-wheel:torch-2.9.0+cu128."""
    torch = packages.torch
    blank = situation.blank(_KIND, torch.requirement.replace("==", "-"))
    left = _left_out(situation, torch) if leaves_out is None else leaves_out
    satisfied = tuple(each for each in blank.satisfies if not any(out.startswith(f"{each}:") for out in left))
    cuda = f" with CUDA {torch.cuda.value.release}" if isinstance(torch.cuda, Known) and not torch.local else ""
    names = ", ".join(pick.requirement for pick in packages.picks)
    return replace(
        blank,
        title=after_removal(situation, f"{names}{cuda}{_where(situation, torch)}"),
        proof=proof,
        proof_by=packages.proof_by,
        satisfies=satisfied,
        leaves_out=(*blank.leaves_out, *left),
        cost=_cost(situation, packages),
        risk=Risk.LOW,
        brings=tuple(pick.requirement for pick in packages.picks),
        index=torch.index,
        folder="" if situation.facts.environment is None else situation.facts.environment.prefix,
    )


def _cost(situation: Situation, packages: PackageSet) -> Cost:
    size = download_bytes(packages, situation.question.tables)
    built = [pick.project for pick in packages.picks if pick.from_source]
    waits = f"how long building {listed(built)} takes is not known" if built else ""
    unpacked = Unknown("what the wheels take once unpacked is not on record")
    return cost(situation.request, download=size, disk=unpacked, waits=waits)


def _where(situation: Situation, torch: Pick) -> str:
    """Where it comes from and what it goes into: ' from the index cu128, by the project's pyproject.toml'."""
    index = f" from PyTorch's index {torch.index.rpartition('/')[2]}" if torch.index else " from PyPI"
    environment = situation.facts.environment
    files = [file.path.rpartition("/")[2] for file in situation.facts.python.project_files]
    if environment is not None and files and environment.kind in (EnvironmentKind.UV_VENV, EnvironmentKind.PIXI):
        name = "pixi.toml" if environment.kind is EnvironmentKind.PIXI else "pyproject.toml"
        return f"{index}, named in the project's {name} so that it stays"
    return index


def _left_out(situation: Situation, torch: Pick) -> tuple[str, ...]:
    """The release that is installed, where another one takes its place."""
    installed = situation.installed
    if installed is None or installed.public == torch.version:
        return ()
    return (f"torch {installed.public}: it becomes {torch.version}, and packages built for it must follow",)


def proof_of_wheel(situation: Situation, wheel: Wheel) -> Proof:
    """Documented where a row of the tables or of the wheel itself says so; reported where it is second-hand."""
    row = _release(situation, wheel)
    if row is not None and row.wheel_cuda == wheel.cuda:
        return Proof.REPORTED if row.confidence is Confidence.REPORTED else Proof.DOCUMENTED
    variant = situation.question.tables.variant_targets(wheel.torch, wheel.cuda, machine=situation.facts.place.arch)
    if variant is None:
        return Proof.GUESSED
    return Proof.REPORTED if variant.confidence is Confidence.REPORTED else Proof.DOCUMENTED


def _source(situation: Situation, wheel: Wheel) -> str:
    gpus = listed(sorted({f"{gpu.name} ({gpu.capability})" for gpu in gpus_of(situation.question)}))
    row = _release(situation, wheel)
    variant = situation.question.tables.variant_targets(wheel.torch, wheel.cuda, machine=situation.facts.place.arch)
    known = row if row is not None and row.wheel_cuda == wheel.cuda else variant
    if known is None:
        return "no row says for which GPUs it has code"
    driver = "" if situation.kernel is None else f", and the driver runs CUDA {wheel.cuda}"
    return f"it has code for {gpus or 'the GPUs of its list'} ({known.source}){driver}"


def _release(situation: Situation, wheel: Wheel) -> TorchRelease | None:
    return situation.question.tables.torch_release(wheel.torch, situation.facts.place.arch)


def _no_wheel(situation: Situation) -> str:
    if situation.is_primary("nvcc-major-differs"):
        return "no official wheel of the CUDA major of this nvcc runs on this driver by itself"
    if situation.is_primary(*_COMPANION_FAULTS):
        return "the packages that clash pin no one torch that runs here; they have to follow torch"
    gpus = listed(sorted({f"{gpu.name} ({gpu.capability})" for gpu in gpus_of(situation.question)}))
    environment = situation.facts.environment
    version = environment.python_version if environment is not None else Unknown("no Python")
    python = f", Python {version.value}" if isinstance(version, Known) else ""
    driver = f", driver {situation.kernel}" if situation.kernel is not None else ""
    place = f"{situation.facts.place.arch}{python}{driver}"
    return f"no official wheel is known to run on {gpus or 'the GPU'} here ({place})"


def _rejected(situation: Situation, why_not: str) -> Option:
    return replace(situation.blank(_KIND, "any"), title="another torch wheel", feasible=False, why_not=why_not)

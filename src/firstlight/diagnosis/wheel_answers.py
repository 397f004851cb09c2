"""Another torch as answers: the same release for another CUDA, the same minor, the newest."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

from firstlight.diagnosis.compat_choice import driver_runs
from firstlight.diagnosis.copies import hiding
from firstlight.diagnosis.driver_answers import driver_answers
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.leftover_wheels import written_over
from firstlight.diagnosis.observed import listed
from firstlight.diagnosis.source_answers import source_answers
from firstlight.diagnosis.wheel_choice import Wheel, cuda_major_in_reach, gpus_of, unproved_wheels, wheels_that_run
from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.distributions import Distribution, duplicates, find_distribution
from firstlight.facts.known import Fact, Known, Origin, Unknown, value_or
from firstlight.facts.torch_install import TorchInstall
from firstlight.specifiers import newest, satisfies
from firstlight.tables.row import Confidence
from firstlight.tables.torch_rows import TorchRelease, VariantTargets
from firstlight.versions import CudaVersion, TorchVersion
from firstlight.ways import kinds
from firstlight.ways.way import Chain, Proof, Way, cannot, chain
from firstlight.ways.way_back import TRITONS

# One release of each goes with one of torch; who changes torch changes them with it.
COMPANIONS = ("torchvision", "torchaudio")
Fits = Callable[[Wheel], bool]
TORCH_WAYS: tuple[type[Way], ...] = (kinds.InstallWheels, kinds.RemoveDistributions, kinds.UnsetVariables)
TORCH_OR_ELSE_WAYS: tuple[type[Way], ...] = (
    *TORCH_WAYS,
    kinds.BuildFromSource,
    kinds.InstallDriver,
    kinds.Restart,
    kinds.AskPerson,
)


def torch_answers(question: Question, fits: Fits = lambda _: True) -> tuple[Chain, ...]:
    """Other torches that run here with the packages that follow them, what keeps most of the user's first.

    A torch that hides another is taken out of the way: one beside it would not be imported.
    """
    first = _in_front(question.facts)
    if first and own_torch(question.facts) is not None:
        return (chain(*first, proof=Proof.DOCUMENTED, by="docs.python.org: the order of sys.path"),)
    found = tuple(torch_chain(question, wheel, *first) for wheel in torch_wheels(question, fits))
    return found or (cannot("another torch wheel", _none_runs(question)),)


def torch_wheels(question: Question, fits: Fits) -> tuple[Wheel, ...]:
    """The wheels to take: the nearest to the judged torch and the newest, else one that nobody has tried."""
    return tuple(_candidates(question, fits)) or _unproved(question, fits)


def torch_chain(question: Question, wheel: Wheel, *first: Way) -> Chain:
    """One torch as an answer, with what says that it runs here."""
    return chain(
        *first, *installed_as(question, wheel), proof=proof_of_wheel(question, wheel), by=_source(question, wheel)
    )


def own_torch(facts: Facts) -> Distribution | None:
    """The torch that the judged environment itself holds: not one of PYTHONPATH, nor of pip's --user folder."""
    environment = facts.environment
    for each in environment.distributions if environment is not None else ():
        if environment is not None and each.name == "torch" and each.folder.startswith(f"{environment.prefix}/"):
            return each
    return None


def hides_another(facts: Facts) -> bool:
    """Whether the judged torch stands in front of the environment's own, which nobody has judged."""
    return bool(_in_front(facts)) and own_torch(facts) is not None


def _in_front(facts: Facts) -> tuple[Way, ...]:
    """What brings a torch that is not the environment's own to the front: PYTHONPATH, or pip's --user folder.

    pip (23.2, tried) would uninstall the copy of its --user folder, and write over the other one: two records are left.
    """
    torch, environment = facts.torch, facts.environment
    if isinstance(torch, Known) and torch.value.found_via == "PYTHONPATH":
        return (kinds.UnsetVariables(("PYTHONPATH",)),)
    if environment is None or isinstance(torch, Unknown):
        return ()
    torches = tuple(each for each in environment.distributions if each.name == "torch")
    own, twice = own_torch(facts), next(iter(duplicates(torches)), None)
    if own is None or twice is None or twice.folders[0] in (own.folder, ""):
        return ()
    return hiding("torch", twice, own.folder) if posixpath.dirname(torch.value.folder) == twice.folders[0] else ()


def torch_or_else(question: Question) -> tuple[Chain, ...]:
    """Other torches; where none is known to run here, a newer driver before them and a build after them."""
    answers = torch_answers(question)
    if any(not each.why_not and each.proof is not Proof.GUESSED for each in answers):
        return answers
    row, reach = question.tables.newest_torch(question.facts.place.arch), cuda_major_in_reach(question)
    cuda = None if row is None else row.wheel_cuda
    driver = () if cuda is None or reach is None or reach >= cuda.major else driver_answers(question, cuda)
    return (*driver, *answers, *source_answers(question))


def installed_as(question: Question, wheel: Wheel) -> tuple[Way, ...]:
    """torch with the installed companions that follow it, e.g. torch 2.9.0+cu128 and torchvision 0.24.0+cu128.

    The local part is needed: pip takes an installed 2.9.0+cu130 for a 2.9.0 and changes nothing; where the wheel is
    PyPI's and has none, the installed one goes first.
    """
    facts = question.facts
    local = f"+{wheel.cuda.tag}" if wheel.index else ""
    packages = [kinds.Package("torch", f"{wheel.torch.public}{local}")]
    names = {each.name for each in facts.companions}
    for project in COMPANIONS:
        rows = question.tables.companions_for(project, wheel.torch) if project in names else ()
        fitting = newest(tuple(row.version for row in rows))
        if fitting and _is_built_for(question, project, fitting, wheel):
            packages.append(kinds.Package(project, fitting + (local_of(facts, wheel.cuda) if wheel.index else "")))
    install = kinds.InstallWheels(tuple(packages), wheel.index)
    here = find_distribution(facts.environment.distributions, "torch") if facts.environment is not None else None
    same = here is not None and not wheel.index and here.version.partition("+")[0] == wheel.torch.public
    gone = (*(("torch",) if same else ()), *sorted(_brings_triton(question, wheel) & names))
    gone += written_over(facts, wheel.cuda.major)
    return (kinds.RemoveDistributions(gone), install) if gone else (install,)


def _brings_triton(question: Question, wheel: Wheel) -> set[str]:
    """The other names of the Triton that a wheel pins: all write the same files, and pip takes them for several."""
    release = question.tables.torch_release(wheel.torch, question.facts.place.arch)
    return set(TRITONS) if release is not None and release.pin("triton") is not None else set()


def _is_built_for(question: Question, project: str, version: str, wheel: Wheel) -> bool:
    """Whether an index has a companion that came with an older torch: torchaudio 2.11.0 only for the CUDA of 2.11.0."""
    own = TorchVersion.parse(version) if project == "torchaudio" else wheel.torch
    if not wheel.index or own.release == wheel.torch.release:
        return True
    return bool(question.tables.variant_sightings(own, wheel.cuda))


def local_of(facts: Facts, cuda: CudaVersion) -> str:
    """The local part of what PyTorch's index has beside torch, e.g. +cu128; its wheels for aarch64 go without."""
    return f"+{cuda.release.tag}" if facts.place.arch == "x86_64" else ""


def within(project: str, specifier: str) -> kinds.Package:
    """A package as a requirement bounds it: ==9.1.0.70 is a version, >=2.29,<3 are bounds."""
    exact = re.fullmatch(r"==\s*([^,*\s]+)", specifier.strip())
    return kinds.Package(project, exact[1]) if exact else kinds.Package(project, bounds=specifier.replace(" ", ""))


def judged_torch(question: Question) -> TorchInstall | None:
    """The torch that is judged: installed, or wanted in its place."""
    return question.facts.torch.value if isinstance(question.facts.torch, Known) else None


def _candidates(question: Question, fits: Fits) -> Iterator[Wheel]:
    """The judged release built for a CUDA that runs here, or the nearest; and the newest of all; never what is here."""
    torch = judged_torch(question)
    version = _left_behind(question.facts) if torch is None else torch.version
    like = version.value if isinstance(version, Known) else None
    wheels = tuple(_down_to(question, like, fits))
    yield from dict.fromkeys((*nearest_wheels(question, like, wheels), *wheels[:1]))


def _left_behind(facts: Facts) -> Fact[TorchVersion]:
    """The torch of the environment that a planned one takes the place of: it is the one to have there too."""
    chosen = facts.python.selected
    if isinstance(chosen, Known) and chosen.origin is Origin.PLANNED:
        for environment in facts.python.environments:
            for each in environment.distributions:
                with suppress(BadVersion):
                    if each.name == "torch":
                        return Known(TorchVersion.parse(each.version), environment.prefix)
    return Unknown("no environment was left behind, or it holds no torch")


def _down_to(question: Question, like: TorchVersion | None, fits: Fits) -> Iterator[Wheel]:
    """The wheels that run here, newest first, down to the minor release that is judged, and one at least."""
    found = False
    for wheel in wheels_that_run(question):
        if found and like is not None and wheel.torch.release[:2] < like.release[:2]:
            return
        if _may_answer(question, wheel) and fits(wheel):
            found = True
            yield wheel


def _unproved(question: Question, fits: Fits) -> tuple[Wheel, ...]:
    """The newest wheel that may run here, though nobody says so."""
    return tuple(wheel for wheel in unproved_wheels(question) if _may_answer(question, wheel) and fits(wheel))[:1]


def _may_answer(question: Question, wheel: Wheel) -> bool:
    return _is_another(question, wheel) and _is_admitted(question, wheel)


def _is_another(question: Question, wheel: Wheel) -> bool:
    """Whether a wheel is another one than the judged, and runs on the driver by itself where that one does not."""
    torch, kernel = judged_torch(question), question.facts.driver.kernel_version
    if torch is None or isinstance(torch.wheel_cuda, Unknown):
        return True
    cuda = torch.wheel_cuda.value
    if (
        isinstance(torch.version, Known)
        and torch.version.value.public == wheel.torch.public
        and cuda.release == wheel.cuda
    ):
        return False
    if isinstance(kernel, Unknown) or driver_runs(question, kernel.value, wheel.cuda):
        return True
    return driver_runs(question, kernel.value, cuda)


def _is_admitted(question: Question, wheel: Wheel) -> bool:
    """Whether the bounds that are wanted of torch admit a wheel; one exact torch bounds nothing: it is judged."""
    for want in question.wants:
        match = re.fullmatch(r"\s*torch\s*([<>=!~].*)", want, re.IGNORECASE)
        exact = match is not None and re.fullmatch(r"===?[^,*]+", match[1]) is not None
        if match is not None and not exact and satisfies(wheel.torch.public, match[1]) is False:
            return False
    return True


def nearest_wheels(question: Question, like: TorchVersion | None, wheels: tuple[Wheel, ...]) -> tuple[Wheel, ...]:
    """The judged release, else its minor, as the first wheel that runs; for a GPU that newer CUDA dropped in the
    CUDA that the newest torch still has for it."""
    for size in (3, 2) if like is not None else ():
        same = [wheel for wheel in wheels if like is not None and wheel.torch.release[:size] == like.release[:size]]
        kept = [wheel for wheel in same if wheel.cuda == wheels[0].cuda]
        if same:
            return (kept[0] if kept and _is_dropped(question) else same[0],)
    return ()


def cuda_kept_for(question: Question) -> CudaVersion | None:
    """For a GPU that newer CUDA dropped the CUDA in which the newest torch still has code for it; else None."""
    newest_one = next(iter(wheels_that_run(question)), None) if _is_dropped(question) else None
    return None if newest_one is None else newest_one.cuda


def _is_dropped(question: Question) -> bool:
    """Whether a GPU here is of an architecture that NVIDIA's drivers and CUDA 13 no longer know: Volta and older."""
    tables = question.tables
    rows = [tables.capability(gpu.capability) for gpu in gpus_of(question)]
    return any(row is not None and tables.architecture_limit(row.architecture) is not None for row in rows)


def _row(question: Question, wheel: Wheel) -> TorchRelease | VariantTargets | None:
    """The row that says for which GPUs a wheel has code."""
    arch = question.facts.place.arch
    release = question.tables.torch_release(wheel.torch, arch)
    if release is not None and release.wheel_cuda == wheel.cuda:
        return release
    return question.tables.variant_targets(wheel.torch, wheel.cuda, machine=arch)


def proof_of_wheel(question: Question, wheel: Wheel) -> Proof:
    """Documented where a row of the tables or of the wheel itself says so; reported where it is second-hand."""
    row = _row(question, wheel)
    if row is None or not row.compiled_for:
        return Proof.GUESSED
    return Proof.REPORTED if row.confidence is Confidence.REPORTED else Proof.DOCUMENTED


def _source(question: Question, wheel: Wheel) -> str:
    row = _row(question, wheel)
    if row is None or not row.compiled_for:
        return "no row says for which GPUs it has code"
    facts = question.facts  # a driver older than all rows says no CUDA: nothing is said of it then
    known = isinstance(facts.driver.kernel_version, Known) and isinstance(facts.libcuda.driver_cuda, Known)
    driver = f", and the driver runs CUDA {wheel.cuda}" if known else ""
    return f"it has code for {_gpus(question) or 'the GPUs of its list'} ({row.source}){driver}"


def _gpus(question: Question) -> str:
    return listed(sorted({f"{gpu.name} ({gpu.capability})" for gpu in gpus_of(question)}))


def _none_runs(question: Question) -> str:
    facts = question.facts
    version = facts.environment.python_version if facts.environment is not None else Unknown("no Python")
    python, kernel = value_or(version, ""), facts.driver.kernel_version
    place = [facts.place.arch, *([f"Python {python}"] if python else [])]
    place += [f"driver {kernel.value}"] if isinstance(kernel, Known) else []
    return f"no other official wheel is known to run on {_gpus(question) or 'the GPU'} here ({', '.join(place)})"


def cuda_of_torch(question: Question) -> CudaVersion | None:
    """The CUDA that the judged torch is built for."""
    torch = judged_torch(question)
    return torch.wheel_cuda.value if torch is not None and isinstance(torch.wheel_cuda, Known) else None

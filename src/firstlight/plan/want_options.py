"""What was asked for by name, as options: the set that holds all of it, what comes nearest, or why it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.wheel_choice import Wheel
from firstlight.errors import BadVersion
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.plan.option import Kind, Option, Proof
from firstlight.plan.other_options import nothing_to_do
from firstlight.plan.pins import admits
from firstlight.plan.sets import PackageSet
from firstlight.plan.situation import Situation
from firstlight.plan.solve import WIDEST, Clash, Solution, solve
from firstlight.plan.want import PYTHON, Want
from firstlight.plan.wheel_options import proof_of_wheel, set_option
from firstlight.plan.with_set import installed_builds
from firstlight.versions import TorchVersion

_COMPANIONS = ("torchvision", "torchaudio")  # built for one torch each; others bring their own pins
_MOST = 3  # of the sets that hold all wants, and of those that come near


@dataclass(frozen=True, slots=True)
class Answer:
    """The situation with the set to install, and what could be solved with this driver and with any."""

    situation: Situation
    here: Solution
    anywhere: Solution

    @property
    def is_impossible(self) -> bool:
        """Whether no driver would help: the wants themselves cannot be had together."""
        return not self.anywhere.sets

    @property
    def refused(self) -> tuple[Clash, ...]:
        """Wants that cannot be had together, whatever the driver."""
        return self.anywhere.clashes if not self.anywhere.sets else ()


def situation_with_wants(situation: Situation) -> Answer:
    """Solve the wants: with the driver as it is, and, where that gives nothing, with any driver."""
    question, request = situation.question, situation.request
    here = solve(question, request.wants, channel=request.channel)
    anywhere = here if here.sets else solve(question, request.wants, channel=request.channel, driver_cuda=WIDEST)
    return Answer(replace(situation, wanted=(here.sets or anywhere.sets)[:1]), here, anywhere)


def what_cannot_be_had(answer: Answer) -> str:
    """Which part of the wants no driver and no library brings, in sentences; "" where all can be had."""
    if answer.is_impossible:
        clashes = " ".join(each.sentence for each in answer.refused)
        # With any driver: the driver that is here is not what keeps them apart.
        return " ".join(filter(None, (answer.anywhere.impossible, clashes, _none_near_here(answer))))
    situation = answer.situation
    here = tuple(_python_here(situation))
    for want in situation.request.wants:
        if want.project == PYTHON and here and not admits(_of_minor(want.specifier), here[0]):
            python = want.exact or "3.12"
            return (
                f"{want.text}: the environment has Python {here[0]}, and packages are installed into the environment "
                f"that is there. Make another (uv venv --python {python} FOLDER) and give it with --python FOLDER."
            )
    return ""


def _none_near_here(answer: Answer) -> str:
    """That nothing near the wants runs on this machine, and what would with another driver; '' where something does."""
    if answer.here.nearest or not answer.anywhere.nearest:
        return ""
    packages = answer.anywhere.nearest[0]
    names = ", ".join(pick.requirement for pick in packages.picks)
    return f"Nothing that comes near it is known to run on this machine; the nearest elsewhere is {names}: " + (
        f"{_driver_for(answer.situation, packages)}."
    )


def _driver_for(situation: Situation, packages: PackageSet) -> str:
    """'it takes driver 580.65.06 or newer (here 540.4.0)'."""
    cuda = packages.torch.cuda
    row = situation.question.tables.cuda_major(cuda.value.major) if isinstance(cuda, Known) else None
    here = f" (here {situation.kernel})" if situation.kernel is not None else ""
    if row is None or (situation.kernel is not None and situation.kernel >= row.min_driver_same_major):
        return f"it takes another driver{here}"
    return f"it takes driver {row.min_driver_same_major} or newer{here}"


def _of_minor(specifier: str) -> str:
    """Python 3.12 is any 3.12.x: '==3.12' becomes '==3.12.*'."""
    exact = specifier.removeprefix("==")
    return f"=={exact}.*" if specifier.startswith("==") and exact.count(".") == 1 else specifier


def want_options(answer: Answer) -> Iterator[Option]:
    """The wanted sets as options of their own; what is installed already, what comes nearest, what is impossible."""
    situation = answer.situation
    if not situation.is_blocked and _is_installed(situation):
        yield from nothing_to_do(situation)
        return
    for packages in answer.here.sets[:_MOST]:
        yield _unless_blocked(situation, packages, ())
    if answer.here.sets:
        return
    for packages in answer.here.nearest[:_MOST]:
        yield _unless_blocked(situation, packages, tuple(_left_out(situation.request.wants, packages)))
    for packages in () if answer.here.nearest else answer.anywhere.nearest[:_MOST]:  # solved as if for any driver
        near = _unless_blocked(situation, packages, tuple(_left_out(situation.request.wants, packages)))
        yield replace(near, feasible=False, why_not=_driver_for(situation, packages))
    yield replace(
        situation.blank(Kind.WHEEL, "as-wanted"),
        title=" with ".join(want.text for want in situation.request.wants),
        feasible=False,
        why_not=answer.here.impossible or answer.anywhere.impossible,
    )


def _unless_blocked(situation: Situation, packages: PackageSet, left: tuple[str, ...]) -> Option:
    """A set as an option; infeasible alone where something else than torch has to be put right first."""
    option = set_option(situation, packages, proof=_proof(situation, packages), leaves_out=left)
    staying = [name for name in _COMPANIONS if packages.pick(name) is None and installed_builds(situation, name)]
    if staying:
        more = " ".join(f"--want {name}" for name in staying)
        option = replace(
            option, title=f"{option.title}; {' and '.join(staying)} stay as they are ({more} moves them too)"
        )
    if not situation.is_blocked or situation.answered_by(Kind.WHEEL):
        return option
    why_not = f"{situation.diagnosis.primary} has to be answered first, and is not cured by another torch"
    return replace(option, feasible=False, why_not=why_not)


def _is_installed(situation: Situation) -> bool:
    """Whether the environment that was judged holds every want, and no other copy of it."""
    for want in situation.request.wants:
        if want.project == PYTHON:
            fits = [admits(_of_minor(want.specifier), version) for version in _python_here(situation)]
        else:
            found = installed_builds(situation, want.project)
            fits = [admits(want.specifier, version) and want.local in ("", local) for version, local in found]
        if not (fits and all(fits)):
            return False
    # The build that was judged is the wanted one; another build of the same release may be what keeps it from working.
    judged = situation.torch_cuda
    builds = {local for _, local in installed_builds(situation, "torch")}
    return judged is None or builds <= {"", judged.release.tag}


def _python_here(situation: Situation) -> Iterator[str]:
    environment = situation.facts.environment
    if environment is not None and isinstance(environment.python_version, Known):
        yield environment.python_version.value


def _left_out(wants: tuple[Want, ...], packages: PackageSet) -> Iterator[str]:
    """The wants that a set does not hold, each with what it has instead."""
    for want in wants:
        pick = packages.pick(want.project)
        if want.project == PYTHON:
            continue
        if pick is None:
            yield f"{want.text}: it does not go with the rest"
            continue
        local = pick.local or (pick.cuda.value.tag if isinstance(pick.cuda, Known) else "")
        if not admits(want.specifier, pick.version) or want.local not in ("", local):
            yield f"{want.text}: it becomes {pick.requirement}"


def _proof(situation: Situation, packages: PackageSet) -> Proof:
    """As well as torch's own build is known; a package that is compiled here is a guess."""
    torch = packages.torch
    if any(pick.from_source for pick in packages.picks) or not torch.version:
        return Proof.GUESSED
    if not isinstance(torch.cuda, Known):
        return Proof.DOCUMENTED
    try:
        wheel = Wheel(TorchVersion.parse(torch.version), torch.cuda.value, torch.index)
    except BadVersion:
        return Proof.GUESSED
    return proof_of_wheel(situation, wheel)
